#!/bin/bash
# `make test-release R=trixie`: this tree on another release of Debian, from nothing. Makes a minimal
# system of that release below build/release/R, copies the tree there, and runs `make demo`, `make deb` and
# `make test` in it (T=demo, T=deb, T=test: one of them; T='build/reprise doctor': any command). What `make deb`
# makes is installed in another minimal system, tried there as a plain user, and removed (tests/tools/installed.sh).
#
#   tests/release.sh RELEASE [demo|deb|test|COMMAND]...
#   FRESH=1      installs all packages again (they are kept in build/release/R/archives)
#
# Needs mmdebstrap, and root or user namespaces. apt's settings, sources and certificates are those of
# this machine with the other release's name, read when this runs. The system has namespaces of its own
# for mounts and processes; it shares /dev, /sys and the network with the host, and of the host's files
# sees nothing.
# Status: that of what failed; 75: the release cannot be had here (no mirror, no namespaces).
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
PATH=$PATH:/usr/sbin:/sbin
unavailable=75

[ $# -ge 1 ] || { sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
release=$1
shift
case $release in '' | *[!a-z]*) echo "release: '$release' is no release's name" >&2; exit 2 ;; esac
[ $# -gt 0 ] || set -- demo deb test
here=$PWD/build/release/$release
root=$here/root

say() { echo "release: $*" >&2; }
cannot() { say "$release cannot be had here: $*"; exit $unavailable; }

for tool in mmdebstrap unshare pivot_root; do
    command -v $tool >/dev/null || cannot "no $tool (images/deps.sh test installs it)"
done

# Root, or what root is in a user namespace: the owner of all files of the system.
if [ "$(id -u)" = 0 ]; then
    spaces=(unshare --mount --pid --fork --kill-child --propagation private)
    mode=root
else
    spaces=(unshare --user --map-root-user --map-auto --mount --pid --fork --kill-child --propagation private)
    mode=unshare
fi
"${spaces[@]}" true 2>/dev/null || cannot "no user namespaces for $(id -un)"

# Debian's archives as apt on this machine knows them, or else the public ones.
sources() {
    local host
    host=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
    apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' 2>/dev/null |
        sed -nE "s/ $host(-updates|-security)? main\$/ $release\1 main/p" | sort -u
}

# What apt is told here about the way to its servers: proxies, certificates, dates.
network_settings() {
    apt-config dump | grep -E '^Acquire::' | grep -vE '^Acquire::(IndexTargets|Languages|CompressionTypes)' || true
}

prepare() {
    mkdir -p "$here/archives"
    sources >"$here/sources.list"
    grep -q " $release main\$" "$here/sources.list" || cat >"$here/sources.list" <<LIST
deb http://deb.debian.org/debian $release main
deb http://deb.debian.org/debian $release-updates main
deb http://deb.debian.org/debian-security $release-security main
LIST
    network_settings >"$here/apt.conf"
    [ ! -s "$here/base.tar" ] || return 0
    say "making a minimal $release"
    mmdebstrap --quiet --mode=$mode --variant=minbase --architectures=amd64 --format=tar \
        --include=make,git,ca-certificates --aptopt="$here/apt.conf" \
        --aptopt='Acquire::Languages "none"' \
        "$release" "$here/base.tar.tmp" "$here/sources.list" >&2 || cannot "see above"
    mv "$here/base.tar.tmp" "$here/base.tar"
}

# The system's root, from the archive. /dev is the host's later.
unpack() {
    [ -z "${FRESH:-}" ] || remove
    [ ! -e "$root.done" ] || return 0
    remove
    mkdir "$root"
    "${spaces[@]}" tar -x -p --numeric-owner --exclude='./dev/*' -C "$root" <"$here/base.tar"
    touch "$root.done"
}

remove() {
    rm -f "$root.done"
    [ ! -e "$root" ] || "${spaces[@]}" rm -rf --one-file-system "$root"
}

# This machine's way to the network, anew each time: it may have changed.
carry() {
    local file
    {
        cat "$here/apt.conf"
        echo 'Acquire::Languages "none";'
        echo 'Binary::apt-get::APT::Keep-Downloaded-Packages "true";'
    } | put /etc/apt/apt.conf.d/90-as-on-the-host
    put /etc/apt/sources.list <"$here/sources.list"
    for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt \
        /etc/apt/auth.conf /etc/apt/auth.conf.d/* /usr/local/share/ca-certificates/* \
        $(grep -o '"/[^"]*"' "$here/apt.conf" | tr -d '"'); do
        [ ! -f "$file" ] || put "$file" <"$file"
    done
}

put() { "${spaces[@]}" sh -c 'mkdir -p "$(dirname "$1")" && rm -f "$1" && cat >"$1"' sh "$root$1"; }

# The tree as it is here, without what git ignores, as a release's archive would have it. Files that
# have not changed keep their times, so that make builds only what it must.
copy_tree() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -z --cached --others --exclude-standard
    else
        find . -path ./build -prune -o \( -type f -o -type l \) -print0
    fi | tar -c --null --no-unquote --ignore-failed-read -T - 2>/dev/null |
        "${spaces[@]}" sh -euc 'mkdir -p "$1/old"; rm -rf "$1/new"; mkdir "$1/new"
            tar -x -m --no-same-owner -C "$1/new"
            cd "$1/new"
            find . -type f | while read -r file; do
                ! cmp -s "$file" "../old/$file" || touch -r "../old/$file" "$file"
            done
            [ ! -d ../old/build ] || mv ../old/build .
            rm -rf ../old
            mv ../new ../old
            ' sh "$root/srv"
}

# inside COMMAND: in the system, as its root.
inside() {
    "${spaces[@]}" sh -euc '
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --rbind /dev dev
        mount --rbind /sys sys
        mount -t tmpfs -o mode=1777 tmp tmp
        mkdir -p var/cache/apt/archives
        mount --bind "$2" var/cache/apt/archives
        mkdir -p .host
        pivot_root . .host
        umount -l /.host
        cd /srv/old 2>/dev/null || cd /
        shift 2
        exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C "$@"
        ' sh "$root" "$here/archives" CI="${CI:-}" http_proxy="${http_proxy:-}" \
        https_proxy="${https_proxy:-}" no_proxy="${no_proxy:-}" sh -c "$1" </dev/null
}

update() {
    inside 'apt-get update -q' >"$here/update.log" 2>&1 ||
        { tail -n 5 "$here/update.log" >&2; cannot "apt-get update fails"; }
}

# What make has built, in a system where nothing else is.
try_deb() {
    local built=$root file status=0
    rm -rf "$here/deb"
    mkdir "$here/deb"
    "${spaces[@]}" tar -c -C "$built/srv/old/build/deb" . | tar -x -C "$here/deb" --no-same-owner --wildcards '*.deb'
    root=$here/clean
    remove
    unpack
    carry
    update
    for file in "$here"/deb/*.deb tests/tools/installed.sh tests/tools/complete.py; do
        put "/packages/${file##*/}" <"$file"
    done
    say "$release: the package in a system of its own"
    inside 'sh /packages/installed.sh' || status=$?
    root=$built
    return $status
}

mkdir -p build
exec 9>"$PWD/build/release.lock"
flock -n 9 || { say "waiting for another one"; flock 9; }
prepare
unpack
carry
copy_tree
update
for what; do
    case $what in
    demo | deb | test) what="make $what" ;;
    esac
    say "$release: $what"
    # Packages that cannot be had are no fault of the tree's.
    case $what in
    'make demo') packages='images/deps.sh demo' ;;
    'make deb') packages='images/deps.sh make package' ;;
    'make test') packages=images/deps.sh ;;
    *) packages= ;;
    esac
    [ -z "$packages" ] || inside "$packages" >"$here/packages.log" 2>&1 ||
        { tail -n 5 "$here/packages.log" >&2; cannot "the packages of $what"; }
    status=0
    inside "$what" || status=$?
    [ "$status:$what" != '0:make deb' ] || try_deb || status=$?
    [ $status = 0 ] || { say "$release: $what: status $status"; exit $status; }
done
