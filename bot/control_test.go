package bot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/bot"
	"pilder/policy"
	"pilder/sim/telegram"
	"pilder/store"
	"pilder/store/storetest"
)

const mailArgs = `{"para":["cliente@otra.com","dario@empresa.com"],"asunto":"Presupuesto","texto":"Hola,\nva adjunto."}`

// asks has a run of Ana's hold a call, and gives its approval.
func (w *world) asks(tool, args string, effect policy.Effect) store.Approval {
	w.t.Helper()
	asked := make(chan store.Approval, 1)
	w.turns(func(ctx context.Context, r store.Run) store.Finish {
		begun, err := w.store.BeginCall(ctx, store.NewCall{Run: r, Tool: tool, Class: policy.ClassWrite, Args: json.RawMessage(args),
			Decision: policy.Decision{Effect: effect, Rule: "mail.outside"}}, bot.Card)
		if err != nil || begun.Approval == nil {
			w.t.Errorf("holding a call: %+v %v", begun, err)
			return store.Finish{State: store.RunFailed}
		}
		asked <- *begun.Approval
		return store.Finish{State: store.RunSucceeded, Reason: "ok", Drafts: []store.Draft{bot.Answer(r, "queda pendiente")}}
	})
	w.start()
	w.sim.Say(ana, "envía el presupuesto")
	select {
	case a := <-asked:
		return a
	case <-time.After(patience):
		w.t.Fatalf("no run asks\n%s", w.log)
		return store.Approval{}
	}
}

// executes performs approved calls and counts them.
func (w *world) executes(o store.Outcome) (count func() int) {
	w.t.Helper()
	w.live()
	var mu sync.Mutex
	n := 0
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		err := w.store.ServeApproved(ctx, 2, func(ctx context.Context, a store.Approval) error {
			ok, err := w.store.BeginApproved(ctx, a)
			if err != nil || !ok {
				return err
			}
			mu.Lock()
			n++
			mu.Unlock()
			return w.store.EndApproved(ctx, a, store.Ended{Outcome: o, Text: "Sent message with id 17"}, bot.Outcome(a, o, "Sent message with id 17")...)
		})
		if err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(func() { cancel(); all.Wait() })
	return func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// answered waits for what a tap was told.
func (w *world) answered(query string) string {
	w.t.Helper()
	var a telegram.TapAnswer
	w.until("tap answered", func() bool {
		var ok bool
		a, ok = w.sim.TapAnswer(query)
		return ok
	})
	return a.Text
}

func TestAHeldCallIsShownApprovedOnceAndItsOutcomeTold(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		done := w.executes(store.OutcomeDone)
		a := w.asks("correo_enviar", mailArgs, policy.Hold)
		card := w.reads(bruno, "Your approval is needed")
		for _, text := range []string{"Ana Torres wants to: send a mail", "To: ⚠️ \ncliente@otra.com\ndario@empresa.com (outside the company)", "Subject: Presupuesto", "Text: \nHola,\nva adjunto.", "Code " + a.Code} {
			if !strings.Contains(card.Text, text) {
				t.Errorf("the card lacks %q:\n%s", text, card.Text)
			}
		}
		other := w.reads(carla, "Hace falta tu aprobación")
		if len(card.Buttons) != 1 || len(other.Buttons) != 1 {
			t.Fatalf("buttons %+v", card.Buttons)
		}
		for _, b := range append(card.Buttons[0], other.Buttons[0]...) {
			if len(b.Data) > 64 || strings.Contains(b.Data, string(a.ID)) { // C50
				t.Errorf("button data %q", b.Data)
			}
		}
		query := w.sim.PressLabel(bruno, card.ID, "✅ Approve")
		if got := w.answered(query); got != "Approved. I am on it." {
			t.Errorf("toast %q", got)
		}
		again := w.sim.Press(bruno, card.ID, card.Buttons[0][0].Data)
		if got := w.answered(again); !strings.HasPrefix(got, "Bruno Lee decided that before (") {
			t.Errorf("second toast %q", got)
		}
		w.reads(ana, "Hecho: enviar un correo.")
		for who, id := range map[int64]int64{bruno: card.ID, carla: other.ID} {
			w.until("cards lose their buttons", func() bool {
				for _, m := range w.sim.Transcript(who) {
					if m.ID == id {
						return len(m.Buttons) == 0 && strings.Contains(m.Text, "Bruno Lee") && strings.Contains(m.Text, a.Code)
					}
				}
				return false
			})
		}
		if n := done(); n != 1 {
			t.Errorf("performed %d times", n)
		}
	})
}

