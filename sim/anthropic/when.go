package anthropic

import (
	"regexp"
	"time"
)

// when is what a text says about time.
type when struct {
	day           time.Time // midnight of the day named, or zero
	start         time.Duration
	end           time.Duration // after midnight, like start; 0: not said
	hasHour       bool
	days          int // how many days are meant, from day on
	first, hourAt int // where in the folded text the first word about time and the hour begin
}

const (
	hourWord = `(\d{1,2}|una|dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|` +
		`one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|mediodia|noon)(?:[:.h](\d{2}))?`
	meridiem = `(?:\s*(hs?\b|horas\b|am\b|pm\b|a\.m\.|p\.m\.|o'clock\b))?`
	quarter  = `(?:\s+(y media|y cuarto|menos cuarto))?`
	oneHour  = hourWord + `\b` + meridiem + quarter
)

var (
	spanOfHours = regexp.MustCompile(`\b(?:de|desde las?|from|entre las?|between)\s+` + oneHour + `\s+(?:a|hasta|to|until|y|and)\s+(?:las?\s+)?` + oneHour + laMorning)
	leadingHour = regexp.MustCompile(`\b(?:a las?|at|to|para las?|de las?|las|desde las?|from|tipo)\s+` + oneHour + laMorning)
	bareHour    = regexp.MustCompile(`\b(\d{1,2})(?:[:.](\d{2})` + meridiem + `|\s*(hs\b|am\b|pm\b|a\.m\.|p\.m\.))`)
	partOfDay   = regexp.MustCompile(`\b(?:(?:de|por|en|a)\s+la|esta)\s+manana\b`)

	namedDay  = regexp.MustCompile(`\b(pasado\s+manana|(?:the\s+)?day\s+after\s+tomorrow|manana|tomorrow|hoy|today|tonight|esta\s+(?:tarde|noche)|this\s+(?:morning|afternoon|evening))\b`)
	namedWeek = regexp.MustCompile(`\b(esta\s+semana|this\s+week|la\s+semana\s+que\s+viene|la\s+proxima\s+semana|next\s+week)\b`)
	weekday   = regexp.MustCompile(`\b(lunes|martes|miercoles|jueves|viernes|sabado|domingo|monday|tuesday|wednesday|thursday|friday|saturday|sunday)\b`)
	isoDay    = regexp.MustCompile(`\b(\d{4})-(\d{1,2})-(\d{1,2})\b`)
	slashDay  = regexp.MustCompile(`\b(\d{1,2})/(\d{1,2})(?:/(\d{4}))?\b`)
	dayMonth  = regexp.MustCompile(`\b(\d{1,2})(?:st|nd|rd|th)?\s+(?:de\s+|of\s+)?(` + monthNames + `)\b(?:\s+(?:de\s+)?(\d{4})\b)?`)
	monthDay  = regexp.MustCompile(`\b(` + monthNames + `)\s+(\d{1,2})(?:st|nd|rd|th)?\b(?:,?\s+(\d{4})\b)?`)
	inDays    = regexp.MustCompile(`\b(?:en|in|dentro\s+de)\s+(\w+)\s+(?:dias|dia|days|day)\b`)
	duration  = regexp.MustCompile(`\b(?:de|por|durante|for|an?)\s+(?:(media|half\s+an?)\s+(?:hora|hour)|(\w+)\s*(hora|horas|hour|hours|h|minutos|minutes|minute|min)(\s+y\s+media)?)\b`)
)

const (
	laMorning  = `(?:\s+(?:de|por|en|in|at)\s+(?:la|the)\s+(manana|madrugada|tarde|noche|morning|afternoon|evening|night)\b)?`
	monthNames = `enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|setiembre|octubre|noviembre|diciembre|` +
		`january|february|march|april|may|june|july|august|september|october|november|december`
)

// readWhen reads a folded text on a given day.
func readWhen(text string, now time.Time) when {
	w := when{first: len(text), hourAt: len(text), days: 1}
	w.readHours(text)
	w.readDay(text, now)
	if length := readDuration(text); length > 0 && w.hasHour && w.end == 0 {
		w.end = w.start + length
	}
	return w
}

func (w *when) saw(at int) { w.first = min(w.first, at) }

func (w *when) readHours(text string) {
	part := func(m []int, n int) string {
		if m[2*n] < 0 {
			return ""
		}
		return text[m[2*n]:m[2*n+1]]
	}
	if m := spanOfHours.FindStringSubmatchIndex(text); m != nil {
		start, ok1 := hour(part(m, 1), part(m, 2), part(m, 3), part(m, 4), part(m, 9))
		end, ok2 := hour(part(m, 5), part(m, 6), part(m, 7), part(m, 8), part(m, 9))
		if ok1 && ok2 && start < end {
			w.start, w.end, w.hasHour, w.hourAt = start, end, true, m[0]
			w.saw(m[0])
			return
		}
	}
	for _, m := range leadingHour.FindAllStringSubmatchIndex(text, -1) {
		if at, ok := hour(part(m, 1), part(m, 2), part(m, 3), part(m, 4), part(m, 5)); ok {
			w.start, w.hasHour, w.hourAt = at, true, m[0]
			w.saw(m[0])
			return
		}
	}
	if m := bareHour.FindStringSubmatchIndex(text); m != nil {
		if at, ok := hour(part(m, 1), part(m, 2), part(m, 3)+part(m, 4), "", ""); ok {
			w.start, w.hasHour, w.hourAt = at, true, m[0]
			w.saw(m[0])
		}
	}
}

