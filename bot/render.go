package bot

import (
	"bytes"
	"html"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-telegram/bot/models"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	east "github.com/yuin/goldmark/extension/ast"
	ghtml "github.com/yuin/goldmark/renderer/html"
	gtext "github.com/yuin/goldmark/text"
)

// rich is text with Telegram's entities; their offsets and lengths count UTF-16 units.
type rich struct {
	Text     string
	Entities []models.MessageEntity
	n        int // units of Text
}

// plain is text without entities. Telegram would make one space of a tab, and code its shape with it.
func plain(s string) rich {
	s = strings.ReplaceAll(s, "\t", "    ")
	return rich{Text: s, n: units(s)}
}

// add appends o.
func (r *rich) add(o rich) {
	for _, e := range o.Entities {
		e.Offset += r.n
		r.Entities = append(r.Entities, e)
	}
	r.Text += o.Text
	r.n += o.n
}

func (r *rich) write(s string) { r.add(plain(s)) }

// as covers the whole text with an entity; a text of nothing but space gets none.
func (r rich) as(e models.MessageEntity) rich {
	if strings.TrimSpace(r.Text) == "" {
		return r
	}
	e.Offset, e.Length = 0, r.n
	r.Entities = append([]models.MessageEntity{e}, slices.DeleteFunc(slices.Clone(r.Entities), func(in models.MessageEntity) bool {
		return in.Type == e.Type && e.URL == "" // bold within bold, a quote within a quote
	})...)
	return r
}

func (r rich) styled(t models.MessageEntityType) rich { return r.as(models.MessageEntity{Type: t}) }

// indent puts rest before every line but the first, and first before that.
func (r rich) indent(first, rest string) rich {
	var out rich
	out.write(first)
	add := units(rest)
	shift := func(offset int, end bool) int { // how far a position moves by the prefixes before it
		seen, moved := 0, 0
		for _, c := range r.Text {
			if seen >= offset {
				break
			}
			seen += units(string(c))
			if c == '\n' && !(end && seen >= offset) {
				moved += add
			}
		}
		return moved
	}
	for _, e := range r.Entities {
		from, to := e.Offset+shift(e.Offset, false), e.Offset+e.Length+shift(e.Offset+e.Length, true)
		e.Offset, e.Length = from+out.n, to-from
		out.Entities = append(out.Entities, e)
	}
	text := strings.ReplaceAll(r.Text, "\n", "\n"+rest)
	out.Text += text
	out.n = units(out.Text)
	return out
}

// maxDepth is how deep lists and quotes are followed; below it stands the source. It bounds recursion.
const maxDepth = 12

// render turns the agent's Markdown (GFM) into text with entities. It never fails: what Markdown does not say is text.
func render(markdown string) rich {
	src := []byte(clean(markdown))
	if tangled(string(src)) {
		return trim(plain(string(src)))
	}
	md := goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.TaskList, extension.Linkify))
	w := &walker{src: src}
	out := w.blocks(md.Parser().Parse(gtext.NewReader(src)), "\n\n", 0)
	out = trim(out)
	out.Entities = append(out.Entities, nameCodes(out)...)
	out.Entities = settle(out.Entities)
	return out
}

// tangled tells of text whose parsing costs more than it could be worth: nesting and cells that no answer has, and for which
// goldmark takes seconds. It is shown as it is.
func tangled(src string) bool {
	if strings.Count(src, "[") > 1000 {
		return true
	}
	for line := range strings.Lines(src) {
		if strings.Count(line, "|") > 100 || strings.Count(line[:min(len(line), 200)], ">") > 40 && strings.HasPrefix(strings.TrimLeft(line, " "), ">") {
			return true
		}
	}
	return false
}

type walker struct{ src []byte }

// blocks joins the blocks below n.
func (w *walker) blocks(n ast.Node, sep string, depth int) rich {
	var out rich
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b := w.block(c, depth)
		if strings.TrimSpace(b.Text) == "" {
			continue
		}
		if out.n > 0 {
			out.write(sep)
		}
		out.add(b)
	}
	return out
}

func (w *walker) block(n ast.Node, depth int) rich {
	if depth > maxDepth {
		return plain(w.lines(n))
	}
	switch n := n.(type) {
	case *ast.Heading:
		return w.inlines(n, depth+1).styled(models.MessageEntityTypeBold)
	case *ast.Paragraph, *ast.TextBlock:
		return w.inlines(n, depth+1)
	case *ast.FencedCodeBlock:
		return w.code(n, string(n.Language(w.src)))
	case *ast.CodeBlock:
		return w.code(n, "")
	case *ast.Blockquote:
		return trim(w.blocks(n, "\n\n", depth+1)).styled(models.MessageEntityTypeBlockquote)
	case *ast.List:
		return w.list(n, depth+1)
	case *ast.ThematicBreak:
		return plain("———")
	case *ast.HTMLBlock:
		text := w.lines(n)
		if n.HasClosure() {
			text += string(n.ClosureLine.Value(w.src))
		}
		return plain(strings.TrimRight(text, "\n"))
	case *east.Table:
		return w.table(n)
	}
	if n.Type() == ast.TypeBlock && n.HasChildren() {
		return w.blocks(n, "\n\n", depth+1)
	}
	return plain(w.lines(n))
}

