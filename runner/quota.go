package runner

import (
	"errors"
	"time"
)

// Quota bounds what one conversation may keep in its folders /work and /state together, and what must stay free on their
// file system. Its verbs are Look, Watch and Trim; each takes the folders' absolute paths, /work first.
type Quota struct {
	// Bytes that the file system has really given, so that a sparse file counts as what it holds. Default 1 GiB.
	Bytes int64
	// Files, folders and links, each inode once. Default 50,000.
	Files int64
	// Free bytes that must stay on the file system for everything else, the database first. Default 1 GiB, or a twentieth of
	// the file system where that is less.
	Free int64
	// Interval between two glances at the file system's counters while an agent works. Default 250 ms.
	Interval time.Duration
}

// Over says which bound is broken; the zero value is none.
type Over string

// The bounds.
const (
	OverBytes Over = "bytes"
	OverFiles Over = "files"
	OverDepth Over = "depth" // folders in one another, more than any tool of use makes
	OverDisk  Over = "disk"  // the file system itself has too little left
)

// Use is what folders hold. When a bound is broken the numbers are what was counted until then.
type Use struct {
	Bytes, Files int64
	Over         Over
}

// Errors of files that were not taken.
var (
	ErrTooBig  = errors.New("file is too big")
	ErrTooMany = errors.New("too many files at once")
	ErrChanged = errors.New("file changed while it was read")
)

// defaults fills in what is not set.
func (q Quota) defaults() Quota {
	if q.Bytes <= 0 {
		q.Bytes = 1 << 30
	}
	if q.Files <= 0 {
		q.Files = 50_000
	}
	if q.Interval <= 0 {
		q.Interval = 250 * time.Millisecond
	}
	return q
}

// over tells which bound the numbers break.
func (q Quota) over(u Use) Over {
	switch {
	case u.Over != "":
		return u.Over
	case u.Bytes > q.Bytes:
		return OverBytes
	case u.Files > q.Files:
		return OverFiles
	}
	return ""
}
