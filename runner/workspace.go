package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"pilder/store"
)

// workspaces is the folder of this process's runs: data/runs/<random>, whose lock file tells others that it is in use.
type workspaces struct {
	data string
	dir  string
	lock *os.File
}

const lockName = "lock"

// openWorkspaces makes the folder and removes those of processes that are no more.
func openWorkspaces(data string) (*workspaces, error) {
	runs := filepath.Join(data, "runs")
	if err := os.MkdirAll(runs, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of workspaces: %w", err)
	}
	if err := sweep(runs); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(runs, "")
	if err != nil {
		return nil, fmt.Errorf("making the folder of workspaces: %w", err)
	}
	lock, ours, err := tryLock(dir)
	if err == nil && !ours {
		err = errors.New("somebody else has locked it")
	}
	if err != nil {
		return nil, fmt.Errorf("locking the folder of workspaces: %w", err)
	}
	return &workspaces{data: data, dir: dir, lock: lock}, nil
}

// sweep removes what was left by processes that died. One that has just made its folder and not locked it yet makes it
// anew: its first workspace would fail, and with it one run.
func sweep(runs string) error {
	all, err := os.ReadDir(runs)
	if err != nil {
		return fmt.Errorf("sweeping workspaces: %w", err)
	}
	for _, e := range all {
		dir := filepath.Join(runs, e.Name())
		lock, ours, err := tryLock(dir)
		if err != nil {
			return fmt.Errorf("sweeping workspaces: %w", err)
		}
		if !ours {
			continue
		}
		if err := errors.Join(os.RemoveAll(dir), lock.Close()); err != nil {
			return fmt.Errorf("sweeping workspaces: %w", err)
		}
	}
	return nil
}

// tryLock takes a folder's lock; ours is false when a living process has it. The kernel lets go of it with the process.
func tryLock(dir string) (f *os.File, ours bool, err error) {
	f, err = os.OpenFile(filepath.Join(dir, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, f.Close()
	}
	if err != nil {
		return nil, false, errors.Join(err, f.Close())
	}
	return f, true, nil
}

func (w *workspaces) close() {
	_ = os.RemoveAll(w.dir) // what stays is swept at the next start
	_ = w.lock.Close()
}

// workspace is where one process of a run finds its folders on the host.
type workspace struct {
	run         string // the run's own, gone with it
	work, state string // the conversation's, which stay
}

// open makes a process's folders.
func (w *workspaces) open(run store.Run) (workspace, error) {
	conversation := filepath.Join(w.data, "conversations", filepath.Base(string(run.Conversation)))
	ws := workspace{work: filepath.Join(conversation, "work"), state: filepath.Join(conversation, "state")}
	for _, dir := range []string{ws.work, ws.state} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return ws, fmt.Errorf("making the conversation's folders: %w", err)
		}
	}
	var err error
	if ws.run, err = os.MkdirTemp(w.dir, ""); err != nil {
		return ws, fmt.Errorf("making the workspace: %w", err)
	}
	return ws, nil
}

func (ws workspace) remove() error {
	if ws.run == "" {
		return nil
	}
	return os.RemoveAll(ws.run)
}

// mcpConfigName is the file by which the CLI finds its one server.
const mcpConfigName = "mcp-config.json"

// toolTimeout is the CLI's limit for one call of a tool, milliseconds. It is a hard wall clock (CLI 2.1.332, measured).
const toolTimeout = 90000

// mcpServerEntry is how the CLI is told of a server, in a file or over its control channel.
type mcpServerEntry struct {
	Type    string            `json:"type"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Timeout int               `json:"timeout"`
}

// servers names exactly one server, however many apps a person has.
func servers(token store.Secret) map[string]mcpServerEntry {
	return map[string]mcpServerEntry{serverName: {
		Type: "http", URL: fmt.Sprintf("http://127.0.0.1:%d/mcp", portTools),
		Headers: map[string]string{"Authorization": "Bearer " + token.Reveal()}, Timeout: toolTimeout,
	}}
}

// writeMCPConfig writes the one file that holds the run token. A process that takes further turns gets their tokens over
// its control channel.
func (ws workspace) writeMCPConfig(token store.Secret) error {
	text, err := json.Marshal(map[string]map[string]mcpServerEntry{"mcpServers": servers(token)})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(ws.run, mcpConfigName), text, 0o600); err != nil {
		return fmt.Errorf("writing the workspace: %w", err)
	}
	return nil
}
