package pipedream

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// calendar is one Google Calendar account: its calendars and their events.
type calendar struct {
	owner  string
	names  []object // {id, summary, primary?}
	events map[string][]object
	serial int
}

// newCalendar has three events of the next days, at office hours in now's zone, the team's planning, and a holiday calendar.
func newCalendar(owner string, now time.Time) *calendar {
	c := &calendar{owner: owner, events: map[string][]object{}, names: []object{
		{"id": owner, "summary": "Personal", "primary": true, "accessRole": "owner", "timeZone": "Europe/Madrid"},
		{"id": "team-calendar@example.com", "summary": "Equipo", "accessRole": "writer", "timeZone": "Europe/Madrid"},
		{"id": "holidays@example.com", "summary": "Festivos", "accessRole": "reader", "timeZone": "Europe/Madrid"},
	}}
	day := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	add := func(cal, title string, days, hour, minutes int, guests ...string) {
		start := day.AddDate(0, 0, days).Add(time.Duration(hour) * time.Hour)
		e := c.fresh(now)
		e["summary"], e["start"], e["end"] = title, moment(start), moment(start.Add(time.Duration(minutes)*time.Minute))
		setGuests(e, guests)
		c.events[cal] = append(c.events[cal], e)
	}
	add(owner, "Reunión de equipo", 1, 9, 60, "marta@example.com", "luis@example.com")
	add(owner, "Comida con Marta", 1, 12, 90, "marta@example.com")
	add(owner, "Revisión de presupuesto", 3, 15, 45)
	add("team-calendar@example.com", "Planificación del trimestre", 2, 10, 120)
	return c
}

// moment is a point in time as Google writes it.
func moment(t time.Time) object {
	return object{"dateTime": t.UTC().Format(time.RFC3339), "timeZone": "Europe/Madrid"}
}

// fresh is a new event without times.
func (c *calendar) fresh(now time.Time) object {
	c.serial++
	id := fmt.Sprintf("evt%04d", c.serial)
	at := now.UTC().Format(time.RFC3339)
	return object{"kind": "calendar#event", "id": id, "status": "confirmed", "htmlLink": "https://calendar.example.com/event/" + id,
		"created": at, "updated": at, "organizer": object{"email": c.owner, "self": true}}
}

// setGuests writes the guest list of an event.
func setGuests(e object, guests []string) {
	if guests == nil {
		return
	}
	out := []any{}
	for _, g := range guests {
		out = append(out, object{"email": g, "responseStatus": "needsAction"})
	}
	e["attendees"] = out
}

// perform runs one Google Calendar action.
func (c *calendar) perform(action string, args object, now time.Time) (any, string, error) {
	switch action {
	case "list-calendars":
		return c.names, fmt.Sprintf("Found %d calendars", len(c.names)), nil
	case "query-free-busy-calendars":
		return c.freeBusy(args)
	case "list-events", "create-event", "quick-add-event":
		cal, err := c.id(text(args, "calendarId"))
		if err != nil {
			return nil, "", err
		}
		switch action {
		case "list-events":
			return c.list(cal, args)
		case "create-event":
			return c.create(cal, args, now)
		}
		return c.quickAdd(cal, args, now)
	case "respond-to-event":
		return c.respond(args)
	}
	return c.onEvent(action, args, now)
}

// id finds a calendar; primary is the owner's. An absent id is what Google makes of an undefined one: not found.
func (c *calendar) id(name string) (string, error) {
	if name == "primary" {
		return c.owner, nil
	}
	if slices.ContainsFunc(c.names, func(n object) bool { return n["id"] == name }) {
		return name, nil
	}
	return "", upstream(http.StatusNotFound, "not found")
}

// list is list-events.
func (c *calendar) list(cal string, args object) (any, string, error) {
	if order, single := text(args, "orderBy"), args["singleEvents"] == true; order == "startTime" && !single {
		return nil, "", upstream(http.StatusBadRequest, "The requested ordering is not available for the particular query.")
	}
	from, err1 := optionalTime(text(args, "timeMin"))
	until, err2 := optionalTime(text(args, "timeMax"))
	if err := cmp.Or(err1, err2); err != nil {
		return nil, "", err
	}
	out := []any{}
	for _, e := range c.events[cal] {
		start, end := span(e)
		q := strings.ToLower(text(args, "q"))
		if !from.IsZero() && !end.After(from) || !until.IsZero() && !start.Before(until) ||
			q != "" && !strings.Contains(strings.ToLower(fmt.Sprint(e["summary"], e["description"], e["location"])), q) {
			continue
		}
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b any) int {
		s1, _ := span(a.(object))
		s2, _ := span(b.(object))
		return s1.Compare(s2)
	})
	if n := number(args["maxResults"]); n > 0 && n < len(out) {
		out = out[:n]
	}
	return out, fmt.Sprintf("Successfully retrieved %d event(s)", len(out)), nil
}

