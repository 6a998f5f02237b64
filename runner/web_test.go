package runner_test

import (
	"context"
	"encoding/json"
	"net"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pilder/runner"
	"pilder/store"
)

// TestTheWebIsThereOnlyWhereItIsServed: door, variables, tools and prompt agree.
func TestTheWebIsThereOnlyWhereItIsServed(t *testing.T) {
	const (
		plain = "--tools=Bash,Read,Skill,ToolSearch"
		proxy = "http://127.0.0.1:7002"
	)
	serve := func(cfg *runner.Config) {
		cfg.WebNames = []string{"example.com", "*.gob.ar"}
		cfg.ServeWeb = func(ctx context.Context, _ store.Run, l net.Listener) error { return serveText(ctx, l, "web", nil) }
	}
	for claim, c := range map[string]struct {
		change func(*runner.Config)
		want   []string // tools, three variables, who answers at the door, what the prompt says
	}{
		"off": {nil, []string{plain, "", "", "", "nobody",
			"No tienes acceso a la web: ni buscas en ella ni abres páginas. Si hace falta algo de ahí, dilo.\n"}},
		"on": {serve, []string{plain + ",WebFetch", proxy, proxy, "127.0.0.1", "web",
			"De la web puedes abrir solo páginas https de estos sitios (WebFetch, o curl desde Bash): example.com, *.gob.ar. Si hace falta otra, dilo.\n"}},
		"search alone": {func(cfg *runner.Config) { cfg.Search = true }, []string{plain + ",WebSearch", "", "", "", "nobody",
			"De la web tienes solo la búsqueda (WebSearch): no abres páginas. Si hace falta abrir una, dilo.\n"}},
		"both": {func(cfg *runner.Config) { cfg.Search = true; serve(cfg) }, []string{plain + ",WebFetch,WebSearch", proxy, proxy, "127.0.0.1", "web",
			"Puedes buscar en la web (WebSearch). De la web puedes abrir solo páginas https de estos sitios (WebFetch, o curl desde Bash): example.com, *.gob.ar. Si hace falta otra, dilo.\n"}},
	} {
		t.Run(claim, func(t *testing.T) {
			o := newOffice(t, "knocks at the web door", c.change)
			o.work()
			o.write("hello")
			var told []string
			if err := json.Unmarshal([]byte(o.read(1)[0].Text), &told); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, told); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			o.clean()
		})
	}
}
