package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"pilder/policy"
	"pilder/sim/anthropic"
	"pilder/sim/pipedream"
	"pilder/sim/telegram"
	"pilder/store"
)

// demoZone is where the demo's company works.
const demoZone = "America/Argentina/Buenos_Aires"

// demoPerson is somebody one can be in the demo.
type demoPerson struct {
	as   string // value of --as
	id   int64
	name string
	role policy.Role
	apps []string
}

// demoPeople are the people of the demo. The approver makes a hold a hold: a sole admin would be asked themselves.
func demoPeople() []demoPerson {
	return []demoPerson{
		{"admin", 1001, "Ana", policy.RoleAdmin, []string{"google_calendar", "calendly_v2", "gmail", "notion"}},
		{"approver", 1002, "Bruno", policy.RoleApprover, nil},
		{"member", 1003, "Marta", policy.RoleMember, []string{"gmail"}},
		{"newcomer", 1004, "Nico", policy.RoleMember, nil},
		{"stranger", 1005, "Eva", policy.RoleNone, nil},
	}
}

func demoChatPeople() []telegram.Person {
	var all []telegram.Person
	for _, p := range demoPeople() {
		all = append(all, telegram.Person{ID: p.id, Name: p.name, Language: "es"})
	}
	return all
}

func demoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "the whole system without accounts: the real CLI in the real sandbox, stand-ins for the rest",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runDemo(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&o.say, "say", "", "say one thing, print the answer and end")
	cmd.Flags().StringVar(&o.as, "as", "admin", "who says it: admin, approver, member, newcomer or stranger")
	cmd.Flags().BoolVar(&o.json, "json", false, "print the answer as JSON")
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:8090", "address of the chat page")
	cmd.Flags().StringVar(&o.publish, "publish", "", "write the stand-ins' addresses and the data folder into this file (JSON), for tests")
	cmd.Flags().StringVar(&o.record, "record", "", "with --say: write what the stand-ins saw into this folder (ledger.txt, model.txt, chat-ID.txt)")
	cmd.Flags().DurationVar(&o.patience, "patience", 3*time.Minute, "how long --say waits for the answer")
	return cmd
}

type demoOptions struct {
	say, as  string
	json     bool
	listen   string
	publish  string
	record   string
	patience time.Duration
}

// demo is a running demonstration.
type demo struct {
	house     *house
	telegram  *telegram.Server
	anthropic *anthropic.Server
	pipedream *pipedream.Server
	chat      string // address of the chat page
}

