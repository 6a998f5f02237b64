package telegram

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The queue's bounds (TQueue.cpp, Client.cpp of the Bot API server).
const (
	updateLife   = 24 * time.Hour
	tapLife      = 150 * time.Second
	updateLimit  = 512 << 10 // bytes; a larger update is dropped
	queueLimit   = 100_000   // updates waiting; more are dropped
	batchLimit   = 4 << 20   // bytes in one answer, counting 50 for each update
	futureOffset = 10        // an offset further beyond the end is not believed
	longestPoll  = 50        // seconds; a longer timeout is shortened
	historyLimit = 10_000    // ours: how many updates Redeliver can reach back
)

// The server's brakes on polls that repeat, on the machine's clock.
const (
	sameOffsetWait = 3 * time.Second // the same offset again within this: wait at least that long
	sameOffsetOne  = 500 * time.Millisecond
	conflictEvery  = 3 * time.Second // further conflicts are held back this long
)

// queue is what the bot has not confirmed yet, and how it asks for it.
type queue struct {
	events  []event
	next    int64   // id of the update to come; 0 before the first
	history []event // the newest of all that ever were, for Redeliver
	again   []event // to be delivered once more, whatever the offset
	allowed map[string]bool

	webhook string
	waiting *poll // at most one
	// How the last poll was asked, for the brakes. Real time: the server
	// paces by its monotonic clock, not by the calendar.
	lastOffset   int64
	lastStart    time.Time
	nextConflict time.Time
}

type event struct {
	id      int64
	body    json.RawMessage // as delivered, update_id included
	expires time.Time
}

// poll is a getUpdates that waits; abort receives the conflict that ends it.
type poll struct{ abort chan string }

// everyUpdate is every kind of update known to the server.
const everyUpdate = "message edited_message channel_post edited_channel_post business_connection business_message " +
	"edited_business_message deleted_business_messages guest_message message_reaction message_reaction_count " +
	"inline_query chosen_inline_result callback_query shipping_query pre_checkout_query purchased_paid_media " +
	"poll poll_answer my_chat_member chat_member chat_join_request chat_boost removed_chat_boost " +
	"managed_bot stopped_message_generation"

// defaultUpdates is what a bot gets that never said what it wants.
func defaultUpdates() map[string]bool {
	kinds := map[string]bool{}
	for _, kind := range strings.Fields(everyUpdate) {
		kinds[kind] = true
	}
	for _, kind := range []string{"chat_member", "message_reaction", "message_reaction_count"} {
		delete(kinds, kind)
	}
	return kinds
}

// Push puts an update of any content into the queue and returns its id. body
// is the update without update_id. Unlike what people do, it is not filtered
// by allowed_updates: it may be of a kind that does not exist. A body that is
// not an object, or brings an update_id of its own, is delivered as it is.
func (s *Server) Push(body json.RawMessage) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.nextUpdate()
	s.enqueue(id, withUpdateID(id, body), bytes.Contains(body, []byte(`"callback_query"`)))
	return id
}

func withUpdateID(id int64, body json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(body)
	if len(trimmed) == 0 || trimmed[0] != '{' || bytes.Contains(trimmed, []byte(`"update_id"`)) {
		return slices.Clone(body)
	}
	rest := bytes.TrimSpace(trimmed[1:])
	out := append([]byte(`{"update_id":`), strconv.FormatInt(id, 10)...)
	if len(rest) > 0 && rest[0] != '}' {
		out = append(out, ',')
	}
	return append(out, rest...)
}

// Redeliver has updates delivered once more with the next answer, though they
// were confirmed. Ids that never were are ignored.
func (s *Server) Redeliver(updateIDs ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range updateIDs {
		for _, e := range s.queue.history {
			if e.id == id {
				s.queue.again = append(s.queue.again, e)
			}
		}
	}
	s.bump()
}

// RestartIDs has the numbering begin anew at id, as it does after a week
// without updates; the new id may be lower. What is still queued is gone.
func (s *Server) RestartIDs(id int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue.events, s.queue.next = nil, id
}

