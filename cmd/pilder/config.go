package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/viper"

	"pilder/gateway/egress"
	"pilder/gateway/upstream"
	"pilder/store"
)

// Config is everything an operator can set: in pilder.yaml, or as PILDER_… with _ for the dot. Its comments are the short
// form of configs/pilder.yaml.
type Config struct {
	// Data is the folder of everything that is not in the database: conversations' files, workspaces, keys. Made 0700.
	Data string

	TelegramToken  store.Secret // of BotFather; also TELEGRAM_BOT_TOKEN. Empty: only the demo can run
	TelegramAPIURL string       // default https://api.telegram.org

	ModelURL  string       // Messages API, default https://api.anthropic.com
	ModelKey  store.Secret // also ANTHROPIC_API_KEY
	ModelName string       // an alias or a full model name, default "sonnet"

	ModelAllowed    []string // full names or beginnings of them; default: the family of model.name and the CLI's small model
	ModelMaxTokens  int64    // longest answer an agent may ask for, default 128000
	ModelURLSources bool     // whether the provider may fetch images and documents for an agent, default no

	PipedreamURL         string // default https://api.pipedream.com
	PipedreamClientID    string
	PipedreamSecret      store.Secret
	PipedreamProject     string // proj_…
	PipedreamEnvironment string // development or production; no default, since the wrong one answers with empty lists

	StoreURL string       // sqlite:PATH or postgres://…; default sqlite:DATA/pilder.db
	StoreKey store.Secret // 64 hex digits; SQLite makes its own beside the file when empty

	GatewayListen    string         // public HTTP, default 127.0.0.1:8080
	GatewayPublicURL string         // as people's browsers reach it, default http:// + listen
	TokenKeys        []store.Secret // "ID:64 hex digits", newest first; in the environment with spaces between them

	SandboxMode    string // bwrap (default) or none
	SandboxRequire string // lowest tier accepted: A, B, C; default C
	SandboxMemory  int64  // bytes a run may use before it is ended, default 2GiB
	SandboxUser    string // name or number the agents have outside; empty: 61000 if root runs pilder, else pilder's own

	RunnerMaxRuns      int           // agents at once, default 4
	RunnerRunTimeout   time.Duration // wall clock of a run, default 15m; at most 50m, well under the token's hour
	RunnerBudgetTokens int64         // what a run may spend, cache reads aside, default 3000000; 0: no bound
	RunnerBudgetUSD    float64       // the same in US dollars, default 5
	RunnerMemory       int64         // of all agents together, bytes; 0: three quarters of the machine's
	RunnerWarmMax      int           // processes kept waiting between two turns, default 4; 0: none
	RunnerWarmIdle     time.Duration // how long they wait, default 10m

	RunnerClaudePath string // the pinned CLI; default .tools/claude-code/VERSION/claude
	AgentHome        string // folder; empty: the embedded one

	RunnerQuotaBytes int64 // what a conversation's files may take on disk, default 1GiB
	RunnerQuotaFiles int64 // and how many they may be, default 50000

	WebAllow  []string // names whose https pages agents can read; empty: no web door
	WebSearch bool     // agents can search the web; the model's provider searches

	Upstreams []upstream.Spec // other MCP servers as sources of tools; in the file only

	Reserved []string // reserved keys that were set

	LogLevel  string // debug, info, warn, error; default info
	LogFormat string // json (default) or text
}

// keys lists every key with its default. A key that is not here is an error wherever it is found.
func keys() map[string]any {
	return map[string]any{
		"data":                    ".pilder",
		"telegram.token":          "",
		"telegram.api_url":        "https://api.telegram.org",
		"model.url":               "https://api.anthropic.com",
		"model.key":               "",
		"model.name":              "sonnet",
		"model.allowed":           []string{},
		"model.max_tokens":        128000,
		"model.url_sources":       false,
		"pipedream.url":           "https://api.pipedream.com",
		"pipedream.client_id":     "",
		"pipedream.client_secret": "",
		"pipedream.project_id":    "",
		"pipedream.environment":   "",
		"store.url":               "",
		"store.key":               "",
		"gateway.listen":          "127.0.0.1:8080",
		"gateway.public_url":      "",
		"token.keys":              []string{},
		"sandbox.mode":            "bwrap",
		"sandbox.require":         "C",
		"sandbox.user":            "",
		"sandbox.memory":          "2GiB",
		"runner.max_runs":         4,
		"runner.run_timeout":      "15m",
		"runner.budget.tokens":    3000000,
		"runner.budget.usd":       5.0,
		"runner.claude_path":      "",
		"runner.quota.bytes":      "1GiB",
		"runner.quota.files":      50000,
		"agent_home":              "",
		"web.allow":               []string{},
		"web.search":              false,
		"log.level":               "info",
		"log.format":              "json",
		"runner.memory":           "",
		"runner.warm.max":         4,
		"runner.warm.idle":        "10m",
		"metrics.listen":          "",
		"upstreams":               []any{},
	}
}

