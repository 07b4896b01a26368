#!/bin/sh
# Tries the packages beside it in a system where nothing else of reprise is, as that system's root: installs them,
# runs the demo and more as a plain user, and removes them again; tests/release.sh calls it. It changes the
# system it runs in: never call it anywhere else.
set -eu
here=$(dirname "$0")
cd /
say() { echo "installed: $*"; }
fail() { echo "installed: FAIL: $*" >&2; exit 1; }
[ -d /packages ] && [ "$here" = /packages ] || fail "this is for a system made for it, by tests/release.sh"
export DEBIAN_FRONTEND=noninteractive
main=$(ls /packages/reprise_*_amd64.deb)
symbols=$(ls /packages/reprise-dbgsym_*_amd64.deb)
field() { dpkg-deb -f "$main" "$1"; }

# All that the package wants, and shells: what is there before and after it is compared.
{
    apt-get install -y -q --no-install-recommends man-db bash-completion zsh fish python3-minimal
    apt-get satisfy -y -q --no-install-recommends "$(field Depends), $(field Recommends)"
} >/tmp/log 2>&1 || { tail -n 20 /tmp/log >&2; fail "its dependencies cannot be installed"; }
useradd -m plain
# as COMMAND: as a plain user, with nothing of root's.
as() {
    setpriv --reuid=plain --regid=plain --init-groups env -i HOME=/home/plain USER=plain LC_ALL=C TERM=dumb \
        PATH=/usr/local/bin:/usr/bin:/bin http_proxy="${http_proxy:-}" https_proxy="${https_proxy:-}" \
        no_proxy="${no_proxy:-}" sh -c "cd; $1"
}
# What a package manager, and caches of all the system, write is no trace of a package.
files() {
    find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /packages -o -path /home/plain \
        -o -path /var/cache -o -path /var/log -o -path /var/lib/apt -o -path '/var/lib/dpkg/*-old' \) -prune -o -print | sort
}
files >/tmp/before

apt-get install -y -q --no-install-recommends "$main" "$symbols" >/tmp/log 2>&1 ||
    { cat /tmp/log >&2; fail "it cannot be installed"; }
say "$(as 'reprise --version') of $(. /etc/os-release && echo "$PRETTY_NAME")"

as 'reprise demo' || fail "reprise demo: status $?"
as 'reprise verify ~/.cache/reprise/demo/boot' >/tmp/log 2>&1 || { cat /tmp/log >&2; fail "reprise verify"; }
# Another image, what it is made of, the file server and a program of this system.
as 'reprise image run' || fail "reprise image run"
said=$(as 'reprise run sh -c "echo as \$(id -un)"') || fail "reprise run"
[ "$said" = 'as plain' ] || fail "reprise run said '$said'"
# What each helper says of itself: they run here, with all that they load.
as 'reprise doctor --all' >/tmp/doctor
for what in '3D renderer' 'network in user space' 'directories of the host' 'sandbox of commands'; do
    grep -q "^ + $what " /tmp/doctor || { cat /tmp/doctor >&2; fail "doctor: $what"; }
done
say "doctor:$(grep '^ + 3D renderer' /tmp/doctor)"

# Manual pages and completion, by the programs that people have for them.
for page in reprise reprise-record reprise-gpu-list; do
    as "man -w $page" >/dev/null || fail "man -w $page"
    [ "$(as "MANWIDTH=80 man $page" | wc -l)" -gt 20 ] || fail "man $page"
done
complete() { # SHELL LINE EXPECTED
    out=$(as "python3 /packages/complete.py $1 - '$2'" | head -n 1)
    [ "$out" = "$3" ] || fail "$1: '$2' becomes '$out', not '$3'"
}
complete bash 'reprise record --cpu zen' 'reprise record --cpu zen2 '
complete bash 'reprise replay .cache/reprise/demo/bo' 'reprise replay .cache/reprise/demo/boot/'
complete zsh 'reprise gpu li' 'reprise gpu list'
complete zsh 'reprise record --cpu=zen' 'reprise record --cpu=zen2'
complete fish 'reprise simp' "simplify$(printf '\t')which turns of CPUs a failure needs, of one with --chaos"
say "manual pages; completion in bash, zsh, fish"

# The debug symbols are of these programs. (gdb keeps compiled Python where it may write: not as root.)
lines=$(as 'gdb -q -batch -ex "info line cmd_record" /usr/bin/reprise 2>&1' | tail -n 1)
case $lines in
'Line '*'"vmm/cmd/record.c"'*) say "debug symbols: $lines" ;;
*) fail "gdb finds no lines: $lines" ;;
esac

# Half an installation.
mv /usr/libexec/reprise/reprise-net /tmp/reprise-net
as 'reprise record -o /tmp/half --kernel ~/.cache/reprise/images/linux/vmlinuz --net user' >/tmp/log 2>&1 &&
    fail "it records without reprise-net"
grep -q 'reprise-net is missing.*Install reprise anew' /tmp/log || { cat /tmp/log >&2; fail "reprise-net: other words"; }
mv /tmp/reprise-net /usr/libexec/reprise/reprise-net

apt-get purge -y -q reprise reprise-dbgsym >/tmp/log 2>&1 || { cat /tmp/log >&2; fail "it cannot be removed"; }
files >/tmp/after
diff /tmp/before /tmp/after >/tmp/diff || { cat /tmp/diff >&2; fail "it leaves traces"; }
say "removed: $(wc -l </tmp/after) files and directories, as before; of the user's own: $(as 'cd; find . -name reprise | paste -sd" "')"
