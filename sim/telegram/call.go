package telegram

import (
	"bufio"
	"bytes"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
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

// apiError is a refusal in the Bot API's form; nil means the call succeeded.
type apiError struct {
	code        int
	description string
	retryAfter  int // seconds; 0 leaves the parameter out
}

func badRequest(format string, args ...any) *apiError {
	return refuse(http.StatusBadRequest, fmt.Sprintf(format, args...))
}

// refuse writes a message the way the server does: after the name of the
// status, its first letter lowered unless it is an identifier
// (Client::fail_query_with_error).
func refuse(code int, message string) *apiError {
	prefix := map[int]string{400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 500: "Internal Server Error"}[code]
	if prefix == "" || strings.HasPrefix(message, prefix) {
		return &apiError{code: code, description: message}
	}
	if len(message) >= 2 && message[1] != '_' && (message[1] < 'A' || message[1] > 'Z') {
		message = strings.ToLower(message[:1]) + message[1:]
	}
	return &apiError{code: code, description: prefix + ": " + message}
}

// answer is what goes back over the wire, and how badly.
type answer struct {
	status     int
	body       []byte
	html       bool
	retryAfter int
	hang       bool // hold the request until the client gives up
	cut        bool // close the connection without an answer
	half       bool // close it in the middle of the body
	verdict    string
	told       *penalty // in force from the moment this answer is out
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

// deliver writes the answer, or withholds it as a fault demands.
func (s *Server) deliver(w http.ResponseWriter, r *http.Request, a answer) {
	switch {
	case a.hang:
		select {
		case <-r.Context().Done():
		case <-s.done:
		}
		panic(http.ErrAbortHandler)
	case a.cut:
		panic(http.ErrAbortHandler)
	case a.half:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		w.WriteHeader(a.status)
		_, err := w.Write(a.body[:len(a.body)/2])
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return // the client was quicker to leave
		}
		panic(http.ErrAbortHandler)
	}
	writeAnswer(w, a)
	if a.told != nil {
		s.mu.Lock()
		a.told.told = true
		s.mu.Unlock()
	}
}

func writeAnswer(w http.ResponseWriter, a answer) {
	kind := "application/json"
	if a.html {
		kind = "text/html"
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	w.WriteHeader(a.status)
	// A client that has left does not hear the answer; nothing to be done.
	_, _ = w.Write(a.body)
}

// envelope is the frame of every JSON answer.
type envelope struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result,omitempty"`
	ErrorCode   int             `json:"error_code,omitempty"`
	Description string          `json:"description,omitempty"`
	Parameters  *parameters     `json:"parameters,omitempty"`
}

type parameters struct {
	RetryAfter int `json:"retry_after,omitempty"`
}

func succeeded(result any, description string) answer {
	raw, err := json.Marshal(result)
	if err == nil {
		raw, err = json.Marshal(envelope{OK: true, Result: raw, Description: description})
	}
	if err != nil {
		return refused(refuse(500, err.Error()))
	}
	return answer{status: http.StatusOK, body: raw, verdict: "ok"}
}

func refused(e *apiError) answer {
	frame := envelope{ErrorCode: e.code, Description: e.description}
	if e.retryAfter > 0 {
		frame.Parameters = &parameters{RetryAfter: e.retryAfter}
	}
	raw, err := json.Marshal(frame)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return answer{
		status: e.code, body: raw, retryAfter: e.retryAfter,
		verdict: strconv.Itoa(e.code) + " " + e.description,
	}
}

func htmlAnswer(code int, title string) answer {
	head := strconv.Itoa(code) + " " + title
	return answer{
		status: code, html: true, verdict: head + " (HTML)",
		body: []byte("<html>\r\n<head><title>" + head + "</title></head>\r\n<body>\r\n<center><h1>" + head +
			"</h1></center>\r\n<hr><center>nginx/1.18.0</center>\r\n</body>\r\n</html>\r\n"),
	}
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
