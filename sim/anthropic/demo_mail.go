package anthropic

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	mailWord     = `(?:correos?|mails?|e-?mails?|mensajes?)`
	mailing      = regexp.MustCompile(`\b(?:manda|mandale|mandar|mandales|envia|enviale|enviales|enviar|escribe|escribi|escribile|escribele|send|write)\b.*\b(?:correo|mail|e-?mail)\b|^(?:please )?e?mail \S+@|\b(?:escribile|escribele|write)\b.*@`)
	mailSearch   = regexp.MustCompile(`\b(?:busca|buscame|buscar|encontra|encuentra|encontrar|find|search|look|show|mostra|muestra|mostrame|muestrame|lee|leeme|read|tengo|hay)\b.*\b` + mailWord + `\b`)
	mailBody     = regexp.MustCompile(`(?s)\b(?:diciendo(?:le|les)?(?: que)?|que diga|que dice|y decile|y dile|con el texto|saying(?: that)?|that says|telling (?:him|her|them)(?: that)?|with the text)[:,]?\s+(.+)$`)
	mailSubject  = regexp.MustCompile(`\b(?:con (?:el )?asunto|asunto|with (?:the )?subject|subject)[:,]?\s+["']?(.+?)["']?\s*(?:,?\s+(?:y )?(?:diciendo|que diga|que dice|saying|that says|with the text|con el texto)\b|$)`)
	mailFrom     = regexp.MustCompile(`\b(?:de|del|from)\s+(.+?)(?:\s+(?:sobre|about|que)\s|[?.!]*$)`)
	mailAbout    = regexp.MustCompile(`\b(?:sobre|acerca de|que hable[n]? de|about|regarding)\s+(.+?)[?.!]*$`)
	pendingWords = regexp.MustCompile(`\b(?:que (?:esta|hay|queda|tengo) pendiente|(?:mis )?pendientes|falta aprobar|aprobaciones|what(?:'s| is) (?:pending|waiting)|pending approvals?|waiting for (?:my )?approval)\b`)
	notes        = regexp.MustCompile(`\b(?:busca|buscame|buscar|encontra|encuentra|find|search|look)\b.*\b(?:notas?|notion|notes?)\b`)
	notesWords   = regexp.MustCompile(`\b(?:mis notas|las notas|notas|notion|my notes|the notes|notes)\b(?:\s+(?:sobre|de|for|about|por|on))?[:,]?\s+(.+?)[?.!]*$`)
	notesBefore  = regexp.MustCompile(`\b(?:busca|buscame|buscar|encontra|encuentra|find|search|look)(?:\s+for)?\s+(.+?)\s+(?:en|in)\s+(?:mis\s+|las\s+|my\s+|the\s+)?(?:notas|notion|notes)\b`)
)

// sendMail uses the house's own tool, whose fields it finds in the schema; without that tool it tries Gmail's.
func sendMail(t Turn) []Block {
	f := fold(t.Text)
	head := t.Text
	body := f.group(mailBody, 1)
	if m := mailBody.FindStringIndex(f.text); m != nil {
		head = f.cut(0, m[0]) // addresses in the body are no recipients
	}
	to := address.FindAllString(head, -1)
	if len(to) == 0 {
		return []Block{Text(t.say("¿A qué dirección se lo mando?", "To which address shall I send it?"))}
	}
	if body == "" {
		return []Block{Text(t.say("¿Qué le digo en el correo?", "What shall the email say?"))}
	}
	subject := f.group(mailSubject, 1)
	if subject == "" {
		subject = headline(body)
	}
	input := func(tool Tool) any { return mailInput(tool.Schema, to, subject, body) }
	tool, app := "correo_enviar", ""
	if _, callable := t.tool(tool); !callable && !t.names(tool) {
		tool, app = "gmail-send-email", "gmail"
	}
	_, next := t.do(app, tool, input)
	if next != nil {
		return next
	}
	return []Block{Text(fmt.Sprintf(t.say("Listo, le mandé el correo a %s: «%s».", "Done, I sent the email to %s: «%s»."), strings.Join(to, ", "), subject))}
}

// names tells whether a tool is known by name, also when this turn has asked for it already.
func (t Turn) names(tool string) bool {
	for _, full := range t.Deferred {
		if sameTool(full, tool) {
			return true
		}
	}
	return false
}

// mailInput fills a mail tool's fields, whatever language they are named in.
func mailInput(s Schema, to []string, subject, body string) object {
	in := object{}
	put := func(v any, fallback string, names ...string) {
		name := s.First(names...)
		if name == "" {
			name = fallback
		}
		in[name] = v
	}
	var recipients any = to
	if name := s.First("para", "to", "destinatarios", "destinatario", "recipients"); name != "" && !s.IsList(name) {
		recipients = strings.Join(to, ", ")
	}
	put(recipients, "para", "para", "to", "destinatarios", "destinatario", "recipients")
	put(subject, "asunto", "asunto", "subject", "titulo", "title")
	put(body, "cuerpo", "cuerpo", "body", "texto", "text", "mensaje", "message")
	return in
}