func TestC47OnlyWhoMayDecideDecides(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		done := w.executes(store.OutcomeDone)
		a := w.asks("correo_enviar", mailArgs, policy.Hold)
		card := w.reads(bruno, "Your approval is needed")
		for _, p := range []struct {
			who  int64
			want string
		}{{ana, "Esta decisión le toca a otra persona."}, {dario, "Esta decisión le toca a otra persona."}, {stranger, "This button no longer works."}} {
			q := w.sim.Press(p.who, card.ID, card.Buttons[0][0].Data) // a forged press: only the data is theirs
			if got := w.answered(q); got != p.want {
				t.Errorf("%d is told %q", p.who, got)
			}
		}
		w.sim.Say(ana, "/approve "+a.Code)
		w.reads(ana, "Esta decisión le toca a otra persona.")
		w.sim.Say(ana, "sí, aprobado")
		if !w.log.has("security.not_yours") {
			t.Error("it was not logged")
		}
		w.sim.Say(bruno, "/deny "+strings.ToLower(a.Code)+" please")
		w.reads(bruno, "Refused. It will not be done.")
		w.reads(ana, "No se aprobó: enviar un correo.")
		if n := done(); n != 0 {
			t.Errorf("performed %d times", n)
		}
	})
}

func TestC48ALateAnswerToATapChangesNothing(t *testing.T) {
	w := alone(t)
	done := w.executes(store.OutcomeDone)
	w.sim.Fault(telegram.Fault{Kind: telegram.Refuse, Method: "answerCallbackQuery", Code: 400, Count: -1,
		Description: "Bad Request: query is too old and response timeout expired or query ID is invalid"})
	w.asks("correo_enviar", mailArgs, policy.Confirm)
	card := w.reads(ana, "¿Lo hago?")
	w.sim.PressLabel(ana, card.ID, "✅ Enviar")
	w.reads(ana, "Hecho: enviar un correo.")
	w.reads(ana, "✅ Confirmado: enviar un correo")
	if n := done(); n != 1 {
		t.Errorf("performed %d times", n)
	}
}

func TestC49ACardWorksAfterARestart(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		done := w.executes(store.OutcomeUnknown)
		w.asks("correo_enviar", mailArgs, policy.Confirm)
		card := w.reads(ana, "¿Lo hago?")
		w.stop()
		w.sim.PressLabel(ana, card.ID, "✅ Enviar")
		w.start()
		w.reads(ana, "No sé con seguridad si esto llegó a hacerse: enviar un correo.")
		if n := done(); n != 1 {
			t.Errorf("performed %d times", n)
		}
	})
}

