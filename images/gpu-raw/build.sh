#!/bin/sh
# The generic image's kernel and display modules, and one program as process 1: it draws with virgl,
# without Mesa -> build/images/gpu-raw/. The program alone is there too, for other images (--add).
cd "$(dirname "$0")/../.."
name=gpu-raw
. images/common.sh

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"
from_generic "$work/initramfs/modules" virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci \
    virtio_dma_buf drm drm_kms_helper drm_shmem_helper virtio-gpu

# The kernel's interface as libdrm has it; no library.
fetch libdrm-dev "$work/sdk"
gcc -std=gnu11 -Os -Wall -Wextra $werror -static -s -I. -Ivmm -I"$work/sdk/usr/include/libdrm" \
    -o "$work/gpu-raw" images/gpu-raw/*.c
cp "$work/gpu-raw" "$work/initramfs/init"
initramfs "$work/initramfs" "$work/initrd"
(cd "$work" && sha256sum vmlinuz initrd gpu-raw) >>"$work/version"
rm -rf "$work/initramfs" "$work/sdk" "$work/debs"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/initrd" | cut -f1) initrd"
