package gateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"html/template"
	"net/http"
	"strings"

	"pilder/policy"
	"pilder/store"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

// page is one page of the connect flow. Names come from people and are escaped by the template.
type page struct {
	Lang   string
	Style  template.CSS
	Title  string
	Lines  []string
	Button string // empty: no form
}

// pageTexts are the words of the pages. {app}, {company} and {person} stand for names.
func pageTexts() map[string]policy.Text {
	return map[string]policy.Text{
		"title":         {ES: "Conectar {app}", EN: "Connect {app}"},
		"for":           {ES: "Hola, {person}. Vas a conectar tu cuenta de {app} para usarla con Pilder en {company}.", EN: "Hello, {person}. You are about to connect your {app} account to use it with Pilder at {company}."},
		"own":           {ES: "Conecta solo una cuenta tuya. Si este enlace no te lo mandó Pilder en tu chat, cierra esta página.", EN: "Connect only an account of your own. If Pilder did not send you this link in your chat, close this page."},
		"button":        {ES: "Conectar", EN: "Connect"},
		"done.title":    {ES: "Listo", EN: "Done"},
		"done.line":     {ES: "Vuelve al chat: ahí te digo qué cuenta quedó conectada.", EN: "Go back to the chat: there I will tell you which account was connected."},
		"failed.title":  {ES: "No se conectó", EN: "Not connected"},
		"failed.line":   {ES: "No pasa nada. Vuelve al chat y pide otro enlace cuando quieras.", EN: "No harm done. Go back to the chat and ask for another link whenever you like."},
		"bound.title":   {ES: "Cuenta conectada", EN: "Account connected"},
		"bound.account": {ES: "Cuenta: {account}", EN: "Account: {account}"},
		"bound.line":    {ES: "Todavía no se usa: vuelve al chat y confirma que es tuya.", EN: "It is not used yet: go back to the chat and confirm that it is yours."},
		"old.title":     {ES: "Este enlace ya no sirve", EN: "This link is no longer good"},
		"old.line":      {ES: "Los enlaces duran poco y se usan una vez. Pide otro en el chat.", EN: "Links do not last long and work once. Ask for another one in the chat."},
		"later.title":   {ES: "Ahora mismo no se puede", EN: "It does not work right now"},
		"later.line":    {ES: "Prueba otra vez en un momento desde el mismo enlace.", EN: "Try again in a moment from the same link."},
	}
}

// connectPage shows whose account of which app a link connects. It changes nothing, so that a chat's link preview does no
// harm.
func (g *Gateway) connectPage(w http.ResponseWriter, r *http.Request) {
	link, ok := g.linkOf(w, r)
	if !ok {
		return
	}
	lang := langOf(link.Membership)
	names := strings.NewReplacer("{app}", g.appName(link.App, lang), "{company}", link.Membership.Company.Name, "{person}", link.Membership.Person.Name)
	say := func(key string) string { return names.Replace(pageTexts()[key].In(lang)) }
	g.show(w, http.StatusOK, page{Lang: lang, Title: say("title"), Lines: []string{say("for"), say("own")}, Button: say("button")})
}

// connectStart sends a person off to the provider's page. The link's secret in the address keeps other sites from forging
// it, the origin from using it where they know it.
func (g *Gateway) connectStart(w http.ResponseWriter, r *http.Request) {
	if !g.sameOrigin(r) {
		g.cfg.Log.Warn().Str("event", "security.cross_origin").Send()
		refuseHTTP(w, http.StatusForbidden, "forbidden")
		return
	}
	link, ok := g.linkOf(w, r)
	if !ok {
		return
	}
	lang := langOf(link.Membership)
	started, err := g.depart(r.Context(), store.NewSecret(r.PathValue("secret")), link)
	switch {
	case errors.Is(err, store.ErrNotFound):
		g.say(w, http.StatusGone, lang, "old")
	case err != nil:
		g.cfg.Log.Error().Str("event", "connect.failed").Str("app", link.App).Str("company", string(link.Membership.Company.ID)).
			Str("person", string(link.Membership.Person.ID)).Err(err).Send()
		g.say(w, http.StatusServiceUnavailable, lang, "later")
	default:
		if started.Cookie != nil {
			http.SetCookie(w, started.Cookie)
		}
		w.Header().Set("Location", started.URL.Reveal())
		w.WriteHeader(http.StatusSeeOther)
	}
}

