package bot_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/bot"
	"pilder/sim/telegram"
	"pilder/store"
	"pilder/store/storetest"
)

func TestAMessageIsAnsweredInItsChat(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.agent(echo)
		w.start()
		id := w.sim.Say(ana, "hola")
		m := w.reads(ana, "eco: hola")
		if m.ReplyTo != id {
			t.Errorf("the answer replies to %d, not to %d", m.ReplyTo, id)
		}
		w.until("answered", func() bool { return cmp.Equal(w.fates(ana), []store.Fate{store.FateAnswered}) })
		w.until("sent", func() bool { return cmp.Equal(w.replies(), []store.ReplyState{store.ReplySent}) })
		if len(w.sim.ChatActions(ana)) == 0 {
			t.Error("nobody saw that the bot was at work")
		}
	})
}

func TestC02AMessageTakenBeforeARestartRunsAfterIt(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		stop := w.start()
		w.sim.Say(ana, "antes")
		w.until("taken", func() bool { return len(w.fates(ana)) == 1 })
		stop()
		w.sim.Say(ana, "durante")
		w.start()
		w.agent(echo)
		w.reads(ana, "antes")
		w.reads(ana, "durante")
		w.until("both answered", func() bool { return cmp.Equal(w.fates(ana), []store.Fate{store.FateAnswered, store.FateAnswered}) })
	})
}

func TestC02TelegramForgetsNothingThatIsNotStored(t *testing.T) {
	t.Parallel()
	open := storetest.Opener(t, "sqlite")
	w := newWorld(t, open(store.Config{}))
	stop := w.start()
	w.until("polling", func() bool { return len(w.calls("getUpdates")) > 0 })
	must(t, w.store.Close())
	w.sim.Say(ana, "con la base cerrada")
	w.until("the store failed", func() bool { return w.log.has("updates.not_stored") })
	if n := len(w.sim.Unconfirmed()); n != 1 {
		t.Fatalf("%d updates are left with Telegram", n)
	}
	stop()
	w.store = open(store.Config{})
	w.agent(echo)
	w.start()
	w.reads(ana, "eco: con la base cerrada")
}

func TestC03AnUpdateDeliveredAgainIsHandledOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.agent(echo)
		stop := w.start()
		w.sim.Say(ana, "una vez")
		w.reads(ana, "eco: una vez")
		w.sim.Say(ana, "/help")
		w.reads(ana, "/connect")
		w.until("confirmed", func() bool { return len(w.sim.Unconfirmed()) == 0 })
		ids := []int64{}
		all, err := w.store.MessageFates(t.Context(), botID(t, w), ana, 10)
		must(t, err)
		for _, f := range all {
			ids = append(ids, f.UpdateID)
		}
		w.sim.Redeliver(ids...)
		w.sim.Say(ana, "después")
		w.reads(ana, "eco: después")
		stop()
		w.sim.Redeliver(ids...)
		w.start()
		w.sim.Say(ana, "al final")
		w.reads(ana, "eco: al final")
		want := []string{"eco: una vez", w.seen(ana)[1], "eco: después", "eco: al final"}
		if d := cmp.Diff(want, w.seen(ana)); d != "" {
			t.Error(d)
		}
	})
}

func botID(t *testing.T, w *world) store.BotID {
	b, err := bot.New(w.config(), w.store)
	must(t, err)
	return b.ID()
}

func TestC08LowerIDsAfterAQuietWeekAreTaken(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.start()
	w.sim.Say(ana, "uno")
	w.reads(ana, "eco: uno")
	w.until("confirmed", func() bool { return len(w.sim.Unconfirmed()) == 0 })
	w.sim.RestartIDs(5)
	w.sim.Say(ana, "dos")
	w.reads(ana, "eco: dos")
	w.sim.Say(ana, "tres")
	w.reads(ana, "eco: tres")
}

