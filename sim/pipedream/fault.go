package pipedream

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Shape is how a faulty answer looks.
type Shape string

// Shapes that replace the whole answer. Status, Header and Body of the fault apply to the first; Status to Empty, HTML
// and Truncated too.
const (
	Status       Shape = "status"         // Status and Body as given
	Empty        Shape = "empty"          // no body
	HTML         Shape = "html"           // an HTML page where JSON belongs
	Truncated    Shape = "truncated"      // the good answer, its JSON cut in the middle
	Cut          Shape = "cut"            // the connection ends without a byte
	CutInBody    Shape = "cut_in_body"    // the connection ends within the answer
	Hang         Shape = "hang"           // nothing until the client goes away
	Drip         Shape = "drip"           // the head at once, then a space now and then until the client goes away
	Async        Shape = "async"          // 202 without body
	Throttled    Shape = "throttled"      // 429, Retry-After in seconds (Status of the fault is ignored; Seconds applies)
	ThrottleDate Shape = "throttle_date"  // 429, Retry-After as a date
	ThrottleBare Shape = "throttle_reset" // 429, no Retry-After, only X-RateLimit-Reset
	Plan         Shape = "plan"           // 400: the plan does not allow tool calls in production
	TooLarge     Shape = "too_large"      // 413
	ExpireToken  Shape = "expire_token"   // every bearer dies before this request is looked at
)

// Shapes of a run that fails. Status of the fault is the upstream status of Upstream (default 404).
const (
	EnvelopeA   Shape = "envelope_a"  // 200 with an error observation only
	EnvelopeB   Shape = "envelope_b"  // 200 with an error object, origin component_code
	Details     Shape = "details"     // 400 with error and details
	Upstream    Shape = "upstream"    // 200, origin upstream_api, exports.debug with a marker secret
	BareString  Shape = "bare_string" // 200 with an observation without name and stack
	NetworkIO   Shape = "network_io"  // 200, origin network_io
	TurnsUnwell Shape = "unhealthy"   // the account turns unhealthy between check and run
)

// Shapes of a run that succeeds, and therefore is performed.
const (
	NoReturn    Shape = "no_return"
	NoSummary   Shape = "no_summary"
	BigReturn   Shape = "big_return" // ret of 1 MB
	StashID     Shape = "stash_id"
	StashIDOld  Shape = "stashId"
	HTTPAnswer  Shape = "http_answer"  // ret is a whole HTTP answer object
	ErrorBeside Shape = "error_beside" // an error observation beside a good ret
)

// Fault makes requests go wrong. The zero Count is one request.
type Fault struct {
	Path string `json:"path"` // end of the path: "actions/run", "accounts", "oauth/token"; empty for any
	Key  string `json:"key"`  // action key (id in the body); empty for any
	Skip int    `json:"skip"` // matching requests that pass first
	// Count is how many matching requests go wrong; negative: all.
	Count int `json:"count"`
	// Performed tells that the request has its effect before things go wrong.
	Performed bool              `json:"performed"`
	Shape     Shape             `json:"shape"`
	Status    int               `json:"status"`
	Seconds   int               `json:"seconds"` // of Throttled; default 1
	Header    map[string]string `json:"header"`
	Body      string            `json:"body"`
}

// Fault adds a fault; of several that match, the oldest is used up first.
func (s *Server) Fault(f Fault) {
	if f.Count == 0 {
		f.Count = 1
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// ClearFaults drops the faults that are left.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = nil
}

// takeFault uses up one count of the first fault that matches.
func (s *Server) takeFault(r request) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.faults {
		if f.Count == 0 || !strings.HasSuffix("/"+r.path, "/"+f.Path) && f.Path != "" || f.Key != "" && f.Key != r.actionKey() {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Count > 0 {
			f.Count--
		}
		return f
	}
	return nil
}

// actionKey is the action a request is about: id in the body, or the last part of actions/{key}.
func (r request) actionKey() string {
	if id := r.text("id"); id != "" || r.method == http.MethodPost {
		return id
	}
	return r.parts[len(r.parts)-1]
}

// misbehave answers one request as its fault says.
func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, req request, f *Fault) {
	switch f.Shape {
	case ExpireToken:
		s.ExpireTokens()
		s.write(w, s.route(req))
		return
	case TurnsUnwell:
		s.sicken(req)
		s.write(w, s.route(req))
		return
	case OptionObserved:
		s.write(w, ok(object{"observations": []any{observation(failure{name: "Error", message: "the app said no"})},
			"context": nil, "options": nil, "errors": []any{}, "stringOptions": nil}))
		return
	case OptionErrors, OptionToken, OptionSame, OptionEndless, OptionKinds:
		req.trap = f.Shape
		s.write(w, s.route(req))
		return
	case NoReturn, NoSummary, BigReturn, StashID, StashIDOld, HTTPAnswer, ErrorBeside, Truncated, CutInBody:
		good := s.route(req)
		s.deform(w, f, good)
		return
	}
	if f.Performed {
		s.route(req)
	}
	if a, isAnswer := s.faultAnswer(f); isAnswer {
		s.write(w, a)
		return
	}
	s.breakOff(w, r, f)
}

