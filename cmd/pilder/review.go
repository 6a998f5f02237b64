package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"pilder/store"
)

func toolsReviewCommand() *cobra.Command {
	return &cobra.Command{
		Use: "review", Short: "what the registry says otherwise of the actions in use: nothing of it was taken over", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return withDefinitions(cmd, func(_ *store.Store, all []store.Definition) error {
				reviewDefinitions(cmd.OutOrStdout(), all)
				return nil
			})
		},
	}
}

func toolsAcceptCommand() *cobra.Command {
	return &cobra.Command{
		Use: "accept ACTION", Short: "use a definition that changed under its pinned version, as `tools review` shows it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return withDefinitions(cmd, func(s *store.Store, _ []store.Definition) error {
				err := s.AcceptDefinition(cmd.Context(), args[0])
				if errors.Is(err, store.ErrNotFound) {
					return usageError("nothing of %s waits under its pinned version; a newer version is pinned in configs/apps", args[0])
				}
				if err == nil {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: accepted; running servers take it over at their next look, new ones at once\n", args[0])
				}
				return err
			})
		},
	}
}

// withDefinitions opens the store for what is kept of the registry.
func withDefinitions(cmd *cobra.Command, f func(*store.Store, []store.Definition) error) error {
	cfg, err := loadConfig(cmd)
	if err != nil {
		return err
	}
	s, err := openStore(cmd.Context(), cfg)
	if err != nil {
		return err
	}
	all, err := s.Definitions(cmd.Context())
	if err == nil {
		err = f(s, all)
	}
	return errors.Join(err, s.Close())
}

// reviewDefinitions prints each action that waits for review, with what differs.
func reviewDefinitions(out io.Writer, all []store.Definition) {
	waiting := 0
	for _, d := range all {
		if d.NextVersion == "" {
			continue
		}
		waiting++
		what := fmt.Sprintf("changed under version %s; take it over with: pilder tools accept %s", d.Version, d.Action)
		if d.NextVersion != d.Version {
			what = fmt.Sprintf("version %.40q is there, %s is pinned; take it over by pinning it in configs/apps", d.NextVersion, d.Version)
		}
		fmt.Fprintf(out, "%s: %s\n", d.Action, what)
		for _, line := range differences("", reviewed(d.Text), reviewed(d.NextText)) {
			fmt.Fprintln(out, "  "+line)
		}
	}
	fmt.Fprintf(out, "%d of %d definitions wait for review\n", waiting, len(all))
}

// reviewed is the part of a definition that its hash covers, with props by name: their order is told by "position".
func reviewed(text []byte) any {
	var in map[string]any
	if json.Unmarshal(text, &in) != nil {
		return string(text)
	}
	props := map[string]any{}
	list, _ := in["configurable_props"].([]any)
	for i, p := range list {
		object, _ := p.(map[string]any)
		if object == nil {
			continue
		}
		object["position"] = i
		props[fmt.Sprint(object["name"])] = object
	}
	return map[string]any{"description": in["description"], "props": props, "annotations": in["annotations"], "stash": in["stash"]}
}

// differences lists what two JSON values differ in, one line each: the path, and both sides. The registry's text is quoted,
// so that nothing in it reaches a terminal as it is.
func differences(path string, before, after any) (lines []string) {
	a, isObject := before.(map[string]any)
	b, both := after.(map[string]any)
	if !isObject || !both {
		x, y := quoted(before), quoted(after)
		if x != y {
			lines = append(lines, "- "+path+": "+x, "+ "+path+": "+y)
		}
		return lines
	}
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		name := fmt.Sprintf("%.80q", k)
		lines = append(lines, differences(path+"/"+name[1:len(name)-1], a[k], b[k])...)
	}
	return lines
}

// quoted writes a JSON value in ASCII, at most 300 characters of it.
func quoted(v any) string {
	if v == nil {
		return "(none)"
	}
	if s, ok := v.(string); ok {
		return short(fmt.Sprintf("%+q", s))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return "(unreadable)"
	}
	text := fmt.Sprintf("%+q", bytes.TrimSpace(b.Bytes()))
	return short(text[1 : len(text)-1])
}

func short(s string) string {
	if len(s) > 300 {
		return s[:300] + "…"
	}
	return s
}
