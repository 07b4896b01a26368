#!/bin/sh
# Debian's Mesa with programs that draw -> build/images/gpu-mesa/.
cd "$(dirname "$0")/../.."
name=gpu-mesa
. images/common.sh
. images/disk.sh
here=images/gpu-mesa

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/files/usr/local/bin"

# Headers, and libraries to link with: those of the disk.
say "gpu-mesa: compiling"
for package in libgbm-dev libegl-dev libgles-dev libdrm-dev libgbm1 libegl1 libgles2; do
    fetch $package "$work/sdk"
done
gcc -std=gnu11 -Os -Wall -Wextra $werror -s -I. -Ivmm -I"$work/sdk/usr/include" \
    -I"$work/sdk/usr/include/libdrm" -o "$work/files/usr/local/bin/triangle" $here/triangle.c \
    images/gpu-raw/card.c images/gpu-raw/options.c images/gpu-raw/picture.c \
    -L"$work/sdk/usr/lib/x86_64-linux-gnu" -Wl,--unresolved-symbols=ignore-in-shared-libs \
    -lgbm -lEGL -lGLESv2
install -m 755 $here/kmscube $here/glmark2 "$work/files/usr/local/bin/"

gpu_image 8b0d6c52-31f4-4c0e-93d7-6e2f0a51c7d4 384M \
    dash,libgl1-mesa-dri,libegl1,libgles2,libgbm1,kmscube,glmark2-es2-drm
