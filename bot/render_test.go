package bot_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-telegram/bot/models"
	"github.com/google/go-cmp/cmp"

	"pilder/bot"
	"pilder/sim/telegram"
	"pilder/store"
)

func entity(kind models.MessageEntityType, offset, length int) models.MessageEntity {
	return models.MessageEntity{Type: kind, Offset: offset, Length: length}
}

func TestMarkdownBecomesTextWithEntities(t *testing.T) {
	tests := []struct {
		name, in string
		want     bot.Part
	}{
		{"bold and italic", "**hola** y *adiós*", bot.Part{Text: "hola y adiós", Entities: []models.MessageEntity{entity("bold", 0, 4), entity("italic", 7, 5)}}},
		{"C34: an entity behind an emoji counts UTF-16 units", "👩‍👩‍👧 **sí**", bot.Part{Text: "👩‍👩‍👧 sí", Entities: []models.MessageEntity{entity("bold", 9, 2)}}},
		{"a heading is a bold line", "# Uno **dos**\n\ntres", bot.Part{Text: "Uno dos\n\ntres", Entities: []models.MessageEntity{entity("bold", 0, 7)}}},
		{"C26: a list of bold items", "* **uno**\n* dos", bot.Part{Text: "• uno\n• dos", Entities: []models.MessageEntity{entity("bold", 2, 3)}}},
		{"C26: a lone underscore stays", "un _ suelto y snake_case_name", bot.Part{Text: "un _ suelto y snake_case_name"}},
		{"C26: html is literal", "<p>hola</p>\n\n<b>x</b> <tg-button>no</tg-button>", bot.Part{Text: "<p>hola</p>\n\n<b>x</b> <tg-button>no</tg-button>"}},
		{"C26: text escaped for another renderer", `1\. uno \- dos \(tres\)`, bot.Part{Text: "1. uno - dos (tres)"}},
		{"C29: a file name is code", "mira README.md y backup.sh, no main.go", bot.Part{Text: "mira README.md y backup.sh, no main.go",
			Entities: []models.MessageEntity{entity("code", 5, 9), entity("code", 17, 9)}}},
		{"C29: an address of numbers is code", "en 1.2.3.4.", bot.Part{Text: "en 1.2.3.4.", Entities: []models.MessageEntity{entity("code", 3, 7)}}},
		{"C29: a path on a host is no file name", "github.com/x/README.md", bot.Part{Text: "github.com/x/README.md"}},
		{"C30: a relative link loses its target and keeps its words", "ver [aquí](docs/a.html)", bot.Part{Text: "ver aquí"}},
		{"C30: a script is no link", "[x](javascript:alert(1)) [y](tg://user?id=5)", bot.Part{Text: "x y"}},
		{"a web link", "[aquí](https://example.com/a)", bot.Part{Text: "aquí (example.com)", Entities: []models.MessageEntity{{Type: "text_link", Offset: 0, Length: 4, URL: "https://example.com/a"}}}},
		{"a link that names another place is shown with the true one", "[https://banco.com](https://malo.com/x)", bot.Part{Text: "https://banco.com (https://malo.com/x)"}},
		{"so is a bare name", "[banco.com](https://malo.com/x)", bot.Part{Text: "banco.com (https://malo.com/x)"}},
		{"C31: ordered list, nested list, text after", "3. uno\n   - a\n   - b\n4. dos\n\nfin", bot.Part{Text: "3. uno\n  • a\n  • b\n4. dos\n\nfin"}},
		{"C31: a list followed by code", "- uno\n\n```go\nx := 1\n```", bot.Part{Text: "• uno\n\nx := 1", Entities: []models.MessageEntity{{Type: "pre", Offset: 7, Length: 6, Language: "go"}}}},
		{"C31: a table is aligned text", "| a | bb |\n|---|---|\n| ccc | d |", bot.Part{Text: "a   │ bb\n────┼───\nccc │ d", Entities: []models.MessageEntity{entity("pre", 0, 25)}}},
		{"task items", "- [ ] uno\n- [x] dos", bot.Part{Text: "• ☐ uno\n• ☑ dos"}},
		{"a quote", "> uno\n> dos\n\ntres", bot.Part{Text: "uno\ndos\n\ntres", Entities: []models.MessageEntity{entity("blockquote", 0, 7)}}},
		{"bold around code is cut", "**a `b` c**", bot.Part{Text: "a b c", Entities: []models.MessageEntity{entity("bold", 0, 2), entity("code", 2, 1), entity("bold", 3, 2)}}},
		{"code in a link drops the link", "[`x`](https://example.com)", bot.Part{Text: "x (example.com)", Entities: []models.MessageEntity{entity("code", 0, 1)}}},
		{"character references", "a &amp; b &lt;c&gt; \\&amp;", bot.Part{Text: "a & b <c> &amp;"}},
		{"strike and rule", "~~no~~\n\n---\n\nsí", bot.Part{Text: "no\n\n———\n\nsí", Entities: []models.MessageEntity{entity("strikethrough", 0, 2)}}},
		{"an image is its words", "![gráfico](https://example.com/a.png)", bot.Part{Text: "gráfico (example.com)", Entities: []models.MessageEntity{{Type: "text_link", Offset: 0, Length: 7, URL: "https://example.com/a.png"}}}},
		{"direction overrides and controls go", "a\u202eb\u0000c\u0007\r\nd", bot.Part{Text: "abc\nd"}},
		{"nothing but space is nothing", " \n\t\n", bot.Part{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := bot.Render(tt.in)
			if got.Entities != nil && len(got.Entities) == 0 {
				got.Entities = nil
			}
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			check(t, tt.in, got)
		})
	}
}

