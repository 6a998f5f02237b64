package anthropic

import (
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// folded is a text in small letters without accents, and where each of its bytes was in the original.
type folded struct {
	text string
	orig string
	from []int // for every byte of text, and one more for its end, the byte of orig
}

// fold makes a text comparable. People on phones write "reunion", "Reunión" and "REUNIÓN".
func fold(s string) folded {
	var b strings.Builder
	from := make([]int, 0, len(s)+1)
	for i, r := range s {
		n := b.Len()
		b.WriteRune(plain(unicode.ToLower(r)))
		for range b.Len() - n {
			from = append(from, i)
		}
	}
	return folded{b.String(), s, append(from, len(s))}
}

func plain(r rune) rune {
	const accented, bare = "áàäâãéèëêíìïîóòöôõúùüûñç’‘“”«»", "aaaaaeeeeiiiiooooouuuunc''\"\"\"\""
	if i := strings.IndexRune(accented, r); r >= utf8.RuneSelf && i >= 0 {
		return rune(bare[utf8.RuneCountInString(accented[:i])])
	}
	return r
}

// cut gives the original text between two places of the folded one.
func (f folded) cut(i, j int) string {
	return strings.TrimSpace(f.orig[f.from[i]:f.from[j]])
}

// group gives the original text of a submatch of re, or "".
func (f folded) group(re *regexp.Regexp, n int) string {
	m := re.FindStringSubmatchIndex(f.text)
	if m == nil || m[2*n] < 0 {
		return ""
	}
	return f.cut(m[2*n], m[2*n+1])
}

var (
	word    = regexp.MustCompile(`[a-z']+`)
	english = wordSet(`a about and an any anything are at booking can calendar delete do does email event find for free from
		hello help hey hi how i is it long me meeting meetings move much my notes of on pending please remove reschedule say
		saying schedule search send show something tell thank thanks that the there this today tomorrow what whats what's
		with write you your add book cancel create put connect waiting approval times plus minus appointment nonexistent`)
	spanish = wordSet(`a al algo anota anotame aprobar borra borrar borrame busca buscame buscar cita con conecta correo correos
		cuanto de del diciendo el en enlace es esta estoy evento gracias guardame guarda agenda agendame hacer hay hola hoy la
		largo las libre los manana manda mandale mandame me mi mis mové mueve move nota notas para pasado pendiente podes por
		puedes que reserva reunion sobre tengo un una y enviale envia escribile contame cuentame cancela elimina poneme pon`)
)

func wordSet(list string) map[string]bool {
	set := map[string]bool{}
	for w := range strings.FieldsSeq(list) {
		set[w] = true
	}
	return set
}

// language is "en" when a text has more English words than Spanish ones, otherwise "es", the house's first.
func language(text string) string {
	en, es := 0, 0
	for _, w := range word.FindAllString(fold(text).text, -1) {
		if english[w] {
			en++
		}
		if spanish[w] {
			es++
		}
	}
	if en > es {
		return "en"
	}
	return "es"
}

// say picks the text in the language of the turn.
func (t Turn) say(es, en string) string {
	if t.Lang == "en" {
		return en
	}
	return es
}

func weekdays() map[string]time.Weekday {
	return map[string]time.Weekday{
		"domingo": 0, "lunes": 1, "martes": 2, "miercoles": 3, "jueves": 4, "viernes": 5, "sabado": 6,
		"sunday": 0, "monday": 1, "tuesday": 2, "wednesday": 3, "thursday": 4, "friday": 5, "saturday": 6,
	}
}

func months() map[string]time.Month {
	return map[string]time.Month{
		"enero": 1, "febrero": 2, "marzo": 3, "abril": 4, "mayo": 5, "junio": 6, "julio": 7, "agosto": 8, "septiembre": 9,
		"setiembre": 9, "octubre": 10, "noviembre": 11, "diciembre": 12,
		"january": 1, "february": 2, "march": 3, "april": 4, "may": 5, "june": 6, "july": 7, "august": 8, "september": 9,
		"october": 10, "november": 11, "december": 12,
	}
}

func numerals() map[string]int {
	return map[string]int{
		"una": 1, "un": 1, "uno": 1, "dos": 2, "tres": 3, "cuatro": 4, "cinco": 5, "seis": 6, "siete": 7, "ocho": 8, "nueve": 9, "diez": 10,
		"once": 11, "doce": 12, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
		"ten": 10, "eleven": 11, "twelve": 12, "an": 1,
	}
}

// number reads digits or a numeral; 0 for anything else.
func number(s string) int {
	if n, ok := numerals()[s]; ok {
		return n
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// day is a date as a person says it: "martes 1/12", "Tuesday 1 December".
func (t Turn) day(at time.Time) string {
	es := [...]string{"domingo", "lunes", "martes", "miércoles", "jueves", "viernes", "sábado"}
	return t.say(es[at.Weekday()]+at.Format(" 2/1"), at.Format("Monday 2 January"))
}
