#!/bin/sh
# tests/bench: fork, exec and page-fault storms in the guest; what the tracked page tables cost.
i=0
while [ $i -lt 1000 ]; do
    (exit 3)
    i=$((i + 1))
done
i=0
while [ $i -lt 300 ]; do
    /bin/busybox true
    i=$((i + 1))
done
i=0
while [ $i -lt 20 ]; do
    check v2 >/dev/null
    i=$((i + 1))
done
echo "OK storm"
