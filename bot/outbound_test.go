package bot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/bot"
	"pilder/sim/telegram"
	"pilder/store"
)

// says makes the bot answer "pregunta" with the text.
func (w *world) says(text string) {
	w.t.Helper()
	w.agent(func(_ context.Context, r store.Run) string {
		if r.Messages[0].Text == "pregunta" {
			return text
		}
		return "eco: " + r.Messages[0].Text
	})
	w.start()
	w.sim.Say(ana, "pregunta")
}

// count is how often a text is visible in a chat.
func (w *world) count(person int64, text string) int {
	n := 0
	for _, s := range w.seen(person) {
		if s == text {
			n++
		}
	}
	return n
}

func TestC22AnEmptyAnswerBecomesAnHonestSentence(t *testing.T) {
	t.Parallel()
	for _, empty := range []string{"", " \n\t", "\u0000\u202e", "**", "[](https://example.com)", "<!-- -->"} {
		t.Run(fmt.Sprintf("%q", empty), func(t *testing.T) {
			w := alone(t)
			w.says(empty)
			w.until("something is said", func() bool { return len(w.seen(ana)) > 0 && strings.TrimSpace(w.seen(ana)[0]) != "" })
		})
	}
}

func TestC23ASendThatMayHaveHappenedIsNotRepeated(t *testing.T) {
	t.Parallel()
	for _, kind := range []telegram.FaultKind{telegram.CutAfter, telegram.CutBody, telegram.LateGateway} {
		t.Run(string(kind), func(t *testing.T) {
			w := alone(t)
			w.sim.Fault(telegram.Fault{Kind: kind, Method: "sendMessage"})
			w.says("respuesta única")
			w.reads(ana, "puede que te falte algún mensaje mío") // the person is told
			w.sim.Say(ana, "y luego")
			w.reads(ana, "eco: y luego")
			if n := w.count(ana, "respuesta única"); n != 1 {
				t.Errorf("it is there %d times", n)
			}
			if d := w.sim.Duplicates(); len(d) > 0 {
				t.Error(d)
			}
			w.until("recorded", func() bool {
				return cmp.Equal(w.replies(), []store.ReplyState{store.ReplySent, store.ReplyUncertain})
			})
		})
	}
}

func TestC23WhetherACutBeforeDidAnythingIsNotGuessed(t *testing.T) {
	t.Parallel()
	for _, kind := range []telegram.FaultKind{telegram.CutBefore, telegram.BadGateway} {
		t.Run(string(kind), func(t *testing.T) {
			w := alone(t)
			w.sim.Fault(telegram.Fault{Kind: kind, Method: "sendMessage"})
			w.says("respuesta perdida")
			w.reads(ana, "puede que te falte")
			if n := w.count(ana, "respuesta perdida"); n != 0 {
				t.Errorf("it is there %d times", n)
			}
		})
	}
}

func TestC21WhatTelegramSurelyDidNotDoIsDoneLater(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.sim.Fault(telegram.Fault{Kind: telegram.ServerError, Method: "sendMessage", Count: 3})
		w.says("al cuarto intento")
		w.reads(ana, "al cuarto intento")
		w.until("sent", func() bool { return cmp.Equal(w.replies(), []store.ReplyState{store.ReplySent}) })
		if n := len(w.seen(ana)); n != 1 {
			t.Errorf("%q", w.seen(ana))
		}
	})
}

func TestC21ANetworkOutageDropsNoAnswer(t *testing.T) {
	w := alone(t)
	g := newGate(t, w.sim.Handler())
	free := make(chan struct{})
	w.agent(func(context.Context, store.Run) string { <-free; return "por fin" })
	w.start(func(c *bot.Config) { c.APIURL = "http://" + g.addr })
	w.sim.Say(ana, "hola")
	w.until("running", func() bool { return cmp.Equal(w.fates(ana), []store.Fate{store.FateRunning}) })
	g.shut()
	close(free)
	w.until("tried", func() bool {
		return cmp.Equal(w.fates(ana), []store.Fate{store.FateAnswered}) && w.log.has("telegram.unreachable")
	})
	g.open()
	w.reads(ana, "por fin")
	if n := len(w.seen(ana)); n != 1 {
		t.Errorf("%q", w.seen(ana))
	}
}

func TestC17APenaltyIsWaitedOutInFull(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.sim.Fault(telegram.Fault{Kind: telegram.TooManyRequests, Method: "sendMessage", Chat: ana, RetryAfter: 3})
		w.says("tras la espera")
		w.reads(ana, "tras la espera") // honest() finds a call that came during the penalty
		w.sim.Say(dario, "otro chat")
		w.reads(dario, "eco: otro chat")
	})
}

