#!/usr/bin/env python3
"""What is promised about travelling in time, measured in one run (`make bench`, or alone).

One recording of some 13 G instructions of mixed work with 512 MiB of RAM; checkpoints on disk as
the recorder wrote them. travel.c times moves through the library, gdb those through the stub, and
the same gdb script drives QEMU's replay of the same boot where QEMU is installed.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
TRAVEL = str(ROOT / "build" / "rel" / "tests" / "bench" / "travel")
LINUX = ROOT / "build" / "images" / "linux"
SCRIPT = ROOT / "tests" / "bench" / "travel.sh"
MEMORY = 512
BOOT = "console=ttyS0 panic=-1 nokaslr -- true"
QEMU_LIMIT = 150  # seconds that gdb on QEMU gets
QEMU_EVERY = 0.5  # seconds between its snapshots while it records


def p95(values):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr)


def timed(argv):
    """Wall and CPU seconds (all threads) of a command that must end well."""
    began = time.monotonic()
    child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    text = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"travel: failed: {' '.join(map(str, argv))}\n{text.decode()}")
    return {"wall": time.monotonic() - began, "cpu": usage.ru_utime + usage.ru_stime}


def record(out, append, *options):
    return [REPRISE, "record", "--force", "-o", out, "--memory", f"{MEMORY}M", "--seed", "1",
            "--kernel", LINUX / "vmlinuz", "--initrd", LINUX / "initrd", "--append", append,
            *options]


def positions(path):
    return json.loads(subprocess.run([REPRISE, "info", "--json", path], stdout=subprocess.PIPE,
                                     check=True).stdout)["position"]


class Table:
    def __init__(self):
        self.rows, self.notes = [], []

    def row(self, what, number, text, bound=None, least=False, limit=""):
        good = bound is None or (number >= bound if least else number <= bound)
        self.rows.append({"what": what, "number": number, "value": text, "good": good,
                          "bound": limit and (">= " if least else "<= ") + limit})

    def times(self, what, seconds, bound=None, cpu=None):
        """Median and 95th percentile; the bound is for the latter. A note if the host was busy."""
        if not seconds:
            return self.notes.append(f"{what}: there was nothing to measure")
        worst = p95(seconds)
        self.row(f"{what} ({len(seconds)})", worst,
                 f"{statistics.median(seconds) * 1e3:.1f} / {worst * 1e3:.1f} ms", bound, False,
                 f"{bound * 1e3:.0f} ms" if bound else "")
        if cpu and worst > 1.2 * p95(cpu) + 1e-3:
            self.notes.append(f"{what}: the host was busy; CPU time "
                              f"{statistics.median(cpu) * 1e3:.1f} / {p95(cpu) * 1e3:.1f} ms")


class Stages:
    """Runs of travel.c."""

    def __init__(self, path):
        self.path, self.samples = path, {}

    def run(self, stage, count):
        say(f"travel {stage}")
        out = subprocess.run([TRAVEL, str(self.path), stage, "--count", str(count)],
                             stdout=subprocess.PIPE, check=True).stdout
        for line in out.splitlines():
            one = json.loads(line)
            self.samples[one.pop("name")] = one

    def replay_time(self, a, b):
        """CPU seconds that a plain replay took from position a to b."""
        s, total = self.samples["replay"], 0.0
        for begin, n, cpu in zip(s["from"], s["n"], s["cpu"]):
            share = min(b, begin + n) - max(a, begin)
            if share > 0:
                total += cpu * share / n
        return total


def recordings(place, table, runs):
    """With and without checkpoints, in turns; leaves the recording with one each 0.5 s."""
    append = "console=ttyS0 panic=-1 quiet reprise.script=/travel.sh"
    add = ["--add", f"{SCRIPT}:/travel.sh"]
    kinds = {"none": [], "1": ["--checkpoint-every", "1"], "0.5": ["--checkpoint-every", "0.5"]}
    samples = {kind: [] for kind in kinds}
    sizes = {}
    for turn in range(runs):
        for kind, options in kinds.items():
            say(f"{turn + 1}/{runs} record, checkpoints: {kind}")
            path = place / ("work" if kind == "0.5" else "other")
            samples[kind].append(timed(record(path, append, *add, *options)))
            files = list((path / "checkpoints").glob("0*"))
            sizes[kind] = sorted(f.stat().st_size for f in files)
    shutil.rmtree(place / "other")
    table.row("recording: instructions", positions(place / "work"),
              f"{positions(place / 'work') / 1e9:.2f} G")
    table.row("recorded without checkpoints: CPU time",
              statistics.median(s["cpu"] for s in samples["none"]),
              f"{statistics.median(s['cpu'] for s in samples['none']):.2f} s")
    for kind in ("1", "0.5"):
        for what in ("cpu", "wall"):
            ratio = statistics.median(x[what] / y[what]
                                      for x, y in zip(samples[kind], samples["none"]))
            table.row(f"a checkpoint each {kind} s / none: {'CPU' if what == 'cpu' else 'wall'}",
                      ratio, f"{ratio:.3f}", 1.05, False, "1.05")
    for kind in ("1", "0.5"):
        size = sizes[kind]
        if size:
            table.row(f"checkpoints on disk, each {kind} s", sum(size),
                      f"{len(size)}, {sum(size) / 1048576:.0f} MiB")
            table.row("  the first / median of the others", size[-1],
                      f"{size[-1] / 1048576:.1f} / "
                      f"{statistics.median(size[:-1] or size) / 1048576:.1f} MiB")
    return samples


def forget(path):
    """Drops the recording's files from the page cache."""
    for file in pathlib.Path(path).rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def cold_seeks(path, table, count):
    """A new process each, the files not in the page cache."""
    last, took = positions(path), []
    for i in range(count):
        say(f"{i + 1}/{count} cold seek")
        to = last // 50 + (last - last // 50) * (i * 7919 % count) // count + i * 1237
        forget(path)
        took.append(timed([REPRISE, "replay", "--to", f"insn:{to}", path])["wall"])
    table.times("seek, cold: a new process", took, 1.0)
    return took


