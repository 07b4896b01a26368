#!/bin/sh
# build.sh OUT: the agent, static, so that it runs in any x86-64 guest.
set -eu
cd "$(dirname "$0")/.."
werror=
[ "${WERROR:-0}" != 1 ] || werror=-Werror
gcc -std=gnu11 -D_GNU_SOURCE -Os -Wall -Wextra -Wmissing-prototypes -Wstrict-prototypes -Wshadow -Wvla $werror \
    -static -s -I. -o "$1.tmp" guest-agent/agent/*.c
mv -f "$1.tmp" "$1"
