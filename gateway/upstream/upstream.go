// Package upstream offers the tools of any other MCP server as a connector: it keeps one MCP session per person and
// upstream, makes tools of what the upstream lists, sends each call at most once and says in a small and predictable form
// what came of it.
//
// It refuses definitions that nobody has seen before they changed, schemas that would break a host, redirects, answers
// without end and answers that are none. It never shares an MCP session between two people, and never passes on what came
// with an answer beside its content. Where credentials come from is decided elsewhere.
package upstream

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"pilder/gateway"
	"pilder/policy"
	"pilder/store"
)

// connectorName is what Tool.Connector says.
const connectorName = "upstream"

// Auth is how an upstream knows who is asking.
type Auth string

// The ways. With the first two an upstream is there for every member of its companies; with the last only for those who
// have connected it.
const (
	AuthNone   Auth = "none"
	AuthHeader Auth = "header" // one secret of the operator's
	AuthOAuth  Auth = "oauth"  // each person's own
)

// Spec is one upstream as its operator describes it.
type Spec struct {
	// Slug names the app: lower-case letters, digits and _, 2 to 24 of them. It stands before the first - of its tools' names.
	Slug string
	// Name is the app as people know it; Hint tells agents when to use it.
	Name, Hint policy.Text
	// URL is the streamable HTTP endpoint. Exactly one of URL and Command is set.
	URL string
	// Command is the program and its arguments of a stdio upstream; Folder, Env: see Command of Config.Start.
	Command []string
	Folder  string
	Env     map[string]string
	// Shared lets all people of a stdio upstream use one process. Default: a process for each.
	Shared bool
	// Auth is how it knows who asks. Default none.
	Auth Auth
	// Header carries the secret: default "Authorization" with "Bearer " before it; any other name carries the secret alone.
	// For a stdio upstream it is the name of an environment variable.
	Header string
	// Headers are sent with every request; nothing secret.
	Headers map[string]string
	// Companies are the only ones it is for. Empty: all.
	Companies []policy.CompanyID
	// OAuth is what whoever leads people to an AuthOAuth server has to know of it.
	OAuth OAuth
	// Tools says what a tool does, by the upstream's name for it. A tool that is not there is of unknown class: a person is
	// asked about each call.
	Tools map[string]policy.Class
	// TrustAnnotations takes the upstream's word for tools that Tools does not name.
	TrustAnnotations bool
	// ReviewAll holds back every new tool until an operator accepts it. Default: only one that changes is held back.
	ReviewAll bool
	// Timeout bounds one call. Default 60 s, within the time the gateway gives a call.
	Timeout time.Duration
}

// OAuth are the settings of a server that people connect themselves; the zero value is right for most.
type OAuth struct {
	ClientID   string   // what the operator registered pilder as; its secret is kept as the upstream's
	Scopes     []string // default: what the server asks for
	Audience   string   // for servers that know their resources by that
	NoResource bool     // for servers that refuse RFC 8707's resource
}

// Command is a stdio upstream's process.
type Command struct {
	Upstream string
	Owner    string // whose process: a membership, or "shared"; a folder of that name is its own to write
	Argv     []string
	Folder   string   // host folder to read programs from; may be empty
	Env      []string // "NAME=value"
}

// Config says which upstreams there are, and how patiently they are asked.
type Config struct {
	Upstreams []Spec

	// Bearer gives the secret for one request of a caller with one of their accounts (gateway.Call.Account; empty: the one in
	// use); zero: none is needed. gateway.ErrReconnect and gateway.ErrChooseAccount: only the person can mend it; any other error: it
	// cannot be had now.
	// Required when an upstream has another Auth than none.
	Bearer func(ctx context.Context, c gateway.Caller, app, account string) (store.Secret, error)
	// Refused is told that the upstream did not accept the secret, so that the next Bearer gives a fresh one. Nil: nobody
	// wants to know.
	Refused func(ctx context.Context, c gateway.Caller, app, account string, secret store.Secret)
	// Start starts a stdio upstream's process: what is written goes to its standard input, what it says on its standard output
	// is read, Close ends it and all it started. Required when an upstream has a Command.
	Start func(ctx context.Context, c Command) (io.ReadWriteCloser, error)

	// ListTimeout bounds one look at an upstream's list of tools. Default 5 s.
	ListTimeout time.Duration
	// ListEvery is how old a list may become. Default 5 min.
	ListEvery time.Duration
	// Idle is how long an unused MCP session or process is kept. Default 10 min.
	Idle time.Duration
	// MaxSessions bounds the MCP sessions and processes kept; of the unused the one that waited longest goes. Default 500.
	MaxSessions int
	// MaxAnswer is the longest answer read, bytes. Default 1 MiB.
	MaxAnswer int
	// Pause is how long an upstream that failed thrice in a row is left alone. Default 30 s.
	Pause time.Duration
	// Grace is how long a write that was taken back may still report what came of it. Default 2 s.
	Grace time.Duration

	// Transport carries HTTP. Default: connections within 5 s, no redirects in any case.
	Transport http.RoundTripper
	// Version is told to upstreams. Default "0".
	Version string
	// Now is the clock. Default time.Now.
	Now func() time.Time
	// Log gets one content-free line per thing an operator acts on. Default: none.
	Log zerolog.Logger
}

