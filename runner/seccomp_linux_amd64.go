package runner

import "golang.org/x/sys/unix"

const (
	auditArch = unix.AUDIT_ARCH_X86_64
	x32Bit    = 0x40000000 // calls of the x32 interface have this bit; nothing uses it, and it doubles the surface
)

// deniedArchCalls exist on this architecture only.
func deniedArchCalls() []uint32 {
	return []uint32{unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_CREATE_MODULE}
}
