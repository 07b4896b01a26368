#!/bin/sh
# Programs that use performance counters, and something for them to count: rr, perf -> build/images/counters/:
# disk.img, version.
cd "$(dirname "$0")/../.."
name=counters
. images/common.sh
. images/disk.sh

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/files/bench"

say "counters: compiling"
for program in threads signals work; do
    gcc -std=gnu11 -O2 -g -Wall -Wextra -Wno-unused-parameter $werror -pthread \
        -o "$work/files/bench/$program" "images/counters/$program.c"
done
install -m 755 images/counters/run "$work/files/bench/"

say "counters: downloading and unpacking packages"
unpacked dash,coreutils,bash,libc-bin,grep,sed,rr,linux-perf,binutils
truncate -s 1024M "$work/disk.img"
file_system "$work/disk.img" 5b1f0c6e-2f0e-4b7a-9a51-c0947e3d8a17 0

(cd "$work" && sha256sum disk.img) >>"$work/version"
rm -rf "$work/files"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/disk.img" | cut -f1) of disk used"
