package bot

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pilder/store"
)

// watchdog is how long one step, a poll and its filing, may take before the connections are thrown away.
const watchdog = 120 * time.Second

// poller is the poll loop's own memory.
type poller struct {
	*Bot
	p        store.Poller
	limit    int
	failures int       // polls in a row that failed for any reason
	garbled  int       // polls in a row whose body was complete and not the api's
	conflict time.Time // when the present row of 409 began
}

// poll asks for updates until ctx ends: each batch is filed in one transaction, and only then is Telegram told, by the
// next poll's offset, that it may forget it. It returns ErrLost when the lease moved, else the context's error.
func (b *Bot) poll(ctx context.Context, p store.Poller) error {
	l := &poller{Bot: b, p: p, limit: 100}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	turn, next := context.WithCancel(ctx)
	defer next()
	dog := time.AfterFunc(watchdog, func() {
		b.cfg.Log.Error().Str("event", "telegram.stalled").Send()
		b.api.http.CloseIdleConnections()
		next()
	})
	defer dog.Stop()
	for ctx.Err() == nil {
		dog.Reset(watchdog)
		wait, err := l.step(turn)
		if errors.Is(err, store.ErrLost) {
			return err
		}
		if turn.Err() != nil && ctx.Err() == nil {
			return errStalled // the session begins anew, with fresh connections
		}
		if wait > 0 {
			dog.Reset(watchdog + wait)
			rest(ctx, wait)
		}
	}
	return ctx.Err()
}

var errStalled = errors.New("polling stalled")

// prepare makes sure that polling is possible and learns our name. Pending updates are never dropped.
func (l *poller) prepare(ctx context.Context) error {
	for try := 0; ctx.Err() == nil; try++ {
		call, cancel := context.WithTimeout(ctx, 30*time.Second)
		_, err := l.api.call(call, "deleteWebhook", map[string]any{"drop_pending_updates": false})
		var me json.RawMessage
		if err == nil {
			me, err = l.api.call(call, "getMe", struct{}{})
		}
		cancel()
		if err == nil {
			var u struct {
				Username string `json:"username"`
			}
			_ = json.Unmarshal(me, &u) // without a name only /command@name is not ours
			l.name.Store(u.Username)
			l.aside(ctx, 20*time.Second, l.menu)
			return nil
		}
		l.failures = try
		rest(ctx, l.judge(ctx, err, "prepare"))
	}
	return ctx.Err()
}

// step polls once and files what came. It tells how long to wait before the next poll.
func (l *poller) step(ctx context.Context) (time.Duration, error) {
	timeout := int(l.cfg.PollTimeout / time.Second)
	call, cancel := context.WithTimeout(ctx, l.cfg.PollTimeout+15*time.Second)
	defer cancel()
	result, err := l.api.call(call, "getUpdates", map[string]any{
		"offset": l.p.Offset, "limit": l.limit, "timeout": timeout,
		"allowed_updates": []string{"message", "edited_message", "callback_query", "my_chat_member", "stopped_message_generation"},
	})
	if err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return l.failed(ctx, err)
	}
	var batch []json.RawMessage
	if err := json.Unmarshal(result, &batch); err != nil {
		return l.failed(ctx, &unsureError{Method: "getUpdates", Status: 200, Cause: errNotJSON, body: result})
	}
	l.lastPoll.Store(l.cfg.Now().UnixMilli())
	if !l.conflict.IsZero() {
		l.cfg.Log.Info().Str("event", "telegram.conflict_over").Send()
	}
	l.failures, l.garbled, l.limit, l.conflict = 0, 0, 100, time.Time{}
	if len(batch) == 0 {
		return 0, nil
	}
	if err := l.file(ctx, batch); err != nil {
		if errors.Is(err, store.ErrLost) || ctx.Err() != nil {
			return 0, err
		}
		// The offset stays: Telegram will give the same batch again.
		l.failures++
		l.cfg.Log.Error().Str("event", "updates.not_stored").Int("updates", len(batch)).Err(err).Send()
		return l.backoff(l.failures), nil
	}
	return 0, nil
}

// failed decides what a failed poll means. A complete body that is not the API's, again and again at one offset, may be one
// poisonous update: it is isolated by asking for one at a time, and then set aside.
func (l *poller) failed(ctx context.Context, err error) (time.Duration, error) {
	l.failures++
	var unsure *unsureError
	if errors.As(err, &unsure) && errors.Is(unsure.Cause, errNotJSON) && unsure.Status == 200 {
		if l.garbled++; l.garbled >= 3 && l.limit > 1 {
			l.limit, l.garbled = 1, 0
			return 100 * time.Millisecond, nil
		}
		if l.garbled >= 3 {
			if id := poisonID(unsure.body, l.p.Offset); id > 0 {
				l.garbled = 0
				l.cfg.Log.Error().Str("event", "update.poison").Int64("update", id).Send()
				return l.backoff(1), l.setAside(ctx, id, unsure.body)
			}
		}
	}
	return l.judge(ctx, err, "getUpdates"), nil
}

