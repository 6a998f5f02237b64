package bot

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/go-telegram/bot/models"
)

// Limits of one message (Bot API). The server counts code points; UTF-16 units are never fewer.
const (
	maxUnits    = 4096
	maxEntities = 100 // the server drops what is above without a word
)

// settle makes entities such that the server has nothing to repair: code and pre hold no styles and lie in no link, none
// is empty, order is by place. Links that hold code are dropped, styles are cut around it.
func settle(in []models.MessageEntity) []models.MessageEntity {
	var codes, out []models.MessageEntity
	for _, e := range in {
		if e.Type == models.MessageEntityTypeCode || e.Type == models.MessageEntityTypePre {
			if e.Length > 0 {
				codes = append(codes, e)
			}
		}
	}
	slices.SortStableFunc(codes, func(a, b models.MessageEntity) int { return cmp.Compare(a.Offset, b.Offset) })
	for _, e := range in {
		switch e.Type {
		case models.MessageEntityTypeCode, models.MessageEntityTypePre, models.MessageEntityTypeBlockquote:
			out = append(out, e)
		case models.MessageEntityTypeTextLink:
			if !slices.ContainsFunc(codes, func(c models.MessageEntity) bool { return meet(c, e) }) {
				out = append(out, e)
			}
		default:
			out = append(out, around(e, codes)...)
		}
	}
	out = slices.DeleteFunc(out, func(e models.MessageEntity) bool { return e.Length <= 0 })
	slices.SortStableFunc(out, func(a, b models.MessageEntity) int {
		if c := cmp.Compare(a.Offset, b.Offset); c != 0 {
			return c
		}
		return cmp.Compare(b.Length, a.Length)
	})
	return out
}

func meet(a, b models.MessageEntity) bool {
	return a.Offset < b.Offset+b.Length && b.Offset < a.Offset+a.Length
}

// around cuts e into the pieces that none of the codes, sorted by place, covers.
func around(e models.MessageEntity, codes []models.MessageEntity) []models.MessageEntity {
	var out []models.MessageEntity
	at, end := e.Offset, e.Offset+e.Length
	piece := func(from, to int) {
		if to > from {
			p := e
			p.Offset, p.Length = from, to-from
			out = append(out, p)
		}
	}
	for _, c := range codes {
		if c.Offset+c.Length <= at || c.Offset >= end {
			continue
		}
		piece(at, c.Offset)
		at = max(at, c.Offset+c.Length)
	}
	piece(at, end)
	return out
}

// split cuts text into parts of at most limit units, at a block, else a line, else a sentence or space, else between
// characters. Joined, the parts are the text but for space at the cuts. It stops after most parts and tells whether
// anything was left over; most 0 means no end.
func split(r rich, limit, most int) (parts []rich, rest bool) {
	limit = max(limit, 2) // one character may need two units, and a part must advance
	text, at := r.Text, 0
	for text != "" {
		if most > 0 && len(parts) == most {
			return parts, strings.TrimSpace(text) != ""
		}
		n := cut(text, at, limit, r.Entities)
		p := slice(r, text[:n], at)
		if !blank(p.Text) {
			parts = append(parts, p)
		}
		at += units(text[:n])
		text = text[n:]
	}
	return parts, false
}

// blank tells whether a reader would see nothing: Telegram refuses such a text as empty.
func blank(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsSpace(r) && !unicode.In(r, unicode.Cf, unicode.Variation_Selector) && !unprinted(r)
	})
}

// unprinted letters look like space: Braille blank and the Hangul fillers.
func unprinted(r rune) bool {
	return r == 0x2800 || r == 0x3164 || r == 0x115F || r == 0x1160 || r == 0xFFA0
}

// cut finds how many bytes of text go into the next part; at is where text stands, in units.
func cut(text string, at, limit int, entities []models.MessageEntity) int {
	used, fit := 0, len(text)
	for i, r := range text {
		if used += utf16.RuneLen(r); used > limit {
			fit = i
			break
		}
	}
	if fit == len(text) {
		return fit
	}
	window := text[:fit]
	if i := strings.LastIndex(window, "\n\n"); i > fit/2 && !inPre(at+units(text[:i]), entities) {
		return i + 2
	}
	if i := lineCut(window, at, entities); i > fit/4 {
		return i
	}
	if i := strings.LastIndexAny(window, ".!?…"); i > fit/2 && i+1 < len(text) {
		for j, r := range text[i:] {
			if j > 0 && i+j < fit {
				if unicode.IsSpace(r) {
					return i + j
				}
				break
			}
		}
	}
	if i := strings.LastIndexFunc(window, unicode.IsSpace); i > fit/4 {
		return i + len(string([]rune(window[i:])[:1]))
	}
	return character(text, fit)
}

