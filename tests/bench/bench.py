#!/usr/bin/env python3
"""`make bench`: what is promised about speed and memory, as ratios measured in one run.

Medians of --runs runs, taken in turns so that a noisy minute hits all alike. CPU time is user plus
system of the child (getrusage); resident memory is its VmHWM. QEMU is optional.
"""
import argparse
import json
import pathlib
import re
import resource
import shutil
import statistics
import sys
import tempfile

import agent
import counts
import cpus
import gpu
import hunt
import kvm
import pmu
import real
import server
import share
import speed
import travel
import work
from jobs import APPEND, LINUX, MEMORY, NOLOG, REPRISE, ROOT, TINY, info, qemu, record, run, stats


class Bench:
    def __init__(self, place, runs):
        self.place, self.runs, self.samples = pathlib.Path(place), runs, {}

    def rounds(self, jobs):
        """jobs: name -> argv or function; each once a round."""
        for turn in range(self.runs):
            for name, job in jobs.items():
                if sys.stderr.isatty():
                    print(f"\r\033[K{turn + 1}/{self.runs} {name}", end="", file=sys.stderr)
                self.samples.setdefault(name, []).append(
                    run(job, self.place / (re.sub(r"\W", "-", name) + ".out")))
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)

    def median(self, name, what="cpu"):
        return statistics.median(s[what] for s in self.samples[name])

    def ratio(self, a, b):
        """Median of the ratios of runs that were neighbours."""
        return statistics.median(x["cpu"] / y["cpu"]
                                 for x, y in zip(self.samples[a], self.samples[b]))


PARTS = {"travel": travel.measure, "server": lambda place, runs: server.measure(place), "gpu": gpu.measure, "kvm": kvm.measure,
         "share": share.measure, "hunt": hunt.measure, "agent": agent.measure, "cpus": cpus.measure,
         "counts": counts.measure}
CHOSEN = {"speed": speed, "real": real, "pmu": pmu}  # of which --only names some


def add(result, part, more):
    result["rows"] += more["rows"]
    result["notes"] += more["notes"]
    if "samples" in more:
        result[part] = more["samples"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    parser.add_argument("--part", choices=("record", *PARTS, *CHOSEN, "all"),
                        default="all",
                        help="recording and replay, travel in time (travel.py), a Debian server "
                        "(server.py), programs that draw (gpu.py), the KVM engine (kvm.py), the speed of "
                        "work beside native and QEMU (speed.py), real programs likewise (real.py), files of the "
                        "host (share.py), a hunt (hunt.py), the agent in a guest (agent.py), several vCPUs (cpus.py), what they cost counted (counts.py), the guest's counters (pmu.py), or all")
    parser.add_argument("--only", metavar="NAME[,NAME...]", default="all",
                        help="of --part speed, real or pmu: some workloads or groups (" +
                        ", ".join([*speed.GROUPS, *real.WHAT, *pmu.GROUPS["counting"]]) + ")")
    args = parser.parse_args()
    groups = {part: of.GROUPS for part, of in CHOSEN.items()}
    try:
        only = work.chosen(args.only, {part: groups[part] for part in groups if args.part in (part, "all")}
                           or groups)
    except ValueError as e:
        parser.error(str(e))
    place = tempfile.mkdtemp(prefix="reprise-bench-")
    result = {"rows": [], "notes": [], "runs": args.runs}
    try:
        if args.part in ("record", "all"):
            result = measure(Bench(place, args.runs))
        for part, run in PARTS.items():
            if args.part in (part, "all"):
                add(result, part, run(place, args.runs))
        for part, of in CHOSEN.items():
            if args.part in (part, "all") and only[part]:
                add(result, part, of.measure(place, args.runs, only[part]))
    finally:
        shutil.rmtree(place)
    if args.json:
        print(json.dumps(result, indent=1))
        return
    travel.show(result)


def measure(b):
    rows, notes = [], []

    def row(what, value, unit="", bound=None, digits=2):
        text = f"{value:.{digits}f}{unit}" if isinstance(value, float) else f"{value}{unit}"
        limit = "" if bound is None else f"<= {bound}{unit}"
        rows.append({"what": what, "number": value, "value": text, "bound": limit,
                     "good": bound is None or value <= bound})

    boot = b.place / "boot"
    jobs = {"record": record(boot),
            "no log": [NOLOG, "x86-64-v2", str(MEMORY), LINUX / "vmlinuz", LINUX / "initrd", APPEND],
            "replay": [REPRISE, "replay", boot]}
    if shutil.which("qemu-system-x86_64"):
        jobs["qemu"] = qemu(b.place)
    else:
        notes.append("qemu-system-x86_64 is not installed: nothing is compared with it")
    b.rounds(jobs)
    facts = info(boot)
    row("boot: instructions", facts["position"] / 1e9, " G")
    row("boot recorded: CPU time", b.median("record"), " s")
    row("boot recorded: speed", facts["position"] / b.median("record") / 1e6, " M/s", digits=0)
    if "qemu" in jobs:
        row("boot recorded by QEMU: CPU time", b.median("qemu"), " s")
        row("recording / QEMU recording", b.ratio("record", "qemu"), "", 1.0)
    row("recording / engine without a log", b.ratio("record", "no log"), "", 1.03, 3)
    row("replay / recording", b.ratio("replay", "record"), "", 1.05, 3)
    row("boot: log", facts["log_bytes"] / 1024, " KiB", 64, 1)
    ram = stats([REPRISE, "replay", "--stats", "--json", boot])["stats"]["touched_bytes"] / 2**20
    row("boot: guest RAM touched", round(ram), " MiB")
    row("boot: resident, beyond guest RAM touched", b.median("record", "rss") / 1024 - ram, " MiB",
        160, 0)

    storm = b.place / "storm"
    extra = [f"{ROOT}/tests/bench/storm.sh:/storm.sh",
             f"{ROOT}/build/images/guest/check:/bin/check"]
    append = "console=ttyS0 panic=-1 quiet reprise.script=/storm.sh"
    b.rounds({"storm": record(storm, "--add", extra[0], "--add", extra[1], append=append),
              "fault storm": record(b.place / "faults", kernel=TINY / "faultstorm.elf",
                                    initrd=None)})
    notes.append("page-table tracking, from the engine's counters:")
    for name, s, cpu, of in (
            ("boot", stats(jobs["no log"]), b.median("record"), facts),
            ("fork, exec, mprotect", stats([*jobs["no log"][:5], append, *extra]),
             b.median("storm"), info(storm)),
            ("100,000 page faults", stats([NOLOG, "x86-64-v2", str(MEMORY),
                                           TINY / "faultstorm.elf"]),
             b.median("fault storm"), info(b.place / "faults"))):
        notes.append(f"  {name:<22} {of['position'] / 1e6:8.0f} M insns {cpu:6.2f} s CPU "
                     f"{of['position'] / cpu / 1e6:6.0f} M/s; exceptions {s['exceptions']}, "
                     f"page-table writes {s['pt_writes']}, TLB fills {s['tlb_fills']}, "
                     f"flushes {s['tlb_flushes']}")
    return {"rows": rows, "notes": notes, "runs": b.runs,
            "samples": b.samples, "peak_rss_self": resource.getrusage(
                resource.RUSAGE_SELF).ru_maxrss}


main()
