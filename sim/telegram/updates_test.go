package telegram_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pilder/sim/telegram"
)

// TQueue::get with forget_previous: what is below a positive offset is
// confirmed when the request arrives.
func TestAnOffsetConfirmsWhatIsBelowItOnArrival(t *testing.T) {
	s := world(newClock())
	for _, text := range []string{"a", "b", "c"} {
		s.Say(ana, text)
	}
	first := updates(t, s, params{})
	if got := texts(first); got != "a b c" {
		t.Fatalf("first poll got %q", got)
	}
	if got := texts(updates(t, s, params{"offset": first[1].ID})); got != "b c" {
		t.Errorf("offset at b got %q", got)
	}
	if got := texts(updates(t, s, params{"offset": 0})); got != "b c" {
		t.Errorf("from the oldest got %q", got)
	}
	if got := s.Unconfirmed(); len(got) != 2 || got[0] != first[1].ID {
		t.Errorf("unconfirmed %v", got)
	}
}

// TQueue::get: an offset more than 10 above the end, or far below the start,
// is not believed: the oldest is served and nothing confirmed.
func TestAnOffsetFarInTheFutureOrPastIsNotBelieved(t *testing.T) {
	for _, c := range []struct {
		name  string
		shift int64
		want  string
		left  int
	}{
		{"at the end is believed", 1, "", 0},
		{"ten beyond the next is believed", 11, "", 0},
		{"eleven beyond the next is not", 12, "a", 1},
		{"a million below is not", -1_000_000, "a", 1},
		{"a little below changes nothing", -50, "a", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := world(newClock())
			s.Say(ana, "a")
			id := s.Unconfirmed()[0]
			if got := texts(updates(t, s, params{"offset": id + c.shift})); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if got := s.Unconfirmed(); len(got) != c.left {
				t.Errorf("unconfirmed %v, want %d", got, c.left)
			}
		})
	}
}

// Client::do_get_updates: a negative offset first throws away all but the
// newest.
func TestANegativeOffsetKeepsOnlyTheNewest(t *testing.T) {
	s := world(newClock())
	for _, text := range []string{"a", "b", "c"} {
		s.Say(ana, text)
	}
	if got := texts(updates(t, s, params{"offset": -2})); got != "b c" {
		t.Errorf("got %q", got)
	}
	if got := len(s.Unconfirmed()); got != 2 {
		t.Errorf("%d left, want 2", got)
	}
}

// Client::process_get_updates_query: limit 1–100 and timeout 0–50 s are
// clamped, not refused.
func TestLimitAndTimeoutAreClamped(t *testing.T) {
	s := world(newClock())
	for i := range 120 {
		s.Say(ana, fmt.Sprint("m", i))
	}
	if got := len(updates(t, s, params{"offset": 1, "limit": 1000})); got != 100 {
		t.Errorf("limit 1000 gave %d", got)
	}
	if got := len(updates(t, s, params{"offset": 2, "limit": -5})); got != 1 {
		t.Errorf("limit -5 gave %d", got)
	}
	synctest.Test(t, func(t *testing.T) {
		s := world(newClock())
		start := time.Now()
		updates(t, s, params{"timeout": 999})
		if got := time.Since(start); got != 50*time.Second {
			t.Errorf("timeout 999 waited %v, want 50s", got)
		}
	})
}

// Client::do_get_updates: an empty answer waits, and the first update ends the
// wait.
func TestALongPollWakesOnAnUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := world(newClock())
		start := time.Now()
		done := make(chan []update)
		go func() { done <- updates(t, s, params{"timeout": 45}) }()
		time.Sleep(7 * time.Second)
		s.Say(ana, "hola")
		if got := texts(<-done); got != "hola" {
			t.Errorf("got %q", got)
		}
		if got := time.Since(start); got != 7*time.Second {
			t.Errorf("woke after %v", got)
		}
	})
}

