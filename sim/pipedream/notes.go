package pipedream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Ids of the seeded Notion objects, those of the fixtures.
const (
	untitledPage = "11111111-2222-3333-4444-555555555555"
	taskTable    = "99999999-2222-3333-4444-555555555555"
)

// notebook is one Notion workspace: pages with blocks, and one table.
type notebook struct {
	pages    []*page // rows of the table among them
	comments []object
	serial   int
}

// page is one page. A row has values of columns.
type page struct {
	id, parent, title string
	archived          bool
	values            object
	blocks            []object // {id, type, text}
	edited            time.Time
}

// newNotebook has three pages and a table of two tasks.
func newNotebook(now time.Time) *notebook {
	n := &notebook{}
	n.pages = append(n.pages,
		&page{id: untitledPage, title: "Untitled", edited: now},
		&page{id: "11111111-2222-3333-4444-666666666666", title: "Objetivos del trimestre", edited: now,
			blocks: []object{n.block("Crecer un 10 %."), n.block("Contratar a dos personas.")}},
		&page{id: "11111111-2222-3333-4444-777777777777", title: "Guía de bienvenida", edited: now,
			blocks: []object{n.block("El primer día: portátil, cuentas y café.")}})
	n.row("Preparar la demo", object{"Due date": "2026-12-05", "Étape / Status": "Doing"}, now)
	n.row("Renovar el dominio", object{"Étape / Status": "Todo"}, now)
	return n
}

// next makes an id in Notion's form.
func (n *notebook) next() string {
	n.serial++
	return fmt.Sprintf("22222222-0000-4000-8000-%012d", n.serial)
}

func (n *notebook) block(content string) object {
	return object{"id": n.next(), "type": "paragraph", "text": content}
}

func (n *notebook) row(title string, values object, now time.Time) *page {
	p := &page{id: n.next(), parent: taskTable, title: title, values: values, edited: now}
	n.pages = append(n.pages, p)
	return p
}

// perform runs one Notion action.
func (n *notebook) perform(action string, args object, now time.Time) (any, string, error) {
	switch action {
	case "search":
		return n.search(args)
	case "create-page", "create-page-from-database":
		return n.create(action, args, now)
	case "query-database", "retrieve-database-content":
		return n.rows(args)
	case "retrieve-database-schema":
		if text(args, "dataSourceId") != taskTable {
			return nil, "", upstream(http.StatusNotFound, "Could not find data source.")
		}
		return table(), "Retrieved the columns", nil
	case "list-all-users":
		return []any{object{"object": "user", "id": "user-1", "name": "Marta Ejemplo", "type": "person"}}, "Found 1 user", nil
	case "get-current-user":
		return object{"object": "user", "id": "user-0", "name": "Integración de ejemplo", "type": "bot"}, "Retrieved the current user", nil
	case "create-comment":
		return n.comment(args)
	case "update-block", "delete-block":
		return n.onBlock(action, args)
	}
	return n.onPage(action, args, now)
}

// table is the one data source.
func table() object {
	return object{"object": "data_source", "id": taskTable, "title": []any{object{"plain_text": "Tareas"}}, "properties": object{
		"Name": object{"type": "title"}, "Due date": object{"type": "date"}, "Étape / Status": object{"type": "status"}}}
}

// show is a page in the form of Notion's API.
func (p *page) show() object {
	properties := object{"title": object{"type": "title", "title": []any{object{"plain_text": p.title}}}}
	for k, v := range p.values {
		properties[k] = object{"type": "rich_text", "plain_text": v}
	}
	out := object{"object": "page", "id": p.id, "archived": p.archived, "url": "https://notes.example.com/" + p.id,
		"last_edited_time": p.edited.UTC().Format(time.RFC3339), "properties": properties}
	if p.parent != "" {
		out["parent"] = object{"id": p.parent}
	}
	return out
}

// search is notion-search: pages and the table, by title.
func (n *notebook) search(args object) (any, string, error) {
	want := strings.ToLower(text(args, "title"))
	out := []any{}
	if kind := text(args, "filter"); kind != "data_source" {
		for _, p := range n.pages {
			if !p.archived && strings.Contains(strings.ToLower(p.title), want) {
				out = append(out, p.show())
			}
		}
	}
	if kind := text(args, "filter"); kind != "page" && strings.Contains("tareas", want) {
		out = append(out, table())
	}
	if size := number(args["pageSize"]); size > 0 && size < len(out) {
		out = out[:size]
	}
	return object{"object": "list", "results": out, "has_more": false, "next_cursor": nil}, fmt.Sprintf("Found %d object(s)", len(out)), nil
}

// create makes a page below a page, or a row of the table.
func (n *notebook) create(action string, args object, now time.Time) (any, string, error) {
	p := &page{id: n.next(), edited: now, title: "Untitled"}
	if t := text(args, "title"); t != "" {
		p.title = t
	}
	if action == "create-page-from-database" {
		if text(args, "parentDataSource") != taskTable {
			return nil, "", upstream(http.StatusNotFound, "Could not find data source.")
		}
		p.parent = taskTable
		p.setColumns(args)
	} else {
		p.parent = text(args, "parent")
		if n.find(p.parent) == nil {
			return nil, "", upstream(http.StatusNotFound, "Could not find page.")
		}
	}
	if c := text(args, "pageContent"); c != "" {
		p.blocks = append(p.blocks, n.block(c))
	}
	n.pages = append(n.pages, p)
	return p.show(), "Created the page " + p.title, nil
}

