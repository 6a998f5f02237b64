package bot

import (
	"strings"
	"unicode"

	"github.com/go-telegram/bot/models"
	east "github.com/yuin/goldmark/extension/ast"
	"golang.org/x/text/width"
)

// table sets a table as aligned text of fixed width.
func (w *walker) table(t *east.Table) rich {
	var rows [][]string
	wide := make([]int, len(t.Alignments))
	for r := t.FirstChild(); r != nil; r = r.NextSibling() {
		var row []string
		for c := r.FirstChild(); c != nil; c = c.NextSibling() {
			cell := strings.Join(strings.Fields(w.words(c, 0)), " ")
			if i := len(row); i < len(wide) {
				wide[i] = max(wide[i], columns(cell))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	var b strings.Builder
	for i, row := range rows {
		var line strings.Builder
		for j, cell := range row {
			if j > 0 {
				line.WriteString(" │ ")
			}
			pad := ""
			if j < len(wide) {
				pad = strings.Repeat(" ", max(0, wide[j]-columns(cell)))
			}
			if j < len(t.Alignments) && t.Alignments[j] == east.AlignRight {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
		if i == 0 && len(rows) > 1 {
			var rule []string
			for _, n := range wide {
				rule = append(rule, strings.Repeat("─", n))
			}
			b.WriteString(strings.Join(rule, "─┼─") + "\n")
		}
	}
	return plain(strings.TrimRight(b.String(), "\n")).styled(models.MessageEntityTypePre)
}

// columns is how wide text stands in a fixed-width font.
func columns(s string) int {
	n := 0
	for _, r := range s {
		switch {
		case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		case width.LookupRune(r).Kind() == width.EastAsianWide, width.LookupRune(r).Kind() == width.EastAsianFullwidth:
			n += 2
		default:
			n++
		}
	}
	return n
}