// lineCut finds the last line end; within code one before an unindented line if there is one, since the server would take
// the spaces at a part's beginning away.
func lineCut(window string, at int, entities []models.MessageEntity) int {
	last := strings.LastIndexByte(window, '\n') + 1
	if last <= 0 || !inPre(at+units(window[:last]), entities) {
		return last
	}
	for i := last; i > len(window)/2; i = strings.LastIndexByte(window[:i-1], '\n') + 1 {
		if i < len(window) && window[i] != ' ' && window[i] != '\t' && window[i] != '\n' {
			return i
		}
	}
	return last
}

func inPre(at int, entities []models.MessageEntity) bool {
	return slices.ContainsFunc(entities, func(e models.MessageEntity) bool {
		return e.Type == models.MessageEntityTypePre && e.Offset < at && at < e.Offset+e.Length
	})
}

// character moves a cut before whatever a reader takes for one character, unless that leaves nothing.
func character(text string, fit int) int {
	for back, i := 0, fit; i > 0 && back < 32; back++ {
		before := []rune(text[max(0, i-8):i])
		if len(before) == 0 {
			break
		}
		r := []rune(text[i:min(len(text), i+8)])[0]
		prev := before[len(before)-1]
		if !glued(prev, r) {
			return i
		}
		i -= len(string(prev))
	}
	if fit == 0 { // the first character alone is too long
		return len(string([]rune(text)[:1]))
	}
	return fit
}

// glued tells whether b belongs to the same shown character as a: marks, joiners, skin tones, halves of flags.
func glued(a, b rune) bool {
	const joiner = 0x200D
	flag := func(r rune) bool { return r >= 0x1F1E6 && r <= 0x1F1FF }
	switch {
	case a == joiner, b == joiner, unicode.In(b, unicode.Mn, unicode.Me, unicode.Mc):
		return true
	case b >= 0xFE00 && b <= 0xFE0F, b >= 0x1F3FB && b <= 0x1F3FF, b >= 0xE0020 && b <= 0xE007F:
		return true
	}
	return flag(a) && flag(b)
}

// slice is the part of r whose text begins at unit at, with its entities re-based and its ends trimmed as the server does.
func slice(r rich, text string, at int) rich {
	out := rich{Text: text, n: units(text)}
	end := at + out.n
	for _, e := range r.Entities {
		from, to := max(e.Offset, at), min(e.Offset+e.Length, end)
		if from < to {
			e.Offset, e.Length = from-at, to-from
			out.Entities = append(out.Entities, e)
		}
	}
	out = trim(out)
	out.Entities = fewer(out.Entities)
	return out
}

// trim takes space off both ends and moves the entities.
func trim(r rich) rich {
	text := strings.TrimRightFunc(r.Text, unicode.IsSpace)
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	if text == r.Text {
		return r
	}
	lead := units(r.Text[:len(r.Text)-len(strings.TrimLeftFunc(r.Text, unicode.IsSpace))])
	out := rich{Text: text, n: units(text)}
	if text == "" {
		return out
	}
	for _, e := range r.Entities {
		from, to := max(e.Offset-lead, 0), min(e.Offset+e.Length-lead, out.n)
		if from < to {
			e.Offset, e.Length = from, to-from
			out.Entities = append(out.Entities, e)
		}
	}
	return out
}

// fewer keeps at most as many entities as the server does, code, links and quotes before styles.
func fewer(in []models.MessageEntity) []models.MessageEntity {
	if len(in) <= maxEntities {
		return in
	}
	var out []models.MessageEntity
	keep := func(want bool) {
		for _, e := range in {
			if len(out) < maxEntities && (solid(e.Type) || e.Type == models.MessageEntityTypeBlockquote) == want {
				out = append(out, e)
			}
		}
	}
	keep(true)
	keep(false)
	return settle(out)
}
