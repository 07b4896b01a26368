"""`bench.py --part hunt`: recordings that a hunt makes a minute and core.

`reprise hunt` of a program that computes for 0.1 s natively, each run recorded, looked at and removed: the
CPU time of all of it. The machine that programs run in is made before.
"""
import os
import statistics
import subprocess
import time

from jobs import REPRISE, own_homes, run

RUNS = 30
PROMISED = 60  # recordings a minute and core
SOURCE = """#include <stdlib.h>
int main(int argc, char **argv)
{
    volatile unsigned long x = 0;
    for (unsigned long i = 0, n = strtoul(argv[1], NULL, 10); argc > 1 && i < n; i++)
        x += i;
    return 0;
}
"""


def rounds_of(program, seconds):
    """So many rounds take that long natively."""
    n = 1_000_000
    while True:
        best = min(run([program, n])["cpu"] for _ in range(3))
        if best > seconds / 2:
            return int(n * seconds / best)
        n *= 2


def measure(place, runs):
    own_homes(place)
    with open(f"{place}/spin.c", "w") as f:
        f.write(SOURCE)
    program = f"{place}/spin"
    subprocess.run(["gcc", "-O1", "-static", "-o", program, f.name], check=True)
    n = rounds_of(program, 0.1)
    run([REPRISE, "run", "true"])
    samples = [run([REPRISE, "hunt", "-o", f"{place}/hunt-{i}-{time.time_ns()}", "--runs", RUNS, "--stop-on", "exit",
                    "--", program, n]) for i in range(runs)]
    rate = 60 * RUNS / statistics.median(s["cpu"] for s in samples)
    return {"rows": [{"what": "hunt: recordings of 0.1 s, a minute and core", "number": rate, "value": f"{rate:.0f}",
                      "bound": f">= {PROMISED}", "good": rate >= PROMISED}],
            "notes": [f"hunt: {RUNS} runs of {n} rounds took {statistics.median(s['wall'] for s in samples):.1f} s on "
                      f"{len(os.sched_getaffinity(0))} CPUs"]}
