"""`record --from --again` and `reprise simplify`: another run of the same, and which turns a failure needs."""
from suite.boot import image
from suite.harness import ERROR, IMAGES, USAGE, test
from suite.run_program import own, run

PLANTED = IMAGES / "guest" / "planted"


def chaos_of(t, name):
    """The number of the event, for `event:N`."""
    return next(e["index"] for e in t.events(name) if e["type"] == "chaos")


def again(t, name, at, *options, **more):
    """Whether the counter fails under a chaos depends on the host: 0, or 64 and the program's 3."""
    return t.run(t.reprise, "record", "--from", t.dir / "rec", "--at", f"event:{at}", "--again", "--share", "/", "-o", t.dir / name,
                 *options, code=(0, 67), **more)


@test("simplify/again", cost=12)
def same(t):
    """With the same chaos, and what came from outside again, it is the same run; with another one, another. What
    comes again is what the agent was told, on its port."""
    image(t, "run")
    own(t)
    run(t, PLANTED, "counter", options=("--cpus", "2", "--chaos=3", "--seed", "5", "-o", t.dir / "rec"), code=(0, 3))
    at = chaos_of(t, "rec")
    again(t, "same", at, "--chaos=3", "--turns-out", t.dir / "turns")
    again(t, "other", at, "--chaos=4")
    end, same, other = (t.events(name)[-1] for name in ("rec", "same", "other"))
    # Memory has times of files, of which the host may have changed one by that it was read.
    t.equal((same["position"], same["components"]), (end["position"], end["components"]), "the same end")
    t.check(other["components"] != end["components"], "another chaos is the same run")
    t.replay("other")
    # The turns of that chaos by a file, and its delays, are the same run, too, but for what chaos keeps itself.
    again(t, "file", at, "--chaos=3,delays", "--turns", t.dir / "turns", "--turns-out", t.dir / "given")
    names = next(e for e in t.events("rec") if e["type"] == "start")["components"].split(",")
    by_file = t.events("file")[-1]
    t.equal([n for n, a, b in zip(names, by_file["components"], end["components"]) if a != b], ["machine"], "components that differ")
    t.equal((t.dir / "given").read_text(), (t.dir / "turns").read_text(), "turns that were given")
    t.replay("file")
    r = t.run(t.reprise, "record", "--from", t.dir / "rec", "--again", "-o", t.dir / "x", "--turns-out", t.dir / "turns", code=None)
    t.check(r.code != 0 and not (t.dir / "x").exists(), "a file of turns is overwritten")
    for options in (("--net", "user"), ("--port", "reprise.agent=none")):
        t.run(t.reprise, "record", "--from", t.dir / "rec", "--again", "-o", t.dir / "x", *options, code=USAGE)
    t.run(t.reprise, "record", "--again", "-o", t.dir / "x", "--kernel", IMAGES / "tiny" / "rep.elf", code=USAGE)


@test("simplify/none", cost=8)
def none(t):
    """A failure that needs no turn, told by how it ends and by what it prints, and what there is nothing to simplify of."""
    image(t, "run")
    own(t)
    run(t, "sh", "-c", "echo wrong >&2; exit 3", options=("--cpus", "2", "--chaos=3", "-o", t.dir / "rec"), code=3)
    r = t.run(t.reprise, "simplify", t.dir / "rec", "--share", "/", "-o", t.dir / "simple", timeout=200)
    t.has(r.text, "(?m)^0 turns otherwise than without chaos, after [2-9] runs$")
    t.equal([e["arg"] for e in t.events("simple") if e["type"] == "end"], [3], "the status")
    t.check(not [e for e in t.events("simple") if e["type"] == "turn"], "there are turns")
    t.replay("simple")
    t.equal(sorted(p.name for p in t.dir.iterdir() if p.name.startswith("simple")), ["simple"], "what is left")
    r = t.run(t.reprise, "simplify", t.dir / "rec", "--share", "/", "--stop-on", "wrong", "-o", t.dir / "by-text", timeout=200)
    t.has(r.text, "(?m)^0 turns otherwise than without chaos, after [2-9] runs$")
    t.has(t.replay("by-text").error, "(?m)^wrong$")
    # Not what reprise says of a replay itself.
    for text in ("right", "replayed without"):
        r = t.run(t.reprise, "simplify", t.dir / "rec", "--stop-on", text, "-o", t.dir / "x", code=ERROR)
        t.has(r.error, f"does not print '{text}'")
    for text, why in (("panic", "text:panic"), ("exit!=0", "text:exit!=0"), ("text:", "is empty")):
        r = t.run(t.reprise, "simplify", t.dir / "rec", "--stop-on", text, "-o", t.dir / "x", code=USAGE)
        t.has(r.error, why)
    r = t.run(t.reprise, "simplify", t.dir / "simple", "-o", t.dir / "again", code=ERROR)
    t.has(r.error, "has no chaos of turns")
    r = t.run(t.reprise, "simplify", t.dir / "rec", "-o", t.dir / "simple", code=ERROR)
    t.has(r.error, "exists")
    r = t.run(t.reprise, "simplify", t.dir / "rec", "-o", t.dir / "other", code=ERROR)
    t.has(r.error, "does not end so when it is run again")
    t.run(t.reprise, "simplify", t.dir / "rec", code=USAGE)
    t.check(not (t.dir / "other").exists(), "something is left")
