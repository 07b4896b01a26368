#!/bin/sh
# Programs with a race that is known, of Debian's sources, without the patches that mend it -> build/images/known/:
# xz (of xz-utils 5.4.1, Debian 12's: CVE-2025-31115), version.
cd "$(dirname "$0")/../.."
name=known
. images/common.sh
work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/source"

say "known: downloading Debian 12's source of xz-utils"
mkdir -p "$images/.apt"
sources "$images/.apt/known.list"
sed -i "s/^deb /deb-src /; s/ $suite\([ -]\)/ bookworm\1/" "$images/.apt/known.list"
own_lists known <<CONF
Dir::Etc::SourceList "$images/.apt/known.list"; Dir::Etc::SourceParts "-";
CONF
apt-get update -qq >&2 || die "the lists of Debian 12's sources cannot be had"
(cd "$work" && apt-get source -qq --download-only xz-utils >&2) ||
    die "Debian 12's source of xz-utils cannot be had"
(cd "$work" && sha256sum xz-utils_5.4.1.orig.tar.xz) >>"$work/version"
tar -x -J -f "$work/xz-utils_5.4.1.orig.tar.xz" -C "$work/source" --strip-components=1

say "known: compiling"
(cd "$work/source" && ./configure -q --disable-shared --disable-nls --disable-doc --disable-scripts CFLAGS="-O2 -g" &&
    make -s) >"$work/log" 2>&1 || { cat "$work/log" >&2; die "xz-utils cannot be compiled"; }
mv "$work/source/src/xz/xz" "$work/xz"
rm -rf "$work/source" "$work"/xz-utils_* "$work/log"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -sh "$out" | cut -f1)"
