package store_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// town is a store with one company in which somebody of each role is, and a second company with a member of its own.
type town struct {
	*store.Store
	clock    *storetest.Clock
	acme     store.Company
	admin    store.Membership // Ana
	approver store.Membership // Abel
	member   store.Membership // Mia
	rival    store.Membership // Rita, member of the other company
	poller   store.Poller
	updates  int64
	url      string // of eachTown and townOn
	start    func(store.Config) *store.Store
}

const townBot store.BotID = 4711

// eachTown runs f in a new town on either database.
func eachTown(t *testing.T, f func(t *testing.T, w *town)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			f(t, townOn(t, storetest.Fresh(t, name)))
		})
	}
}

// townOn makes a town on an empty database.
func townOn(t *testing.T, url string) *town {
	t.Helper()
	w := newTown(t, func(cfg store.Config) *store.Store {
		cfg.URL, cfg.Key = url, storetest.Key()
		s := need(store.Open(t.Context(), cfg))(t)
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	})
	w.url = url
	return w
}

func newTown(t *testing.T, open func(store.Config) *store.Store) *town {
	t.Helper()
	w := &town{clock: storetest.NewClock(), start: open}
	w.Store = open(store.Config{Now: w.clock.Now})
	w.acme = need(w.CreateCompany(t.Context(), store.Company{Name: "Acme", Domains: []string{"Acme.example"}, Zone: "UTC", Lang: "es"}))(t)
	rival := need(w.CreateCompany(t.Context(), store.Company{Name: "Rival", Zone: "UTC", Lang: "en"}))(t)
	w.admin = w.add(t, w.acme.ID, 101, "Ana", policy.RoleAdmin)
	w.approver = w.add(t, w.acme.ID, 102, "Abel", policy.RoleApprover)
	w.member = w.add(t, w.acme.ID, 103, "Mia", policy.RoleMember)
	w.rival = w.add(t, rival.ID, 201, "Rita", policy.RoleAdmin)
	w.poller = need(w.AcquirePoller(t.Context(), townBot, time.Hour))(t)
	return w
}

// restart is the death of one process and, once its beat is old, the start of the next. Nothing of the first one is told
// or ended.
func (w *town) restart(t *testing.T) {
	t.Helper()
	if err := w.ReleasePoller(t.Context(), w.poller); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.exec(t, `UPDATE instance SET beat_ms = 0`)
	w.Store = w.start(store.Config{Now: w.clock.Now})
	w.poller = need(w.AcquirePoller(t.Context(), townBot, time.Hour))(t)
}

// exec changes the database behind the store's back.
func (w *town) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	need(behind(t, w.url).ExecContext(t.Context(), query, args...))(t)
}

func (w *town) add(t *testing.T, c store.CompanyID, telegram int64, name string, role policy.Role) store.Membership {
	t.Helper()
	w.clock.Advance(time.Second) // so that they are listed as they came
	return need(w.AddMember(t.Context(), c, store.Person{Telegram: telegram, Name: name, Lang: "es"}, role))(t)
}

// press stores a control update of somebody's private chat, as a button or a command makes it.
func (w *town) press(t *testing.T, telegram int64) store.UpdateRef {
	t.Helper()
	if w.url != "" { // who presses has the card
		w.exec(t, `UPDATE reply SET state = 'sent' WHERE kind = 'card' AND state = 'queued'`)
	}
	w.updates++
	need(w.Receive(t.Context(), w.poller, []store.Arrival{{
		UpdateID: w.updates, Raw: []byte(`{}`), Kind: store.ArrivalControl, From: store.Person{Telegram: telegram},
		Chat: store.Chat{ID: telegram, Private: true},
	}}))(t)
	return store.UpdateRef{Bot: townBot, UpdateID: w.updates}
}

// isOpen tells whether an update still waits for its fate.
func (w *town) isOpen(t *testing.T, u store.UpdateRef) bool {
	t.Helper()
	for _, o := range need(w.OpenUpdates(t.Context(), townBot, 1000))(t) {
		if o.Ref == u {
			return true
		}
	}
	return false
}