func TestC51APressAfterExpirySaysSo(t *testing.T) {
	t.Parallel()
	for _, database := range storetest.Databases() {
		t.Run(database, func(t *testing.T) {
			t.Parallel()
			clock := &shifted{}
			w := newWorld(t, storetest.Opener(t, database)(store.Config{Now: clock.Now}))
			done := w.executes(store.OutcomeDone)
			a := w.asks("correo_enviar", mailArgs, policy.Hold)
			card := w.reads(bruno, "Your approval is needed")
			clock.Advance(25 * time.Hour)
			q := w.sim.PressLabel(bruno, card.ID, "✅ Approve")
			if got := w.answered(q); got != "It expired: it can no longer be decided. Nothing was done." {
				t.Errorf("toast %q", got)
			}
			_, err := w.store.ExpireApprovals(t.Context(), bot.Expired)
			must(t, err)
			w.reads(ana, "Nadie lo decidió a tiempo: enviar un correo.")
			w.reads(bruno, "⌛")
			w.sim.Say(bruno, "/approve "+a.Code)
			w.until("told again", func() bool { return w.count(bruno, "It expired: it can no longer be decided. Nothing was done.") == 1 })
			if n := done(); n != 0 {
				t.Errorf("performed %d times", n)
			}
		})
	}
}

// shifted is a clock that goes, since the bot's own does, and can be put ahead.
type shifted struct{ by atomic.Int64 }

func (c *shifted) Now() time.Time          { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *shifted) Advance(d time.Duration) { c.by.Add(int64(d)) }

func TestApprovalsShowsFreshCardsToDecidersAndALineToOthers(t *testing.T) {
	w := alone(t)
	a := w.asks("correo_enviar", mailArgs, policy.Hold)
	w.reads(bruno, "Your approval is needed")
	w.sim.Say(ana, "/approvals")
	w.reads(ana, "enviar un correo · código "+a.Code)
	w.sim.Say(bruno, "/approvals")
	w.until("a second card", func() bool {
		n := 0
		for _, m := range w.sim.Transcript(bruno) {
			if strings.Contains(m.Text, a.Code) && len(m.Buttons) > 0 {
				n++
			}
		}
		return n == 2
	})
	w.sim.Say(dario, "/approvals")
	w.reads(dario, "No hay nada esperando")
}

func TestC54ACardHidesNothing(t *testing.T) {
	b := cardBot(t)
	long := strings.Repeat("palabra <b>x</b> [y](http://z) ", 400)
	approval := func(args string) *store.Approval {
		return &store.Approval{ID: "apr_1", Code: "K7M2QF", Kind: policy.Hold, State: store.ApprovalPending, Tool: "notion-update-page", App: "notion",
			Requester: store.Membership{Person: store.Person{Name: "Ana\nAprobado ✅"}, Company: store.Company{Domains: []string{"empresa.com"}}},
			Args:      json.RawMessage(args), Digest: strings.Repeat("ab", 32)}
	}
	many := map[string]string{}
	for i := range 60 {
		many[fmt.Sprintf("campo_%02d", i)] = strings.Repeat(fmt.Sprint(i%10), 190)
	}
	manyJSON, err := json.Marshal(many)
	must(t, err)
	tests := map[string]struct {
		args string
		want []string
	}{
		"nothing":               {`{}`, []string{"(sin más datos)"}},
		"markup stays literal":  {`{"a":"**x** <b>y</b> [z](http://w)"}`, []string{"**x** <b>y</b> [z](http://w)"}},
		"all kinds":             {`{"n":12345678901234567890,"b":false,"z":null,"o":{"k":[1,"dos"]},"l":["a","b"]}`, []string{"n: 12345678901234567890", "b: false", "z: null", `o: {"k":[1,"dos"]}`, "l: \na\nb"}},
		"doubled names":         {`{"x":"uno","x":"dos"}`, []string{"x: uno", "x: dos"}},
		"the invisible is seen": {`{"para":"a@empresa.com\u202e","b":"x\u0000y\u200by"}`, []string{"⚠️ a@empresa.com⟦U+202E⟧ (fuera de la empresa)", "x⟦U+0000⟧y⟦U+200B⟧y"}},
		"no object":             {`["a"]`, []string{`["a"]`}},
		"broken":                {`{"a":`, []string{`{"a":`}},
		"outside guests":        {`{"attendees":["x@fuera.com"]}`, []string{"Invitados: ⚠️ x@fuera.com (fuera de la empresa)"}},
		"inside":                {`{"to":"b@empresa.com"}`, []string{"Para: b@empresa.com"}},
		"a long value":          {`{"texto":` + quoted(long) + `}`, []string{strings.TrimSpace(long), "Huella abababababababab", "entero en «Ver todo»"}},
		"a long name":           {`{` + quoted(long) + `:1}`, []string{strings.TrimSpace(long) + " : 1"}},
		"many values":           {string(manyJSON), []string{"campo_00: " + many["campo_00"], "campo_59: " + many["campo_59"], "campo_30: " + many["campo_30"]}},
		"secrets of ours":       {`{"t":"sk-ant-api03-abcdefghijklmnop"}`, []string{"t: ••••"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			parts, err := b.Parts(store.Reply{Approval: approval(tt.args), Draft: store.Draft{Kind: store.DraftCard, Notice: "card.hold", Lang: "es", Args: map[string]string{"expires": "2026-12-01T12:00:00Z", "zone": "America/Argentina/Buenos_Aires"}}})
			must(t, err)
			var all strings.Builder
			for _, p := range parts {
				check(t, tt.args, p)
				if bot.Units(p.Text) > 4096 {
					t.Errorf("a part of %d", bot.Units(p.Text))
				}
				all.WriteString(p.Text + "\n")
			}
			for _, want := range append(tt.want, "Ana Aprobado ✅ quiere: cambiar una página de Notion", "App: Notion", "Código K7M2QF · vale hasta 01/12 09:00") {
				if !strings.Contains(bare(all.String()), bare(want)) {
					t.Errorf("lacks %.200q in\n%.3000s", want, all.String())
				}
			}
		})
	}
}

