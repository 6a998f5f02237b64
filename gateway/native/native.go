// Package native is the connector of the house's own tools: sending mail, seeing what waits for approval, asking for an
// app's connect link. It refuses to know the provider of connected apps: mail goes out by a function that cmd hands over,
// and a connect link goes to its person's own chat, never to the agent.
package native

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// The names of the tools, promised to prompts and policies.
const (
	toolMail     = "correo_enviar"
	toolPending  = "aprobaciones_pendientes"
	toolConnect  = "conectar_app"
	mailApp      = "gmail" // the only mail app there is
	connector    = "native"
	statusOK     = "ok"
	maxRecipient = 50
)

// ErrUnknownTool is returned for a call of a tool that is not the house's.
var ErrUnknownTool = errors.New("not a house tool")

// Config hands over what the house tools act through. Every function is required.
type Config struct {
	// Apps are the apps that can be connected, in the order in which they are offered.
	Apps []gateway.App
	// Send performs one mail through the caller's mail app, once; its result is the app's.
	Send func(context.Context, gateway.Call, Mail) (gateway.Result, error)
	// Pending lists the approvals a principal asked for or may decide.
	Pending func(context.Context, policy.Principal) ([]store.Approval, error)
	// Link sends the caller a connect link for an app, in the caller's own private chat.
	Link func(ctx context.Context, c gateway.Caller, app string) error
}

// Mail is one mail to send, as the agent wrote it and policy saw it.
type Mail struct {
	To      []string `json:"para"`
	CC      []string `json:"cc"`
	BCC     []string `json:"cco"`
	Subject string   `json:"asunto"`
	Body    string   `json:"cuerpo"`
}

// Connector is the house's own source of tools.
type Connector struct{ cfg Config }

// New makes the connector.
func New(cfg Config) (*Connector, error) {
	if cfg.Send == nil || cfg.Pending == nil || cfg.Link == nil {
		return nil, errors.New("native config: Send, Pending and Link are required")
	}
	return &Connector{cfg}, nil
}

// Tools gives the house tools that can do something for the caller: mail needs a connected mail app, connecting needs an
// app that is not connected yet.
func (n *Connector) Tools(_ context.Context, c gateway.Caller) ([]gateway.Tool, error) {
	tools := []gateway.Tool{pendingTool(c.Lang)}
	if slices.Contains(c.Apps, mailApp) {
		tools = append(tools, mailTool(c.Lang))
	}
	if offered := n.offered(c); len(offered) > 0 {
		tools = append(tools, connectTool(c.Lang, offered))
	}
	return tools, nil
}

// Check finds nothing: what the house tools need is known when they are listed.
func (n *Connector) Check(context.Context, gateway.Call) *gateway.Result { return nil }

// Call performs one house tool.
func (n *Connector) Call(ctx context.Context, c gateway.Call) (gateway.Result, error) {
	switch c.Tool {
	case toolMail:
		var m Mail
		if err := json.Unmarshal(c.Args, &m); err != nil {
			return gateway.Result{}, fmt.Errorf("reading mail: %w", err)
		}
		return n.cfg.Send(ctx, c, m)
	case toolPending:
		return n.pending(ctx, c.Caller)
	case toolConnect:
		return n.connect(ctx, c)
	default:
		return gateway.Result{}, fmt.Errorf("calling %.64q: %w", c.Tool, ErrUnknownTool)
	}
}

func (n *Connector) offered(c gateway.Caller) []gateway.App {
	var apps []gateway.App
	for _, a := range n.cfg.Apps {
		if !slices.Contains(c.Apps, a.Slug) {
			apps = append(apps, a)
		}
	}
	return apps
}

// waiting is one line of aprobaciones_pendientes. Arguments are not in it: an approver may not be meant to have them in an
// agent's context, and they are on the card.
type waiting struct {
	Code    string `json:"code"`
	Kind    string `json:"kind"`
	Tool    string `json:"tool"`
	Asked   string `json:"asked"`
	Expires string `json:"expires"`
	Mine    bool   `json:"mine"` // asked for by the caller; otherwise the caller may decide it
	// Decides are the names of those who may decide it, so that the person can ask them; only of what is their own.
	Decides []string `json:"decides,omitempty"`
}

// maxListed bounds the list; the count says how many there are.
const maxListed = 30

func (n *Connector) pending(ctx context.Context, c gateway.Caller) (gateway.Result, error) {
	approvals, err := n.cfg.Pending(ctx, c.Principal)
	if err != nil {
		return gateway.Result{}, fmt.Errorf("listing approvals: %w", err)
	}
	list := []waiting{}
	message := say("pending.none", c.Lang)
	for i, a := range approvals {
		if i == 0 {
			message = say("pending.some", c.Lang)
		}
		if i == maxListed {
			break
		}
		w := waiting{
			Code: a.Code, Kind: a.Kind.String(), Tool: a.Tool, Mine: a.Requester.ID == c.Principal.Membership,
			Asked: a.Asked.UTC().Format("2006-01-02T15:04Z"), Expires: a.Expires.UTC().Format("2006-01-02T15:04Z"),
		}
		if w.Mine {
			w.Decides = names(a.Deciders)
		}
		list = append(list, w)
		message += fmt.Sprintf("\n- %s · %s · %s", w.Code, w.Tool, say("pending.mine."+fmt.Sprint(w.Mine), c.Lang))
		if len(w.Decides) > 0 {
			message += " · " + say("pending.decides", c.Lang) + " " + strings.Join(w.Decides, ", ")
		}
		message += " · " + w.Asked + " → " + w.Expires
	}
	return result(message, map[string]any{"status": statusOK, "message": message, "count": len(approvals), "approvals": list})
}

// names are a few people's names as an agent may read them: each one short line, since people choose them themselves.
func names(all []string) []string {
	var out []string
	for _, name := range all[:min(len(all), 10)] {
		name = strings.Map(func(r rune) rune {
			if !unicode.IsPrint(r) {
				return ' '
			}
			return r
		}, name)
		if r := []rune(strings.Join(strings.Fields(name), " ")); len(r) > 0 {
			out = append(out, string(r[:min(len(r), 40)]))
		}
	}
	return out
}

func (n *Connector) connect(ctx context.Context, c gateway.Call) (gateway.Result, error) {
	var in struct {
		App string `json:"app"`
	}
	if err := json.Unmarshal(c.Args, &in); err != nil {
		return gateway.Result{}, fmt.Errorf("reading app: %w", err)
	}
	if err := n.cfg.Link(ctx, c.Caller, in.App); err != nil {
		if ctx.Err() != nil {
			return gateway.Result{}, fmt.Errorf("sending link: %w", err)
		}
		return notSent(c.Caller.Lang) // one transaction: a link that was not written was not sent
	}
	message := say("connect.sent", c.Caller.Lang)
	return result(message, map[string]any{"status": statusOK, "message": message, "app": in.App})
}

// notSent says that there is no link; it may be asked for again.
func notSent(lang string) (gateway.Result, error) {
	message := say("connect.failed", lang)
	r, err := result(message, map[string]any{"status": "error", "code": "unavailable", "performed": "no", "retry": "wait", "message": message})
	r.Outcome, r.IsError, r.Code = store.OutcomeFailed, true, "unavailable"
	return r, err
}

func result(message string, structured map[string]any) (gateway.Result, error) {
	raw, err := json.Marshal(structured)
	if err != nil {
		return gateway.Result{}, fmt.Errorf("writing result: %w", err)
	}
	return gateway.Result{Outcome: store.OutcomeDone, Text: message, Structured: raw, Code: "ok"}, nil
}
