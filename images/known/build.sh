#!/bin/sh
# Programs with a race that is known, of Debian's sources, without the patches that mend it -> build/images/known/:
# xz (of xz-utils 5.4.1, Debian 12's: CVE-2025-31115), version.
cd "$(dirname "$0")/../.."
name=known
. images/common.sh
work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"

say "known: downloading Debian 12's source of xz-utils"
source_of xz-utils bookworm "$work/source"

say "known: compiling"
(cd "$work/source" && ./configure -q --disable-shared --disable-nls --disable-doc --disable-scripts CFLAGS="-O2 -g" &&
    make -s) >"$work/log" 2>&1 || { cat "$work/log" >&2; die "xz-utils cannot be compiled"; }
mv "$work/source/src/xz/xz" "$work/xz"
rm -rf "$work/source" "$work/log"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -sh "$out" | cut -f1)"