func TestC11PoisonIsSetAsideAndItsNeighboursAreHandled(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.agent(echo)
		w.sim.Say(ana, "antes")
		for _, body := range []string{
			`{"brand_new_kind":{"x":1}}`, `{"message":5}`, `{"message":{"message_id":"x"}}`, `{}`,
			`{"callback_query":{"id":"1"}}`, `{"message":{"message_id":1,"date":1,"chat":{"id":7001,"type":"private"},"from":{"id":7001},"text":7}}`,
			`{"my_chat_member":{"new_chat_member":{"status":"from the future"}}}`, `null`, `"text"`, `[1]`, `{"update_id":"x"}`,
			`{"edited_message":{"message_id":9,"chat":{"id":7001,"type":"private"}}}`, // C12
			"{\"message\":{\"message_id\":900,\"date\":1,\"chat\":{\"id\":7001,\"type\":\"private\"},\"from\":{\"id\":7001,\"first_name\":\"\xff\xfe\"},\"text\":\"mal \xff\"}}",
			`{"message":{"message_id":901,"date":1,"chat":{"id":7001,"type":"private"},"from":{"id":7001},"text":"/he","entities":[{"type":"bot_command","offset":-5,"length":99999}]}}`,
			`{"message":{"message_id":902,"date":1,"chat":{"id":7001,"type":"private"},"from":{"id":7001},"forward_origin":{"type":"from_mars"},"text":"reenviado"}}`,
		} {
			w.push(body)
		}
		w.sim.Say(ana, "después")
		w.start()
		w.reads(ana, "antes")
		w.reads(ana, "después")
		w.reads(ana, "reenviado")
		w.until("confirmed", func() bool { return len(w.sim.Unconfirmed()) == 0 })
	})
}

func TestC11AnUpdateThatIsNoJSONIsIsolated(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	// Between the bot and Telegram, so that an answer with a certain word in it is no JSON.
	spoil := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		rec := httptest.NewRecorder()
		w.sim.Handler().ServeHTTP(rec, r)
		body := rec.Body.String()
		if strings.Contains(body, "VENENO") {
			body = strings.ReplaceAll(body, `"text":"VENENO"`, `"text":VENENO`)
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(rec.Code)
		_, _ = rw.Write([]byte(body))
	}))
	t.Cleanup(spoil.Close)
	w.sim.Say(ana, "antes")
	w.sim.Say(ana, "VENENO")
	w.sim.Say(ana, "después")
	w.start(func(c *bot.Config) { c.APIURL = spoil.URL })
	w.reads(ana, "antes")
	w.reads(ana, "después")
	if !w.log.has("update.poison") {
		t.Error("nobody was told")
	}
}

func TestC16AGatewaysPageIsWaitedOutAndNotLogged(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.sim.Fault(telegram.Fault{Kind: telegram.BadGateway, Method: "getMe"})
	w.sim.Fault(telegram.Fault{Kind: telegram.BadGateway, Method: "getUpdates", Count: 2})
	w.sim.Fault(telegram.Fault{Kind: telegram.ServerError, Method: "getUpdates", Nth: 3})
	w.sim.Fault(telegram.Fault{Kind: telegram.CutBody, Method: "getUpdates", Nth: 4})
	w.start()
	w.sim.Say(ana, "hola")
	w.reads(ana, "eco: hola")
	if strings.Contains(w.log.String(), "<html") {
		t.Error("a page was logged")
	}
}

func TestC19APollWaitsAsLongAsItIsTold(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.sim.Fault(telegram.Fault{Kind: telegram.TooManyRequests, Method: "getUpdates", RetryAfter: 2})
	w.start()
	w.sim.Say(ana, "hola")
	w.reads(ana, "eco: hola")
}

func TestC15AConflictHealsByItself(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.start()
	w.until("polling", func() bool { return len(w.calls("getUpdates")) > 0 })
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.http.URL+"/bot"+telegram.DefaultToken+"/getUpdates?timeout=1", nil)
		must(t, err)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			resp.Body.Close()
		}
		cancel()
	}
	w.sim.Say(ana, "hola")
	w.reads(ana, "eco: hola")
	if w.log.has("security.") || strings.Contains(w.log.String(), `"level":"error","event":"telegram.conflict"`) {
		t.Error("a short conflict was alarmed")
	}
}

func TestC14ASecondProcessSaysWhoHoldsTheBotAndDoesNotPoll(t *testing.T) {
	t.Parallel()
	open := storetest.Opener(t, "postgres")
	w := newWorld(t, open(store.Config{}))
	w.agent(echo)
	w.start(func(c *bot.Config) { c.LeaseTTL = patience })
	w.until("polling", func() bool { return len(w.calls("getUpdates")) > 0 })
	other := *w
	other.store, other.log = open(store.Config{}), &logs{}
	stop := other.start(func(c *bot.Config) { c.LeaseTTL = time.Second })
	w.until("refused", func() bool { return other.log.has("bot.held") })
	if !strings.Contains(other.log.String(), w.store.Instance()) {
		t.Errorf("it does not say who: %s", other.log)
	}
	w.sim.Say(ana, "hola")
	w.reads(ana, "eco: hola")
	stop()
	if other.log.has("bot.started") {
		t.Error("it polled")
	}
}