// setColumns takes column values from properties and from the props a reload added.
func (p *page) setColumns(args object) {
	if p.values == nil {
		p.values = object{}
	}
	given, _ := args["properties"].(object)
	for k, v := range given {
		p.values[k] = v
	}
	known := []string{"parentDataSource", "templateType", "propertyTypes", "properties", "icon", "cover", "pageContent", "pageId", "archived", "metaTypes"}
	for k, v := range args {
		if !slices.Contains(known, k) {
			p.values[k] = v
		}
	}
	if t, isText := p.values["Name"].(string); isText {
		p.title = t
	}
}

// find gives a page that is not in the trash, or nil.
func (n *notebook) find(id string) *page {
	i := slices.IndexFunc(n.pages, func(p *page) bool { return p.id == id && !p.archived })
	if i < 0 {
		return nil
	}
	return n.pages[i]
}

// rows gives the table. Filters are Notion's own JSON; the stand-in looks at whether they are JSON and no further.
func (n *notebook) rows(args object) (any, string, error) {
	if text(args, "dataSourceId") != taskTable {
		return nil, "", upstream(http.StatusNotFound, "Could not find data source.")
	}
	if f := text(args, "filter"); f != "" && !json.Valid([]byte(f)) {
		return nil, "", upstream(http.StatusBadRequest, "body failed validation: body.filter should be an object.")
	}
	out := []any{}
	for _, p := range n.pages {
		if p.parent == taskTable && !p.archived {
			out = append(out, p.show())
		}
	}
	return out, fmt.Sprintf("Found %d row(s)", len(out)), nil
}

// onPage runs the actions on one page.
func (n *notebook) onPage(action string, args object, now time.Time) (any, string, error) {
	id := text(args, "pageId")
	if action == "retrieve-block" {
		id = text(args, "blockId")
	}
	p := n.find(id)
	if p == nil {
		return nil, "", upstream(http.StatusNotFound, "not found")
	}
	switch action {
	case "retrieve-page":
		return p.show(), "Retrieved the page " + p.title, nil
	case "retrieve-block":
		out := object{"block": p.show(), "children": p.blocks}
		if args["retrieveMarkdown"] == true {
			var md []string
			for _, b := range p.blocks {
				md = append(md, fmt.Sprint(b["text"]))
			}
			out["markdown"] = strings.Join(md, "\n\n")
		}
		return out, "Retrieved the content of " + p.title, nil
	case "append-block":
		added := 0
		for _, name := range []string{"blockIds", "markdownContents", "imageUrls"} {
			for _, c := range list(args[name]) {
				p.blocks = append(p.blocks, n.block(c))
				added++
			}
		}
		if added == 0 {
			return nil, "No block was added", nil
		}
		return object{"results": p.blocks[len(p.blocks)-added:]}, fmt.Sprintf("Added %d block(s)", added), nil
	case "update-page":
		p.setColumns(args)
		p.archived = args["archived"] == true
		p.edited = now
		return p.show(), "Updated the page " + p.title, nil
	}
	return nil, "", failure{name: "Error", message: "this action is not played"}
}

// onBlock changes or trashes a block, or a page, which is a block too.
func (n *notebook) onBlock(action string, args object) (any, string, error) {
	id := text(args, "blockId")
	if p := n.find(id); p != nil && action == "delete-block" {
		p.archived = true
		return object{"object": "block", "id": id, "archived": true}, "Deleted the block", nil
	}
	for _, p := range n.pages {
		i := slices.IndexFunc(p.blocks, func(b object) bool { return b["id"] == id })
		switch {
		case i < 0:
		case action == "delete-block":
			p.blocks = slices.Delete(p.blocks, i, i+1)
			return object{"object": "block", "id": id, "archived": true}, "Deleted the block", nil
		case !json.Valid([]byte(text(args, "content"))):
			return nil, "", misused("content is no JSON.")
		default:
			p.blocks[i]["text"] = text(args, "content")
			return p.blocks[i], "Updated the block", nil
		}
	}
	return nil, "", upstream(http.StatusNotFound, "Could not find block.")
}

// comment is create-comment, on a page or in a discussion.
func (n *notebook) comment(args object) (any, string, error) {
	if text(args, "pageId") == "" && text(args, "discussionId") == "" {
		return nil, "", misused("Give a page or a discussion.")
	}
	c := object{"object": "comment", "id": n.next(), "text": text(args, "comment"), "parent": text(args, "pageId")}
	n.comments = append(n.comments, c)
	return c, "Created the comment", nil
}

// choices of Notion: null ends a list, and null sent back starts over.
func (n *notebook) choices(q ask) choices {
	end := object{"nextPageParameters": nil}
	switch q.prop {
	case "parent", "pageId", "blockId", "blockIds":
		out := []any{}
		for _, p := range n.pages {
			if !p.archived && strings.Contains(strings.ToLower(p.title), q.query) {
				out = append(out, option(p.title, p.id))
			}
		}
		return choices{options: out, context: end}
	case "parentDataSource", "dataSourceId":
		return choices{options: []any{option("Tareas", taskTable)}, context: end}
	case "propertyTypes":
		if text(q.args, "parentDataSource") != taskTable {
			return choices{err: failure{name: "Error", message: "parentDataSource is not set"}}
		}
		return choices{options: []any{option("Due date", "Due date"), option("Étape / Status", "Étape / Status")}}
	}
	return choices{err: failure{name: "Error", message: "this prop has no choices"}}
}
