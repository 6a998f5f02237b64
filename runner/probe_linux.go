package runner

import (
	"errors"
	"os"
	"strings"

	"pilder/runner/inside"
)

// trouble finds the one remedy for a sandbox that could not be started.
func (s *Sandbox) trouble(err error) Finding {
	f := Finding{Check: "bwrap", Problem: err.Error(), Fatal: true}
	switch {
	case errors.Is(err, ErrNoBwrap):
		f.Remedy = "apt-get install bubblewrap"
	case errors.Is(err, ErrBwrapUnfit):
		f.Remedy = "install bubblewrap 0.8 or later from your distribution, owned by root and not setuid (chmod u-s /usr/bin/bwrap)"
	case errors.Is(err, ErrNotApart):
		f.Check, f.Remedy = "namespaces", inside.RemedyBroken
	case errors.Is(err, errStage):
		f.Check, f.Remedy = "user", "let pilder mount (CAP_SYS_ADMIN), or run it as an ordinary user"
	case s.user.own && len(s.cfg.Inside) == 0 && !openToAll(s.cfg.Pilder):
		f.Check, f.Remedy = "pilder", "chmod a+rx "+s.cfg.Pilder
	case kernelSays("kernel/apparmor_restrict_unprivileged_userns", "1") && s.user.uid != 0:
		f.Check = "userns"
		f.Remedy = "allow bubblewrap by an AppArmor profile: apt-get install apparmor-profiles && ln -s /usr/share/apparmor/extra-profiles/bwrap-userns-restrict /etc/apparmor.d/ && apparmor_parser -r /etc/apparmor.d/bwrap-userns-restrict"
	case kernelSays("kernel/unprivileged_userns_clone", "0"):
		f.Check, f.Remedy = "userns", "sysctl -w kernel.unprivileged_userns_clone=1"
	case kernelSays("user/max_user_namespaces", "0"):
		f.Check, f.Remedy = "userns", "sysctl -w user.max_user_namespaces=10000"
	case exists("/.dockerenv") || exists("/run/.containerenv"):
		f.Check, f.Remedy = "container", "do not nest: run pilder on the host or in a virtual machine, or one container per run"
	case !exists("/proc/sys/user/max_user_namespaces"):
		f.Check, f.Remedy = "userns", "use a kernel with user namespaces (CONFIG_USER_NS)"
	default:
		f.Remedy = "run pilder doctor and read the message of bubblewrap above"
	}
	return f
}

// kernelSays compares a setting of the kernel; one that does not exist says nothing.
func kernelSays(name, value string) bool {
	got, err := os.ReadFile("/proc/sys/" + name)
	return err == nil && strings.TrimSpace(string(got)) == value
}

// openToAll tells whether everybody may start a program, the folders above aside.
func openToAll(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().Perm()&0o005 == 0o005
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
