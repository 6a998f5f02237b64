#!/usr/bin/env bash
# Sets up a Debian-like machine for pilder: setup.sh build|run|test. It installs only what is missing, asks before it uses
# sudo, and where it may not install it prints the one command that does. Running it again costs about a second.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?build, run or test}

die() { printf 'pilder: %s\n' "$*" >&2; exit 1; }
as_root=$([ "$(id -u)" = 0 ] || echo 'sudo ')

# Go: the version of go.mod's go line. Nothing is installed for it.
need=$(awk '$1=="go"{print $2}' go.mod)
remedy="download it from https://go.dev/dl/ , then:  ${as_root}rm -rf /usr/local/go && ${as_root}tar -C /usr/local -xzf go*.linux-amd64.tar.gz && export PATH=/usr/local/go/bin:\$PATH"
command -v go >/dev/null || die "Go $need or newer is needed: $remedy"
have=$(GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[^0-9.].*//')
if [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n1)" != "$need" ]; then
  die "Go $need or newer is needed, this is $have: $remedy"
fi

if [ "$what" != build ]; then
  [ "$(uname -s)" = Linux ] || die "the sandbox needs Linux; on this machine run it in a Linux VM, e.g.:  limactl start template://debian && limactl shell debian"
  [ "$(uname -m)" = x86_64 ] || die "the pinned CLI build is for x86_64; this is $(uname -m)"
fi

# install PACKAGE…: as root at once, with sudo after asking, else the command.
install() {
  local command="apt-get install -y --no-install-recommends $*"
  command -v apt-get >/dev/null || die "these programs are missing: $* (install them with this system's package manager)"
  if [ "$(id -u)" = 0 ]; then
    echo "pilder: installing $*"
    DEBIAN_FRONTEND=noninteractive $command -qq >/dev/null 2>&1 && return
    apt-get update -qq || die "the package lists cannot be had; check the network, then:  apt-get update && $command"
    DEBIAN_FRONTEND=noninteractive $command -qq >/dev/null || die "could not install $*; try:  $command"
  elif command -v sudo >/dev/null && [ -t 0 ]; then
    read -rp "pilder needs $*. Install now with: sudo $command ? [Y/n] " yes
    [[ "${yes:-y}" =~ ^[YySs] ]] || die "install first:  sudo $command"
    { sudo apt-get update -qq && sudo $command; } || die "could not install $*"
  else
    die "install first:  sudo $command"
  fi
}

pg() { [ -n "${PILDER_PG_BIN:-}" ] || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }
missing=()
[ "$(uname -s)" != Linux ] || [ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates) # for modules and the CLI
if [ "$what" != build ]; then
  command -v bwrap >/dev/null || missing+=(bubblewrap)
fi
if [ "$what" = test ]; then
  command -v gcc >/dev/null || missing+=(gcc libc6-dev) # the race detector is built with cgo
  pg || missing+=(postgresql)
  command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
fi
[ ${#missing[@]} -eq 0 ] || install "${missing[@]}"
[ "$what" = build ] && exit 0

# The CLI: the exact build that configs/claude-cli.json names, from npm, into .tools/ (never committed; its licence is
# its maker's, see .tools/claude-code/*/LICENSE.md).
bin/pilder cli fetch --quiet
# The MCP servers that tests run, and their Node: exactly what deploy/npm/package-lock.json names, into .tools/npm.
[ "$what" != test ] || go run ./deploy/npm .tools/npm
# The sandbox, by doing: prints the exact remedy when this kernel or its settings refuse it. Only its own settings matter.
bin/pilder --config /dev/null doctor --only sandbox --quiet
