package telegram

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Limits on inline keyboards. The number of buttons is inferred from reports.
const (
	callbackLimit = 64 // bytes, not characters
	buttonLimit   = 100
)

// Button is one inline button: with Data it calls back, with URL it opens.
type Button struct {
	Text string `json:"text"`
	Data string `json:"callback_data,omitempty"`
	URL  string `json:"url,omitempty"`
}

// readMarkup reads reply_markup. Keyboards other than inline ones are accepted
// and have no effect (Client::get_reply_markup, get_inline_keyboard_button).
func readMarkup(c *call) ([][]Button, *apiError) {
	text := c.params["reply_markup"]
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, badRequest("Can't parse reply keyboard markup JSON object")
	}
	var markup map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &markup) != nil || markup == nil {
		return nil, badRequest("Object expected as reply markup")
	}
	var rows []json.RawMessage
	if raw, given := markup["inline_keyboard"]; given && json.Unmarshal(raw, &rows) != nil {
		return nil, badRequest(`Field "inline_keyboard" must be of type Array`)
	}
	var keyboard [][]Button
	count := 0
	for _, raw := range rows {
		var buttons []json.RawMessage
		if json.Unmarshal(raw, &buttons) != nil || buttons == nil {
			return nil, badRequest(`Field "inline_keyboard" of the InlineKeyboardMarkup must be an Array of Arrays`)
		}
		var row []Button
		for _, raw := range buttons {
			b, wrong := readButton(raw)
			if wrong != "" {
				return nil, badRequest("Can't parse inline keyboard button: %s", wrong)
			}
			row = append(row, b)
		}
		if count += len(row); len(row) > 0 {
			keyboard = append(keyboard, row)
		}
	}
	if count > buttonLimit {
		return nil, badRequest("reply markup is too long")
	}
	return keyboard, nil
}

// readButton returns the button, or what is wrong with it.
func readButton(raw json.RawMessage) (b Button, wrong string) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return Button{}, "InlineKeyboardButton must be an Object"
	}
	if _, given := fields["text"]; !given {
		return Button{}, `Can't find field "text"`
	}
	for name, into := range map[string]*string{"text": &b.Text, "url": &b.URL, "callback_data": &b.Data} {
		if raw, given := fields[name]; given && json.Unmarshal(raw, into) != nil {
			return Button{}, fmt.Sprintf("Field %q must be of type String", name)
		}
	}
	switch {
	case b.URL != "": // wins over callback_data
		return Button{Text: b.Text, URL: b.URL}, ""
	case b.Data != "":
		return b, ""
	}
	return Button{}, "Text buttons are unallowed in the inline keyboard"
}

// checkMarkup is what is refused later, when the message is sent.
func checkMarkup(keyboard [][]Button) *apiError {
	for _, row := range keyboard {
		for i, b := range row {
			switch {
			case strings.TrimFunc(b.Text, looksEmpty) == "":
				return badRequest("BUTTON_TEXT_INVALID") // inferred
			case len(b.Data) > callbackLimit:
				return badRequest("BUTTON_DATA_INVALID")
			case b.URL != "":
				fixed, ok := cleanLink(b.URL)
				if !ok {
					return badRequest("inline keyboard button URL '%s' is invalid: Wrong HTTP URL", b.URL)
				}
				row[i].URL = fixed
			}
		}
	}
	return nil
}

func sameKeyboard(a, b [][]Button) bool {
	return slices.EqualFunc(a, b, slices.Equal[[]Button])
}
