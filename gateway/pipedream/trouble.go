package pipedream

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unicode"
	"unicode/utf8"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// code is what happened, stable and content-free.
type code string

const (
	codeBadArguments   code = "bad_arguments"
	codeNeedsFields    code = "needs_fields"
	codeNotConnected   code = "not_connected"
	codeChooseAccount  code = "choose_account"
	codeReconnect      code = "reconnect"
	codeGatewayProblem code = "gateway_problem"
	codeBusy           code = "busy"
	codeNotFound       code = "not_found"
	codeAppRefused     code = "app_refused"
	codeUnavailable    code = "unavailable"
	codeOutcomeUnknown code = "outcome_unknown"
)

// trouble is why a call did not come to a good end.
type trouble struct {
	code     code
	class    policy.Class
	app      string // name of the app, for the sentence
	unknown  bool   // it may have been performed
	again    bool   // it certainly was not, and may work at once
	after    time.Duration
	problems []string // of bad_arguments
	fields   *ordered // of needs_fields: a schema
	appText  string   // what the app said; untrusted
	security string   // event of a breach, for the log
	operator string   // why the operator must look, for the log
}

// sentences are what models, and through them people, are told. %s is the app.
func sentences() map[code]policy.Text {
	return map[code]policy.Text{
		codeBadArguments:   {ES: "Los datos no valen para %s y no se hizo nada. Corrígelos y vuelve a intentarlo.", EN: "The arguments do not fit %s and nothing was done. Correct them and try again."},
		codeNeedsFields:    {ES: "Falta decir más antes de hacerlo en %s; no se hizo nada. Vuelve a llamar con lo mismo y more_fields; {} si no hace falta ninguno.", EN: "%s needs more before it can be done; nothing was done. Call again with the same values and more_fields; {} if none is wanted."},
		codeNotConnected:   {ES: "Esta persona no tiene %s conectada. Ofrécele conectarla con el enlace de Pilder. No se hizo nada.", EN: "This person has not connected %s. Offer to connect it with Pilder's link. Nothing was done."},
		codeChooseAccount:  {ES: "Hay varias cuentas de %s y ninguna elegida. La persona debe elegir una en Pilder. No se hizo nada.", EN: "There are several accounts of %s and none is chosen. The person must choose one in Pilder. Nothing was done."},
		codeReconnect:      {ES: "%s pide que la persona vuelva a conectar su cuenta con el enlace de Pilder. No se hizo nada.", EN: "%s wants the person to connect the account again with Pilder's link. Nothing was done."},
		codeGatewayProblem: {ES: "Algo falló de nuestro lado con %s; ya lo sabemos. No se hizo nada.", EN: "Something failed on our side with %s; we know about it. Nothing was done."},
		codeBusy:           {ES: "%s está muy ocupada ahora mismo. No se hizo; se puede intentar dentro de un momento.", EN: "%s is very busy right now. It was not done; it can be tried again in a moment."},
		codeNotFound:       {ES: "%s no lo encuentra. No se hizo nada.", EN: "%s does not find it. Nothing was done."},
		codeAppRefused:     {ES: "%s no lo aceptó. No se hizo.", EN: "%s did not accept it. It was not done."},
		codeUnavailable:    {ES: "%s no responde ahora mismo. No se hizo nada; se puede intentar dentro de un momento.", EN: "%s does not answer right now. Nothing was done; it can be tried again in a moment."},
		codeOutcomeUnknown: {ES: "No se sabe si llegó a hacerse en %s. Hay que mirarlo en la app antes de repetirlo.", EN: "It is not known whether it was done in %s. Look in the app before repeating it."},
	}
}

// retry is what may help, by code.
func (t *trouble) retry() string {
	switch t.code {
	case codeBadArguments, codeNeedsFields, codeNotFound:
		return "fix"
	case codeAppRefused:
		if t.unknown {
			return "never"
		}
		return "fix"
	case codeNotConnected, codeChooseAccount, codeReconnect:
		return "person"
	case codeBusy, codeUnavailable:
		return "wait"
	}
	return "never"
}

