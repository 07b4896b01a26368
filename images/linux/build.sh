#!/bin/sh
# Debian's unmodified cloud kernel and an initramfs with busybox -> build/images/linux/.
cd "$(dirname "$0")/../.."
name=linux
. images/common.sh
kernel_image linux-image-cloud-amd64
