package pipedream

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// world is what an account holds, so that answers are real: what is created is found again, what is deleted is gone.
// Exactly one of its parts is set; none for an app without actions.
type world struct {
	calendar *calendar
	mail     *mailbox
	notes    *notebook
	booking  *booking
}

// newWorld furnishes an account of an app. owner is the account's name.
func newWorld(app, owner string, now time.Time) *world {
	if !strings.Contains(owner, "@") {
		owner = "person@example.com"
	}
	switch app {
	case "google_calendar":
		return &world{calendar: newCalendar(owner, now)}
	case "gmail":
		return &world{mail: newMailbox(owner, now)}
	case "notion":
		return &world{notes: newNotebook(now)}
	case "calendly_v2":
		return &world{booking: newBooking(now)}
	}
	return &world{}
}

// perform runs one action on the world and gives ret and the summary, or a failure with nothing done.
func (w *world) perform(app, action string, args object, now time.Time) (ret any, summary string, err error) {
	switch {
	case app == "google_calendar" && action == "get_date_time":
		return object{"datetime": now.Format(time.RFC3339), "timezone": "UTC"}, "Read the current time", nil
	case w.calendar != nil:
		return w.calendar.perform(action, args, now)
	case w.mail != nil:
		return w.mail.perform(action, args, now)
	case w.notes != nil:
		return w.notes.perform(action, args, now)
	case w.booking != nil:
		return w.booking.perform(action, args, now)
	}
	return nil, "", failure{name: "Error", message: "this action is not played"}
}

// text reads a string argument.
func text(args object, name string) string {
	t, _ := args[name].(string)
	return t
}

// list reads an array of strings; a string is taken as JSON of an array or as a comma list, as some actions do.
func list(v any) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = append(out, fmt.Sprint(e))
		}
	case string:
		if json.Unmarshal([]byte(v), &out) == nil {
			return out
		}
		for _, e := range strings.Split(v, ",") {
			if e = strings.TrimSpace(e); e != "" {
				out = append(out, e)
			}
		}
	}
	return out
}

// copyText copies string arguments under their own names into an object of the world.
func copyText(args, into object, names ...string) {
	for _, n := range names {
		if t, isText := args[n].(string); isText {
			into[n] = t
		}
	}
}
