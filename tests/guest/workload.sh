#!/bin/sh
# The workload of the boot tests: runs in the guest, prints "OK NAME RESULT" per step; the test
# knows the right results. MODEL, in the environment: v2, v3 or v4.
cd /tmp || exit 1

ok() {
    echo "OK $*"
}

ok sha256 "$(yes 'the quick brown fox' | head -c 67108864 | sha256sum | cut -d' ' -f1)"
ok zeros "$(head -c 8388608 /dev/zero | sha512sum | cut -c1-32)"

seq 1 150000 >plain
gzip -c plain >packed.gz
gunzip -c packed.gz >back
cmp plain back && ok gzip "$(md5sum <back | cut -d' ' -f1)"
rm -f plain packed.gz back

ok awk "$(awk 'BEGIN { x = 0.5; for (i = 1; i <= 100000; i++) { x = 3.75 * x * (1 - x); s += x / i }
    printf "%.15g %.15g", x, s }')"

i=0
sum=0
while [ $i -lt 500 ]; do
    (exit $((i % 7)))
    sum=$((sum + $?))
    i=$((i + 1))
done
ok forks $sum

ok pipes "$(seq 1 20000 | awk '{ print $1 % 1000 }' | sort -n | uniq -c | tail -n 1 | tr -s ' ' | cut -c2-)"

caught=0
trap 'caught=$((caught + 1))' USR1
i=0
while [ $i -lt 100 ]; do
    kill -USR1 $$
    i=$((i + 1))
done
ok signals $caught
sleep 60 &
kill -TERM $!
wait $!
ok killed $?

dd if=/dev/urandom of=noise bs=64k count=16 2>/dev/null
ok urandom "$(wc -c <noise)"

check "${MODEL:-v2}" >check.out
status=$?
grep -v '^OK' check.out
ok check $status "$(grep -c '^OK' check.out)"