// Models write arguments in any order, mostly by the alphabet; people look for whom, about what, when.
func TestACardShowsWhatPeopleLookForFirst(t *testing.T) {
	b := cardBot(t)
	for args, want := range map[string][]string{
		`{"asunto":"Hola","cc":["c@empresa.com"],"cco":["d@empresa.com"],"cuerpo":"Va.","para":["b@empresa.com"]}`:                                               {"Para", "Copia", "Copia oculta", "Asunto", "Texto"},
		`{"attendees":["b@empresa.com"],"calendarId":"primary","colorId":"1","eventEndDate":"11","eventStartDate":"10","sendUpdates":"all","summary":"Reunión"}`: {"Título", "Empieza", "Acaba", "Invitados", "Avisar a los invitados", "Calendario", "colorId"},
		`{"zz":1,"aa":2,"summary":"x","aa":3}`: {"Título", "zz", "aa", "aa"},
	} {
		parts, err := b.Parts(store.Reply{
			Approval: &store.Approval{Kind: policy.Confirm, State: store.ApprovalPending, Tool: "x", Args: json.RawMessage(args), Requester: store.Membership{Company: store.Company{Domains: []string{"empresa.com"}}}},
			Draft:    store.Draft{Kind: store.DraftCard, Notice: "card.confirm", Lang: "es"},
		})
		must(t, err)
		var labels []string
		for _, l := range strings.Split(parts[0].Text, "\n")[3:] {
			label, _, found := strings.Cut(l, ": ")
			if !found {
				break
			}
			labels = append(labels, label)
		}
		if diff := cmp.Diff(want, labels); diff != "" {
			t.Errorf("%s:\n%s", parts[0].Text, diff)
		}
	}
}

func quoted(s string) string { b, _ := json.Marshal(s); return string(b) }

func cardBot(t *testing.T) *bot.Bot {
	t.Helper()
	b, err := bot.New(bot.Config{Token: store.NewSecret(telegram.DefaultToken)}, nil)
	must(t, err)
	return b
}

