#!/bin/sh
# rr's own tests, of Debian 13's source of rr, built in a Debian that is their disk -> build/images/rr-tests/:
# disk.img, version. The tests are in /rr/obj, for ctest.
cd "$(dirname "$0")/../.."
name=rr-tests
. images/common.sh
. images/disk.sh

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"

say "rr-tests: downloading Debian 13's source of rr"
source_of rr trixie "$work/files/rr/source"

say "rr-tests: downloading packages and compiling, which takes minutes"
pack_files "$work/files" "$work/files.tar"
bootstrap --variant=apt --extract-hook="tar-in $work/files.tar /" \
    --include=bash,capnproto,cmake,g++,gdb,libcapnp-dev,libzstd-dev,libpfm4-dev,lldb,make,pkg-config,python3-pexpect,zlib1g-dev \
    --customize-hook="chroot \"\$1\" sh -euc 'mkdir -p /rr/obj/Testing; cd /rr/obj
        cmake -Ddisable32bit=ON -DCMAKE_BUILD_TYPE=Release ../source >log 2>&1 && make -j$(nproc) >>log 2>&1 || { tail -n 30 log >&2; exit 1; }
        rm log; find . -name \"*.o\" -delete; rm -rf /var/cache/apt /var/lib/apt/lists/*'" ||
    die "rr cannot be compiled"
rm -f "$work/files.tar"
truncate -s 4096M "$work/disk.img"
file_system "$work/disk.img" 0d9e6d0a-0f0a-4d0c-9d39-6a1a5e0f6e71 0

(cd "$work" && sha256sum disk.img) >>"$work/version"
rm -rf "$work/files"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/disk.img" | cut -f1) of disk used"
