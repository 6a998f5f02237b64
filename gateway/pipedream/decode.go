package pipedream

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"pilder/policy"
)

// performed is a run that worked.
type performed struct {
	summary string
	ret     json.RawMessage // nil when the action returned nothing
	warning bool            // an error was logged beside a good return
}

// decodeRun tells what came of a run. Success is only a 2xx other than 202 without error object, and without a logged
// error unless something was returned all the same. The envelope of a failed run is not documented, so every known one is
// read (inferred: a 200 with a logged error; an error object with an attribution; a failed status with details).
func decodeRun(class policy.Class, r reply, err error) (performed, *trouble) {
	if err != nil || r.status == http.StatusAccepted || r.status >= 500 || r.status < 200 || (r.status >= 300 && r.status < 400) ||
		r.status == http.StatusRequestTimeout {
		return performed{}, uncertain(class)
	}
	var in struct {
		Exports map[string]json.RawMessage `json:"exports"`
		OS      []observation              `json:"os"`
		Ret     json.RawMessage            `json:"ret"`
		Error   json.RawMessage            `json:"error"`
		Details json.RawMessage            `json:"details"`
	}
	decoded := json.Unmarshal(r.body, &in) == nil
	switch {
	case r.status == http.StatusTooManyRequests:
		return performed{}, &trouble{code: codeBusy, class: class}
	case r.status >= 400 && decoded && isObject(in.Error):
		return performed{}, attributed(class, in.Error, in.Exports)
	case r.status >= 400 && decoded && hasError(in.OS):
		return performed{}, attributed(class, firstError(in.OS), in.Exports)
	case r.status == http.StatusBadRequest && decoded && isObject(in.Details):
		return performed{}, &trouble{code: codeBadArguments, class: class, problems: detailLines(in.Details)}
	case r.status >= 400:
		return performed{}, &trouble{code: codeGatewayProblem, class: class, operator: "run answered " + strconv.Itoa(r.status)}
	case !decoded || in.Exports == nil && in.OS == nil && in.Ret == nil && in.Error == nil:
		return performed{}, uncertain(class)
	case len(in.Error) > 0 && string(in.Error) != "null":
		return performed{}, attributed(class, in.Error, in.Exports)
	case hasError(in.OS) && !returned(in.Ret):
		return performed{}, attributed(class, firstError(in.OS), in.Exports)
	case in.Exports["$summary"] == nil && wantsAccount(in.Ret):
		if class != policy.ClassRead { // what looks like a wish may be what the action gave back
			return performed{}, uncertain(class)
		}
		return performed{}, &trouble{code: codeReconnect, class: class, again: true}
	}
	out := performed{warning: hasError(in.OS)}
	if returned(in.Ret) {
		out.ret = in.Ret
	}
	_ = json.Unmarshal(in.Exports["$summary"], &out.summary)
	return out, nil
}

// uncertain is what a broken-off exchange means: nothing for a read, and nobody knows what for everything else.
func uncertain(class policy.Class) *trouble {
	if class == policy.ClassRead {
		return &trouble{code: codeUnavailable, class: class}
	}
	return &trouble{code: codeOutcomeUnknown, class: class, unknown: true}
}

// attributed reads an error of the action itself. Where no attribution says who failed, its name may.
func attributed(class policy.Class, raw json.RawMessage, exports map[string]json.RawMessage) *trouble {
	said := readThrown(raw)
	var in struct {
		Attribution struct {
			Origin string `json:"origin"`
		} `json:"attribution"`
	}
	_ = json.Unmarshal(raw, &in) // a bare string has none
	status := upstreamStatus(said.Name, exports["debug"])
	switch origin := in.Attribution.Origin; {
	case origin == "component_code" || origin == "" && said.Name == "ConfigurationError":
		return &trouble{code: codeBadArguments, class: class, appText: said.Message}
	case origin == "network_io" || origin == "response_parsing":
		return uncertain(class)
	case origin == "upstream_api" || origin == "" && status != 0:
		return ofUpstream(class, status, said.Message)
	}
	t := &trouble{code: codeAppRefused, class: class, appText: said.Message, unknown: class != policy.ClassRead}
	return t
}

// ofUpstream says what an answer of the app means.
func ofUpstream(class policy.Class, status int, text string) *trouble {
	t := &trouble{class: class, appText: appWords(text)}
	switch {
	case status == http.StatusUnauthorized:
		t.code, t.appText = codeReconnect, ""
	case status == http.StatusNotFound || status == http.StatusGone:
		t.code = codeNotFound
	case status == http.StatusTooManyRequests:
		t.code = codeBusy
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout:
		t.code = codeAppRefused
	default: // 5xx, or no status at all
		return uncertain(class)
	}
	return t
}

var statusInName = regexp.MustCompile(`status code (\d{3})\b`)

// upstreamStatus finds the app's status: in exports.debug, which is read for nothing else, or in the error's name.
func upstreamStatus(name string, debug json.RawMessage) int {
	var in struct {
		Status int `json:"status"`
	}
	if json.Unmarshal(debug, &in) == nil && in.Status != 0 {
		return in.Status
	}
	if m := statusInName.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[1]) // three digits
		return n
	}
	return 0
}

// appWords takes the sentence out of an upstream body that is JSON text; other JSON is kept back.
func appWords(text string) string {
	if !strings.HasPrefix(strings.TrimSpace(text), "{") {
		return text
	}
	var in struct {
		Message string          `json:"message"`
		Error   json.RawMessage `json:"error"`
	}
	if json.Unmarshal([]byte(text), &in) != nil {
		return ""
	}
	if in.Message != "" {
		return in.Message
	}
	return readThrown(in.Error).Message
}

// detailLines names the props a refusal is about: {"summary": ["is required"]}.
func detailLines(raw json.RawMessage) []string {
	object, _ := decodeNumbers(raw).(map[string]any)
	var out []string
	for name, v := range object {
		list, isList := v.([]any)
		if !isList {
			list = []any{v}
		}
		for _, e := range list {
			if text, isText := e.(string); isText {
				out = append(out, clean(name, 60)+": "+clean(text, 200))
			}
		}
	}
	return sortedAtMost(out, 12)
}

var connectAsked = regexp.MustCompile(`(?is)(account (is )?required|connect (your|an|the) account|/_static/connect).{0,400}https?://|https?://[^\s"]*/_static/connect`)

// wantsAccount tells an answer that is no return of the action but the provider's own wish for an account, with a link and
// as if it were a success (public issue 21104): a text, or a tool result of one. Nothing was performed then.
func wantsAccount(ret json.RawMessage) bool {
	var text string
	if json.Unmarshal(ret, &text) != nil {
		var in struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
		}
		if json.Unmarshal(ret, &in) != nil || len(in.Content) != 1 {
			return false
		}
		text = in.Content[0].Text
	}
	return len(text) < 2000 && connectAsked.MatchString(text)
}

func hasError(os []observation) bool {
	for _, o := range os {
		if o.isError() {
			return true
		}
	}
	return false
}

func firstError(os []observation) json.RawMessage {
	for _, o := range os {
		if o.isError() {
			return o.Err
		}
	}
	return nil
}

func returned(ret json.RawMessage) bool { return len(ret) > 0 && string(ret) != "null" }

func isObject(raw json.RawMessage) bool { return len(raw) > 0 && raw[0] == '{' }
