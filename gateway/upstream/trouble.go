package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
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
	codeReconnect      code = "reconnect"
	codeChooseAccount  code = "choose_account"
	codeGatewayProblem code = "gateway_problem"
	codeBusy           code = "busy"
	codeNotFound       code = "not_found"
	codeAppRefused     code = "app_refused"
	codeUnavailable    code = "unavailable"
	codeTooBig         code = "too_big"
	codeCancelled      code = "cancelled"
	codeOutcomeUnknown code = "outcome_unknown"
)

// trouble is why a call did not come to a good end.
type trouble struct {
	code     code
	class    policy.Class
	app      policy.Text // name of the app, for the sentence
	unknown  bool        // it may have been performed
	after    time.Duration
	appText  string // what the app said; untrusted
	operator string // why the operator must look, for the log
}

// sentences are what models, and through them people, are told. %s is the app.
func sentences() map[code]policy.Text {
	return map[code]policy.Text{
		codeReconnect:      {ES: "%s pide que la persona vuelva a conectar su cuenta con el enlace de Pilder. No se hizo nada.", EN: "%s wants the person to connect the account again with Pilder's link. Nothing was done."},
		codeChooseAccount:  {ES: "La persona tiene varias cuentas de %s y ninguna elegida; tiene que elegir una. No se hizo nada.", EN: "The person has several accounts of %s and none is chosen; they have to choose one. Nothing was done."},
		codeGatewayProblem: {ES: "Algo falló de nuestro lado con %s; ya lo sabemos. No se hizo nada.", EN: "Something failed on our side with %s; we know about it. Nothing was done."},
		codeBusy:           {ES: "%s está muy ocupada ahora mismo. No se hizo; se puede intentar dentro de un momento.", EN: "%s is very busy right now. It was not done; it can be tried again in a moment."},
		codeNotFound:       {ES: "%s ya no tiene esa herramienta, o cambió. No se hizo nada.", EN: "%s no longer has this tool, or it has changed. Nothing was done."},
		codeAppRefused:     {ES: "%s no lo aceptó. No se hizo.", EN: "%s did not accept it. It was not done."},
		codeUnavailable:    {ES: "%s no responde ahora mismo. No se hizo nada; se puede intentar dentro de un momento.", EN: "%s does not answer right now. Nothing was done; it can be tried again in a moment."},
		codeTooBig:         {ES: "%s respondió con más de lo que se puede leer. Hay que pedir menos.", EN: "%s answered with more than can be read. Ask for less."},
		codeCancelled:      {ES: "Se canceló lo que se estaba leyendo de %s.", EN: "What was being read from %s was cancelled."},
		codeOutcomeUnknown: {ES: "No se sabe si llegó a hacerse en %s. Hay que mirarlo en la app antes de repetirlo.", EN: "It is not known whether it was done in %s. Look in the app before repeating it."},
	}
}

// maybePartly replaces the sentence of a refusal after which some of it may have been done.
func maybePartly() policy.Text {
	return policy.Text{ES: "%s no lo aceptó, pero puede que hiciera una parte. Hay que mirarlo en la app antes de repetirlo.",
		EN: "%s did not accept it, but may have done a part. Look in the app before repeating it."}
}

// retry is what may help, by code.
func (t *trouble) retry() string {
	switch t.code {
	case codeTooBig, codeAppRefused:
		if t.unknown {
			return "never"
		}
		return "fix"
	case codeReconnect, codeChooseAccount:
		return "person"
	case codeBusy, codeUnavailable, codeCancelled:
		return "wait"
	}
	return "never"
}

// troubleOf says what an error of a call means; nil for none. Only what proves that nothing was performed is a plain
// failure of a write; everything else leaves it unknown.
func (u *server) troubleOf(t *tool, err error) *trouble {
	if err == nil {
		return nil
	}
	out := &trouble{code: u.codeOf(err), class: t.class, app: u.Name}
	var status *statusError
	var refusal *rpcError
	switch {
	case unperformedProof(err):
	case errors.As(err, &refusal):
		out.appText = refusal.Message
		out.unknown = !neverBegun(refusal)
	case errors.As(err, &status):
		out.after = status.after
		out.unknown = status.status >= 500 || status.status < 400
	default:
		out.unknown = true
	}
	if out.code == codeNotFound {
		out.appText = ""
		u.listChanged()
	}
	if t.class == policy.ClassRead {
		out.unknown = false
	} else if out.unknown && out.code != codeAppRefused {
		out.code = codeOutcomeUnknown
	}
	switch {
	case errors.Is(err, errRefused) && u.Auth != AuthOAuth:
		out.operator = "the upstream refuses the credentials"
	case errors.Is(err, errLie), errors.As(err, &status) && status.status < 500 && out.code == codeGatewayProblem:
		out.operator = err.Error()
	}
	return out
}