func TestAChatIsSentToAtItsPace(t *testing.T) {
	w := alone(t)
	w.start(func(c *bot.Config) { c.ChatRate = 0 }) // as it is by default: one a second after three
	began := time.Now()
	for _, say := range []string{"uno", "dos", "tres", "cuatro", "cinco"} {
		must(t, w.store.Say(t.Context(), bot.Answer(store.Run{Principal: w.who[ana].Principal(), Member: w.who[ana], Chat: store.Chat{ID: ana, Private: true}}, say)))
	}
	w.reads(ana, "cinco")
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("five messages took %v", d)
	}
}

func TestC26ARefusedFormatBecomesTheSameTextPlain(t *testing.T) {
	w := alone(t)
	w.sim.Fault(telegram.Fault{Kind: telegram.Refuse, Method: "sendMessage", Code: 400, Description: "Bad Request: can't parse entities: whatever"})
	w.says("* **uno**\n* dos")
	m := w.reads(ana, "• uno\n• dos")
	if len(m.Entities) != 0 {
		t.Errorf("entities: %+v", m.Entities)
	}
	sends := w.calls("sendMessage")
	if len(sends) != 2 || sends[0].Params["entities"] == "" || sends[1].Params["entities"] != "" || sends[0].Params["text"] != sends[1].Params["text"] {
		t.Errorf("%d sends: %+v", len(sends), sends)
	}
}

func TestC26WhatIsRefusedEvenPlainIsEndedAndSaid(t *testing.T) {
	w := alone(t)
	w.sim.Fault(telegram.Fault{Kind: telegram.Refuse, Method: "sendMessage", Code: 400, Description: "Bad Request: something new", Count: 2})
	w.says("**x**")
	w.reads(ana, "No he conseguido enviarte un mensaje")
	if n := len(w.calls("sendMessage")); n != 3 {
		t.Errorf("%d sends", n)
	}
}

func TestABlockedChatIsNotTriedAgain(t *testing.T) {
	w := alone(t)
	free := make(chan struct{})
	w.agent(func(ctx context.Context, r store.Run) string { <-free; return echo(ctx, r) })
	w.start()
	w.sim.Say(ana, "hola")
	w.until("running", func() bool { return cmp.Equal(w.fates(ana), []store.Fate{store.FateRunning}) })
	w.sim.SetReach(ana, telegram.Blocked)
	close(free)
	w.until("failed", func() bool { return cmp.Equal(w.replies(), []store.ReplyState{store.ReplyFailed}) })
	w.sim.Say(dario, "sigo")
	w.reads(dario, "eco: sigo")
	if n := len(w.calls("sendMessage")); n != 2 {
		t.Errorf("%d sends", n)
	}
}

func TestC33ALongAnswerComesWholeAndInOrder(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		var b strings.Builder
		for i := range 300 {
			fmt.Fprintf(&b, "Párrafo %d con 👍 y algo de **texto** para llenar.\n\n", i)
		}
		w.says(b.String())
		w.reads(ana, "Párrafo 299")
		all := strings.Join(w.seen(ana), "\n\n")
		want := strings.TrimSpace(strings.ReplaceAll(b.String(), "**", ""))
		if d := cmp.Diff(want, all); d != "" {
			t.Error(d)
		}
		if n := len(w.seen(ana)); n < 3 || n > 5 {
			t.Errorf("%d parts", n)
		}
	})
}

func TestAVeryLongAnswerComesAsItsBeginningAndADocument(t *testing.T) {
	w := alone(t)
	whole := strings.Repeat("línea **con** texto\n\n", 3000)
	w.says(whole)
	m := w.reads(ana, "La respuesta es larga")
	if m.Document == nil || m.Document.Size < int64(len(whole))/2 {
		t.Errorf("document %+v", m.Document)
	}
	if n := len(w.seen(ana)); n != 2 {
		t.Errorf("%d messages", n)
	}
}