// hour is a time of day. Without am, pm or a part of the day, one to six is in the afternoon: people who speak of meetings
// do not mean the night.
func hour(h, m, meridiem, quarter, part string) (time.Duration, bool) {
	hours, minutes := number(h), number(m)
	if h == "mediodia" || h == "noon" {
		hours = 12
	}
	if hours > 23 || minutes > 59 || h == "0" && m == "" {
		return 0, false
	}
	switch {
	case meridiem == "pm" || meridiem == "p.m." || part == "tarde" || part == "noche" || part == "afternoon" || part == "evening" || part == "night":
		if hours < 12 {
			hours += 12
		}
	case meridiem == "am" || meridiem == "a.m." || part != "":
		hours %= 12
	case hours >= 1 && hours <= 6 && len(h) != 2 && meridiem != "hs" && meridiem != "h":
		hours += 12
	}
	at := time.Duration(hours)*time.Hour + time.Duration(minutes)*time.Minute
	switch quarter {
	case "y media":
		at += 30 * time.Minute
	case "y cuarto":
		at += 15 * time.Minute
	case "menos cuarto":
		at -= 15 * time.Minute
	}
	return at, true
}

func (w *when) readDay(text string, now time.Time) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	// "de la mañana" is a part of the day, not tomorrow: it is blanked out, keeping every place in the text
	text = partOfDay.ReplaceAllStringFunc(text, func(s string) string { return string(make([]byte, len(s))) })
	set := func(at int, day time.Time) {
		w.day = day
		w.saw(at)
	}
	date := func(at int, y, m, d int) {
		year := y
		if y == 0 {
			year = now.Year()
		}
		day := time.Date(year, time.Month(m), d, 0, 0, 0, 0, now.Location())
		if y == 0 && day.Before(midnight) {
			day = day.AddDate(1, 0, 0)
		}
		set(at, day)
	}
	if m := isoDay.FindStringSubmatch(text); m != nil {
		date(isoDay.FindStringIndex(text)[0], number(m[1]), number(m[2]), number(m[3]))
	} else if m := dayMonth.FindStringSubmatch(text); m != nil {
		date(dayMonth.FindStringIndex(text)[0], number(m[3]), int(months()[m[2]]), number(m[1]))
	} else if m := monthDay.FindStringSubmatch(text); m != nil {
		date(monthDay.FindStringIndex(text)[0], number(m[3]), int(months()[m[1]]), number(m[2]))
	} else if m := slashDay.FindStringSubmatch(text); m != nil && number(m[2]) <= 12 {
		date(slashDay.FindStringIndex(text)[0], number(m[3]), number(m[2]), number(m[1]))
	} else if m := namedDay.FindStringSubmatchIndex(text); m != nil {
		set(m[0], midnight.AddDate(0, 0, daysAway(text[m[2]:m[3]])))
	} else if m := weekday.FindStringSubmatchIndex(text); m != nil {
		ahead := (int(weekdays()[text[m[2]:m[3]]]) - int(now.Weekday()) + 7) % 7
		if ahead == 0 {
			ahead = 7
		}
		set(m[0], midnight.AddDate(0, 0, ahead))
	} else if m := inDays.FindStringSubmatchIndex(text); m != nil && number(text[m[2]:m[3]]) > 0 {
		set(m[0], midnight.AddDate(0, 0, number(text[m[2]:m[3]])))
	} else if m := namedWeek.FindStringSubmatchIndex(text); m != nil {
		w.readWeek(m[0], text[m[2]:m[3]], midnight)
	}
}

// readWeek is from today to Sunday, or the whole of the next week.
func (w *when) readWeek(at int, words string, midnight time.Time) {
	toMonday := (8 - int(midnight.Weekday())) % 7
	if toMonday == 0 {
		toMonday = 7
	}
	w.saw(at)
	if words[:4] == "esta" || words[:4] == "this" {
		w.day, w.days = midnight, toMonday
		return
	}
	w.day, w.days = midnight.AddDate(0, 0, toMonday), 7
}

func daysAway(words string) int {
	switch words[0] {
	case 'p', 'd': // pasado mañana, day after tomorrow
		return 2
	case 'm': // mañana
		return 1
	}
	switch words {
	case "tomorrow":
		return 1
	case "the day after tomorrow":
		return 2
	}
	return 0
}

func readDuration(text string) time.Duration {
	m := duration.FindStringSubmatch(text)
	switch {
	case m == nil:
		return 0
	case m[1] != "":
		return 30 * time.Minute
	}
	n := time.Duration(number(m[2]))
	if m[3][0] == 'm' {
		return n * time.Minute
	}
	length := n * time.Hour
	if m[4] != "" {
		length += 30 * time.Minute
	}
	return length
}

// span is the stretch of time meant: the hour with its length, or 30 minutes, or the whole days.
func (w when) span(now time.Time) (from, to time.Time) {
	day := w.day
	if day.IsZero() {
		day = time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	}
	if !w.hasHour {
		return day, day.AddDate(0, 0, w.days)
	}
	from = on(day, w.start)
	if w.day.IsZero() && from.Before(now) {
		day = day.AddDate(0, 0, 1)
		from = on(day, w.start)
	}
	if w.end == 0 {
		return from, from.Add(30 * time.Minute)
	}
	return from, on(day, w.end)
}

// on is a wall clock time of a day, right also on the days when clocks change.
func on(day time.Time, after time.Duration) time.Time {
	return time.Date(day.Year(), day.Month(), day.Day(), 0, int(after.Minutes()), 0, 0, day.Location())
}
