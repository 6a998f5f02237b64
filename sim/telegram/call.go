package telegram

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// uploadLimit is the most a request may carry: the Bot API takes files of
// 50 MB; its front end answers anything larger with an HTML page.
const uploadLimit = 50<<20 + 1<<16

// Request is one call of the Bot API as it arrived, in the order of arrival.
type Request struct {
	Time    time.Time
	Method  string            // as the server spells it: "sendMessage"; as sent when unknown
	Params  map[string]string // every parameter as text; structures as JSON
	Files   []string          // names of uploaded files by field: "document=report.md"
	Verdict string            // "" while waiting; "ok", "400 Bad Request: …", "fault: cut after", …
}

// Chat is the chat_id the call was for, 0 when it has none.
func (r Request) Chat() int64 {
	id, err := strconv.ParseInt(r.Params["chat_id"], 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// requestsKept bounds the memory of a simulator that runs for days.
const requestsKept = 50_000

// Requests returns every call so far, the refused and the failed too. Only the
// newest 50 000 are kept.
func (s *Server) Requests() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Request, len(s.requests))
	for i, r := range s.requests {
		all[i] = *r
		all[i].Params = maps.Clone(r.Params)
		all[i].Files = slices.Clone(r.Files)
	}
	return all
}

// call is a request being worked on.
type call struct {
	method string // lower case
	params map[string]string
	files  map[string]upload
	http   *http.Request
	record *Request
}

type upload struct {
	name, mime string
	content    []byte
}

func (s *Server) serveAPI(w http.ResponseWriter, r *http.Request) {
	token, method, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	if !ok {
		writeAnswer(w, refused(&apiError{code: 404, description: "Not Found"}))
		return
	}
	if !tokenShape.MatchString(token) {
		writeAnswer(w, refused(&apiError{code: 401, description: "Unauthorized: invalid token specified"}))
		return
	}
	if subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		writeAnswer(w, refused(&apiError{code: 401, description: "Unauthorized"}))
		return
	}
	c, err := readCall(w, r, method)
	s.remember(c)
	var a answer
	switch {
	case errors.Is(err, errTooLarge):
		a = htmlAnswer(http.StatusRequestEntityTooLarge, "Request Entity Too Large")
	case err != nil:
		a = refused(badRequest("%s", err.Error()))
	default:
		a = s.perform(c)
	}
	s.conclude(c, a)
	s.deliver(w, r, a)
}

// remember records that the call arrived.
func (s *Server) remember(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.record = &Request{Time: s.now(), Method: spelling(c.method), Params: c.params}
	for field, f := range c.files {
		c.record.Files = append(c.record.Files, field+"="+f.name)
	}
	slices.Sort(c.record.Files)
	s.requests = append(s.requests, c.record)
	if len(s.requests) > requestsKept {
		s.requests = slices.Delete(s.requests, 0, len(s.requests)-requestsKept)
	}
	for name, value := range c.params {
		if strings.Contains(value, s.token) {
			s.violate("the bot token is in parameter %s of %s", name, c.record.Method)
		}
	}
}

func (s *Server) conclude(c *call, a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.record.Verdict = a.verdict
	s.bump()
}

var errTooLarge = errors.New("request entity too large")

// readCall takes the parameters from the query string and from a body of any
// of the forms the server knows. The first of two values wins, as there. On an
// error the call holds what was read so far.
func readCall(w http.ResponseWriter, r *http.Request, method string) (*call, error) {
	c := &call{method: strings.ToLower(method), params: map[string]string{}, files: map[string]upload{}, http: r}
	c.add(r.URL.Query())
	r.Body = http.MaxBytesReader(w, r.Body, uploadLimit)
	kind, options, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		kind = ""
	}
	if kind == "multipart/form-data" {
		err = c.readMultipart(r, options["boundary"])
	} else {
		var body []byte
		if body, err = io.ReadAll(r.Body); err == nil {
			err = c.readBody(kind, body)
		}
	}
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		err = errTooLarge
	}
	return c, err
}

func (c *call) add(values url.Values) {
	for name, value := range values {
		if _, taken := c.params[name]; !taken && len(value) > 0 {
			c.params[name] = value[0]
		}
	}
}

func (c *call) readMultipart(r *http.Request, boundary string) error {
	if boundary == "" {
		return errors.New("boundary not found in multipart body")
	}
	body := bufio.NewReader(r.Body)
	if _, err := body.Peek(1); err == io.EOF {
		return nil // go-telegram/bot announces parts and sends none
	}
	reader := multipart.NewReader(body, boundary)
	for {
		part, err := reader.NextPart()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return partError(err)
		}
		content, err := io.ReadAll(part)
		if err != nil {
			return partError(err)
		}
		c.addPart(part, content)
	}
}

func (c *call) addPart(part *multipart.Part, content []byte) {
	name := part.FormName()
	if part.FileName() == "" {
		c.add(url.Values{name: {string(content)}})
		return
	}
	c.files[name] = upload{name: part.FileName(), mime: part.Header.Get("Content-Type"), content: content}
}

func partError(err error) error {
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		return err
	}
	return errors.New("can't parse multipart body")
}

func (c *call) readBody(kind string, body []byte) error {
	switch kind {
	case "application/json":
		return c.readJSON(body)
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return errors.New("can't parse parameters")
		}
		c.add(values)
	}
	return nil // other kinds carry no parameters
}

// readJSON keeps strings as they are and everything else as its JSON text: to
// the server a null is the word null (HttpReader::parse_json_parameters).
func (c *call) readJSON(body []byte) error {
	if len(bytes.TrimSpace(body)) == 0 {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return errors.New("JSON object expected")
	}
	for name, raw := range fields {
		value := string(raw)
		if raw[0] == '"' {
			if err := json.Unmarshal(raw, &value); err != nil {
				return errors.New("can't parse parameter value")
			}
		}
		c.add(url.Values{name: {value}})
	}
	return nil
}

// number reads an integer parameter as the server does: leading digits count,
// anything else is 0, out of bounds is moved to the bound.
func (c *call) number(name string, absent, low, high int64) int64 {
	text, ok := c.params[name]
	if !ok || text == "" {
		return absent
	}
	text = strings.TrimSpace(text)
	end := 0
	for end < len(text) && (text[end] >= '0' && text[end] <= '9' || end == 0 && text[end] == '-') {
		end++
	}
	n, err := strconv.ParseInt(text[:end], 10, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		n = 0
	}
	return min(max(n, low), high)
}

func (c *call) flag(name string) bool {
	switch strings.ToLower(strings.TrimSpace(c.params[name])) {
	case "true", "yes", "1":
		return true
	}
	return false
}
