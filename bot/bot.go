// Package bot speaks Telegram: it polls for updates and files them, settles commands and buttons, and sends what waits in
// the outbox. It refuses to run anything, to decide anything (the store checks who may) and to repeat a send whose outcome
// it does not know; nothing outside this folder knows that Telegram exists.
package bot

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	tg "github.com/go-telegram/bot"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"pilder/policy"
	"pilder/store"
)

// Config says which bot to be and what the people who write to it may do.
type Config struct {
	// Token is the bot's token. Spaces around it are cut off; its shape is checked before anything is called.
	Token store.Secret
	// APIURL is the Bot API's base address. Default https://api.telegram.org.
	APIURL string
	// Now is the clock for pacing and for times that people read. Default time.Now.
	Now func() time.Time
	// Log gets events, never texts of people. Default: none.
	Log zerolog.Logger
	// PollTimeout is how long Telegram may hold a poll open, in whole seconds. Default 45 s; Telegram allows at most 50 s.
	PollTimeout time.Duration
	// LeaseTTL is how long the poller's lease lasts without renewal; it is renewed three times as often. Default 15 s.
	LeaseTTL time.Duration
	// Retry is how long the first try after a failure waits; each later one twice as long as the one before, at most sixty
	// times. Default 0.5 s.
	Retry time.Duration
	// ChatRate is how many messages a second go to one chat after a burst of three. Default 1: Telegram refuses more.
	ChatRate float64
	// Drain is how long Run goes on sending what waits after its context ended. Default 3 s.
	Drain time.Duration
	// Lang, "es" or "en", is for people whose language neither Telegram nor we know. Default "es".
	Lang string
	// DefaultZone is the IANA zone of times shown to people who have none, nor their company. Default UTC.
	DefaultZone string
	// Apps is what /connect offers, in this order. Empty: /connect says that there is nothing to connect.
	Apps []App
	// Open are the apps that people have without connecting them: said by their names, never offered. Default: none.
	Open []App
	// Connect makes a personal connect link and queues the draft that carries it, settling the update from. Required when
	// Apps is not empty.
	Connect func(ctx context.Context, m store.Membership, app string, from store.UpdateRef, chat store.Chat) error
	// RemoveAccount makes the provider forget an account whose person said that it is not theirs, or disconnected
	// it. It is called after that was committed, in the background, and its error is only logged. Nil: nothing is called.
	RemoveAccount func(ctx context.Context, a store.Account) error
}

// App is an app that agents may act with.
type App struct {
	Slug string      // google_calendar
	Name policy.Text // Google Calendar
	// Category is what a preference between apps is about, "calendar"; the words for it are "category.…" of the texts.
	Category string
}

// ErrToken is returned by New for a token that Telegram cannot have issued.
var ErrToken = errors.New("telegram token has the wrong shape")

// tokenShape is a bot's numeric id and its secret half. The lengths are looser than Telegram's own.
var tokenShape = regexp.MustCompile(`^[0-9]{1,18}:[A-Za-z0-9_-]{8,128}$`)

// Bot is one Telegram bot.
type Bot struct {
	cfg   Config
	id    store.BotID
	store *store.Store
	api   *client
	lib   *tg.Bot // methods only: its poller loses updates, its parser commands (v1.24.0, tried)
	texts texts
	pace  *pace

	name     atomic.Value // string, our username from getMe, without @
	lastPoll atomic.Int64 // Unix milliseconds of the last completed poll
	typing   chan store.Chat
	notices  throttle       // of the house's own remarks, per chat and cause
	side     sync.WaitGroup // answers to taps and other calls whose outcome changes nothing
	sides    chan struct{}  // bounds them
}

// New checks the configuration. It calls nobody.
func New(cfg Config, s *store.Store) (*Bot, error) {
	token := strings.TrimSpace(cfg.Token.Reveal())
	if !tokenShape.MatchString(token) {
		return nil, ErrToken
	}
	id, err := strconv.ParseInt(token[:strings.IndexByte(token, ':')], 10, 64)
	if err != nil || id == 0 {
		return nil, ErrToken
	}
	if cfg.APIURL == "" {
		cfg.APIURL = "https://api.telegram.org"
	}
	u, err := url.Parse(cfg.APIURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("telegram api url %q is not an http address", cfg.APIURL)
	}
	cfg.APIURL = strings.TrimSuffix(cfg.APIURL, "/")
	if len(cfg.Apps) > 0 && cfg.Connect == nil {
		return nil, errors.New("apps are offered and nothing makes their links")
	}
	cfg.setDefaults()
	t, err := loadTexts()
	if err != nil {
		return nil, err
	}
	b := &Bot{
		cfg: cfg, id: store.BotID(id), store: s, texts: t,
		api:     newClient(cfg.APIURL, store.NewSecret(token)),
		pace:    newPace(cfg.Now, cfg.ChatRate),
		typing:  make(chan store.Chat, 64),
		notices: throttle{now: cfg.Now, last: map[string]time.Time{}},
		sides:   make(chan struct{}, 16),
	}
	b.name.Store("")
	quiet := tg.WithErrorsHandler(func(error) {}) // the default prints to standard error, past our redaction
	b.lib, err = tg.New(token, tg.WithSkipGetMe(), tg.WithServerURL(cfg.APIURL), tg.WithHTTPClient(time.Minute, b.api), quiet)
	if err != nil {
		return nil, ErrToken // its text may name the token
	}
	return b, nil
}

