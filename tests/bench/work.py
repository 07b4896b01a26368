"""Work in a guest beside the same on the host and in QEMU, for speed.py and real.py.

A workload is the guest's only program, straight after the boot; a boot with a program that does nothing,
measured in the same round, is subtracted. CPU time, so that what else the host does matters little;
rounds go through the configurations forwards and backwards in turns.
"""
import math
import pathlib
import re
import shutil
import statistics
import sys

from jobs import LINUX, MEMORY, NOLOG, REPRISE, info, qemu, record, run, stats
from travel import say

# Reprise's CPU model and QEMU's.
MODELS = {"v2": ("x86-64-v2", "Nehalem"), "v3": ("x86-64-v3", "max")}
COLUMNS = ("no log", "recorded", "replayed", "QEMU", "QEMU recorded")
LIMIT = 3600  # seconds of any run; QEMU has been seen waiting for ever
# What `replay --stats` tells apart, as the table has it; the rest is "else".
SHARES = {"code": "code", "loop": "blocks", "translate": "translation", "step": "exec", "walk": "walks"}


def host_has_avx2():
    return bool(re.search(r"\bavx2\b", pathlib.Path("/proc/cpuinfo").read_text()))


def columns_here(part, notes):
    if shutil.which("qemu-system-x86_64"):
        return COLUMNS
    notes.append(f"{part}: qemu-system-x86_64 is not installed: nothing is compared with it")
    return tuple(c for c in COLUMNS if not c.startswith("QEMU"))


def chosen(text, parts):
    """What --only names, by part: of {part: {group: workloads}}, {part: workloads}."""
    names = {part: [n for group in groups.values() for n in group] for part, groups in parts.items()}
    only = {part: set() for part in parts}
    for word in text.split(","):
        found = {part: names[part] if word == "all" else groups.get(word, (word,) if word in names[part] else ())
                 for part, groups in parts.items()}
        if not any(found.values()):
            raise ValueError(f"no workload is called {word}; there are "
                             f"{', '.join(n for of in names.values() for n in of)}")
        for part in parts:
            only[part].update(found[part])
    return {part: [n for n in names[part] if n in only[part]] for part in parts}


def append_file(base, path, name, out):
    """What --add does, for QEMU: a second newc archive after the first."""
    def entry(name, mode, data):
        head = "070701" + "".join(f"{n:08x}" for n in (
            1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0))
        text = head.encode() + name.encode() + b"\0"
        return text + bytes(-len(text) % 4) + data + bytes(-len(data) % 4)

    first = base.read_bytes()
    out.write_bytes(first + bytes(-len(first) % 4) + entry(name, 0o100755, path.read_bytes()) +
                    entry("TRAILER!!!", 0, b""))


