package anthropic

import (
	"fmt"
	"regexp"
)

// demoScript is a script of the demo: the first whose pattern, over the folded text, matches is played.
type demoScript struct {
	Script
	action bool // a line of several that matches it is a wish of its own
}

func demo() []demoScript {
	action := func(name string, match func(string) bool, play func(Turn) []Block) demoScript {
		return demoScript{talk(name, match, play).Script, true}
	}
	return []demoScript{
		action("delete.nonexistent", all(matches(deleting), matches(nonexistent)), deleteNonexistent),
		action("mail.send", matches(mailing), sendMail),
		action("mail.find", matches(mailSearch), findMail),
		action("pending", matches(pendingWords), pending),
		action("notes.find", matches(notes), findNotes),
		action("calendly.link", matches(booking), bookingLink),
		action("app.other", otherAppNamed, connectOther),
		action("event.delete", all(matches(deleting), matches(eventWord)), deleteEvent),
		action("event.move", all(matches(moving), matches(eventWord)), moveEvent),
		action("event.free", matches(free), freeBusy),
		action("event.list", matches(listing), listEvents),
		action("event.create", all(matches(creating), matches(eventWord)), createEvent),
		talk("news", matches(newsWords), tellNews),
		talk("long", matches(lengthy), tellLong),
		talk("arithmetic", all(matches(sum), matches(sumAsked)), calculate),
		talk("help", matches(helpWords), help),
		talk("thanks", matches(thanks), thank),
		talk("hello", matches(greeting), greet),
	}
}

func talk(name string, match func(string) bool, play func(Turn) []Block) demoScript {
	return demoScript{Script{name, func(t Turn) bool { return match(fold(t.Text).text) }, play}, false}
}

func matches(re *regexp.Regexp) func(string) bool { return re.MatchString }

func all(conditions ...func(string) bool) func(string) bool {
	return func(text string) bool {
		for _, holds := range conditions {
			if !holds(text) {
				return false
			}
		}
		return true
	}
}

// choose finds the script for one wish; what nothing matches gets the honest line.
func choose(t Turn, scripts []demoScript) demoScript {
	for _, s := range scripts {
		if s.Match(t) {
			return s
		}
	}
	return talk("unknown", func(string) bool { return true }, unknown)
}

func unknown(t Turn) []Block {
	return []Block{Text(t.say(
		"Este modelo de demostración solo conoce estos pedidos: "+abilities(t),
		"This demo model knows only these requests: "+abilities(t),
	))}
}

func abilities(t Turn) string {
	return t.say(
		"guardar, mover, listar o borrar una reunión; ver si estás libre; buscar o mandar un correo; buscar en notas; crear un "+
			"enlace de reserva; conectar una app; ver qué está pendiente; hacer una cuenta sencilla; contar algo largo.",
		"create, move, list or delete a meeting; see whether you are free; find or send an email; search your notes; make a "+
			"booking link; connect an app; see what is pending; do simple arithmetic; tell something long.",
	)
}

// do uses a tool of an app and deals with every end but the good one: it offers the connection of a missing app, says that
// a call waits, and says honestly that one failed. The script goes on only without blocks.
func (t Turn) do(app, tool string, input func(Tool) any) (Result, []Block) {
	r, next := t.Use(tool, input)
	switch {
	case next != nil:
		return r, next
	case r.Missing && app != "" && !t.knowsApp(app):
		return r, t.connect(app)
	case r.Missing:
		return r, []Block{Text(t.say("Eso no se puede hacer desde aquí.", "That cannot be done from here."))}
	case r.Pending():
		return r, []Block{Text(t.waiting(r))}
	case r.Failed():
		return r, []Block{Text(t.failed(r))}
	}
	return r, nil
}

var confirming = regexp.MustCompile(`confirm`)

func (t Turn) waiting(r Result) string {
	lead := t.say("Quedó a la espera de aprobación.", "It is waiting for approval.")
	if confirming.MatchString(fold(r.Sentence()).text) {
		lead = t.say("Quedó a la espera de tu confirmación.", "It is waiting for your confirmation.")
	}
	if sentence := r.Sentence(); sentence != "" {
		lead += " " + sentence
	}
	return lead
}

func (t Turn) failed(r Result) string {
	if sentence := r.presentable(); sentence != "" {
		return t.say("No salió: ", "That did not work: ") + sentence
	}
	return t.say("No pude hacerlo, lo siento.", "I could not do it, sorry.")
}

var privateChat = regexp.MustCompile(`(?i)chat privado|private chat`)

// connect offers the connection of an app with the link the house gives.
func (t Turn) connect(app string) []Block {
	name := appName(app)
	if tool, ok := t.tool("conectar_app"); ok && !tool.Schema.Takes("app", app) {
		return []Block{Text(fmt.Sprintf(t.say("%s no se puede conectar aquí.", "%s cannot be connected here."), name))}
	}
	r, next := t.Use("conectar_app", func(tool Tool) any {
		field := tool.Schema.First("app", "slug", "nombre", "name")
		if field == "" {
			field = "app"
		}
		return object{field: app}
	})
	if next != nil {
		return next
	}
	answer := fmt.Sprintf(t.say("Para eso hace falta conectar %s.", "That needs %s to be connected."), name)
	switch {
	case r.Missing:
		answer = fmt.Sprintf(t.say("Todavía no tengo acceso a %s.", "I do not have access to %s yet."), name)
	case r.Failed():
		answer = t.failed(r)
	case r.Link() != "":
		answer += " " + fmt.Sprintf(t.say("Puedes hacerlo con este enlace: %s", "You can do it with this link: %s"), r.Link())
	case privateChat.MatchString(r.Sentence()):
		answer += t.say(" Te mandé el enlace a tu chat privado.", " I sent the link to your private chat.")
	case r.presentable() != "":
		answer += " " + r.presentable()
	}
	return []Block{Text(answer)}
}
