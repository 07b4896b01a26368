#!/bin/sh
# Debian's Mesa with programs that draw -> build/images/gpu-mesa/: the generic image's kernel, its
# initramfs with the program `gpu` added, and disk.img (ext4), on which Mesa and the programs are.
cd "$(dirname "$0")/../.."
out=build/images/gpu-mesa
. images/common.sh
. images/disk.sh
here=images/gpu-mesa
size=384M # of the disk; the file is sparse
uuid=8b0d6c52-31f4-4c0e-93d7-6e2f0a51c7d4

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/root/bin"
from_generic "$work/root/modules" crc16 crc32c_generic mbcache jbd2 ext4
install -m 755 $here/gpu "$work/root/bin/gpu"
initramfs "$work/root" "$work/more"
cat build/images/generic/initrd "$work/more" >"$work/initrd"

# Headers, and libraries to link with: those of the disk.
say "gpu-mesa: compiling"
for package in libgbm-dev libegl-dev libgles-dev libdrm-dev libgbm1 libegl1 libgles2; do
    fetch $package "$work/sdk"
done
lib="$work/sdk/usr/lib/x86_64-linux-gnu"
gcc -std=gnu11 -Os -Wall -Wextra -Werror -s -I. -Ivmm -I"$work/sdk/usr/include" \
    -I"$work/sdk/usr/include/libdrm" -o "$work/triangle" $here/triangle.c \
    images/gpu-raw/card.c images/gpu-raw/options.c images/gpu-raw/picture.c \
    -L"$lib" -Wl,--unresolved-symbols=ignore-in-shared-libs -lgbm -lEGL -lGLESv2

say "gpu-mesa: downloading and unpacking packages"
bootstrap --variant=extract \
    --include=libgl1-mesa-dri,libegl1,libgles2,libgbm1,kmscube,glmark2-es2-drm \
    --extract-hook="upload $work/triangle /usr/bin/triangle" \
    --extract-hook='chmod 755 "$1/usr/bin/triangle"' \
    --extract-hook='mkdir -p "$1/dev" "$1/proc" "$1/sys" "$1/tmp"'
truncate -s $size "$work/disk.img"
file_system "$work/disk.img" $uuid 0
(cd "$work" && sha256sum vmlinuz initrd disk.img) >>"$work/version"
rm -rf "$work/root" "$work/more" "$work/sdk" "$work/debs" "$work/triangle"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/disk.img" | cut -f1) of disk used"
