#!/bin/sh
# Debian's unmodified generic kernel and the same initramfs -> build/images/generic/.
cd "$(dirname "$0")/../.."
out=build/images/generic
. images/common.sh
kernel_image linux-image-amd64
