"""`bench.py --part cpus`: what several vCPUs cost, CPU time of the recorder with 4 beside that with 1.

A boot; a load of one thread (programs of --part speed), and 1,000,000 turns that two threads hand each other,
each less its boot; a parallel build in Debian's image, if it is there, less its boot.
"""
import statistics
import subprocess

from jobs import REPRISE, ROOT, record, run

SPEED = ROOT / "build" / "rel" / "tests" / "bench" / "speed" / "speed"
DEBIAN = ROOT / "build" / "images" / "debian"
ALONE = ("integer", "interp", "syscalls", "fork")
TURNS = 1_000_000
CPUS = 1, 4
FILES = 24
# Hands a number to and fro, waiting by PAUSE, which gives the turn on.
SOURCE = """#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
static volatile long at, most;
static void *hand(void *parity)
{
    cpu_set_t own;
    CPU_ZERO(&own);
    CPU_SET((long)parity, &own);
    sched_setaffinity(0, sizeof(own), &own);
    for (long me = (long)parity; me < most; me += 2) {
        while (at != me)
            __builtin_ia32_pause();
        at = me + 1;
    }
    return 0;
}
int main(int argc, char **argv)
{
    pthread_t other;
    most = atol(argv[1]);
    pthread_create(&other, 0, hand, (void *)1);
    hand(0);
    pthread_join(other, 0);
    return 0;
}
"""
# With systemd.run= it is run instead of a server's services, and the machine ends with it.
BUILD = f"""mkdir -p /root/b && cd /root/b
for i in $(seq {FILES}); do printf '#include <stdio.h>\\n#include <string.h>\\n#include <stdlib.h>\\nint f%d(const char *a) {{ char b[99]; snprintf(b, 99, "%%s", a); return atoi(b) + (int)strlen(b); }}\\n' $i >"f$i".c; done
printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\\n%%.o: %%.c\\n\\tgcc -O2 -c -o $@ $<\\n' >Makefile
make -s -j4
"""


def debian(place, name, script, cpus):
    """A disk of the script's text is what is run."""
    disk = f"{place}/{name}.disk"
    text = (script + "exit 0\n").encode()
    with open(disk, "wb") as f:
        f.write(text + b"\n" * (-len(text) % 4096))
    return [REPRISE, "record", "--force", "-o", recording(place), "--memory", "1G", "--seed", "1", "--cpus", cpus, "--kernel",
            DEBIAN / "vmlinuz", "--initrd", DEBIAN / "initrd", "--disk", DEBIAN / "disk.img", "--disk", f"{disk},readonly", "--append",
            "root=/dev/vda1 ro quiet systemd.run=\"/bin/sh /dev/vdb\" systemd.run_success_action=poweroff-force"]


def recording(place):
    """Where each of the jobs leaves its own."""
    return f"{place}/cpus"


def with_cpus(n, *more):
    return "--cpus", n, "--add", f"{SPEED}:/bin/speed", *more


def alone(place, *more, seed=1):
    """A boot, and each load of one thread after one."""
    loads = {"boot": "true"} | {name: f"speed {name}" for name in ALONE}
    return {(name, n): record(recording(place), *with_cpus(n, *more), append=f"quiet -- {what}", seed=seed)
            for name, what in loads.items() for n in CPUS}


def jobs_of(place):
    with open(f"{place}/hand.c", "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O1", "-static", "-pthread", "-o", f"{place}/hand", f.name], check=True)
    hand = "--add", f"{place}/hand:/bin/hand"
    jobs = alone(place, *hand)
    if (DEBIAN / "disk.img").exists():
        jobs |= {("debian", n): debian(place, f"none{n}", "", n) for n in CPUS}
        jobs |= {("build", n): debian(place, f"build{n}", BUILD, n) for n in CPUS}
    jobs["hand", 4] = record(recording(place), *with_cpus(4, *hand), append=f"quiet -- hand {TURNS}")
    return jobs


def measure(place, runs):
    """Ratios are of a round, in which a load with one vCPU and with several are neighbours, forwards and backwards in turns."""
    jobs = jobs_of(place)
    rounds = []
    for i in range(runs):
        rounds.append({k: run(argv)["cpu"] for k, argv in list(jobs.items())[::-1 if i % 2 else 1]})
    rows = []

    def row(what, number, bound, unit="", digits=2):
        value = statistics.median(map(number, rounds))
        rows.append({"what": f"cpus: {what}", "number": value, "value": f"{value:.{digits}f}{unit}", "bound": f"<= {bound}{unit}",
                     "good": value <= bound})

    def ratio(name, without):
        return lambda r: (r[name, 4] - r[without, 4]) / (r[name, 1] - r[without, 1])

    row("boot with 4 vCPUs / with 1", lambda r: r["boot", 4] / r["boot", 1], 1.25)
    for name in ALONE:
        row(f"{name} with 4 vCPUs / with 1", ratio(name, "boot"), 1.03)
    if ("build", 4) in jobs:
        row("make -j4, in all, with 4 vCPUs / with 1", lambda r: r["build", 4] / r["build", 1], 1.3)
        row("... without both boots", ratio("build", "debian"), 1.3)
    row("a switch of vCPU", lambda r: 1e9 * (r["hand", 4] - r["boot", 4]) / TURNS, 200, " ns", 0)
    return {"rows": rows, "notes": ["cpus: " + ", ".join(f"{a} {n}: {statistics.median(r[a, n] for r in rounds):.2f} s" for a, n in jobs)]}