// Client::process_get_updates_query: the same offset again within 3 s waits
// 3 s, within 0.5 s gets one update only.
func TestTheSameOffsetAgainAtOnceIsSlowedDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := world(newClock())
		s.Say(ana, "a")
		s.Say(ana, "b")
		id := s.Unconfirmed()[0]
		if got := texts(updates(t, s, params{"offset": id})); got != "a b" {
			t.Fatalf("got %q", got)
		}
		if got := texts(updates(t, s, params{"offset": id})); got != "a" {
			t.Errorf("within 0.5 s got %q, want one", got)
		}
		time.Sleep(time.Second)
		if got := texts(updates(t, s, params{"offset": id})); got != "a b" {
			t.Errorf("after 1 s got %q", got)
		}
		updates(t, s, params{"offset": id + 2})
		time.Sleep(time.Second)
		start := time.Now()
		updates(t, s, params{"offset": id + 2})
		if got := time.Since(start); got != 3*time.Second {
			t.Errorf("an empty repeat waited %v, want 3s", got)
		}
	})
}

// Client::do_get_updates and fail_query_conflict: the poll that waits loses to
// the newcomer; the first conflict is told at once, the next 3 s later.
func TestTheOlderWaitingPollGetsTheConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := world(newClock())
		type ended struct {
			poll  int
			reply reply
			after time.Duration
		}
		results := make(chan ended, 3)
		start := time.Now()
		poll := func(n int) {
			r := ask(t, s, "getUpdates", params{"offset": n, "timeout": 40})
			results <- ended{n, r, time.Since(start)}
		}
		for n := range 3 {
			go poll(n)
			synctest.Wait()
			time.Sleep(time.Second)
		}
		const conflict = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
		for _, want := range []struct {
			poll  int
			after time.Duration
		}{{0, time.Second}, {1, 5 * time.Second}} {
			got := <-results
			if got.poll != want.poll || got.after != want.after || got.reply.Status != 409 || got.reply.Text != conflict {
				t.Errorf("poll %d ended after %v with %d %q; want poll %d after %v", got.poll, got.after, got.reply.Status, got.reply.Text, want.poll, want.after)
			}
		}
		s.Say(ana, "hola")
		if got := <-results; got.poll != 2 || !got.reply.OK {
			t.Errorf("the newest poll ended with %+v", got)
		}
	})
}

// Client::process_get_updates_query, process_set_webhook_query.
func TestPollsAreRefusedWhileAWebhookIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := world(newClock())
		waiting := make(chan string)
		go func() { waiting <- refusal(t, s, "getUpdates", params{"timeout": 30}) }()
		synctest.Wait()
		must[bool](t, s, "setWebhook", params{"url": "https://bot.example.com/hook"})
		if got := <-waiting; got != "409 Conflict: terminated by setWebhook request" {
			t.Errorf("the waiting poll got %q", got)
		}
		want := "409 Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
		if got := refusal(t, s, "getUpdates", nil); got != want {
			t.Errorf("got %q", got)
		}
		s.Say(ana, "kept")
		if got := ask(t, s, "deleteWebhook", params{"drop_pending_updates": false}); got.Text != "Webhook was deleted" {
			t.Errorf("deleteWebhook said %q", got.Text)
		}
		if got := texts(updates(t, s, nil)); got != "kept" {
			t.Errorf("after deleteWebhook got %q", got)
		}
		must[bool](t, s, "deleteWebhook", params{"drop_pending_updates": true})
		if got := s.Unconfirmed(); len(got) != 0 {
			t.Errorf("drop_pending_updates left %v", got)
		}
	})
}

// Client::get_allowed_update_types: the list is remembered, filters when an
// update arises, and what it does not understand changes nothing.
func TestAllowedUpdatesFilterWhenTheUpdateArises(t *testing.T) {
	s := world(newClock())
	s.Say(ana, "before")
	updates(t, s, params{"allowed_updates": []string{"callback_query", "no_such_kind"}})
	s.Say(ana, "unheard")
	s.Press(ana, 1, "x")
	updates(t, s, params{"offset": 1, "allowed_updates": "not json"})
	updates(t, s, params{"offset": 2})
	s.Say(ana, "unheard too")
	if got := texts(updates(t, s, params{"offset": 3})); got != "before tap:x" {
		t.Errorf("got %q", got)
	}
	updates(t, s, params{"offset": 4, "allowed_updates": []string{}})
	s.Say(ana, "heard")
	if got := texts(updates(t, s, params{"offset": 5})); got != "before tap:x heard" {
		t.Errorf("an empty list did not restore the default: %q", got)
	}
}

