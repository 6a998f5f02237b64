package pipedream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
)

// catalog is the apps and the action definitions, newest version of a key last.
type catalog struct {
	apps    []object
	actions []object
}

// readCatalog reads the fixtures.
func readCatalog(files fs.FS) (catalog, error) {
	var c catalog
	var apps struct {
		Response struct{ Body struct{ Data []object } }
	}
	if err := readJSON(files, "fixtures/examples/apps.list.200.json", &apps); err != nil {
		return c, err
	}
	c.apps = apps.Response.Body.Data
	for _, a := range c.apps {
		if a["name_slug"] == "asana" {
			continue // offered to connect; no action of it was read
		}
		var list struct{ Data []object }
		if err := readJSON(files, fmt.Sprintf("fixtures/%s.json", a["name_slug"]), &list); err != nil {
			return c, err
		}
		c.actions = append(c.actions, list.Data...)
	}
	return c, nil
}

// readJSON decodes one fixture.
func readJSON(files fs.FS, name string, into any) error {
	raw, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading fixture %s: %w", name, err)
	}
	return nil
}

// app gives the app of that slug, or a bare one for a slug no fixture knows.
func (c catalog) app(slug string) object {
	for _, a := range c.apps {
		if a["name_slug"] == slug {
			return a
		}
	}
	return object{"id": nil, "name_slug": slug, "name": slug, "auth_type": "oauth"}
}

// action gives the definition of key at version, the newest without one, nil when there is none.
func (c catalog) action(key, version string) object {
	for _, a := range slices.Backward(c.actions) {
		if a["key"] == key && (version == "" || a["version"] == version) {
			return a
		}
	}
	return nil
}

// SetAction adds a definition: a newer version of a key, a changed definition under the same version, or a new key. It
// survives Reset, as a registry would.
func (s *Server) SetAction(def map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catalog.actions = append(slices.DeleteFunc(s.catalog.actions, func(a object) bool {
		return a["key"] == def["key"] && a["version"] == def["version"]
	}), clone(def).(object))
}

// Action gives a copy of a definition, to change and hand to SetAction; nil when there is none.
func (s *Server) Action(key string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if def := s.catalog.action(key, ""); def != nil {
		return clone(def).(object)
	}
	return nil
}

// serveApps answers the app list and one app.
func (s *Server) serveApps(r request, rest []string) answer {
	switch {
	case r.method == http.MethodGet && len(rest) == 0:
		var all []any
		for _, a := range s.catalog.apps {
			if q := strings.ToLower(r.query.Get("q")); q == "" || strings.Contains(strings.ToLower(fmt.Sprint(a["name"], a["name_slug"])), q) {
				all = append(all, a)
			}
		}
		return ok(s.page(r, all, "name_slug"))
	case r.method == http.MethodGet && len(rest) == 1:
		for _, a := range s.catalog.apps {
			if a["name_slug"] == rest[0] || a["id"] == rest[0] {
				return ok(object{"data": a})
			}
		}
		return fail(http.StatusNotFound, "record not found")
	}
	return fail(http.StatusNotFound, "not found")
}

// listActions answers the newest version of each action, with or without props.
func (s *Server) listActions(r request) answer {
	var all []any
	for _, a := range s.catalog.actions {
		key := fmt.Sprint(a["key"])
		if newest := s.catalog.action(key, ""); newest["version"] != a["version"] {
			continue
		}
		if app := r.query.Get("app"); app != "" && !strings.HasPrefix(key, app+"-") {
			continue
		}
		if q := r.query.Get("q"); q != "" && !strings.Contains(strings.ToLower(key+" "+fmt.Sprint(a["name"])), strings.ToLower(q)) {
			continue
		}
		if s.switches.ListWithout {
			a = object{"name": a["name"], "version": a["version"], "key": key}
		}
		all = append(all, a)
	}
	return ok(s.page(r, all, "key"))
}

// getAction answers one definition.
func (s *Server) getAction(r request, key string) answer {
	def := s.catalog.action(key, r.query.Get("version"))
	if def == nil {
		return fail(http.StatusNotFound, "record not found")
	}
	return ok(object{"data": def})
}

// prop is what the stand-in needs to know of a prop definition.
type prop struct {
	Name     string `json:"name"`
	Type     string `json:"type"`
	App      string `json:"app"`
	Optional bool   `json:"optional"`
	Hidden   bool   `json:"hidden"`
}

// propsOf reads the props of a definition, in order.
func propsOf(def object) []prop {
	raw, err := json.Marshal(def["configurable_props"])
	var out []prop
	if err = cmp.Or(err, json.Unmarshal(raw, &out)); err != nil {
		return nil // a definition made by a test with other shapes has no props here
	}
	return out
}
