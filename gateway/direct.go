package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Calls are answered here, on the bytes that came, and never by the SDK: that would decode and encode every argument and
// result, fix an answer's form before anything is known of it, let a hidden tool be called and answer an unknown one with a
// protocol error, unseen by the audit. The price is that its checks of a request are made here too.

const callMethod = "tools/call"

// refusal is a request that is answered with a JSON-RPC error.
type refusal struct {
	status  int
	code    int
	message string
	data    any
}

// JSON-RPC's own codes.
const (
	codeParse   = -32700
	codeRequest = -32600
	codeParams  = -32602
)

func (f *refusal) write(w http.ResponseWriter, id json.RawMessage) {
	if id == nil {
		id = json.RawMessage("null")
	}
	type fault struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	b, _ := json.Marshal(struct { // texts and numbers only: cannot fail
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   fault           `json:"error"`
	}{"2.0", id, fault{f.code, f.message, f.data}})
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(f.status)
	_, _ = w.Write(b) // a caller that is gone is nobody to tell
}

// serveCall answers one tools/call. session is empty in the modern era and of an old client that keeps none.
func (d *door) serveCall(w http.ResponseWriter, r *http.Request, e envelope, session string) {
	modern := isModern(r)
	c, err := readCall(e.params)
	bad := misfit(r.Header, c, modern)
	switch {
	case e.id == nil:
		bad = &refusal{status: http.StatusBadRequest, code: codeRequest, message: "a call needs an id"}
	case err != nil:
		bad = &refusal{status: http.StatusBadRequest, code: codeParams, message: "invalid params"}
	}
	if bad != nil {
		bad.write(w, e.id)
		return
	}
	if !d.calls.Enter() {
		refuseHTTP(w, http.StatusServiceUnavailable, "closing")
		return
	}
	defer d.calls.Leave()

	ctx := r.Context()
	if !modern { // there a lost connection takes nothing back
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	one := &flight{cancel: cancel}
	if !modern {
		key := flightKey{session, string(e.id)}
		if !d.flights.begin(key, one) {
			(&refusal{status: http.StatusBadRequest, code: codeRequest, message: "a call with this id is under way"}).write(w, e.id)
			return
		}
		defer d.flights.end(key, one)
	}
	d.answer(ctx, w, r, e.id, c, one)
}

// answer performs the call and sends what came of it, unless its caller took it back.
func (d *door) answer(ctx context.Context, w http.ResponseWriter, r *http.Request, id json.RawMessage, c toolCall, one *flight) {
	reply := &reply{w: w, id: id, token: c.meta.token, beat: d.g.cfg.Heartbeat}
	if isModern(r) {
		reply.modern = d.modern
	}
	reply.start()
	wanted := wish{tool: c.name, args: c.args}
	if c.meta.token != nil {
		wanted.progress = reply.progress
	}
	result := d.g.call(ctx, d.access.Load(), wanted)
	switch {
	case result.Code == codeRunOver && !reply.end() && !d.admitsRun(w, r):
	case one.back.Load():
		reply.drop()
	default:
		reply.finish(result)
	}
}

// misfit tells what is wrong with a call beside its arguments: in the modern era the headers must say what the body says,
// since what stands between may have decided by them.
func misfit(h http.Header, c toolCall, modern bool) *refusal {
	version := h.Get(versionHeader)
	if !modern {
		if c.meta.version == "" {
			return nil
		}
		if version == "" {
			return unsupported(c.meta.version, func(v string) bool { return v < modernRevision })
		}
	}
	mismatch := func(message string) *refusal {
		return &refusal{status: http.StatusBadRequest, code: mcp.CodeHeaderMismatch, message: message}
	}
	switch {
	case c.meta.version == "":
		return &refusal{status: http.StatusBadRequest, code: codeParams, message: "missing _meta field " + mcp.MetaKeyProtocolVersion}
	case version != c.meta.version:
		return mismatch("MCP-Protocol-Version does not match the body")
	case !modern:
		return unsupported(c.meta.version, func(v string) bool { return v < modernRevision })
	case h.Get("Mcp-Method") != callMethod:
		return mismatch("Mcp-Method is missing or does not match the body")
	case h.Get("Mcp-Name") == "" || h.Get("Mcp-Name") != c.name:
		return mismatch("Mcp-Name is missing or does not match the body")
	case !c.meta.capabilities || c.meta.badClient:
		return &refusal{status: http.StatusBadRequest, code: codeParams, message: "missing or invalid _meta field " + mcp.MetaKeyClientCapabilities + " or " + mcp.MetaKeyClientInfo}
	case !slices.Contains(mcp.SupportedProtocolVersions(), version):
		return unsupported(version, func(string) bool { return true })
	}
	return nil
}

func unsupported(version string, served func(string) bool) *refusal {
	all := mcp.SupportedProtocolVersions()
	return &refusal{
		status: http.StatusBadRequest, code: mcp.CodeUnsupportedProtocolVersion, message: "unsupported protocol version",
		data: mcp.UnsupportedProtocolVersionData{Supported: slices.DeleteFunc(all, func(v string) bool { return !served(v) }), Requested: version},
	}
}