// check applies Telegram's rules for text and entities (facts of the server: code points, UTF-16 offsets, nothing inside code).
func check(t *testing.T, source string, p bot.Part) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s\nsource %q\ntext %q\nentities %+v", fmt.Sprintf(format, args...), source, p.Text, p.Entities)
	}
	if !utf8.ValidString(p.Text) {
		fail("text is no UTF-8")
	}
	u := utf16.Encode([]rune(p.Text))
	if len(p.Entities) > 100 && len(u) <= 4096 {
		return // an unsplit text may have more; parts may not, see checkParts
	}
	half := func(i int) bool { return i > 0 && i < len(u) && u[i] >= 0xDC00 && u[i] <= 0xDFFF }
	for i, e := range p.Entities {
		if e.Length <= 0 || e.Offset < 0 || e.Offset+e.Length > len(u) || half(e.Offset) || half(e.Offset+e.Length) {
			fail("entity %d does not fit", i)
		}
		for j, o := range p.Entities {
			if i == j {
				continue
			}
			meet := e.Offset < o.Offset+o.Length && o.Offset < e.Offset+e.Length
			within := o.Offset >= e.Offset && o.Offset+o.Length <= e.Offset+e.Length || e.Offset >= o.Offset && e.Offset+e.Length <= o.Offset+o.Length
			if meet && (e.Type == "code" || e.Type == "pre") && o.Type != "blockquote" {
				fail("code %d holds %d", i, j)
			}
			if meet && !within {
				fail("%d and %d cross", i, j)
			}
		}
		if e.Type == "text_link" && !strings.HasPrefix(e.URL, "http") {
			fail("link %d leads to %q", i, e.URL)
		}
	}
}

func checkParts(t *testing.T, source string, whole bot.Part, parts []bot.Part, limit int) {
	t.Helper()
	var joined strings.Builder
	for _, p := range parts {
		check(t, source, p)
		if n := bot.Units(p.Text); n > max(limit, 2) || n == 0 {
			t.Fatalf("a part of %d units with limit %d\nsource %q", n, limit, source)
		}
		if strings.TrimSpace(p.Text) != p.Text {
			t.Fatalf("a part has space at its ends: %q", p.Text)
		}
		if len(p.Entities) > 100 {
			t.Fatalf("a part has %d entities", len(p.Entities))
		}
		joined.WriteString(p.Text)
	}
	if bare(joined.String()) != bare(whole.Text) {
		t.Fatalf("the parts are not the text\nlimit %d\nsource %q", limit, source)
	}
}

func bare(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.In(r, unicode.Cf, unicode.Variation_Selector) || r == 0x2800 || r == 0x3164 || r == 0x115F || r == 0x1160 || r == 0xFFA0 {
			return -1 // a part of nothing else is left out
		}
		return r
	}, s)
}

// pieces of GFM and of Unicode that have hurt somebody.
func pieces() []string {
	return []string{"**", "*", "_", "__", "~~", "`", "```\n", "```go\n", "\n", "\n\n", "# ", "## ", "> ", "- ", "1. ", "  - ", "- [ ] ", "- [x] ",
		"| a | b |\n|---|---|\n| c | d |\n", "[x](https://example.com/a?b=c)", "[y](relative.md)", "![z](https://e.org/i.png)", "<p>", "<!-- c -->",
		"&amp;", "\\*", "\\", "---\n", "README.md", "1.2.3.4", "palabra", "frase larga. Otra frase! ¿Y otra? ", "👍", "👩‍👩‍👧‍👦", "🇪🇸", "e\u0301",
		"\u202e", "\u200b", "漢字", "العربية", "𝔘", "\u0000", "\xff", "    código\n", "http://a.b", "a@b.co", "[^1]", "$x$", "\t", "  \n", "🏽", "\u200d", "\ufe0f", "│"}
}

