package runner

import (
	"io"
	"os"
)

// Names of the two folders in /work that files pass through.
const (
	DirInbox  = "inbox"  // from the person to the agent
	DirOutbox = "outbox" // from the agent to the person
)

// Inbox lays files for an agent into its folder.
type Inbox struct {
	// MaxFile bounds one file and MaxTotal one call, bytes. Defaults 20 MiB, what a bot may download, and 100 MiB.
	MaxFile, MaxTotal int64
	// Own hands a new file or folder over to the agents' user. Default: it stays pilder's.
	Own func(*os.File) error
}

// Incoming is a file that a person has sent.
type Incoming struct {
	// Kind is what it was sent as: document, photo, voice, audio, video, video_note, animation, sticker.
	Kind string
	// Name is the person's, of any bytes, often empty.
	Name string
	// Open gives its content; reading must end with the caller's context.
	Open func() (io.ReadCloser, error)
}

// Laid is what became of one.
type Laid struct {
	// Path is where it lies, relative to /work: a name of the house, such as inbox/3.pdf. Empty when Err is set.
	Path string
	// Name is the person's, cleaned: data for the prompt, with no other meaning. It may be empty.
	Name string
	Kind string
	Size int64 // bytes
	// Err is ErrTooBig, or why its content could not be had. The others are laid all the same.
	Err error
}

func (b Inbox) defaults() Inbox {
	if b.MaxFile <= 0 {
		b.MaxFile = 20 << 20
	}
	if b.MaxTotal <= 0 {
		b.MaxTotal = 100 << 20
	}
	return b
}
