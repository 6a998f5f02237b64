package pipedream

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Performed is one action that really happened, reads included.
type Performed struct {
	Time         time.Time      `json:"time"`
	ExternalUser string         `json:"external_user"`
	Account      string         `json:"account"` // empty for an action without account
	Key          string         `json:"key"`
	Version      string         `json:"version"`
	Props        map[string]any `json:"props"` // without the account
}

// Ledger lists what was performed, in order, each performance once.
func (s *Server) Ledger() []Performed {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.ledger)
	for i := range out {
		out[i].Props = clone(out[i].Props).(object)
	}
	return out
}

// failure is a run that went wrong inside. origin is empty for a bare string.
type failure struct {
	origin  string // component_code, upstream_api, network_io
	name    string
	message string
	status  int            // of the upstream answer
	details map[string]any // makes it a 400 with details
}

// Error makes a failure an error of the worlds.
func (f failure) Error() string { return f.message }

// The failures worlds give.
func misused(format string, args ...any) error {
	return failure{origin: "component_code", name: "ConfigurationError", message: fmt.Sprintf(format, args...)}
}
func upstream(status int, message string) error {
	return failure{origin: "upstream_api", name: fmt.Sprintf("AxiosError - Request failed with status code %d", status),
		message: `{"message":"` + message + `"}`, status: status}
}

// runAction answers POST actions/run.
func (s *Server) runAction(r request) answer {
	key, version := r.text("id"), r.text("version")
	def, given := s.effective(r)
	if def == nil {
		return fail(http.StatusNotFound, "record not found")
	}
	a, refused := s.accountFor(r, def, given)
	if refused != nil {
		return *refused
	}
	args, missing := arguments(def, given)
	if len(missing) > 0 {
		details := object{}
		for _, name := range missing {
			details[name] = []any{"is required"}
		}
		return failedRun(failure{message: "invalid configured_props", details: details}, Details)
	}
	if a != nil && !a.Healthy {
		return failedRun(upstream(http.StatusUnauthorized, "invalid credentials"), Upstream)
	}
	app, action, _ := strings.Cut(key, "-")
	w := &world{}
	apn := ""
	if a != nil {
		w, apn = a.world, a.ID
	}
	ret, summary, err := w.perform(app, action, args, s.cfg.Now().UTC())
	if err != nil {
		return failedRun(err, EnvelopeB)
	}
	s.ledger = append(s.ledger, Performed{Time: s.cfg.Now(), ExternalUser: r.text("external_user_id"), Account: apn,
		Key: key, Version: version, Props: clone(args).(object)})
	return ok(object{"exports": object{"$summary": summary}, "os": []any{}, "ret": clone(ret)})
}

// effective gives the definition that applies, with the props of a reload that still holds, and the props sent.
func (s *Server) effective(r request) (def, given object) {
	def = s.catalog.action(r.text("id"), r.text("version"))
	given, _ = r.body["configured_props"].(object)
	re, known := s.reloads[r.text("dynamic_props_id")]
	if def == nil || !known || re.externalUser != r.text("external_user_id") || re.key != r.text("id") || re.version != r.text("version") {
		return def, given // an id that does not hold: the first definition silently applies
	}
	def = clone(def).(object)
	def["configurable_props"] = re.props
	return def, given
}

// accountFor finds the account the app prop names. An action without app prop has none.
func (s *Server) accountFor(r request, def, given object) (*account, *answer) {
	props := propsOf(def)
	i := slices.IndexFunc(props, func(p prop) bool { return p.Type == "app" })
	if i < 0 {
		return nil, nil
	}
	bound, _ := given[props[i].Name].(object)
	apn, _ := bound["authProvisionId"].(string)
	if apn == "" {
		no := failedRun(failure{origin: "component_code", name: "TypeError",
			message: "Cannot read properties of undefined (reading '$auth')"}, EnvelopeB)
		return nil, &no
	}
	a := s.find(r, apn)
	if a == nil || a.ExternalUser != r.text("external_user_id") && !s.switches.RunsForeign {
		no := fail(http.StatusNotFound, "record not found")
		return nil, &no
	}
	if a.App != props[i].App {
		no := failedRun(failure{origin: "component_code", name: "Error", message: "the account is of another app"}, EnvelopeB)
		return nil, &no
	}
	return a, nil
}

// arguments drops the app prop and everything the definition does not know, opens __lv, and names what is required and
// absent.
func arguments(def, given object) (args object, missing []string) {
	args = object{}
	for _, p := range propsOf(def) {
		v, there := given[p.Name]
		switch {
		case p.Type == "app" || p.Type == "alert" || p.Type == "dir":
		case there && v != nil:
			args[p.Name] = plain(v)
		case !p.Optional && !p.Hidden:
			missing = append(missing, p.Name)
		}
	}
	return args, missing
}

// plain opens {"__lv":{label,value}}, also inside arrays.
func plain(v any) any {
	switch v := v.(type) {
	case object:
		if lv, isLV := v["__lv"].(object); isLV {
			return lv["value"]
		}
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = plain(v[i])
		}
		return out
	}
	return v
}

// failureOf gives a typical failure for a forced envelope.
func failureOf(shape Shape, status int) error {
	switch shape {
	case Upstream:
		return upstream(orStatus(status, http.StatusNotFound), "not found")
	case BareString:
		return failure{message: "Not Found"}
	case NetworkIO:
		return failure{origin: "network_io", name: "Error", message: "socket hang up"}
	case Details:
		return failure{message: "invalid configured_props", details: object{"summary": []any{"is required"}}}
	}
	return misused("Give at most one of organization, user and group.")
}

// failedRun puts a failure into its envelope: A only when asked for, otherwise what fits the failure.
func failedRun(err error, shape Shape) answer {
	var f failure
	if !errors.As(err, &f) {
		f = failure{name: "Error", message: err.Error()}
	}
	if f.details != nil {
		return answer{status: http.StatusBadRequest, body: object{"error": f.message, "details": f.details}}
	}
	body := object{"exports": object{}, "os": []any{observation(f)}, "ret": nil}
	if f.origin == "upstream_api" {
		body["exports"] = object{"debug": object{"status": f.status, "statusText": http.StatusText(f.status),
			"headers": object{"content-type": "application/json", "set-cookie": debugMarker}, "data": object{"message": f.message}}}
	}
	if f.origin != "" && shape != EnvelopeA {
		body["error"] = object{"name": f.name, "message": f.message, "attribution": object{"origin": f.origin}}
	}
	return ok(body)
}

// observation is the os entry of a failure. A bare string has neither name nor stack.
func observation(f failure) object {
	err := object{"message": f.message}
	if f.name != "" {
		err["name"], err["stack"] = f.name, f.name+": (stack left out)"
	}
	return object{"ts": 1790000000000, "k": "error", "err": err}
}
