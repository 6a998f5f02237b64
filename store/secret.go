package store

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"log/slog"
)

// Secret is text that must not be seen: a token, a key, a link that grants something. It prints [redacted] everywhere;
// only Reveal gives the text, at the place that sends it where it belongs. The text lies behind a pointer because fmt calls
// no methods of what a struct's unexported fields hold, and prints it then field by field. Compare with Equal, never ==.
type Secret struct{ text *string }

// redacted is what a secret prints.
const redacted = "[redacted]"

// NewSecret wraps text.
func NewSecret(text string) Secret { return Secret{&text} }

// RandomSecret makes 256 random bits as 43 URL-safe characters behind prefix.
func RandomSecret(prefix string) Secret {
	var b [32]byte
	rand.Read(b[:])
	return NewSecret(prefix + base64.RawURLEncoding.EncodeToString(b[:]))
}

// Reveal gives the text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsZero tells whether there is no text.
func (s Secret) IsZero() bool { return s.Reveal() == "" }

// Hash is SHA-256 of the text: what is stored of a secret that only ever has to be recognised.
func (s Secret) Hash() [32]byte { return sha256.Sum256([]byte(s.Reveal())) }

// Equal compares in constant time. Two zero secrets are not equal: an unset key opens nothing.
func (s Secret) Equal(o Secret) bool {
	a, b := s.Hash(), o.Hash()
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && !s.IsZero()
}

// String, GoString, MarshalText, MarshalJSON and LogValue keep the text out of fmt, encoders and logs.
func (s Secret) String() string               { return redacted }
func (s Secret) GoString() string             { return redacted }
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
func (s Secret) LogValue() slog.Value         { return slog.StringValue(redacted) }
