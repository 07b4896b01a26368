#!/bin/sh
# A desktop: weston with a terminal, on Debian's Mesa -> build/images/gpu-desktop/.
cd "$(dirname "$0")/../.."
name=gpu-desktop
. images/common.sh
. images/disk.sh

work="$out.tmp"
rm -rf "$work"
mkdir -p "$work"
cp -r images/gpu-desktop/files "$work/files"

gpu_image c41f7a95-0e38-4d6b-a2f1-95b80d3e67aa 768M \
    libgl1-mesa-dri,weston,udev,xkb-data,fonts-dejavu-core,bash,dash,coreutils,grep,libc-bin,procps
