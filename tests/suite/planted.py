"""Races that were planted (tests/guest/planted.c, tests/guest/module), and one that was not, from the hunt to the two accesses: plain
runs do not show them, a hunt with chaos finds them, the failure comes again each time, gdb goes back from it to both accesses, and few
turns do.
Minutes each: tests/run.py --all 'planted/*'."""
import json
import random
import re
import shutil

from suite.gdb import need_gdb
from suite.harness import IMAGES, test
from suite.hunt import NOT_FOUND
from suite.run_program import own

PLANTED = IMAGES / "guest" / "planted"
PLAIN, MOST, REPLAYS, FEW = 50, 2000, 20, 3
# How far back accesses are looked for: both threads of `counter` write 50 times.
BACK = 101


def hunt(t, name, runs, stop_on, behind, options=(), **more):
    """The kind that was found (or None), and how many runs there were."""
    r = t.run(t.reprise, "hunt", "--json", "-o", t.dir / name, "--runs", runs, "--kinds", 1, "--stop-on", stop_on, *options, "--", *behind,
              timeout=7200, **more)
    told = json.loads(r.out)
    return next((k for k in told["kinds"] if k["found"]), None), told["runs"]


def again(t, recording, times):
    """Each replay is the same, to the last byte of the guest's memory, and prints the same."""
    seen = set()
    for _ in range(times):
        r = t.run(t.reprise, "replay", "--verify", recording, code=None)
        t.has(r.error, "(?m)replayed without a difference")
        seen.add((r.code, r.text))
    t.equal(len(seen), 1, "different replays")


def failing(t, stop_on, outcome, plain, chaos, options=()):
    """A recording of the failure, which came again so often, and in how many runs; it is not there in plain runs."""
    hunt(t, "plain", PLAIN, stop_on, plain, options, code=NOT_FOUND)
    shutil.rmtree(t.dir / "plain")
    found, runs = hunt(t, "hunt", MOST, stop_on, chaos, options)
    t.has(found["outcome"], outcome)
    recording = t.dir / "hunt" / f"seed-{found['seed']}"
    again(t, recording, REPLAYS)
    return recording, runs


def simple(t, found, *options):
    """With a few turns; where each is, is told."""
    r = t.run(t.reprise, "simplify", found, "-o", t.dir / "simple", *options, timeout=7200)
    n = int(re.match(r"(\d+) turns? otherwise", r.text).group(1))
    t.check(1 <= n <= FEW, f"{n} turns are left")
    t.equal(len([e for e in t.events("simple") if e["type"] == "turn"]), n, "turns in the log")
    again(t, t.dir / "simple", 3)
    return f"{n} turn{'s' if n > 1 else ''}"


def gdb(t, recording, to, options, words, **more):
    """What gdb says there to these commands."""
    need_gdb(t)
    (t.dir / "words").write_text("set pagination off\n" + words)
    return t.run(t.reprise, "gdb", *options, recording, "--to", to, "--", "-nx", "-batch", "-x", t.dir / "words", timeout=600, **more).text


def accesses(t, recording, to, what, options=("--process", "planted"), back=BACK):
    """Back from there by a watchpoint, access by access: thread, function, and what is there when it has been done (of
    a write: before it)."""
    step = f'reverse-continue\nprintf "access by %d, %ld, ", $_thread, (long){what}\ninfo symbol $pc\n'
    said = gdb(t, recording, to, options, f"awatch {what}\n" + step * back, code=None)
    return [(int(a), b, int(c)) for a, c, b in re.findall(r"(?m)^access by (\d+), (-?\d+), (\w+)", said)]


def across(t, seen, inner, outer):
    """The last access is one of `inner`'s thread, but for what the other one did meanwhile; in front of it is one of `outer`'s,
    another thread."""
    at = next((i for i, a in enumerate(seen) if a[1] == inner), None)
    t.check(at is not None, f"no access by {inner}: {seen[:8]}")
    t.check(len(seen) > at + 1 and seen[at + 1][1] == outer and seen[at + 1][0] != seen[at][0], f"in front of {inner}'s: {seen[at:at + 4]}")


def of_program(t, stop_on, outcome, *program):
    own(t)
    found, runs = failing(t, stop_on, outcome, ("run", "--cpus", 2, *program), ("run", "--cpus", 2, "--chaos", *program))
    return f"run {runs}, {simple(t, found, '--share', '/')}"


