package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pilder/policy"
	"pilder/store"
	"pilder/store/storetest"
)

// atOnce begins calls of as many workers as there are runs, each n, and gives what became of them by worker.
func (w *town) atOnce(t *testing.T, calls []store.NewCall, n int) (errs [][]error) {
	t.Helper()
	errs = make([][]error, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		all.Go(func() {
			for j := range n {
				c.Args = fmt.Appendf(nil, `{"i":%d,"j":%d}`, i, j)
				_, err := w.BeginCall(t.Context(), c, card)
				errs[i] = append(errs[i], err)
			}
		})
	}
	all.Wait()
	return errs
}

func TestCallsThatBeginAtTheSameTimeShareCommits(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "sqlite"))
	run := w.talk(t, w.member, private(w.member))
	calls := []store.NewCall{}
	for range 20 {
		calls = append(calls, run.call(policy.Allow, ""))
	}
	before := commits(t, w.url)
	for _, errs := range w.atOnce(t, calls, 10) {
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	same(t, 200, len(w.outcomes(t, run.ID)))
	if n := commits(t, w.url) - before; n >= 200 || n < 1 {
		t.Errorf("200 calls took %d commits", n)
	}
}

// commits counts those in the write-ahead log: a frame that ends one says how large the database is by then.
func commits(t *testing.T, url string) (n int) {
	t.Helper()
	const header, frame = 32, 24 + 4096
	log := need(os.ReadFile(strings.TrimPrefix(url, "sqlite:") + "-wal"))(t)
	for at := header; at+frame <= len(log); at += frame {
		if binary.BigEndian.Uint32(log[at+4:]) > 0 && bytes.Equal(log[at+8:at+16], log[16:24]) { // of this log, not of the one before
			n++
		}
	}
	return n
}

func TestACallThatFailsAmongOthersFailsAlone(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		over := w.talk(t, w.admin, private(w.admin))
		over.end(store.RunSucceeded)
		alive := w.talk(t, w.member, private(w.member))
		calls := []store.NewCall{}
		for i := range 12 {
			if i%3 == 0 {
				calls = append(calls, over.call(policy.Allow, ""))
			} else {
				calls = append(calls, alive.call(policy.Allow, ""))
			}
		}
		for i, errs := range w.atOnce(t, calls, 10) {
			for _, err := range errs {
				if failed := errors.Is(err, store.ErrRunOver); failed != (i%3 == 0) || err != nil && !failed {
					t.Errorf("worker %d: %v", i, err)
				}
			}
		}
		same(t, 80, len(w.outcomes(t, alive.ID)))
		same(t, 0, len(w.outcomes(t, over.ID)))
	})
}

func TestACallWhoseCardPanicsFailsAloneAndNobodyActsWithoutARow(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		var begun, panics atomic.Int64
		begin := func(c store.NewCall, card func(store.Approval, store.Approver) store.Draft, spoilt bool) {
			defer func() {
				if p := recover(); p == nil == spoilt {
					t.Errorf("panicked with %v, spoilt %t", p, spoilt)
				} else if spoilt {
					panics.Add(1)
				}
			}()
			if _, err := w.BeginCall(t.Context(), c, card); err != nil {
				t.Error(err)
			}
			begun.Add(1)
		}
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for j := range 10 {
					args := fmt.Sprintf(`{"i":%d,"j":%d}`, i, j)
					if i%5 == 4 {
						begin(run.call(policy.Confirm, args), func(store.Approval, store.Approver) store.Draft { panic("spoilt") }, true)
					} else {
						begin(run.call(policy.Allow, args), card, false)
					}
				}
			})
		}
		all.Wait()
		same(t, int64(40), panics.Load())
		same(t, int64(160), begun.Load())
		same(t, 160, len(w.outcomes(t, run.ID)))
	})
}

// Commit failed, not done: a row that refers to nothing is only found by the commit.
func TestACommitThatFailsIsToldToAllAndNothingWasDone(t *testing.T) {
	w := townOn(t, storetest.Fresh(t, "sqlite"))
	run := w.talk(t, w.member, private(w.member))
	db := behind(t, w.url)
	for _, q := range []string{
		`CREATE TABLE nowhere (id INTEGER PRIMARY KEY)`,
		`CREATE TABLE spoilt (id INTEGER REFERENCES nowhere (id) DEFERRABLE INITIALLY DEFERRED)`,
		`CREATE TRIGGER spoil AFTER INSERT ON audit WHEN NEW.action = 'call.decided' BEGIN INSERT INTO spoilt (id) VALUES (1); END`,
	} {
		need(db.ExecContext(t.Context(), q))(t)
	}
	calls := []store.NewCall{}
	for range 8 {
		calls = append(calls, run.call(policy.Allow, ""), read(run.call(policy.Allow, "")))
	}
	for i, errs := range w.atOnce(t, calls, 3) {
		for _, err := range errs {
			if err == nil {
				t.Errorf("worker %d was told nothing", i)
			}
		}
	}
	same(t, 0, len(w.outcomes(t, run.ID)))
	need(db.ExecContext(t.Context(), `DROP TRIGGER spoil`))(t)
	w.begin(t, run.call(policy.Allow, `{}`)) // nothing of it stays
	same(t, []store.Outcome{store.OutcomeOpen}, w.outcomes(t, run.ID))
}