// Unconfirmed returns the ids of the updates the bot has not confirmed.
func (s *Server) Unconfirmed() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	ids := make([]int64, len(s.queue.events))
	for i, e := range s.queue.events {
		ids[i] = e.id
	}
	return ids
}

// raise queues what a person did, if the bot wants to hear of it. The filter
// is applied now, not when the update is read. It returns 0 when the bot does
// not. The caller holds mu.
func (s *Server) raise(kind string, content any) int64 {
	if !s.queue.allowed[kind] {
		s.bump()
		return 0
	}
	id := s.nextUpdate()
	body, err := json.Marshal(map[string]any{"update_id": id, kind: content})
	if err != nil {
		panic(err) // our own maps and strings always marshal
	}
	s.enqueue(id, body, kind == "callback_query")
	return id
}

// nextUpdate begins at a random number in the millions, as the server does.
func (s *Server) nextUpdate() int64 {
	q := &s.queue
	if q.next == 0 {
		q.next = 2*queueLimit + 1 + s.random.Int64N(math.MaxInt32/2-2*queueLimit)
	}
	q.next++
	return q.next - 1
}

func (s *Server) enqueue(id int64, body json.RawMessage, isTap bool) {
	defer s.bump()
	life := updateLife
	if isTap {
		life = tapLife
	}
	e := event{id: id, body: body, expires: s.now().Add(life)}
	s.queue.history = append(s.queue.history, e)
	if len(s.queue.history) > historyLimit {
		s.queue.history = slices.Delete(s.queue.history, 0, 1)
	}
	if len(body) <= updateLimit && len(s.queue.events) < queueLimit {
		s.queue.events = append(s.queue.events, e)
	}
}

func (s *Server) expire() {
	now := s.now()
	s.queue.events = slices.DeleteFunc(s.queue.events, func(e event) bool { return e.expires.Before(now) })
}

// take confirms what lies before the offset and returns what comes from it on
// (Client::do_get_updates and TQueue::get).
func (s *Server) take(offset, limit int64) []json.RawMessage {
	q := &s.queue
	s.expire()
	if offset < 0 {
		if keep := int(-offset); keep < len(q.events) {
			q.events = slices.Delete(q.events, 0, len(q.events)-keep)
		}
	}
	head := q.next
	if len(q.events) > 0 {
		head = q.events[0].id
	}
	believed := offset > 0 && offset <= q.next+futureOffset && offset >= head-queueLimit
	if believed {
		q.events = slices.DeleteFunc(q.events, func(e event) bool { return e.id < offset })
	}
	batch := []json.RawMessage{}
	room := batchLimit
	for _, e := range slices.Concat(q.again, q.events) {
		room -= 50 + len(e.body)
		if int64(len(batch)) == limit || room <= 0 {
			break
		}
		batch = append(batch, e.body)
	}
	q.again = slices.Delete(q.again, 0, min(len(q.again), len(batch)))
	return batch
}

// getUpdates answers at once when there is something, else it waits. It takes
// and releases mu itself.
func (s *Server) getUpdates(c *call) (any, string, *apiError) {
	s.mu.Lock()
	q := &s.queue
	if q.webhook != "" {
		s.mu.Unlock()
		return nil, "", s.conflict(c, "Conflict: can't use getUpdates method while webhook is active; "+
			"use deleteWebhook to delete the webhook first")
	}
	offset := c.number("offset", 0, math.MinInt32, math.MaxInt32)
	limit := c.number("limit", 100, 1, 100)
	timeout := time.Duration(c.number("timeout", 0, 0, longestPoll)) * time.Second
	s.setAllowed(c)

	start := time.Now()
	since := start.Sub(q.lastStart)
	if offset == q.lastOffset && !q.lastStart.IsZero() {
		if since < sameOffsetWait {
			timeout = max(timeout, sameOffsetWait)
		}
		if since < sameOffsetOne {
			limit = 1
		}
	}
	q.lastOffset, q.lastStart = offset, start

	batch := s.take(offset, limit)
	if timeout == 0 || len(batch) > 0 {
		s.mu.Unlock()
		return batch, "", nil
	}
	s.abortPoll("Conflict: terminated by other getUpdates request; make sure that only one bot instance is running")
	if offset < 0 {
		offset = 0 // what it throws away, it throws away on arrival only
	}
	return s.wait(c, offset, limit, timeout)
}

