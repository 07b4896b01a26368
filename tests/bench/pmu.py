"""`bench.py --part pmu`: what the guest's performance counters cost, in host instructions (jobs.counted()) and CPU time.

Where nobody uses them: loads of --part speed, with counters beside without. Where a program's branches are counted:
beside its instructions, which are counted anyway. Of replays, each less its boot. --runs are seeds: medians of the ratios.
"""
import json
import statistics
import subprocess

import cpus
import work
from jobs import REPRISE, ROOT, counted, own_homes, record, run
from speed import GROUPS as OF_SPEED
from speed import PROGRAM

MODEL = "skylake"
GROUPS = {"core": OF_SPEED["core"], "counting": ("branches:u", "r1c4:u")}  # r1c4: the conditional ones, which rr counts
DISK = ROOT / "build" / "images" / "counters" / "disk.img"
WORK = 400000


def unused(place, load, pmu, seed):
    """Linux' NMI watchdog would use one."""
    return record(cpus.recording(place), "--cpu", MODEL, "--pmu", pmu, "--add", f"{PROGRAM}:/bin/speed",
                  append=f"quiet nmi_watchdog=0 -- {f'speed {load}' if load else 'true'}", seed=seed)


def counting(place, event, n, seed):
    script = f"mkdir /mnt; mount -t ext4 -o ro /dev/vda /mnt; counters /mnt perf stat -e {event} work {n}"
    return record(cpus.recording(place), "--cpu", MODEL, "--disk", f"{DISK},readonly", "--add", f"{ROOT}/images/counters/run:/bin/counters",
                  append=f'quiet nmi_watchdog=0 -- "{script}"', seed=seed, memory=1024)


def cost(place, argv):
    """G instructions of the host, and CPU seconds, of a replay, which needs a CPU with what the recording's has."""
    run(argv)
    recording = cpus.recording(place)
    return counted(place, recording, "--cpu", MODEL) / 1e9, run([REPRISE, "replay", recording])["cpu"]


def less(a, b):
    return [x - y for x, y in zip(a, b)]


def measure(place, runs, names):
    shown = json.loads(subprocess.run([REPRISE, "cpu", "show", "--json", MODEL], stdout=subprocess.PIPE, check=True).stdout)
    if not shown["here"]:
        return {"rows": [], "notes": [f"pmu: skipped: this CPU lacks {', '.join(shown['lacks'])} (--cpu {MODEL})"]}
    own_homes(place)
    rows, notes = [], ["pmu: G instructions of the host, by seed; and the ratio of CPU times:"]

    def row(what, bound, samples):
        """Of each seed what it took with and without."""
        ratios = [[x / y for x, y in zip(a, b)] for a, b in samples]
        value = statistics.median(r[0] for r in ratios)
        rows.append(work.row(f"pmu: {what}", value, f"{value:.3f}", bound))
        notes.append(f"  {what}: " + "; ".join(f"{a[0]:.3f} / {b[0]:.3f}, {r[0]:.3f} ({r[1]:.2f})" for (a, b), r in zip(samples, ratios)))
        return value

    seeds = range(1, runs + 1)
    loads = [n for n in names if n in GROUPS["core"]]
    if loads:
        boots = [[cost(place, unused(place, None, pmu, seed)) for pmu in ("on", "off")] for seed in seeds]
        row("boot with counters / without", 1.01, boots)
        values = [row(f"{load} with counters / without", 1.01,
                      [[less(cost(place, unused(place, load, pmu, seed)), boot) for pmu, boot in zip(("on", "off"), boots[seed - 1])]
                       for seed in seeds]) for load in loads]
        mean = statistics.geometric_mean(values)
        rows.append(work.row(f"pmu: geometric mean of {len(values)}", mean, f"{mean:.3f}"))
    events = [n for n in names if n in GROUPS["counting"]]
    if events and not DISK.exists():
        notes.append("pmu: counting is left out: no image counters (make image-counters)")
        events = []
    if events:
        def took(event, seed):
            return less(*(cost(place, counting(place, event, n, seed)) for n in (WORK, 1)))
        plain = [took("instructions:u", seed) for seed in seeds]
        for event in events:
            row(f"counting {event} / instructions:u", 1.15, [[took(event, seed), plain[seed - 1]] for seed in seeds])
    return {"rows": rows, "notes": notes}