// sameOrigin tells whether a form came from our own page. Under Referrer-Policy no-referrer browsers send Origin "null" for
// it, and then Sec-Fetch-Site says what the origin does not.
func (g *Gateway) sameOrigin(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "" && site != "same-origin" {
		return false
	}
	switch r.Header.Get("Origin") {
	case g.public.Scheme + "://" + g.public.Host:
		return true
	case "", "null":
		return site == "same-origin"
	default:
		return false
	}
}

// connectEnd is where the provider sends the browser back to. It believes neither end, makes the watcher look, and shows
// which account was bound, so that whoever used somebody else's link sees what they did.
func (g *Gateway) connectEnd(end string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		g.lookSoon()
		lang, state, _ := strings.Cut(r.PathValue("state"), "-")
		names := g.bound(r.Context(), state)
		if len(names) == 0 {
			g.say(w, http.StatusOK, lang, end)
			return
		}
		words := pageTexts()
		p := page{Lang: lang, Title: words["bound.title"].In(lang)}
		for _, name := range names {
			p.Lines = append(p.Lines, strings.ReplaceAll(words["bound.account"].In(lang), "{account}", name))
		}
		p.Lines = append(p.Lines, words["bound.line"].In(lang))
		g.show(w, http.StatusOK, p)
	}
}

// bound names the accounts that a link has brought until now, looking once more at the provider.
func (g *Gateway) bound(ctx context.Context, state string) []string {
	hash, err := hex.DecodeString(state)
	if err != nil || len(hash) != sha256.Size {
		return nil
	}
	l, err := g.store.LinkByHash(ctx, [sha256.Size]byte(hash))
	if err == nil && l.Link.State != store.LinkNew && g.connect(l.Link.App).Accounts != nil {
		err = g.offerNew(ctx, l)
	}
	var accounts []store.Account
	if err == nil {
		accounts, err = g.store.AccountsOfLink(ctx, l)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		g.cfg.Log.Warn().Str("event", "connect.failed").Err(err).Send()
	}
	var names []string
	for _, a := range accounts {
		names = append(names, OneLine(a.Name, maxName))
	}
	return names
}

// linkOf finds the link of a request, or answers that there is none.
func (g *Gateway) linkOf(w http.ResponseWriter, r *http.Request) (store.Link, bool) {
	link, err := g.store.Link(r.Context(), store.NewSecret(r.PathValue("secret")))
	browser := strings.ToLower(r.Header.Get("Accept-Language"))
	lang := "en"
	if browser == "" || strings.HasPrefix(browser, "es") {
		lang = "es"
	}
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (link.State == store.LinkUsed || g.connect(link.App).StartConnect == nil):
		g.say(w, http.StatusNotFound, lang, "old")
		return store.Link{}, false
	case err != nil:
		g.cfg.Log.Error().Str("event", "connect.failed").Err(err).Send()
		g.say(w, http.StatusServiceUnavailable, lang, "later")
		return store.Link{}, false
	}
	return link, true
}

func (g *Gateway) say(w http.ResponseWriter, status int, lang, key string) {
	words := pageTexts()
	g.show(w, status, page{Lang: lang, Title: words[key+".title"].In(lang), Lines: []string{words[key+".line"].In(lang)}})
}

// show writes a page that loads nothing, runs nothing and fits in no frame. Browsers apply form-action to the redirect that
// follows a form, so the provider's page must be allowed by scheme: its host is the provider's to choose.
func (g *Gateway) show(w http.ResponseWriter, status int, p page) {
	p.Lang = policy.Text{ES: "es", EN: "en"}.In(p.Lang) // the language its words were chosen in
	p.Style = template.CSS(pageCSS)
	var body bytes.Buffer
	if err := template.Must(template.New("page").Parse(pageHTML)).Execute(&body, p); err != nil {
		g.cfg.Log.Error().Str("event", "connect.failed").Err(err).Send()
		refuseHTTP(w, http.StatusInternalServerError, "internal error")
		return
	}
	sum := sha256.Sum256([]byte(pageCSS))
	next := "https:"
	if g.public.Scheme == "http" {
		next = "https: http:"
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+
		"'; form-action 'self' "+next+"; frame-ancestors 'none'; base-uri 'none'")
	h.Set("X-Frame-Options", "DENY")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the browser is gone: nobody to tell
}
