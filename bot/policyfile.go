package bot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	maxPolicyFile    = 64 << 10 // bytes: what policy.Parse reads
	policyFileWithin = 20 * time.Second
)

var errFile = errors.New("not a text of up to 64 KiB")

// policyFile fetches a file that an admin sent. What it holds is text that nothing has looked at yet.
func (b *Bot) policyFile(ctx context.Context, d document) (string, error) {
	if d.Size > maxPolicyFile {
		return "", errFile
	}
	ctx, cancel := context.WithTimeout(ctx, policyFileWithin)
	defer cancel()
	raw, err := b.api.call(ctx, "getFile", map[string]string{"file_id": d.ID})
	if err != nil {
		return "", err
	}
	var file struct {
		Path string `json:"file_path"`
	}
	if err := json.Unmarshal(raw, &file); err != nil || file.Path == "" {
		return "", fmt.Errorf("getFile: %w", errNotJSON)
	}
	text, err := b.api.download(ctx, file.Path, maxPolicyFile)
	switch {
	case err != nil:
		return "", err
	case !utf8.Valid(text) || strings.ContainsRune(string(text), 0):
		return "", errFile
	}
	return strings.TrimPrefix(string(text), "\uFEFF"), nil
}

// download fetches a file by the path that getFile gave, of at most so many bytes. Its address holds the token, so no error
// says it.
func (c *client) download(ctx context.Context, path string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+"/file/bot"+c.token.Reveal()+"/"+path, nil)
	if err != nil {
		return nil, errors.New("bad path of a file")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("downloading: %w", c.clean(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("downloading: status %d", resp.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("downloading: %w", c.clean(err))
	case int64(len(body)) > most:
		return nil, errFile
	}
	return body, nil
}
