"""Litmus tests in a guest of several vCPUs: what they see of each other's stores is what one memory, accessed by one of them at a time,
has (sequential consistency), so it is a subset of what x86-TSO allows; and it is recorded exactly."""
import functools

from suite.harness import IMAGES, Failure, test

# Threads of accesses, in the order of what is read: ("x", 1) stores, "x" reads.
SHAPES = {
    "SB": ((("x", 1), "y"), (("y", 1), "x")),
    "LB": (("x", ("y", 1)), ("y", ("x", 1))),
    "MP": ((("x", 1), ("y", 1)), ("y", "x")),
    "S": ((("x", 2), ("y", 1)), ("y", ("x", 1))),
    "R": ((("x", 1), ("y", 1)), (("y", 2), "x")),
    "2+2W": ((("x", 1), ("y", 2)), (("y", 1), ("x", 2))),
    "IRIW": ((("x", 1),), (("y", 1),), ("x", "y"), ("y", "x")),
}
FORMS = ("plain", "fence", "atomic")
# What would show that a store became visible late, or to one earlier than to another.
NEVER = {"SB": "00.11", "LB": "11.11", "MP": "10.11", "S": "1.21", "R": "0.12", "2+2W": ".11", "IRIW": "1010.11"}


@functools.cache
def possible(threads):
    """All outcomes, over all orders of the accesses."""
    def go(at, memory, read):
        if all(n == len(threads[i]) for i, n in enumerate(at)):
            return {"".join(map(str, (v for t in read for v in t))) + ".{x}{y}".format(**memory)}
        found = set()
        for i, n in enumerate(at):
            if n == len(threads[i]):
                continue
            access = threads[i][n]
            then = at[:i] + (n + 1,) + at[i + 1:]
            if isinstance(access, tuple):
                found |= go(then, {**memory, access[0]: access[1]}, read)
            else:
                found |= go(then, memory, read[:i] + (read[i] + (memory[access],),) + read[i + 1:])
        return found
    return go((0,) * len(threads), {"x": 0, "y": 0}, ((),) * len(threads))


def outcomes(t, text):
    """What was seen of each form; how many outcomes, of how many that there may be."""
    seen = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) > 2 and words[0] in SHAPES and words[1] in FORMS:
            seen[words[0], words[1]] = {w.split("=")[0]: int(w.split("=")[1]) for w in words[2:]}
    for shape, threads in SHAPES.items():
        if NEVER[shape] in possible(threads):
            raise Failure(f"{shape}: the test takes {NEVER[shape]} to be possible")
        for form in FORMS:
            wrong = set(seen.get((shape, form), {"none": 0})) - possible(threads)
            t.check(not wrong, f"{shape} {form}: outcomes {sorted(wrong)} are those of no order of accesses")
    return sum(map(len, seen.values())), len(FORMS) * sum(len(possible(x)) for x in SHAPES.values())


def record(t, name, rounds, *options):
    return t.linux(name, "--cpus", 4, "--memory", "256M", "--add", f"{IMAGES}/guest/litmus:/bin/litmus", *options, append="quiet",
                   script=f"litmus {rounds}\n", timeout=300)


@test("litmus/chaos", cost=12)
def chaos(t):
    """Turns of all lengths, so that most of what may be seen is seen."""
    r = record(t, "rec", 400, "--chaos=6", "--seed", 1, "--wall-clock", "2026-11-25T00:00:00Z")
    found, there_are = outcomes(t, r.text)
    t.check(found > there_are // 3, f"{found} outcomes of {there_are}: too few accesses came between others'")
    t.same("rec", r)
    return f"{found} outcomes of the {there_are} that there may be"
