#!/bin/sh
# Debian's unmodified generic kernel and the same initramfs -> build/images/generic/.
cd "$(dirname "$0")/../.."
name=generic
. images/common.sh
kernel_image linux-image-amd64 fs/ext4/ext4.ko fs/jbd2/jbd2.ko fs/mbcache.ko lib/crc16.ko \
    crypto/crc32c_generic.ko fs/overlayfs/overlay.ko