// Bot API documentation, "getting updates", and the server's table of lives:
// 24 h for messages, 150 s for taps.
func TestUpdatesExpireByTheClock(t *testing.T) {
	c := newClock()
	s := world(c)
	s.Say(ana, "hola")
	s.Press(ana, 1, "yes")
	c.add(150 * time.Second)
	if got := texts(updates(t, s, params{"offset": 1})); got != "hola tap:yes" {
		t.Errorf("after 150 s got %q", got)
	}
	c.add(time.Second)
	if got := texts(updates(t, s, params{"offset": 2})); got != "hola" {
		t.Errorf("after 151 s got %q", got)
	}
	c.add(24*time.Hour - 151*time.Second)
	if got := texts(updates(t, s, params{"offset": 3})); got != "hola" {
		t.Errorf("after 24 h got %q", got)
	}
	c.add(time.Second)
	if got := texts(updates(t, s, params{"offset": 4})); got != "" {
		t.Errorf("after a day and a second got %q", got)
	}
}

// TQueue::push: the first id is random, from the seed here.
func TestUpdateIDsBeginAtRandomAndRestartOnRequest(t *testing.T) {
	first := func(seed int64) int64 {
		s := telegram.New(telegram.Config{People: people, Seed: seed})
		s.Say(ana, "hola")
		return s.Unconfirmed()[0]
	}
	one, again, two := first(1), first(1), first(2)
	if one != again || one == two || one < 200_000 {
		t.Errorf("first ids %d, %d, %d", one, again, two)
	}
	s := world(newClock())
	s.Say(ana, "old")
	old := updates(t, s, nil)[0].ID
	updates(t, s, params{"offset": old + 1})
	s.RestartIDs(300_000)
	s.Say(ana, "new")
	if got := updates(t, s, params{"offset": old + 1, "limit": 5}); len(got) != 1 || got[0].ID != 300_000 {
		t.Errorf("after the restart got %+v", got)
	}
}

func TestAConfirmedUpdateCanComeAgain(t *testing.T) {
	s := world(newClock())
	s.Say(ana, "once")
	id := updates(t, s, nil)[0].ID
	s.Say(ana, "next")
	if got := texts(updates(t, s, params{"offset": id + 1})); got != "next" {
		t.Fatalf("got %q", got)
	}
	s.Redeliver(id)
	if got := texts(updates(t, s, params{"offset": id})); got != "once next" {
		t.Errorf("got %q", got)
	}
	if got := texts(updates(t, s, params{"offset": id + 2})); got != "" {
		t.Errorf("it came a third time: %q", got)
	}
}

func TestPushDeliversWhateverItIsGiven(t *testing.T) {
	s := world(newClock())
	id := s.Push(json.RawMessage(`{"thing_of_tomorrow":{"a":1}}`))
	s.Push(json.RawMessage(`{"message":{"message_id":"not a number"}}`))
	s.Push(json.RawMessage(`{"update_id":"text"}`))
	s.Push(json.RawMessage(`{}`))
	s.Push(json.RawMessage(`[1,2]`))
	got := must[[]json.RawMessage](t, s, "getUpdates", nil)
	want := []string{
		fmt.Sprintf(`{"update_id":%d,"thing_of_tomorrow":{"a":1}}`, id),
		fmt.Sprintf(`{"update_id":%d,"message":{"message_id":"not a number"}}`, id+1),
		`{"update_id":"text"}`, fmt.Sprintf(`{"update_id":%d}`, id+3), `[1,2]`,
	}
	if len(got) != len(want) {
		t.Fatalf("got %d updates", len(got))
	}
	for i := range want {
		if string(got[i]) != want[i] {
			t.Errorf("update %d is %s, want %s", i, got[i], want[i])
		}
	}
}

// Client::JsonUpdates: one answer holds at most 4 MiB; TQueue: an update over
// 512 KiB is dropped.
func TestAnswersAndUpdatesAreBounded(t *testing.T) {
	s := world(newClock())
	big := strings.Repeat("x", 500<<10)
	for range 9 {
		s.Push(json.RawMessage(`{"blob":"` + big + `"}`))
	}
	s.Push(json.RawMessage(`{"blob":"` + big + big + `"}`))
	if got := len(updates(t, s, nil)); got != 8 {
		t.Errorf("one answer held %d updates of 500 KiB", got)
	}
	if got := len(s.Unconfirmed()); got != 9 {
		t.Errorf("%d updates are queued, want 9", got)
	}
}
