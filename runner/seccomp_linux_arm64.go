package runner

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_AARCH64
	x32Bit    = 0 // no such interface here
)

// deniedArchCalls exist on this architecture only.
func deniedArchCalls() []uint32 { return nil }
