#!/usr/bin/env bash
# Sets up a Debian-like machine for pilder: setup.sh go|run|test. It installs only what is missing, asks before it uses
# sudo, and where it may not install it prints the one command that does. Running it again costs well under a second.
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:?go, run or test}

die() { printf 'pilder: %s\n' "$*" >&2; exit 1; }

# Go: the version of go.mod's go line, nothing is installed for it.
need=$(awk '$1=="go"{print $2}' go.mod)
command -v go >/dev/null || die "Go $need or newer is needed: download it from https://go.dev/dl/ , then:  sudo rm -rf /usr/local/go && sudo tar -C /usr/local -xzf go*.linux-amd64.tar.gz && export PATH=\$PATH:/usr/local/go/bin"
have=$(GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[^0-9.].*//')
if [ "$(printf '%s\n%s\n' "$need" "$have" | sort -V | head -n1)" != "$need" ]; then
  die "Go $need or newer is needed, this is $have: download it from https://go.dev/dl/ , then:  sudo rm -rf /usr/local/go && sudo tar -C /usr/local -xzf go*.linux-amd64.tar.gz"
fi
[ "$what" = go ] && exit 0

[ "$(uname -s)" = Linux ] || die "the sandbox needs Linux; on this machine run it in a Linux VM, e.g.:  limactl start template://debian && limactl shell debian"
[ "$(uname -m)" = x86_64 ] || die "the pinned CLI build is for x86_64; this is $(uname -m)"

pg() { [ -n "${PILDER_PG_BIN:-}" ] || command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; }
missing=()
command -v bwrap >/dev/null || missing+=(bubblewrap)
[ -e /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
if [ "$what" = test ]; then
  command -v gcc >/dev/null || missing+=(gcc libc6-dev) # the race detector is built with cgo
  pg || missing+=(postgresql)
  command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
fi
if [ ${#missing[@]} -gt 0 ]; then
  install="apt-get install -y --no-install-recommends ${missing[*]}"
  command -v apt-get >/dev/null || die "these programs are missing: ${missing[*]} (install them with this system's package manager)"
  if [ "$(id -u)" = 0 ]; then
    echo "pilder: installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    $install -qq >/dev/null 2>&1 || { apt-get update -qq && $install -qq >/dev/null; }
  elif command -v sudo >/dev/null && [ -t 0 ]; then
    read -rp "pilder needs ${missing[*]}. Install now with: sudo $install ? [Y/n] " yes
    [[ "${yes:-y}" =~ ^[YySs] ]] || die "install them first:  sudo $install"
    sudo apt-get update -qq && sudo $install
  else
    die "install first:  sudo $install"
  fi
fi

# The CLI: the exact build that configs/claude-cli.json names, from npm, into .tools/ (never committed; its licence is
# its maker's, see .tools/claude-code/*/LICENSE.md).
bin/pilder cli fetch --quiet
# The sandbox, by doing: prints the exact remedy when this kernel or its settings refuse it.
bin/pilder doctor --only sandbox --quiet