// wait holds the poll until something arrives, its time is over or another
// poll takes its place. The caller holds mu, wait releases it.
func (s *Server) wait(c *call, offset, limit int64, timeout time.Duration) (any, string, *apiError) {
	me := &poll{abort: make(chan string, 1)}
	s.queue.waiting = me
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	for {
		changed := s.changed
		s.mu.Unlock()
		over := false
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-c.http.Context().Done():
		case <-s.done:
			over = true
		case text := <-me.abort:
			return nil, "", s.conflict(c, text)
		}
		s.mu.Lock()
		if s.queue.waiting != me {
			s.mu.Unlock()
			return nil, "", s.conflict(c, <-me.abort)
		}
		batch := []json.RawMessage{}
		gone := c.http.Context().Err() != nil
		if !gone {
			batch = s.take(offset, limit)
		}
		if over || gone || len(batch) > 0 {
			s.queue.waiting = nil
			s.mu.Unlock()
			return batch, "", nil
		}
	}
}

// abortPoll ends the poll that waits, if any. The caller holds mu.
func (s *Server) abortPoll(text string) {
	if w := s.queue.waiting; w != nil {
		s.queue.waiting = nil
		w.abort <- text
	}
}

// conflict is the 409: the first at once, those that follow within 3 s held
// back by 3 s (Client::fail_query_conflict).
func (s *Server) conflict(c *call, text string) *apiError {
	s.mu.Lock()
	now := time.Now()
	held := now.Before(s.queue.nextConflict)
	if !held {
		s.queue.nextConflict = now.Add(conflictEvery)
	}
	s.mu.Unlock()
	if held {
		s.sleep(c, conflictEvery)
	}
	return &apiError{code: 409, description: text}
}

// setAllowed remembers allowed_updates. Names it does not know and text it
// cannot read change nothing; a list without known names means the default.
func (s *Server) setAllowed(c *call) {
	text := c.params["allowed_updates"]
	var names []string
	if text == "" || json.Unmarshal([]byte(text), &names) != nil || names == nil {
		return
	}
	known := strings.Fields(everyUpdate)
	allowed := map[string]bool{}
	for _, name := range names {
		if name = strings.ToLower(name); slices.Contains(known, name) {
			allowed[name] = true
		}
	}
	if len(allowed) == 0 || len(allowed) == len(known) {
		allowed = defaultUpdates()
	}
	s.queue.allowed = allowed
}

func (s *Server) setWebhook(c *call) (any, string, *apiError) {
	url := c.params["url"]
	if url == "" {
		return s.deleteWebhook(c)
	}
	if _, ok := cleanLink(url); !ok || !strings.HasPrefix(url, "https://") {
		return nil, "", badRequest("bad webhook: An HTTPS URL must be provided for webhook")
	}
	if c.flag("drop_pending_updates") {
		s.queue.events = nil
	}
	s.setAllowed(c)
	if s.queue.webhook == url {
		return true, "Webhook is already set", nil
	}
	s.abortPoll("Conflict: terminated by setWebhook request")
	s.queue.webhook = url
	return true, "Webhook was set", nil
}

func (s *Server) deleteWebhook(c *call) (any, string, *apiError) {
	if c.flag("drop_pending_updates") {
		s.queue.events = nil
	}
	if s.queue.webhook == "" {
		return true, "Webhook is already deleted", nil
	}
	s.queue.webhook = ""
	return true, "Webhook was deleted", nil
}

func (s *Server) getWebhookInfo(*call) (any, string, *apiError) {
	s.expire()
	info := map[string]any{
		"url": s.queue.webhook, "has_custom_certificate": false, "pending_update_count": len(s.queue.events),
	}
	if !maps.Equal(s.queue.allowed, defaultUpdates()) {
		info["allowed_updates"] = slices.Sorted(maps.Keys(s.queue.allowed))
	}
	return info, "", nil
}
