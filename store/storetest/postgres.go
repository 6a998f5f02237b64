package storetest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// serverPrefix begins the name of every server's folder, by which later test binaries find and remove dead ones.
const serverPrefix = "pilder-pg-"

// remedy is what a test says when no PostgreSQL can be started.
const remedy = "PostgreSQL's initdb was not found. Install the server (Debian: apt-get install postgresql-15), or set " +
	"PILDER_PG_BIN to the folder of initdb and postgres, or PILDER_TEST_PG_URL to a server on which databases may be made"

// server is one running PostgreSQL. The first test that needs it starts it, and it dies with the test binary: nobody else
// knows when the last test is over.
type server struct {
	base     *url.URL // of a database to connect to for making others
	template string   // empty: databases are made empty and migrate at their first Open
	mu       sync.Mutex
	made     int
	lock     *os.File // held open: who gets it knows that the folder is nobody's
}

var theServer = sync.OnceValues(startServer)

func freshPostgres(t *testing.T) string {
	t.Helper()
	s, err := theServer()
	if err != nil {
		t.Fatal(err)
	}
	u, drop, err := s.database(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			return // left to be looked at for as long as the server lives
		}
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return u
}

// database makes a database and gives what drops it.
func (s *server) database(ctx context.Context) (string, func() error, error) {
	s.mu.Lock() // CREATE DATABASE wants its template for itself
	defer s.mu.Unlock()
	s.made++
	name := fmt.Sprintf("pilder_test_%d_%d", os.Getpid(), s.made)
	q := "CREATE DATABASE " + name
	if s.template != "" {
		q += " TEMPLATE " + s.template + " STRATEGY file_copy"
	}
	if err := s.exec(ctx, q); err != nil {
		return "", nil, err
	}
	u := *s.base
	u.Path = "/" + name
	drop := func() error { return s.exec(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") }
	return u.String(), drop, nil
}

func (s *server) exec(ctx context.Context, queries ...string) error {
	conn, err := pgx.Connect(ctx, s.base.String())
	if err != nil {
		return fmt.Errorf("connecting to the test server: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, q := range queries {
		if _, err := conn.Exec(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

func startServer() (*server, error) {
	if text := os.Getenv("PILDER_TEST_PG_URL"); text != "" {
		u, err := url.Parse(text)
		if err != nil {
			return nil, errors.New("PILDER_TEST_PG_URL is no URL")
		}
		return &server{base: u}, nil
	}
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	dir, lock, cred, err := serverFolder()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	if out, err := command(dir, cred, filepath.Join(bin, "initdb"), "-D", data, "-U", "pilder", "-A", "trust", "--no-sync",
		"--locale=C.UTF-8", "--encoding=UTF8").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	var said bytes.Buffer
	// One server per test binary and no TCP: a socket in a folder of its own meets nobody. What crashes is thrown away,
	// so nothing is synced; timings of commits mean nothing here. Shared memory lies in the folder too, and goes with it.
	cmd := command(dir, cred, filepath.Join(bin, "postgres"), "-D", data, "-k", dir, "-c", "listen_addresses=",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "synchronous_commit=off", "-c", "autovacuum=off",
		"-c", "dynamic_shared_memory_type=mmap", "-c", "wal_level=minimal", "-c", "max_wal_senders=0", "-c", "max_connections=300", "-c", "log_min_messages=fatal")
	cmd.Stdout, cmd.Stderr = &said, &said
	ended, err := startWithParent(cmd)
	if err != nil {
		return nil, err
	}
	s := &server{lock: lock, base: &url.URL{Scheme: "postgres", User: url.User("pilder"), Path: "/postgres",
		RawQuery: url.Values{"host": {dir}, "sslmode": {"disable"}}.Encode()}}
	if err := s.awaitStart(ended, &said); err != nil {
		return nil, err
	}
	return s, s.makeTemplate()
}

func (s *server) awaitStart(ended <-chan error, said *bytes.Buffer) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		err := s.exec(ctx, "SELECT 1")
		if err == nil {
			return nil
		}
		select {
		case exit := <-ended:
			return fmt.Errorf("the test server ended at once: %w: %s", exit, said)
		case <-ctx.Done():
			return fmt.Errorf("the test server does not answer: %w", err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *server) makeTemplate() error {
	const name = "pilder_template"
	if err := s.exec(context.Background(), "CREATE DATABASE "+name); err != nil {
		return err
	}
	u := *s.base
	u.Path = "/" + name
	if err := template(u.String()); err != nil {
		return err
	}
	s.template = name
	return s.exec(context.Background(), "ALTER DATABASE "+name+" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false")
}

// startWithParent starts cmd so that it dies with this process, however that ends. The kernel's parent is the thread, so
// the starting goroutine keeps its thread until the child is gone.
func startWithParent(cmd *exec.Cmd) (ended <-chan error, err error) {
	cmd.SysProcAttr.Pdeathsig = syscall.SIGQUIT // PostgreSQL's immediate shutdown
	started, done := make(chan error), make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting the test server: %w", err)
	}
	return done, nil
}

func command(dir string, cred *syscall.Credential, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "HOME=" + dir, "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	return cmd
}

func findBinaries() (string, error) {
	if dir := os.Getenv("PILDER_PG_BIN"); dir != "" {
		return dir, nil
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New(remedy)
	}
	return filepath.Dir(found[len(found)-1]), nil
}

// serverFolder makes the server's folder, in memory where there is some, and says as whom to run: PostgreSQL refuses to
// run as root. The name is short because a socket's path may have 107 bytes only, which t.TempDir() can exceed.
func serverFolder() (dir string, lock *os.File, cred *syscall.Credential, err error) {
	root := "/dev/shm"
	if err := syscall.Access(root, 2); err != nil {
		root = "/tmp"
	}
	removeStale(root)
	dir = filepath.Join(root, serverPrefix+strings.ToLower(rand.Text()[:8]))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", nil, nil, err
	}
	lock, err = os.Create(dir + ".lock")
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil || os.Geteuid() != 0 {
		return dir, lock, nil, err
	}
	if cred, err = unprivileged(); err != nil {
		return "", nil, nil, err
	}
	return dir, lock, cred, os.Chown(dir, int(cred.Uid), int(cred.Gid))
}

func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("neither postgres nor nobody is a user here, and PostgreSQL does not run as root")
}

// removeStale removes folders of servers whose test binary is dead. One just being made has no lock yet, so young ones
// are left alone.
func removeStale(root string) {
	dirs, _ := filepath.Glob(filepath.Join(root, serverPrefix+"????????"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		lock, err := os.OpenFile(dir+".lock", os.O_RDWR, 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			// Best effort: what stays is tried again by the next.
			_ = os.RemoveAll(dir)
			_ = os.Remove(dir + ".lock")
		}
		lock.Close()
	}
}
