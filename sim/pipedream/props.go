package pipedream

import (
	"fmt"
	"net/http"
	"slices"
)

// reload is what a dyp_ id stands for: bound to person, key and version.
type reload struct {
	externalUser, key, version string
	props                      []any
}

// reloadProps answers POST actions/props: the whole new set of props under a new dyp_ id.
func (s *Server) reloadProps(r request) answer {
	def, given := s.effective(r)
	if def == nil {
		return fail(http.StatusNotFound, "record not found")
	}
	a, refused := s.accountFor(r, def, given)
	if refused != nil {
		return *refused
	}
	if a != nil && !a.Healthy {
		f := failure{name: "Error", message: "invalid_grant"}
		return ok(object{"observations": []any{observation(f)}, "errors": []any{f.message}, "dynamicProps": nil})
	}
	base := clone(s.catalog.action(r.text("id"), r.text("version"))).(object)
	props, _ := base["configurable_props"].([]any)
	args, _ := arguments(base, given)
	props = s.grown(r.text("id"), props, args)
	id := s.marker(s.id("dyp_", 12))
	s.reloads[id] = reload{externalUser: r.text("external_user_id"), key: r.text("id"), version: r.text("version"), props: props}
	return ok(object{"observations": []any{}, "errors": []any{}, "dynamicProps": object{"id": id, "configurableProps": props}})
}

// ForgetReloads makes every dyp_ id unknown, as if its life were over.
func (s *Server) ForgetReloads() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.reloads)
}

// grown gives the props of an action once its reloadProps props have these values.
func (s *Server) grown(key string, props []any, args object) []any {
	reveal := func(names ...string) {
		for _, p := range props {
			if p := p.(object); slices.Contains(names, fmt.Sprint(p["name"])) {
				delete(p, "hidden")
			}
		}
	}
	text := func(name, label, description string) object {
		return object{"name": name, "type": "string", "label": label, "description": description, "optional": true}
	}
	switch key {
	case "google_calendar-update-event":
		if args["repeatFrequency"] != nil {
			reveal("repeatInterval", "repeatUntil", "repeatTimes")
		}
	case "notion-append-block":
		reveal(list(args["blockTypes"])...)
	case "notion-create-page", "notion-update-page":
		chosen := list(args["metaTypes"])
		if slices.Contains(chosen, "icon") {
			props = append(props, text("icon", "Icon Emoji", "Emoji for the page."))
		}
		if slices.Contains(chosen, "cover") {
			props = append(props, text("cover", "Cover URL", "Cover picture address."))
		}
	}
	if key == "notion-create-page-from-database" || key == "notion-update-page" {
		for _, c := range s.columns() {
			if slices.Contains(list(args["propertyTypes"]), fmt.Sprint(c["name"])) || c["always"] == true {
				c := clone(c).(object)
				delete(c, "always")
				props = append(props, c)
			}
		}
	}
	return props
}

// columns are the columns of the one Notion table, as props: names are free text, and two of them may collide when made
// safe. With ColumnsChange every reload has one more.
func (s *Server) columns() []object {
	out := []object{
		{"name": "Due date", "type": "string", "label": "Due date", "optional": true},
		{"name": "Étape / Status", "type": "string", "label": "Étape / Status", "options": []any{"Todo", "Doing", "Done"}, "optional": true},
	}
	if s.switches.ColumnsCollide {
		out = append(out, object{"name": "Etape-Status", "type": "string", "label": "Etape-Status", "optional": true, "always": true},
			object{"name": "Etape Status", "type": "string", "label": "Etape Status", "optional": true, "always": true},
			object{"name": "Etape: Status", "type": "string", "label": "Etape: Status", "optional": true, "always": true})
	}
	if s.switches.ColumnsChange {
		for i := range len(s.reloads) {
			name := fmt.Sprintf("Column %d", i+1)
			out = append(out, object{"name": name, "type": "string", "label": name, "optional": true, "always": true})
		}
	}
	return out
}
