//go:build linux

package escape

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// canary is a text that nobody inside may ever see.
type canary struct{ name, text string }

type canaries struct {
	all []canary
	// homes is where files with a canary in them belong: found elsewhere, they have flown.
	homes []string
}

func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// make makes one.
func (c *canaries) make(name, prefix string) string {
	text := prefix + random(20)
	c.all = append(c.all, canary{name, text})
	return text
}

// plant makes one and puts it into a file, readable for everybody who comes that far.
func (c *canaries) plant(name, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	c.homes = append(c.homes, path)
	return os.WriteFile(path, []byte(c.make(name, "canary-")+"\n"), 0o644)
}

// in names the canaries in a text, also of one that was written differently.
func (c *canaries) in(text string) string {
	var found []string
	for _, one := range c.all {
		for _, form := range []string{one.text, base64.StdEncoding.EncodeToString([]byte(one.text))[:20], hex.EncodeToString([]byte(one.text))} {
			if strings.Contains(text, form) {
				found = append(found, one.name)
				break
			}
		}
	}
	if found == nil {
		return ""
	}
	return "canary: " + strings.Join(found, ", ")
}

// leaks looks for canaries wherever something of an agent's can have arrived: in the chats, at the model, in the apps, in the
// log, and in the folders of all conversations.
func (s *suite) leaks() []string {
	var found []string
	look := func(where, text string) {
		if leak := s.canaries.in(text); leak != "" {
			found = append(found, where+" has "+leak)
		}
	}
	for _, p := range people() {
		for _, m := range s.telegram.Transcript(p.id()) {
			look("the chat of "+string(p), m.Text)
		}
	}
	for _, r := range s.telegram.Requests() {
		look("a request to Telegram", fmt.Sprint(r.Params, r.Files))
	}
	for _, r := range s.anthropic.Requests() {
		look("a request to the model", r.Path+fmt.Sprint(r.Header)+string(r.Body))
	}
	for _, p := range s.pipedream.Ledger() {
		look("an action at Pipedream", fmt.Sprint(p.Props))
	}
	look("the log", s.log.String())
	look("the output of sandbox exec", s.spoken.String())
	err := filepath.WalkDir(filepath.Join(s.data, "conversations"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		for _, home := range s.canaries.homes {
			if path == home {
				return nil
			}
		}
		if info, err := d.Info(); err != nil || info.Size() > 16<<20 { // larger ones have been made of nothing
			return err
		}
		text, err := os.ReadFile(path)
		look(path, string(text))
		return err
	})
	if err != nil {
		found = append(found, err.Error())
	}
	return found
}