// create is create-event.
func (c *calendar) create(cal string, args object, now time.Time) (any, string, error) {
	if args["repeatUntil"] != nil && args["repeatTimes"] != nil {
		return nil, "", misused("Give either repeatUntil or repeatTimes.")
	}
	start, end, err := times(args)
	if err != nil {
		return nil, "", err
	}
	e := c.fresh(now)
	e["start"], e["end"] = start, end
	copyText(args, e, "summary", "location", "description", "colorId", "visibility")
	if args["attendees"] != nil {
		setGuests(e, list(args["attendees"]))
	}
	if args["createMeetRoom"] == true {
		e["hangoutLink"] = "https://meet.example.com/" + fmt.Sprint(e["id"])
	}
	if f := text(args, "repeatFrequency"); f != "" {
		e["recurrence"] = []any{"RRULE:FREQ=" + f}
	}
	c.events[cal] = append(c.events[cal], e)
	return e, fmt.Sprintf("Created the event %s", e["id"]), nil
}

// quickAdd makes an hour tomorrow of any sentence; Google would interpret it.
func (c *calendar) quickAdd(cal string, args object, now time.Time) (any, string, error) {
	e := c.fresh(now)
	start := now.UTC().Truncate(time.Hour).Add(24 * time.Hour)
	e["summary"], e["start"], e["end"] = text(args, "text"), moment(start), moment(start.Add(time.Hour))
	setGuests(e, list(args["attendees"]))
	c.events[cal] = append(c.events[cal], e)
	return e, fmt.Sprintf("Created the event %s", e["id"]), nil
}

// onEvent runs the actions on one existing event.
func (c *calendar) onEvent(action string, args object, now time.Time) (any, string, error) {
	cal, err := c.id(text(args, "calendarId"))
	if err != nil {
		return nil, "", err
	}
	i := slices.IndexFunc(c.events[cal], func(e object) bool { return e["id"] == args["eventId"] })
	if i < 0 {
		return nil, "", upstream(http.StatusNotFound, "Not Found")
	}
	e := c.events[cal][i]
	switch action {
	case "get-event":
		return e, "Retrieved the event " + fmt.Sprint(e["id"]), nil
	case "delete-event":
		c.events[cal] = slices.Delete(c.events[cal], i, i+1)
		// The component returns the whole HTTP answer.
		return object{"status": 204, "statusText": "No Content", "headers": object{"x-sim": debugMarker}, "config": object{}, "data": ""},
			"Deleted the event " + fmt.Sprint(e["id"]), nil
	case "update-event":
		if args["eventStartDate"] != nil || args["eventEndDate"] != nil {
			start, end, err := times(args)
			if err != nil {
				return nil, "", err
			}
			e["start"], e["end"] = start, end
		}
		copyText(args, e, "summary", "location", "description")
		setGuests(e, list(args["attendees"]))
	case "update-event-attendees":
		setGuests(e, list(args["attendees"]))
	case "add-attendees-to-event":
		have, _ := e["attendees"].([]any)
		for _, g := range list(args["attendees"]) {
			have = append(have, object{"email": g, "responseStatus": "needsAction"})
		}
		e["attendees"] = have
	default:
		return nil, "", failure{name: "Error", message: "this action is not played"}
	}
	e["updated"] = now.UTC().Format(time.RFC3339)
	return e, "Updated the event " + fmt.Sprint(e["id"]), nil
}

// respond is respond-to-event, by id or by title.
func (c *calendar) respond(args object) (any, string, error) {
	cal, err := c.id(text(args, "calendarId"))
	if err != nil {
		return nil, "", err
	}
	id, title := text(args, "eventId"), text(args, "eventName")
	if id == "" && title == "" {
		return nil, "", misused("Give eventId or eventName.")
	}
	for _, e := range c.events[cal] {
		if e["id"] == id || id == "" && strings.EqualFold(fmt.Sprint(e["summary"]), title) {
			have, _ := e["attendees"].([]any)
			e["attendees"] = append(have, object{"email": c.owner, "self": true, "responseStatus": args["responseStatus"]})
			return e, "Answered the invitation " + fmt.Sprint(e["id"]), nil
		}
	}
	return nil, "", upstream(http.StatusNotFound, "Not Found")
}