// faultAnswer gives the answers that are still answers.
func (s *Server) faultAnswer(f *Fault) (answer, bool) {
	throttled := answer{status: http.StatusTooManyRequests, body: object{"error": "Throttled"}, header: map[string]string{
		"X-RateLimit-Limit": "2000", "X-RateLimit-Remaining": "0"}}
	wait := time.Duration(max(f.Seconds, 1)) * time.Second
	until := s.cfg.Now().Add(wait)
	throttled.header["X-RateLimit-Reset"] = strconv.FormatInt(until.Unix(), 10)
	switch f.Shape {
	case Throttled:
		throttled.header["Retry-After"] = strconv.Itoa(int(wait.Seconds()))
		return throttled, true
	case ThrottleDate:
		throttled.header["Retry-After"] = until.UTC().Format(http.TimeFormat)
		return throttled, true
	case ThrottleBare:
		return throttled, true
	case Async:
		return answer{status: http.StatusAccepted}, true
	case Empty:
		return answer{status: orStatus(f.Status, http.StatusOK)}, true
	case Plan:
		return fail(http.StatusBadRequest, "Tool calls in production are not part of your current plan."), true
	case TooLarge:
		return fail(http.StatusRequestEntityTooLarge, "payload_too_large"), true
	case EnvelopeA, EnvelopeB, Details, Upstream, BareString, NetworkIO:
		return failedRun(failureOf(f.Shape, f.Status), f.Shape), true
	}
	return answer{}, false
}

// breakOff writes what is no answer of the API at all.
func (s *Server) breakOff(w http.ResponseWriter, r *http.Request, f *Fault) {
	for k, v := range f.Header {
		w.Header().Set(k, v)
	}
	switch f.Shape {
	case HTML:
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(orStatus(f.Status, http.StatusOK))
		_, _ = io.WriteString(w, "<html><body><h1>Bad Gateway</h1></body></html>")
	case Hang:
		<-r.Context().Done()
	case Drip:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			_, _ = io.WriteString(w, " ")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
			}
		}
	case Status:
		w.WriteHeader(orStatus(f.Status, http.StatusInternalServerError))
		_, _ = io.WriteString(w, f.Body)
	default: // Cut, and any shape nobody knows
		panic(http.ErrAbortHandler)
	}
}

// deform sends a good answer in a strange or broken form.
func (s *Server) deform(w http.ResponseWriter, f *Fault, good answer) {
	raw, err := json.Marshal(good.body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch f.Shape {
	case Truncated:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(orStatus(f.Status, good.status))
		_, _ = w.Write(raw[:len(raw)/2])
		return
	case CutInBody:
		w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
		w.WriteHeader(good.status)
		_, _ = w.Write(raw[:len(raw)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	body, isObject := clone(good.body).(object)
	if !isObject || good.status != http.StatusOK {
		s.write(w, good)
		return
	}
	exports, _ := body["exports"].(object)
	switch f.Shape {
	case NoReturn:
		delete(body, "ret")
	case NoSummary:
		delete(exports, "$summary")
	case BigReturn:
		body["ret"] = bigReturn()
	case StashID, StashIDOld:
		body[string(f.Shape)] = "stash000000000000000000000000001"
		exports["$filestash_uploads"] = []any{object{"localPath": "/tmp/a.pdf", "s3Key": "1day/" + s.cfg.ProjectID + "/a.pdf",
			"get_url": "https://files.example.com/a.pdf?signature=" + presignedMarker}}
	case HTTPAnswer:
		body["ret"] = object{"status": 200, "statusText": "OK", "headers": object{"authorization": debugMarker},
			"config": object{"url": "https://api.example.com", "token": debugMarker}, "data": body["ret"]}
	case ErrorBeside:
		body["os"] = []any{observation(failure{name: "Error", message: "a side step failed"})}
	}
	s.write(w, answer{status: http.StatusOK, body: body})
}

// bigReturn is a list of about 1 MB.
func bigReturn() []any {
	var out []any
	for i := range 1000 {
		out = append(out, object{"id": strconv.Itoa(i), "text": strings.Repeat("x", 1000)})
	}
	return out
}

// sicken makes the account of a run unhealthy, after the gateway looked at it.
func (s *Server) sicken(r request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	props, _ := r.body["configured_props"].(object)
	for _, v := range props {
		if bound, isObject := v.(object); isObject {
			if apn, _ := bound["authProvisionId"].(string); apn != "" {
				if a := s.find(r, apn); a != nil {
					a.Healthy = false
				}
			}
		}
	}
}

func orStatus(status, otherwise int) int {
	if status == 0 {
		return otherwise
	}
	return status
}