// reserved are promised keys whose room is not built yet. They are accepted, and setting one says so at start.
var reserved = []string{"metrics.listen"}

// elsewhere are environment variables with our prefix that are no configuration.
var elsewhere = []string{"PILDER_CONFIG", "PILDER_PG_BIN", "PILDER_TEST_PG_URL", "PILDER_NO_CLI"}

// LoadConfig reads the file (empty: ./pilder.yaml if it is there) and the environment, which wins. Every mistake names its
// key.
func LoadConfig(file string, environ []string) (Config, error) {
	v := viper.New()
	known := keys()
	for key, value := range known {
		v.SetDefault(key, value)
	}
	base, err := readFile(v, file)
	if err != nil {
		return Config{}, err
	}
	for _, key := range v.AllKeys() {
		if _, ok := known[key]; !ok {
			return Config{}, unknownKey(key, known)
		}
	}
	if err := readEnviron(v, environ, known); err != nil {
		return Config{}, err
	}
	c, err := settle(v, base)
	if err == nil && v.ConfigFileUsed() != "" {
		c.Upstreams, err = readUpstreams(v.ConfigFileUsed(), base)
	}
	return c, err
}

// readFile reads the file and tells where relative paths start: in its folder, so that a command means the same data from
// wherever it is given.
func readFile(v *viper.Viper, file string) (base string, err error) {
	if file == "" {
		if _, err := os.Stat("pilder.yaml"); errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		file = "pilder.yaml"
	}
	v.SetConfigFile(file)
	v.SetConfigType("yaml")
	if err := v.ReadInConfig(); err != nil {
		return "", fmt.Errorf("reading configuration: %w", err)
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return "", err // a device or a pipe has no folder worth the name
	}
	return filepath.Dir(file), nil
}

