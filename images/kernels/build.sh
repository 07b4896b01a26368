#!/bin/sh
# Debian's kernels that are no Linux -> build/images/kernels/: Xen (Multiboot 1 and 2), iPXE (by its code of 16
# bits only), memtest86+ (by that of 16 and of 32 bits).
cd "$(dirname "$0")/../.."
name=kernels
. images/common.sh
work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"
# The hypervisor's package has its version in its name.
xen() {
    apt-cache depends xen-system-amd64 2>/dev/null |
        sed -n 's/^[ |]*Depends: \(xen-hypervisor-[0-9.]*-amd64\).*$/\1/p' | head -n 1
}
package=$(xen)
[ -n "$package" ] || { refresh && package=$(xen); } || true
[ -n "$package" ] || die "apt knows no package xen-system-amd64"
for p in "$package" ipxe memtest86+; do
    say "fetching $p"
    fetch "$p" "$work/files"
done
gzip -dc "$work"/files/boot/xen-*.gz >"$work/xen"
cp "$work/files/boot/ipxe.lkrn" "$work/ipxe"
cp "$work/files/boot/memtest86+x64.bin" "$work/memtest"
rm -rf "$work/files" "$work/debs"
rm -rf "$out"
mv "$work" "$out"
