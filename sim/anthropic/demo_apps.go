package anthropic

import (
	"regexp"
	"slices"
	"strings"
)

var (
	booking  = regexp.MustCompile(`\b(?:(?:enlace|link) (?:de|para) (?:una )?(?:reservas?|reservar|agenda|agendar|calendly)|(?:booking|scheduling|calendly) link|link (?:to|for) book(?:ing)?)\b`)
	connects = regexp.MustCompile(`\b(?:conecta|conectame|conectar|vincula|vincular|connect|link)\b`)
	otherApp = regexp.MustCompile(`\b(asana|slack|trello|hubspot|jira|github|dropbox|linear|airtable|todoist|google drive|drive|google calendar|gmail|notion|calendly)\b`)
)

// appSlugs maps what people call an app to its slug at the provider of connected apps.
func appSlugs() map[string]string {
	return map[string]string{
		"asana": "asana", "slack": "slack", "trello": "trello", "hubspot": "hubspot", "jira": "jira", "github": "github",
		"dropbox": "dropbox", "linear": "linear_app", "airtable": "airtable_oauth", "todoist": "todoist",
		"google drive": "google_drive", "drive": "google_drive", "google calendar": "google_calendar", "gmail": "gmail",
		"notion": "notion", "calendly": "calendly_v2",
	}
}

func appName(slug string) string {
	names := map[string]string{
		"google_calendar": "Google Calendar", "google_drive": "Google Drive", "calendly_v2": "Calendly", "hubspot": "HubSpot",
		"github": "GitHub", "linear_app": "Linear", "airtable_oauth": "Airtable",
	}
	if name, ok := names[slug]; ok {
		return name
	}
	return strings.ToUpper(slug[:1]) + slug[1:]
}

// otherAppNamed matches the wish to connect any app, and any mention of an app that the demo has no script for.
func otherAppNamed(text string) bool {
	m := otherApp.FindStringSubmatch(text)
	return m != nil && (connects.MatchString(text) || !slices.Contains([]string{"google calendar", "gmail", "notion", "calendly"}, m[1]))
}

func connectOther(t Turn) []Block {
	text := fold(t.Text).text
	app := appSlugs()[otherApp.FindStringSubmatch(text)[1]]
	if t.knowsApp(app) {
		if connects.MatchString(text) {
			return []Block{Text(appName(app) + t.say(" ya está conectada.", " is connected already."))}
		}
		return unknown(t)
	}
	return t.connect(app)
}

// bookingLink needs an event type first: from retrieve_options if the schema says that it has choices, otherwise from the
// list of event types.
func bookingLink(t Turn) []Block {
	const app, tool = "calendly_v2", "calendly_v2-create-scheduling-link"
	if _, callable := t.tool(tool); !callable {
		if full, ok := t.deferred(tool); ok { // the schema decides the first step
			return []Block{load(full)}
		}
		if !t.knowsApp(app) {
			return t.connect(app)
		}
	}
	known, _ := t.tool(tool)
	var owner string
	if strings.Contains(known.Schema.Properties["owner"].Description, "retrieve_options") {
		r, next := t.do(app, "retrieve_options", func(Tool) any { return object{"action": tool, "prop": "owner"} })
		if next != nil {
			return next
		}
		for _, o := range r.objects("value") {
			if owner == "" {
				owner = first(o, "value")
			}
		}
	} else {
		r, next := t.do(app, "calendly_v2-list-event-types", func(Tool) any { return object{} })
		if next != nil {
			return next
		}
		for _, o := range r.objects("name") {
			if owner == "" {
				owner = first(o, "uuid", "uri", "id")
			}
		}
		owner = owner[strings.LastIndex(owner, "/")+1:] // of an event type's address the last part is its uuid
	}
	if owner == "" {
		return []Block{Text(t.say("No encontré ningún tipo de reunión en tu Calendly.", "I found no event type in your Calendly."))}
	}
	r, next := t.do(app, tool, func(Tool) any { return object{"owner": owner, "maxEventCount": 1} })
	switch {
	case next != nil:
		return next
	case bookingURL(r) == "":
		return []Block{Text(t.say("El enlace quedó creado, pero no me dieron la dirección.", "The link was made, but I was not given its address."))}
	}
	return []Block{Text(t.say("Este es tu enlace de reserva: ", "Here is your booking link: ") + bookingURL(r))}
}

func bookingURL(r Result) string {
	for _, o := range r.objects("booking_url") {
		return first(o, "booking_url")
	}
	return r.Link()
}
