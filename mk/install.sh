#!/bin/sh
# `make install`, `make uninstall`: what goes where below DESTDIR and PREFIX. What was installed is noted there, in
# share/reprise/installed, so that it can be removed again, whichever version it is of.
#   mk/install.sh install|uninstall    DESTDIR= PREFIX=/usr/local DOCDIR= ZSHDIR= FISHDIR=
set -eu
LC_ALL=C
export LC_ALL
umask 022
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local}
case $prefix in
/*) ;;
*) echo "install: PREFIX=$prefix: a path that begins with / is needed" >&2; exit 2 ;;
esac
root=${DESTDIR:-}$prefix
note=share/reprise/installed
die() { echo "install: $*" >&2; exit 1; }

# directory PATH: made, with those above it; the ones that were not there are ours to remove.
directory() {
    [ ! -d "$root/$1" ] || return 0
    case $1 in */*) directory "${1%/*}" ;; esac
    mkdir -p "$root/$1" || die "$root/$1 cannot be made: another PREFIX=, or as root"
    echo "$1/" >>"$list"
}
# put MODE FILE PATH
put() {
    directory "${3%/*}"
    install -m "$1" "$2" "$root/$3" || die "$root/$3 cannot be written: another PREFIX=, or as root"
    echo "$3" >>"$list"
}
# tree FILES-OR-DIRECTORIES...: below share/reprise, as they stand here.
tree() {
    find "$@" -type f ! -name README.md ! -name '*.swp' | sort | while read -r file; do
        mode=644
        [ ! -x "$file" ] || mode=755
        put $mode "$file" "share/reprise/$file"
    done
}

installed() {
    programs=$(cat build/programs 2>/dev/null) || die "nothing is built: make"
    for program in $programs; do
        [ -x "build/$program" ] || die "build/$program is not there: make"
    done
    list=$(mktemp)
    trap 'rm -f "$list" "$list".*' EXIT
    # What an older one had and this one has not.
    [ ! -f "$root/$note" ] || cp "$root/$note" "$list.old"

    for program in $programs; do
        case $program in
        reprise) put 755 build/reprise bin/reprise ;;
        *) put 755 "build/$program" "libexec/reprise/$program" ;;
        esac
    done
    put 755 build/reprise-agent libexec/reprise/reprise-agent
    put 644 guest-agent/reprise-mark.h include/reprise-mark.h
    # Built where libvirt's headers are.
    [ ! -x build/reprise-libvirt ] || put 755 build/reprise-libvirt libexec/reprise/reprise-libvirt
    tree images/common.sh images/disk.sh images/deps.sh images/image.sh images/demo.sh images/table images/packages
    tree $(images/image.sh --installed | sed 's#^#images/#') $(images/image.sh --sources)

    mkdir -p build/install
    rm -rf build/install/man
    mkdir build/install/man
    build/reprise manpage -o build/install/man
    for page in build/install/man/*.1; do
        put 644 "$page" "share/man/man1/${page##*/}"
    done
    for shell in bash zsh fish; do
        build/reprise completion $shell >build/install/$shell
    done
    put 644 build/install/bash share/bash-completion/completions/reprise
    put 644 build/install/zsh "${ZSHDIR:-share/zsh/site-functions}/_reprise"
    put 644 build/install/fish "${FISHDIR:-share/fish/vendor_completions.d}/reprise.fish"

    doc=${DOCDIR:-share/doc/reprise}
    put 644 README.md "$doc/README.md"
    put 644 CHANGELOG.md "$doc/CHANGELOG.md"
    put 644 LICENSE "$doc/LICENSE"
    put 644 images/README.md "$doc/images/README.md"
    for page in docs/*.md; do
        put 644 "$page" "$doc/$page"
    done
    directory "${note%/*}"
    echo "$note" >>"$list"
    if [ -f "$list.old" ]; then
        sort "$list" >"$list.new"
        sort "$list.old" | comm -23 - "$list.new" >"$list.gone"
        # Directories that the older one made are still ours.
        grep '/$' "$list.gone" >>"$list" || true
        grep -v '/$' "$list.gone" | remove_files
    fi
    install -m 644 "$list" "$root/$note"
}

# Of names on standard input: none leads out of the prefix.
remove_files() {
    while read -r file; do
        case /$file/ in *//* | */../*) die "$root/$note names '$file', which is not below PREFIX" ;; esac
        rm -f "$root/$file" || die "$root/$file cannot be removed"
    done
}

uninstalled() {
    [ -f "$root/$note" ] || die "nothing of reprise's is installed in $root, or $root/$note is missing: \`make install\` with the same PREFIX= and DESTDIR= writes it anew"
    files=$(cat "$root/$note")
    printf '%s\n' "$files" | grep -v '/$' | remove_files
    # The deepest first; what somebody else has put there stays, with its directory.
    printf '%s\n' "$files" | grep '/$' | sort -r | while read -r dir; do
        case /$dir in *//* | */../*) die "$root/$note names '$dir', which is not below PREFIX" ;; esac
        rmdir "$root/$dir" 2>/dev/null || [ ! -d "$root/$dir" ] || echo "install: $root/$dir stays: it is not empty" >&2
    done
}

case ${1:-} in
install) installed ;;
uninstall) uninstalled ;;
*) sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2; exit 2 ;;
esac
