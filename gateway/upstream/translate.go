package upstream

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"pilder/gateway"
)

// translate turns one schema, and those inside it, into JSON Schema 2020-12, in place: the spellings of drafts 4 to 7 and of
// OpenAPI 3.0 become today's. It looks at schemas only, never at the values beside them: a property may be called "nullable".
func translate(s map[string]any, depth int) error {
	if depth > maxSchemaDepth {
		return fmt.Errorf("%w: it is nested too deeply", errSchema)
	}
	if err := references(s); err != nil {
		return err
	}
	renames(s)
	nullable(s)
	bounds(s)
	if pattern, has := s["pattern"].(string); has {
		if _, err := regexp.Compile(pattern); err != nil {
			delete(s, "pattern") // of another dialect: the upstream checks it
		}
	}
	for _, word := range []string{"title", "description"} {
		if text, has := s[word]; has {
			written, _ := text.(string)
			s[word] = gateway.OneLine(written, maxPropertyDoc)
		}
	}
	return inner(s, depth)
}

// references refuses what leads out of the schema, and takes away what would give its references another base.
func references(s map[string]any) error {
	for _, word := range []string{"$ref", "$dynamicRef"} {
		ref, has := s[word]
		if !has {
			continue
		}
		text, _ := ref.(string)
		if !strings.HasPrefix(text, "#") {
			return fmt.Errorf("%w: it refers to another document", errSchema)
		}
		s[word] = strings.Replace(text, "#/definitions/", "#/$defs/", 1)
	}
	for _, word := range []string{"$schema", "$id", "$vocabulary", "$comment", "example", "xml", "externalDocs", "discriminator"} {
		delete(s, word)
	}
	if _, isText := s["id"].(string); isText {
		delete(s, "id") // draft 4's $id
	}
	for word := range s {
		if strings.HasPrefix(word, "x-") {
			delete(s, word)
		}
	}
	return nil
}

// renames gives the keywords of older drafts their names of today.
func renames(s map[string]any) {
	if old, has := s["definitions"].(map[string]any); has {
		now, _ := s["$defs"].(map[string]any)
		if now == nil {
			now = map[string]any{}
		}
		for name, schema := range old {
			if _, taken := now[name]; !taken {
				now[name] = schema
			}
		}
		s["$defs"] = now
		delete(s, "definitions")
	}
	if tuple, has := s["items"].([]any); has {
		s["prefixItems"] = tuple
		delete(s, "items")
		if more, has := s["additionalItems"]; has {
			s["items"] = more
		}
	}
	delete(s, "additionalItems")
	old, _ := s["dependencies"].(map[string]any)
	delete(s, "dependencies")
	for name, needs := range old {
		word := "dependentSchemas"
		if _, isList := needs.([]any); isList {
			word = "dependentRequired"
		}
		now, _ := s[word].(map[string]any)
		if now == nil {
			now = map[string]any{}
			s[word] = now
		}
		now[name] = needs
	}
}

// nullable says OpenAPI's "nullable" with types. A const or an enum that null is not among takes it in.
func nullable(s map[string]any) {
	is := s["nullable"] == true
	if _, isBool := s["nullable"].(bool); isBool {
		delete(s, "nullable")
	}
	if !is {
		return
	}
	if values, has := s["enum"].([]any); has && !slices.Contains(values, nil) {
		s["enum"] = append(values, nil)
	}
	switch kind := s["type"].(type) {
	case string:
		s["type"] = []any{kind, "null"}
	case []any:
		if !slices.Contains(kind, any("null")) {
			s["type"] = append(kind, "null")
		}
	default:
		for _, word := range []string{"$ref", "anyOf", "oneOf", "allOf"} {
			if v, has := s[word]; has {
				delete(s, word)
				s["anyOf"] = []any{map[string]any{word: v}, map[string]any{"type": "null"}}
				return
			}
		}
	}
}

// bounds reads draft 4's "exclusiveMinimum": true, which says it of "minimum".
func bounds(s map[string]any) {
	for word, of := range map[string]string{"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"} {
		exclusive, isBool := s[word].(bool)
		if !isBool {
			continue
		}
		delete(s, word)
		if n, isNumber := s[of].(json.Number); exclusive && isNumber {
			s[word] = n
			delete(s, of)
		}
	}
	if _, isBool := s["required"].(bool); isBool {
		delete(s, "required") // draft 3 said it at the property; nobody reads it there any more
	}
}

// inner translates the schemas inside. Booleans are schemas too, and need nothing.
func inner(s map[string]any, depth int) error {
	for _, word := range []string{"properties", "patternProperties", "$defs", "dependentSchemas"} {
		named, _ := s[word].(map[string]any)
		for _, v := range named {
			if err := translateAny(v, depth); err != nil {
				return err
			}
		}
	}
	for _, word := range []string{"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
		"unevaluatedItems", "unevaluatedProperties"} {
		if err := translateAny(s[word], depth); err != nil {
			return err
		}
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf", "prefixItems"} {
		list, _ := s[word].([]any)
		for _, v := range list {
			if err := translateAny(v, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

func translateAny(v any, depth int) error {
	if s, isObject := v.(map[string]any); isObject {
		return translate(s, depth+1)
	}
	return nil
}