// say makes the result of a trouble, and tells the operator where it is theirs.
func (c *Connector) say(call gateway.Call, t *trouble) gateway.Result {
	c.log(call, t)
	app := t.app
	if app == "" {
		app = policy.Text{ES: "la app", EN: "the app"}.In(call.Caller.Lang)
	}
	sentence := sentences()[t.code]
	if t.code == codeAppRefused && t.unknown {
		sentence = policy.Text{ES: "%s no lo aceptó, pero puede que hiciera una parte. Hay que mirarlo en la app antes de repetirlo.",
			EN: "%s did not accept it, but may have done a part. Look in the app before repeating it."}
	}
	text := capital(fmt.Sprintf(sentence.In(call.Caller.Lang), app))
	for _, p := range t.problems {
		text += "\n- " + p
	}
	if said := clean(t.appText, 300); said != "" {
		text += "\n" + fmt.Sprintf(policy.Text{ES: "La app dice: «%s»", EN: "The app says: “%s”"}.In(call.Caller.Lang), said)
	}
	body := ordered{{"status", "error"}, {"code", t.code}, {"performed", "no"}, {"retry", t.retry()}}
	outcome := store.OutcomeFailed
	if t.unknown {
		body[2].value, outcome = "unknown", store.OutcomeUnknown
	}
	if t.code == codeBusy {
		body = append(body, member{"retry_after_s", max(int(t.after.Seconds()+0.999), 1)})
	}
	body = append(body, member{"message", text})
	if t.fields != nil {
		body = append(body, member{"fields", t.fields})
		if raw, err := encode(t.fields); err == nil {
			text += "\n" + string(raw)
		}
	}
	structured, _ := encode(body) // texts and schemas only: cannot fail
	return gateway.Result{Outcome: outcome, Text: text, Structured: structured, IsError: true, Code: string(t.code)}
}

// capital begins a sentence.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

// log tells the operator about breaches and about what only an operator can mend.
func (c *Connector) log(call gateway.Call, t *trouble) {
	event := "pipedream.problem"
	switch {
	case t.security != "":
		event = t.security
	case t.operator == "":
		return
	}
	c.cfg.Log.Error().Str("event", event).Str("call", string(call.ID)).Str("company", string(call.Caller.Principal.Company)).
		Str("person", string(call.Caller.Principal.Person)).Str("tool", call.Tool).Str("code", string(t.code)).Str("err", t.operator).Send()
}

// troubleOf says what an error of a request that changes nothing means for the call it belongs to: nothing was performed.
func (c *Connector) troubleOf(class policy.Class, err error) *trouble {
	t := &trouble{code: codeUnavailable, class: class}
	var status *statusError
	var app *appError
	switch {
	case errors.Is(err, errCredentials):
		t.code, t.operator = codeGatewayProblem, "credentials refused"
	case errors.Is(err, errNoOwner):
		t.code, t.operator = codeGatewayProblem, errNoOwner.Error()
	case errors.As(err, &app):
		t.code, t.appText = codeAppRefused, app.text
	case errors.As(err, &status) && status.status == http.StatusTooManyRequests:
		t.code = codeBusy
	case errors.As(err, &status) && status.status >= 400 && status.status < 500:
		t.code, t.operator = codeGatewayProblem, status.Error()
	}
	return t
}

// appError is a refusal of the app itself in an answer that is a 200 all the same.
type appError struct{ text string }

func (e *appError) Error() string { return "app refused" }

// observation is an entry of a log the provider sends along; third parties' entries say m instead of msg.
type observation struct {
	Kind string          `json:"k"`
	Err  json.RawMessage `json:"err"`
}

func (o observation) isError() bool {
	return o.Kind == "error" && len(o.Err) > 0 && string(o.Err) != "null"
}

// thrown is what an action threw: an object, or a bare string.
type thrown struct {
	Name    string `json:"name"`
	Message string `json:"message"`
}

func readThrown(raw json.RawMessage) thrown {
	var t thrown
	if json.Unmarshal(raw, &t) != nil {
		_ = json.Unmarshal(raw, &t.Message)
	}
	return t
}

// errorText finds the app's own words in errors of a 200: plain text, JSON in a text, or an observation.
func errorText(errs []json.RawMessage, seen []observation) string {
	for _, raw := range errs {
		var text string
		if json.Unmarshal(raw, &text) != nil {
			text = readThrown(raw).Message
		} else if inner := readThrown(json.RawMessage(text)); inner.Message != "" && json.Valid([]byte(text)) {
			text = inner.Message
		}
		if text != "" {
			return text
		}
	}
	for _, o := range seen {
		if o.isError() {
			return readThrown(o.Err).Message
		}
	}
	return ""
}
