//go:build linux

package escape

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"pilder/sim/anthropic"
)

// orders are what the traitor model does, by the words that a person has to write for it. Each is a Sequence.
type orders struct {
	mu       sync.Mutex
	all      map[string]anthropic.Script
	progress func(format string, args ...any)
}

// step is one answer of the model.
type step = func(anthropic.Turn) []anthropic.Block

func (o *orders) give(words string, steps ...step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all[words] = anthropic.Sequence(words, nil, steps...)
}

// find gives the order that a text speaks of last: after a failed turn the CLI repeats the text that was not answered.
func (o *orders) find(text string) (anthropic.Script, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, found := -1, anthropic.Script{}
	for words, script := range o.all {
		if at := strings.LastIndex(text, words); at > last {
			last, found = at, script
		}
	}
	return found, last >= 0
}

func (o *orders) script() anthropic.Script {
	return anthropic.Script{Name: "traitor",
		Match: func(t anthropic.Turn) bool { _, ok := o.find(t.Text); return ok },
		Play: func(t anthropic.Turn) []anthropic.Block {
			script, _ := o.find(t.Text)
			o.progress("%s %s: step %d", time.Now().Format("15:04:05"), script.Name, t.Rounds)
			return script.Play(t)
		}}
}

// bash is a step that runs a command line.
func bash(command string) step {
	return func(anthropic.Turn) []anthropic.Block {
		return []anthropic.Block{anthropic.Use("Bash", map[string]any{"command": command, "timeout": 90000})}
	}
}

// first does something on the host before a step is played.
func first(do func() error, then step) step {
	return func(t anthropic.Turn) []anthropic.Block {
		if err := do(); err != nil {
			return []anthropic.Block{anthropic.Text("broken: " + err.Error())}
		}
		return then(t)
	}
}

// answer ends a turn with a text.
func answer(text string) step {
	return func(anthropic.Turn) []anthropic.Block { return []anthropic.Block{anthropic.Text(text)} }
}

// whose is the first step of every order: it tells the test whose work folder this is.
func whose(p person) step { return bash("echo " + string(p) + " >/work/who") }

// attack is a step that makes attempts with the hostile program.
func attack(ids ...string) step {
	return bash("cd /work && ./attack targets " + strings.Join(ids, " "))
}

// collect takes what the commands of the turn so far have said into the evidence.
func (s *suite) collect(t anthropic.Turn) {
	for _, c := range t.Calls {
		s.evidence.note(traitor, s.golden(lines([]byte(c.Result.Text)))...)
	}
}

// done is the last step: the evidence, then the answer.
func (s *suite) done(text string) step {
	return func(t anthropic.Turn) []anthropic.Block {
		s.collect(t)
		return answer(text)(t)
	}
}

// bring puts the hostile program and its targets into a person's work folder, as if they had been sent in a file.
func (s *suite) bring(p person) func() error {
	return func() error {
		dir, err := s.conversation(p)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(filepath.Join(built, "attack"))
		if err != nil {
			return err
		}
		work := filepath.Join(dir, "work")
		if err := os.WriteFile(filepath.Join(work, "attack"), program, 0o755); err != nil {
			return err
		}
		text, err := json.Marshal(s.host.targetsInside("/work"))
		if err != nil {
			return err
		}
		if err := s.host.privileged(work); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(work, "targets"), text, 0o644)
	}
}

// pause lets the test and the model meet: the model waits in the middle of its turn until it is let go.
type pause struct {
	reached, released chan struct{}
	once              sync.Once
}

func newPause() *pause { return &pause{reached: make(chan struct{}), released: make(chan struct{})} }

// release lets it go; again does no harm.
func (p *pause) release() { p.once.Do(func() { close(p.released) }) }

// hold is a step that waits. A repeated request waits as well.
func (p *pause) hold(then step) step {
	var once sync.Once
	return func(t anthropic.Turn) []anthropic.Block {
		once.Do(func() { close(p.reached) })
		<-p.released
		return then(t)
	}
}

// reaches waits until the model has got there. A turn that is answered before has gone another way.
func (s *suite) reaches(ctx context.Context, p *pause, whose person, said int64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	heard := make(chan error, 1)
	go func() {
		text, err := s.hear(ctx, whose, said)
		heard <- errors.Join(fmt.Errorf("%s heard %q in place of a pause", whose, text), err)
	}()
	select {
	case <-p.reached:
		return nil
	case err := <-heard:
		return err
	}
}
