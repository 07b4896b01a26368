"""`bench.py --part speed`: what work costs in a guest, beside the same program on the host and in QEMU.

The program (speed/*.c) runs as the guest's only one, straight after the boot; a boot with the same
program doing nothing, measured in the same round, is subtracted. CPU time, so that what else the host
does matters little; rounds go through the configurations forwards and backwards in turns.
"""
import argparse
import math
import pathlib
import re
import shutil
import statistics
import subprocess

from jobs import LINUX, MEMORY, NOLOG, REPRISE, ROOT, info, qemu, record, run
from travel import say

PROGRAM = ROOT / "build" / "rel" / "tests" / "bench" / "speed" / "speed"
GROUPS = {
    "core": ("integer", "matrix", "memory", "sha256", "gzip", "syscalls", "fork"),
    "more": ("interp", "vcalls", "strings", "signals", "faults", "futex", "smc", "avx2"),
    "parts": ("branch", "load", "store", "call", "across", "rep", "syscall", "fault", "switch"),
}
WHAT = {"branch": "taken branch", "load": "load", "store": "store", "call": "call and return",
        "across": "code across two pages", "rep": "REP MOVSB, 16 bytes",
        "syscall": "system call (getppid)", "fault": "page fault (a new page)",
        "switch": "context switch (pipe)"}
AVX2 = ("avx2",)
# Reprise's CPU model and QEMU's.
MODELS = {"v2": ("x86-64-v2", "Nehalem"), "v3": ("x86-64-v3", "max")}
COLUMNS = ("no log", "recorded", "replayed", "QEMU", "QEMU recorded")


def chosen(text):
    """Names of --only: of workloads or groups."""
    everything = [n for group in GROUPS.values() for n in group]
    names = []
    for word in text.split(","):
        names += everything if word == "all" else GROUPS.get(word, (word,))
    for name in names:
        if name not in everything:
            raise argparse.ArgumentTypeError(f"no workload is called {name}; there are "
                                             f"{', '.join(everything)}")
    return [n for n in everything if n in names]


def append_file(base, path, name, out):
    """What --add does, for QEMU: a second newc archive behind the first."""
    def entry(name, mode, data):
        head = "070701" + "".join(f"{n:08x}" for n in (
            1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0))
        text = head.encode() + name.encode() + b"\0"
        return text + bytes(-len(text) % 4) + data + bytes(-len(data) % 4)

    first = base.read_bytes()
    out.write_bytes(first + bytes(-len(first) % 4) + entry(name, 0o100755, path.read_bytes()) +
                    entry("TRAILER!!!", 0, b""))


class Speed:
    def __init__(self, place, runs, with_qemu):
        self.place, self.runs = pathlib.Path(place), runs
        self.columns = [c for c in COLUMNS if with_qemu or not c.startswith("QEMU")]
        self.samples, self.sums, self.counts = {}, {}, {}
        append_file(LINUX / "initrd", PROGRAM, "bin/speed", self.place / "speed.initrd")

    def argv(self, work, column, model):
        ours, theirs = MODELS[model]
        append = f"console=ttyS0 panic=-1 quiet -- speed {work}"
        add = f"{PROGRAM}:/bin/speed"
        recording = self.place / f"speed-{model}-{work}"
        if column == "native":
            return [PROGRAM, work]
        if column == "no log":
            return [NOLOG, ours, str(MEMORY), LINUX / "vmlinuz", LINUX / "initrd", append, add]
        if column == "recorded":
            return record(recording, "--engine", "dbt", "--cpu", ours, "--add", add, append=append)
        if column == "replayed":
            return [REPRISE, "replay", recording]
        return qemu(self.place, append, self.place / "speed.initrd", theirs, column == "QEMU recorded")

    def once(self, work, column, model):
        out = self.place / "speed.out"
        sample = run(self.argv(work, column, model), out)
        if work != "nothing":
            found = re.search(rf"speed {work} ([0-9a-f]{{16}}) (\d+)", out.read_text(errors="replace"))
            if not found:
                raise SystemExit(f"bench: speed {work}, {column}: it printed no checksum")
            if self.sums.setdefault(work, found.group(1)) != found.group(1):
                raise SystemExit(f"bench: speed {work}, {column}: checksum {found.group(1)}, natively "
                                 f"{self.sums[work]}")
            self.counts[work] = int(found.group(2))
        if column == "recorded":
            facts = info(self.place / f"speed-{model}-{work}")
            sample.update(instructions=facts["position"], log=facts["log_bytes"])
        if column == "QEMU recorded":
            sample["log"] = (self.place / "qemu.rr").stat().st_size
        self.samples.setdefault((work, model), {}).setdefault(column, []).append(sample)

    def measure(self, works):
        """works: (name, model). The boot that is subtracted comes first in each round."""
        models = sorted({model for _, model in works})
        jobs = [("nothing", model) for model in models] + works
        for turn in range(self.runs):
            for work, model in jobs:
                # Native first for its checksum; a replay has the last round's recording, if it must.
                order = ["native"] + self.columns[::-1 if turn % 2 else 1]
                for column in order:
                    say(f"{turn + 1}/{self.runs} speed {work}, {column}")
                    self.once(work, column, model)
        say("")

    def net(self, work, model, column, what="cpu"):
        """Of each round, what the work took beyond the boot."""
        return [a[what] - b[what] for a, b in zip(self.samples[work, model][column],
                                                  self.samples["nothing", model][column])]

    def facts_of(self, work, model):
        def median(values):
            return statistics.median(values)

        def rss(column):
            return median(s["rss"] for s in self.samples[work, model][column]) / 1024

        native = self.net(work, model, "native")
        f = {"native_s": median(native), "checksum": self.sums[work],
             "ratios": {}, "cpu_s": {}, "peak_mib": {}}
        for column in self.columns:
            cpu = self.net(work, model, column)
            f["cpu_s"][column] = median(cpu)
            f["ratios"][column] = median(a / b for a, b in zip(cpu, native))
            f["peak_mib"][column] = rss(column)
        for name, of in (("recorded", "no log"), ("replayed", "recorded"),
                         ("recorded", "QEMU recorded")):
            if of in self.columns:
                f["ratios"][f"{name} / {of}"] = median(
                    a / b for a, b in zip(self.net(work, model, name), self.net(work, model, of)))
        f["instructions"] = median(self.net(work, model, "recorded", "instructions"))
        f["mips"] = f["instructions"] / f["cpu_s"]["recorded"] / 1e6
        f["log_bytes"] = median(self.net(work, model, "recorded", "log"))
        f["log_bytes_per_1000"] = 1000 * f["log_bytes"] / f["instructions"]
        if "QEMU recorded" in self.columns:
            f["qemu_log_bytes"] = median(self.net(work, model, "QEMU recorded", "log"))
        if work in GROUPS["parts"]:
            f["ns"] = {c: 1e9 * s / self.counts[work]
                       for c, s in {"native": f["native_s"], **f["cpu_s"]}.items()}
        return f


