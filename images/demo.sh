#!/bin/sh
# `reprise demo`, `make demo`: records a boot of Debian's kernel, replays it, verifies, and says what it took.
#   images/demo.sh OUTPUT IMAGES    REPRISE=the program
set -eu
export LC_ALL=C
dir=$1
images=$2
rec=$dir/boot
mkdir -p "$dir"

bold= plain=
if [ -t 1 ]; then
    bold=$(printf '\033[1m') plain=$(printf '\033[0m')
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

[ -s "$images/linux/version" ] || "$REPRISE" image -o "$images" linux

cat >"$dir/script.sh" <<'SCRIPT'
echo
echo "This is $(uname -sr) in the guest, at $(date -u '+%F %T')."
echo "Random bytes that nobody will see again, but for the recording:"
head -c 32 /dev/urandom | od -An -tx1
echo "A hundred processes: $(for i in $(seq 100); do (echo $i); done | awk '{ s += $1 } END { print s }')"
grep -E 'MemTotal|MemFree' /proc/meminfo
SCRIPT

say "1. Recording a boot of $(head -n 1 "$images/linux/version" | cut -d' ' -f1) (console below)"
# A pipe's status is that of its end: a file has the other one.
{ "$REPRISE" record --force -o "$rec" --kernel "$images/linux/vmlinuz" \
    --initrd "$images/linux/initrd" --add "$dir/script.sh:/script.sh" \
    --append 'reprise.script=/script.sh' </dev/null; echo $? >"$dir/status"; } | tee "$dir/console.recorded"
[ "$(cat "$dir/status")" = 0 ] || exit "$(cat "$dir/status")"

say "2. Replaying it"
began=$(date +%s%N)
"$REPRISE" replay "$rec" >"$dir/console.replayed"
replay_ns=$(($(date +%s%N) - began))

say "3. Verifying: every digest of CPU and devices, all memory, the console"
"$REPRISE" replay --verify --json "$rec" >"$dir/verify.json"
"$REPRISE" info --json "$rec" >"$dir/info.json"
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

# As one would type it: by its name where that finds it.
program=$REPRISE
if [ "$(command -v reprise 2>/dev/null)" -ef "$REPRISE" ]; then program=reprise; fi
case $program in "$PWD"/*) program=${program#"$PWD"/} ;; esac
case $images in "$PWD"/*) images=${images#"$PWD"/} ;; esac

say "Try next"
cat <<EOT
  $program info $rec                 what was recorded
  $program events $rec               the log as text
  $program trace $rec --from 1000000 --to 1000020
                                                  instructions, with the registers they changed
  $program gdb $rec --to console:VFS
                                                  gdb where that was printed, forwards and backwards:
                                                  reverse-stepi, reverse-continue, watch, bt ...
  $program record -o mine --kernel $images/linux/vmlinuz --initrd $images/linux/initrd
                                                  a shell on this terminal; Ctrl-A h helps, Ctrl-A x ends
  $program replay --verify mine              and your session again
EOT
