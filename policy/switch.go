package policy

import (
	"errors"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// WithHouse is a policy file with one rule of the house switched, and all else as it was, comments too.
func WithHouse(text, rule string, e Effect) (string, error) {
	if _, err := Parse([]byte(text)); err != nil {
		return "", err
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "", yamlError(err)
	}
	if len(doc.Content) == 0 { // nothing but comments
		doc = yaml.Node{Kind: yaml.DocumentNode, HeadComment: doc.HeadComment, Content: []*yaml.Node{{Kind: yaml.MappingNode}}}
	}
	if doc.Content[0].Kind != yaml.MappingNode { // "null"
		doc.Content[0] = &yaml.Node{Kind: yaml.MappingNode}
	}
	house := member(doc.Content[0], "house")
	if house.Kind != yaml.MappingNode {
		*house = yaml.Node{Kind: yaml.MappingNode}
	}
	*member(house, rule) = yaml.Node{Kind: yaml.ScalarNode, Value: e.String()}
	var b strings.Builder
	out := yaml.NewEncoder(&b)
	out.SetIndent(2)
	if err := errors.Join(out.Encode(&doc), out.Close()); err != nil {
		return "", fmt.Errorf("writing a policy: %w", err)
	}
	if _, err := Parse([]byte(b.String())); err != nil {
		return "", err
	}
	return b.String(), nil
}

// member gives the value of a key, which is made if it is not there.
func member(m *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == key {
			return m.Content[i+1]
		}
	}
	value := &yaml.Node{}
	m.Content = append(m.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: key}, value)
	return value
}
