package anthropic_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/sim/anthropic"
)

func event(id, title, start, end string) object {
	return object{"id": id, "status": "confirmed", "summary": title, "start": object{"dateTime": start}, "end": object{"dateTime": end}}
}

func TestCreateLoadsTheToolCallsItAndTellsTheResult(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.run = map[string]func(object) object{
		"google_calendar-create-event": func(in object) object {
			return ok(event("ev1", "Reunión (confirmada)", "2026-09-17T10:15:00-03:00", "2026-09-17T10:45:00-03:00"))
		},
	}
	answer := a.say("guardame una reunión mañana a las 10")
	want := []call{{"google_calendar-create-event", object{
		"summary": "Reunión", "eventStartDate": "2026-09-17T10:00:00-03:00", "eventEndDate": "2026-09-17T10:30:00-03:00",
	}}}
	if diff := cmp.Diff(want, a.calls); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{prefix + "google_calendar-create-event"}, a.loaded); diff != "" {
		t.Error(diff)
	}
	if want := "Listo: «Reunión (confirmada)», jueves 17/9 de 10:15 a 10:45."; answer != want {
		t.Errorf("answer %q, want %q", answer, want)
	}
	a.say("guardame otra reunión pasado mañana a las 11")
	if len(a.loaded) != 1 {
		t.Errorf("a loaded tool was loaded again: %v", a.loaded)
	}
}

