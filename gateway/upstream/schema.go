package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Limits of an input schema: what stays in the model's context, and what a host still takes.
const (
	maxSchema      = 32 << 10 // bytes
	maxSchemaDepth = 24
	maxPropertyDoc = 500 // characters of a description inside
)

// errSchema says that a schema cannot be made into one that every host takes.
var errSchema = errors.New("schema cannot be offered")

// propertyName is what model APIs take as an argument's name; any other costs the whole conversation.
var propertyName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// inputSchema makes an upstream's input schema one of JSON Schema 2020-12 whose root is a plain object. It keeps what it
// says: what older drafts and OpenAPI spell differently is translated, and only variants at the root are flattened, since
// hosts drop a tool that has some. note tells the model what that lost.
func inputSchema(raw json.RawMessage) (schema json.RawMessage, note string, err error) {
	if len(raw) > maxSchema {
		return nil, "", fmt.Errorf("%w: it has %d bytes", errSchema, len(raw))
	}
	root, isObject := decode(raw).(map[string]any)
	if len(bytes.TrimSpace(raw)) == 0 || string(raw) == "null" {
		root, isObject = map[string]any{}, true
	}
	if !isObject {
		return nil, "", fmt.Errorf("%w: it is no object", errSchema)
	}
	if err := translate(root, 0); err != nil {
		return nil, "", err
	}
	if root, err = resolveRoot(root); err != nil {
		return nil, "", err
	}
	if note, err = flatten(root); err != nil {
		return nil, "", err
	}
	if err := plainObject(root); err != nil {
		return nil, "", err
	}
	if err := expandable(root); err != nil {
		return nil, "", err
	}
	schema, err = encode(root)
	return schema, note, err
}

// plainObject makes the root say that it is an object, and refuses argument names that hosts refuse.
func plainObject(root map[string]any) error {
	switch kind := root["type"].(type) {
	case nil:
	case string:
		if kind != "object" {
			return fmt.Errorf("%w: its root is of type %.20s", errSchema, kind)
		}
	case []any:
		if !slices.Contains(kind, any("object")) {
			return fmt.Errorf("%w: its root is no object", errSchema)
		}
	}
	root["type"] = "object"
	props, _ := root["properties"].(map[string]any)
	for name := range props {
		if !propertyName.MatchString(name) {
			return fmt.Errorf("%w: an argument's name is one that hosts refuse", errSchema)
		}
	}
	return nil
}

// resolveRoot replaces a root that is only a reference into its own definitions.
func resolveRoot(root map[string]any) (map[string]any, error) {
	ref, has := root["$ref"].(string)
	if !has {
		return root, nil
	}
	name, ok := strings.CutPrefix(ref, "#/$defs/")
	defs, _ := root["$defs"].(map[string]any)
	target, isObject := defs[name].(map[string]any)
	if !ok || !isObject || target["$ref"] != nil {
		return nil, fmt.Errorf("%w: its root refers to nothing", errSchema)
	}
	out := maps.Clone(target)
	out["$defs"] = root["$defs"]
	return out, nil
}

// flatten takes variants out of the root. What all of allOf say holds; of anyOf and oneOf the properties of every variant
// may be given, and only what each of them requires is required. The upstream still checks the rest.
func flatten(root map[string]any) (note string, err error) {
	if err := absorb(root, root["allOf"]); err != nil {
		return "", err
	}
	delete(root, "allOf")
	var sets []string
	for _, word := range []string{"anyOf", "oneOf"} {
		variants, has := root[word].([]any)
		if !has {
			continue
		}
		delete(root, word)
		required, names, err := unite(root, variants)
		if err != nil {
			return "", err
		}
		require(root, required)
		sets = append(sets, names...)
	}
	for _, word := range []string{"not", "if", "then", "else", "dependentSchemas"} {
		delete(root, word) // hosts that drop variants drop these too, and the upstream checks them
	}
	if len(sets) > 0 {
		note = "Give the arguments of one of these sets: " + strings.Join(sets, " or ") + "."
	}
	return note, nil
}

// absorb merges what all of the schemas say into the root.
func absorb(root map[string]any, all any) error {
	list, _ := all.([]any)
	for _, v := range list {
		part, isObject := v.(map[string]any)
		if !isObject || part["$ref"] != nil || part["anyOf"] != nil || part["oneOf"] != nil || part["allOf"] != nil {
			return fmt.Errorf("%w: its root is nested variants", errSchema)
		}
		merge(root, part)
		require(root, texts(part["required"]))
		if part["additionalProperties"] == false {
			return fmt.Errorf("%w: the parts of its root exclude each other", errSchema)
		}
	}
	return nil
}

// unite merges the variants' properties into the root and gives what all of them require, and what each of them does.
func unite(root map[string]any, variants []any) (required []string, sets []string, err error) {
	for i, v := range variants {
		part, isObject := v.(map[string]any)
		if isObject && part["type"] == "null" {
			continue
		}
		if !isObject || part["$ref"] != nil || part["anyOf"] != nil || part["oneOf"] != nil || part["allOf"] != nil {
			return nil, nil, fmt.Errorf("%w: its root is nested variants", errSchema)
		}
		merge(root, part)
		own := texts(part["required"])
		sets = append(sets, "("+strings.Join(own, ", ")+")")
		if i == 0 {
			required = own
			continue
		}
		required = slices.DeleteFunc(required, func(name string) bool { return !slices.Contains(own, name) })
	}
	return required, sets, nil
}

// merge puts a part's properties into the root; one that both have may be as either says.
func merge(root, part map[string]any) {
	props, _ := root["properties"].(map[string]any)
	if props == nil {
		props = map[string]any{}
		root["properties"] = props
	}
	more, _ := part["properties"].(map[string]any)
	for name, schema := range more {
		if there, has := props[name]; has && !reflect.DeepEqual(there, schema) {
			schema = map[string]any{"anyOf": []any{there, schema}}
		}
		props[name] = schema
	}
}

func require(root map[string]any, names []string) {
	all := append(texts(root["required"]), names...)
	slices.Sort(all)
	if all = slices.Compact(all); len(all) > 0 {
		list := make([]any, len(all))
		for i, n := range all {
			list[i] = n
		}
		root["required"] = list
	}
}

func texts(list any) []string {
	values, _ := list.([]any)
	var out []string
	for _, v := range values {
		if text, is := v.(string); is {
			out = append(out, text)
		}
	}
	return out
}

// decode decodes JSON with numbers as they are written; nil for what is none.
func decode(raw json.RawMessage) any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil
	}
	return v
}

// encode is JSON without the HTML escapes, which a model would have to read around. Members are sorted.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimRight(b.Bytes(), "\n"), nil
}