class Work:
    """A part's workloads and their samples. A part says what is different about it."""
    name = "work"  # what a workload's last line begins with
    program = None  # a file that the guest has in /bin
    disk = None
    memory = MEMORY
    host = ("native",)  # columns without a guest
    columns = COLUMNS  # the others
    before = None  # called in a native run's process

    def native(self, work, model, column):
        raise NotImplementedError

    def command(self, work, model):
        """What the guest's init runs."""
        raise NotImplementedError

    def __init__(self, place, runs, columns):
        self.place, self.runs, self.columns = pathlib.Path(place), runs, columns
        self.samples, self.sums, self.counts, self.failed, self.looked = {}, {}, {}, {}, {}
        self.initrd = self.place / f"{self.name}.initrd"
        if self.program:
            append_file(LINUX / "initrd", self.program, f"bin/{self.program.name}", self.initrd)

    def recording(self, work, model):
        return self.place / f"{self.name}-{model}-{work}"

    def argv(self, work, column, model):
        ours, theirs = MODELS[model]
        append = f"console=ttyS0 panic=-1 quiet -- {self.command(work, model)}"
        add = f"{self.program}:/bin/{self.program.name}"
        recording = self.recording(work, model)
        if column == "no log":
            return [NOLOG, *(["--disk", f"{self.disk},readonly"] if self.disk else []), ours,
                    str(self.memory), LINUX / "vmlinuz", LINUX / "initrd", append, add]
        if column == "recorded":
            return record(recording, "--engine", "dbt", "--cpu", ours, "--add", add,
                          *(["--disk", f"{self.disk},readonly"] if self.disk else []), append=append,
                          memory=self.memory)
        if column == "replayed":
            return [REPRISE, "replay", recording]
        if column in ("QEMU", "QEMU recorded"):
            # A host that is busy enough makes QEMU's timer look broken to a kernel that checks it.
            append = append.replace(" -- ", " no_timer_check -- ", 1)
            return qemu(self.place, append, self.initrd, theirs, column == "QEMU recorded", self.memory,
                        self.disk)
        return self.native(work, model, column)

    def once(self, work, column, model):
        out = self.place / f"{self.name}.out"
        on_host = column not in COLUMNS
        sample = run(self.argv(work, column, model), out, LIMIT, self.before if on_host else None)
        if work != "nothing":
            printed = out.read_text(errors="replace")
            found = re.search(rf"{self.name} {work} ([0-9a-f]{{16,}})(?: (\d+))?\s", printed)
            if not found:
                raise SystemExit(f"bench: {self.name} {work}, {column}: it printed no checksum:\n" +
                                 printed[-2000:])
            if self.sums.setdefault(work, found.group(1)) != found.group(1):
                raise SystemExit(f"bench: {self.name} {work}, {column}: checksum {found.group(1)}, natively "
                                 f"{self.sums[work]}")
            self.counts[work] = int(found.group(2) or 1)
        if column == "recorded":
            facts = info(self.recording(work, model))
            sample.update(instructions=facts["position"], log=facts["log_bytes"])
        if column == "QEMU recorded":
            sample["log"] = (self.place / "qemu.rr").stat().st_size
        self.samples.setdefault((work, model), {}).setdefault(column, []).append(sample)

    def measure(self, works):
        """works: (name, model). The boot that is subtracted comes first in each round. Returns those of
        which every run was good: one that failed must not cost the hours that the others took."""
        models = sorted({model for _, model in works})
        jobs = [("nothing", model) for model in models] + works
        for turn in range(self.runs):
            for work, model in jobs:
                if work in self.failed:
                    continue
                try:
                    self.round_of(work, model, turn)
                except SystemExit as e:
                    if work == "nothing":
                        raise
                    print(e, file=sys.stderr)
                    self.failed[work] = str(e).splitlines()[0]
        say("")
        return [w for w in works if w[0] not in self.failed]

    def look(self, work, model):
        """What `replay --stats` says of the last recording."""
        if (work, model) not in self.looked:
            say(f"{self.name} {work}, where its time goes")
            self.looked[work, model] = stats([REPRISE, "replay", "--stats", "--json",
                                              self.recording(work, model)])["stats"]
            say("")
        return self.looked[work, model]

    def shares(self, work, model):
        """In percent of the replay's CPU time, the boot's taken off."""
        boot = self.look("nothing", model)["samples"]
        net = {p: max(0, n - boot[p]) for p, n in self.look(work, model)["samples"].items()}
        parts = {name: net[p] for p, name in SHARES.items()}
        parts["else"] = sum(net.values()) - sum(parts.values())
        return {name: 100 * n / max(1, sum(net.values())) for name, n in parts.items()}

    def round_of(self, work, model, turn):
        # Native first for its checksum; a replay has the last round's recording, if it must.
        for column in [*self.host, *self.columns[::-1 if turn % 2 else 1]]:
            say(f"{turn + 1}/{self.runs} {self.name} {work}, {column}")
            self.once(work, column, model)

    def net(self, work, model, column, what="cpu"):
        """Of each round, what the work took beyond the boot."""
        return [a[what] - b[what] for a, b in zip(self.samples[work, model][column],
                                                  self.samples["nothing", model][column])]

    def rounds(self):
        return {f"{work} {model}": columns for (work, model), columns in self.samples.items()}

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
        looked = self.look(work, model)
        f["touched_mib"] = looked["touched_bytes"] / 2**20
        f["beyond_mib"] = looked["peak_resident_bytes"] / 2**20 - f["touched_mib"]
        f["shares"] = self.shares(work, model)
        if "QEMU recorded" in self.columns:
            f["qemu_log_bytes"] = median(self.net(work, model, "QEMU recorded", "log"))
        return f


