// Package pipedream stands in for the Pipedream Connect API: accounts, connect links, action definitions, choices and runs
// over a small world per account, with a ledger of what was really performed and faults on demand.
//
// It refuses what the real service is known to refuse, and fails loudly on what pilder must never send (Violations). It
// fills in no defaults and checks no props beyond the required ones, since nothing seen says that the real service does.
// It calls nobody but the webhook address of a connect token.
package pipedream

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"
)

//go:embed fixtures
var fixtureFiles embed.FS

// Config says which project the stand-in plays. The zero value is a working one.
type Config struct {
	// Now is the clock of everything that has a life or a time. Default time.Now.
	Now func() time.Time
	// ClientID and ClientSecret are the only accepted credentials. Defaults sim-client and sim-secret.
	ClientID, ClientSecret string
	// ProjectID is the only project. Default proj_test1.
	ProjectID string
	// Environment is where AddAccount and Seed put accounts; the other one stays empty. Default development.
	Environment string
	// PublicURL gives the base of connect_link_url, without slash at the end. Default: http and the Host of the request.
	PublicURL func() string
	// TokenLife is the life of an access token. Default one hour; tests go down to 2 s.
	TokenLife time.Duration
	// Seed adds the seven accounts of person-1 and person-2 that the fixtures speak of.
	Seed bool
	// Client sends webhooks. Default: 5 s, no redirects.
	Client *http.Client
}

// withDefaults fills the zero fields.
func (c Config) withDefaults() Config {
	def := func(field *string, value string) {
		if *field == "" {
			*field = value
		}
	}
	def(&c.ClientID, "sim-client")
	def(&c.ClientSecret, "sim-secret")
	def(&c.ProjectID, "proj_test1")
	def(&c.Environment, "development")
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.TokenLife <= 0 {
		c.TokenLife = time.Hour
	}
	if c.Client == nil {
		c.Client = &http.Client{Timeout: 5 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		}}
	}
	return c
}

// Server is one project with its accounts, their worlds, and a memory of what was asked of it. Safe for concurrent use.
type Server struct {
	cfg     Config
	catalog catalog

	mu         sync.Mutex
	switches   Switches
	bearers    map[string]time.Time // access token → end of life
	tokenCalls int
	accounts   []*account // in order of creation
	tokens     map[string]*connectToken
	reloads    map[string]reload // dyp_ id → what it stands for
	faults     []*Fault
	late       []webhook
	ledger     []Performed
	violations []string
	markers    []string
	serial     int
}

// Switches change how good answers look; the zero value is the documented form. Set them with Set.
type Switches struct {
	WrapAccount     bool // GET of one account answers {"data":Account}
	LegacyAccounts  bool // the account list answers data.accounts, as in 2024
	RepeatCursor    bool // account and action lists give the same end_cursor for ever
	WrongTotal      bool // total_count is far too high
	ListWithout     bool // the action list leaves configurable_props out
	ExtraFields     bool // every object answered carries unknown fields
	RunsForeign     bool // run, configure and props accept an account of another external user (mode 2)
	ColumnsChange   bool // every reload of a Notion table gives one more column than the last
	ColumnsCollide  bool // the Notion table has columns whose safe names collide
	LimitReached    bool // the per-user account list answers 413
	WebhookAfter    bool // the connection webhook leaves after the redirect was answered
	WebhookNever    bool
	WebhookTwice    bool
	WebhookLate     bool // kept until FlushWebhooks
	WebhookDocs     bool // the odd documented shape
	WebhookForged   bool // names an account of somebody else
	WebhookEventErr bool // CONNECTION_ERROR although the account was made
}

// New makes a server. It panics when its own fixtures do not parse, which a test of this package rules out.
func New(cfg Config) *Server {
	cat, err := readCatalog(fixtureFiles)
	if err != nil {
		panic(err)
	}
	s := &Server{cfg: cfg.withDefaults(), catalog: cat}
	s.Reset()
	return s
}

// Run serves on listen until ctx ends, then closes, hanging answers included. It writes one line with the address to log.
func Run(ctx context.Context, listen string, cfg Config, log io.Writer) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listening for the pipedream stand-in: %w", err)
	}
	srv := &http.Server{Handler: New(cfg).Handler(), ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintf(log, "pipedream stand-in on http://%s\n", l.Addr())
	stop := context.AfterFunc(ctx, func() { srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the pipedream stand-in: %w", err)
	}
	return nil
}

// Handler serves the API, the connect page and the control paths below /_sim/.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/v1/", s.serveAPI)
	mux.HandleFunc("GET /_static/connect.html", s.showConnect)
	mux.HandleFunc("POST /_static/connect.html", s.submitConnect)
	s.control(mux)
	return mux
}

// Set changes switches, under the server's lock.
func (s *Server) Set(change func(*Switches)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.switches)
}

// Reset forgets everything that happened and seeds again.
func (s *Server) Reset() {
	s.mu.Lock()
	s.switches = Switches{}
	s.bearers = map[string]time.Time{}
	s.tokens = map[string]*connectToken{}
	s.reloads = map[string]reload{}
	s.accounts, s.faults, s.late, s.ledger, s.violations = nil, nil, nil, nil, nil
	s.tokenCalls, s.serial = 0, 0
	s.markers = []string{s.cfg.ClientSecret, debugMarker, presignedMarker}
	s.mu.Unlock()
	if s.cfg.Seed {
		s.seed()
	}
}

// Examples gives the request and answer pairs of fixtures/examples, for tests of clients.
func Examples() fs.FS {
	sub, err := fs.Sub(fixtureFiles, "fixtures/examples")
	if err != nil {
		panic(err) // only for an invalid path
	}
	return sub
}

// id makes the next id of a kind; ids of one server repeat after Reset. The caller holds the lock.
func (s *Server) id(prefix string, digits int) string {
	s.serial++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", prefix, s.serial))
	return prefix + hex.EncodeToString(sum[:])[:digits]
}

// marker remembers text that no agent may ever see. The caller holds the lock.
func (s *Server) marker(text string) string {
	s.markers = append(s.markers, text)
	return text
}

// object is JSON of this API before it has a type.
type object = map[string]any

// clone copies JSON values deeply, so that no answer shares memory with the world.
func clone(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // every value of the world came from JSON or is made of plain types
	}
	var out any
	if err := json.Unmarshal(raw, &out); err != nil {
		panic(err)
	}
	return out
}
