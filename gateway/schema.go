package gateway

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

const (
	// maxArgs bounds the arguments of one call, in bytes (the connector of apps has the same).
	maxArgs = 64 << 10
	// maxProblems is how many faults are told at once: more only fill the model's context.
	maxProblems = 12
	// maxSchemas bounds the compiled schemas kept. Beyond it all are dropped; the next calls compile anew.
	maxSchemas = 4096
)

// problem is one fault of the arguments: where, as a JSON Pointer, and what was expected there.
type problem struct {
	Path     string `json:"path"`
	Expected string `json:"expected"`
}

// schemas compiles each JSON Schema once, however many runs list the tool.
type schemas struct {
	mu       sync.Mutex
	compiled map[[32]byte]*jsonschema.Schema
}

func newSchemas() *schemas { return &schemas{compiled: map[[32]byte]*jsonschema.Schema{}} }

// check returns what is wrong with the arguments of a call, nil when nothing is. The error is the schema's fault.
func (s *schemas) check(schema, args json.RawMessage) ([]problem, error) {
	if len(args) > maxArgs {
		return []problem{{"", fmt.Sprintf("at most %d bytes of arguments", maxArgs)}}, nil
	}
	if path, ok := readable(args); !ok {
		return []problem{{path, "well-formed JSON that names each property once and is nested no deeper than 64"}}, nil
	}
	compiled, err := s.compile(schema)
	if err != nil {
		return nil, err
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(args))
	if err != nil {
		return []problem{{"", "one JSON object"}}, nil
	}
	var invalid *jsonschema.ValidationError
	if err := compiled.Validate(value); errors.As(err, &invalid) {
		return problems(invalid), nil
	} else if err != nil {
		return nil, err
	}
	return nil, nil
}

// compile reads a schema as JSON Schema 2020-12. It refuses every reference that leaves the document, so that no schema
// makes the gateway fetch or open anything.
func (s *schemas) compile(schema json.RawMessage) (*jsonschema.Schema, error) {
	key := sha256.Sum256(schema)
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.compiled[key]; ok {
		return c, nil
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(schema))
	if err != nil {
		return nil, fmt.Errorf("reading schema: %w", err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	const name = "pilder:schema"
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("reading schema: %w", err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("compiling schema: %w", err)
	}
	if len(s.compiled) >= maxSchemas {
		clear(s.compiled)
	}
	s.compiled[key] = compiled
	return compiled, nil
}

type noLoader struct{}

func (noLoader) Load(string) (any, error) {
	return nil, errors.New("references outside the schema are refused")
}

// problems flattens a validation error into its leaves: the groups above them say nothing a model could act on.
func problems(e *jsonschema.ValidationError) []problem {
	var out []problem
	english := message.NewPrinter(language.English)
	var walk func(*jsonschema.ValidationError)
	walk = func(e *jsonschema.ValidationError) {
		if len(out) >= maxProblems {
			return
		}
		if len(e.Causes) == 0 {
			expected := e.ErrorKind.LocalizedString(english)
			if k, ok := e.ErrorKind.(*kind.Pattern); ok {
				expected = "a text that matches " + k.Want
			}
			out = append(out, problem{pointer(e.InstanceLocation), expected})
		}
		for _, c := range e.Causes {
			walk(c)
		}
	}
	walk(e)
	return out
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

func pointer(path []string) string {
	var b strings.Builder
	for _, p := range path {
		b.WriteString("/" + pointerEscapes.Replace(p))
	}
	return b.String()
}

// readable tells whether arguments are one UTF-8 JSON object without doubled property names at any depth: of two values
// under one name, policy might read one and an app the other. Otherwise it says where it stopped.
func readable(args []byte) (path string, ok bool) {
	if !utf8.Valid(args) || !json.Valid(args) || bytes.TrimLeft(args, " \t\r\n")[0] != '{' {
		return "", false
	}
	dec := json.NewDecoder(bytes.NewReader(args))
	dec.UseNumber()
	path, err := readValue(dec, 0)
	if err == nil {
		_, err = dec.Token()
	}
	return path, errors.Is(err, io.EOF)
}

var (
	errDoubled = errors.New("property named twice")
	errDeep    = errors.New("nested too deep")
)

// maxDepth is how deep arguments may be nested: no action needs more, and each level costs.
const maxDepth = 64

// readValue reads one value and says where in it something is wrong.
func readValue(dec *json.Decoder, depth int) (at string, err error) {
	token, err := dec.Token()
	if err != nil {
		return "", err
	}
	delim, _ := token.(json.Delim)
	if delim != 0 && depth >= maxDepth {
		return "", errDeep
	}
	seen := map[string]bool{}
	for i := 0; delim != 0 && dec.More(); i++ {
		key := strconv.Itoa(i)
		if delim == '{' {
			name, err := dec.Token()
			if err != nil {
				return "", err
			}
			key = name.(string) // a member's name is always a text
			if seen[key] {
				return pointer([]string{key}), errDoubled
			}
			seen[key] = true
		}
		if at, err = readValue(dec, depth+1); err != nil {
			return pointer([]string{key}) + at, err
		}
	}
	if delim != 0 {
		_, err = dec.Token() // the closing bracket
	}
	return "", err
}
