package pipedream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"time"
)

// Errors of a link that cannot be used.
var (
	ErrLinkUsed    = errors.New("connect link unknown, used or over its time")
	ErrLinkWithout = errors.New("connect link without app")
)

// connectToken is a one-time permission to make one account.
type connectToken struct {
	externalUser, environment string
	success, failure, webhook string
	ends                      time.Time
	used                      bool
	session                   int
}

// Landing is where a browser ends after the connect page.
type Landing struct {
	Redirect string // empty when the token named no address: the browser stays
	Account  string // empty when nothing was connected
}

// webhook is one call to be made to a webhook_uri.
type webhook struct {
	url  string
	body object
}

// createToken answers POST tokens.
func (s *Server) createToken(r request) answer {
	if r.text("external_user_id") == "" {
		return fail(http.StatusBadRequest, "external_user_id is required")
	}
	life := 14400.0
	if n, isNumber := r.body["expires_in"].(float64); isNumber && n > 0 && n < life {
		life = n
	}
	id := s.marker(s.id("ctok_", 32))
	t := &connectToken{
		externalUser: r.text("external_user_id"), environment: r.environment(),
		success: r.text("success_redirect_uri"), failure: r.text("error_redirect_uri"), webhook: r.text("webhook_uri"),
		ends: s.cfg.Now().Add(time.Duration(life) * time.Second), session: len(s.tokens) + 1,
	}
	s.tokens[id] = t
	base := "http://" + r.host
	if s.cfg.PublicURL != nil {
		base = s.cfg.PublicURL()
	}
	return ok(object{"token": id, "expires_at": t.ends.UTC().Format("2006-01-02T15:04:05.000Z"),
		"connect_link_url": base + "/_static/connect.html?token=" + id + "&connectLink=true"})
}

// OpenLink does what a person does who opens the link and connects the account of that name: the account is made, the
// token is used up, the webhook is called as the switches say, and the address of the redirect is given back unfollowed.
func (s *Server) OpenLink(link, accountName string) (Landing, error) {
	q, err := linkQuery(link)
	if err != nil {
		return Landing{}, err
	}
	landing, after, err := s.connect(q.Get("token"), q.Get("app"), accountName)
	after()
	return landing, err
}

// RefuseLink does what a person does who opens the link and closes the app's own page.
func (s *Server) RefuseLink(link string) (Landing, error) {
	q, err := linkQuery(link)
	if err != nil {
		return Landing{}, err
	}
	return s.refuse(q.Get("token"))
}

// FlushWebhooks sends the webhooks that the switch WebhookLate held back.
func (s *Server) FlushWebhooks() {
	s.mu.Lock()
	late := s.late
	s.late = nil
	s.mu.Unlock()
	for _, w := range late {
		s.send(w)
	}
}

// linkQuery reads the query of a connect link.
func linkQuery(link string) (url.Values, error) {
	u, err := url.Parse(link)
	if err != nil {
		return nil, fmt.Errorf("reading the connect link: %w", err)
	}
	return u.Query(), nil
}

// take uses a connect token up. The caller holds the lock.
func (s *Server) take(token string) (*connectToken, error) {
	t := s.tokens[token]
	if t == nil || t.used || !s.cfg.Now().Before(t.ends) {
		return nil, ErrLinkUsed
	}
	t.used = true
	return t, nil
}

// connect makes the account and calls the webhook; after is for the caller to run once the redirect is on its way.
func (s *Server) connect(token, app, name string) (landing Landing, after func(), err error) {
	after = func() {}
	if app == "" {
		return Landing{}, after, ErrLinkWithout
	}
	s.mu.Lock()
	t, err := s.take(token)
	if err != nil {
		s.mu.Unlock()
		return Landing{}, after, err
	}
	a := s.addAccount(t.externalUser, app, name, InEnvironment(t.environment))
	calls := s.connectionWebhooks(token, t, a)
	sw := s.switches
	if sw.WebhookLate {
		s.late, calls = append(s.late, calls...), nil
	}
	s.mu.Unlock()

	deliver := func() {
		for _, w := range calls {
			s.send(w)
		}
	}
	if sw.WebhookAfter {
		return Landing{Redirect: t.success, Account: a.ID}, deliver, nil
	}
	deliver()
	return Landing{Redirect: t.success, Account: a.ID}, after, nil
}

