package store

import (
	"bytes"
	"encoding/json"
	"maps"
	"math/big"
	"strconv"
	"strings"
)

// canonical spells JSON in one way: names sorted, no space, strings without needless escapes, numbers by value. What cannot
// be read stays as it is. It is for comparing only: what a human approved and what runs are the exact bytes.
func canonical(raw json.RawMessage) []byte {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil || dec.More() {
		return raw
	}
	if top, ok := v.(map[string]any); ok {
		maps.DeleteFunc(top, func(_ string, value any) bool { return value == nil }) // an argument of null is one left out
	}
	out, err := json.Marshal(plainNumbers(v))
	if err != nil {
		return raw
	}
	return out
}

// plainNumbers writes each number of a decoded value in one way: 10, 10.0 and 1e1 are the same.
func plainNumbers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			v[name] = plainNumbers(inner)
		}
	case []any:
		for i, inner := range v {
			v[i] = plainNumbers(inner)
		}
	case json.Number:
		return exact(v)
	}
	return v
}

// exact writes a number by its value, without loss. One with an exponent beyond all use stays as it is spelt: its digits
// would fill the memory.
func exact(n json.Number) any {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(n.String()), "e")
	if exponent != "" {
		if e, err := strconv.Atoi(exponent); err != nil || e < -400 || e > 400 {
			return n
		}
	}
	value, ok := new(big.Rat).SetString(n.String())
	if !ok || len(mantissa) > 400 {
		return n
	}
	if value.IsInt() {
		return json.Number(value.RatString())
	}
	return map[string]string{"\x00number": value.RatString()} // "1/4" for 0.25 and 25e-2; no argument has such a name
}
