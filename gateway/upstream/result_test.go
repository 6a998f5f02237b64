package upstream_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pilder/gateway"
	"pilder/gateway/upstream"
	"pilder/sim/mcp"
	"pilder/store"
)

// answering is a tool that answers with that result.
func answering(name, result string) mcp.Tool {
	tool := mcp.Simple(name)
	tool.Do = func(mcp.Call, func(float64, float64, string)) string { return result }
	return tool
}

// body is the structured part of a result.
type body struct {
	Status    string
	Message   string
	Data      any
	Truncated bool
	Omitted   []struct{ Total, Shown int }
}

func bodyOf(t *testing.T, r gateway.Result) body {
	t.Helper()
	var b body
	if err := json.Unmarshal(r.Structured, &b); err != nil {
		t.Fatal(err)
	}
	return b
}

func TestG32_StructuredContentIsThereInEveryEraAndForm(t *testing.T) {
	eachEra(t, func(t *testing.T, cfg mcp.Config) {
		w := newWorld(t, mcp.New(cfg, answering("read", `{"content":[{"type":"text","text":"other words"}],"structuredContent":{"n":12345678901234567890,"list":[1,2]}}`)), nil)
		r := w.call(t, "ana", "read", `{}`)
		want := `{"data":{"list":[1,2],"n":12345678901234567890},"message":"This is what is in Notes.","status":"ok","truncated":false}`
		same(t, "structured", want, string(r.Structured))
		same(t, "text", "This is what is in Notes.\n"+`{"list":[1,2],"n":12345678901234567890}`, r.Text)
	})
}

func TestWhatIsNoTextIsDescribedAndNotPassedOn(t *testing.T) {
	picture := strings.Repeat("iVBORw0KGgo", 1000)
	w := newWorld(t, mcp.New(mcp.Config{}, answering("read", fmt.Sprintf(`{"_meta":{"secret":"meta-secret"},"content":[
		{"type":"text","text":"a\u202eb\nc","_meta":{"secret":"meta-secret"}},
		{"type":"text","text":"{\"a\": [1]}"},
		{"type":"image","data":%q,"mimeType":"image/png"},
		{"type":"audio","data":"AAAA","mimeType":"audio/wav"},
		{"type":"resource_link","uri":"notes://1","name":"first"},
		{"type":"resource","resource":{"uri":"notes://2","mimeType":"text/plain","text":"second"}},
		{"type":"resource","resource":{"uri":"notes://3","blob":"AAAAAAAA"}},
		{"type":"hologram"}]}`, picture))), nil)
	r := w.call(t, "ana", "read", `{}`)
	want := asValue(t, `["ab\nc",{"a":[1]},{"type":"image","mime":"image/png","bytes":8250,"passed_on":false},
		{"type":"audio","mime":"audio/wav","bytes":3,"passed_on":false},{"type":"resource_link","uri":"notes://1","name":"first"},
		{"type":"resource","uri":"notes://2","mime":"text/plain","text":"second"},{"type":"resource","uri":"notes://3","bytes":6,"passed_on":false},
		{"type":"other"}]`)
	same(t, "data", want, bodyOf(t, r).Data)
	for _, leak := range []string{"iVBOR", "meta-secret"} {
		if strings.Contains(r.Text+string(r.Structured), leak) {
			t.Errorf("told the model %q", leak)
		}
	}
}

func TestG34_ALongResultIsCutByWholeItemsAndSaysHowMuchIsMissing(t *testing.T) {
	items := make([]map[string]any, 5000)
	for i := range items {
		items[i] = map[string]any{"id": i, "title": fmt.Sprintf("note %d", i), "text": strings.Repeat("word ", 40)}
	}
	list, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Repeat("a line of some words that says something\n", 3000)
	quoted, err := json.Marshal(lines)
	if err != nil {
		t.Fatal(err)
	}
	for claim, result := range map[string]string{
		"a structured list": fmt.Sprintf(`{"structuredContent":{"notes":%s},"content":[]}`, list),
		"a list as text":    mcp.Text(string(list)),
		"lines of text":     fmt.Sprintf(`{"content":[{"type":"text","text":%s}]}`, quoted),
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t, mcp.New(mcp.Config{}, answering("read", result)), func(_ *upstream.Spec, cfg *upstream.Config) { cfg.MaxAnswer = 8 << 20 })
			r := w.call(t, "ana", "read", `{}`)
			if len(r.Structured) > 20_000 || len(r.Text) > 20_000 || len(r.Structured) < 2000 {
				t.Errorf("structured %d bytes, text %d", len(r.Structured), len(r.Text))
			}
			b := bodyOf(t, r)
			if !b.Truncated || len(b.Omitted) == 0 || b.Omitted[0].Shown == 0 || b.Omitted[0].Shown >= b.Omitted[0].Total {
				t.Fatalf("truncated %t, omitted %+v", b.Truncated, b.Omitted)
			}
			told := fmt.Sprintf("(%d of %d are shown; to see the rest, ask for less at a time.)", b.Omitted[0].Shown, b.Omitted[0].Total)
			if !strings.Contains(b.Message, told) || !strings.Contains(r.Text, told) {
				t.Errorf("the model reads %q", b.Message)
			}
			if text, isText := b.Data.(string); isText && !strings.HasSuffix(text, "says something…") {
				t.Errorf("cut within a line: …%s", text[len(text)-30:])
			}
		})
	}
}

func TestAnErrorOfTheUpstreamIsToldWithoutItsInsides(t *testing.T) {
	failure := `{"isError":true,"content":[{"type":"text","text":"The title is too long.\nError: boom\n    at handler (/srv/app/index.js:10:3)\n    at secret-frame"}]}`
	w := newWorld(t, mcp.New(mcp.Config{}, answering("read", failure), answering("write", failure), answering("ask", `{"resultType":"input_required","inputRequests":{}}`)), nil)
	r := w.call(t, "ana", "read", `{}`)
	same(t, "a read", said{Outcome: store.OutcomeFailed, Code: "app_refused", Performed: "no", Retry: "fix"}, saidBy(t, r))
	same(t, "its words", "Notes did not accept it. It was not done.\nThe app says: “The title is too long. Error: boom”", r.Text)
	r = w.call(t, "ana", "write", `{}`)
	same(t, "a write", said{Outcome: store.OutcomeFailed, Code: "app_refused", Performed: "unknown", Retry: "never"}, saidBy(t, r))
	same(t, "asks back", "app_refused", w.call(t, "ana", "ask", `{}`).Code)
}
