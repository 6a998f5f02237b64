package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"pilder/sim/anthropic"
)

// memory is what a process holds, bytes.
type memory struct {
	resident amount
	private  amount // of it what would be free if the process were gone
}

type amount int64

// String gives mebibytes, as with 0.1 of one nobody plans anyway.
func (a amount) String() string { return fmt.Sprintf("%.1f MiB", float64(a)/(1<<20)) }

// memory reads it after a rest.
func (w *bench) memory(pid int) memory {
	w.b.Helper()
	rest(w.b.Context(), atRest)
	return w.memoryNow(pid)
}

func (w *bench) memoryNow(pid int) (m memory) {
	w.b.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/smaps_rollup")
	if err != nil {
		w.b.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) != 3 || fields[2] != "kB" {
			continue
		}
		kib, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			w.b.Fatal(err)
		}
		switch fields[0] {
		case "Rss:":
			m.resident = amount(kib << 10)
		case "Private_Clean:", "Private_Dirty:":
			m.private += amount(kib << 10)
		}
	}
	return m
}

// holdRuns lets runs wait for the model all at once, and reads the memory of pilder and of every process in the sandboxes.
func (w *bench) holdRuns(house *serving) (pilder memory, agents []memory) {
	w.b.Helper()
	hold := make(chan struct{})
	w.anthropic.Fault(anthropic.Fault{Hold: hold, Times: heldRuns})
	people := map[int64]time.Time{}
	for range heldRuns {
		began, person := time.Now(), w.newcomer()
		people[person] = began
		w.telegram.Say(person, benchSays)
		w.marked("model", began)
	}
	pilder, agents = w.memory(house.cmd.Process.Pid), w.agents(house)
	close(hold)
	for person, began := range people {
		w.replied(person, began)
	}
	w.gone()
	return pilder, agents
}

// agents reads the memory of every process in the sandboxes.
func (w *bench) agents(house *serving) (all []memory) {
	w.b.Helper()
	for _, pid := range descendants(house.cmd.Process.Pid) {
		all = append(all, w.memoryNow(pid))
	}
	return all
}

// perAgent shares what the processes hold among the CLIs that are among them.
func perAgent(all []memory) (cli, around memory) {
	clis := amount(0)
	for _, m := range all {
		if m.private > 16<<20 { // bubblewrap has a hundredth of it
			clis++
			cli.resident, cli.private = cli.resident+m.resident, cli.private+m.private
		} else {
			around.resident, around.private = around.resident+m.resident, around.private+m.private
		}
	}
	if clis == 0 {
		return memory{}, memory{}
	}
	return memory{cli.resident / clis, cli.private / clis}, memory{around.resident / clis, around.private / clis}
}

// descendants lists the living processes below one.
func descendants(pid int) (all []int) {
	parents := map[int]int{}
	found, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is valid
	for _, file := range found {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // gone
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may hold anything
		child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if len(fields) < 2 || err != nil || fields[0] == "Z" {
			continue
		}
		if parents[child], err = strconv.Atoi(fields[1]); err != nil {
			continue
		}
	}
	for child := range parents {
		for p := child; p > 1; p = parents[p] {
			if parents[p] == pid {
				all = append(all, child)
				break
			}
		}
	}
	return all
}
