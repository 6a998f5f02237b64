package store_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

func TestAGuestReadsAndWritesBesideTheProcessThatServes(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		heard := make(chan store.Run, 1)
		work := serve(t, w.Store, answer(w.Store, heard))
		guest := w.start(store.Config{Now: w.clock.Now, Guest: true})
		var all sync.WaitGroup
		for _, s := range []*store.Store{w.Store, guest} {
			all.Go(func() {
				for i := range 50 {
					if _, err := s.CreateCompany(context.Background(), store.Company{Name: fmt.Sprint("Company ", i)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		same(t, 102, len(need(w.Companies(t.Context()))(t)))

		token := need(guest.Invite(t.Context(), w.acme.ID, policy.RoleMember, "", time.Hour))(t)
		need(w.AcceptInvitation(t.Context(), w.press(t, 300), token, store.Person{Telegram: 300}))(t)
		w.write(t, w.member, private(w.member), "hello")
		run := next(t, heard)
		until(t, guest, func() bool { return need(guest.RunByID(t.Context(), run.ID))(t).State == store.RunSucceeded })
		if err := guest.Close(); err != nil {
			t.Error(err)
		}
		work.stop() // and nothing went wrong in it
	})
}

func TestAGuestOwnsNothing(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		guest := w.start(store.Config{Guest: true})
		wants(t, guest.Run(t.Context()), store.ErrGuest)
		wants(t, guest.ServeTurns(t.Context(), 1, time.Second, func(context.Context, store.Turn) error { return nil }), store.ErrGuest)
		wants(t, guest.ServeApproved(t.Context(), 1, func(context.Context, store.Approval) error { return nil }), store.ErrGuest)
		_, err := guest.AcquirePoller(t.Context(), 1, time.Hour)
		wants(t, err, store.ErrGuest)
		_, err = guest.RecoverCalls(t.Context(), lost)
		wants(t, err, store.ErrGuest)
	})
}

func TestAGuestTakesNoLock(t *testing.T) {
	url := storetest.Fresh(t, "sqlite")
	guest := need(store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key(), Guest: true}))(t)
	defer guest.Close()
	owner := need(store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()}))(t)
	defer owner.Close()
	_, err := store.Open(t.Context(), store.Config{URL: url, Key: storetest.Key()})
	var held *store.LockedError
	if !errors.As(err, &held) {
		t.Errorf("a second owner: %v", err)
	}
}

func TestAGuestWantsADatabaseOfItsVersion(t *testing.T) {
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			url := storetest.Fresh(t, name)
			open := func(key store.Secret) error {
				s, err := store.Open(t.Context(), store.Config{URL: url, Key: key, Guest: true})
				if err == nil {
					err = s.Close()
				}
				return err
			}
			if err := open(storetest.Key()); err != nil {
				t.Fatal(err)
			}
			wants(t, open(store.NewSecret("00"+storetest.Key().Reveal()[2:])), store.ErrKey)
			for _, change := range []string{
				`UPDATE goose_db_version SET version_id = version_id + 1 WHERE version_id > 0`, // a newer binary's
				`DELETE FROM goose_db_version WHERE version_id > 0`,
				`DROP TABLE goose_db_version`,
			} {
				need(behind(t, url).ExecContext(t.Context(), change))(t)
				wants(t, open(storetest.Key()), store.ErrSchema)
			}
		})
	}
}

func TestAGuestMakesNoDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "pilder.db")
	_, err := store.Open(t.Context(), store.Config{URL: "sqlite:" + path, Guest: true})
	wants(t, err, store.ErrSchema)
	if _, err := os.Stat(filepath.Dir(path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder: %v", err)
	}
}
