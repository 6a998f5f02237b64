package upstream

import (
	"fmt"
	"strings"
)

// maxExpanded is how many places a schema may have once every reference stands for what it names. Checking arguments walks
// them all, again for each: references that fan out double the work with each level.
const maxExpanded = 10_000

// expandable refuses a schema that cannot be checked in reasonable time: one that refers to itself, or whose references fan
// out.
func expandable(root map[string]any) error {
	e := expansion{root: root, of: map[string]int{}, open: map[string]bool{}}
	if n := e.places(root); n > maxExpanded {
		return fmt.Errorf("%w: its references fan out, or lead back to themselves", errSchema)
	}
	return nil
}

type expansion struct {
	root map[string]any
	of   map[string]int  // places behind a reference
	open map[string]bool // references that are being followed
}

// places counts, and stops counting beyond maxExpanded.
func (e expansion) places(node any) int {
	n := 1
	switch v := node.(type) {
	case map[string]any:
		if ref, ok := v["$ref"].(string); ok {
			n += e.behind(ref)
		}
		for _, inner := range v {
			if n += e.places(inner); n > maxExpanded {
				return n
			}
		}
	case []any:
		for _, inner := range v {
			if n += e.places(inner); n > maxExpanded {
				return n
			}
		}
	}
	return n
}

func (e expansion) behind(ref string) int {
	if n, known := e.of[ref]; known {
		return n
	}
	if e.open[ref] {
		return maxExpanded + 1
	}
	e.open[ref] = true
	n := e.places(e.target(ref))
	delete(e.open, ref)
	e.of[ref] = n
	return n
}

// target is what a reference within the document names; nil when there is no such thing, which the compiler refuses.
func (e expansion) target(ref string) any {
	var node any = e.root
	pointer, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		object, isObject := node.(map[string]any)
		if !isObject || part == "" {
			return node
		}
		node = object[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return node
}