// unperformedProof tells whether an error proves that the upstream did nothing.
func unperformedProof(err error) bool {
	for _, proof := range []error{errNotSent, errGone, errEra, errRefused, gateway.ErrReconnect, gateway.ErrChooseAccount, errUnready, errFull} {
		if errors.Is(err, proof) {
			return true
		}
	}
	return false
}

// neverBegun tells the JSON-RPC errors that come before a tool does: no such method, a header or revision that is wrong.
// Wrong parameters (-32602) and requests (-32600) are none of them, unless the tool itself is unknown: servers say so of a
// result as well, when the tool has run (public reports).
func neverBegun(e *rpcError) bool {
	code := e.Code
	return code == -32700 || code == -32601 || code <= -32020 && code >= -32022 || code == -32602 && unknownTool.MatchString(e.Message)
}

var unknownTool = regexp.MustCompile(`(?i)\b(unknown|no such) tool\b|\btool\b.{0,100}\b(not found|does not exist|is unknown)\b`)

// codeOf names what happened.
func (u *server) codeOf(err error) code {
	var status *statusError
	var refusal *rpcError
	switch {
	case errors.Is(err, gateway.ErrReconnect), errors.Is(err, errRefused) && u.Auth == AuthOAuth:
		return codeReconnect
	case errors.Is(err, gateway.ErrChooseAccount):
		return codeChooseAccount
	case errors.Is(err, errRefused):
		return codeGatewayProblem
	case errors.Is(err, errCancelled), errors.Is(err, context.Canceled):
		return codeCancelled
	case errors.Is(err, errFull):
		return codeBusy
	case errors.As(err, &status) && (status.status == http.StatusTooManyRequests || status.status == http.StatusServiceUnavailable && status.after > 0):
		return codeBusy
	case errors.Is(err, errTooBig):
		return codeTooBig
	case errors.As(err, &refusal) && (refusal.Code == -32601 || refusal.Code == -32602 && namesNoTool(refusal.Message)):
		return codeNotFound
	case errors.As(err, &refusal):
		return codeAppRefused
	case errors.As(err, &status) && status.status == http.StatusForbidden:
		return codeAppRefused
	case errors.As(err, &status) && status.status < 500:
		return codeGatewayProblem
	}
	return codeUnavailable
}

// namesNoTool reads the one thing that MCP says with the code of bad arguments too: there is no such tool.
func namesNoTool(message string) bool {
	message = strings.ToLower(message)
	return strings.Contains(message, "tool") && (strings.Contains(message, "unknown") || strings.Contains(message, "not found") || strings.Contains(message, "no such"))
}

// say makes the result of a trouble, and tells the operator where it is theirs.
func (c *Connector) say(call gateway.Call, t *trouble) gateway.Result {
	if t.operator != "" {
		c.cfg.Log.Error().Str("event", "upstream.problem").Str("call", string(call.ID)).Str("company", string(call.Caller.Principal.Company)).
			Str("person", string(call.Caller.Principal.Person)).Str("tool", call.Tool).Str("code", string(t.code)).Str("err", t.operator).Send()
	}
	app := t.app.In(call.Caller.Lang)
	if app == "" {
		app = policy.Text{ES: "la app", EN: "the app"}.In(call.Caller.Lang)
	}
	sentence := sentences()[t.code]
	if t.code == codeAppRefused && t.unknown {
		sentence = maybePartly()
	}
	text := capital(fmt.Sprintf(sentence.In(call.Caller.Lang), app))
	if said := appWords(t.appText); said != "" {
		text += "\n" + fmt.Sprintf(policy.Text{ES: "La app dice: «%s»", EN: "The app says: “%s”"}.In(call.Caller.Lang), said)
	}
	body := map[string]any{"status": "error", "code": t.code, "performed": "no", "retry": t.retry(), "message": text}
	outcome := store.OutcomeFailed
	if t.unknown {
		body["performed"] = "unknown"
		if t.code != codeAppRefused { // the app's own word is that it failed
			outcome = store.OutcomeUnknown
		}
	}
	if t.code == codeBusy {
		body["retry_after_s"] = max(int(t.after.Seconds()+0.999), 1)
	}
	structured, _ := encode(body) // texts and numbers: cannot fail
	return gateway.Result{Outcome: outcome, Text: text, Structured: structured, IsError: true, Code: string(t.code)}
}

// appWords is what an app says of an error, without what programs add to it: from the first line of a stack trace on nothing.
func appWords(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "at ") || strings.HasPrefix(trimmed, "Traceback") || strings.HasPrefix(trimmed, "goroutine ") ||
			strings.HasPrefix(trimmed, "File \"") || strings.HasPrefix(trimmed, "panic:") {
			break
		}
		kept = append(kept, trimmed)
	}
	return gateway.OneLine(strings.Join(kept, " "), 300)
}

// capital begins a sentence.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}
