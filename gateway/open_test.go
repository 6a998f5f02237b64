package gateway_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"pilder/gateway"
	"pilder/policy"
)

func TestAnOpenAppNeedsNoAccountAndIsJudgedAsAnApp(t *testing.T) {
	w := onSQLite(t)
	w.cfg.Open = func(c policy.CompanyID) []gateway.App {
		if c != w.member.Company.ID {
			return nil
		}
		return []gateway.App{{Slug: "asana", Name: named("Asana")}}
	}
	w.build(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	agent := w.agent(t, run, addr, "", nil)
	if got := call(t, agent, "asana-search", `{}`); got.IsError {
		t.Errorf("called: %+v", got)
	}
	rows := w.rows(t, run.ID)
	if len(rows) != 1 || rows[0].Tool != "asana-search" || rows[0].Decision != policy.Allow {
		t.Errorf("rows %+v", rows)
	}
	if b, err := w.Background(t.Context(), run.Principal.Company, run.ID); err != nil || !slices.Contains(b.Taint, "asana") {
		t.Errorf("its words leave no taint: %+v %v", b, err)
	}
}

func TestAListThatChangesByItselfReachesTheAgentInMidRun(t *testing.T) {
	w := onSQLite(t)
	var changes atomic.Uint64
	w.cfg.Changes = changes.Load
	w.build(t)
	run, _ := w.run(t)
	addr, _ := w.door(t, run)
	told := make(chan struct{}, 10)
	agent := w.agent(t, run, addr, "", &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { told <- struct{}{} }})
	w.app.mu.Lock()
	w.app.tools["gmail"] = w.app.tools["gmail"][:1:1]
	fresh := w.app.tools["google_calendar"][0]
	fresh.Name, fresh.InputSchema = "gmail-new", json.RawMessage(`{"type":"object"}`)
	w.app.tools["gmail"] = append(w.app.tools["gmail"], fresh)
	w.app.mu.Unlock()
	changes.Add(1)
	next(t, told)
	listed := need(agent.ListTools(t.Context(), nil))(t)
	if !slices.ContainsFunc(listed.Tools, func(tool *mcp.Tool) bool { return tool.Name == "gmail-new" }) {
		t.Error("the new tool is not listed")
	}
}
