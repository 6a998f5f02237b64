package gateway

import (
	"encoding/json"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"pilder/policy"
	"pilder/store"
)

// maxAnswer bounds a result's text and its structured part, each, in bytes: Claude Code keeps results of 50,000 characters
// and more out of the model's sight (2.1.332, measured). Connectors cap by whole items well below; this is the last guard.
const maxAnswer = 24_000

// fault is what the structured part of an error says: what happened, whether anything was done, and what may help.
type fault struct {
	Status    string    `json:"status"`    // "error"
	Code      string    `json:"code"`      // stable, content-free
	Performed string    `json:"performed"` // "no" or "unknown"
	Retry     string    `json:"retry"`     // "fix", "wait", "person" or "never"
	Message   string    `json:"message"`   // the same sentence as the text
	RetryIn   int       `json:"retry_after_s,omitempty"`
	Problems  []problem `json:"problems,omitempty"` // of bad_arguments
}

// texts are the gateway's own sentences to the model and, through it, to the person.
func texts() map[string]policy.Text {
	return map[string]policy.Text{
		"unknown_tool":    {ES: "Esa herramienta no existe o no está disponible para esta persona. No se hizo nada.", EN: "That tool does not exist or is not available to this person. Nothing was done."},
		"bad_arguments":   {ES: "Los datos no son válidos y no se hizo nada. Corrígelos y vuelve a intentarlo:", EN: "The arguments are not valid and nothing was done. Correct them and try again:"},
		"limit":           {ES: "Ya se hicieron demasiadas cosas para este mensaje. No se hizo nada más.", EN: "Too much was already done for this message. Nothing more was done."},
		"busy":            {ES: "Hay demasiadas cosas en marcha. No se hizo nada; prueba en un momento.", EN: "Too much is under way. Nothing was done; try again in a moment."},
		"run_over":        {ES: "Este encargo ya terminó. No se hizo nada.", EN: "This task is already over. Nothing was done."},
		"gateway_problem": {ES: "Algo falló de nuestro lado. No se hizo nada.", EN: "Something failed on our side. Nothing was done."},
		"unavailable":     {ES: "No se pudo leer ahora mismo. Puedes volver a intentarlo en un momento.", EN: "It could not be read right now. You may try again in a moment."},
		"outcome_unknown": {ES: "No se sabe si llegó a hacerse. Míralo en la app antes de repetirlo.", EN: "It is not known whether it was done. Look in the app before repeating it."},
		"done":            {ES: "Ya se hizo.", EN: "It was already done."},
		"refused":         {ES: "No se aprobó. No se hizo.", EN: "It was not approved. It was not done."},
		"expired":         {ES: "Nadie lo aprobó a tiempo. No se hizo.", EN: "Nobody approved it in time. It was not done."},
		"failed":          {ES: "No se pudo hacer.", EN: "It could not be done."},
		"membership_gone": {ES: "Esta persona ya no está en la empresa. No se hizo.", EN: "This person is no longer in the company. It was not done."},
		"rules_stricter":  {ES: "Desde entonces las reglas son más estrictas. No se hizo; hay que pedirlo otra vez.", EN: "The rules have become stricter since. It was not done; ask for it again."},
		"too_late":        {ES: "Se aprobó, pero no se pudo hacer a tiempo. No se hizo; hay que pedirlo otra vez.", EN: "It was approved but could not be done in time. It was not done; ask for it again."},
		"account_gone":    {ES: "La cuenta con la que se iba a hacer ya no está conectada. No se hizo.", EN: "The account it was to be done with is no longer connected. It was not done."},
		"waits_still":     {ES: "Sigue pendiente. No se hizo todavía.", EN: "It is still waiting. It was not done yet."},
		"empty_partial":   {ES: "Ahora mismo no hay herramientas de sus apps: no se pudo leer cuáles son. Dile que pruebe más tarde.", EN: "There are no tools of their apps right now: they could not be read. Tell them to try later."},
		"empty_barred":    {ES: "No hay herramientas de apps porque las reglas de su empresa no las permiten. Dile que hable con quien la administra.", EN: "There are no tools of apps because the rules of their company allow none. Tell them to talk to whoever runs it."},
		"empty_apps":      {ES: "No hay ninguna herramienta: no hay apps conectadas ni ninguna que ofrecer.", EN: "There is no tool at all: no app is connected and none is on offer."},
		"not_connected":   {ES: "Esta persona no tiene {app} conectada. Ofrécele conectarla con conectar_app; cuando lo haga, su pedido sigue solo. No se hizo nada.", EN: "This person has not connected {app}. Offer to connect it with conectar_app; once they do, their request goes on by itself. Nothing was done."},
		"choose_account":  {ES: "Esta persona tiene varias cuentas de {app} y ninguna elegida. Se lo preguntamos en su chat privado; dile que elija ahí. No se hizo nada.", EN: "This person has several accounts of {app} and none is chosen. They were asked in their private chat; tell them to choose there. Nothing was done."},
		"reconnect":       {ES: "{app} pide que esta persona vuelva a conectar su cuenta. Tiene el botón en su chat privado; cuando lo haga, su pedido sigue solo. No se hizo nada.", EN: "{app} wants this person to connect their account again. The button is in their private chat; once they do, their request goes on by itself. Nothing was done."},
		"under_way":       {ES: "Eso mismo ya está en marcha. No se repite.", EN: "The very same thing is already under way. It is not repeated."},
	}
}

func text(code, lang string) string { return texts()[code].In(lang) }

// failure makes an error result of one of the gateway's own sentences.
func failure(code, retry, lang string, outcome store.Outcome) Result {
	f := fault{Status: "error", Code: code, Performed: "no", Retry: retry, Message: text(code, lang)}
	if outcome == store.OutcomeUnknown {
		f.Performed = "unknown"
	}
	return faulty(f, outcome)
}