// freeBusy is query-free-busy-calendars.
func (c *calendar) freeBusy(args object) (any, string, error) {
	from, err1 := optionalTime(text(args, "timeMin"))
	until, err2 := optionalTime(text(args, "timeMax"))
	if err := cmp.Or(err1, err2); err != nil {
		return nil, "", err
	}
	out := object{}
	for _, name := range list(args["calendarId"]) {
		cal, err := c.id(name)
		if err != nil {
			out[name] = object{"errors": []any{object{"domain": "global", "reason": "notFound"}}, "busy": []any{}}
			continue
		}
		busy := []any{}
		for _, e := range c.events[cal] {
			if start, end := span(e); end.After(from) && start.Before(until) {
				busy = append(busy, object{"start": start.Format(time.RFC3339), "end": end.Format(time.RFC3339)})
			}
		}
		out[name] = object{"busy": busy}
	}
	return object{"kind": "calendar#freeBusy", "timeMin": text(args, "timeMin"), "timeMax": text(args, "timeMax"), "calendars": out},
		"Read the free and busy times", nil
}

// choices of Google Calendar: false ends a list.
func (c *calendar) choices(q ask) choices {
	switch q.prop {
	case "calendarId":
		if token(q.previous, "nextPageToken") == "" {
			return choices{options: []any{option("Personal", c.owner), option("Equipo", "team-calendar@example.com")},
				context: object{"nextPageToken": "tok2"}}
		}
		return choices{options: []any{option("Festivos", "holidays@example.com")}, context: object{"nextPageToken": false}}
	case "eventId":
		cal, err := c.id(text(q.args, "calendarId"))
		if err != nil {
			return choices{err: failure{name: "Error", message: "calendarId is not set"}}
		}
		out := []any{}
		for _, e := range c.events[cal] {
			out = append(out, option(fmt.Sprint(e["summary"]), e["id"]))
		}
		return choices{options: out, context: object{"nextPageToken": false}}
	case "colorId":
		return choices{options: []any{option("Lavender", "1"), option("Sage", "2"), option("Grape", "3")}}
	case "timeZone":
		return choices{strings: []any{"Europe/Madrid", "Europe/Paris", "America/Mexico_City", "UTC"}}
	case "attendees":
		return choices{options: []any{option("Marta", "marta@example.com"), option("Luis", "luis@example.com")}}
	}
	return choices{err: failure{name: "Error", message: "this prop has no choices"}}
}

// times reads the start and the end of an event: a day or an RFC 3339 time, or a local one with timeZone.
func times(args object) (start, end object, err error) {
	a, from, err1 := point(text(args, "eventStartDate"), text(args, "timeZone"))
	b, until, err2 := point(text(args, "eventEndDate"), text(args, "timeZone"))
	if err := cmp.Or(err1, err2); err != nil {
		return nil, nil, err
	}
	if until.Before(from) {
		return nil, nil, upstream(http.StatusBadRequest, "The specified time range is empty.")
	}
	return a, b, nil
}

// point reads one of them.
func point(value, zone string) (object, time.Time, error) {
	if t, err := time.Parse(time.DateOnly, value); err == nil {
		return object{"date": value}, t, nil
	}
	if t, err := time.Parse(time.RFC3339, value); err == nil {
		return object{"dateTime": value, "timeZone": cmp.Or(zone, "Europe/Madrid")}, t, nil
	}
	if t, err := time.Parse("2006-01-02T15:04:05", value); err == nil && zone != "" {
		return object{"dateTime": value, "timeZone": zone}, t, nil
	}
	return nil, time.Time{}, upstream(http.StatusBadRequest, "Invalid time")
}

// span is the time an event takes, as well as its text tells.
func span(e object) (start, end time.Time) {
	read := func(v any) time.Time {
		obj, _ := v.(object)
		_, t, _ := point(cmp.Or(text(obj, "dateTime"), text(obj, "date")), "any")
		return t
	}
	return read(e["start"]), read(e["end"])
}

// optionalTime reads an RFC 3339 time; empty is the zero time.
func optionalTime(value string) (time.Time, error) {
	if value == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return t, upstream(http.StatusBadRequest, "Bad Request")
	}
	return t, nil
}