func TestC52ACardDecidedBeforeItGoesOutHasNoButtons(t *testing.T) {
	w := alone(t)
	p, err := w.store.AcquirePoller(t.Context(), botID(t, w), time.Minute)
	must(t, err)
	_, err = w.store.Receive(t.Context(), p, []store.Arrival{{UpdateID: 1, Raw: []byte("{}"), Kind: store.ArrivalMessage, Text: "x", Telegram: 1,
		From: store.Person{Telegram: ana}, Chat: store.Chat{ID: ana, Private: true}}})
	must(t, err)
	asked := make(chan store.Approval, 1)
	w.turns(func(ctx context.Context, r store.Run) store.Finish {
		begun, err := w.store.BeginCall(ctx, store.NewCall{Run: r, Tool: "correo_enviar", Class: policy.ClassWrite, Args: json.RawMessage(mailArgs),
			Decision: policy.Decision{Effect: policy.Hold}}, bot.Card)
		if err == nil {
			asked <- *begun.Approval
		}
		return store.Finish{State: store.RunSucceeded, Reason: "ok"}
	})
	a := <-asked
	_, err = w.store.Decide(t.Context(), store.UpdateRef{}, store.Verdict{Approval: a.ID, Telegram: bruno}, func(store.Approval) []store.Draft { return nil })
	must(t, err)
	must(t, w.store.ReleasePoller(t.Context(), p))
	w.start()
	card := w.reads(bruno, a.Code)
	if len(card.Buttons) != 0 || !strings.Contains(card.Text, "Refused by") {
		t.Errorf("card %+v", card)
	}
}

func TestC73C74AStrangerLearnsNothingAndCostsNothing(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.agent(echo)
		w.start()
		for _, s := range []string{"/start", "/help", "hola", "/approvals", "/connect", "/why", "/start made-up-token"} {
			w.sim.Say(stranger, s) // whose username is that of the admin
		}
		w.until("all refused", func() bool {
			f := w.fates(stranger)
			for _, x := range f {
				if x != store.FateRefused {
					return false
				}
			}
			return len(f) == 7
		})
		w.reads(stranger, "This assistant is only for people invited")
		w.sim.Say(ana, "hola")
		w.reads(ana, "eco: hola")
		if n := len(w.seen(stranger)); n != 1 {
			t.Errorf("%d lines: %q", n, w.seen(stranger))
		}
		for _, word := range []string{"Empresa", "Pilder", "Ana", "/connect"} {
			if strings.Contains(w.seen(stranger)[0], word) {
				t.Errorf("the line says %q", word)
			}
		}
		runs, err := w.store.Runs(t.Context(), "", 10)
		must(t, err)
		if len(runs) != 1 {
			t.Errorf("%d runs", len(runs))
		}
	})
}

func TestAnInvitationIsShownAcceptedAndSpentOnce(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.agent(echo)
		w.start()
		token, err := w.store.Invite(t.Context(), w.company.ID, policy.RoleMember, w.who[carla].ID, time.Hour)
		must(t, err)
		w.sim.Say(stranger, "/start "+token.Reveal())
		offer := w.reads(stranger, "You have been invited to Empresa as member")
		w.sim.PressLabel(stranger, offer.ID, "Join")
		w.reads(stranger, "Welcome, Zé! You are now in Empresa.")
		w.sim.Say(stranger, "oi")
		w.reads(stranger, "eco: oi")
		if n := w.sim.Press(stranger, offer.ID, offer.Buttons[0][0].Data); w.answered(n) == "" {
			t.Error("a second press is told nothing")
		}
		w.sim.Say(dario, "/start "+token.Reveal())
		w.reads(dario, "Esta invitación ya no sirve")
		m, err := w.store.MembershipOf(t.Context(), stranger)
		must(t, err)
		if d := cmp.Diff(policy.RoleMember, m.Role); d != "" {
			t.Error(d)
		}
	})
}

