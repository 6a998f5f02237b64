package policy_test

import (
	"strings"
	"testing"

	"pilder/policy"
)

func TestWhichAddressesAreInside(t *testing.T) {
	domains := []string{"empresa.com", "xn--and-6ma2c.example"}
	for _, tt := range []struct {
		claim, text string
		inside      bool
	}{
		{"a plain address", "ana@empresa.com", true},
		{"another case", "Ana.Paz+x@EMPRESA.Com", true},
		{"white space around", "  ana@empresa.com ", true},
		{"a display name", "Ana Paz <ana@empresa.com>", true},
		{"a quoted display name with a comma", `"Paz, Ana" <ana@empresa.com>`, true},
		{"the address as its own display name", `"ana@empresa.com" <ana@empresa.com>`, true},
		{"a comment", "ana@empresa.com (Ana)", true},
		{"several addresses", "ana@empresa.com, Luis <luis@empresa.com>", true},
		{"an accented domain", "ana@ñandú.example", true},
		{"the same in ASCII", "ana@XN--and-6ma2c.example", true},

		{"another domain", "x@otra.com", false},
		{"one stranger among several", "ana@empresa.com, x@otra.com", false},
		{"a longer name", "x@evil-empresa.com", false},
		{"the name as somebody's subdomain", "x@empresa.com.evil.com", false},
		{"a subdomain not listed", "x@ventas.empresa.com", false},
		{"the parent", "x@com", false},
		{"a quoted local part with the name", `"a@empresa.com"@evil.com`, false},
		{"a quoted local part with another", `"a@evil.com"@empresa.com`, false},
		{"two signs", "a@empresa.com@evil.com", false},
		{"two signs the other way", "a@evil.com@empresa.com", false},
		{"a stranger in the display name", `"x@evil.com" <ana@empresa.com>`, false},
		{"ours in the display name only", `"ana@empresa.com" <x@evil.com>`, false},
		{"a stranger in a comment", "ana@empresa.com (x@evil.com)", false},
		{"a comment inside the domain", "ana@empresa.com(.evil.com)", true},
		{"a comment before the rest of the domain", "ana@empresa.com(x).evil.com", false},
		{"a route", "<@evil.com:ana@empresa.com>", false},
		{"a percent route", "x%evil.com@empresa.com", false},
		{"a bang route", "evil.com!x@empresa.com", false},
		{"a group", "equipo: ana@empresa.com, x@evil.com;", false},
		{"a semicolon list", "ana@empresa.com; x@evil.com", false},
		{"a line end and another header", "ana@empresa.com\r\nBcc: x@evil.com", false},
		{"a line end inside", "ana@empresa.com\n", false},
		{"a null byte", "ana@empresa.com\x00", false},
		{"an encoded word", "=?utf-8?q?x=40evil.com=2C?= <ana@empresa.com>", false},
		{"a Cyrillic letter in the name", "ana@empresа.com", false},
		{"a full-width sign", "x@evil.com＠empresa.com", false},
		{"full-width letters", "ana@ｅmpresa.com", false},
		{"an ideographic full stop", "ana@empresa。com", false},
		{"a zero-width space", "ana@empre\u200bsa.com", false},
		{"a soft hyphen", "ana@empre\u00adsa.com", false},
		{"a variation selector", "ana@empresa\ufe0f.com", false},
		{"a direction mark", "ana@empresa.com\u202e", false},
		{"bytes that are no UTF-8", "ana@empresa.com\xff", false},
		{"a trailing dot", "ana@empresa.com.", false},
		{"a leading dot", "ana@.empresa.com", false},
		{"a domain literal", "ana@[127.0.0.1]", false},
		{"no domain", "ana@", false},
		{"no local part", "@empresa.com", false},
		{"no sign", "ana", false},
		{"nothing", "", false},
		{"a lone comma", ",", false},
		{"JSON", `["ana@empresa.com"]`, false},
		{"an address too long to read", strings.Repeat("a", 8<<10) + "@empresa.com", false},
		{"many open brackets", strings.Repeat("(", 8000) + "a@empresa.com", false},
	} {
		t.Run(tt.claim, func(t *testing.T) {
			if got := policy.Inside(tt.text, domains); got != tt.inside {
				t.Errorf("%.80q inside: %v", tt.text, got)
			}
		})
	}
	if policy.Inside("ana@empresa.com", nil) {
		t.Error("a company without domains has an inside")
	}
}

func TestACompanysDomainsAreReadWithGoodWill(t *testing.T) {
	g := policy.NewGrant(policy.GrantInput{Domains: []string{" @Empresa.COM. ", "", "no domain", "-x.com", "ñandú.example", "empresa.com"}})
	if got := strings.Join(g.Domains, " "); got != "empresa.com xn--and-6ma2c.example" {
		t.Errorf("got %s", got)
	}
}

// Nothing that names a foreign domain after any "@" is inside, whatever stands around it.
func FuzzInside(f *testing.F) {
	for _, s := range []string{
		"ana@empresa.com", `"a@empresa.com"@evil.com`, "a@empresa.com, b@evil.com", "Ana <a@empresa.com> (x)", "a@empresa.com.evil.com",
		"<@evil.com:a@empresa.com>", "g: a@empresa.com;", "a@empresa.com\nTo: b@evil.com", "=?utf-8?q?a?= <a@empresa.com>", "ａ@empresa.com",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !policy.Inside(text, []string{"empresa.com"}) {
			return
		}
		parts := strings.Split(strings.ToLower(text), "@")
		if len(parts) < 2 {
			t.Fatalf("%q is inside without an address", text)
		}
		for _, after := range parts[1:] {
			rest, ok := strings.CutPrefix(after, "empresa.com")
			if !ok || rest != "" && !strings.ContainsAny(rest[:1], " \t,>()\";:<[]'\\") {
				t.Fatalf("%q is inside, and %q follows a sign", text, after)
			}
		}
		if policy.Inside(text+", x@evil.com", []string{"empresa.com"}) {
			t.Fatalf("%q stays inside with a stranger added", text)
		}
	})
}