// said sends all that waits and gives its notices, in order.
func (w *town) said(t *testing.T) []said {
	t.Helper()
	var all []said
	for {
		r, ok, _, err := w.NextReply(t.Context(), w.poller)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return all
		}
		if err := w.MarkSending(t.Context(), w.poller, r.ID); err != nil {
			t.Fatal(err)
		}
		w.updates++
		if err := w.MarkSent(t.Context(), w.poller, r.ID, w.updates); err != nil {
			t.Fatal(err)
		}
		all = append(all, said{r.Draft.Chat.ID, r.Draft.Notice})
	}
}

// said is what a chat heard.
type said struct {
	Chat   int64
	Notice string
}

// actions gives the actions of a company's audit.
func (w *town) actions(t *testing.T, c store.CompanyID) []string {
	t.Helper()
	var all []string
	for _, r := range need(w.Audit(t.Context(), c, 1000))(t) {
		all = append(all, r.Action)
	}
	return all
}

// need gives a value or ends the test.
func need[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func wants(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
	}
}

func same(t *testing.T, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmp.AllowUnexported(store.Secret{})); d != "" {
		t.Errorf("want, got:\n%s", d)
	}
}

func TestAPersonIsOneTelegramId(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		again := w.add(t, w.acme.ID, 103, "Somebody else", policy.RoleAdmin)
		same(t, w.member, again)
		same(t, []store.Membership{w.admin, w.approver, w.member}, need(w.Members(t.Context(), w.acme.ID))(t))
		same(t, []string{"acme.example"}, w.acme.Domains)
		if w.admin.ExternalUser == w.member.ExternalUser || w.admin.ExternalUser == "" {
			t.Errorf("external users %q and %q", w.admin.ExternalUser, w.member.ExternalUser)
		}
	})
}

func TestTheFirstMembershipIsTheCurrentOne(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		second := w.add(t, w.rival.Company.ID, 103, "Mia", policy.RoleAdmin)
		if second.Current || !w.member.Current {
			t.Errorf("first current: %v, second: %v", w.member.Current, second.Current)
		}
		same(t, w.member.Person.ID, second.Person.ID)
		same(t, w.member, need(w.MembershipOf(t.Context(), 103))(t))
	})
}

func TestFirstMembershipsAtOnceLeaveOneCurrent(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		var all sync.WaitGroup
		for _, c := range []store.CompanyID{w.acme.ID, w.rival.Company.ID, w.acme.ID, w.rival.Company.ID} {
			all.Go(func() {
				if _, err := w.AddMember(t.Context(), c, store.Person{Telegram: 500, Name: "Neo"}, policy.RoleMember); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		need(w.MembershipOf(t.Context(), 500))(t)
	})
}

func TestPeopleAreKeptApartByCompany(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		_, err := w.Membership(t.Context(), w.rival.Company.ID, w.member.ID)
		wants(t, err, store.ErrNotFound)
		same(t, w.member, need(w.Membership(t.Context(), w.acme.ID, w.member.ID))(t))
		_, err = w.MembershipOf(t.Context(), 999)
		wants(t, err, store.ErrNotFound)
		_, err = w.Members(t.Context(), "com_nothere")
		wants(t, err, store.ErrNotFound)
		_, err = w.AddMember(t.Context(), "com_nothere", store.Person{Telegram: 999}, policy.RoleMember)
		wants(t, err, store.ErrNotFound)
		if _, err := w.AddMember(t.Context(), w.acme.ID, store.Person{Telegram: 999}, "owner"); err == nil {
			t.Error("an unknown role was given")
		}
		_, err = w.Invite(t.Context(), w.acme.ID, policy.RoleMember, w.rival.ID, time.Hour)
		wants(t, err, store.ErrNotFound)
	})
}

