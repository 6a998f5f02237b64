package anthropic

import (
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
)

const calendar = "google_calendar"

var (
	eventWord   = regexp.MustCompile(`\b(reuniones|reunion|eventos?|citas?|meetings?|events?|appointments?|llamadas?|calls?|almuerzos?|lunch|turnos?|entrevistas?|interviews?)\b`)
	creating    = regexp.MustCompile(`\b(guarda|guardame|guardar|agenda|agendame|agendar|crea|creame|crear|pon|pone|poneme|ponme|poner|anota|anotame|anotar|reserva|reservame|programa|programame|programar|schedule|create|add|book|set up|put|save|make|new|nueva)\b`)
	deleting    = regexp.MustCompile(`\b(borra|borrar|borrame|elimina|eliminar|eliminame|cancela|cancelar|cancelame|quita|quitame|delete|cancel|remove|drop)\b`)
	moving      = regexp.MustCompile(`\b(move|mueve|mover|moveme|mueveme|pasa|pasame|pasar|cambia|cambiame|cambiar|reprograma|reprogramar|corre|correme|reschedule|shift|push)\b`)
	nonexistent = regexp.MustCompile(`\b(inexistente|que no existe|nonexistent|non-existent|(?:does not|doesn't) exist)\b`)
	free        = regexp.MustCompile(`\b(libre|disponible|ocupad[oa]|free|available|busy)\b`)
	listing     = regexp.MustCompile(`\b(que (?:tengo|hay|reuniones|eventos)|mis (?:reuniones|eventos|citas)|(?:mi|la) agenda|what(?:'s| is)? (?:do i have|on)\b|what do i have|what(?:'s| is| are)? (?:on )?my (?:calendar|schedule|meetings|agenda|events)|(?:list|show) (?:me )?(?:my )?(?:calendar|schedule|meetings|events)|do i have (?:any|a) |tengo alg(?:o|un|una)\b)`)
	quoted      = regexp.MustCompile(`["'](.+?)["']`)
	titled      = regexp.MustCompile(`\b(?:(?:reunion|evento|cita|turno|entrevista|almuerzo)\s+(?:llamad[oa]|titulad[oa])|que se llame|called|titled|named)\s+(.+)$`)
	withWhom    = regexp.MustCompile(`\b(?:con|with|sobre|about|de|for)\s+(.+)$`)
	inviting    = regexp.MustCompile(`\b(invita|invitale|invitando|invite|inviting)\b`)
	address     = regexp.MustCompile(`[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.\w+`)
	target      = regexp.MustCompile(`\b(a las?|al|para las?|para el|para|a pasado|a manana|to|at|until)\s`)
)

// event is a calendar event as far as a result tells it.
type calendarEvent struct {
	id, title  string
	start, end time.Time
	allDay     bool
}

// events reads the events of a result, whatever wraps them.
func (t Turn) events(r Result) []calendarEvent {
	var out []calendarEvent
	for _, o := range r.objects("id", "start") {
		e := calendarEvent{id: first(o, "id"), title: first(o, "summary", "title", "name")}
		var day bool
		e.start, day = t.moment(o["start"])
		e.end, _ = t.moment(o["end"])
		e.allDay = day
		if e.id != "" && first(o, "status") != "cancelled" {
			out = append(out, e)
		}
	}
	return out
}

// moment reads Google's {"dateTime": …} or {"date": …}, or a plain string.
func (t Turn) moment(v any) (at time.Time, wholeDay bool) {
	text, ok := v.(string)
	if o, isObject := v.(object); isObject {
		text, ok = first(o, "dateTime", "date"), true
	}
	if !ok {
		return time.Time{}, false
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at.In(t.Now.Location()), false
	}
	at, err := time.ParseInLocation(time.DateOnly, text, t.Now.Location())
	return at, err == nil
}

// span tells an event's time: "martes 1/12 de 10:00 a 10:30".
func (t Turn) span(from, to time.Time) string {
	if to.IsZero() {
		return fmt.Sprintf(t.say("%s a las %s", "%s at %s"), t.day(from), from.Format("15:04"))
	}
	return fmt.Sprintf(t.say("%s de %s a %s", "%s from %s to %s"), t.day(from), from.Format("15:04"), to.Format("15:04"))
}

func (t Turn) describe(e calendarEvent) string {
	title := e.title
	if title == "" {
		title = t.say("sin título", "untitled")
	}
	if e.start.IsZero() {
		return "«" + title + "»"
	}
	if e.allDay {
		return fmt.Sprintf(t.say("«%s», %s, todo el día", "«%s», %s, all day"), title, t.day(e.start))
	}
	return "«" + title + "», " + t.span(e.start, e.end)
}

