package bot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"pilder/store"
)

// Username asks Telegram what the bot of a token is called, without @. It is for commands that run beside a serving
// process: asking changes nothing.
func Username(ctx context.Context, apiURL string, token store.Secret) (string, error) {
	raw, err := newClient(strings.TrimSuffix(apiURL, "/"), token).call(ctx, "getMe", struct{}{})
	if err != nil {
		return "", fmt.Errorf("asking Telegram for the bot's name: %w", err)
	}
	var me struct {
		Username string `json:"username"`
	}
	if err := json.Unmarshal(raw, &me); err != nil || me.Username == "" {
		return "", errors.New("telegram answered without the bot's name")
	}
	return me.Username, nil
}
