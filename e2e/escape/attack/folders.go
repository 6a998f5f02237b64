//go:build linux

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes of what fillFolder leaves behind: more than the test allows, less than would be a burden.
const (
	fillBytes = 96 << 20
	fillFiles = 3000
	fillDepth = 400
)

// disk (T27) makes a file that is larger than any disk.
func (a *attacker) disk() {
	f, err := os.OpenFile("sparse", os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Truncate(1 << 40)
		_ = f.Close()
	}
	_ = os.Remove("sparse")
	a.result("a file of a terabyte with nothing in it", err)
}

// fillFolder fills the folder it stands in, in ways that are hard to count and to clean up, and tells what it could make.
func fillFolder() int {
	f, err := os.OpenFile("fill", os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = unix.Fallocate(int(f.Fd()), 0, 0, fillBytes)
		_ = f.Close()
	}
	fmt.Println("bytes:", err)
	err = os.MkdirAll("many", 0o700)
	for i := 0; i < fillFiles && err == nil; i++ {
		err = os.WriteFile("many/"+strconv.Itoa(i), nil, 0o600)
	}
	fmt.Println("files:", err)
	err = os.MkdirAll("names", 0o700)
	for _, name := range []string{"new\nline", "\x1b[31mred", "-rf", "bad\xff", strings.Repeat("x", 255), " ", "*", "$(id)", "`id`", "a;b"} {
		if err == nil {
			err = os.WriteFile(filepath.Join("names", name), []byte("x"), 0o600)
		}
	}
	fmt.Println("names:", err)
	fmt.Println("depth:", deep())
	err = os.MkdirAll("closed/within", 0o700)
	if err == nil {
		err = os.Chmod("closed", 0)
	}
	fmt.Println("closed:", err)
	return 0
}

// deep makes folders in one another, more than a path can name.
func deep() error {
	at, err := unix.Open(".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < fillDepth && err == nil; i++ {
		if err = unix.Mkdirat(at, "deeper-and-deeper", 0o700); err != nil {
			break
		}
		var next int
		next, err = unix.Openat(at, "deeper-and-deeper", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		_ = unix.Close(at)
		at = next
	}
	if err == nil {
		_ = unix.Close(at)
	}
	return err
}

// made reports a preparation: it reaches nothing by itself, the host does when it falls for it. One that failed is no escape
// either, and is seen in the log.
func (a *attacker) made(what string, err error) {
	got := "made"
	if err != nil {
		got = word(err)
	}
	a.tell("making "+what, false, got)
}

// outbox (T37) lays into the outbox what must not be picked up, and one file that may.
func (a *attacker) outbox() {
	const box = "outbox"
	if err := os.MkdirAll(box, 0o700); err != nil {
		a.made("the outbox", err)
		return
	}
	in := func(name string) string { return filepath.Join(box, name) }
	for i, path := range append([]string{"/proc/self/environ", "/etc/passwd", "/proc/self/mem", "../../../../../../etc/shadow"}, a.Canaries...) {
		a.made("a link to "+path, os.Symlink(path, in(fmt.Sprintf("link-%d.txt", i))))
	}
	a.made("a chain of links", os.Symlink("link-4.txt", in("chain.txt")))
	a.made("a link to a folder", os.Symlink(filepath.Dir(a.Canaries[0]), in("folder")))
	a.made("a FIFO", unix.Mkfifo(in("pipe.txt"), 0o600))
	a.made("a device", unix.Mknod(in("device.txt"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 9))))
	l, err := net.Listen("unix", in("socket.txt"))
	if err == nil {
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		_ = l.Close()
	}
	a.made("a socket", err)
	a.made("a file with two names", os.WriteFile(in("twice.txt"), []byte("plain"), 0o600))
	a.made("its second name", os.Link(in("twice.txt"), "second-name"))
	a.made("a folder with a file", os.MkdirAll(in("inner"), 0o700))
	a.made("a file in it", os.WriteFile(in("inner/file.txt"), []byte("inner"), 0o600))
	f, err := os.OpenFile(in("large.bin"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		err = f.Truncate(900 << 20)
		_ = f.Close()
	}
	a.made("a large file with nothing in it", err)
	a.made("a name of two lines", os.WriteFile(in("two\nlines\x1b[2J.txt"), []byte("plain"), 0o600))
	a.made("a good file", os.WriteFile(in("good.txt"), []byte("plain"), 0o600))
}

// inbox (T38) puts a link to the house's own folder in the place where files for it will be laid.
func (a *attacker) inbox() {
	_ = os.RemoveAll("inbox")
	a.made("a link in place of the inbox", os.Symlink(a.Path, "inbox"))
}

// swap puts a link and a plain file in each other's place as fast as it can, until a file called stop is there.
func swap(canary string) int {
	const box = "outbox"
	_ = os.MkdirAll(box, 0o700)
	for until := time.Now().Add(time.Minute); time.Now().Before(until); {
		_ = os.WriteFile("plain.txt", []byte("plain"), 0o600) // in one piece, or an empty file is what is picked
		_ = os.Rename("plain.txt", box+"/race.txt")
		_ = os.Symlink(canary, box+"/other.txt")
		for range 50 {
			_ = unix.Renameat2(unix.AT_FDCWD, box+"/race.txt", unix.AT_FDCWD, box+"/other.txt", unix.RENAME_EXCHANGE)
			time.Sleep(20 * time.Microsecond)
		}
		if _, err := os.Stat("stop"); err == nil {
			break
		}
	}
	fmt.Println("swapped")
	return 0
}
