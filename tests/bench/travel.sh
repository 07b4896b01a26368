#!/bin/sh
# tests/bench: what the benches of time travel go about in: some 13 G instructions of mixed work.
# Each round says "OK round N": the console's marks are the same places in any recorder.
cd /tmp || exit 1

forks() {
    i=0
    while [ $i -lt "$1" ]; do
        (exit 3)
        i=$((i + 1))
    done
}

# Like a build: many small files read, transformed, packed together.
compile() {
    mkdir -p "src$1"
    i=0
    while [ $i -lt 40 ]; do
        seq $((i * 50)) $((i * 50 + 400)) >"src$1/$i.c"
        sed -e 's/\([0-9]\)\([0-9]\)/\2f(\1)/g' "src$1/$i.c" | sort | uniq -c >"src$1/$i.o"
        i=$((i + 1))
    done
    tar c "src$1" | gzip -c >"src$1.tgz"
    awk '{ n[$2] += $1 } END { for (k in n) s += n[k]; print s }' "src$1"/*.o >"sum$1"
}

round=0
while [ $round -lt "${ROUNDS:-4}" ]; do
    forks 100
    compile $round
    seq 1 60000 >plain
    gzip -c plain >packed.gz
    gunzip -c packed.gz | cmp - plain || exit 1
    yes 'the quick brown fox' | head -c 16777216 >"bulk$((round % 3))"
    cp "bulk$((round % 3))" copy
    head -c 4194304 /dev/urandom >"noise$((round % 2))"
    sha256sum copy | cut -c1-16
    awk 'BEGIN { x = 0.5; for (i = 1; i <= 40000; i++) { x = 3.75 * x * (1 - x); s += x / i }
        printf "%.9g\n", s }'
    rm -rf "src$round" plain copy packed.gz
    round=$((round + 1))
    echo "OK round $round"
done
echo "OK travel"