func TestAnInvitationIsSpentOnce(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		token := need(w.Invite(t.Context(), w.acme.ID, policy.RoleApprover, w.admin.ID, time.Hour))(t)
		same(t, store.Invitation{Company: w.acme, Role: policy.RoleApprover, Expires: w.clock.Now().Add(time.Hour)},
			need(w.Invitation(t.Context(), token))(t))

		u, neo := w.press(t, 300), store.Person{Telegram: 300, Name: "Neo", Lang: "en"}
		welcome := store.Draft{Company: w.acme.ID, Chat: store.Chat{ID: 300, Private: true}, Kind: store.DraftNotice, Notice: "welcome"}
		m := need(w.AcceptInvitation(t.Context(), u, token, neo, welcome))(t)
		same(t, m, need(w.MembershipOf(t.Context(), 300))(t))
		same(t, policy.RoleApprover, m.Role)
		same(t, []said{{300, "welcome"}}, w.said(t))

		_, err := w.AcceptInvitation(t.Context(), u, token, neo, welcome)
		wants(t, err, store.ErrSettled)
		_, err = w.Invitation(t.Context(), token)
		wants(t, err, store.ErrNotFound)
		u = w.press(t, 301)
		_, err = w.AcceptInvitation(t.Context(), u, token, store.Person{Telegram: 301}, welcome)
		wants(t, err, store.ErrNotFound)
		if !w.isOpen(t, u) {
			t.Error("a refused invitation settled its update")
		}
		same(t, []said(nil), w.said(t))
		got := w.actions(t, w.acme.ID)
		same(t, []string{"invitation.made", "invitation.accepted"}, got[len(got)-2:])
	})
}

func TestAnInvitationExpires(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		token := need(w.Invite(t.Context(), w.acme.ID, policy.RoleAdmin, "", time.Hour))(t)
		w.clock.Advance(time.Hour)
		_, err := w.Invitation(t.Context(), token)
		wants(t, err, store.ErrNotFound)
		_, err = w.AcceptInvitation(t.Context(), w.press(t, 300), token, store.Person{Telegram: 300})
		wants(t, err, store.ErrNotFound)
		_, err = w.MembershipOf(t.Context(), 300)
		wants(t, err, store.ErrNotFound)
	})
}

func TestOneOfManyAcceptsAnInvitation(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		token := need(w.Invite(t.Context(), w.acme.ID, policy.RoleMember, "", time.Hour))(t)
		const n = 20
		errs := make([]error, n)
		var all sync.WaitGroup
		for i := range n {
			u := w.press(t, int64(300+i))
			all.Go(func() {
				_, errs[i] = w.AcceptInvitation(t.Context(), u, token, store.Person{Telegram: int64(300 + i)})
			})
		}
		all.Wait()
		won := 0
		for _, err := range errs {
			if err == nil {
				won++
			} else {
				wants(t, err, store.ErrNotFound)
			}
		}
		same(t, 1, won)
		same(t, 4, len(need(w.Members(t.Context(), w.acme.ID))(t)))
	})
}

func TestOnlyAnAdminInvites(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		for _, m := range []store.Membership{w.member, w.approver} {
			_, err := w.Invite(t.Context(), w.acme.ID, policy.RoleMember, m.ID, time.Hour)
			wants(t, err, store.ErrNotAdmin)
		}
	})
}

func TestALinkChangesNoRoleAndNoCurrentCompany(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		token := need(w.Invite(t.Context(), w.acme.ID, policy.RoleAdmin, "", time.Hour))(t)
		m := need(w.AcceptInvitation(t.Context(), w.press(t, 103), token, store.Person{Telegram: 103}))(t)
		same(t, w.member, m)

		token = need(w.Invite(t.Context(), w.rival.Company.ID, policy.RoleAdmin, "", time.Hour))(t)
		m = need(w.AcceptInvitation(t.Context(), w.press(t, 103), token, store.Person{Telegram: 103}))(t)
		same(t, false, m.Current)
		same(t, w.member, need(w.MembershipOf(t.Context(), 103))(t))
	})
}