// Connector is all upstreams of everybody. It is safe for concurrent use.
type Connector struct {
	cfg       Config
	store     *store.Store
	upstreams []*server
	pool      *pool
	changes   atomic.Uint64
}

// server is one upstream: what is the same for all people.
type server struct {
	Spec
	c    *Connector
	http *http.Client
	ids  atomic.Int64
	health
	era     eraMemory
	changed chan struct{} // holds one: the list is to be looked at

	mu         sync.Mutex
	catalogues map[catalogueKey]*catalogue
}

var (
	slugShape   = regexp.MustCompile(`^[a-z][a-z0-9_]{1,23}$`)
	headerShape = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]*$`)
)

// New makes a connector and contacts nobody. An incomplete configuration is an error.
func New(cfg Config, s *store.Store) (*Connector, error) {
	c := &Connector{cfg: withDefaults(cfg), store: s}
	c.pool = newPool(c.cfg)
	taken := map[string]bool{gateway.HouseApp: true}
	for _, spec := range c.cfg.Upstreams {
		if err := spec.check(c.cfg); err != nil {
			return nil, err
		}
		if taken[spec.Slug] {
			return nil, fmt.Errorf("upstream %s: there is another app of this name", spec.Slug)
		}
		taken[spec.Slug] = true
		c.upstreams = append(c.upstreams, newServer(c, spec))
	}
	return c, nil
}

func newServer(c *Connector, spec Spec) *server {
	if spec.Auth == "" {
		spec.Auth = AuthNone
	}
	if spec.Timeout <= 0 {
		spec.Timeout = 60 * time.Second
	}
	return &server{Spec: spec, c: c, http: newHTTPClient(c.cfg.Transport), changed: make(chan struct{}, 1), catalogues: map[catalogueKey]*catalogue{}}
}

// check refuses what cannot work, or could mean something else than it says.
func (s Spec) check(cfg Config) error {
	bad := func(what string) error { return fmt.Errorf("upstream %q: %s", s.Slug, what) }
	u, err := url.Parse(s.URL)
	switch {
	case !slugShape.MatchString(s.Slug):
		return bad("a slug is 2 to 24 lower-case letters, digits and _, a letter first")
	case s.Name.In("es") == "":
		return bad("it has no name")
	case (s.URL == "") == (len(s.Command) == 0):
		return bad("exactly one of url and command is needed")
	case s.URL != "" && (err != nil || u.Host == "" || u.User != nil || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http"):
		return bad("the url is no address")
	case !slices.Contains([]Auth{"", AuthNone, AuthHeader, AuthOAuth}, s.Auth):
		return bad("auth is none, header or oauth")
	case s.Auth == AuthOAuth && s.URL == "":
		return bad("only a server with a url has people of its own")
	case s.Auth != "" && s.Auth != AuthNone && cfg.Bearer == nil:
		return bad("nothing gives its secret")
	case len(s.Command) > 0 && cfg.Start == nil:
		return bad("nothing starts its program")
	case s.Header != "" && !headerShape.MatchString(s.Header):
		return bad("the header's name is none")
	}
	for name := range s.Headers {
		if !headerShape.MatchString(name) || strings.EqualFold(name, "authorization") || strings.EqualFold(name, s.Header) {
			return bad(fmt.Sprintf("header %.40q may not be set so", name))
		}
	}
	for tool, class := range s.Tools {
		if !slices.Contains([]policy.Class{policy.ClassRead, policy.ClassWrite, policy.ClassDestructive}, class) {
			return bad(fmt.Sprintf("tool %.60q is none of read, write, destructive", tool))
		}
	}
	return nil
}

func withDefaults(cfg Config) Config {
	def := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	def(&cfg.ListTimeout, 5*time.Second)
	def(&cfg.ListEvery, 5*time.Minute)
	def(&cfg.Idle, 10*time.Minute)
	def(&cfg.Pause, 30*time.Second)
	def(&cfg.Grace, 2*time.Second)
	if cfg.MaxSessions <= 0 {
		cfg.MaxSessions = 500
	}
	if cfg.MaxAnswer <= 0 {
		cfg.MaxAnswer = 1 << 20
	}
	if cfg.Version == "" {
		cfg.Version = "0"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return cfg
}

// Open gives the upstreams that a company's members have without connecting anything, in their order.
func (c *Connector) Open(company policy.CompanyID) []Spec {
	var all []Spec
	for _, u := range c.upstreams {
		if u.Auth != AuthOAuth && u.isFor(company) {
			all = append(all, u.Spec)
		}
	}
	return all
}

// Changes counts how often a list of tools has changed: whoever listed at another count lists again.
func (c *Connector) Changes() uint64 { return c.changes.Load() }

// Close ends every MCP session and process that nobody uses at this moment. Run does so as it ends; whoever calls without
// it closes.
func (c *Connector) Close(ctx context.Context) {
	c.pool.tidy(-1)
	c.pool.farewell(context.WithoutCancel(ctx))
}

// Stale has every list looked at again by whoever lists next, as after a change of what is accepted.
func (c *Connector) Stale() {
	for _, u := range c.upstreams {
		u.catalogueFor(gateway.Caller{}) // at least the one that all share
		u.listChanged()
	}
}

func (u *server) isFor(company policy.CompanyID) bool {
	return len(u.Companies) == 0 || slices.Contains(u.Companies, company)
}

// serves tells whether a caller has this app: the company must be allowed to in any case.
func (u *server) serves(c gateway.Caller) bool {
	return u.isFor(c.Principal.Company) && slices.Contains(c.Apps, u.Slug)
}

// Tools lists what the caller's upstreams offer. It answers from the last good list; an upstream is asked only when there
// is none yet or it has said that it changed. All that have to be asked are asked at once, none for longer than
// Config.ListTimeout, and one that does not answer keeps the tools it had.
func (c *Connector) Tools(ctx context.Context, caller gateway.Caller) ([]gateway.Tool, error) {
	found := make([][]*tool, len(c.upstreams))
	var asking sync.WaitGroup
	for i, u := range c.upstreams {
		if u.serves(caller) {
			asking.Go(func() { found[i] = u.toolsFor(ctx, caller) })
		}
	}
	asking.Wait()
	var all []gateway.Tool
	for _, tools := range found {
		for _, t := range tools {
			all = append(all, t.in(caller.Lang))
		}
	}
	return all, nil
}

// Check tells what Call would refuse before it asked the upstream anything.
func (c *Connector) Check(ctx context.Context, call gateway.Call) *gateway.Result {
	u, t, problem := c.find(ctx, call)
	if problem == nil {
		_, err := u.secret(ctx, call.Caller, u.accountOf(call))
		problem = u.troubleOf(t, err)
	}
	if problem == nil {
		return nil
	}
	r := c.say(call, problem)
	return &r
}

// Call performs one call. Whatever goes wrong outside is a Result; the error is always nil, and is there for the interface.
func (c *Connector) Call(ctx context.Context, call gateway.Call) (gateway.Result, error) {
	u, t, problem := c.find(ctx, call)
	if problem != nil {
		return c.say(call, problem), nil
	}
	ctx, cancel := context.WithTimeout(ctx, u.Timeout)
	defer cancel()
	raw, err := u.ask(ctx, call.Caller, u.accountOf(call), question{
		method: "tools/call", name: t.def.Name, read: t.class == policy.ClassRead,
		params:   map[string]any{"name": t.def.Name, "arguments": call.Args},
		progress: call.Progress, cancelled: call.Cancelled,
	})
	if problem := u.troubleOf(t, err); problem != nil {
		return c.say(call, problem), nil
	}
	return c.report(call, u, t, raw), nil
}

// find gives a call's upstream and tool, or says why there is none.
func (c *Connector) find(ctx context.Context, call gateway.Call) (*server, *tool, *trouble) {
	slug, _, _ := strings.Cut(call.Tool, "-")
	for _, u := range c.upstreams {
		if u.Slug != slug || !u.serves(call.Caller) {
			continue
		}
		t := u.toolNamed(ctx, call.Caller, call.Tool)
		switch {
		case t == nil:
			return nil, nil, &trouble{code: codeNotFound, app: u.Name}
		case u.resting(c.cfg.Now()):
			return nil, nil, &trouble{code: codeUnavailable, app: u.Name, class: t.class}
		}
		return u, t, nil
	}
	return nil, nil, &trouble{code: codeNotFound}
}

// accountOf is the account a call goes with, where people have some of their own here.
func (u *server) accountOf(c gateway.Call) string {
	if u.Auth == AuthOAuth {
		return c.Account
	}
	return ""
}
