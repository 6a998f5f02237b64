package runner

// Outbox takes up what agents have put into their outbox, and keeps it until it is sent or too old.
type Outbox struct {
	// Dir is the host folder of what was picked up: Dir/<run>/<number>. Absolute, without symbolic links, made with access
	// for pilder's user only. Required.
	Dir string
	// MaxFile bounds one file and MaxTotal one call, bytes. Defaults 20 MB and 50 MB, what a bot may send.
	MaxFile, MaxTotal int64
	// MaxFiles bounds one call. Default 10.
	MaxFiles int
}

// Picked is what became of one name in the outbox.
type Picked struct {
	// Name is the agent's, cleaned, for people to read; never empty.
	Name string
	// Path is the copy on the host, of mode 0600 under a name of the house. Empty when Err is set.
	Path string
	Size int64 // bytes
	// Err is ErrFolder for what is no plain file of its own (a folder, link, second link, FIFO, device, socket), ErrTooBig,
	// ErrTooMany, ErrChanged, or why it could not be read. What was refused stays where it is.
	Err error
}

func (o Outbox) defaults() Outbox {
	if o.MaxFile <= 0 {
		o.MaxFile = 20_000_000
	}
	if o.MaxTotal <= 0 {
		o.MaxTotal = 50_000_000
	}
	if o.MaxFiles <= 0 {
		o.MaxFiles = 10
	}
	return o
}