func TestCreateReadsManyWaysToSayWhen(t *testing.T) {
	tests := []struct{ text, summary, start, end string }{
		{"Guárdame una reunión mañana a las 10", "Reunión", "2026-09-17T10:00", "2026-09-17T10:30"},
		{"GUARDAME UNA REUNION MAÑANA A LAS 10", "REUNION", "2026-09-17T10:00", "2026-09-17T10:30"},
		{"agendá una reunión pasado mañana a las 9:15", "Reunión", "2026-09-18T09:15", "2026-09-18T09:45"},
		{"agendame una cita hoy a las 20", "Cita", "2026-09-16T20:00", "2026-09-16T20:30"},
		{"poneme una reunión el viernes de 10 a 11", "Reunión", "2026-09-18T10:00", "2026-09-18T11:00"},
		{"creá una reunión el miércoles a las 8", "Reunión", "2026-09-23T08:00", "2026-09-23T08:30"},
		{"creá una reunión con Ana Paz el lunes a las 3 de la tarde", "Reunión con Ana Paz", "2026-09-21T15:00", "2026-09-21T15:30"},
		{"agendá una llamada con Juan mañana a las 10 de la mañana por 1 hora", "Llamada con Juan", "2026-09-17T10:00", "2026-09-17T11:00"},
		{"reservá una reunión \"Plan anual\" el 1/12 a las 10 y media", "Plan anual", "2026-12-01T10:30", "2026-12-01T11:00"},
		{"anotá un evento llamado Cierre de mes el 30 de septiembre a las 16hs", "Cierre de mes", "2026-09-30T16:00", "2026-09-30T16:30"},
		{"guardame una reunión mañana por la mañana a las diez", "Reunión", "2026-09-17T10:00", "2026-09-17T10:30"},
		{"programá una reunión para el 2 de enero a las 9", "Reunión", "2027-01-02T09:00", "2027-01-02T09:30"},
		{"guardame una reunión a las 10", "Reunión", "2026-09-17T10:00", "2026-09-17T10:30"}, // 10 is over today
		{"guardame una reunión a las 19:30", "Reunión", "2026-09-16T19:30", "2026-09-16T20:00"},
		{"schedule a meeting tomorrow at 10", "Meeting", "2026-09-17T10:00", "2026-09-17T10:30"},
		{"Please book a meeting with Bob on Friday at 3pm", "Meeting with Bob", "2026-09-18T15:00", "2026-09-18T15:30"},
		{"create an event called Demo day the day after tomorrow from 9 to 10:30", "Demo day", "2026-09-18T09:00", "2026-09-18T10:30"},
		{"add a call about the budget on December 1st at noon", "Call about the budget", "2026-12-01T12:00", "2026-12-01T12:30"},
		{"schedule an interview on 2026-10-05 at 11:00 for 45 minutes", "Interview", "2026-10-05T11:00", "2026-10-05T11:45"},
		{"put a meeting in my calendar tomorrow at 9 in the evening", "Meeting", "2026-09-17T21:00", "2026-09-17T21:30"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			_, url := serve(t, anthropic.Config{})
			a := newAgent(t, url).calendarTools()
			a.run = map[string]func(object) object{"google_calendar-create-event": always(ok(object{"id": "e"}))}
			a.say(tt.text)
			want := []call{{"google_calendar-create-event", object{
				"summary": tt.summary, "eventStartDate": tt.start + ":00-03:00", "eventEndDate": tt.end + ":00-03:00",
			}}}
			if diff := cmp.Diff(want, a.calls); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTheMomentComesFromTheLatestDateLine(t *testing.T) {
	tests := []struct{ name, system, envelope, want string }{
		{"founding line", founding, "", "2026-09-17T10:00:00-03:00"},
		{"English line", "Today is Tuesday 01/12/2026 (day/month/year), 09:00 (Europe/Madrid, UTC+01:00).", "", "2026-12-02T10:00:00+01:00"},
		{"month first", "Today is Tuesday 12/01/2026, 09:00 (Europe/Madrid, UTC+01:00).", "", "2026-12-02T10:00:00+01:00"},
		{"the offset is believed, not the zone", "Hoy es martes 01/12/2026, 09:00 (Europe/Madrid, UTC+05:30).", "", "2026-12-02T10:00:00+05:30"},
		{"an unknown zone has its offset", "Hoy es martes 01/12/2026, 23:59 (Mars/Olympus, UTC-03:00).", "", "2026-12-02T10:00:00-03:00"},
		{"no zone", "Hoy es martes 01/12/2026, 09:00 (UTC: no se conoce la zona horaria de la persona; si la hora importa, pregúntasela).", "", "2026-12-02T10:00:00Z"},
		{"a turn's own line wins", founding, "<pilder-a1b2>\nHoy es martes 01/12/2026, 09:00 (Europe/Madrid, UTC+01:00).\nCanal: telegram.\n</pilder-a1b2>\n", "2026-12-02T10:00:00+01:00"},
		{"no line at all", "You are an agent.", "", "2026-11-30T10:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, url := serve(t, anthropic.Config{Now: clock(t, "2026-11-29T12:00:00Z")})
			a := newAgent(t, url).calendarTools()
			a.system = tt.system
			a.run = map[string]func(object) object{"google_calendar-create-event": always(ok(object{"id": "e"}))}
			a.say(tt.envelope + "guardame una reunión mañana a las 10")
			if len(a.calls) != 1 || a.calls[0].Args["eventStartDate"] != tt.want {
				t.Errorf("calls %v, want a start at %s", a.calls, tt.want)
			}
		})
	}
}

func TestClocksThatChangeInBetweenAreMinded(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.system = "Hoy es sábado 24/10/2026, 09:00 (Europe/Madrid, UTC+02:00)."
	a.run = map[string]func(object) object{"google_calendar-create-event": always(ok(object{"id": "e"}))}
	a.say("guardame una reunión mañana a las 10")
	if got := a.calls[0].Args["eventStartDate"]; got != "2026-10-25T10:00:00+01:00" {
		t.Errorf("start %v", got)
	}
}

// diary is a calendar tool that answers what lies in the asked stretch, and something outside it that must be ignored.
func diary() map[string]func(object) object {
	return map[string]func(object) object{
		"google_calendar-list-events": always(ok([]any{
			event("a", "Reunión de equipo", "2026-09-17T10:00:00-03:00", "2026-09-17T11:00:00-03:00"),
			event("b", "Dentista", "2026-09-18T09:00:00-03:00", "2026-09-18T10:00:00-03:00"),
			event("x", "Ayer", "2026-09-15T10:00:00-03:00", "2026-09-15T11:00:00-03:00"),
		})),
		"google_calendar-update-event": always(object{"content": `{"status":"ok"}`}),
		"google_calendar-delete-event": always(object{"content": `{"status":"ok"}`}),
	}
}

func TestMoveFindsTheEventAndKeepsItsLength(t *testing.T) {
	tests := []struct{ text, id, start, end string }{
		{"mové la reunión de mañana a las 11", "a", "2026-09-17T11:00", "2026-09-17T12:00"},
		{"Mueve la reunión de mañana a las 11:30, por favor", "a", "2026-09-17T11:30", "2026-09-17T12:30"},
		{"pasá la reunión de mañana al viernes a las 9", "a", "2026-09-18T09:00", "2026-09-18T10:00"},
		{"cambiá la reunión de equipo para el lunes", "a", "2026-09-21T10:00", "2026-09-21T11:00"},
		{"move tomorrow's meeting to 11", "a", "2026-09-17T11:00", "2026-09-17T12:00"},
		{"move the meeting from 10 to 11 tomorrow", "a", "2026-09-17T11:00", "2026-09-17T12:00"},
		{"reschedule the dentista appointment on friday to 4pm", "b", "2026-09-18T16:00", "2026-09-18T17:00"},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			_, url := serve(t, anthropic.Config{})
			a := newAgent(t, url).calendarTools()
			a.run = diary()
			answer := a.say(tt.text)
			if len(a.calls) != 2 {
				t.Fatalf("calls %v, answer %q", a.calls, answer)
			}
			want := call{"google_calendar-update-event", object{
				"eventId": tt.id, "eventStartDate": tt.start + ":00-03:00", "eventEndDate": tt.end + ":00-03:00",
			}}
			if diff := cmp.Diff(want, a.calls[1]); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDeleteListsFirstAndDeletesWhatItFound(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.run = diary()
	answer := a.say("borrá la reunión de mañana")
	want := []call{
		{"google_calendar-list-events", object{
			"timeMin": "2026-09-17T00:00:00-03:00", "timeMax": "2026-09-18T00:00:00-03:00", "singleEvents": true, "orderBy": "startTime",
		}},
		{"google_calendar-delete-event", object{"eventId": "a"}},
	}
	if diff := cmp.Diff(want, a.calls); diff != "" {
		t.Error(diff)
	}
	if want := "Listo, borré «Reunión de equipo», jueves 17/9 de 10:00 a 11:00."; answer != want {
		t.Errorf("answer %q, want %q", answer, want)
	}
}

func TestCalendarAnswers(t *testing.T) {
	busy := always(ok(object{"calendars": object{"primary": object{"busy": []any{
		object{"start": "2026-09-17T18:00:00Z", "end": "2026-09-17T18:30:00Z"},
	}}}}))
	tests := []struct {
		text, want string
		change     func(map[string]func(object) object)
	}{
		{"qué tengo mañana?", "Esto tienes jueves 17/9:\n- «Reunión de equipo», jueves 17/9 de 10:00 a 11:00", nil},
		{"what do I have on Friday?", "This is what you have Friday 18 September:\n- «Dentista», Friday 18 September from 09:00 to 10:00", nil},
		{"qué tengo el lunes", "No tienes nada lunes 21/9.", nil},
		{"borrá la reunión del lunes", "No encontré esa reunión en tu agenda.", nil},
		{"estoy libre mañana a las 15?", "No del todo: jueves 17/9 tienes algo de 15:00 a 15:30.", func(m map[string]func(object) object) {
			m["google_calendar-query-free-busy-calendars"] = busy
		}},
		{"am I free tomorrow at 11am?", "Yes, you are free: Thursday 17 September from 11:00 to 12:00.", func(m map[string]func(object) object) {
			m["google_calendar-query-free-busy-calendars"] = busy
		}},
		{"guardame una reunión mañana", "¿A qué hora? Dímelo junto con el día y la guardo.", nil},
		{"borrá la reunión de mañana", "Quedó a la espera de tu confirmación. Pendiente de tu confirmación: borra algo. No se hizo.", func(m map[string]func(object) object) {
			m["google_calendar-delete-event"] = always(object{"content": `{"status":"pending","kind":"confirm","message":"Pendiente de tu confirmación: borra algo. No se hizo.","code":"K7"}`})
		}},
		{"borrá el evento inexistente", "No salió: No existe ese evento.", func(m map[string]func(object) object) {
			m["google_calendar-delete-event"] = always(object{"content": "No existe ese evento.", "is_error": true})
		}},
		{"delete the nonexistent event", "I could not do it, sorry.", func(m map[string]func(object) object) {
			m["google_calendar-delete-event"] = always(object{"content": "Error POSTing to endpoint: http://127.0.0.1:1/", "is_error": true})
		}},
	}
	for _, tt := range tests {
		t.Run(tt.text, func(t *testing.T) {
			_, url := serve(t, anthropic.Config{})
			a := newAgent(t, url).calendarTools()
			a.run = diary()
			if tt.change != nil {
				tt.change(a.run)
			}
			if answer := a.say(tt.text); answer != tt.want {
				t.Errorf("answer %q\n  want %q", answer, tt.want)
			}
		})
	}
}

func TestSeveralOfADayAreAskedAbout(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.run = map[string]func(object) object{"google_calendar-list-events": always(ok(object{"items": []any{
		event("a", "Uno", "2026-09-17T10:00:00-03:00", "2026-09-17T11:00:00-03:00"),
		event("b", "Dos", "2026-09-17T12:00:00-03:00", "2026-09-17T13:00:00-03:00"),
	}}))}
	if answer := a.say("borrá la reunión de mañana"); !strings.HasPrefix(answer, "Hay varias, ¿cuál de ellas?\n- «Uno»") || len(a.calls) != 1 {
		t.Errorf("answer %q, calls %v", answer, a.calls)
	}
}

func TestSeveralQueuedWishesAreAllServed(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.run = diary()
	a.run["google_calendar-create-event"] = always(ok(object{"id": "e"}))
	answer := a.say("hola\nguardame una reunión mañana a las 10\nqué tengo el viernes?")
	want := "Listo: «Reunión», jueves 17/9 de 10:00 a 10:30.\n\nEsto tienes viernes 18/9:\n- «Dentista», viernes 18/9 de 09:00 a 10:00"
	if answer != want {
		t.Errorf("answer %q\n  want %q", answer, want)
	}
	if len(a.calls) != 2 {
		t.Errorf("calls %v", a.calls)
	}
}

func TestAWishRepeatedAfterAFailedTurnIsServedOnce(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.run = map[string]func(object) object{"google_calendar-create-event": always(ok(object{"id": "e"}))}
	a.messages = []object{{"role": "user", "content": []object{
		{"type": "text", "text": "guardame una reunión mañana a las 10\n"}, {"type": "text", "text": "Guardame una reunion mañana a las 10"},
	}}}
	if a.finish(); len(a.calls) != 1 {
		t.Errorf("calls %v", a.calls)
	}
}

func TestAMessageThatArrivesDuringTheTurnIsServedToo(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url).calendarTools()
	a.run = diary()
	a.messages = []object{
		{"role": "user", "content": "qué tengo mañana?"},
		{"role": "assistant", "content": []object{{"type": "tool_use", "id": "toolu_1", "name": prefix + "google_calendar-list-events", "input": object{}}}},
		{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "toolu_1", "content": `{"status":"ok","data":[]}`}}},
		{"role": "system", "content": "The user sent a new message while you were working:\nhola\nqué tengo el viernes?\n\nThis is how Claude Code surfaces messages the user sends mid-turn — …"},
	}
	want := "No tienes nada jueves 17/9.\n\nEsto tienes viernes 18/9:\n- «Dentista», viernes 18/9 de 09:00 a 10:00"
	if answer := a.finish(); answer != want {
		t.Errorf("answer %q\n  want %q", answer, want)
	}
}
