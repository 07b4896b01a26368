"""Chaos: turns of vCPUs and delays by a number. Replays are the same wherever a run is cut, and the number decides."""
from suite.harness import IMAGES, USAGE, test
from suite.smp import LINES, record

TINY = ("--kernel", IMAGES / "tiny" / "rep.elf", "--memory", "16M")


@test("chaos/linux", cost=40)
def linux(t):
    """What threads do goes right in any order. The replay is the same in other slices and in any order of places; another recording that begins there goes on with the chaos, or without."""
    r = record(t, 4, "--chaos=2", "--checkpoint-every", "1")
    for what in LINES:
        t.has(r.text, rf"(?m)^{what} ok\r?$")
    t.same("rec", r, env={"REPRISE_TEST_SLICE": "7919"})
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 5, "--places", 4, "--moves", 6, timeout=300)
    for name, *options in (("on",), ("off", "--chaos=0"), ("other", "--chaos=4")):
        t.run(t.reprise, "record", "--from", t.dir / "rec", "--at", "console:signals ok", "-o", t.dir / name, *options, timeout=200)
        t.has(t.replay(name).text, "(?m)^again ok\r?$")
    given = {name: [e["type"] for e in t.events(name)].count("chaos") for name in ("on", "off", "other")}
    t.equal(given, {"on": 1, "off": 2, "other": 2}, "records of chaos")


@test("chaos/number", cost=15)
def number(t):
    """The same number is the same run; another number, or a part of it, is another one."""
    def boot(name, chaos):
        t.linux(name, "--cpus", 2, "--memory", "256M", "--seed", 1, "--wall-clock", "2026-11-25T00:00:00Z", "--no-notes",
                f"--chaos={chaos}", append="quiet", script="true\n")
        return t.events(name)[-1]

    ends = {name: boot(name, chaos) for name, chaos in
            (("a", "8"), ("b", "8"), ("c", "9"), ("d", "8,turns"), ("e", "8,delays"))}
    t.equal(ends["a"]["components"], ends["b"]["components"], "the end of the same run")
    others = [str(ends[name]["components"]) for name in "acde"]
    t.equal(len(set(others)), 4, "different ends")


@test("chaos/turns", cost=8)
def turns(t):
    """Turns by a file, those that fit, are in the log and come again."""
    (t.dir / "turns").write_text("# CPU COUNT TO\n" + "".join(f"0 {n * 1000003} 1\n" for n in range(1, 400)))
    r = t.linux("rec", "--cpus", 2, "--memory", "256M", f"--turns={t.dir / 'turns'}", append="quiet",
                script="for i in 1 2 3 4 5 6 7 8 9; do cat /proc/cpuinfo /proc/interrupts > /dev/null & done; wait\n")
    given = [e for e in t.events("rec") if e["type"] == "turn"]
    t.check(10 < len(given) < 400 and all(e["unit"] == 1 for e in given), f"{len(given)} turns")
    t.same("rec", r, env={"REPRISE_TEST_SLICE": "7919"})


@test("chaos/bad", cost=1)
def bad(t):
    """One CPU has no turns; numbers and files of turns that are none are refused."""
    turns = t.dir / "turns"
    turns.write_text("")
    for option in ("--chaos=1", f"--turns={turns}"):
        r = t.run(t.reprise, "record", "-o", t.dir / "rec", option, *TINY, code=None)
        t.check(r.code != 0 and not (t.dir / "rec").exists(), f"{option}: code {r.code}")
        t.has(r.error, "about turns of several CPUs, and there is one")
    for chaos in ("x", "", "1,", "1,all", "1,turns,delays", "1" * 40 + ",turns"):
        t.run(t.reprise, "record", "-o", t.dir / "rec", "--cpus=2", f"--chaos={chaos}", *TINY, code=USAGE)
    for line, said in (("0 1", "no line CPU COUNT TO"), ("0 1 32", "no line"), ("32 1 0", "no line"), ("a 1 0", "no line"),
                       ("0 1 1 1", "something stands after"), ("0 5 1\n1 9 0\n0 5 1", ":3: the count is not above"),
                       ("0 99999999999999999999 1", "no line"), ("0 1 -1", "no line"), ("0 1\0 1", "a byte 0")):
        turns.write_text("# turns\n0 1 1 # one\n\n" * line.startswith("0 99") + line + "\n")
        r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--cpus=2", f"--turns={turns}", *TINY, code=None)
        t.check(r.code != 0 and not (t.dir / "rec").exists(), f"{line}: code {r.code}")
        t.has(r.error, said)
    r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--cpus=2", f"--turns={t.dir}/none", *TINY, code=None)
    t.has(r.error, "cannot be opened")
