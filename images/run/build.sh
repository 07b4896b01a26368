#!/bin/sh
# The generic image's kernel and the agent that runs one program (guest-agent/agent) -> build/images/run/.
cd "$(dirname "$0")/../.."
name=run
. images/common.sh
work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/root/dev"
from_generic "$work/root/modules" virtio virtio_ring virtio_pci_legacy_dev virtio_pci_modern_dev virtio_pci \
    virtio-rng virtio_console failover net_failover virtio_net fuse virtiofs overlay \
    drm drm_kms_helper drm_shmem_helper virtio_dma_buf virtio-gpu
[ ! -f "$images"/generic/modules/rng-core.ko ] || cp "$images"/generic/modules/rng-core.ko "$work/root/modules/"
# The kernel is unpacked at each start of a program; xz takes four times as long as all the rest. The same bytes,
# packed with zstd in the same bzImage (Documentation/arch/x86/boot.rst: setup_sects, payload_offset, payload_length),
# with their size behind, as the kernel's build puts it.
number() { od -An -v -t"u$2" -j"$1" -N"$2" "$work/vmlinuz" | tr -d ' '; }
begin=$((($(number $((0x1f1)) 1) + 1) * 512 + $(number $((0x248)) 4)))
length=$(number $((0x24c)) 4)
tail -c +$((begin + 1)) "$work/vmlinuz" | head -c "$length" >"$work/payload"
little() { printf "\\$(printf %o $(($1 & 255)))\\$(printf %o $(($1 >> 8 & 255)))\\$(printf %o $(($1 >> 16 & 255)))\\$(printf %o $(($1 >> 24)))"; }
if head -c -4 "$work/payload" | xz -dcq >"$work/kernel.elf" 2>/dev/null; then
    zstd -q -9 "$work/kernel.elf" -o "$work/packed"
    little "$(wc -c <"$work/kernel.elf")" >>"$work/packed"
    { head -c $((0x24c)) "$work/vmlinuz"; little "$(wc -c <"$work/packed")"
      tail -c +$((0x250 + 1)) "$work/vmlinuz" | head -c $((begin - 0x250)); cat "$work/packed"; } >"$work/repacked"
    mv "$work/repacked" "$work/vmlinuz"
fi
rm -f "$work/payload" "$work/kernel.elf" "$work/packed"
gcc -std=gnu11 -D_GNU_SOURCE -Os -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wvla $werror \
    -static -s -I. -o "$work/root/init" guest-agent/agent/*.c
initramfs "$work/root" "$work/initrd"
(cd "$work" && sha256sum vmlinuz initrd) >>"$work/version"
rm -rf "$work/root"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/initrd" | cut -f1) initrd"
