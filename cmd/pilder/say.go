package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pilder/sim/telegram"
	"pilder/store"
)

// said is what --say prints as JSON.
type said struct {
	Run     string           `json:"run"`
	State   string           `json:"state"`
	Replies []string         `json:"replies"`
	Calls   []saidCall       `json:"calls"`
	Timings map[string]int64 `json:"timings_ms"`
}

type saidCall struct {
	Tool     string `json:"tool"`
	Decision string `json:"decision"`
	Outcome  string `json:"outcome"`
}

// say sends one message and waits until it has a fate and all that was said to the person has gone out.
func (d *demo) say(ctx context.Context, who demoPerson, o demoOptions, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	began := time.Now()
	sent := d.telegram.Say(who.id, o.say)
	fate, err := d.fate(ctx, who.id)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	result := said{Run: string(fate.Run), State: string(fate.Fate), Replies: []string{}, Calls: []saidCall{}, Timings: map[string]int64{}}
	if fate.Run != "" {
		run, err := d.house.store.RunByID(ctx, fate.Run)
		if err != nil {
			return err
		}
		result.State = string(run.State)
		for _, c := range run.Calls {
			result.Calls = append(result.Calls, saidCall{c.Tool, c.Decision.String(), string(c.Outcome)})
		}
		result.Timings = timings(run.Stages)
	}
	result.Timings["total"] = time.Since(began).Milliseconds()
	for _, m := range d.telegram.Transcript(who.id) {
		if m.ID > sent && m.From != who.id {
			result.Replies = append(result.Replies, plain(m))
		}
	}
	if err := printSaid(out, result, o.json); err != nil {
		return err
	}
	if o.record != "" {
		if err := d.record(o.record); err != nil {
			return err
		}
	}
	answered := []string{string(store.RunSucceeded), string(store.FateDone), string(store.FateRefused)}
	if !slices.Contains(answered, result.State) || len(result.Replies) == 0 {
		return fmt.Errorf("not answered: %s", result.State)
	}
	return nil
}

// record writes what the outside saw: the actions performed, the model's requests, and each chat as its person sees it.
func (d *demo) record(folder string) error {
	files := map[string]*strings.Builder{"ledger.txt": {}, "model.txt": {}}
	for _, p := range d.pipedream.Ledger() {
		props, err := json.Marshal(p.Props)
		if err != nil {
			return err
		}
		fmt.Fprintf(files["ledger.txt"], "%s %s\n", p.Key, props)
	}
	for _, r := range d.anthropic.Requests() {
		fmt.Fprintf(files["model.txt"], "%s %s\n", r.Path, r.Body)
	}
	for _, p := range demoPeople() {
		chat := &strings.Builder{}
		for _, m := range d.telegram.Transcript(p.id) {
			fmt.Fprintln(chat, plain(m))
		}
		files[fmt.Sprintf("chat-%d.txt", p.id)] = chat
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(body.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fate waits for the end of the person's newest message and of what was said because of it.
func (d *demo) fate(ctx context.Context, chat int64) (store.MessageFate, error) {
	s, bot := d.house.store, d.house.botID()
	over := []store.Fate{store.FateAnswered, store.FateFailed, store.FateCancelled, store.FateRefused, store.FateDone, store.FateIgnored, store.FateBroken}
	for {
		wake := s.Wake()
		fates, err := s.MessageFates(ctx, bot, chat, 1)
		if err != nil {
			return store.MessageFate{}, err
		}
		if len(fates) == 1 && slices.Contains(over, fates[0].Fate) {
			waiting, err := s.OutboxWaiting(ctx, bot, chat)
			if err != nil {
				return store.MessageFate{}, err
			}
			if waiting == 0 {
				return fates[0], nil
			}
		}
		select {
		case <-ctx.Done():
			return store.MessageFate{}, ctx.Err()
		case <-wake:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func timings(s store.Stages) map[string]int64 {
	return map[string]int64{"queue": s.Queue, "spawn": s.Spawn, "first_token": s.FirstToken, "tools": s.Tools, "delivery": s.Delivery, "run": s.Total}
}

// plain is a message as text, with its buttons.
func plain(m telegram.Message) string {
	var b strings.Builder
	b.WriteString(m.Text)
	for _, row := range m.Buttons {
		for _, button := range row {
			if button.URL != "" {
				fmt.Fprintf(&b, "\n[%s](%s)", button.Text, button.URL)
			} else {
				fmt.Fprintf(&b, "\n[%s]", button.Text)
			}
		}
	}
	return b.String()
}

func printSaid(out io.Writer, r said, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	_, err := fmt.Fprintln(out, strings.Join(r.Replies, "\n\n"))
	return err
}