// readEnviron takes PILDER_ variables by the known keys, so that a misspelt one is an error and not silence.
func readEnviron(v *viper.Viper, environ []string, known map[string]any) error {
	names := make(map[string]string, len(known))
	for key := range known {
		names["PILDER_"+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = key
	}
	delete(names, "PILDER_UPSTREAMS") // a list of many settings belongs into the file
	names["TELEGRAM_BOT_TOKEN"], names["ANTHROPIC_API_KEY"] = "telegram.token", "model.key"
	for _, ours := range []bool{false, true} { // the borrowed names first, so that ours win
		for _, line := range environ {
			name, value, _ := strings.Cut(line, "=")
			if strings.HasPrefix(name, "PILDER_") != ours || slices.Contains(elsewhere, name) {
				continue
			}
			key, ok := names[name]
			if !ok && ours {
				return unknownKey(strings.ToLower(strings.TrimPrefix(name, "PILDER_")), known)
			}
			if ok && value != "" {
				v.Set(key, value)
			}
		}
	}
	return nil
}

var (
	tokenShape   = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]{30,}$`)
	projectShape = regexp.MustCompile(`^proj_[A-Za-z0-9]+$`)
)

// settle turns the values into a Config and refuses what cannot work.
func settle(v *viper.Viper, base string) (Config, error) {
	r := values{v: v}
	secret := func(key string) store.Secret { return store.NewSecret(strings.TrimSpace(v.GetString(key))) }
	c := Config{
		Data:                 v.GetString("data"),
		TelegramToken:        secret("telegram.token"),
		TelegramAPIURL:       v.GetString("telegram.api_url"),
		ModelURL:             v.GetString("model.url"),
		ModelKey:             secret("model.key"),
		ModelName:            v.GetString("model.name"),
		ModelAllowed:         v.GetStringSlice("model.allowed"),
		ModelMaxTokens:       r.whole("model.max_tokens"),
		ModelURLSources:      r.yes("model.url_sources"),
		PipedreamURL:         v.GetString("pipedream.url"),
		PipedreamClientID:    v.GetString("pipedream.client_id"),
		PipedreamSecret:      secret("pipedream.client_secret"),
		PipedreamProject:     v.GetString("pipedream.project_id"),
		PipedreamEnvironment: v.GetString("pipedream.environment"),
		StoreURL:             v.GetString("store.url"),
		StoreKey:             secret("store.key"),
		GatewayListen:        v.GetString("gateway.listen"),
		GatewayPublicURL:     strings.TrimSuffix(v.GetString("gateway.public_url"), "/"),
		SandboxMode:          v.GetString("sandbox.mode"),
		SandboxRequire:       strings.ToUpper(v.GetString("sandbox.require")),
		SandboxUser:          v.GetString("sandbox.user"),
		SandboxMemory:        r.size("sandbox.memory"),
		RunnerMaxRuns:        int(r.whole("runner.max_runs")),
		RunnerRunTimeout:     r.duration("runner.run_timeout"),
		RunnerBudgetTokens:   r.whole("runner.budget.tokens"),
		RunnerBudgetUSD:      r.number("runner.budget.usd"),
		RunnerMemory:         r.size("runner.memory"),
		RunnerWarmMax:        int(r.whole("runner.warm.max")),
		RunnerWarmIdle:       r.duration("runner.warm.idle"),
		RunnerClaudePath:     v.GetString("runner.claude_path"),
		AgentHome:            v.GetString("agent_home"),
		WebAllow:             v.GetStringSlice("web.allow"),
		WebSearch:            r.yes("web.search"),
		LogLevel:             v.GetString("log.level"),
		LogFormat:            v.GetString("log.format"),
		RunnerQuotaBytes:     r.size("runner.quota.bytes"),
		RunnerQuotaFiles:     r.whole("runner.quota.files"),
	}
	for _, line := range v.GetStringSlice("token.keys") {
		c.TokenKeys = append(c.TokenKeys, store.NewSecret(line))
	}
	if r.err != nil {
		return Config{}, r.err
	}
	for _, key := range reserved {
		if v.GetString(key) != fmt.Sprint(keys()[key]) {
			c.Reserved = append(c.Reserved, key)
		}
	}
	for _, path := range []*string{&c.Data, &c.RunnerClaudePath, &c.AgentHome} {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(base, *path)
		}
	}
	file, isFile := strings.CutPrefix(c.StoreURL, "sqlite:")
	switch {
	case c.StoreURL == "":
		c.StoreURL = "sqlite:" + filepath.Join(c.Data, "pilder.db")
	case isFile && !filepath.IsAbs(file):
		c.StoreURL = "sqlite:" + filepath.Join(base, file)
	}
	if c.GatewayPublicURL == "" {
		c.GatewayPublicURL = "http://" + c.GatewayListen
	}
	c.GatewayPublicURL = asBrowsersSay(c.GatewayPublicURL)
	if len(c.ModelAllowed) == 0 {
		c.ModelAllowed = familyOf(c.ModelName)
	}
	return c, c.check()
}

func (c Config) check() error {
	switch token := c.TelegramToken; {
	case !token.IsZero() && !tokenShape.MatchString(token.Reveal()):
		return errors.New("telegram.token does not look like a token of BotFather (digits, a colon, letters)")
	case c.RunnerMaxRuns < 1 || c.RunnerMaxRuns > 1000:
		return fmt.Errorf("runner.max_runs must be 1 to 1000, not %d", c.RunnerMaxRuns)
	case c.RunnerRunTimeout < 10*time.Second || c.RunnerRunTimeout > 50*time.Minute:
		return fmt.Errorf("runner.run_timeout must be 10s to 50m, not %s", c.RunnerRunTimeout)
	case c.SandboxMemory < 256<<20 || c.SandboxMemory > 1<<40:
		return errors.New("sandbox.memory must be 256MiB to 1024GiB, written like 500MiB or 2GiB")
	case c.RunnerQuotaBytes < 16<<20 || c.RunnerQuotaBytes > 1<<40:
		return errors.New("runner.quota.bytes must be 16MiB to 1024GiB, written like 500MiB or 2GiB")
	case c.RunnerQuotaFiles < 1000 || c.RunnerQuotaFiles > 1_000_000:
		return fmt.Errorf("runner.quota.files must be 1000 to 1000000, not %d", c.RunnerQuotaFiles)
	case c.ModelMaxTokens < 1:
		return fmt.Errorf("model.max_tokens must be at least 1, not %d", c.ModelMaxTokens)
	case c.RunnerBudgetTokens < 0:
		return fmt.Errorf("runner.budget.tokens must not be negative (0: no bound), not %d", c.RunnerBudgetTokens)
	case !(c.RunnerBudgetUSD >= 0):
		return fmt.Errorf("runner.budget.usd must not be negative (0: no bound), not %g", c.RunnerBudgetUSD)
	case c.RunnerMemory != 0 && c.RunnerMemory < 1<<30:
		return errors.New("runner.memory must be 1GiB at least, written like 6GiB, or empty")
	case c.RunnerWarmMax < 0 || c.RunnerWarmMax > 1000:
		return fmt.Errorf("runner.warm.max must be 0 to 1000, not %d", c.RunnerWarmMax)
	case c.RunnerWarmIdle < time.Second || c.RunnerWarmIdle > 45*time.Minute:
		return fmt.Errorf("runner.warm.idle must be 1s to 45m, not %s", c.RunnerWarmIdle)
	case !slices.Contains([]string{"bwrap", "none"}, c.SandboxMode):
		return fmt.Errorf("sandbox.mode must be bwrap or none, not %q", c.SandboxMode)
	case !slices.Contains([]string{"A", "B", "C"}, c.SandboxRequire):
		return fmt.Errorf("sandbox.require must be A, B or C, not %q", c.SandboxRequire)
	case !slices.Contains([]string{"debug", "info", "warn", "error"}, c.LogLevel):
		return fmt.Errorf("log.level must be debug, info, warn or error, not %q", c.LogLevel)
	case !slices.Contains([]string{"json", "text"}, c.LogFormat):
		return fmt.Errorf("log.format must be json or text, not %q", c.LogFormat)
	case !strings.HasPrefix(c.StoreURL, "sqlite:") && !strings.HasPrefix(c.StoreURL, "postgres://") && !strings.HasPrefix(c.StoreURL, "postgresql://"):
		return errors.New("store.url must be sqlite:PATH or postgres://…")
	case c.PipedreamProject != "" && !projectShape.MatchString(c.PipedreamProject):
		return errors.New("pipedream.project_id must look like proj_…")
	case c.PipedreamProject != "" && c.PipedreamEnvironment != "development" && c.PipedreamEnvironment != "production":
		return errors.New("pipedream.environment must be development or production: the two share nothing")
	}
	if _, _, err := net.SplitHostPort(c.GatewayListen); err != nil {
		return fmt.Errorf("gateway.listen must be host:port: %w", err)
	}
	for _, u := range [][2]string{{"telegram.api_url", c.TelegramAPIURL}, {"model.url", c.ModelURL},
		{"pipedream.url", c.PipedreamURL}, {"gateway.public_url", c.GatewayPublicURL}} {
		if err := checkURL(u[0], u[1]); err != nil {
			return err
		}
	}
	if err := egress.CheckNames(c.WebAllow); err != nil {
		return fmt.Errorf("web.allow: %w", err)
	}
	_, err := tokenKeys(c.TokenKeys)
	return err
}

// checkURL wants https, except on this machine: tokens and keys travel there.
func checkURL(key, address string) error {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil {
		return fmt.Errorf("%s is not an address", key)
	}
	ip := net.ParseIP(u.Hostname())
	local := u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
	if u.Scheme != "https" && !(u.Scheme == "http" && local) {
		return fmt.Errorf("%s must be https (http only on this machine)", key)
	}
	return nil
}

// unknownKey names the known key nearest to a misspelt one.
func unknownKey(key string, known map[string]any) error {
	plain := func(s string) string { return strings.ReplaceAll(s, "_", ".") }
	best, least := "", 1<<30
	for candidate := range known {
		d := distance(plain(key), plain(candidate))
		if d < least || d == least && candidate < best {
			best, least = candidate, d
		}
	}
	return fmt.Errorf("unknown configuration key %q; did you mean %q?", key, best)
}

// distance is Levenshtein's, in bytes: keys are ASCII.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		last := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(row[j]+1, row[j+1]+1, last+cost)
			last, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
