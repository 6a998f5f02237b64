package store_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"pilder/store"
)

// hides is a struct as others have them: fmt calls no methods of what its unexported fields hold.
type hides struct {
	inner store.Secret
	Outer store.Secret
}

func TestASecretIsPrintedByNothing(t *testing.T) {
	const text = "hunter2"
	s := store.NewSecret(text)
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%f", "%p", "%T", "%o", "%c", "%U"} {
		for _, v := range []any{s, &s, hides{s, s}, &hides{s, s}, []store.Secret{s}, map[string]store.Secret{"k": s}, map[store.Secret]int{s: 1}} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
	}
	fmt.Fprintln(&out, fmt.Errorf("wrapped: %w %v", errors.New("x"), s))
	fmt.Fprintf(&out, "%s\n", must(json.Marshal(hides{s, s})))
	fmt.Fprintf(&out, "%s\n", must(json.Marshal(map[string]any{"s": s, "p": &s})))
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "s", s, "h", hides{s, s})
	log := zerolog.New(&out)
	log.Info().Interface("s", s).Any("h", hides{s, s}).Stringer("t", s).Send()
	for _, seen := range []string{text, "68756e74657232", "68756E74657232"} {
		if strings.Contains(out.String(), seen) {
			t.Errorf("%s in\n%s", seen, out.String())
		}
	}
	if s.Reveal() != text || !s.Equal(store.NewSecret(text)) || s.Equal(store.NewSecret("hunter3")) {
		t.Error("it is no secret any more")
	}
}

func TestAnUnsetSecretOpensNothing(t *testing.T) {
	for _, unset := range []store.Secret{{}, store.NewSecret("")} {
		if !unset.IsZero() || unset.Reveal() != "" || unset.Equal(unset) || unset.Equal(store.Secret{}) || unset.Hash() != (store.Secret{}).Hash() {
			t.Errorf("%v is something", unset)
		}
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
