package bot_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pilder/bot"
	"pilder/sim/telegram"
	"pilder/store"
)

// has gives a person an account without the connect flow.
func (w *world) has(person int64, app, name string) store.Account {
	w.t.Helper()
	a, err := w.store.SeedAccount(w.t.Context(), w.who[person], app, "apn_"+name, name)
	must(w.t, err)
	return a
}

// offers binds an account for a person as if a link had brought it, and gives the card that asks about it.
func (w *world) offers(person int64, app, name string) telegram.Message {
	w.t.Helper()
	chat := store.Chat{ID: person, Private: true}
	var secret store.Secret
	must(w.t, w.store.CreateLink(w.t.Context(), store.UpdateRef{}, w.who[person], app, chat, time.Hour, func(s store.Secret) store.Draft {
		secret = s
		return bot.LinkDraft(w.who[person], app, chat, store.NewSecret("https://pilder.example/"+s.Reveal()))
	}))
	must(w.t, w.store.OpenLink(w.t.Context(), secret, store.NewSecret("ctok"+name), nil))
	l, err := w.store.LinkByHash(w.t.Context(), secret.Hash())
	must(w.t, err)
	must(w.t, w.store.OfferAccount(w.t.Context(), l.ID, "apn_"+name, name, func(a store.Account) store.Draft { return bot.AccountCard(a, w.who[person]) }))
	return w.reads(person, name)
}

// inUse names a person's accounts in use, the chosen one with a star.
func (w *world) inUse(person int64) []string {
	w.t.Helper()
	all, err := w.store.Accounts(w.t.Context(), w.company.ID, w.who[person].ID)
	must(w.t, err)
	out := []string{}
	for _, a := range all {
		name := a.Name
		if a.Chosen {
			name = "*" + name
		}
		out = append(out, name)
	}
	return out
}

func TestAppsShowsEveryAccountWithItsStateAndWhatCanBeDone(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.start()
		w.sim.Say(ana, "/apps")
		w.reads(ana, "Todavía no tienes ninguna app conectada")
		w.has(ana, "gmail", "ana@gmail.com")
		w.has(ana, "gmail", "trabajo@gmail.com")
		broken := w.has(ana, "notion", "Notas")
		_, err := w.store.MarkAccountBroken(t.Context(), broken.Company, broken.ID, "refused", bot.BrokenCard(broken, w.who[ana]))
		must(t, err)
		told := w.reads(ana, "No puedo usar tu cuenta de Notion (Notas)")
		if d := cmp.Diff("🔄 Conectar otra vez: Notas", told.Buttons[0][0].Text); d != "" {
			t.Error(d)
		}
		w.sim.Say(ana, "/apps")
		list := w.reads(ana, "Tus apps:")
		for _, want := range []string{"Gmail: ana@gmail.com — es la que uso", "Gmail: trabajo@gmail.com", "Notion: Notas — hay que conectarla otra vez"} {
			if !strings.Contains(list.Text, want) {
				t.Errorf("the list lacks %q: %s", want, list.Text)
			}
		}
		w.sim.PressLabel(ana, list.ID, "Usar trabajo@gmail.com")
		w.reads(ana, "Para Gmail uso trabajo@gmail.com")
		w.sim.PressLabel(ana, list.ID, "🔄 Conectar otra vez: Notas")
		w.reads(ana, "Conecta Notion con este enlace personal")
		w.sim.PressLabel(ana, list.ID, "➕ Conectar otra")
		w.reads(ana, "¿Qué quieres conectar?")
		want := []string{"ana@gmail.com", "*trabajo@gmail.com", "*Notas"}
		got := w.inUse(ana)
		if got[0] != want[0] { // of two of one moment either may come first
			want[0], want[1] = want[1], want[0]
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
	})
}

func TestDisconnectTakesAnAccountAwayHereAndAtTheProvider(t *testing.T) {
	w := alone(t)
	removed := make(chan store.Account, 1)
	w.start(func(c *bot.Config) {
		c.RemoveAccount = func(_ context.Context, a store.Account) error { removed <- a; return nil }
	})
	w.has(ana, "gmail", "ana@gmail.com")
	w.has(ana, "notion", "Notas")
	w.sim.Say(ana, "/disconnect gmail")
	list := w.reads(ana, "¿Qué desconecto?")
	if len(list.Buttons) != 1 || list.Buttons[0][0].Text != "Gmail: ana@gmail.com" {
		t.Fatalf("buttons %+v", list.Buttons)
	}
	q := w.sim.Press(dario, list.ID, list.Buttons[0][0].Data)
	if got := w.answered(q); got != "Esta decisión le toca a otra persona." || !w.log.has("security.not_yours") {
		t.Errorf("somebody else is told %q", got)
	}
	w.sim.PressLabel(ana, list.ID, "Gmail: ana@gmail.com")
	w.reads(ana, "ya no uso ana@gmail.com de Gmail")
	select {
	case a := <-removed:
		if a.Name != "ana@gmail.com" {
			t.Errorf("removed %q", a.Name)
		}
	case <-time.After(patience):
		t.Error("the provider was not told")
	}
	if d := cmp.Diff([]string{"*Notas"}, w.inUse(ana)); d != "" {
		t.Error(d)
	}
	again := w.sim.Press(ana, list.ID, list.Buttons[0][0].Data)
	if got := w.answered(again); got != "Eso ya estaba contestado." {
		t.Errorf("a second press is told %q", got)
	}
	w.sim.Say(ana, "/disconnect gmail")
	w.reads(ana, "No hay ninguna cuenta que desconectar")
}