def moves(path, table, quick):
    s = Stages(path)
    s.run("replay", 1)
    s.run("seek", 20 if quick else 100)
    s.run("step", 10 if quick else 30)
    s.run("back", 6 if quick else 12)
    s.run("search", 20)
    s.run("memory", 1)
    speed = sum(s.samples["replay"]["n"]) / sum(s.samples["replay"]["cpu"])
    table.row("plain replay", speed, f"{speed / 1e6:.0f} M/s")
    for what, name, bound in (
            ("seek, one session, from its start on", "seek, new session", 0.25),
            ("seek, one session, later", "seek, later", 0.25),
            ("seek, once all was replayed", "seek, all replayed", 0.25),
            ("step back after a seek", "step back after a seek", 0.06),
            ("steps back in a row", "steps back in a row", 0.06),
            ("step back after continue to a breakpoint", "step back after continue", 0.06),
            ("back to a breakpoint 10^8 ago", "back to a breakpoint", 2.0),
            ("back to a watchpoint 10^8 ago", "back to a watchpoint", 2.0),
            ("back to the last write of jiffies_64", "back to the last write of jiffies_64", None)):
        table.times(what, s.samples[name]["wall"], bound, s.samples[name]["cpu"])
    for name, one in s.samples.items():
        if not name.startswith("search: ") or not one["n"]:
            continue
        # The longest, which is a search; the others may be bursts of writes.
        n, cpu, start = max(zip(one["n"], one["cpu"], one["from"]))
        ratio = s.replay_time(start - n, start) / cpu
        table.row(f"last write, {name[8:]}: speed / replay's", ratio,
                  f"{ratio:.2f}", 0.5, True, "0.5")
        all_of = sum(s.replay_time(a - m, a) for m, a in zip(one["n"], one["from"]))
        table.notes.append(f"  {name:<34} {n / 1e6:6.0f} M back in {cpu:5.2f} s CPU; all "
                           f"{len(one['n'])} hits: {sum(one['n']) / 1e6:6.0f} M in "
                           f"{sum(one['cpu']):5.2f} s, {all_of / sum(one['cpu']):.2f} of "
                           "replay's speed")
    memory = s.samples["memory"]
    table.row("checkpoints in memory after a whole replay", memory["bytes"],
              f"{memory['checkpoints']}, {memory['bytes'] / 1048576:.0f} MiB")
    keeping = (sum(s.samples["replay that keeps checkpoints"]["cpu"]) /
               sum(s.samples["replay"]["cpu"]))
    table.row("replay that keeps checkpoints / plain", keeping, f"{keeping:.3f}")
    return s.samples