def geometric_mean(values):
    """None if one of them is lost in the noise of the boot."""
    return math.exp(statistics.mean(map(math.log, values))) if values and min(values) > 0 else None


def lines_of_works(facts, columns, core=()):
    """Times as multiples of native, and what it is in instructions, log and memory. `core` has a mean of its own."""
    if not facts:
        return []
    head = f"{'workload':<14}{'native':>9}" + "".join(f"{c:>15}" for c in columns)
    lines = ["CPU time of work, without the boot's: natively, and as multiples of that:", head]
    for work, f in facts.items():
        lines.append(f"{work:<14}{f['native_s']:>7.2f} s" +
                     "".join(f"{f['ratios'][c]:>15.2f}" for c in columns))
    for name, group in (("of the core", core), ("of all", tuple(facts))):
        if group and set(group) <= set(facts) and (name == "of all" or len(group) < len(facts)):
            means = [geometric_mean([facts[w]["ratios"][c] for w in group]) for c in columns]
            lines.append(f"{'mean ' + name:<23}" +
                         "".join(f"{m:>15.2f}" if m else f"{'-':>15}" for m in means))
    lines += ["The means are geometric.", "",
              f"{'workload':<14}{'M insns':>9}{'M/s':>7}{'log':>11}{'per 1000':>10}" +
              (f"{'QEMU log':>13}" if "QEMU recorded" in columns else "") +
              f"   peak MiB: {', '.join(columns)}"]
    for work, f in facts.items():
        # One that waits for a disk has a length by chance: what it gained over the boot's can be negative.
        qemu_log = f"{f['qemu_log_bytes']:>11.0f} B" if f.get("qemu_log_bytes", -1) >= 0 else ""
        if "QEMU recorded" in columns:
            qemu_log = qemu_log or f"{'-':>13}"
        lines.append(f"{work:<14}{f['instructions'] / 1e6:>9.0f}{f['mips']:>7.0f}{f['log_bytes']:>9.0f} B"
                     f"{f['log_bytes_per_1000']:>10.5f}{qemu_log}   "
                     + ", ".join(f"{f['peak_mib'][c]:.0f}" for c in columns))
    names = [*SHARES.values(), "else"]
    lines += ["", "Where a replay's CPU time went, in percent, the boot's taken off; MiB of the guest's memory that were",
              "touched, and what was resident beyond:",
              f"{'workload':<14}" + "".join(f"{n:>13}" for n in names) + f"{'touched':>11}{'beyond':>9}"]
    for work, f in facts.items():
        lines.append(f"{work:<14}" + "".join(f"{f['shares'][n]:>13.1f}" for n in names) +
                     f"{f['touched_mib']:>11.0f}{f['beyond_mib']:>9.0f}")
    return lines + [""]


def row(what, number, text, bound=None):
    """`bound`: what it may be at most, if something was promised."""
    return {"what": what, "number": number, "value": text, "bound": "" if bound is None else f"<= {bound}",
            "good": bound is None or number <= bound}


def rows_of_works(part, facts, failed):
    rows = [row(f"{part}: {work}, recorded / native", f["ratios"]["recorded"],
                f"{f['ratios']['recorded']:.2f}") for work, f in facts.items()]
    for name, of in (("recorded", "native"), ("recorded", "no log"), ("replayed", "recorded"),
                     ("recorded", "QEMU recorded")):
        key = name if of == "native" else f"{name} / {of}"
        values = [f["ratios"][key] for f in facts.values() if key in f["ratios"]]
        mean = geometric_mean(values)
        if mean:
            rows.append(row(f"{part}: geometric mean of {len(values)}, {name} / {of}", mean,
                            f"{mean:.3f}"))
    return rows + [{**row(f"{part}: {work}", None, f"failed: {why}"), "good": False}
                   for work, why in failed.items()]