var anyID = regexp.MustCompile(`"update_id"\s*:\s*([1-9][0-9]{0,17})\b`)

// poisonID finds the number of an update that is no JSON: written in it, else the one that was asked for. 0: unknown.
func poisonID(body []byte, offset int64) int64 {
	if m := anyID.FindSubmatch(body); m != nil {
		if id, err := strconv.ParseInt(string(m[1]), 10, 64); err == nil {
			return id
		}
	}
	return offset
}

// setAside files what cannot be read, and moves past it. A store that fails leaves everything as it was.
func (l *poller) setAside(ctx context.Context, id int64, raw []byte) error {
	_, err := l.store.Receive(ctx, l.p, []store.Arrival{{UpdateID: id, Raw: raw, Kind: store.ArrivalBroken, Reason: "no_json"}})
	if errors.Is(err, store.ErrLost) {
		return err
	}
	if err != nil {
		l.cfg.Log.Error().Str("event", "updates.not_stored").Int("updates", 1).Err(err).Send()
		return nil
	}
	l.p.Offset = id + 1
	return nil
}

// judge logs a failure and says how long to wait.
func (l *poller) judge(ctx context.Context, err error, doing string) time.Duration {
	if ctx.Err() != nil {
		return 0
	}
	var no *refusedError
	if !errors.As(err, &no) {
		if l.failures <= 1 || l.failures%10 == 0 {
			l.cfg.Log.Warn().Str("event", "telegram.unreachable").Str("doing", doing).Int("failures", l.failures).Err(err).Send()
		}
		return l.backoff(l.failures)
	}
	switch no.Code {
	case 429:
		wait := max(no.RetryAfter, time.Second)
		l.pace.blockAll(l.cfg.Now().Add(wait))
		l.cfg.Log.Warn().Str("event", "telegram.too_many").Str("doing", doing).Dur("wait", wait).Send()
		return wait
	case 401, 404:
		l.pace.blockAll(l.cfg.Now().Add(revokedPause))
		l.cfg.Log.Error().Str("event", "telegram.token_refused").Int("code", no.Code).Send()
		return revokedPause
	case 409:
		return l.contested(ctx, no)
	}
	l.cfg.Log.Warn().Str("event", "telegram.refused").Str("doing", doing).Int("code", no.Code).Send()
	return l.backoff(l.failures)
}

// revokedPause is how long a bot whose token is refused waits before it tries again.
const revokedPause = 3 * time.Minute

// contested handles 409. After a restart it is normal, since the dead process's poll lives on for up to its timeout. It is
// an alarm when it lasts, by the clock.
func (l *poller) contested(ctx context.Context, no *refusedError) time.Duration {
	now := l.cfg.Now()
	if l.conflict.IsZero() {
		l.conflict = now
	}
	ev := l.cfg.Log.Debug()
	if now.Sub(l.conflict) > 60*time.Second && l.notices.pass("409", time.Minute) {
		ev = l.cfg.Log.Error()
	}
	ev.Str("event", "telegram.conflict").Dur("since", now.Sub(l.conflict)).Send()
	if strings.Contains(no.Description, "webhook") {
		call, cancel := context.WithTimeout(ctx, 30*time.Second)
		defer cancel()
		_, _ = l.api.call(call, "deleteWebhook", map[string]any{"drop_pending_updates": false}) // the next poll tells
	}
	return 2*time.Second + rand.N(3*time.Second)
}

// file commits a batch and moves the offset, then lets people see that they were heard.
func (l *poller) file(ctx context.Context, batch []json.RawMessage) error {
	events := l.read(batch)
	if len(events) == 0 {
		l.cfg.Log.Error().Str("event", "update.unnumbered").Int("updates", len(batch)).Send()
		return errors.New("no update of the batch has a number")
	}
	arrivals := make([]store.Arrival, len(events))
	for i, e := range events {
		arrivals[i] = e.Arrival
	}
	admitted, err := l.store.Receive(ctx, l.p, arrivals)
	if err != nil && l.failures >= 4 && !errors.Is(err, store.ErrLost) {
		return l.fileSingly(ctx, events)
	}
	if err != nil {
		return err
	}
	l.p.Offset = arrivals[len(arrivals)-1].UpdateID + 1
	for i, a := range admitted {
		l.welcome(ctx, events[min(i, len(events)-1)], a)
	}
	return nil
}

