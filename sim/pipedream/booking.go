package pipedream

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Addresses of the one Calendly user and organization.
const (
	bookingUser         = "https://api.example.com/users/user-1"
	bookingOrganization = "https://api.example.com/organizations/org-1"
)

// booking is one Calendly account: event types, booked events, links.
type booking struct {
	types  []object
	events []object
	links  int
}

// newBooking has two event types and one booked event.
func newBooking(now time.Time) *booking {
	start := now.UTC().Truncate(24*time.Hour).AddDate(0, 0, 4).Add(11 * time.Hour)
	kind := func(id, name string, minutes int) object {
		return object{"uri": "https://api.example.com/event_types/" + id, "name": name, "duration": minutes, "active": true,
			"scheduling_url": "https://calendly.example.com/example-team/" + id}
	}
	return &booking{
		types: []object{kind("et-30", "Reunión de 30 minutos", 30), kind("et-15", "Llamada rápida", 15)},
		events: []object{{"uri": "https://api.example.com/scheduled_events/ev-1", "name": "Reunión de 30 minutos", "status": "active",
			"start_time": start.Format(time.RFC3339), "end_time": start.Add(30 * time.Minute).Format(time.RFC3339)}},
	}
}

// perform runs one Calendly action. Lists are {collection, pagination}, single reads {resource}.
func (b *booking) perform(action string, args object, now time.Time) (any, string, error) {
	switch action {
	case "list-events":
		given := 0
		for _, name := range []string{"organization", "user", "group"} {
			if args[name] != nil {
				given++
			}
		}
		if given > 1 {
			return nil, "", misused("Give at most one of organization, user and group.")
		}
		out := []any{}
		for _, e := range b.events {
			if s := text(args, "status"); s == "" || e["status"] == s {
				out = append(out, e)
			}
		}
		return collection(out)
	case "list-event-types":
		return collection(anys(b.types))
	case "list-user-availability-schedules":
		return collection([]any{object{"name": "Horario laboral", "timezone": "Europe/Madrid", "default": true}})
	case "list-organization-members":
		return collection([]any{object{"role": "owner", "user": object{"uri": bookingUser, "name": "Persona Ejemplo", "email": "person@example.com"},
			"organization": bookingOrganization}})
	case "list-groups", "list-webhook-subscriptions":
		return collection([]any{})
	case "create-scheduling-link":
		return b.link(args)
	}
	return b.onEvent(action, args, now)
}

// collection is a list as Calendly answers it.
func collection(items []any) (any, string, error) {
	return object{"collection": items, "pagination": object{"count": len(items), "next_page": nil}}, fmt.Sprintf("Found %d item(s)", len(items)), nil
}

// anys widens a slice.
func anys(in []object) []any {
	out := make([]any, len(in))
	for i := range in {
		out[i] = in[i]
	}
	return out
}

// link is create-scheduling-link, for an event type by uuid or URI.
func (b *booking) link(args object) (any, string, error) {
	owner := text(args, "owner")
	for _, t := range b.types {
		uri := fmt.Sprint(t["uri"])
		if owner == uri || strings.HasSuffix(uri, "/"+owner) && owner != "" {
			b.links++
			return object{"resource": object{"booking_url": fmt.Sprintf("https://calendly.example.com/d/link-%04d", b.links),
				"owner": uri, "owner_type": "EventType"}}, "Created a scheduling link", nil
		}
	}
	return nil, "", upstream(http.StatusNotFound, "The resource you requested was not found.")
}

// onEvent runs the actions on one booked event.
func (b *booking) onEvent(action string, args object, now time.Time) (any, string, error) {
	id := text(args, "eventUuid")
	if id == "" {
		id = text(args, "eventId")
	}
	if action == "get-event" {
		url := text(args, "eventUrl")
		if id == "" && url == "" {
			return nil, "", misused("Give eventId or eventUrl.")
		}
		if id == "" {
			id = url[strings.LastIndex(url, "/")+1:]
		}
	}
	for _, e := range b.events {
		if !strings.HasSuffix(fmt.Sprint(e["uri"]), "/"+id) || id == "" {
			continue
		}
		guest := object{"uri": fmt.Sprint(e["uri"], "/invitees/inv-1"), "email": "luis@example.com", "name": "Luis Ejemplo", "status": "active"}
		switch action {
		case "get-event":
			return object{"resource": e}, "Retrieved the event", nil
		case "list-event-invitees":
			return collection([]any{guest})
		case "get-invitee":
			return object{"resource": guest}, "Retrieved the guest", nil
		case "cancel-event":
			e["status"] = "canceled"
			return object{"resource": object{"canceled_by": "Persona Ejemplo", "reason": text(args, "reason"), "created_at": now.Format(time.RFC3339)}},
				"Canceled the event", nil
		case "create-invitee-no-show":
			return object{"resource": object{"uri": "https://api.example.com/invitee_no_shows/ns-1", "invitee": args["inviteeUri"]}}, "Marked as no-show", nil
		}
		return nil, "", failure{name: "Error", message: "this action is not played"}
	}
	return nil, "", upstream(http.StatusNotFound, "The resource you requested was not found.")
}

// choices of Calendly: lists without context. owner is no remote option in the definitions, and answered all the same.
func (b *booking) choices(q ask) choices {
	switch q.prop {
	case "owner":
		out := []any{}
		for _, t := range b.types {
			uri := fmt.Sprint(t["uri"])
			out = append(out, option(fmt.Sprint(t["name"]), uri[strings.LastIndex(uri, "/")+1:]))
		}
		return choices{options: out}
	case "inviteeUri":
		if text(q.args, "eventId") == "" {
			return choices{err: failure{name: "Error", message: "eventId is not set"}}
		}
		return choices{options: []any{option("Luis Ejemplo", "https://api.example.com/scheduled_events/"+text(q.args, "eventId")+"/invitees/inv-1")}}
	case "organization":
		return choices{strings: []any{bookingOrganization}}
	case "user":
		return choices{strings: []any{bookingUser}}
	}
	return choices{err: failure{name: "Error", message: "this prop has no choices"}}
}
