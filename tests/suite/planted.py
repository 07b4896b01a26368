"""Races that were planted (tests/guest/planted.c, tests/guest/module), from the hunt to the two accesses: plain runs do not
show them, a hunt with chaos finds them, the failure comes again each time, gdb goes back from it to both accesses, and few turns do.
Minutes each: tests/run.py --all 'planted/*'."""
import json
import re
import shutil

from suite.boot import image
from suite.gdb import need_gdb
from suite.harness import IMAGES, PANIC, test
from suite.hunt import NOT_FOUND
from suite.run_program import own

PLANTED = IMAGES / "guest" / "planted"
PLAIN, MOST, REPLAYS, FEW = 50, 2000, 20, 3


def hunt(t, name, runs, stop_on, behind, options=(), **more):
    r = t.run(t.reprise, "hunt", "--json", "-o", t.dir / name, "--runs", runs, "--kinds", 1, "--stop-on", stop_on, *options, "--", *behind,
              timeout=7200, **more)
    return next((t.dir / name / f"seed-{k['seed']}" for k in json.loads(r.out)["kinds"] if k["found"]), None)


def failing(t, stop_on, plain, chaos, options=()):
    """A recording of the failure, which came again so often; it is not there in plain runs."""
    hunt(t, "plain", PLAIN, stop_on, plain, options, code=NOT_FOUND)
    found = hunt(t, "hunt", MOST, stop_on, chaos, options)
    codes = {t.run(t.reprise, "replay", "--verify", found, code=None).code for _ in range(REPLAYS)}
    t.equal(len(codes), 1, "exit codes of replays")
    return found


def simple(t, found, *options):
    """With a few turns; where each is, is told."""
    r = t.run(t.reprise, "simplify", found, "-o", t.dir / "simple", *options, timeout=7200)
    n = int(re.match(r"(\d+) turns? otherwise", r.text).group(1))
    t.check(1 <= n <= FEW, f"{n} turns are left")
    t.equal(len([e for e in t.events("simple") if e["type"] == "turn"]), n, "turns in the log")
    codes = {t.run(t.reprise, "replay", "--verify", t.dir / "simple", code=None).code for _ in range(3)}
    t.equal(len(codes), 1, "exit codes of replays")
    return f"{found.name}, {n} turn{'s' if n > 1 else ''}"


def of_program(t, kind, stop_on):
    image(t, "run")
    own(t)
    program = (PLANTED, kind)
    found = failing(t, stop_on, ("run", "--cpus", 2, *program), ("run", "--cpus", 2, "--chaos", *program))
    return found, simple(t, found, "--share", "/")


def gdb(t, name, to, *words):
    need_gdb(t)
    return t.run(t.reprise, "gdb", "--process", "planted", t.dir / name, "--to", to, "--", "-nx", "-batch", "-ex", "set pagination off",
                 *(x for w in words for x in ("-ex", w)), timeout=300).text


@test("planted/counter", cost=200)
def counter(t):
    """Two threads read the same value, and both write what is one more."""
    _, told = of_program(t, "counter", "exit!=0")
    pid = next(p["pid"] for p in map(json.loads, t.run(t.reprise, "ps", "--json", t.dir / "simple").out.splitlines())
               if p.get("command") == "planted")
    out = gdb(t, "simple", f"exit:{pid}", "watch counter", *["reverse-continue", 'printf "thread %d at %d\\n", $_thread, counter'] * 101)
    # Back from write to write, in front of each: what is there. What makes it less undoes the one before, another thread's.
    seen = [tuple(map(int, x)) for x in re.findall(r"(?m)^thread (\d+) at (\d+)$", out)]
    lost = [b for later, a, b in zip(seen, seen[1:], seen[2:]) if later[1] < a[1] and a[0] != b[0]]
    t.check(lost, "no two writes of different threads of which one is lost")
    return told


@test("planted/publish", cost=300)
def publish(t):
    """The crash is in reads(); back from there item.value was written by the other thread, once as NULL and before as what it should be."""
    _, told = of_program(t, "publish", "crash")
    out = gdb(t, "simple", "crash", "printf \"reader %d\\n\", $_thread", "info symbol $pc", "watch item.value", "reverse-continue",
              "printf \"writer %d\\n\", $_thread", "info symbol $pc")
    t.has(out, r"(?m)^reads\b")
    t.has(out, r"(?m)^writes\b")
    reader, writer = (re.search(rf"(?m)^{w} (\d+)$", out).group(1) for w in ("reader", "writer"))
    t.check(reader != writer, "one thread wrote and crashed")
    return told


@test("planted/wakeup", cost=200)
def wakeup(t):
    return of_program(t, "wakeup", "hang:10")[1]


@test("planted/deadlock", cost=200)
def deadlock(t):
    return of_program(t, "deadlock", "hang:10")[1]


@test("planted/module", cost=900)
def module(t):
    """In the kernel: one thread uses what another one has just taken away."""
    where = IMAGES / "generic-tsc"
    if not (where / "initrd").exists():
        t.skip("build/images/generic-tsc is not built: make image-tsc")
    script = "echo ready to load; insmod /lib/modules/*/race.ko; dmesg | tail -n 1; poweroff -f"
    t.linux("rec", "--cpus", 2, "--memory", "256M", "--checkpoint-every", "1", image="generic-tsc", append=f'quiet oops=panic -- "{script}"')
    options = ("--from", t.dir / "rec", "--at", "console:ready to load")
    found = failing(t, "panic", (), ("--chaos",), options)
    shutil.rmtree(t.dir / "plain")
    t.run(t.reprise, "replay", found, code=PANIC)
    return simple(t, found)
