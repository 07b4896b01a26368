#!/bin/bash
# `make demo`: records a boot of Debian's kernel, replays it, verifies, and says what it took.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C
dir=build/demo
rec=$dir/boot
mkdir -p "$dir"

bold= plain=
if [ -t 1 ]; then
    bold=$'\e[1m' plain=$'\e[0m'
fi

say() {
    printf '\n%s== %s%s\n\n' "$bold" "$*" "$plain"
}

# field FILE NAME: a number or word out of one line of JSON.
field() {
    sed -n 's/.*"'"$2"'":"\{0,1\}\([^",}]*\).*/\1/p' "$1" | head -n 1
}

seconds() { # nanoseconds
    awk -v ns="$1" 'BEGIN { printf "%.3f s", ns / 1e9 }'
}

cat >"$dir/script.sh" <<'SCRIPT'
echo
echo "This is $(uname -sr) in the guest, at $(date -u '+%F %T')."
echo "Random bytes that nobody will see again, but for the recording:"
head -c 32 /dev/urandom | od -An -tx1
echo "A hundred processes: $(for i in $(seq 100); do (echo $i); done | awk '{ s += $1 } END { print s }')"
grep -E 'MemTotal|MemFree' /proc/meminfo
SCRIPT

say "1. Recording a boot of $(head -n 1 build/images/linux/version | cut -d' ' -f1) (console below)"
build/reprise record --force -o "$rec" --kernel build/images/linux/vmlinuz \
    --initrd build/images/linux/initrd --add "$dir/script.sh:/script.sh" \
    --append 'reprise.script=/script.sh' </dev/null | tee "$dir/console.recorded"

say "2. Replaying it"
began=$(date +%s%N)
build/reprise replay "$rec" >"$dir/console.replayed"
replay_ns=$(($(date +%s%N) - began))

say "3. Verifying: every digest of CPU and devices, all memory, the console"
build/reprise replay --verify --json "$rec" >"$dir/verify.json"
build/reprise info --json "$rec" >"$dir/info.json"
[ "$(field "$dir/verify.json" result)" = same ]
cmp "$dir/console.recorded" "$dir/console.replayed"
echo "The console's $(wc -c <"$dir/console.replayed") bytes, final registers, memory and device state are equal."

say "What it took"
row='%-24s %18s %18s\n'
printf "$row" '' recorded replayed
printf "$row" 'virtual time' "$(seconds "$(field "$dir/info.json" time)")" \
    "$(seconds "$(field "$dir/verify.json" time)")"
printf "$row" 'instructions' "$(field "$dir/info.json" position)" \
    "$(field "$dir/verify.json" position)"
printf "$row" 'wall time' "$(seconds "$(field "$dir/info.json" host_ns)")" "$(seconds $replay_ns)"
printf "$row" 'log' "$(field "$dir/info.json" log_bytes) bytes" ''

say "Try next"
cat <<EOT
  build/reprise info $rec                 what was recorded
  build/reprise events $rec               the log as text
  build/reprise trace $rec --from 1000000 --to 1000020
                                                  instructions, with the registers they changed
  build/reprise gdb $rec --to console:VFS
                                                  gdb where that was printed, forwards and backwards:
                                                  reverse-stepi, reverse-continue, watch, bt ...
  build/reprise record -o mine --kernel build/images/linux/vmlinuz --initrd build/images/linux/initrd
                                                  a shell on this terminal; Ctrl-A h helps, Ctrl-A x ends
  build/reprise replay --verify mine              and your session again
  make test                                       everything that can be checked here
EOT
