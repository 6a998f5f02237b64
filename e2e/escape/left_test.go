//go:build linux

package escape

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// leftBehind (T29) is a run that is stopped while its processes try to stay.
func (s *suite) leftBehind(ctx context.Context) error {
	stay := "stay-" + random(8)
	s.orders.give("orden de quedarse", whose(casimira), first(s.bring(casimira),
		bash("cd /work && ./attack as linger "+stay+" talk; touch running; sleep 80")), answer("fin de quedarse"))
	s.say(casimira, "orden de quedarse")
	if err := s.appears(ctx, casimira, "running"); err != nil {
		return err
	}
	there := len(marked(stay))
	s.evidence.held(outside, "T29", "processes stay while a command runs", there >= 4, there)
	if _, err := s.hear(ctx, casimira, s.say(casimira, "/stop")); err != nil {
		return err
	}
	s.evidence.held(traitor, "T29", "processes after /stop", s.left(stay) > 0, s.left(stay))
	return nil
}

// spinning (T28) is a run that keeps every processor busy while others write.
func (s *suite) spinning(ctx context.Context) error {
	mark := "spin-" + random(8)
	s.orders.give("orden de girar", whose(casimira), first(s.bring(casimira), bash("cd /work && touch spinning && ./attack as spin "+mark)), answer("fin de girar"))
	s.orders.give("orden mientras", answer("fin mientras"))
	said := s.say(casimira, "orden de girar")
	if err := s.appears(ctx, casimira, "spinning"); err != nil {
		return err
	}
	dir, err := s.conversation(casimira)
	if err != nil {
		return err
	}
	_, command := s.hear(ctx, dagoberto, s.say(dagoberto, "/help"))
	run := s.ask(ctx, dagoberto, "orden mientras", "fin mientras")
	threads := 0
	for _, pid := range marked("spin\x00" + mark) {
		all, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
		if err == nil {
			threads = max(threads, len(all))
		}
	}
	s.evidence.held(outside, "T28", "the threads are spinning", threads >= 16, threads)
	s.evidence.held(traitor, "T28", "no command is answered meanwhile", command != nil, command)
	s.evidence.held(traitor, "T28", "no run ends meanwhile", run != nil, run)
	if err := os.WriteFile(filepath.Join(dir, "work", "stop-spinning"), nil, 0o644); err != nil {
		return err
	}
	_, err = s.hear(ctx, casimira, said)
	return err
}

// appears waits for a file in a person's work folder.
func (s *suite) appears(ctx context.Context, p person, name string) error {
	for until := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // another process makes it
		if dir, err := s.conversation(p); err == nil {
			if _, err := os.Stat(filepath.Join(dir, "work", name)); err == nil {
				return nil
			}
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return fmt.Errorf("%s of %s never appeared", name, p)
		}
	}
}

// killed (T29) is pilder ended by SIGKILL in the middle of a run, and started again.
func (s *suite) killed(ctx context.Context) error {
	stay := "stay-" + random(8)
	s.orders.give("orden de sobrevivir", whose(genoveva), first(s.bring(genoveva),
		bash("cd /work; [ -e running ] || { ./attack as linger "+stay+" talk; touch running; sleep 80; }")), answer("fin de sobrevivir"))
	said := s.say(genoveva, "orden de sobrevivir")
	if err := s.appears(ctx, genoveva, "running"); err != nil {
		return err
	}
	if err := s.serving.Process.Kill(); err != nil {
		return err
	}
	<-s.ended
	s.evidence.held(traitor, "T29", "processes after pilder was killed", s.left(stay) > 0, s.left(stay))
	s.environ = append(s.environ, "PILDER_WEB_ALLOW=allowed.example *.wild.example", "PILDER_RUNNER_WARM_MAX=4", "PILDER_RUNNER_BUDGET_TOKENS=80000") // for what comes after
	if err := s.serve(); err != nil {
		return err
	}
	_, err := s.hear(ctx, genoveva, said)
	s.evidence.held(traitor, "T29", "processes after pilder came back", s.left(stay) > 0, s.left(stay))
	return err
}

// warm (T18, T29) is a process that waits for its next turn: what the turn started is gone, and so is what it could do.
func (s *suite) warm(ctx context.Context) error {
	stay, first, second := "stay-"+random(8), newPause(), newPause()
	defer first.release()
	defer second.release()
	s.orders.give("orden tibia", whose(anacleta), bash("cd /work && ./attack as linger "+stay), first.hold(answer("fin tibia")))
	s.orders.give("orden siguiente", second.hold(answer("fin siguiente")))
	said := s.say(anacleta, "orden tibia")
	if err := s.reaches(ctx, first, anacleta, said); err != nil {
		return err
	}
	in, err := s.insiderOf(anacleta)
	if err != nil {
		return err
	}
	defer in.close()
	there := len(marked(stay))
	first.release()
	if _, err := s.hear(ctx, anacleta, said); err != nil {
		return err
	}
	s.evidence.held(traitor, "T29", "processes between two turns of a process that waits", s.left(stay) > 0, s.left(stay))
	for _, door := range []string{toolsDoor, modelDoor} {
		got := in.raw(ctx, door, in.after(door))
		s.evidence.held(inside, "T18", "the door "+door+" between two turns", got.status > 0 && got.status < 400, got)
	}
	said = s.say(anacleta, "orden siguiente")
	if err := s.reaches(ctx, second, anacleta, said); err != nil {
		return err
	}
	next, err := s.insiderOf(anacleta)
	if err != nil {
		return err
	}
	defer next.close()
	s.evidence.held(outside, "T29", "processes stay while a turn lasts, and the CLI after it", there >= 4 && next.pid == in.pid, fmt.Sprint(there, " ", in.pid, " ", next.pid))
	got := next.tools(ctx, in.token, "server/discover", "", map[string]any{})
	s.evidence.held(inside, "T18", "the token in the next turn of the process", got.status < 400, got)
	second.release()
	_, heard := s.hear(ctx, anacleta, said)
	return heard
}

// after is a request to a door that was good while the turn lasted.
func (in *insider) after(door string) string {
	path, secret := "/mcp", in.token
	if door == modelDoor {
		path, secret = "/v1/messages", in.key
	}
	return request("POST", path, door, ask("T18"), append(in.modelHeaders(), "Authorization: Bearer "+secret)...)
}

// left counts the processes of a mark when they have had the time to end.
func (s *suite) left(mark string) int {
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the kernel ends them: nothing to wait on
		if n := len(marked(mark)); n == 0 || time.Now().After(until) {
			return n
		}
	}
}