func faulty(f fault, outcome store.Outcome) Result {
	structured, _ := json.Marshal(f) // texts only: cannot fail
	return Result{Outcome: outcome, Text: f.Message, Structured: structured, IsError: true, Code: f.Code}
}

// busy is the answer when too much is under way: nothing was done, and in a while it may be.
func busy(retry time.Duration, lang string) Result {
	return faulty(fault{Status: "error", Code: "busy", Performed: "no", Retry: "wait", Message: text("busy", lang),
		RetryIn: max(1, int(math.Ceil(retry.Seconds())))}, store.OutcomeRefused)
}

// badArguments tells a model what to correct: it can repair the call by itself, so this is a tool result and no protocol
// error (MCP 2025-11-25).
func badArguments(problems []problem, lang string) Result {
	var b strings.Builder
	b.WriteString(text("bad_arguments", lang))
	for _, p := range problems {
		path := p.Path
		if path == "" {
			path = "/"
		}
		b.WriteString("\n- " + cut(path, 200) + ": " + cut(p.Expected, 500))
	}
	return faulty(fault{Status: "error", Code: "bad_arguments", Performed: "no", Retry: "fix", Message: b.String(), Problems: problems}, store.OutcomeRefused)
}

// denied is the answer to what policy never allows.
func denied(sentence string) Result {
	return faulty(fault{Status: "error", Code: "not_allowed", Performed: "no", Retry: "never", Message: sentence}, store.OutcomeRefused)
}

// pending is the answer to a call that waits for a button. It is no error: the model shall tell the person, not try again.
func pending(kind policy.Effect, code, message string) Result {
	structured, _ := json.Marshal(struct { // texts only: cannot fail
		Status  string `json:"status"`
		Kind    string `json:"kind"`
		Message string `json:"message"`
		Code    string `json:"code,omitempty"`
	}{"pending", kind.String(), message, code})
	return Result{Outcome: store.OutcomeHeld, Text: message, Structured: structured, Code: "pending"}
}

// lost is the answer when a call's outcome was not told: a write may have happened, a read certainly changed nothing.
func lost(class policy.Class, lang string) Result {
	if class == policy.ClassRead {
		return failure("unavailable", "wait", lang, store.OutcomeFailed)
	}
	return failure("outcome_unknown", "never", lang, store.OutcomeUnknown)
}

// kept is a result as EndCall keeps it for repeats.
type kept struct {
	Text       string          `json:"text"`
	Structured json.RawMessage `json:"structured"`
	IsError    bool            `json:"is_error"`
	Code       string          `json:"code"`
}

func keep(r Result) json.RawMessage {
	raw, _ := json.Marshal(kept{r.Text, r.Structured, r.IsError, r.Code}) // Structured was checked by fit
	return raw
}

// again answers a repeated write with what the first one came to.
func again(b store.BegunCall, d policy.Decision, a *access) Result {
	lang := a.lang()
	var k kept
	if len(b.Result) > 0 && json.Unmarshal(b.Result, &k) == nil && len(k.Structured) > 0 {
		return Result{Outcome: b.Outcome, Text: k.Text, Structured: k.Structured, IsError: k.IsError, Code: k.Code}
	}
	switch b.Outcome {
	case store.OutcomeHeld:
		code := ""
		if b.Approval != nil {
			code = b.Approval.Code
			d = policy.Decision{Effect: b.Approval.Kind, Rule: b.Approval.Rule}
		}
		return pending(d.Effect, code, a.grant.Sentence(d, lang))
	case store.OutcomeDone:
		structured, _ := json.Marshal(map[string]string{"status": "ok", "message": text("done", lang)})
		return Result{Outcome: b.Outcome, Text: text("done", lang), Structured: structured, Code: "ok"}
	case store.OutcomeRefused, store.OutcomeExpired, store.OutcomeFailed:
		if d.Effect == policy.Deny {
			return denied(a.grant.Sentence(d, lang)) // refused by no human
		}
		return failure(string(b.Outcome), "never", lang, b.Outcome)
	case store.OutcomeOpen:
		return failure("under_way", "wait", lang, store.OutcomeUnknown)
	default:
		return failure("outcome_unknown", "never", lang, store.OutcomeUnknown)
	}
}

// fit makes a connector's result safe to pass on: a known outcome, both parts filled and neither too long.
func fit(r Result, class policy.Class, lang string) Result {
	switch r.Outcome {
	case store.OutcomeDone, store.OutcomeFailed:
	case store.OutcomeUnknown:
		if class == policy.ClassRead {
			r.Outcome = store.OutcomeFailed
		}
	default:
		return lost(class, lang)
	}
	var object map[string]json.RawMessage
	if len(r.Structured) > 0 && json.Unmarshal(r.Structured, &object) != nil {
		return lost(class, lang)
	}
	status := "ok"
	if r.IsError {
		status = "error"
	}
	if object == nil {
		r.Structured, _ = json.Marshal(map[string]string{"status": status, "message": cut(r.Text, maxAnswer/2)})
	}
	if r.Text == "" {
		r.Text = string(r.Structured)
	}
	if len(r.Structured) > maxAnswer {
		r.Structured, _ = json.Marshal(map[string]any{"status": status, "truncated": true, "bytes": len(r.Structured), "excerpt": cut(string(r.Structured), maxAnswer/2)})
	}
	r.Text = cut(r.Text, maxAnswer)
	return r
}

// cut shortens a text to at most n bytes at a character's border, and says so.
func cut(s string, n int) string {
	const mark = " […]"
	if len(s) <= n {
		return s
	}
	n -= len(mark)
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + mark
}