func TestConnectOffersAppsAndBringsALink(t *testing.T) {
	w := alone(t)
	w.start()
	w.sim.Say(ana, "/connect")
	offer := w.reads(ana, "¿Qué quieres conectar?")
	q := w.sim.PressLabel(ana, offer.ID, "Google Calendar")
	w.answered(q)
	link := w.reads(ana, "Conecta Google Calendar con este enlace personal")
	if len(link.Buttons) != 1 || !strings.HasPrefix(link.Buttons[0][0].URL, "https://pilder.example/connect/") || link.Buttons[0][0].Text != "Conectar Google Calendar" {
		t.Errorf("buttons %+v", link.Buttons)
	}
	w.sim.Say(ana, "/connect gmail")
	w.reads(ana, "Conecta Gmail con")
	w.sim.Say(ana, "/connect myspace")
	w.reads(ana, "No conozco esa app")
}

func TestAnAppIsCalledAsItsOperatorCallsItAndOnlyWhatCanBeConnectedIsOffered(t *testing.T) {
	w := alone(t)
	w.start(func(c *bot.Config) {
		c.Apps = []bot.App{{Slug: "stock", Name: policy.Text{ES: "Almacén", EN: "Stock room"}}}
		c.Open = []bot.App{{Slug: "billing", Name: policy.Text{ES: "Facturas", EN: "Invoices"}}}
	})
	w.sim.Say(bruno, "/connect Almacén") // by its name in either language
	w.reads(bruno, "Connect Stock room with this personal link")
	w.sim.Say(ana, "/connect billing")
	offer := w.reads(ana, "No conozco esa app")
	if diff := cmp.Diff([]string{"Almacén"}, labels(offer)); diff != "" {
		t.Errorf("offered: %s", diff)
	}
	must(t, w.store.Say(t.Context(), bot.Lost(store.CallView{Tool: "billing-new_invoice", App: "billing"}, store.Run{Member: w.who[bruno],
		Principal: w.who[bruno].Principal(), Chat: store.Chat{ID: bruno, Private: true}})...))
	w.reads(bruno, "Something was cut off half-way: Invoices: new invoice.")
}

func TestAnAccountIsItsPersonsWord(t *testing.T) {
	w := alone(t)
	removed := make(chan store.Account, 1)
	w.start(func(c *bot.Config) {
		c.RemoveAccount = func(_ context.Context, a store.Account) error { removed <- a; return nil }
	})
	for i, label := range []string{"Sí, es mía", "No es mía"} {
		var secret store.Secret
		must(t, w.store.CreateLink(t.Context(), store.UpdateRef{}, w.who[ana], "gmail", store.Chat{ID: ana, Private: true}, time.Hour, func(s store.Secret) store.Draft {
			secret = s
			return bot.LinkDraft(w.who[ana], "gmail", store.Chat{ID: ana, Private: true}, store.NewSecret("https://pilder.example/"+s.Reveal()))
		}))
		must(t, w.store.OpenLink(t.Context(), secret, store.NewSecret(fmt.Sprint("ctok", i)), nil))
		open, err := w.store.OpenedLinks(t.Context())
		must(t, err)
		must(t, w.store.OfferAccount(t.Context(), open[0].ID, fmt.Sprint("apn_", i), fmt.Sprintf("ana%d@gmail.com", i), func(a store.Account) store.Draft { return bot.AccountCard(a, w.who[ana]) }))
		card := w.reads(ana, fmt.Sprintf("una cuenta de Gmail: ana%d@gmail.com", i))
		q := w.sim.Press(dario, card.ID, card.Buttons[0][i].Data)
		if got := w.answered(q); got != "Esta decisión le toca a otra persona." {
			t.Errorf("somebody else is told %q", got)
		}
		w.sim.PressLabel(ana, card.ID, label)
	}
	w.reads(ana, "Listo, cuenta conectada")
	w.reads(ana, "De acuerdo, no la usaré")
	if n := strings.Count(w.log.String(), `"event":"account.connected"`); n != 1 {
		t.Errorf("%d accounts were logged as connected", n)
	}
	select {
	case a := <-removed:
		if a.Name != "ana1@gmail.com" {
			t.Errorf("removed %q", a.Name)
		}
	case <-time.After(patience):
		t.Error("the provider was not told")
	}
}