# ---- through gdb ----

def resident(pid):
    """Peak and present, MiB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return [int(line.split()[1]) // 1024 for word in ("VmHWM", "VmRSS")
            for line in text.splitlines() if line.startswith(word)]


def drive(server, target, script, place, limit):
    """A server and gdb on it. What each command took, and the server's memory at the end."""
    out = place / "gdb.out"
    out.write_text("")
    child = subprocess.Popen([str(a) for a in server], stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    memory = [0, 0]
    try:
        until = time.monotonic() + 20
        while child.poll() is None and time.monotonic() < until:
            try:  # QEMU's socket takes one connection: only look whether it is there
                if pathlib.Path(target).is_socket():
                    break
            finally:
                time.sleep(0.05)
        time.sleep(0.3)
        gdb = subprocess.Popen(["gdb", "-nx", "-q", "-batch", "-x",
                                str(ROOT / "tests" / "bench" / "travel_gdb.py")],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL,
                               env={**os.environ, "TRAVEL_TARGET": target, "TRAVEL_OUT": str(out),
                                    "TRAVEL_SCRIPT": script + "\ninfo registers rip"})
        until = time.monotonic() + limit
        while gdb.poll() is None and time.monotonic() < until:
            if child.poll() is None:
                memory = resident(child.pid) or memory
            time.sleep(0.02)
        if gdb.poll() is None:
            gdb.kill()
        gdb.wait()
    finally:
        child.kill()
        child.wait()
    steps = [json.loads(line) for line in out.read_text().splitlines()]
    finished = bool(steps) and steps[-1]["command"].startswith("info") and not steps[-1]["error"]
    return steps, memory, finished


def took(steps, command):
    return [s["seconds"] for s in steps if s["command"] == command and not s["error"]]


def session(path, table, place, quick):
    """A session that goes about: how much memory, and what gdb sees of the times."""
    last = positions(path)
    script = []
    for i in range(15 if quick else 60):
        at = last // 50 + (last - last // 50) * (i * 37 % 60) // 60 + i * 1009
        script += [f"monitor goto insn:{at}", "reverse-stepi", "reverse-stepi"]
    say("gdb session")
    target = str(place / "gdb.sock")
    server = [REPRISE, "replay", f"--gdb=unix:{target}", "--to", "end", path]
    steps, memory, finished = drive(server, target, "\n".join(script), place, 120)
    if not finished:
        return table.notes.append(f"the gdb session did not come to its end: {steps[-1:]}")
    table.times("gdb: monitor goto, anywhere",
                [s["seconds"] for s in steps if s["command"].startswith("monitor goto")])
    table.times("gdb: reverse-stepi", took(steps, "reverse-stepi"), 0.06)
    table.row("gdb session: resident at its end, peak", memory[0],
              f"{memory[1]}, {memory[0]} MiB")
    return steps


def ask(path, command):
    """One command on QEMU's monitor."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(path)
        f = s.makefile("rw")
        f.readline()
        for message in ({"execute": "qmp_capabilities"},
                        {"execute": "human-monitor-command",
                         "arguments": {"command-line": command}}):
            f.write(json.dumps(message) + "\n")
            f.flush()
            while True:
                answer = json.loads(f.readline())
                if "return" in answer or "error" in answer:
                    break
        return answer


def qemu_argv(place, mode, *more):
    return ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-global",
            "apic-common.vapic=off", "-cpu", "Nehalem", "-m", str(MEMORY), "-nodefaults",
            "-display", "none", "-no-reboot", "-kernel", LINUX / "vmlinuz", "-initrd",
            LINUX / "initrd", "-append", BOOT, "-net", "none", "-drive",
            f"file={place}/qemu.qcow2,if=none,id=snap", "-serial", f"file:{place}/qemu.{mode}",
            "-icount", f"shift=auto,rr={mode},rrfile={place}/qemu.rr,rrsnapshot=init", *more]


def qemu_record(place, every):
    """The boot recorded by QEMU, a snapshot each `every` seconds. How many; None: it did not."""
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", f"{place}/qemu.qcow2", "8G"],
                   check=True)
    monitor = f"{place}/qemu.qmp"
    child = subprocess.Popen([str(a) for a in qemu_argv(
        place, "record", "-qmp", f"unix:{monitor},server=on,wait=off")],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until, n = time.monotonic() + 60, 0
    next_one = time.monotonic() + every
    while child.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
        if every and time.monotonic() >= next_one:
            try:
                ask(monitor, f"savevm s{n}")
                n += 1
            except (OSError, ValueError):
                pass
            next_one = time.monotonic() + every
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
        child.wait()
        return None
    return n


def compare(place, table):
    """The same boot, the same gdb commands: Reprise and QEMU."""
    boot = place / "boot"
    timed(record(boot, BOOT, "--checkpoint-every", "0.5"))
    symbols = subprocess.run([REPRISE, "symbols", boot, "--at", "400000000"],
                             stdout=subprocess.PIPE, check=True).stdout.decode()
    address = next(line.split()[0] for line in symbols.splitlines()
                   if line.endswith(" do_exit"))
    script = "\n".join([f"hbreak *0x{address}"] + ["continue"] * 4 + ["reverse-stepi"] * 3 +
                       ["reverse-continue"] * 2 + ["reverse-stepi"] * 2)
    say("gdb on Reprise")
    target = str(place / "mine.sock")
    mine, _, finished = drive([REPRISE, "replay", f"--gdb=unix:{target}", "--to", "insn:0", boot],
                              target, script, place, 60)
    if not finished:
        table.notes.append(f"gdb on Reprise did not come to its end: {mine[-1:]}")
    theirs = []
    if not (shutil.which("qemu-system-x86_64") and shutil.which("qemu-img")):
        table.notes.append("qemu-system-x86_64 is not installed: nothing is compared with it")
        return mine, theirs
    say("QEMU records")
    snapshots = qemu_record(place, QEMU_EVERY)
    if snapshots is None:
        table.notes.append("QEMU did not finish recording with a snapshot within 60 s")
        return mine, theirs
    say("gdb on QEMU")
    target = str(place / "qemu.sock")
    theirs, _, finished = drive(qemu_argv(place, "replay", "-S", "-gdb",
                                          f"unix:{target},server=on,wait=off"),
                                target, script, place, QEMU_LIMIT)
    if not finished:
        table.notes.append(f"QEMU did not finish the gdb commands in {QEMU_LIMIT} s")
    table.notes.append(f"QEMU made {snapshots} snapshots while it recorded")
    for command in ("continue", "reverse-stepi", "reverse-continue"):
        a, b = took(mine, command), took(theirs, command)
        if not a or not b:
            table.notes.append(f"{command}: Reprise {len(a)} times, QEMU {len(b)} times in time")
            continue
        table.row(f"boot, gdb {command}: Reprise, QEMU", statistics.median(a),
                  f"{statistics.median(a) * 1e3:.1f} ms, {statistics.median(b):.2f} s")
        ratio = statistics.median(a) / statistics.median(b)
        table.row("  Reprise / QEMU", ratio, f"{ratio:.4f}")
    return mine, theirs


def measure(place, runs=5, quick=False):
    """Rows, notes and samples, as bench.py prints them."""
    place, table, samples = pathlib.Path(place), Table(), {}
    samples["recordings"] = recordings(place, table, runs)
    path = place / "work"
    samples["cold"] = cold_seeks(path, table, 20 if quick else 40)
    samples["moves"] = moves(path, table, quick)
    samples["session"] = session(path, table, place, quick)
    samples["gdb"] = compare(place, table)
    say("")
    return {"rows": table.rows, "notes": table.notes, "samples": samples}


def show(result):
    print(f"{'what':<54} {'measured':>20} {'promised':>10}")
    for row in result["rows"]:
        print(f"{row['what']:<54} {row['value']:>20} {row['bound']:>10}"
              + ("" if row["good"] else "  MISSED"))
    print("\n" + "\n".join(result["notes"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5, help="recordings of each kind")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    args = parser.parse_args()
    place = tempfile.mkdtemp(prefix="reprise-travel-")
    try:
        result = measure(place, args.runs, args.quick)
    finally:
        shutil.rmtree(place)
    if args.json:
        print(json.dumps(result, indent=1))
    else:
        print("Times: median / 95th percentile; bounds are for the latter.")
        show(result)


if __name__ == "__main__":
    main()
