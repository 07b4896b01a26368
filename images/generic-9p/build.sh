#!/bin/sh
# The generic image with Linux' 9p file system, which QEMU has a server for -> build/images/generic-9p/, for
# `bench.py --part share`. Downloads the generic image's kernel again, for its modules.
cd "$(dirname "$0")/../.."
name=generic-9p
. images/common.sh

begin_more overlay
say "fetching $kernel"
fetch "$kernel" "$work/kernel"
of_that_kernel "$kernel"
tree="$work/kernel/usr/lib/modules/$release/kernel"
[ -d "$tree" ] || tree="$work/kernel/lib/modules/$release/kernel"
# What is not there is a part of another one, or built in: it depends on the kernel's version.
for module in fs/netfs/netfs.ko fs/fscache/fscache.ko net/9p/9pnet.ko net/9p/9pnet_virtio.ko fs/9p/9p.ko; do
    module "$tree/$module" "$root/lib/modules/$release" || true
done
[ -f "$root/lib/modules/$release/9p.ko" ] || die "$kernel has no 9p"
end_more 9p
