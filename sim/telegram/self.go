package telegram

import (
	"encoding/json"
	"regexp"
	"unicode/utf8"
)

const (
	commandsLimit    = 100
	descriptionLimit = 256
)

// Command is one line of the bot's menu.
type Command struct {
	Command     string `json:"command"`
	Description string `json:"description"`
}

var commandName = regexp.MustCompile(`^[a-z0-9_]{1,32}$`)

func (s *Server) getMe(*call) (any, string, *apiError) {
	return struct {
		User
		JoinGroups bool `json:"can_join_groups"`
		ReadAll    bool `json:"can_read_all_group_messages"`
		Inline     bool `json:"supports_inline_queries"`
		Business   bool `json:"can_connect_to_business"`
		WebApp     bool `json:"has_main_web_app"`
	}{User: s.bot, JoinGroups: true}, "", nil
}

// menu is the key under which a menu is kept: scope and language.
func menu(c *call) (string, *apiError) {
	scope := "default"
	if text := c.params["scope"]; text != "" {
		var fields map[string]any
		if json.Unmarshal([]byte(text), &fields) != nil || fields == nil {
			return "", badRequest("can't parse BotCommandScope: Object expected")
		}
		if kind, _ := fields["type"].(string); kind != "default" {
			canonical, err := json.Marshal(fields) // keys sorted
			if kind == "" || err != nil {
				return "", badRequest(`can't parse BotCommandScope: Can't find field "type"`)
			}
			scope = string(canonical)
		}
	}
	return scope + "|" + c.params["language_code"], nil
}

func (s *Server) setMyCommands(c *call) (any, string, *apiError) {
	key, refusal := menu(c)
	if refusal != nil {
		return nil, "", refusal
	}
	var list []Command
	if json.Unmarshal([]byte(c.params["commands"]), &list) != nil || list == nil {
		return nil, "", badRequest("can't parse commands: expected an Array of BotCommand")
	}
	if len(list) > commandsLimit {
		return nil, "", badRequest("BOT_COMMANDS_TOO_MUCH")
	}
	for _, one := range list {
		if !commandName.MatchString(one.Command) {
			return nil, "", badRequest("BOT_COMMAND_INVALID")
		}
		if n := utf8.RuneCountInString(one.Description); n < 1 || n > descriptionLimit {
			return nil, "", badRequest("BOT_COMMAND_DESCRIPTION_INVALID")
		}
	}
	s.commands[key] = list
	s.bump()
	return true, "", nil
}

func (s *Server) getMyCommands(c *call) (any, string, *apiError) {
	key, refusal := menu(c)
	if refusal != nil {
		return nil, "", refusal
	}
	if list := s.commands[key]; list != nil {
		return list, "", nil
	}
	return []Command{}, "", nil
}

func (s *Server) deleteMyCommands(c *call) (any, string, *apiError) {
	key, refusal := menu(c)
	if refusal != nil {
		return nil, "", refusal
	}
	delete(s.commands, key)
	s.bump()
	return true, "", nil
}

// menuFor is the menu a person sees in their private chat, the most particular
// that exists (BotCommandScope, "determining list of commands"). The caller
// holds mu.
func (s *Server) menuFor(p Person) []Command {
	chat, err := json.Marshal(map[string]any{"type": "chat", "chat_id": p.ID})
	if err != nil {
		panic(err) // a string and a number always marshal
	}
	for _, scope := range []string{string(chat), `{"type":"all_private_chats"}`, "default"} {
		for _, language := range []string{p.Language, ""} {
			if list := s.commands[scope+"|"+language]; list != nil {
				return list
			}
		}
	}
	return nil
}
