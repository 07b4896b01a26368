#!/bin/sh
# `make deb`: this tree as packages for this machine's release -> build/deb/reprise_VERSION_amd64.deb and
# reprise-dbgsym_VERSION_amd64.deb. Built in a copy of the tree from nothing; lintian has the last word.
set -eu
LC_ALL=C
export LC_ALL
umask 022
cd "$(dirname "$0")/.."
out=$PWD/build/deb
src=$out/reprise
number() { sed -n "s/^#define $1 *\"\(.*\)\".*/\1/p" vmm/version.h; }
version=$(number REPRISE_VERSION)
date=$(number REPRISE_DATE)
# Whoever gives the package to others says who that is, as for Debian's own tools.
maintainer="${DEBFULLNAME:-The Reprise authors} <${DEBEMAIL:-reprise@example.org}>"

for tool in dpkg-buildpackage dh fakeroot; do
    command -v $tool >/dev/null || { echo "deb: no $tool: images/deps.sh package installs it" >&2; exit 1; }
done

rm -rf "$out"
mkdir -p "$src"
if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard
else
    find . -path ./build -prune -o \( -type f -o -type l \) -print0
fi | tar -c --null --no-unquote --ignore-failed-read -T - 2>/dev/null | tar -x -C "$src"
cp -r mk/debian "$src/debian"

# Names of packages are those of images/deps.sh: what a plain make needs, without what every build has.
list() { printf '%s\n' $(images/deps.sh --list "$@") | grep -vxE 'gcc|libc6-dev|make|apt|dpkg|gdb' | paste -sd, | sed 's/,/, /g'; }
fill() {
    sed -e "s|@MAINTAINER@|$maintainer|" -e "s|@BUILD_DEPENDS@|$(list make)|" \
        -e "s|@RECOMMENDS@|gcc, libc6-dev, apt, gdb, $(list image draw)|" -e "s|@SUGGESTS@|$(list disk), libvirt0, qemu-utils|" \
        -e "s|@COPYRIGHT@|$(sed -n 's/^Copyright (c) //p' LICENSE)|" "$1"
}
fill mk/debian/control.in >"$src/debian/control"
# The licence's text, as a field of several lines.
sed -n '/^Permission/,$p' LICENSE | sed 's/^$/./; s/^/ /' >"$out/licence"
fill mk/debian/copyright.in | sed -e "/^@LICENSE@/{r $out/licence" -e 'd}' >"$src/debian/copyright"
rm -f "$src"/debian/*.in "$out/licence"
mkdir -p "$src/debian/source"
echo '3.0 (native)' >"$src/debian/source/format"
cat >"$src/debian/changelog" <<LOG
reprise ($version) unstable; urgency=medium

  * What has changed is in CHANGELOG.md.

 -- $maintainer  $(date -u -R -d "$date")
LOG

cd "$src"
dpkg-buildpackage -b -us -uc -j"$(nproc)" >"$out/log" 2>&1 || { tail -n 30 "$out/log" >&2; exit 1; }
cd "$out"
rm -rf "$src"
ls -- *.deb | sed 's|^|build/deb/|'
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error,warning --tag-display-limit 0 ./*.changes
    echo "deb: lintian has nothing to say against it"
else
    echo "deb: lintian is not installed: not looked at by it"
fi