def geometric_mean(values):
    """None if one of them is lost in the noise of the boot."""
    return math.exp(statistics.mean(map(math.log, values))) if values and min(values) > 0 else None


def lines_of_works(facts, columns):
    """Times as multiples of native, and what it is in instructions, log and memory."""
    if not facts:
        return []
    head = f"{'workload':<14}{'native':>9}" + "".join(f"{c:>15}" for c in columns)
    lines = ["CPU time of work, without the boot's: natively, and as multiples of that:", head]
    for work, f in facts.items():
        lines.append(f"{work:<14}{f['native_s']:>7.2f} s" +
                     "".join(f"{f['ratios'][c]:>15.2f}" for c in columns))
    for name, group in (("of the core", GROUPS["core"]), ("of all", tuple(facts))):
        if set(group) <= set(facts) and (name == "of all" or len(group) < len(facts)):
            means = [geometric_mean([facts[w]["ratios"][c] for w in group]) for c in columns]
            lines.append(f"{'mean ' + name:<23}" +
                         "".join(f"{m:>15.2f}" if m else f"{'-':>15}" for m in means))
    lines += ["The means are geometric.", "",
              f"{'workload':<14}{'M insns':>9}{'M/s':>7}{'log':>11}{'per 1000':>10}" +
              (f"{'QEMU log':>13}" if "QEMU recorded" in columns else "") +
              f"   peak MiB: {', '.join(columns)}"]
    for work, f in facts.items():
        qemu_log = f"{f['qemu_log_bytes']:>11.0f} B" if "qemu_log_bytes" in f else ""
        lines.append(f"{work:<14}{f['instructions'] / 1e6:>9.0f}{f['mips']:>7.0f}{f['log_bytes']:>9.0f} B"
                     f"{f['log_bytes_per_1000']:>10.5f}{qemu_log}   "
                     + ", ".join(f"{f['peak_mib'][c]:.0f}" for c in columns))
    return lines + [""]


def lines_of_parts(facts, columns):
    if not facts:
        return []
    columns = ["native", *columns]
    lines = ["One thing at a time, nanoseconds of CPU time each:",
             f"{'':<25}" + "".join(f"{c:>15}" for c in columns)]
    for work, f in facts.items():
        lines.append(f"{WHAT[work]:<25}" + "".join(f"{f['ns'][c]:>15.2f}" for c in columns))
    return lines + [""]


def rows_of(facts, parts):
    def row(what, number, text):
        return {"what": what, "number": number, "value": text, "bound": "", "good": True}

    rows = [row(f"speed: {work}, recorded / native", f["ratios"]["recorded"],
                f"{f['ratios']['recorded']:.2f}") for work, f in facts.items()]
    for name, of in (("recorded", "native"), ("recorded", "no log"), ("replayed", "recorded"),
                     ("recorded", "QEMU recorded")):
        key = name if of == "native" else f"{name} / {of}"
        values = [f["ratios"][key] for f in facts.values() if key in f["ratios"]]
        mean = geometric_mean(values)
        if mean:
            rows.append(row(f"speed: geometric mean of {len(values)}, {name} / {of}", mean,
                            f"{mean:.3f}"))
    return rows + [row(f"speed: a {WHAT[work]}: native, recorded", f["ns"]["recorded"],
                       f"{f['ns']['native']:.2f}, {f['ns']['recorded']:.2f} ns")
                   for work, f in parts.items()]


def measure(place, runs, names):
    notes = []
    with_qemu = bool(shutil.which("qemu-system-x86_64"))
    if not with_qemu:
        notes.append("speed: qemu-system-x86_64 is not installed: nothing is compared with it")
    works = [(n, "v3" if n in AVX2 else "v2") for n in names]
    if not re.search(r"\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text()):
        notes += [f"speed: {n} is left out: this host has no AVX2" for n in names if n in AVX2]
        works = [w for w in works if w[0] not in AVX2]
    s = Speed(place, runs, with_qemu)
    s.measure(works)
    facts = {work: s.facts_of(work, model) for work, model in works}
    parts = {w: f for w, f in facts.items() if w in GROUPS["parts"]}
    whole = {w: f for w, f in facts.items() if w not in parts}
    notes = lines_of_works(whole, s.columns) + lines_of_parts(parts, s.columns) + notes
    return {"rows": rows_of(whole, parts), "notes": notes,
            "samples": {"works": facts, "rounds": {f"{w} {m}": c for (w, m), c in s.samples.items()}}}
