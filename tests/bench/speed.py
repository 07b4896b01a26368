"""`bench.py --part speed`: what work costs in a guest, beside the same program on the host and in QEMU.

The program (speed/*.c) is static, and one file for all; work.py runs it. What of it computes is built once more
for 32 bits, where gcc can. Parts of ring 0 are a guest by themselves (images/tiny/ring0.c).
"""
import statistics
import subprocess

import work
from jobs import NOLOG, REPRISE, ROOT, TINY, counted, own_homes, record
from travel import say

PROGRAM = ROOT / "build" / "rel" / "tests" / "bench" / "speed" / "speed"
SOURCES = [ROOT / "tests" / "bench" / "speed" / f"{name}.c" for name in ("main", "compute", "sha256")]
TIMES = {"cr3": 4000000, "port": 1000000}  # how often, of what is ring 0's
GROUPS = {
    "core": ("integer", "matrix", "memory", "sha256", "gzip", "syscalls", "fork"),
    "more": ("interp", "vcalls", "strings", "signals", "faults", "futex", "smc", "avx2"),
    "narrow": ("integer-32", "matrix-32", "memory-32", "sha256-32"),
    "parts": ("branch", "load", "store", "call", "across", "rep", "syscall", "fault", "switch"),
    "ring0": tuple(TIMES),
}
WHAT = {"branch": "taken branch", "load": "load", "store": "store", "call": "call and return",
        "across": "code across two pages", "rep": "REP MOVSB, 16 bytes",
        "syscall": "system call (getppid)", "fault": "page fault (a new page)",
        "switch": "context switch (pipe)", "cr3": "CR3 write, and a load", "port": "OUT to a port"}
AVX2 = ("avx2",)


class Speed(work.Work):
    name = "speed"
    program = PROGRAM

    def native(self, name, model, column):
        return [self.program, name]

    def command(self, name, model):
        return f"speed {name}"

    def facts_of(self, name, model):
        f = super().facts_of(name, model)
        if name in GROUPS["parts"]:
            f["ns"] = {c: 1e9 * s / self.counts[name]
                       for c, s in {"native": f["native_s"], **f["cpu_s"]}.items()}
        return f


class Ring0(work.Work):
    """What no program may do: a guest without Linux, whose command line says what it does."""
    name = "ring0"
    host = ()
    columns = ("no log", "recorded", "replayed")

    def __init__(self, place, runs):
        super().__init__(place, runs, self.columns)

    def argv(self, name, column, model):
        ours, kernel, append = work.MODELS[model][0], TINY / "ring0.elf", f"{name}={TIMES.get(name, 0)}"
        if column == "no log":
            return [NOLOG, ours, str(self.memory), kernel, "", append]
        if column == "recorded":
            return record(self.recording(name, model), "--engine", "dbt", "--cpu", ours, "--append", append,
                          kernel=kernel, initrd=None, memory=self.memory)
        return [REPRISE, "replay", self.recording(name, model)]

    def facts_of(self, name, model):
        return {"ns": {c: 1e9 * statistics.median(self.net(name, model, c)) / self.counts[name] for c in self.columns}}


def host_instructions(place, w, works, facts, notes):
    """Of each part, of a replay: counted in a machine of ours, which needs no counter of this one."""
    own_homes(place)

    def of(name, model):
        say(f"{w.name} {name}, its instructions")
        return counted(place, w.recording(name, model))

    try:
        boots = {model: of("nothing", model) for model in {model for _, model in works}}
        for name, model in works:
            facts[name]["instructions_host"] = (of(name, model) - boots[model]) / w.counts[name]
    except SystemExit as e:
        notes.append(f"speed: instructions of the host were not counted: {e}")
    say("")


