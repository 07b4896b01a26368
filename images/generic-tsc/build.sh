#!/bin/sh
# The module guest-agent/tsc for the generic image's kernel, a program that tests it, and a module with a
# race (tests/guest/module), added to that image's initramfs -> build/images/generic-tsc/. Needs Debian's headers of exactly that kernel.
cd "$(dirname "$0")/../.."
name=generic-tsc
. images/common.sh

# ext4 has RDTSC of its own: the tests load it.
begin_more crc16 mbcache jbd2 ext4

say "fetching the headers of $release"
sdk="$work/sdk"
for package in "linux-headers-$release" "linux-headers-${release%-amd64}-common"; do
    fetch "$package" "$sdk"
    of_that_kernel "$package"
done
kbuild=$(apt-cache depends "linux-headers-$release" | sed -n 's/^ *Depends: \(linux-kbuild-.*\)$/\1/p')
fetch "${kbuild:-linux-kbuild-${release%-amd64}}" "$sdk"
# The headers name each other by where they are when installed.
headers="$sdk/usr/src/linux-headers-$release"
sed -i "s#/usr/src/#$sdk/usr/src/#" "$headers/Makefile"

# build NAME FILE...: $work/NAME.ko. What a make that calls this was given is not for the kernel's. Types of
# the module for BPF (BTF), which would take pahole, nobody asks for.
build() {
    name=$1
    shift
    mkdir "$work/$name"
    cp "$@" "$work/$name/"
    env -u MAKEFLAGS -u MAKELEVEL make -s -C "$headers" M="$work/$name" CC=gcc \
        CONFIG_DEBUG_INFO_BTF_MODULES= modules >"$work/make.log" 2>&1 ||
        { cat "$work/make.log" >&2; die "the module $name does not compile"; }
    strip --strip-debug -o "$work/$name.ko" "$work/$name/$name.ko"
    install -D -m 644 "$work/$name.ko" "$root/lib/modules/$release/$name.ko"
}
build reprise_tsc guest-agent/tsc/Kbuild guest-agent/tsc/*.c guest-agent/tsc/*.h
build race tests/guest/module/*

gcc -std=gnu11 -O1 -Wall -Wextra $werror -Wno-unused-parameter -static -s -o "$work/tsc-test" \
    images/generic-tsc/*.c
install -D -m 755 "$work/tsc-test" "$root/bin/tsc-test"
end_more reprise_tsc.ko reprise_tsc.ko tsc-test