@test("planted/counter", cost=200)
def counter(t):
    """Two threads read the same value, and both write what is one more."""
    told = of_program(t, "exit!=0", "^status 3: lost N of N$", PLANTED, "counter")
    pid = next(p["pid"] for p in map(json.loads, t.run(t.reprise, "ps", "--json", t.dir / "simple").out.splitlines())
               if p["comm"] == "planted")
    seen = accesses(t, t.dir / "simple", f"exit:{pid}", "counter", back=2 * BACK)
    # Someone reads a value that the other one, who read it too, makes one more in between.
    t.check(any(seen[i][0] != seen[j][0] and seen[i][2] == seen[j][2] for i in range(len(seen)) for j in range(i + 1, min(i + 4, len(seen)))),
            f"no two accesses of different threads to one value: {seen[:8]}")
    return told


@test("planted/publish", cost=300)
def publish(t):
    """The crash is in reads(), which read item.value when the other thread had just written NULL there."""
    told = of_program(t, "crash", r"^crash: signal 11 at 0 in reads\+", PLANTED, "publish")
    across(t, accesses(t, t.dir / "simple", "crash", "item.value", back=70), "reads", "writes")
    return told


@test("planted/wakeup", cost=200)
def wakeup(t):
    """One has looked at the flag; the other one has set it, and signalled, before the first one waits."""
    told = of_program(t, "hang:10", r"^hang: in .*\bwaits\+", PLANTED, "wakeup")
    across(t, accesses(t, t.dir / "simple", "end", "ready", back=4), "wakes", "waits")
    return told


@test("planted/deadlock", cost=200)
def deadlock(t):
    """Each lock belongs to a thread that waits for the other's: glibc keeps who has it in the third word."""
    told = of_program(t, "hang:10", r"^hang: in .*\blocks\+", PLANTED, "deadlock")
    owners = [next((x[0] for x in accesses(t, t.dir / "simple", "end", f"*((int *)&{lock} + 2)", back=2)), None) for lock in "ab"]
    t.check(None not in owners and owners[0] != owners[1], f"who took the locks: {owners}")
    return told


@test("planted/module", cost=900)
def module(t):
    """In the kernel: one thread uses what another one has just taken away. A module that was loaded after the hunt had begun has names."""
    where = IMAGES / "generic-tsc"
    if not (where / "initrd").exists():
        t.skip("build/images/generic-tsc is not built: make image-tsc")
    script = "echo ready to load; insmod /lib/modules/*/race.ko; dmesg | tail -n 1; poweroff -f"
    t.linux("rec", "--cpus", 2, "--memory", "256M", "--checkpoint-every", "1", image="generic-tsc", append=f'quiet oops=panic -- "{script}"')
    options = ("--from", t.dir / "rec", "--at", "console:ready to load")
    found, runs = failing(t, "panic", r"^panic.* in looks\+", (), ("--chaos",), options)
    told = simple(t, found)
    across(t, accesses(t, t.dir / "simple", "panic", "*(unsigned long *)&shared", options=(), back=70), "looks", "takes_away")
    return f"run {runs}, {told}"


def damaged(t, program):
    """Three blocks in xz's format, of which the first one is wrong in its last chunk (LZMA2; random bytes are stored as they are)."""
    (t.dir / "data").write_bytes(random.Random(7).randbytes(600_000))
    t.run(program, "-T2", "--block-size=200000", t.dir / "data")
    data = bytearray((t.dir / "data.xz").read_bytes())
    chunks = [12 + (data[12] + 1) * 4]
    while data[chunks[-1]]:
        chunks.append(chunks[-1] + 4 + int.from_bytes(data[chunks[-1] + 1:chunks[-1] + 3], "big"))
    data[chunks[-2]] = 0x7f
    (t.dir / "bad.xz").write_bytes(data)
    return t.dir / "bad.xz"


@test("planted/known", cost=300)
def known(t):
    """CVE-2025-31115, in Debian 12's xz without the patch: a thread that has met an error frees what the first one still fills."""
    program = IMAGES / "known" / "xz"
    if not program.exists():
        t.skip("build/images/known is not built: make image-known")
    need_gdb(t)
    told = of_program(t, "crash", r"^crash: signal 11 at .* < lzma_bufcpy\+\w+ \(xz\) < stream_decode_mt\+", program, "-T2", "-t", damaged(t, program))
    said = gdb(t, t.dir / "simple", "crash", ("--process", "xz"), "set print frame-arguments none\ninfo threads\nbreak lzma_free\nreverse-continue\nbt\n")
    t.has(said, r"(?s)\* 1 .*Thread 2 .*hit Breakpoint 1[.\d]*, lzma_free.*\n#1 .* worker_decoder ")
    return told