func categories(c *bot.Config) {
	c.Apps = []bot.App{{Slug: "google_calendar", Name: named("Google Calendar"), Category: "calendar"}, {Slug: "gmail", Name: named("Gmail"), Category: "mail"},
		{Slug: "calendly_v2", Name: named("Calendly"), Category: "calendar"}}
}

func TestASecondAppOfACategoryAsksOnceWhichIsMeant(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.start(categories)
		w.has(ana, "google_calendar", "ana@empresa.com")
		card := w.offers(ana, "calendly_v2", "calendly.com/ana")
		w.sim.PressLabel(ana, card.ID, "Sí, es mía")
		ask := w.reads(ana, "Ahora tienes más de una app para agenda")
		w.sim.PressLabel(ana, ask.ID, "Google Calendar para agenda")
		w.reads(ana, "Para agenda uso Google Calendar; si las dos sirven, te pregunto")

		more := w.offers(ana, "calendly_v2", "calendly.com/otra")
		w.sim.PressLabel(ana, more.ID, "Sí, es mía")
		w.sim.Say(ana, "/preferences")
		list := w.reads(ana, "agenda: Google Calendar")
		w.sim.PressLabel(ana, list.ID, "Calendly para agenda")
		w.reads(ana, "Para agenda uso Calendly")
		asks := 0
		for _, text := range w.seen(ana) {
			if strings.Contains(text, "Ahora tienes más de una app") {
				asks++
			}
		}
		if asks != 1 {
			t.Errorf("asked %d times", asks)
		}
		got, err := w.store.Preferences(t.Context(), w.company.ID, w.who[ana].ID)
		must(t, err)
		if d := cmp.Diff([]store.Preference{{Category: "calendar", App: "calendly_v2"}}, got); d != "" {
			t.Error(d)
		}
		// Somebody else's press is about their own apps, of which there are none.
		q := w.sim.Press(dario, list.ID, list.Buttons[0][0].Data)
		if text := w.answered(q); text != "Este botón ya no sirve." {
			t.Errorf("somebody else is told %q", text)
		}
	})
}

func TestARequestThatWaitedForAnAppGoesOnWhenItsPersonConfirmsIt(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		waited := make(chan struct{}, 1)
		w.agent(func(ctx context.Context, r store.Run) string {
			if len(r.Accounts) == 0 {
				must(t, w.store.AwaitApp(ctx, r.Principal.Company, r.ID, "gmail", time.Hour))
				waited <- struct{}{}
				return "te mando el enlace"
			}
			return echo(ctx, r)
		})
		w.start()
		asked := w.sim.Say(ana, "¿tengo correo de Luis?")
		w.reads(ana, "te mando el enlace")
		<-waited
		card := w.offers(ana, "gmail", "ana@gmail.com")
		w.sim.PressLabel(ana, card.ID, "Sí, es mía")
		w.reads(ana, "Ya está conectada Gmail. Sigo con lo que me pediste.")
		answer := w.reads(ana, "eco: Ya está conectada Gmail; continúa con lo que te pedí: «¿tengo correo de Luis?»")
		if answer.ReplyTo != asked {
			t.Errorf("it answers message %d, not %d", answer.ReplyTo, asked)
		}
	})
}

func TestOneOfSeveralAccountsIsChosenByButton(t *testing.T) {
	w := alone(t)
	w.start()
	a, b := w.has(ana, "gmail", "ana@gmail.com"), w.has(ana, "gmail", "trabajo@gmail.com")
	asked, err := w.store.AskAccount(t.Context(), a.Company, a.Membership, "gmail", bot.ChooseCard([]store.Account{a, b}, w.who[ana]))
	must(t, err)
	if !asked {
		t.Fatal("nobody was asked")
	}
	card := w.reads(ana, "Tienes varias cuentas de Gmail")
	w.sim.PressLabel(ana, card.ID, "Usar trabajo@gmail.com")
	w.reads(ana, "Para Gmail uso trabajo@gmail.com")
}
