#!/bin/sh
# Installs the Debian packages that are missing: the one list. Called by `make deps` (and so by
# `make demo` and `make test`). When everything is there it says nothing and uses no network.
#
#   images/deps.sh          install what is missing (through sudo when not root)
#   images/deps.sh --check  only name what is missing; status 1 if anything is
#   images/deps.sh --list   print the list
set -eu

# Building reprise.
build="gcc libc6-dev make pkg-config libzydis-dev liblz4-dev libxxhash-dev libfdt-dev zlib1g-dev
liblzma-dev libzstd-dev libslirp-dev libpng-dev libnbd-dev acpica-tools
libvirglrenderer-dev libepoxy-dev libseccomp-dev libvncserver-dev libsdl2-dev"
# Drawing: Mesa's software rasterizers, without a screen. Needed when reprise-gpu runs.
graphics="libegl1 libegl-mesa0 libgl1-mesa-dri"
# Building images: apt-get downloads packages, dpkg-deb unpacks them, cpio makes the initramfs;
# the rest is for make image-debian.
images="apt dpkg cpio mmdebstrap uidmap fdisk e2fsprogs"
# Tests: cmocka; their driver is in Python; gdb and packers as peers; file systems; iasl (acpica-tools) is in the first list.
tests="libcmocka-dev python3 binutils gdb gzip xz-utils zstd lz4 device-tree-compiler
python3-drgn xvfb xdotool gvncviewer libdrm-dev grub-common mtools btrfs-progs xfsprogs qemu-utils openssh-client"
packages="$(echo $build $graphics $images $tests)"

missing() {
    # One query for all; a package dpkg has never heard of is missing too.
    dpkg-query -W -f '${Package} ${db:Status-Status}\n' $packages 2>/dev/null |
        awk -v want="$packages" '$2 == "installed" { have[$1] = 1 }
            END { n = split(want, w, " "); for (i = 1; i <= n; i++) if (!have[w[i]]) print w[i] }'
}

case "${1:-}" in
--list) echo "$packages" | tr ' ' '\n'; exit ;;
--check) m=$(missing); [ -z "$m" ] || { echo $m; exit 1; }; exit 0 ;;
'') ;;
*) echo "usage: $0 [--check | --list]" >&2; exit 2 ;;
esac

m=$(missing)
[ -n "$m" ] || exit 0

root=
if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || {
        echo "deps: missing packages, and neither root nor sudo to install them:" $m >&2
        exit 1
    }
    root=sudo
fi
echo "deps: installing with apt-get:" $m
install() {
    $root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $m
}
# The package lists of a fresh container are empty or stale: then they are fetched first.
lists=$(find /var/lib/apt/lists -name '*_Packages*' 2>/dev/null | head -n 1)
[ -n "$lists" ] || $root apt-get update -q
install || { $root apt-get update -q && install; }
m=$(missing)
[ -z "$m" ] || { echo "deps: still missing:" $m >&2; exit 1; }