def lines_of_parts(facts, columns):
    if not facts:
        return []
    columns = ["native", *columns]
    lines = ["One thing at a time, nanoseconds of CPU time each; instructions of the host in a replay:",
             f"{'':<25}" + "".join(f"{c:>15}" for c in columns) + f"{'instructions':>15}"]
    for name, f in facts.items():
        lines.append(f"{WHAT[name]:<25}" + "".join(f"{f['ns'][c]:>15.2f}" if c in f["ns"] else f"{'-':>15}" for c in columns) +
                     (f"{f['instructions_host']:>15.1f}" if "instructions_host" in f else f"{'-':>15}"))
    return lines + [""]


def rows_of_parts(facts):
    return [work.row(f"speed: {WHAT[name]}: native, recorded", f["ns"]["recorded"],
                     (f"{f['ns']['native']:.2f}, " if "native" in f["ns"] else "-, ") + f"{f['ns']['recorded']:.2f} ns")
            for name, f in facts.items()]


class Narrow(Speed):
    """The same program of 32 bits."""

    def __init__(self, place, runs, columns):
        place = place / "narrow"
        place.mkdir()
        self.program = place / "speed"
        subprocess.run(["gcc", "-m32", "-std=gnu11", "-O2", "-msse2", "-mfpmath=sse", "-static", "-o", self.program,
                        *SOURCES], check=True, stderr=subprocess.DEVNULL)
        super().__init__(place, runs, columns)


def measure_narrow(place, runs, columns, names, notes):
    try:
        s = Narrow(place, runs, columns)
    except (OSError, subprocess.CalledProcessError):
        notes.append("speed: code of 32 bits is left out: gcc -m32 -static does not work here (Debian: "
                     "apt-get install gcc-multilib)")
        return {}, {}
    return {name: s.facts_of(name, model) for name, model in s.measure([(n, "v2") for n in names])}, s.failed


def rows_of_narrow(facts):
    """What code of 32 bits loses, beside the same in 64 bits."""
    pairs = [(facts[n], facts[n.removesuffix("-32")]) for n in GROUPS["narrow"]
             if n in facts and n.removesuffix("-32") in facts]
    mean = work.geometric_mean([a["ratios"]["recorded"] / b["ratios"]["recorded"] for a, b in pairs])
    return [work.row(f"speed: of 32 bits / of 64 bits, recorded / native, mean of {len(pairs)}", mean,
                     f"{mean:.2f}")] if mean else []


def measure(place, runs, names):
    notes = []
    columns = work.columns_here("speed", notes)
    narrow = [n for n in names if n in GROUPS["narrow"]]
    ring0 = [(n, "v2") for n in names if n in GROUPS["ring0"]]
    names = [n for n in names if n not in narrow and n not in TIMES]
    works = [(n, "v3" if n in AVX2 else "v2") for n in names]
    if not work.host_has_avx2():
        notes += [f"speed: {n} is left out: this host has no AVX2" for n in names if n in AVX2]
        works = [w for w in works if w[0] not in AVX2]
    s = Speed(place, runs, columns)
    good = s.measure(works) if works else []
    facts = {name: s.facts_of(name, model) for name, model in good}
    of_parts = [w for w in good if w[0] in GROUPS["parts"]]
    if of_parts:
        host_instructions(s.place, s, of_parts, facts, notes)
    if ring0:
        r = Ring0(s.place, runs)
        good = r.measure(ring0)
        s.failed.update(r.failed)
        facts.update({name: r.facts_of(name, model) for name, model in good})
        host_instructions(s.place, r, good, facts, notes)
    if narrow:
        more, failed = measure_narrow(s.place, runs, columns, narrow, notes)
        facts.update(more)
        s.failed.update(failed)
    parts = {w: f for w, f in facts.items() if w in WHAT}
    whole = {w: f for w, f in facts.items() if w not in parts}
    notes = work.lines_of_works(whole, columns, GROUPS["core"]) + lines_of_parts(parts, columns) + notes
    rows = work.rows_of_works("speed", whole, s.failed) + rows_of_narrow(whole) + rows_of_parts(parts)
    return {"rows": rows, "notes": notes,
            "samples": {"works": facts, "rounds": s.rounds()}}
