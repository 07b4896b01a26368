#!/bin/sh
# Real programs on a disk with what `bench.py --part real` has them do -> build/images/programs/: disk.img,
# tree/ (the same files, for the host), version.
cd "$(dirname "$0")/../.."
name=programs
. images/common.sh
. images/disk.sh
here=tests/bench/real

command -v python3 >/dev/null || die "no python3, which makes what the programs read"
work="$out.tmp"
rm -rf "$work"
mkdir -p "$work/files/bench"

say "programs: compiling"
install -m 644 $here/*.py $here/*.lua $here/*.js $here/*.pl $here/*.java $here/*.jq "$work/files/bench/"
install -m 755 $here/run "$work/files/bench/"
$here/generate.py c >"$work/files/bench/program.c"
$here/generate.py sql >"$work/files/bench/rows.sql"
$here/generate.py git >"$work/files/bench/history"
gcc -std=gnu11 -O2 -Wall -Wextra $werror -s -o "$work/files/bench/crypto" $here/crypto.c -lcrypto

say "programs: downloading and unpacking packages"
unpacked dash,coreutils,gcc,libc6-dev,python3,openssl,sqlite3,luajit,nodejs,perl,xz-utils,default-jdk-headless,ripgrep,gojq,git \
    --dpkgopt='path-exclude=/usr/lib/jvm/*/jmods/*' --dpkgopt='path-exclude=*lto-dump*'
mkdir "$work/tree"
tar -x -f "$work/root.tar" -C "$work/tree" --no-same-owner --exclude='./dev/*'
truncate -s 1280M "$work/disk.img"
file_system "$work/disk.img" 2d9f4b17-6a3c-4e5d-8c08-f1b57e30a6d2 0

(cd "$work" && sha256sum disk.img) >>"$work/version"
rm -rf "$work/files"
rm -rf "$out"
mv "$work" "$out"
say "$out: $(du -h "$out/disk.img" | cut -f1) of disk used"