func random(r *rand.Rand) string {
	all := pieces()
	var b strings.Builder
	for range r.IntN(120) {
		switch r.IntN(8) {
		case 0:
			b.WriteRune(rune(r.IntN(0x11000)))
		case 1:
			b.WriteString(strings.Repeat(all[r.IntN(len(all))], r.IntN(30)))
		default:
			b.WriteString(all[r.IntN(len(all))])
		}
	}
	return b.String()
}

func TestAnyMarkdownRendersToWhatTelegramTakes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 700 {
		src := random(r)
		whole := bot.Render(src)
		check(t, src, whole)
		for _, limit := range []int{4096, 200, 33, 5, 1, 0, -7} {
			checkParts(t, src, whole, bot.Split(whole, limit), limit)
		}
	}
}

func TestC32LongAnswersKeepEveryCharacterAndTheirCode(t *testing.T) {
	var b strings.Builder
	for i := range 900 {
		fmt.Fprintf(&b, "línea %d con 👍🏽 y «símbolos» <&> _*[]()\n", i)
	}
	src := "Antes\n\n```python\n" + b.String() + "```\n\nDespués"
	whole := bot.Render(src)
	parts := bot.Split(whole, 4096)
	checkParts(t, src, whole, parts, 4096)
	if len(parts) < 5 {
		t.Fatalf("%d parts", len(parts))
	}
	for i, p := range parts[1 : len(parts)-1] {
		if len(p.Entities) != 1 || p.Entities[0].Type != "pre" || p.Entities[0].Language != "python" || p.Entities[0].Length != bot.Units(p.Text) {
			t.Errorf("part %d is not code throughout: %+v", i+1, p.Entities)
		}
	}
}

func TestC35CutsNeverSplitACharacter(t *testing.T) {
	for _, s := range []string{"👩‍👩‍👧‍👦", "🇪🇸", "👍🏽", "e\u0301\u0302", "𝔘"} {
		whole := bot.Part{Text: strings.Repeat(s, 50)}
		for limit := bot.Units(s); limit < 3*bot.Units(s); limit++ {
			parts := bot.Split(whole, limit)
			checkParts(t, s, whole, parts, limit)
			if s == "🇪🇸" {
				continue // a row of flags has no boundaries to be seen without counting from its start
			}
			for _, p := range parts {
				if p.Text != strings.Repeat(s, strings.Count(p.Text, s)) {
					t.Fatalf("limit %d cuts %q: %q", limit, s, p.Text)
				}
			}
		}
	}
}

func TestManyStylesGiveWayToCodeAndLinks(t *testing.T) {
	src := strings.Repeat("**a** *b* ", 80) + "`code` [l](https://example.com/x)"
	parts := bot.Split(bot.Render(src), 4096)
	checkParts(t, src, bot.Render(src), parts, 4096)
	kinds := map[models.MessageEntityType]int{}
	for _, e := range parts[0].Entities {
		kinds[e.Type]++
	}
	if kinds["code"] != 1 || kinds["text_link"] != 1 || len(parts[0].Entities) != 100 {
		t.Errorf("entities kept: %v", kinds)
	}
}

func TestHostileMarkdownIsRenderedInTime(t *testing.T) {
	for name, src := range map[string]string{
		"quotes": strings.Repeat(">", 40_000) + "x", "brackets": strings.Repeat("[", 40_000), "stars": strings.Repeat("*a_", 13_000),
		"lists": strings.Repeat("- ", 20_000), "ticks": strings.Repeat("`", 40_000), "one line": strings.Repeat("x", 40_000),
		"nested lists": func() string {
			var b strings.Builder
			for i := range 250 {
				b.WriteString(strings.Repeat("  ", i) + "- x\n")
			}
			return b.String()
		}(),
		"links": strings.Repeat("[a](", 10_000), "tables": "|" + strings.Repeat("a|", 5000) + "\n|" + strings.Repeat("-|", 5000) + "\n" + strings.Repeat("|b\n", 1000),
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan bot.Part, 1)
			go func() { done <- bot.Render(src) }()
			select {
			case p := <-done:
				check(t, name, p)
			case <-time.After(60 * time.Second):
				t.Fatal("still rendering")
			}
		})
	}
}