// Commit failed, but done: the connection is cut between the commit and the word of it.
func TestACommitThatWasDoneButNotToldIsNeverDoneAgain(t *testing.T) {
	direct := storetest.Fresh(t, "postgres")
	cut := cutter(t, direct)
	w := townOn(t, cut.url)
	run := w.talk(t, w.member, private(w.member))
	cut.armed.Store(true)
	c := run.call(policy.Allow, `{"a":1}`)
	if _, err := w.BeginCall(t.Context(), c, card); err == nil {
		t.Fatal("the cut went unnoticed")
	}
	again := w.begin(t, c)
	if !again.Repeat || again.Outcome != store.OutcomeOpen {
		t.Errorf("tried again: %+v", again)
	}
	same(t, []store.Outcome{store.OutcomeOpen}, w.outcomes(t, run.ID))
}

// cutting passes a database's connections on, and cuts one after its next commit.
type cutting struct {
	url   string
	armed atomic.Bool
}

func cutter(t *testing.T, database string) *cutting {
	t.Helper()
	u := need(url.Parse(database))(t)
	l := need(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &cutting{}
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { l.Close() })
	network, address := "tcp", u.Host
	if folder := u.Query().Get("host"); folder != "" { // a socket in a folder
		port := u.Query().Get("port")
		if port == "" {
			port = "5432"
		}
		network, address = "unix", folder+"/.s.PGSQL."+port
		q := u.Query()
		q.Del("host")
		q.Del("port")
		u.RawQuery = q.Encode()
	}
	u.Host = l.Addr().String()
	c.url = u.String()
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(client, network, address) })
		}
	})
	return c
}

func (c *cutting) pass(client net.Conn, network, address string) {
	defer client.Close()
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer server.Close()
	var cut atomic.Bool
	var back sync.WaitGroup
	back.Go(func() {
		defer client.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := server.Read(b)
			if err != nil || cut.Load() { // its answer shows that the commit is done
				return
			}
			if _, err := client.Write(b[:n]); err != nil {
				return
			}
		}
	})
	b := make([]byte, 64<<10)
	for {
		n, err := client.Read(b)
		if err == nil {
			if bytes.Contains(b[:n], []byte("commit\x00")) && c.armed.CompareAndSwap(true, false) {
				cut.Store(true)
			}
			_, err = server.Write(b[:n])
		}
		if err != nil {
			break
		}
	}
	if !cut.Load() {
		server.Close()
	}
	back.Wait()
}

func TestAReadsOutcomeIsThereForWhoeverLooks(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		for i := range 20 {
			c := w.begin(t, read(run.call(policy.Allow, fmt.Sprintf(`{"i":%d}`, i))))
			if err := w.EndRead(t.Context(), w.acme.ID, c.ID, store.OutcomeDone, "ok"); err != nil {
				t.Fatal(err)
			}
			for j, o := range w.outcomes(t, run.ID) {
				if o != store.OutcomeDone {
					t.Errorf("call %d of %d: %q", j, i, o)
				}
			}
		}
		last := w.begin(t, read(run.call(policy.Allow, `{}`)))
		if err := w.EndRead(t.Context(), w.acme.ID, last.ID, store.OutcomeFailed, "busy"); err != nil {
			t.Fatal(err)
		}
		run.end(store.RunSucceeded)
		all := w.outcomes(t, run.ID)
		slices.Sort(all)
		same(t, store.OutcomeFailed, all[20])
	})
}

func TestAReadThatEndsAfterItsRunIsNeverToldAsLost(t *testing.T) {
	eachTown(t, func(t *testing.T, w *town) {
		run := w.talk(t, w.member, private(w.member))
		ends := w.begin(t, read(run.call(policy.Allow, `{"ends":"late"}`)))
		w.begin(t, read(run.call(policy.Allow, `{"ends":"never"}`)))
		run.end(store.RunSucceeded)
		w.said(t)
		w.clock.Advance(16 * time.Minute)
		if err := w.EndRead(t.Context(), w.acme.ID, ends.ID, store.OutcomeDone, "ok"); err != nil {
			t.Fatal(err)
		}
		need(w.RecoverCalls(t.Context(), func(c store.CallView, _ store.Run) []store.Draft {
			t.Errorf("its person is told of %s", c.ID)
			return nil
		}))(t)
		all := w.outcomes(t, run.ID)
		slices.Sort(all)
		same(t, []store.Outcome{store.OutcomeDone, store.OutcomeFailed}, all)
		same(t, []said(nil), w.said(t))
	})
}