func TestARevokedTokenStopsTheBotAndNotTheProcess(t *testing.T) {
	w := alone(t)
	w.sim.Fault(telegram.Fault{Kind: telegram.Unauthorized, Count: -1})
	stop := w.start()
	w.until("alarm", func() bool { return w.log.has("telegram.token_refused") })
	stop()
}

func TestC36OurNameAfterACommandIsOursInAnyCase(t *testing.T) {
	w := alone(t)
	w.start()
	w.sim.Say(ana, "/HELP@Pilder_DEMO_bot")
	w.reads(ana, "/connect")
	w.sim.Say(ana, "/help@other_bot")
	w.sim.Say(ana, "/nope")
	w.reads(ana, "No conozco esa orden")
	if n := len(w.seen(ana)); n != 2 {
		t.Errorf("%d answers: %q", n, w.seen(ana))
	}
}

func TestC01AMessageDuringARunIsAcknowledgedAndRunsInItsTurn(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		free := make(chan struct{})
		w.agent(func(ctx context.Context, r store.Run) string {
			if r.Messages[0].Text == "uno" {
				<-free
			}
			return echo(ctx, r)
		})
		w.start()
		w.sim.Say(ana, "uno")
		w.until("running", func() bool { return cmp.Equal(w.fates(ana), []store.Fate{store.FateRunning}) })
		w.sim.Say(ana, "dos")
		w.sim.Say(ana, "tres")
		w.reads(ana, "Recibido")
		w.until("taken", func() bool { return len(w.fates(ana)) == 3 })
		close(free)
		w.reads(ana, "eco: uno")
		w.reads(ana, "eco: dos | tres")
	})
}

func TestC57CommandsAreAnsweredWhileARunIsBusy(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		stopped := make(chan error, 1)
		w.turns(func(ctx context.Context, r store.Run) store.Finish {
			<-ctx.Done()
			stopped <- context.Cause(ctx)
			return store.Finish{State: store.RunFailed, Reason: "stopped"}
		})
		w.start()
		w.sim.Say(ana, "algo largo")
		w.until("running", func() bool { return cmp.Equal(w.fates(ana), []store.Fate{store.FateRunning}) })
		w.sim.Say(ana, "otra cosa")
		w.reads(ana, "Recibido")
		w.sim.Say(ana, "/why")
		w.reads(ana, "en ello")
		w.sim.Say(ana, "/stop")
		w.reads(ana, "He parado. Lo que esperaba turno ya no se hará: 1.")
		<-stopped
		w.until("settled", func() bool {
			return cmp.Equal(w.fates(ana), []store.Fate{store.FateCancelled, store.FateCancelled, store.FateDone, store.FateDone})
		})
		w.sim.Say(ana, "/stop")
		w.reads(ana, "No había nada en marcha")
	})
}

func TestFilesAreRefusedHonestlyAndTheirWordsHeard(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.start()
	w.sim.Send(ana, telegram.Upload{Name: "a.pdf", Content: []byte("x")})
	w.reads(ana, "Todavía no puedo abrir archivos")
	w.sim.Send(ana, telegram.Upload{Name: "a.pdf", Content: []byte("x"), Caption: "resume esto"})
	w.reads(ana, "eco: resume esto")
}

func TestMoreTextThanAnybodyTypesIsRefusedPolitely(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.start()
	w.push(`{"message":{"message_id":5000,"date":1,"chat":{"id":7001,"type":"private"},"from":{"id":7001,"language_code":"es"},"text":"` + strings.Repeat("a", 300<<10) + `"}}`)
	w.reads(ana, "demasiado largo")
	w.sim.Say(ana, "corto")
	w.reads(ana, "eco: corto")
}

