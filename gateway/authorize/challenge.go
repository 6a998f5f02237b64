package authorize

import "strings"

// bearerChallenge gives the parameters of the first Bearer challenge among WWW-Authenticate headers (RFC 9110 §11.6.1),
// names in lower case. One header may hold several challenges, and a quoted value may hold commas.
func bearerChallenge(headers []string) map[string]string {
	for _, h := range headers {
		scheme, found := "", map[string]string{}
		for h = strings.TrimSpace(h); h != ""; h = strings.TrimLeft(h, " \t,") {
			word := token(h)
			if word == "" {
				break // not a challenge at all
			}
			h = h[len(word):]
			value, rest, isParam := paramValue(h)
			if !isParam { // the name of the next challenge's scheme
				if strings.EqualFold(scheme, "bearer") {
					return found
				}
				scheme, found = word, map[string]string{}
				continue
			}
			found[strings.ToLower(word)], h = value, rest
		}
		if strings.EqualFold(scheme, "bearer") {
			return found
		}
	}
	return nil
}

// token gives the token (RFC 9110 §5.6.2) that text begins with.
func token(text string) string {
	end := strings.IndexFunc(text, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("!#$%&'*+-.^_`|~", r))
	})
	if end < 0 {
		return text
	}
	return text[:end]
}

// paramValue reads `= value` at the beginning of text.
func paramValue(text string) (value, rest string, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t"), "=")
	if !ok {
		return "", "", false
	}
	text = strings.TrimLeft(text, " \t")
	if !strings.HasPrefix(text, `"`) {
		value = token(text)
		return value, text[len(value):], true
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:], true
		case '\\':
			if i++; i < len(text) {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(text[i])
		}
	}
	return b.String(), "", true // never closed
}
