package model

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
)

// forward passes one request to the model and its answer back, both byte for byte; the answer as it comes.
func (d *Doors) forward(w http.ResponseWriter, r *http.Request, q question, m *meter, p Process) {
	req, err := http.NewRequestWithContext(r.Context(), http.MethodPost, d.cfg.URL+q.target, bytes.NewReader(q.body))
	if err != nil { // the URL was checked in New and the targets are constants
		refuse(w, http.StatusInternalServerError, "api_error", "internal error")
		return
	}
	req.Header = passed(r.Header, requestHeader)
	req.Header.Set("Content-Type", "application/json") // as it was read; the sender's word could name another reading
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("X-Api-Key", d.cfg.Key.Reveal())
	resp, err := d.client.Do(req)
	if err != nil {
		m.hungUp = r.Context().Err() != nil
		d.unreachable(w, r, p, err)
		return
	}
	defer resp.Body.Close()
	m.begin(resp.StatusCode, resp.Header)
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		d.cfg.Log.Error().Str("event", "model.key_refused").Str("run", string(p.Run)).Int("status", resp.StatusCode).Send()
	}
	if resp.StatusCode != http.StatusOK {
		d.passError(w, resp, p)
		return
	}
	d.begin(w, resp)
	err = stream(w, resp.Body, m, &watch{secret: []byte(d.cfg.Key.Reveal())})
	if errors.Is(err, errEcho) {
		d.breach("security.key_echoed", p)
	} else if err != nil && r.Context().Err() == nil {
		d.cfg.Log.Warn().Str("event", "model.cut").Str("run", string(p.Run)).Err(err).Send()
	}
	if err != nil {
		panic(http.ErrAbortHandler) // an answer that broke off must not look like one that ended
	}
}

// begin passes on status and headers, but none with the key in it.
func (d *Doors) begin(w http.ResponseWriter, resp *http.Response) {
	for name, values := range passed(resp.Header, responseHeader) {
		if !strings.Contains(strings.Join(values, "\n"), d.cfg.Key.Reveal()) {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(resp.StatusCode)
}

// maxError bounds what is passed on of an error, in bytes.
const maxError = 1 << 20

// passError passes on what the API says of its refusal; in place of an error that repeats the key, one of our own.
func (d *Doors) passError(w http.ResponseWriter, resp *http.Response, p Process) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxError))
	if err != nil || bytes.Contains(body, []byte(d.cfg.Key.Reveal())) {
		if err == nil {
			d.breach("security.key_echoed", p)
		}
		resp.Header.Set("Content-Type", "application/json")
		body = []byte(`{"type":"error","error":{"type":"api_error","message":"the model refused"}}`)
	}
	d.begin(w, resp)
	_, _ = w.Write(body) // a caller that is gone reads no error
}

// stream copies an answer, flushing each piece, so that the first word is seen when it is said. The meter reads along.
func stream(w http.ResponseWriter, from io.Reader, m *meter, key *watch) error {
	flush := http.NewResponseController(w)
	if err := flush.Flush(); err != nil { // the headers: that the model answers is worth knowing
		return err
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			m.read(buf[:n])
			piece, kerr := key.pass(buf[:n])
			if werr := write(w, flush, piece); werr != nil || kerr != nil {
				return errors.Join(kerr, werr)
			}
		}
		if errors.Is(err, io.EOF) {
			return write(w, flush, key.held)
		}
		if err != nil {
			return err
		}
	}
}

func write(w io.Writer, flush *http.ResponseController, piece []byte) error {
	if len(piece) == 0 {
		return nil
	}
	if _, err := w.Write(piece); err != nil {
		return err
	}
	return flush.Flush()
}

var errEcho = errors.New("the answer has the key in it")

// watch looks for a secret in a stream. It holds back only an end that may be the secret's beginning.
type watch struct {
	secret []byte
	held   []byte
}

// pass returns what may go on; with an error, what came before the secret.
func (g *watch) pass(piece []byte) ([]byte, error) {
	all := append(g.held, piece...)
	if before, _, found := bytes.Cut(all, g.secret); found {
		return before, errEcho
	}
	keep := min(len(all), len(g.secret)-1)
	for !bytes.HasPrefix(g.secret, all[len(all)-keep:]) {
		keep--
	}
	g.held = bytes.Clone(all[len(all)-keep:])
	return all[:len(all)-keep], nil
}

// unreachable answers for a model that could not be asked. What went wrong, with its addresses, is for the operator only.
func (d *Doors) unreachable(w http.ResponseWriter, r *http.Request, p Process, err error) {
	if r.Context().Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
		panic(http.ErrAbortHandler) // the caller is gone, or the run: what nobody answers must not look like an answer
	}
	d.cfg.Log.Error().Str("event", "model.unreachable").Str("run", string(p.Run)).Err(err).Send()
	refuse(w, http.StatusBadGateway, "api_error", "the model cannot be reached")
}

// passed copies the headers that may cross the door. A list of what passes, not of what does not: credentials, cookies and
// hop-by-hop headers have too many names.
func passed(h http.Header, may func(string) bool) http.Header {
	out := http.Header{}
	for name, values := range h {
		if may(strings.ToLower(name)) {
			out[name] = slices.Clone(values)
		}
	}
	return out
}

func requestHeader(name string) bool {
	switch name {
	case "accept", "user-agent", "x-app", "anthropic-version", "anthropic-beta", "anthropic-dangerous-direct-browser-access":
		return true
	}
	return strings.HasPrefix(name, "x-stainless-") || strings.HasPrefix(name, "x-claude-code-")
}

// responseHeader leaves out what tells of the operator's account, such as organization ids and rate limits.
func responseHeader(name string) bool {
	switch name {
	case "content-type", "request-id", "retry-after", "retry-after-ms", "x-should-retry":
		return true
	}
	return false
}
