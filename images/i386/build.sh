#!/bin/sh
# Debian's programs of 32 bits under its 64-bit kernel -> build/images/i386/: vmlinuz, initrd, disk.img, tree/
# (the same files, for the host), static/ (the kernel's x86 selftests for kernels of 32 bits), version.
cd "$(dirname "$0")/../.."
name=i386
. images/common.sh
. images/disk.sh
here=images/i386

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/files/i386/selftests" "$work/files/etc"
install -m 755 $here/run "$work/files/i386/"
install -m 644 $here/*.c tests/bench/real/nbody.py tests/bench/real/json.py tests/bench/real/objects.py \
    tests/bench/real/words.pl "$work/files/i386/"
# What libc-bin's scripts would have written.
echo 'include /etc/ld.so.conf.d/*.conf' >"$work/files/etc/ld.so.conf"
from_generic "$work/initramfs/modules" crc16 crc32c_generic mbcache jbd2 ext4
mkdir -p "$work/initramfs/bin"
install -m 755 $here/enter "$work/initramfs/bin/i386"
initramfs "$work/initramfs" "$work/more"
cat "$images"/generic/initrd "$work/more" >"$work/initrd"

say "i386: fetching the kernel's source for its selftests"
source=$(resolve linux-source)
[ -n "$source" ] || { refresh && source=$(resolve linux-source); } || true
[ -n "$source" ] || die "apt knows no package linux-source: is this Debian with its main repository?"
fetch "$source" "$work/source"
xz -dc "$work/source/usr/src/$source.tar.xz" |
    tar -x -C "$work/files/i386/selftests" --strip-components=1 --wildcards '*/tools/testing/selftests/x86' \
        '*/tools/testing/selftests/perf_events' '*/tools/testing/selftests/kselftest*' '*/tools/testing/selftests/lib.mk' '*/arch/x86/include/asm/*.h'
rm -rf "$work/source"

say "i386: compiling programs for Windows"
for bits in 32:i686 64:x86_64; do
    ${bits#*:}-w64-mingw32-gcc -O2 -Wall -s -Wl,--no-insert-timestamp -o "$work/files/i386/hello${bits%:*}.exe" \
        $here/hello.c
done

# i386 is the first architecture for apt only because perl:i386 cannot be had beside another: perl-base is
# Essential and there once. The compilers and the 64-bit half of Wine are amd64's, as is the kernel. Wine's
# libraries have 800 MB of debugging information.
architectures=i386,amd64
everything() {
    unpacked dash,coreutils,busybox-static,perl,python3,stress-ng,wine,wine32,wine64:amd64,gcc:amd64,gcc-multilib:amd64,libc6-dev-x32:amd64 \
        --dpkgopt='path-exclude=*lto-dump*' \
        --extract-hook='ldconfig -r "$1"
            find "$1"/usr/lib/*/wine/*-windows -type f -size +40k -exec strip -g {} +' \
        --extract-hook="images/i386/compile \"\$1\""
}
say "i386: downloading, unpacking and compiling"
everything || {
    # The parts of a mirror are not always of the same day, and both architectures need the same versions.
    say "i386: once more, without the updates since the release"
    releases=
    everything
}
mkdir "$work/tree"
tar -x -f "$work/root.tar" -C "$work/tree" --no-same-owner --exclude='./dev/*'
mv "$work/tree/i386/static" "$work/static"
truncate -s 1792M "$work/disk.img"
file_system "$work/disk.img" 7c1e9a52-0b64-4d3f-a7f5-3a86c2d0e419 0

(cd "$work" && sha256sum vmlinuz initrd disk.img) >>"$work/version"
rm -rf "$work/files" "$work/initramfs" "$work/more" "$work/debs" "$work/files.tar"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/disk.img" | cut -f1) of disk used"