func TestNewStartHelpAndWhyAreAnswered(t *testing.T) {
	w := alone(t)
	w.agent(echo)
	w.start()
	for say, want := range map[string]string{"/start": "Hola, Ana Torres. Soy Pilder, tu asistente en Empresa.", "/help": "/approvals", "/new": "empezamos de cero", "/approve": "Escribe el código detrás",
		"/approve ZZZZZZ": "No encuentro ese código"} {
		w.sim.Say(ana, say)
		w.reads(ana, want)
	}
	w.sim.Say(dario, "/why")
	w.reads(dario, "Aún no tengo mensajes tuyos")
	w.sim.Say(dario, "hola")
	w.reads(dario, "eco: hola")
	w.until("answered", func() bool { return w.fates(dario)[1] == store.FateAnswered })
	w.sim.Say(dario, "/why")
	w.reads(dario, "— respondido")
	w.sim.Say(bruno, "/start")
	w.reads(bruno, "Hello, Bruno Lee. I am Pilder")
}

func TestHelpNamesEveryCommandOfTheMenu(t *testing.T) {
	w := alone(t)
	w.start()
	w.until("the menu is told", func() bool { return len(w.calls("setMyCommands")) == 3 })
	var menu []struct{ Command, Description string }
	must(t, json.Unmarshal([]byte(w.calls("setMyCommands")[0].Params["commands"]), &menu))
	for person, known := range map[int64]string{ana: "Escríbeme lo que necesitas", bruno: "Write what you need"} {
		w.sim.Say(person, "/help")
		help := w.reads(person, known)
		for _, c := range menu {
			if c.Command != "help" && !strings.Contains(help.Text, "/"+c.Command) {
				t.Errorf("%d is not told of /%s", person, c.Command)
			}
		}
	}
}

func TestC24AnEditThatChangesNothingIsASuccess(t *testing.T) {
	w := alone(t)
	w.executes(store.OutcomeDone)
	w.sim.Fault(telegram.Fault{Kind: telegram.Refuse, Method: "editMessageText", Code: 400, Count: -1,
		Description: "Bad Request: message is not modified: specified new message content and reply markup are exactly the same"})
	w.asks("correo_enviar", mailArgs, policy.Confirm)
	card := w.reads(ana, "¿Lo hago?")
	w.sim.PressLabel(ana, card.ID, "✅ Enviar")
	w.reads(ana, "Hecho: enviar un correo.")
	w.until("answer, card, edit and outcome are sent", func() bool {
		return cmp.Equal(w.replies(), []store.ReplyState{store.ReplySent, store.ReplySent, store.ReplySent, store.ReplySent})
	})
	if n := len(w.calls("editMessageText")); n != 1 {
		t.Errorf("%d edits", n)
	}
	if n := len(w.seen(ana)); n != 3 {
		t.Errorf("%q", w.seen(ana))
	}
}

func TestAnEditMayBeRepeatedAfterACut(t *testing.T) {
	w := alone(t)
	w.executes(store.OutcomeDone)
	w.sim.Fault(telegram.Fault{Kind: telegram.CutAfter, Method: "editMessageText"})
	w.asks("correo_enviar", mailArgs, policy.Confirm)
	card := w.reads(ana, "¿Lo hago?")
	w.sim.PressLabel(ana, card.ID, "✖️ Cancelar")
	w.reads(ana, "✖️ Cancelado: enviar un correo")
	w.until("all sent", func() bool {
		return cmp.Equal(w.replies(), []store.ReplyState{store.ReplySent, store.ReplySent, store.ReplySent})
	})
}
