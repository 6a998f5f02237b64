package native

import (
	"encoding/json"
	"fmt"
	"strings"

	"pilder/gateway"
	"pilder/policy"
)

// words are the titles, descriptions and answers of the house tools.
func words() map[string]policy.Text {
	return map[string]policy.Text{
		"mail.title": {ES: "Enviar un correo", EN: "Send a mail"},
		"mail.text": {
			ES: "Envía un correo desde la cuenta de la persona. Es la única forma de enviar correo. Puede quedar pendiente de su confirmación o de una aprobación: entonces no se ha enviado y no hay que repetirlo.",
			EN: "Sends a mail from the person's own account. It is the only way to send mail. It may wait for their confirmation or for an approval: then it was not sent and must not be repeated.",
		},
		"mail.para":   {ES: "Direcciones de los destinatarios, una por elemento", EN: "Addresses of the recipients, one per item"},
		"mail.cc":     {ES: "Direcciones en copia", EN: "Addresses in copy"},
		"mail.cco":    {ES: "Direcciones en copia oculta", EN: "Addresses in blind copy"},
		"mail.asunto": {ES: "Asunto", EN: "Subject"},
		"mail.cuerpo": {ES: "Cuerpo del correo, texto sin formato", EN: "Body of the mail, plain text"},

		"pending.title": {ES: "Ver lo que espera aprobación", EN: "See what waits for approval"},
		"pending.text": {
			ES: "Lista lo que esta persona pidió y sigue pendiente, y lo que puede aprobar. Aprobar o rechazar se hace con los botones del chat, nunca desde aquí.",
			EN: "Lists what this person asked for and still waits, and what they may approve. Approving and declining is done with the buttons in the chat, never from here.",
		},
		"pending.none":       {ES: "No hay nada pendiente.", EN: "Nothing is waiting."},
		"pending.some":       {ES: "Pendiente:", EN: "Waiting:"},
		"pending.mine.true":  {ES: "lo pidió esta persona", EN: "asked for by this person"},
		"pending.decides":    {ES: "decide:", EN: "decided by:"},
		"pending.mine.false": {ES: "lo puede decidir esta persona", EN: "this person may decide it"},

		"connect.title": {ES: "Conectar una app", EN: "Connect an app"},
		"connect.text": {
			ES: "Manda a la persona, a su chat privado, un enlace para conectar una app que todavía no tiene conectada.",
			EN: "Sends the person, in their private chat, a link for connecting an app that is not connected yet.",
		},
		"connect.app":    {ES: "La app", EN: "The app"},
		"connect.failed": {ES: "Ahora no se pudo mandar el enlace. Prueba más tarde.", EN: "The link could not be sent right now. Try later."},
		"connect.sent":   {ES: "El enlace para conectarla se envió al chat privado de la persona. Cuando la conecte, lo que pidió sigue solo: no hace falta que lo repita.", EN: "The link for connecting it was sent to the person's private chat. Once they connect it, what they asked for goes on by itself: they need not repeat it."},
	}
}

func say(key, lang string) string { return words()[key].In(lang) }

// object is a closed JSON Schema object; properties keep no order, which no client minds.
func object(required []string, properties map[string]any) json.RawMessage {
	raw, err := json.Marshal(map[string]any{"type": "object", "additionalProperties": false, "required": required, "properties": properties})
	if err != nil {
		panic(fmt.Sprintf("schema of a house tool: %v", err)) // built from constants alone
	}
	return raw
}

// output describes a house tool's answer. It is open and asks for no more than a status: refusals and pending answers
// come under the same schema.
func output(properties map[string]any) json.RawMessage {
	properties["status"] = map[string]any{"type": "string", "enum": []string{"ok", "pending", "error"}}
	properties["message"] = map[string]any{"type": "string"}
	raw, err := json.Marshal(map[string]any{"type": "object", "required": []string{"status"}, "properties": properties})
	if err != nil {
		panic(fmt.Sprintf("schema of a house tool: %v", err)) // built from constants alone
	}
	return raw
}

func mailTool(lang string) gateway.Tool {
	addresses := func(key string, least int) map[string]any {
		return map[string]any{
			"type": "array", "minItems": least, "maxItems": maxRecipient, "description": say("mail."+key, lang),
			"items": map[string]any{"type": "string", "minLength": 3, "maxLength": 320, "pattern": `^[^\s,;<>]+@[^\s,;<>]+$`},
		}
	}
	return gateway.Tool{
		Name:        toolMail,
		Title:       say("mail.title", lang),
		Description: say("mail.text", lang),
		App:         gateway.HouseApp,
		Uses:        mailApp,
		Connector:   connector,
		Class:       policy.ClassWrite,
		Scope:       policy.ScopeMailSend,
		InputSchema: object([]string{"para", "asunto", "cuerpo"}, map[string]any{
			"para":   addresses("para", 1),
			"cc":     addresses("cc", 0),
			"cco":    addresses("cco", 0),
			"asunto": map[string]any{"type": "string", "minLength": 1, "maxLength": 300, "pattern": `^[^\r\n]*$`, "description": say("mail.asunto", lang)},
			"cuerpo": map[string]any{"type": "string", "minLength": 1, "maxLength": 40000, "description": say("mail.cuerpo", lang)},
		}),
		OutputSchema: output(map[string]any{}),
		Annotations:  gateway.Annotations{OpenWorld: true},
		AlwaysLoad:   true,
	}
}

func pendingTool(lang string) gateway.Tool {
	text := map[string]any{"type": "string"}
	return gateway.Tool{
		Name:        toolPending,
		Title:       say("pending.title", lang),
		Description: say("pending.text", lang),
		App:         gateway.HouseApp,
		Connector:   connector,
		Class:       policy.ClassRead,
		Scope:       policy.ScopeApprovalsRead,
		InputSchema: object([]string{}, map[string]any{}),
		OutputSchema: output(map[string]any{
			"count": map[string]any{"type": "integer"},
			"approvals": map[string]any{"type": "array", "items": map[string]any{"type": "object", "properties": map[string]any{
				"code": text, "kind": text, "tool": text, "asked": text, "expires": text, "mine": map[string]any{"type": "boolean"},
			}}},
		}),
		Annotations: gateway.Annotations{ReadOnly: true, Idempotent: true},
		AlwaysLoad:  true,
	}
}

func connectTool(lang string, offered []gateway.App) gateway.Tool {
	slugs, names := []string{}, []string{}
	for _, a := range offered {
		slugs = append(slugs, a.Slug)
		names = append(names, a.Slug+" = "+a.Name.In(lang))
	}
	return gateway.Tool{
		Name:        toolConnect,
		Title:       say("connect.title", lang),
		Description: say("connect.text", lang),
		App:         gateway.HouseApp,
		Connector:   connector,
		Class:       policy.ClassWrite,
		Scope:       policy.ScopeAccountsWrite,
		InputSchema: object([]string{"app"}, map[string]any{
			"app": map[string]any{"type": "string", "enum": slugs, "description": say("connect.app", lang) + ": " + strings.Join(names, ", ")},
		}),
		OutputSchema: output(map[string]any{"app": map[string]any{"type": "string"}}),
		Annotations:  gateway.Annotations{},
		AlwaysLoad:   true,
	}
}
