#!/bin/sh
# Debian's unmodified kernels of 32 bits, without and with PAE, and an initramfs with an i386 busybox ->
# build/images/linux-686/ and linux-686-pae/. The packages' lists are the recipe's own: this machine's apt
# need not know i386. Debian 13 has no such kernels any more.
cd "$(dirname "$0")/../.."
. images/common.sh
lists=$PWD/build/images/linux-686.apt
mkdir -p "$lists/lists/partial" "$lists/archives/partial"
trap 'rm -rf "$lists"' EXIT
cat >"$lists/conf" <<END
APT::Architecture "i386";
APT::Architectures { "i386"; };
APT::Sandbox::User "";
Dir::State "$lists";
Dir::State::status "/dev/null";
Dir::Cache "$lists";
END
export APT_CONFIG="$lists/conf"
refresh() {
    return 1
}
apt-get update -qq >&2 || say "not all package lists could be had"
machine=-m32
for kind in 686 686-pae; do
    out=$images/linux-$kind
    kernel_image linux-image-$kind
done