func TestSecretsNeverGoOut(t *testing.T) {
	for _, s := range []string{
		"eyJhbGciOiJIUzI1NiIsImtpZCI6ImsxIn0.eyJydW4iOiJydW5fMSJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ",
		"sk-ant-api03-abcdefghijklmnop", "pk-" + strings.Repeat("A", 43), "pk-" + strings.Repeat("b-", 21) + "-",
		"123456789:AAabcdefghijklmnopqrstuvwxyz0123456",
	} {
		got, n := bot.Redact("antes " + s + " después")
		if n != 1 || strings.Contains(got, s) || bot.Units(got) != bot.Units("antes "+s+" después") {
			t.Errorf("%q became %q (%d found)", s, got, n)
		}
	}
	for _, s := range []string{"https://docs.google.com/document/d/1AbCdEfGhIjKlMnOpQrStUvWxYz0123456789ABCDEFG/edit", "reunión a las 10:30", "run_abc", "eyJ",
		"https://example.com/blog/this-is-a-very-long-title-of-an-article-about-nothing-at-all-that-goes-on"} {
		if got, n := bot.Redact(s); n != 0 {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestWhoWaitsHearsHowManyAreBefore(t *testing.T) {
	b, err := bot.New(bot.Config{Token: store.NewSecret(telegram.DefaultToken)}, nil)
	must(t, err)
	for _, tc := range []struct {
		lang  string
		ahead int
		want  string
	}{
		{"es", 0, "tu petición es la siguiente"},
		{"es", 1, "Hay una petición antes que la tuya"},
		{"es", 3, "Hay 3 peticiones antes que la tuya"},
		{"en", 0, "your request is next"},
		{"en", 1, "There is one request before yours"},
		{"en", 12, "There are 12 requests before yours"},
	} {
		m := store.Membership{Company: store.Company{ID: "com_1"}, Person: store.Person{Lang: tc.lang}}
		d := bot.WaitingNotice(m, store.Chat{ID: 5, Topic: 6}, "con_1", tc.ahead)
		if got := b.Say(d.Lang, d.Notice, d.Args); !strings.Contains(got, tc.want) {
			t.Errorf("%s, %d: %q", tc.lang, tc.ahead, got)
		}
		if d.Company != "com_1" || d.Conversation != "con_1" || d.Chat != (store.Chat{ID: 5, Topic: 6}) || d.Priority != 0 {
			t.Errorf("%+v", d)
		}
	}
}

func TestCataloguesSayTheSameInBothLanguages(t *testing.T) {
	all, err := bot.Catalogues()
	if err != nil {
		t.Fatal(err)
	}
	for key, es := range all["es"] {
		en, ok := all["en"][key]
		if !ok || strings.TrimSpace(en) == "" || strings.TrimSpace(es) == "" {
			t.Errorf("%s: es %q, en %q", key, es, en)
		}
		if d := cmp.Diff(holes(es), holes(en)); d != "" {
			t.Errorf("%s has other placeholders: %s", key, d)
		}
	}
	for key := range all["en"] {
		if _, ok := all["es"][key]; !ok {
			t.Errorf("%s is missing in Spanish", key)
		}
	}
	for _, key := range []string{"run.failed", "run.busy", "run.timed_out", "run.interrupted", "run.restarted", "run.failed_twice",
		"run.context_lost", "run.empty", "run.too_long", "run.not_ready", "run.busy_minutes", "run.busy_hours",
		"run.memory", "run.disk", "run.budget", "run.cut", "call.unknown"} {
		if all["es"][key] == "" {
			t.Errorf("%s is promised to others and missing", key)
		}
	}
	for _, key := range []string{"run.failed", "run.busy", "run.timed_out", "run.interrupted", "run.too_long", "run.not_ready",
		"run.busy_minutes", "run.busy_hours", "run.memory", "run.disk", "run.budget", "run.cut"} {
		if !strings.HasSuffix(all["es"][key], "{done}") {
			t.Errorf("%s asks to try again and does not tell what was done", key)
		}
	}
	for _, lang := range []string{"es", "en"} {
		for key, text := range all[lang] {
			if word := technical.FindString(text); word != "" {
				t.Errorf("%s/%s speaks technically (%s): %q", lang, key, word, text)
			}
		}
	}
}

var technical = regexp.MustCompile(`(?i)\b(mcp|servidor|server|tokens?|sandbox|errors?|script|api|json|timeout|url|id)\b`)

func holes(s string) []string {
	var out []string
	for rest := s; ; {
		i := strings.IndexByte(rest, '{')
		if i < 0 {
			slices.Sort(out)
			return slices.Compact(out)
		}
		rest = rest[i:]
		j := strings.IndexByte(rest, '}')
		out = append(out, rest[:j+1])
		rest = rest[j:]
	}
}
