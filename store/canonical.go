package store

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
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
		if _, err := v.Int64(); err == nil {
			return v // exact, also beyond 2^53
		}
		f, err := v.Float64()
		switch {
		case err != nil:
			return v
		case f == math.Trunc(f) && math.Abs(f) < 1<<53:
			return json.Number(strconv.FormatInt(int64(f), 10))
		default:
			return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
		}
	}
	return v
}
