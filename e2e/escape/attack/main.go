//go:build linux

// Command attack is what a hostile agent would run: it makes the attempts of the escape tests, each under the number it has
// there, and tells of every try whether it reached its goal. It does no harm where it succeeds, because the same attempts
// are also made outside the sandbox, where they must succeed: whatever it gets hold of it only shows.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
)

// targets is what there is to be reached. The first argument is a file of it, in JSON: what stands in an argument can be read
// by everybody.
type targets struct {
	Host bool // outside the sandbox: tries that would change the machine or leave it are left out

	Canaries  []string // files that nobody inside may read
	Protected []string // files and folders that nobody inside may write, move or remove
	Variables []string // names of variables that nobody inside may see the values of
	Path      string   // the data folder, which no command line inside names
	PID       int      // a process of the host
	Mark      string   // what stands in the command line of processes that outlive their starter
	Pipe      int      // a process of the host that writes to a pipe
	TCP, UDP  []string // listeners of the host that answer
	DNS       string   // a name server of the host
	Unix      []string // sockets of the host by path
	Abstract  []string // and by abstract name
	Far       []string // addresses beyond the host
	Doors     []string // the run's own doors
	Meeting   string   // a name under which another sandbox leaves things to be found
	Setuid    string   // a copy of this program that is setuid root
	Capable   string   // one with file capabilities
	Names     []string // what nothing in the machine's own files may say
	Hostname  string   // of the host
}

// tried is one line of the answer.
type tried struct {
	T       string `json:"t"`
	Try     string `json:"try"`
	Reached bool   `json:"reached"`
	Got     string `json:"got,omitempty"`
}

type attacker struct {
	targets
	t   string // the attempt being made
	out *json.Encoder
}

func attempts() map[string]func(*attacker) {
	return map[string]func(*attacker){
		"T01": (*attacker).readFiles, "T02": (*attacker).linkFiles, "T03": (*attacker).readProcesses, "T04": (*attacker).inherited,
		"T05": (*attacker).signalHost, "T06": (*attacker).namespaces, "T07": (*attacker).mounts, "T08": (*attacker).write,
		"T09": (*attacker).trace, "T10": (*attacker).meet, "T11": (*attacker).subsystems, "T12": (*attacker).terminal,
		"T13": (*attacker).network, "T14": (*attacker).names, "T15": (*attacker).families, "T16": (*attacker).sockets,
		"T17": (*attacker).doors, "T24": (*attacker).webDoor, "T25": (*attacker).exhaust, "T26": (*attacker).memory,
		"T27": (*attacker).disk, "T30": (*attacker).forge, "T37": (*attacker).outbox,
		"T38": (*attacker).inbox, "T41": (*attacker).machine,
		"T42": (*attacker).privileges, "T43": (*attacker).core, "T44": (*attacker).loaders, "T45": (*attacker).oldCalls,
		"T47": (*attacker).environment,
	}
}

// main runs the attempts named behind the targets, or one of the parts that attempts start as processes of their own.
func main() {
	descriptors := inheritedDescriptors() // before anything here opens one
	if len(os.Args) > 2 && os.Args[1] == "as" {
		os.Exit(part(os.Args[2], os.Args[3:]))
	}
	a := &attacker{out: json.NewEncoder(os.Stdout)}
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = json.Unmarshal(text, &a.targets)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(2)
	}
	for _, a.t = range os.Args[2:] {
		if a.t == "T04" {
			a.descriptors(descriptors)
			continue
		}
		a.make(attempts()[a.t])
	}
}

// make runs one attempt; one that breaks must not take the others along, and counts as one that was not made.
func (a *attacker) make(attempt func(*attacker)) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintln(os.Stderr, "attack:", a.t, r)
		}
	}()
	attempt(a)
}

// tell reports a try. got is shown to whoever looks for canaries, so what was read belongs into it.
func (a *attacker) tell(try string, reached bool, got string) {
	if len(got) > 400 {
		got = got[:400]
	}
	_ = a.out.Encode(tried{a.t, try, reached, strings.ToValidUTF8(got, "?")}) // nobody to tell
}

// result reports a try that reaches its goal unless it fails.
func (a *attacker) result(try string, err error) {
	if err == nil || errors.Is(err, syscall.Errno(0)) {
		a.tell(try, true, "done")
		return
	}
	a.tell(try, false, word(err))
}

// word is the errno's own name where there is one.
func word(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return err.Error()
}

// part is this program as a process that an attempt starts.
func part(name string, args []string) int {
	switch name {
	case "sleeper":
		return sleeper()
	case "victim":
		return victim()
	case "offer":
		return offer(args[0])
	case "dial":
		return dial(args[0])
	case "peek":
		return peek(args)
	case "whoami":
		return whoami()
	case "daemon":
		return daemon(args)
	case "fill":
		return fillFolder()
	case "swap":
		return swap(args[0])
	case "linger":
		return linger(args)
	case "tty":
		return pushBack()
	case "oldcall":
		return oldCall(args[0])
	case "spin":
		return spin()
	case "threads":
		return threads()
	}
	return 2
}

// run starts a program without input and gives what it said and its end.
func run(argv ...string) (string, error) { return runWith(nil, argv...) }

func runWith(attr *syscall.SysProcAttr, argv ...string) (string, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer r.Close()
	p, err := os.StartProcess(argv[0], argv, &os.ProcAttr{Files: []*os.File{nil, w, w}, Sys: attr})
	_ = w.Close()
	if err != nil {
		return "", err
	}
	said := make([]byte, 0, 4096)
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		if said = append(said, buf[:n]...); err != nil {
			break
		}
	}
	st, err := p.Wait()
	if err == nil && !st.Success() {
		err = errors.New(st.String())
	}
	return strings.TrimSpace(string(said)), err
}

// self is this program's path, for copies of it.
func self() string {
	path, err := os.Executable()
	if err != nil {
		return "/proc/self/exe"
	}
	return path
}