// fileSingly is tried when a batch could not be stored again and again: one update of it may be at fault, and that one is set
// aside. With the store as a whole out of order it changes nothing.
func (l *poller) fileSingly(ctx context.Context, events []event) error {
	for _, e := range events {
		admitted, err := l.store.Receive(ctx, l.p, []store.Arrival{e.Arrival})
		if err != nil && !errors.Is(err, store.ErrLost) {
			l.cfg.Log.Error().Str("event", "update.poison").Int64("update", e.UpdateID).Err(err).Send()
			admitted, err = l.store.Receive(ctx, l.p, []store.Arrival{{UpdateID: e.UpdateID, Raw: e.Raw, Kind: store.ArrivalBroken, Reason: "not_storable"}})
		}
		if err != nil {
			return err
		}
		l.p.Offset = e.UpdateID + 1
		for _, a := range admitted {
			l.welcome(ctx, e, a)
		}
	}
	return nil
}

// read decodes a batch. An element without a readable number takes the one that its neighbours leave for it: ids of one
// bot rise by one.
func (l *poller) read(batch []json.RawMessage) []event {
	ids := make([]int64, len(batch))
	for i, raw := range batch {
		if id, err := updateID(raw); err == nil {
			ids[i] = id
		}
	}
	for i := range ids { // from the one before, else from the one after, else from what was asked for
		if ids[i] == 0 && i > 0 && ids[i-1] != 0 {
			ids[i] = ids[i-1] + 1
		}
	}
	for i := len(ids) - 2; i >= 0; i-- {
		if ids[i] == 0 && ids[i+1] > 1 {
			ids[i] = ids[i+1] - 1
		}
	}
	if len(ids) > 0 && ids[0] == 0 && l.p.Offset > 0 {
		for i := range ids {
			ids[i] = l.p.Offset + int64(i)
		}
	}
	var out []event
	seen := map[int64]bool{}
	me, _ := l.name.Load().(string)
	for i, raw := range batch {
		if ids[i] == 0 || seen[ids[i]] {
			continue
		}
		seen[ids[i]] = true
		if raw == nil {
			raw = json.RawMessage("null")
		}
		e := decode(ids[i], raw, me)
		if e.Kind == store.ArrivalBroken {
			l.cfg.Log.Error().Str("event", "update.broken").Int64("update", ids[i]).Str("reason", e.Reason).Send()
		}
		out = append(out, e)
	}
	return out
}

// welcome lets a person see at once that their message was taken, and logs it.
func (l *poller) welcome(ctx context.Context, e event, a store.Admission) {
	if a.Duplicate || a.Fate != store.FateQueued {
		return
	}
	next := "run.queued" // its turn is the next one of the conversation
	if a.Waits {
		next = "message.queued" // another run is busy there: it joins the turn after that
	}
	for _, event := range []string{"message.received", next} {
		l.cfg.Log.Info().Str("event", event).Int64("update", a.UpdateID).Str("conversation", string(a.Conversation)).
			Str("company", string(a.Company)).Send()
	}
	select {
	case l.typing <- e.Chat:
	default: // the regular round shows it
	}
	remark := func(key string) {
		if !l.notices.pass(key+" "+string(a.Conversation), 20*time.Second) {
			return
		}
		d := store.Draft{Company: a.Company, Conversation: a.Conversation, Chat: e.Chat, Lang: e.From.Lang,
			Kind: store.DraftNotice, Notice: key, ReplyTo: e.Telegram, Priority: second}
		if err := l.store.Say(ctx, d); err != nil && ctx.Err() == nil {
			l.cfg.Log.Warn().Str("event", "remark.not_stored").Err(err).Send()
		}
	}
	if a.Waits {
		remark("message.waits")
	}
	if e.Files {
		remark("files.not_yet")
	}
}

// menu tells Telegram what to offer behind "/". It is a convenience and no permission.
func (b *Bot) menu(ctx context.Context) {
	for _, lang := range []string{"", "es", "en"} {
		var commands []map[string]string
		for _, c := range []string{"help", "apps", "connect", "disconnect", "preferences", "approvals", "away", "back", "stop", "new", "why", "policy"} {
			commands = append(commands, map[string]string{"command": c, "description": b.texts[b.langOr(lang)]["command."+c]})
		}
		params := map[string]any{"commands": commands}
		if lang != "" {
			params["language_code"] = lang
		}
		if _, ok := b.pace.free(0); !ok {
			return
		}
		if _, err := b.api.call(ctx, "setMyCommands", params); err != nil {
			b.cfg.Log.Debug().Str("event", "telegram.menu_failed").Err(err).Send()
			return
		}
	}
}

// backoff is Config.Retry doubling to sixty times that, a fifth of it by chance.
func (b *Bot) backoff(failures int) time.Duration {
	d := min(b.cfg.Retry<<min(max(failures-1, 0), 10), 60*b.cfg.Retry)
	return d*9/10 + rand.N(d/5+1)
}