// headline is the beginning of a mail as its subject.
func headline(body string) string {
	line, _, _ := strings.Cut(body, "\n")
	words := strings.Fields(line)
	if len(words) > 6 {
		return strings.Join(words[:6], " ") + "…"
	}
	return strings.Join(words, " ")
}

func findMail(t Turn) []Block {
	f := fold(t.Text)
	query := ""
	if about := f.group(mailAbout, 1); about != "" {
		query = about
	}
	if from := f.group(mailFrom, 1); from != "" {
		query = strings.TrimSpace("from:" + from + " " + query)
	}
	r, next := t.do("gmail", "gmail-find-email", func(tool Tool) any {
		in := object{}
		if query != "" {
			in["q"] = query
		}
		if tool.Schema.Has("maxResults") {
			in["maxResults"] = 5
		}
		return in
	})
	if next != nil {
		return next
	}
	var lines []string
	for _, o := range r.objects("id") {
		if line := t.mailLine(o); line != "" {
			lines = append(lines, "- "+line)
		}
	}
	if len(lines) == 0 {
		return []Block{Text(t.say("No encontré ningún correo así.", "I found no such email."))}
	}
	return []Block{Text(t.say("Esto encontré en tu correo:", "This is what I found in your mail:") + "\n" + strings.Join(lines, "\n"))}
}

// mailLine tells one message, whose headers stand flat or as Gmail has them.
func (t Turn) mailLine(o object) string {
	subject, from := first(o, "subject", "asunto"), first(o, "from", "sender", "de")
	payload, _ := o["payload"].(object)
	headers, _ := payload["headers"].([]any)
	if flat, ok := o["headers"].([]any); ok {
		headers = append(headers, flat...)
	}
	for _, h := range headers {
		header, _ := h.(object)
		switch strings.ToLower(first(header, "name")) {
		case "subject":
			subject = first(header, "value")
		case "from":
			from = first(header, "value")
		}
	}
	snippet := first(o, "snippet", "bodyText", "preview")
	if subject == "" && snippet == "" {
		return ""
	}
	line := "«" + subject + "»"
	if from != "" {
		line += t.say(" de ", " from ") + from
	}
	if snippet != "" {
		line += ": " + snippet
	}
	return line
}

func pending(t Turn) []Block {
	r, next := t.Use("aprobaciones_pendientes", func(Tool) any { return object{} })
	switch {
	case next != nil:
		return next
	case r.Missing:
		return []Block{Text(t.say("Eso no se puede ver desde aquí.", "That cannot be seen from here."))}
	case r.Failed():
		return []Block{Text(t.failed(r))}
	}
	var lines []string
	for _, list := range r.lists() {
		for _, item := range list {
			o, _ := item.(object)
			line := strings.Trim(first(o, "code")+" · "+first(o, "summary", "title", "tool"), " ·")
			if mine, told := o["mine"].(bool); told && mine {
				line += t.say(", lo pediste tú", ", asked for by you")
			} else if told {
				line += t.say(", lo puedes decidir tú", ", for you to decide")
			}
			if line != "" {
				lines = append(lines, "- "+line)
			}
		}
	}
	switch {
	case len(lines) > 0:
		return []Block{Text(t.say("Esto está pendiente:", "This is waiting:") + "\n" + strings.Join(lines, "\n"))}
	case r.JSON == nil && r.Sentence() != "":
		return []Block{Text(r.Sentence())}
	}
	return []Block{Text(t.say("No hay nada pendiente.", "Nothing is waiting."))}
}

func findNotes(t Turn) []Block {
	f := fold(t.Text)
	title := f.group(notesBefore, 1)
	if title == "" {
		title = f.group(notesWords, 1)
	}
	if title == "" {
		return []Block{Text(t.say("¿Qué busco en tus notas?", "What shall I look for in your notes?"))}
	}
	title = strings.Trim(title, `"'«»“” `)
	r, next := t.do("notion", "notion-search", func(Tool) any { return object{"title": title} })
	if next != nil {
		return next
	}
	var lines []string
	for _, o := range r.objects("id") {
		name := pageTitle(o)
		if name == "" {
			continue
		}
		line := "- " + name
		if url := first(o, "url"); url != "" {
			line += ": " + url
		}
		lines = append(lines, line)
	}
	if len(lines) == 0 {
		return []Block{Text(fmt.Sprintf(t.say("No encontré «%s» en tus notas.", "I did not find «%s» in your notes."), title))}
	}
	return []Block{Text(t.say("Esto encontré en tus notas:", "This is what I found in your notes:") + "\n" + strings.Join(lines, "\n"))}
}

// pageTitle reads a Notion page's title: a plain field, or the rich text of its title property.
func pageTitle(o object) string {
	if name := first(o, "title", "name"); name != "" {
		return name
	}
	for _, found := range (Result{JSON: any(o)}).objects("plain_text") {
		return first(found, "plain_text")
	}
	return ""
}