func runDemo(ctx context.Context, o demoOptions, out, errs io.Writer) error {
	who := slices.IndexFunc(demoPeople(), func(p demoPerson) bool { return p.as == o.as })
	if who < 0 {
		return &codedError{exitUsage, fmt.Errorf("--as must be admin, approver, member, newcomer or stranger, not %q", o.as)}
	}
	folder, err := os.MkdirTemp("", "pilder-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	level := zerolog.InfoLevel
	if o.say != "" {
		o.listen, level = "127.0.0.1:0", zerolog.ErrorLevel
	}
	log := zerolog.New(errs).Level(level).With().Timestamp().Logger()

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	d, err := startDemo(ctx, group, folder, o, log)
	if err != nil {
		stop()
		return errors.Join(err, ignoreCancel(group.Wait()))
	}
	if o.say != "" {
		err = d.say(ctx, demoPeople()[who], o, out)
		stop()
		return errors.Join(err, ignoreCancel(group.Wait()))
	}
	fmt.Fprintf(out, "\n  pilder demo: open %s and write, for instance: guardame una reunión mañana a las 10\n  (Ctrl-C ends it; nothing is kept)\n\n", d.chat)
	return ignoreCancel(group.Wait())
}

// startDemo puts the stand-ins on loopback, builds the house on them and seeds the demo's company.
func startDemo(ctx context.Context, group *errgroup.Group, folder string, o demoOptions, log zerolog.Logger) (*demo, error) {
	d := &demo{
		telegram:  telegram.New(telegram.Config{People: demoChatPeople()}),
		anthropic: anthropic.New(anthropic.Config{}),
	}
	botURL, err := serveStandIn(ctx, group, o.listen, d.telegram.Handler())
	if err != nil {
		return nil, fmt.Errorf("the chat page's address is taken (try --listen 127.0.0.1:0): %w", err)
	}
	modelURL, err := serveStandIn(ctx, group, "127.0.0.1:0", d.anthropic.Handler())
	if err != nil {
		return nil, err
	}
	var appsURL string
	zone, err := time.LoadLocation(demoZone)
	if err != nil {
		return nil, err
	}
	d.pipedream = pipedream.New(pipedream.Config{
		PublicURL: func() string { return appsURL },
		Now:       func() time.Time { return time.Now().In(zone) }, // its calendars begin with meetings at office hours there
	})
	if appsURL, err = serveStandIn(ctx, group, "127.0.0.1:0", d.pipedream.Handler()); err != nil {
		return nil, err
	}
	public, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.chat = botURL + "/"
	cfg, err := demoConfig(folder, botURL, modelURL, appsURL, public.Addr().String())
	if err != nil {
		return nil, err
	}
	if d.house, err = buildHouse(ctx, cfg, log, houseOptions{public: public}); err != nil {
		return nil, err
	}
	if err := seedDemo(ctx, d.house.store, d.pipedream); err != nil {
		return nil, errors.Join(err, d.house.Close())
	}
	if o.publish != "" {
		if err := publish(o.publish, map[string]string{"telegram": botURL, "anthropic": modelURL, "pipedream": appsURL, "data": folder}); err != nil {
			return nil, errors.Join(err, d.house.Close())
		}
	}
	group.Go(func() error { return d.house.Run(ctx) })
	return d, nil
}

func demoConfig(folder, botURL, modelURL, appsURL, public string) (Config, error) {
	return LoadConfig(os.DevNull, append(demoEnviron(folder, botURL, modelURL, appsURL, public),
		"PILDER_RUNNER_CLAUDE_PATH="+os.Getenv("PILDER_RUNNER_CLAUDE_PATH")))
}

// demoEnviron points a configuration at the stand-ins.
func demoEnviron(folder, botURL, modelURL, appsURL, public string) []string {
	return []string{
		"PILDER_DATA=" + folder,
		"PILDER_TELEGRAM_TOKEN=" + telegram.DefaultToken,
		"PILDER_TELEGRAM_API_URL=" + botURL,
		"PILDER_MODEL_URL=" + modelURL,
		"PILDER_MODEL_KEY=sim-key",
		"PILDER_PIPEDREAM_URL=" + appsURL,
		"PILDER_PIPEDREAM_CLIENT_ID=sim-client",
		"PILDER_PIPEDREAM_CLIENT_SECRET=sim-secret",
		"PILDER_PIPEDREAM_PROJECT_ID=proj_test1",
		"PILDER_PIPEDREAM_ENVIRONMENT=development",
		"PILDER_GATEWAY_LISTEN=" + public,
	}
}

// serveStandIn serves a stand-in on a loopback address until ctx ends and gives its base URL.
func serveStandIn(ctx context.Context, group *errgroup.Group, listen string, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	group.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return "http://" + l.Addr().String(), nil
}

// seedDemo makes the demo's company, its people and their connected apps.
func seedDemo(ctx context.Context, s *store.Store, apps *pipedream.Server) error {
	company, err := s.CreateCompany(ctx, store.Company{
		Name: "Empresa", Domains: []string{"empresa.com"}, Zone: demoZone, Lang: "es",
	})
	if err != nil {
		return err
	}
	for _, p := range demoPeople() {
		if p.role == policy.RoleNone {
			continue
		}
		m, err := s.AddMember(ctx, company.ID, store.Person{Telegram: p.id, Name: p.name, Lang: "es"}, p.role)
		if err != nil {
			return err
		}
		for _, app := range p.apps {
			name := strings.ToLower(p.name) + "@empresa.com"
			if _, err := s.SeedAccount(ctx, m, app, apps.AddAccount(m.ExternalUser, app, name), name); err != nil {
				return err
			}
		}
	}
	return nil
}

// said is what --say prints as JSON.
type said struct {
	Run     string           `json:"run"`
	State   string           `json:"state"`
	Replies []string         `json:"replies"`
	Calls   []saidCall       `json:"calls"`
	Timings map[string]int64 `json:"timings_ms"`
}

type saidCall struct {
	Tool     string `json:"tool"`
	Decision string `json:"decision"`
	Outcome  string `json:"outcome"`
}

// say sends one message and waits until it has a fate and all that was said to the person has gone out.
func (d *demo) say(ctx context.Context, who demoPerson, o demoOptions, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	began := time.Now()
	sent := d.telegram.Say(who.id, o.say)
	fate, err := d.fate(ctx, who.id)
	if err != nil {
		return fmt.Errorf("no answer: %w", err)
	}
	result := said{Run: string(fate.Run), State: string(fate.Fate), Replies: []string{}, Calls: []saidCall{}, Timings: map[string]int64{}}
	if fate.Run != "" {
		run, err := d.house.store.RunByID(ctx, fate.Run)
		if err != nil {
			return err
		}
		result.State = string(run.State)
		for _, c := range run.Calls {
			result.Calls = append(result.Calls, saidCall{c.Tool, c.Decision.String(), string(c.Outcome)})
		}
		result.Timings = timings(run.Stages)
	}
	result.Timings["total"] = time.Since(began).Milliseconds()
	for _, m := range d.telegram.Transcript(who.id) {
		if m.ID > sent && m.From != who.id {
			result.Replies = append(result.Replies, plain(m))
		}
	}
	if err := printSaid(out, result, o.json); err != nil {
		return err
	}
	if o.record != "" {
		if err := d.record(o.record); err != nil {
			return err
		}
	}
	answered := []string{string(store.RunSucceeded), string(store.FateDone), string(store.FateRefused)}
	if !slices.Contains(answered, result.State) || len(result.Replies) == 0 {
		return fmt.Errorf("not answered: %s", result.State)
	}
	return nil
}

// record writes what the outside saw: the actions performed, the model's requests, and each chat as its person sees it.
func (d *demo) record(folder string) error {
	files := map[string]*strings.Builder{"ledger.txt": {}, "model.txt": {}}
	for _, p := range d.pipedream.Ledger() {
		props, err := json.Marshal(p.Props)
		if err != nil {
			return err
		}
		fmt.Fprintf(files["ledger.txt"], "%s %s\n", p.Key, props)
	}
	for _, r := range d.anthropic.Requests() {
		fmt.Fprintf(files["model.txt"], "%s %s\n", r.Path, r.Body)
	}
	for _, p := range demoPeople() {
		chat := &strings.Builder{}
		for _, m := range d.telegram.Transcript(p.id) {
			fmt.Fprintln(chat, plain(m))
		}
		files[fmt.Sprintf("chat-%d.txt", p.id)] = chat
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, body := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(body.String()), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// fate waits for the end of the person's newest message and of what was said because of it.
func (d *demo) fate(ctx context.Context, chat int64) (store.MessageFate, error) {
	s, bot := d.house.store, d.house.botID()
	over := []store.Fate{store.FateAnswered, store.FateFailed, store.FateCancelled, store.FateRefused, store.FateDone, store.FateIgnored, store.FateBroken}
	for {
		wake := s.Wake()
		fates, err := s.MessageFates(ctx, bot, chat, 1)
		if err != nil {
			return store.MessageFate{}, err
		}
		if len(fates) == 1 && slices.Contains(over, fates[0].Fate) {
			waiting, err := s.OutboxWaiting(ctx, bot, chat)
			if err != nil {
				return store.MessageFate{}, err
			}
			if waiting == 0 {
				return fates[0], nil
			}
		}
		select {
		case <-ctx.Done():
			return store.MessageFate{}, ctx.Err()
		case <-wake:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func timings(s store.Stages) map[string]int64 {
	return map[string]int64{"queue": s.Queue, "spawn": s.Spawn, "first_token": s.FirstToken, "tools": s.Tools, "delivery": s.Delivery, "run": s.Total}
}

// plain is a message as text, with its buttons.
func plain(m telegram.Message) string {
	var b strings.Builder
	b.WriteString(m.Text)
	for _, row := range m.Buttons {
		for _, button := range row {
			if button.URL != "" {
				fmt.Fprintf(&b, "\n[%s](%s)", button.Text, button.URL)
			} else {
				fmt.Fprintf(&b, "\n[%s]", button.Text)
			}
		}
	}
	return b.String()
}

func printSaid(out io.Writer, r said, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		return enc.Encode(r)
	}
	_, err := fmt.Fprintln(out, strings.Join(r.Replies, "\n\n"))
	return err
}

// publish writes a file in one step, so that a reader never sees half of it.
func publish(file string, v map[string]string) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	fresh := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	if err := os.WriteFile(fresh, body, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

func ignoreCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