func createEvent(t Turn) []Block {
	f := fold(t.Text)
	w := readWhen(f.text, t.Now)
	if !w.hasHour {
		return []Block{Text(t.say("¿A qué hora? Dímelo junto con el día y la guardo.", "At what time? Tell me together with the day and I will save it."))}
	}
	from, to := w.span(t.Now)
	title := t.title(f, w)
	r, next := t.do(calendar, "google_calendar-create-event", func(tool Tool) any {
		in := object{"summary": title, "eventStartDate": from.Format(time.RFC3339), "eventEndDate": to.Format(time.RFC3339)}
		if tool.Schema.Has("addSelfAsAttendee") {
			in["addSelfAsAttendee"] = false
		}
		if guests := address.FindAllString(t.Text, -1); guests != nil && inviting.MatchString(f.text) {
			in["attendees"] = guests
		}
		return in
	})
	if next != nil {
		return next
	}
	made := calendarEvent{title: title, start: from, end: to} // what was asked for, where the result is silent
	if told := t.events(r); len(told) > 0 {
		made = told[0]
	} else if o := r.objects("summary", "id"); len(o) > 0 {
		made.title = first(o[0], "summary")
	}
	return []Block{Text(t.say("Listo: ", "Done: ") + t.describe(made) + ".")}
}

// title is the name for a new event: what stands in quotes or after "llamada", or the kind of event with its company.
func (t Turn) title(f folded, w when) string {
	if name := f.group(quoted, 1); name != "" {
		return name
	}
	if m := titled.FindStringSubmatchIndex(f.text); m != nil {
		if w.first > m[2] {
			return trimTitle(f.cut(m[2], w.first))
		}
	}
	m := eventWord.FindStringIndex(f.text)
	name := f.cut(m[0], m[1])
	if who := withWhom.FindStringSubmatchIndex(f.text[m[1]:]); who != nil && m[1]+who[2] < w.first {
		end := w.first
		if at := inviting.FindStringIndex(f.text); at != nil && at[0] > m[1]+who[2] {
			end = min(end, at[0])
		}
		if company := trimTitle(f.cut(m[1]+who[0], end)); !address.MatchString(company) {
			name += " " + company
		}
	}
	runes := []rune(name)
	runes[0] = unicode.ToUpper(runes[0])
	return string(runes)
}

var titleTail = regexp.MustCompile(`(?i)[\s.,;:]+(?:para|for|del?|el|la|los|on|the|at|this|next|este|y|and)$|[\s.,;:]+$`)

// trimTitle drops what leads on to the time: "Cierre de mes el" is "Cierre de mes".
func trimTitle(s string) string {
	for titleTail.MatchString(s) {
		s = titleTail.ReplaceAllString(s, "")
	}
	return s
}

// listed asks for the events of a stretch of time and gives those that begin in it.
func (t Turn) listed(from, to time.Time) ([]calendarEvent, []Block) {
	r, next := t.do(calendar, "google_calendar-list-events", func(tool Tool) any {
		in := object{"timeMin": from.Format(time.RFC3339), "timeMax": to.Format(time.RFC3339)}
		if tool.Schema.Has("singleEvents") {
			in["singleEvents"] = true
			if tool.Schema.Has("orderBy") {
				in["orderBy"] = "startTime"
			}
		}
		return in
	})
	if next != nil {
		return nil, next
	}
	var out []calendarEvent
	for _, e := range t.events(r) {
		if e.start.IsZero() || !e.start.Before(from) && e.start.Before(to) {
			out = append(out, e)
		}
	}
	return out, nil
}

func listEvents(t Turn) []Block {
	w := readWhen(fold(t.Text).text, t.Now)
	w.hasHour = false
	from, to := w.span(t.Now)
	events, next := t.listed(from, to)
	if next != nil {
		return next
	}
	when := t.day(from)
	if w.days > 1 {
		when = fmt.Sprintf(t.say("del %s al %s", "from %s to %s"), t.day(from), t.day(to.AddDate(0, 0, -1)))
	}
	if len(events) == 0 {
		return []Block{Text(fmt.Sprintf(t.say("No tienes nada %s.", "You have nothing %s."), when))}
	}
	return []Block{Text(fmt.Sprintf(t.say("Esto tienes %s:", "This is what you have %s:"), when) + t.bullets(events))}
}

func (t Turn) bullets(events []calendarEvent) string {
	var b strings.Builder
	for _, e := range events {
		b.WriteString("\n- " + t.describe(e))
	}
	return b.String()
}

// pick finds the one event a text speaks of. With none or several, it asks.
func (t Turn) pick(w when, words string) (calendarEvent, []Block) {
	var at time.Time
	if w.hasHour && !w.day.IsZero() {
		at = on(w.day, w.start)
	}
	search := w
	search.hasHour = false
	if w.day.IsZero() {
		search.days = 14
	}
	from, to := search.span(t.Now)
	events, next := t.listed(from, to)
	if next != nil {
		return calendarEvent{}, next
	}
	var fit []calendarEvent
	for _, e := range events {
		hour := w.hasHour && w.day.IsZero() && (e.start.Hour() != int(w.start.Hours()) || e.start.Minute() != int(w.start.Minutes())%60)
		if !at.IsZero() && !e.start.Equal(at) || hour {
			continue
		}
		fit = append(fit, e)
	}
	if named := byTitle(fit, words); len(named) > 0 {
		fit = named
	}
	switch {
	case len(fit) == 0:
		return calendarEvent{}, []Block{Text(t.say("No encontré esa reunión en tu agenda.", "I did not find that meeting in your calendar."))}
	case len(fit) > 1 && !w.day.IsZero():
		return calendarEvent{}, []Block{Text(t.say("Hay varias, ¿cuál de ellas?", "There are several, which one?") + t.bullets(fit))}
	}
	return fit[0], nil
}