// connectionWebhooks builds what the switches say of CONNECTION_SUCCESS. The caller holds the lock.
func (s *Server) connectionWebhooks(token string, t *connectToken, a *account) []webhook {
	if t.webhook == "" || s.switches.WebhookNever {
		return nil
	}
	shown := s.accountJSON(a)
	if s.switches.WebhookForged {
		for _, b := range s.accounts {
			if b.ExternalUser != t.externalUser {
				shown = s.accountJSON(b)
				shown["external_id"] = t.externalUser
			}
		}
	}
	if s.switches.WebhookDocs {
		shown = clone(shown).(object)
		shown["external_id"] = "upstream-user-1"
		shown["app"].(object)["custom_fields_json"], shown["app"].(object)["categories"] = []any{}, "Productivity"
	}
	body := object{"event": "CONNECTION_SUCCESS", "connect_token": token, "environment": t.environment,
		"connect_session_id": t.session, "account": shown}
	if s.switches.WebhookEventErr {
		body = connectionError(token, t)
	}
	calls := []webhook{{t.webhook, body}}
	if s.switches.WebhookTwice {
		calls = append(calls, calls[0])
	}
	return calls
}

// connectionError is the body of CONNECTION_ERROR.
func connectionError(token string, t *connectToken) object {
	return object{"event": "CONNECTION_ERROR", "connect_token": token, "environment": t.environment,
		"connect_session_id": t.session, "error": "The window was closed before the app was authorised."}
}

// refuse ends a link without an account.
func (s *Server) refuse(token string) (Landing, error) {
	s.mu.Lock()
	t, err := s.take(token)
	s.mu.Unlock()
	if err != nil {
		return Landing{}, err
	}
	if t.webhook != "" {
		s.send(webhook{t.webhook, connectionError(token, t)})
	}
	return Landing{Redirect: t.failure}, nil
}

// send posts one webhook. What the receiver answers is nothing to the service: no retries are known.
func (s *Server) send(w webhook) {
	raw, err := json.Marshal(w.body)
	if err != nil {
		return
	}
	resp, err := s.cfg.Client.Post(w.url, "application/json", bytes.NewReader(raw))
	if err == nil {
		resp.Body.Close()
	}
}

// connectPage is the page a person sees in the demo.
var connectPage = template.Must(template.New("connect").Parse(`<!doctype html>
<html lang="es"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Conectar</title><style>body{font:16px/1.5 system-ui;max-width:26rem;margin:4rem auto;padding:0 1rem}
input,select,button{font:inherit;padding:.5rem;margin:.3rem 0;width:100%;box-sizing:border-box}small{color:#666}</style></head>
<body>{{if .Problem}}<h1>Este enlace ya no sirve</h1><p>Pide uno nuevo desde el chat.</p>{{else}}
<h1>Conectar {{.Name}}</h1><p><small>Simulador: aquí no hay ninguna cuenta de verdad.</small></p>
<form method="post" action="?{{.Query}}">
{{if not .App}}<label>Aplicación<select name="app">{{range .Apps}}<option value="{{.name_slug}}">{{.name}}</option>{{end}}</select></label>{{end}}
<label>Nombre de la cuenta<input name="name" value="persona@example.com" required></label>
<button name="do" value="connect">Conectar</button>
<button name="do" value="refuse" formnovalidate>Cancelar</button>
</form>{{end}}</body></html>`))

// showConnect is the page behind connect_link_url.
func (s *Server) showConnect(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	s.mu.Lock()
	t := s.tokens[q.Get("token")]
	usable := t != nil && !t.used && s.cfg.Now().Before(t.ends)
	apps := s.catalog.apps
	name := ""
	if q.Get("app") != "" {
		name, _ = s.catalog.app(q.Get("app"))["name"].(string)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if !usable {
		w.WriteHeader(http.StatusGone)
	}
	_ = connectPage.Execute(w, map[string]any{"Problem": !usable, "Name": name, "App": q.Get("app"), "Apps": apps, "Query": template.URL(q.Encode())})
}

// submitConnect is the button of that page.
func (s *Server) submitConnect(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	app := q.Get("app")
	if app == "" {
		app = r.FormValue("app")
	}
	var landing Landing
	var err error
	after := func() {}
	if r.FormValue("do") == "refuse" {
		landing, err = s.refuse(q.Get("token"))
	} else {
		landing, after, err = s.connect(q.Get("token"), app, r.FormValue("name"))
	}
	defer after()
	switch {
	case err != nil:
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(http.StatusGone)
		_ = connectPage.Execute(w, map[string]any{"Problem": true})
	case landing.Redirect == "":
		_, _ = w.Write([]byte("Listo. Ya puedes cerrar esta ventana.\n"))
	default:
		w.Header().Set("Location", landing.Redirect)
		w.WriteHeader(http.StatusSeeOther)
	}
}
