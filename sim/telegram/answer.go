package telegram

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

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