// lines is a block's source.
func (w *walker) lines(n ast.Node) string {
	if n.Type() == ast.TypeInline {
		return w.words(n, 0)
	}
	var b strings.Builder
	lines := n.Lines()
	for i := range lines.Len() {
		s := lines.At(i)
		b.Write(s.Value(w.src))
	}
	if b.Len() == 0 && n.HasChildren() {
		_ = ast.Walk(n, func(c ast.Node, in bool) (ast.WalkStatus, error) {
			if in && c != n && c.Type() == ast.TypeBlock && c.Lines().Len() > 0 {
				for i := range c.Lines().Len() {
					s := c.Lines().At(i)
					b.Write(s.Value(w.src))
				}
				b.WriteByte('\n')
				return ast.WalkSkipChildren, nil
			}
			return ast.WalkContinue, nil
		})
	}
	return strings.TrimRight(b.String(), "\n")
}

func (w *walker) code(n ast.Node, lang string) rich {
	text := strings.Trim(w.lines(n), "\n")
	return plain(text).as(models.MessageEntity{Type: models.MessageEntityTypePre, Language: language32(lang)})
}

var langShape = regexp.MustCompile(`^[A-Za-z0-9+#._-]{1,32}$`)

func language32(lang string) string {
	if !langShape.MatchString(lang) {
		return ""
	}
	return lang
}

func (w *walker) list(l *ast.List, depth int) rich {
	var out rich
	number := l.Start
	for c := l.FirstChild(); c != nil; c = c.NextSibling() {
		marker := "• "
		if l.IsOrdered() {
			marker = strconv.Itoa(number) + string(l.Marker) + " "
			number++
		}
		if out.n > 0 {
			out.write("\n")
			if !l.IsTight {
				out.write("\n")
			}
		}
		out.add(w.item(c, marker, depth))
	}
	return out
}

func (w *walker) item(n ast.Node, marker string, depth int) rich {
	var out rich
	pad := "  "
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		b := w.block(c, depth)
		if strings.TrimSpace(b.Text) == "" {
			continue
		}
		first, rest := pad, pad
		switch c.(type) {
		case *ast.FencedCodeBlock, *ast.CodeBlock, *ast.Blockquote, *east.Table:
			first, rest = "", "" // their look is their own; spaces inside would be copied with code
		}
		if out.n == 0 {
			if first == "" {
				marker += "\n"
			}
			first = marker
		} else {
			out.write("\n")
		}
		out.add(b.indent(first, rest))
	}
	if out.n == 0 {
		out.write(strings.TrimRight(marker, " "))
	}
	return out
}

// words is the text below n without any style.
func (w *walker) words(n ast.Node, depth int) string { return w.inlines(n, depth).Text }

func (w *walker) inlines(n ast.Node, depth int) rich {
	var out rich
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		out.add(w.inline(c, depth))
	}
	return out
}

func (w *walker) inline(n ast.Node, depth int) rich {
	if depth > 4*maxDepth {
		return rich{}
	}
	switch n := n.(type) {
	case *ast.Text:
		out := plain(unescape(n.Segment.Value(w.src), n.IsRaw()))
		if n.SoftLineBreak() || n.HardLineBreak() {
			out.write("\n")
		}
		return out
	case *ast.String:
		return plain(unescape(n.Value, n.IsRaw() || n.IsCode()))
	case *ast.CodeSpan:
		var b strings.Builder
		for c := n.FirstChild(); c != nil; c = c.NextSibling() {
			if t, ok := c.(*ast.Text); ok {
				b.Write(t.Segment.Value(w.src))
			}
		}
		return plain(strings.ReplaceAll(b.String(), "\n", " ")).styled(models.MessageEntityTypeCode)
	case *ast.Emphasis:
		t := models.MessageEntityTypeItalic
		if n.Level >= 2 {
			t = models.MessageEntityTypeBold
		}
		return w.inlines(n, depth+1).styled(t)
	case *east.Strikethrough:
		return w.inlines(n, depth+1).styled(models.MessageEntityTypeStrikethrough)
	case *ast.Link:
		return link(w.inlines(n, depth+1), string(n.Destination))
	case *ast.Image:
		return link(w.inlines(n, depth+1), string(n.Destination))
	case *ast.AutoLink:
		return plain(string(n.Label(w.src))) // Telegram makes it a link itself, or not
	case *ast.RawHTML:
		var b bytes.Buffer
		for i := range n.Segments.Len() {
			s := n.Segments.At(i)
			b.Write(s.Value(w.src))
		}
		return plain(b.String())
	case *east.TaskCheckBox:
		if n.IsChecked {
			return plain("☑ ")
		}
		return plain("☐ ")
	}
	return w.inlines(n, depth+1)
}

// unescape resolves backslashes and character references in one pass, as the HTML writer would.
func unescape(b []byte, raw bool) string {
	if raw {
		return string(b)
	}
	var out bytes.Buffer
	w := writer{&out}
	ghtml.DefaultWriter.Write(w, b)
	return clean(html.UnescapeString(out.String()))
}

// writer makes a bytes.Buffer what goldmark's writer wants.
type writer struct{ *bytes.Buffer }

func (writer) Available() int { return 0 }
func (writer) Buffered() int  { return 0 }
func (writer) Flush() error   { return nil }