// byTitle keeps the events whose title shares a telling word with the text.
func byTitle(events []calendarEvent, words string) []calendarEvent {
	var out []calendarEvent
	said := map[string]bool{}
	for _, w := range word.FindAllString(words, -1) {
		said[w] = len(w) > 3 && !eventWord.MatchString(w)
	}
	for _, e := range events {
		for _, w := range word.FindAllString(fold(e.title).text, -1) {
			if said[w] {
				out = append(out, e)
				break
			}
		}
	}
	return out
}

func deleteEvent(t Turn) []Block {
	text := fold(t.Text).text
	e, next := t.pick(readWhen(text, t.Now), text)
	if next != nil {
		return next
	}
	_, next = t.do(calendar, "google_calendar-delete-event", func(Tool) any { return object{"eventId": e.id} })
	if next != nil {
		return next
	}
	return []Block{Text(t.say("Listo, borré ", "Done, I deleted ") + t.describe(e) + ".")}
}

func deleteNonexistent(t Turn) []Block {
	_, next := t.do(calendar, "google_calendar-delete-event", func(Tool) any { return object{"eventId": "inexistente0000"} })
	if next != nil {
		return next
	}
	return []Block{Text(t.say("Listo, quedó borrado.", "Done, it is deleted."))}
}

func moveEvent(t Turn) []Block {
	text := fold(t.Text).text
	source, goal := splitMove(text, t.Now)
	e, next := t.pick(source, text)
	if next != nil {
		return next
	}
	day, start := goal.day, goal.start
	if day.IsZero() {
		day = e.start
	}
	if !goal.hasHour {
		start = time.Duration(e.start.Hour())*time.Hour + time.Duration(e.start.Minute())*time.Minute
	}
	from := on(day, start)
	length := 30 * time.Minute
	if e.end.After(e.start) {
		length = e.end.Sub(e.start)
	}
	r, next := t.do(calendar, "google_calendar-update-event", func(Tool) any {
		return object{
			"eventId": e.id, "eventStartDate": from.Format(time.RFC3339), "eventEndDate": from.Add(length).Format(time.RFC3339),
		}
	})
	if next != nil {
		return next
	}
	e.start, e.end = from, from.Add(length)
	if told := t.events(r); len(told) > 0 && told[0].id == e.id {
		e = told[0]
	}
	return []Block{Text(t.say("Listo, moví ", "Done, I moved ") + t.describe(e) + ".")}
}

// splitMove tells which event is meant and where it goes: the last "a las", "al", "to" … begins the goal.
func splitMove(text string, now time.Time) (source, goal when) {
	at := len(text)
	for _, m := range target.FindAllStringIndex(text, -1) {
		if w := readWhen(text[m[0]:], now); w.hasHour || !w.day.IsZero() {
			at = m[0]
		}
	}
	if two := target.FindAllStringIndex(text[:at], -1); len(two) > 0 {
		last := two[len(two)-1][0] // "al jueves a las 9": the day belongs to the goal too
		if w := readWhen(text[last:at], now); !w.day.IsZero() && !w.hasHour {
			at = last
		}
	}
	source, goal = readWhen(text[:at], now), readWhen(text[at:], now)
	if source.day.IsZero() && source.hasHour {
		source.day = goal.day
	}
	return source, goal
}

func freeBusy(t Turn) []Block {
	w := readWhen(fold(t.Text).text, t.Now)
	from, to := w.span(t.Now)
	if w.hasHour && w.end == 0 {
		to = from.Add(time.Hour)
	}
	r, next := t.do(calendar, "google_calendar-query-free-busy-calendars", func(tool Tool) any {
		in := object{"timeMin": from.Format(time.RFC3339), "timeMax": to.Format(time.RFC3339)}
		if tool.Schema.Has("calendarId") {
			in["calendarId"] = []string{"primary"}
		}
		return in
	})
	if next != nil {
		return next
	}
	var busy []string
	for _, o := range r.objects("start", "end") {
		start, _ := t.moment(o["start"])
		end, _ := t.moment(o["end"])
		if start.Before(to) && end.After(from) {
			busy = append(busy, fmt.Sprintf(t.say("de %s a %s", "from %s to %s"), start.Format("15:04"), end.Format("15:04")))
		}
	}
	when := t.day(from)
	if w.hasHour {
		when = t.span(from, to)
	}
	if len(busy) == 0 {
		return []Block{Text(fmt.Sprintf(t.say("Sí, estás libre: %s.", "Yes, you are free: %s."), when))}
	}
	return []Block{Text(fmt.Sprintf(t.say("No del todo: %s tienes algo %s.", "Not quite: on %s you are busy %s."), t.day(from), strings.Join(busy, ", ")))}
}
