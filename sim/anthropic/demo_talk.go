package anthropic

import (
	"math/big"
	"regexp"
	"strings"
)

const signWords = `por|mas|menos|entre|dividido(?: por)?|times|plus|minus|divided by|over`

var (
	greeting   = regexp.MustCompile(`^\W*(?:hola|buenas|buenos dias|buen dia|hello|hi|hey|good (?:morning|afternoon|evening))\b`)
	thanks     = regexp.MustCompile(`\b(?:gracias|thanks|thank you|thx)\b`)
	helpWords  = regexp.MustCompile(`\b(?:que (?:podes|puedes|sabes) hacer|ayuda|para que servis|what can you do|help)\b`)
	lengthy    = regexp.MustCompile(`\b(?:algo (?:muy )?largo|something (?:very )?long|a long (?:story|text|answer))\b`)
	sum        = regexp.MustCompile(`\d\s*(?:[-+*/x×÷]|\b(?:` + signWords + `)\b)\s*\(?\s*-?\d`)
	sumAsked   = regexp.MustCompile(`\b(?:cuant[oa]s?|calcul\w+|what(?:'s| is)|how much|compute)\b|^(?:[\s\d.,()+*/x×÷?=-]|` + signWords + `)+$`)
	expression = regexp.MustCompile(`[\d(][\d\s.,()+*/x×÷-]*[\d)]`)
	signWord   = regexp.MustCompile(`\b(?:` + signWords + `)\b|×|÷`)
	timesSign  = regexp.MustCompile(`(\d\s*)x(\s*[\d(])`)
	newsWords  = regexp.MustCompile(`\b(?:se (?:envio|mando|hizo|aprobo)|ya (?:salio|se)|que paso con|did it (?:go|get)|was it (?:sent|done|approved)|what happened)\b`)
	newsLines  = regexp.MustCompile(`(?:Desde el último turno pasó esto|Since the last turn this happened)[^\n]*\n((?:- [^\n]*\n?)+)`)
)

func greet(t Turn) []Block {
	return []Block{Text(t.say("¡Hola! ¿En qué te ayudo?", "Hello! How can I help?"))}
}

func thank(t Turn) []Block {
	return []Block{Text(t.say("¡De nada!", "You are welcome!"))}
}

func help(t Turn) []Block {
	return []Block{Text(t.say("Puedo "+abilities(t), "I can "+abilities(t)))}
}

// tellNews repeats what the house says has happened since the last turn.
func tellNews(t Turn) []Block {
	told := newsLines.FindAllStringSubmatch(t.System, -1)
	for _, m := range t.Messages {
		if m.Role != "assistant" {
			told = append(told, newsLines.FindAllStringSubmatch(m.Content.text(), -1)...)
		}
	}
	if len(told) == 0 {
		return []Block{Text(t.say("No tengo novedades de eso.", "I have no news of that."))}
	}
	return []Block{Text(t.say("Esto es lo que sé:", "This is what I know:") + "\n" + strings.TrimSpace(told[len(told)-1][1]))}
}

func calculate(t Turn) []Block {
	text := signWord.ReplaceAllStringFunc(fold(t.Text).text, sign)
	for range 2 { // a number between two signs belongs to both
		text = timesSign.ReplaceAllString(text, "${1}*${2}")
	}
	asked := strings.TrimSpace(expression.FindString(text))
	c := calculation{rest: strings.ReplaceAll(strings.ReplaceAll(asked, " ", ""), ",", ".")}
	result, ok := c.sum()
	if !ok || c.rest != "" {
		return []Block{Text(t.say("Esa cuenta no la sé hacer.", "I cannot do that sum."))}
	}
	shown := strings.TrimRight(strings.TrimRight(result.FloatString(4), "0"), ".")
	if t.Lang == "es" {
		shown = strings.Replace(shown, ".", ",", 1)
	}
	return []Block{Text(asked + " = " + shown)}
}

// sign is the sign that a word of signWords stands for.
func sign(word string) string {
	switch {
	case word == "por" || word == "times" || word == "×":
		return "*"
	case word == "mas" || word == "plus":
		return "+"
	case word == "menos" || word == "minus":
		return "-"
	}
	return "/"
}

// calculation reads sums of products of numbers and brackets from the left of rest. It is exact.
type calculation struct{ rest string }

func (c *calculation) sum() (*big.Rat, bool) {
	left, ok := c.product()
	for ok && c.rest != "" && (c.rest[0] == '+' || c.rest[0] == '-') {
		minus := c.rest[0] == '-'
		c.rest = c.rest[1:]
		var right *big.Rat
		if right, ok = c.product(); ok && minus {
			right.Neg(right)
		}
		if ok {
			left.Add(left, right)
		}
	}
	return left, ok
}

func (c *calculation) product() (*big.Rat, bool) {
	left, ok := c.factor()
	for ok && c.rest != "" && (c.rest[0] == '*' || c.rest[0] == '/') {
		divide := c.rest[0] == '/'
		c.rest = c.rest[1:]
		var right *big.Rat
		right, ok = c.factor()
		switch {
		case !ok || divide && right.Sign() == 0:
			return nil, false
		case divide:
			left.Quo(left, right)
		default:
			left.Mul(left, right)
		}
	}
	return left, ok
}

var decimal = regexp.MustCompile(`^-?\d{1,30}(\.\d{1,30})?`)

func (c *calculation) factor() (*big.Rat, bool) {
	if strings.HasPrefix(c.rest, "(") {
		c.rest = c.rest[1:]
		inner, ok := c.sum()
		if !ok || !strings.HasPrefix(c.rest, ")") {
			return nil, false
		}
		c.rest = c.rest[1:]
		return inner, true
	}
	digits := decimal.FindString(c.rest)
	c.rest = c.rest[len(digits):]
	return new(big.Rat).SetString(digits)
}