func (c *Config) setDefaults() {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.PollTimeout <= 0 {
		c.PollTimeout = 45 * time.Second
	}
	if c.LeaseTTL <= 0 {
		c.LeaseTTL = 15 * time.Second
	}
	if c.Retry <= 0 {
		c.Retry = 500 * time.Millisecond
	}
	if c.ChatRate <= 0 {
		c.ChatRate = chatRate
	}
	if c.Drain <= 0 {
		c.Drain = 3 * time.Second
	}
	c.Lang = language(c.Lang)
	if c.Lang == "" {
		c.Lang = "es"
	}
}

// ID is the bot's number: the part of its token before the colon.
func (b *Bot) ID() store.BotID { return b.id }

// LastPoll is when Telegram last answered a poll as it should; zero before the first time. Health is its age, never that
// a goroutine lives.
func (b *Bot) LastPoll() time.Time {
	ms := b.lastPoll.Load()
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// Run polls, settles and sends until ctx ends, then sends what waits for at most Config.Drain. While another process holds
// the bot it waits for its turn and says who that is. It returns nil when ctx ended.
func (b *Bot) Run(ctx context.Context) error {
	defer b.side.Wait()
	said := ""
	for ctx.Err() == nil {
		p, err := b.store.AcquirePoller(ctx, b.id, b.cfg.LeaseTTL)
		var held *store.HeldError
		switch {
		case errors.As(err, &held):
			if held.Owner != said {
				b.cfg.Log.Warn().Str("event", "bot.held").Str("owner", held.Owner).Send()
				said = held.Owner
			}
			rest(ctx, b.cfg.LeaseTTL/3)
			continue
		case err != nil:
			if ctx.Err() == nil {
				b.cfg.Log.Error().Str("event", "bot.lease_failed").Err(err).Send()
			}
			rest(ctx, b.cfg.LeaseTTL/3)
			continue
		}
		said = ""
		b.session(ctx, p)
	}
	return nil
}

// session is the time during which this process holds the bot. It ends with ctx or with the lease.
func (b *Bot) session(ctx context.Context, p store.Poller) {
	b.cfg.Log.Info().Str("event", "bot.started").Int64("bot", int64(b.id)).Send()
	g, sctx := errgroup.WithContext(ctx)
	g.Go(func() error { return b.renew(sctx, p) })
	g.Go(func() error { return b.poll(sctx, p) })
	g.Go(func() error { return b.control(sctx) })
	g.Go(func() error { return b.send(sctx, p) })
	g.Go(func() error { return b.typeSigns(sctx) })
	err := g.Wait()
	if errors.Is(err, store.ErrLost) {
		b.cfg.Log.Warn().Str("event", "bot.lease_lost").Send()
		rest(ctx, time.Second)
		return
	}
	if ctx.Err() == nil {
		b.cfg.Log.Error().Str("event", "bot.session_ended").Err(err).Send()
		rest(ctx, time.Second)
	}
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := b.store.ReleasePoller(release, p); err != nil && !errors.Is(err, store.ErrLost) {
		b.cfg.Log.Warn().Str("event", "bot.release_failed").Err(err).Send()
	}
}

// renew keeps the lease. A store that does not answer is no loss by itself: the fence guards every write.
func (b *Bot) renew(ctx context.Context, p store.Poller) error {
	for rest(ctx, b.cfg.LeaseTTL/3) {
		q, err := b.store.AcquirePoller(ctx, b.id, b.cfg.LeaseTTL)
		var held *store.HeldError
		switch {
		case errors.As(err, &held):
			return store.ErrLost
		case err != nil:
			if ctx.Err() == nil {
				b.cfg.Log.Warn().Str("event", "bot.lease_failed").Err(err).Send()
			}
		case q.Fence != p.Fence:
			return store.ErrLost
		}
	}
	return ctx.Err()
}

// aside runs a call whose failure changes nothing, at most 16 at a time, and tells whether it does. Run waits for them. One
// that should be made even while the process ends is given a context that does not.
func (b *Bot) aside(ctx context.Context, timeout time.Duration, f func(ctx context.Context)) bool {
	select {
	case b.sides <- struct{}{}:
	default:
		return false // so many hang that one more would be no better
	}
	b.side.Add(1)
	go func() {
		defer func() { <-b.sides; b.side.Done() }()
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		f(ctx)
	}()
	return true
}

// rest waits for d and tells whether ctx still lives.
func rest(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
