// Package telegram is a stand-in for the Telegram Bot API: the protocol of the
// bot on one side, the people who chat with it on the other, driven by a test
// or through a small web page.
//
// It refuses to know anything about the bot that talks to it, to listen on
// anything but loopback, and to be kinder than Telegram: a rule of the real
// server that a bot can trip over is kept here, with the server's own words.
// The rules come from the official Bot API server's and TDLib's sources; what
// neither says is marked "inferred" where it is decided.
//
// Left out: groups, topics, albums, parse_mode, Telegram's own rate limits
// (penalties come from Fault only) and delivery to webhooks, which can be set
// but are never called. Methods for rich messages, drafts and media other than
// documents are answered like methods that do not exist.
package telegram

import (
	"math/rand/v2"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// DefaultToken is the bot token accepted when Config.Token is empty. It opens
// nothing but this simulator.
const DefaultToken = "100001:SIM-demo-token-opens-nothing-real-0000"

// Config says who is there and what time it is. The zero value is a working
// bot that nobody talks to.
type Config struct {
	// Now is the wall clock: dates of messages, the life of updates, taps,
	// penalties and file links. Default time.Now. Waiting (long polls, the
	// server's pacing of polls) runs on real timers whatever Now says.
	Now func() time.Time
	// Token is the one accepted bot token; the digits before the colon are the
	// bot's id. Default DefaultToken.
	Token string
	// BotUsername is the bot's username without @. Default "pilder_demo_bot".
	BotUsername string
	// BotName is the bot's display name. Default "pilder".
	BotName string
	// People are those who can write to the bot. Each has a private chat with
	// it whose id is the person's id. Default: nobody.
	People []Person
	// Seed makes the random parts (first update id, query and file ids)
	// repeatable. The zero seed is as good as any other.
	Seed int64
	// AnswerWithin is how long a tap may be answered before the server says
	// the query is too old. Default 150 s, the life of the tap in the queue
	// (inferred: the real limit is not published).
	AnswerWithin time.Duration
}

// Person is somebody with a Telegram account.
type Person struct {
	ID       int64  // the account's numeric id and the id of the private chat
	Name     string // display name; what follows the first space is the last name
	Username string // without @; may be empty
	Language string // IETF tag as in language_code; may be empty
}

// Server is one bot's world. Its methods may be called from any goroutine.
type Server struct {
	now          func() time.Time
	token        string
	bot          User
	answerWithin time.Duration
	epoch        string        // tells a page that it is talking to a new world
	done         chan struct{} // closed by Close: ends everything that waits
	closeOnce    sync.Once
	handler      http.Handler

	mu      sync.Mutex
	random  *rand.Rand
	rev     int64         // counts changes; every message knows its last
	changed chan struct{} // closed and replaced at every change

	people    []Person
	reach     map[int64]Reach
	chats     map[int64][]*message
	lastID    int64 // message ids of all private chats come from one counter
	taps      map[string]*tap
	actions   map[int64][]ChatAction
	commands  map[string][]Command
	documents map[string]*document // by file id
	paths     map[string]*document // by the path handed out by getFile

	queue queue

	faults     []*fault
	penalties  []*penalty
	requests   []*Request
	violations []string
	duplicates []string
}

// New returns a server in which nothing has happened yet. A token that does
// not look like one is a mistake of the caller and panics.
func New(cfg Config) *Server {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Token == "" {
		cfg.Token = DefaultToken
	}
	if cfg.BotUsername == "" {
		cfg.BotUsername = "pilder_demo_bot"
	}
	if cfg.BotName == "" {
		cfg.BotName = "pilder"
	}
	if cfg.AnswerWithin <= 0 {
		cfg.AnswerWithin = tapLife
	}
	if !tokenShape.MatchString(cfg.Token) {
		panic("telegram: Config.Token does not have the shape of a bot token")
	}
	digits, _, _ := strings.Cut(cfg.Token, ":")
	id, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic("telegram: Config.Token does not begin with a bot id")
	}
	s := &Server{
		now:          cfg.Now,
		token:        cfg.Token,
		bot:          User{ID: id, IsBot: true, FirstName: cfg.BotName, Username: cfg.BotUsername},
		answerWithin: cfg.AnswerWithin,
		epoch:        strconv.FormatInt(time.Now().UnixNano(), 36),
		done:         make(chan struct{}),
		random:       rand.New(rand.NewPCG(uint64(cfg.Seed), 0x7e1e)),
		changed:      make(chan struct{}),
		people:       append([]Person(nil), cfg.People...),
		reach:        map[int64]Reach{},
		chats:        map[int64][]*message{},
		taps:         map[string]*tap{},
		actions:      map[int64][]ChatAction{},
		commands:     map[string][]Command{},
		documents:    map[string]*document{},
		paths:        map[string]*document{},
	}
	s.lastID = 100 + s.random.Int64N(900)
	s.queue.allowed = defaultUpdates()
	s.handler = s.routes()
	return s
}

var tokenShape = regexp.MustCompile(`^\d+:[A-Za-z0-9_-]{30,}$`)

// Handler serves the Bot API under /bot<token>/ and /file/bot<token>/, and the
// chat page at /.
func (s *Server) Handler() http.Handler { return s.handler }

// Close ends every request that is waiting: long polls, hung calls, the pages'
// event streams. Calls that follow are still answered.
func (s *Server) Close() { s.closeOnce.Do(func() { close(s.done) }) }

// bump records a change and wakes whoever waits for one. The caller holds mu.
func (s *Server) bump() int64 {
	s.rev++
	close(s.changed)
	s.changed = make(chan struct{})
	return s.rev
}

// person finds who has the id. The caller holds mu.
func (s *Server) person(id int64) (Person, bool) {
	for _, p := range s.people {
		if p.ID == id {
			return p, true
		}
	}
	return Person{}, false
}

// User is a person or the bot as the Bot API writes it.
type User struct {
	ID           int64  `json:"id"`
	IsBot        bool   `json:"is_bot"`
	FirstName    string `json:"first_name"`
	LastName     string `json:"last_name,omitempty"`
	Username     string `json:"username,omitempty"`
	LanguageCode string `json:"language_code,omitempty"`
}

func (p Person) user() User {
	first, last, _ := strings.Cut(p.Name, " ")
	return User{ID: p.ID, FirstName: first, LastName: last, Username: p.Username, LanguageCode: p.Language}
}