func TestPartsLeftByADeadSenderAreUncertainAndNotRepeated(t *testing.T) {
	w := alone(t)
	// The sender "dies" with a send under way: its lease is taken over by somebody who finds the reply in "sending".
	p, err := w.store.AcquirePoller(t.Context(), botID(t, w), time.Minute)
	must(t, err)
	must(t, w.store.Say(t.Context(), store.Draft{Company: w.company.ID, Chat: store.Chat{ID: ana, Private: true}, Kind: store.DraftNotice, Notice: "help", Lang: "es"}))
	r, ok, _, err := w.store.NextReply(t.Context(), p)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	must(t, w.store.MarkSending(t.Context(), p, r.ID))
	must(t, w.store.ReleasePoller(t.Context(), p))
	w.agent(echo)
	w.start()
	w.sim.Say(ana, "hola")
	w.reads(ana, "eco: hola")
	if !w.log.has("replies.uncertain") || len(w.seen(ana)) != 1 {
		t.Errorf("%q", w.seen(ana))
	}
}

func TestARunTokenNeverReachesAChat(t *testing.T) {
	w := alone(t)
	token := "eyJhbGciOiJIUzI1NiJ9.eyJydW4iOiJydW5fMSJ9.c2lnbmF0dXJlLXNpZ25hdHVyZQ"
	w.says("mira: **" + token + "** y [esto](https://example.com/?t=" + token + ")")
	w.reads(ana, "mira:")
	for _, r := range w.sim.Requests() {
		for k, v := range r.Params {
			if strings.Contains(v, token) {
				t.Errorf("%s of %s holds it", k, r.Method)
			}
		}
	}
	if !w.log.has("security.secret_in_reply") {
		t.Error("nobody was told")
	}
}

func TestAnUnknownNoticeIsSaidKindly(t *testing.T) {
	w := alone(t)
	w.turns(func(_ context.Context, r store.Run) store.Finish {
		return store.Finish{State: store.RunFailed, Reason: "x", Drafts: []store.Draft{bot.RunNotice(r, "run.from_the_future", nil)}}
	})
	w.start()
	w.sim.Say(ana, "hola")
	w.reads(ana, "Inténtalo otra vez, por favor")
	if !w.log.has("text.missing") {
		t.Error("nobody was told")
	}
}

// TestTelegramTakesWhateverIsRendered uses the simulator's rules, written from the server's sources, as the judge.
func TestTelegramTakesWhateverIsRendered(t *testing.T) {
	w := alone(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	for range 250 {
		src := random(r)
		for _, p := range bot.Split(bot.Render(src), 4096) {
			body, err := json.Marshal(map[string]any{"chat_id": ana, "text": p.Text, "entities": p.Entities, "link_preview_options": map[string]bool{"is_disabled": true}})
			must(t, err)
			resp, err := http.Post(w.http.URL+"/bot"+telegram.DefaultToken+"/sendMessage", "application/json", strings.NewReader(string(body)))
			must(t, err)
			answer, err := io.ReadAll(resp.Body)
			must(t, err)
			resp.Body.Close()
			var sent struct {
				OK     bool
				Result struct{ Text string }
			}
			must(t, json.Unmarshal(answer, &sent))
			if !sent.OK || sent.Result.Text != p.Text {
				t.Fatalf("source %q\nsent %q\nanswer %s", src, p.Text, answer)
			}
		}
	}
}

func TestPace(t *testing.T) {
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)
	p := bot.NewPace(func() time.Time { return now })
	for i := range 3 {
		if _, _, ok := p.Take(1); !ok {
			t.Fatalf("call %d of a burst has to wait", i)
		}
	}
	until, whole, ok := p.Take(1)
	if ok || whole || until.Sub(now) != time.Second {
		t.Errorf("the fourth: %v %v %v", until.Sub(now), whole, ok)
	}
	if _, _, ok := p.Take(2); !ok {
		t.Error("another chat waits for the first")
	}
	now = now.Add(time.Second)
	if _, _, ok := p.Take(1); !ok {
		t.Error("a second later it still waits")
	}
	if p.Block(1, now.Add(time.Hour)) {
		t.Error("one refused chat stops them all")
	}
	if until, ok := p.Free(1); ok || until.Sub(now) != time.Hour {
		t.Error("the penalty is not kept")
	}
	if _, ok := p.Free(2); !ok {
		t.Error("the penalty is on another chat too")
	}
	if !p.Block(2, now.Add(time.Minute)) {
		t.Error("two chats refused at once do not stop the bot")
	}
	if until, whole, ok := p.Take(3); ok || !whole || until.Sub(now) != time.Minute {
		t.Errorf("a third chat: %v %v %v", until.Sub(now), whole, ok)
	}
	now = now.Add(2 * time.Minute)
	for i := range 25 {
		if _, _, ok := p.Take(int64(100 + i)); !ok {
			t.Fatalf("chat %d waits", i)
		}
	}
	if _, whole, ok := p.Take(999); ok || !whole {
		t.Error("the bot has no limit")
	}
}