func TestDecode(t *testing.T) {
	private := `"message_id":1,"date":1,"chat":{"id":5,"type":"private"},"from":{"id":5}`
	text := func(s string) string { return `{"update_id":1,"message":{` + private + `,"text":"` + s + `"}}` }
	tests := map[string]struct {
		in   string
		want bot.Decoded
	}{
		"ordinary text":                   {text("hola"), bot.Decoded{Kind: store.ArrivalMessage, Text: "hola", Want: "text"}},
		"text beginning with @":           {text("@pilder_demo_bot hola"), bot.Decoded{Kind: store.ArrivalMessage, Text: "@pilder_demo_bot hola", Want: "text"}},
		"text beginning with --":          {text("--resume x"), bot.Decoded{Kind: store.ArrivalMessage, Text: "--resume x", Want: "text"}},
		"a path is no command":            {text("/etc/passwd"), bot.Decoded{Kind: store.ArrivalMessage, Text: "/etc/passwd", Want: "text"}},
		"a lone slash":                    {text("/ hola"), bot.Decoded{Kind: store.ArrivalMessage, Text: "/ hola", Want: "text"}},
		"unknown command":                 {text("/resume abc"), bot.Decoded{Kind: store.ArrivalControl, Want: "command", Name: "resume", Rest: "abc"}},
		"a command inside a text":         {text("mira /stop"), bot.Decoded{Kind: store.ArrivalMessage, Text: "mira /stop", Want: "text"}},
		"a command with a payload":        {text("/start abc-DEF_9"), bot.Decoded{Kind: store.ArrivalControl, Want: "command", Name: "start", Rest: "abc-DEF_9"}},
		"only space":                      {text("   "), bot.Decoded{Kind: store.ArrivalIgnored, Reason: "service"}},
		"C42: an edit is never a command": {`{"update_id":1,"edited_message":{` + private + `,"text":"/stop"}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "edited"}},
		"a group":                         {`{"update_id":1,"message":{"message_id":1,"chat":{"id":-5,"type":"supergroup"},"from":{"id":5},"text":"/help"}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "group"}},
		"a channel writing as itself":     {`{"update_id":1,"message":{"message_id":1,"chat":{"id":5,"type":"private"},"text":"x"}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "no_person"}},
		"a bot":                           {`{"update_id":1,"message":{"message_id":1,"chat":{"id":5,"type":"private"},"from":{"id":5,"is_bot":true},"text":"x"}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "from_bot"}},
		"a service message":               {`{"update_id":1,"message":{` + private + `,"pinned_message":{}}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "service"}},
		"a photo":                         {`{"update_id":1,"message":{` + private + `,"photo":[{}]}}`, bot.Decoded{Kind: store.ArrivalControl, Want: "files"}},
		"a photo with words":              {`{"update_id":1,"message":{` + private + `,"photo":[{}],"caption":"qué es"}}`, bot.Decoded{Kind: store.ArrivalMessage, Text: "qué es", Want: "text"}},
		"a forward is quoted":             {`{"update_id":1,"message":{` + private + `,"forward_origin":{"type":"user"},"text":"a\nb"}}`, bot.Decoded{Kind: store.ArrivalMessage, Text: "[forwarded, written by somebody else]\n> a\n> b", Want: "text", Foreign: true}},
		"telegram's stop button":          {`{"update_id":1,"stopped_message_generation":{"chat":{"id":5,"type":"private"},"draft_id":3}}`, bot.Decoded{Kind: store.ArrivalControl, Want: "stop"}},
		"membership":                      {`{"update_id":1,"my_chat_member":{}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "chat_member"}},
		"a new kind":                      {`{"update_id":1,"mind_reading":{}}`, bot.Decoded{Kind: store.ArrivalIgnored, Reason: "kind"}},
		"a wrong type":                    {`{"update_id":1,"message":[]}`, bot.Decoded{Kind: store.ArrivalBroken, Reason: "undecodable"}},
		"somebody in another's chat": {`{"update_id":1,"message":{"message_id":2,"chat":{"id":8,"type":"private"},"from":{"id":7,"first_name":"x"},"text":"hola"}}`,
			bot.Decoded{Kind: store.ArrivalBroken, Reason: "foreign_chat"}},
		"an anonymous tap": {`{"update_id":1,"callback_query":{"data":"x"}}`, bot.Decoded{Kind: store.ArrivalBroken, Reason: "tap_without_sender"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, bot.Decode(tt.in)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestATokenThatIsNoneIsRefusedWithoutBeingShown(t *testing.T) {
	for _, token := range []string{"", "abc", "123", "123:", ":abcdefghijklmnop", "12 3:abcdefghijklmnop", "123:abc/../defghijklmnop", "0:abcdefghijklmnop"} {
		_, err := bot.New(bot.Config{Token: store.NewSecret(token)}, nil)
		if !errors.Is(err, bot.ErrToken) {
			t.Errorf("%q: %v", token, err)
		}
	}
}
