"""`bench.py --part speed`: what work costs in a guest, beside the same program on the host and in QEMU.

The program (speed/*.c) is static, and one file for all; work.py runs it.
"""
import work
from jobs import ROOT

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


class Speed(work.Work):
    name = "speed"
    program = PROGRAM

    def native(self, name, model, column):
        return [PROGRAM, name]

    def command(self, name, model):
        return f"speed {name}"

    def facts_of(self, name, model):
        f = super().facts_of(name, model)
        if name in GROUPS["parts"]:
            f["ns"] = {c: 1e9 * s / self.counts[name]
                       for c, s in {"native": f["native_s"], **f["cpu_s"]}.items()}
        return f


def lines_of_parts(facts, columns):
    if not facts:
        return []
    columns = ["native", *columns]
    lines = ["One thing at a time, nanoseconds of CPU time each:",
             f"{'':<25}" + "".join(f"{c:>15}" for c in columns)]
    for name, f in facts.items():
        lines.append(f"{WHAT[name]:<25}" + "".join(f"{f['ns'][c]:>15.2f}" for c in columns))
    return lines + [""]


def rows_of_parts(facts):
    return [work.row(f"speed: a {WHAT[name]}: native, recorded", f["ns"]["recorded"],
                     f"{f['ns']['native']:.2f}, {f['ns']['recorded']:.2f} ns")
            for name, f in facts.items()]


def measure(place, runs, names):
    notes = []
    columns = work.columns_here("speed", notes)
    works = [(n, "v3" if n in AVX2 else "v2") for n in names]
    if not work.host_has_avx2():
        notes += [f"speed: {n} is left out: this host has no AVX2" for n in names if n in AVX2]
        works = [w for w in works if w[0] not in AVX2]
    s = Speed(place, runs, columns)
    facts = {name: s.facts_of(name, model) for name, model in s.measure(works)}
    parts = {w: f for w, f in facts.items() if w in GROUPS["parts"]}
    whole = {w: f for w, f in facts.items() if w not in parts}
    notes = work.lines_of_works(whole, columns, GROUPS["core"]) + lines_of_parts(parts, columns) + notes
    return {"rows": work.rows_of_works("speed", whole, s.failed) + rows_of_parts(parts), "notes": notes,
            "samples": {"works": facts, "rounds": s.rounds()}}
