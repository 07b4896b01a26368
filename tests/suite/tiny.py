"""The bare-metal guests of images/tiny, each recorded and replayed."""
import random
import re

from suite.harness import CRASH, DAMAGE, DIVERGED, ERROR, FINE, HALTED, IMAGES, ROOT, cpu, test

ENDS = {"triplefault": CRASH, "haltforever": HALTED}
OWN_TEST = {"avx512", "echo", "edge", "inuse", "random", "spin", "startup", "windows"}
COMMON = {"lib", "irq", "virtio_gpu"}
SCREEN = ("--gpu", "2d,xres=96,yres=64")
OPTIONS = {"gpu": SCREEN, "gpu_hostile": SCREEN}


def guest(name, model):
    @test(f"tiny/{name}-{model}")
    def run(t):
        t.need_model(model)
        r = t.tiny("rec", name, "--cpu", cpu(model), *OPTIONS.get(name, ()), code=None, timeout=30)
        t.lacks(r.text, "^FAIL")
        t.equal(r.code, ENDS.get(name, FINE), "the exit code")
        checks = len(re.findall("^ok ", r.text, re.M))
        t.check(checks, "the guest printed no ok line")
        t.same("rec", r)
        return f"{checks} checks"


for path in sorted((ROOT / "images" / "tiny").glob("*.c")):
    if path.stem not in OWN_TEST | COMMON:
        guest(path.stem, "v2")
        guest(path.stem, "v3")
for model in ("nehalem", "haswell", "skylake-server", "icelake-server", "zen2"):
    guest("named", model)
    guest("asks", model)
    guest("counters", model)
    guest("lastbranch", model)
guest("avx512", "v4")


@test("tiny/in-use")
def in_use(t):
    """XSTATE_BV where C has executed a gather: the same by blocks and by single instructions."""
    t.need_model("v3")
    r = t.tiny("rec", "inuse", "--cpu", cpu("v3"))
    t.lacks(r.text, "^FAIL")
    for slice in 1, 3, 7:
        t.same("rec", r, "--verify", env={"REPRISE_TEST_SLICE": str(slice)})
    t.same("rec", t.tiny("stepped", "inuse", "--cpu", cpu("v3"), env={"REPRISE_TEST_SLICE": "1"}), "--verify")


@test("tiny/copies")
def copies(t):
    """Code that was copied to other addresses is what is translated there, and is run; also where room is short, when
    what was to be copied has gone."""
    r = t.tiny("rec", "spaces")
    for room in None, "3", "6", "20":
        for more in {}, {"REPRISE_TEST_HOT": "1"}, {"REPRISE_TEST_CLOBBER": "1"}, {"REPRISE_TEST_COPIES": "1"}:
            again = t.same("rec", r, "--verify", "--stats", env={**more, **({"REPRISE_TEST_CODE_CACHE": room} if room else {})})
            n = int(re.search(r"blocks copied.* ([\d,]+)\n", again.error)[1].replace(",", ""))
            t.check(n >= (10 if room == "3" else 200), f"{n} blocks were copied")


@test("tiny/other-maker")
def other_maker(t):
    """Results as another maker's CPU might have them change nothing: undefined flags are set before they get their
    value, approximations are looked up. Without that value the replay differs, so the faking is real."""
    fake = {"REPRISE_TEST_OTHER_MAKER": "1"}
    r = t.tiny("rec", "undefined")
    t.same("rec", r, "--verify", env=fake)
    t.same("rec", r, "--verify", env={**fake, "REPRISE_TEST_CLOBBER": "1", "REPRISE_TEST_HOT": "1"})
    t.same("rec", r, "--verify", env={"REPRISE_TEST_MAKER": "CentaurHauls"})
    raw = t.replay("rec", "--verify", env={"REPRISE_TEST_OTHER_MAKER": "raw"}, code=None)
    t.equal(raw.code, DIVERGED, "the exit code where undefined flags stay as they are")
    t.same("rec", t.tiny("faked", "undefined", env=fake), "--verify")


@test("tiny/other-maker-dense")
def other_maker_dense(t):
    """Blocks full of approximations that are looked up, also with what tests put in between; what has no entry."""
    t.need_model("v3")
    r = t.tiny("rec", "approx", "--cpu", cpu("v3"))
    for more in {}, {"REPRISE_TEST_CLOBBER": "1"}, {"REPRISE_TEST_HOT": "1", "REPRISE_TEST_NO_PEXT": "1"}:
        t.same("rec", r, "--verify", env={"REPRISE_TEST_OTHER_MAKER": "1", **more})


@test("tiny/maker-refused")
def maker_refused(t):
    """Where positions are branches, what is undefined is the host's, and another maker's host refuses it."""
    t.tiny("rec", "waits", env={"REPRISE_TEST_BRANCH": "1"}, code=None)
    r = t.replay("rec", env={"REPRISE_TEST_MAKER": "CentaurHauls"}, code=None)
    t.equal(r.code, ERROR, "the exit code")
    t.has(r.error, "recorded on a CPU by .*, this host's is by .*: some instructions give other results there.*"
                   "With --engine dbt, or --counter step, what is recorded replays anywhere")


def answers(lines):
    """What echo prints for these lines. (The empty first one may be lost: setting up the UART
    clears its FIFO.)"""
    total, out = 0, []
    for line in lines:
        value = 0
        for byte in line:
            value = (value * 31 + byte) & 0xFFFFFFFF
        total += len(line)
        out.append(f"{len(line)} {value:x} {total} {line.decode()}")
    return out


def answered(r):
    lines = [x for x in r.text.splitlines() if x[:1].isdigit()]
    return lines[1:] if lines[:1] == ["0 0 0 "] else lines


@test("tiny/echo-typed")
def echo(t):
    """Lines from a file, with a BREAK in between; what was typed is in the log."""
    lines = [b"hello", b"x" * 200, b"", b"exit"]
    typed = b"\nhello\n\x01b" + b"\n".join(lines[1:]) + b"\n"
    (t.dir / "typed").write_bytes(typed)
    with open(t.dir / "typed", "rb") as f:
        r = t.tiny("rec", "echo", stdin=f)
    t.equal(answered(r), answers(lines), "the answers")
    t.has(r.text, "^break 1$")
    t.same("rec", r)
    events = t.events("rec")
    data = "".join(e["data"] for e in events if e["type"] == "console")
    t.equal(data, typed.replace(b"\x01b", b"").decode(), "the logged input")
    t.equal(sum(e["type"] == "line_break" for e in events), 1, "the number of BREAKs")


def echo_piped(name, options):
    @test("tiny/echo-" + name, cost=4)
    def run(t):
        """Lines that come at random moments through a pipe: live input, paced or not."""
        rnd = random.Random(name)
        for turn in range(4):
            lines = [bytes(rnd.choice(b"abcdefgh ") for _ in range(rnd.randrange(60)))
                     for _ in range(30)] + [b"exit"]
            script = "echo\n" + "".join(f"printf '%s\\n' '{x.decode()}'; sleep 0.0{rnd.randrange(10)}\n"
                             for x in lines)
            (t.dir / "type.sh").write_text(script)
            rec = f"rec{turn}"
            r = t.run("bash", "-c", f"bash type.sh | {t.reprise} record -o {rec} --memory 16M "
                      f"--seed {turn} {options} --kernel {IMAGES}/tiny/echo.elf")
            t.equal(answered(r), answers(lines), "the answers")
            t.same(rec, r)


echo_piped("paced", "")
echo_piped("unpaced", "--no-realtime")


@test("tiny/kill-spin")
def kill_spin(t):
    """A killed recorder leaves what replays up to its last chunk."""
    child = t.start([t.reprise, "record", "-o", t.dir / "rec", "--memory", "16M", "--kernel",
                     IMAGES / "tiny" / "spin.elf"])
    try:
        child.wait(1.2)
    except Exception:
        pass
    child.kill()
    out = child.communicate()[0]
    r = t.replay("rec", code=DAMAGE)
    t.check(r.out and out.startswith(r.out), "the replay's console is not a prefix")
    t.has(r.error, "ends|cut|killed", "the message")
    t.equal(t.info("rec", code=DAMAGE)["state"], "killed", "the state")


def slices(name):
    @test("tiny/slices-" + name, cost=3)
    def run(t):
        """Where the run loop stops shows nowhere: recording and replay with odd slices."""
        typed = (b"\n" + b"some input\n" * 20 + b"\x01bexit\n") if name == "echo" else b""
        for n, length in enumerate((0, 1, 7, 1009, 99991)):
            if name == "faultstorm" and length and length < 1000:
                continue
            rec = f"rec{n}"
            r = t.tiny(rec, name, input=typed, env={"REPRISE_TEST_SLICE": length}, timeout=200)
            for other in (0, 13, 4099, 3000017):
                if name != "faultstorm" or other != 13:
                    t.same(rec, r, env={"REPRISE_TEST_SLICE": other}, timeout=200)
            t.run(t.reprise, "replay", "-o", t.dir / "again", "--force", t.dir / rec,
                  env={"REPRISE_TEST_SLICE": 4099})
            t.run(t.reprise, "diff", t.dir / rec, t.dir / "again")


@test("tiny/small-cache", cost=8)
def small_cache(t):
    """What the code cache has room for shows nowhere: some blocks in each region, that is, none for long."""
    for name in ("smc", "across", "meets", "compat", "paging", "interrupts", "exceptions", "faultstorm"):
        r = t.tiny(name, name, timeout=60)
        for blocks in (1, 2, 7, 50):
            t.same(name, r, env={"REPRISE_TEST_CODE_CACHE": blocks}, timeout=200)
        again = t.dir / (name + "-again")
        t.run(t.reprise, "replay", "-o", again, t.dir / name, env={"REPRISE_TEST_CODE_CACHE": 3}, timeout=200)
        t.run(t.reprise, "diff", t.dir / name, again)
        small = t.tiny(name + "-small", name, timeout=200, env={"REPRISE_TEST_CODE_CACHE": 3})
        t.same(name + "-small", small)


@test("tiny/slices-shadow", cost=4)
def shadow(t):
    """An interrupt that STI or MOV SS holds back comes after a REP's first iteration in any slices."""
    said = set()
    for n, length in enumerate((0, 1, 2, 7, 101)):
        r = t.tiny(f"rec{n}", "shadow", env={"REPRISE_TEST_SLICE": length})
        for other in (0, 1, 13, 97):
            t.same(f"rec{n}", r, env={"REPRISE_TEST_SLICE": other})
        said |= set(re.findall("^after the first: .*", r.text, re.M))
    t.equal(len(said), 1, "the answers of the guest")
    t.has(said.pop(), "^after the first: 60 of 60,")


for one in ("echo", "faultstorm", "smc", "paging", "across"):
    slices(one)


@test("tiny/trace", cost=3)
def trace(t):
    """The trace of a window does not depend on where the window begins."""
    t.tiny("rec", "paging")

    def window(a, b):
        out = t.run(t.reprise, "trace", "--from", a, "--to", b, t.dir / "rec").text
        return [line.rstrip() for line in out.splitlines()]

    whole = window(5000, 5999)
    positions = [int(x.split()[0]) for x in whole]
    t.check(positions == sorted(set(positions)) and len(positions) > 900, "the positions")
    parts = window(5000, 5123) + window(5124, 5124) + window(5125, 5999)
    t.equal(parts, whole, "the trace in three parts")
    beyond = t.run(t.reprise, "trace", "--from", 0, "--to", 10, "--json", t.dir / "rec").text
    t.equal(beyond.count('"position"'), 11, "the number of JSON lines")
    # REP instructions show all their positions.
    t.tiny("rep", "rep")
    at = 0
    lines = t.run(t.reprise, "trace", "--to", "30000", t.dir / "rep").text.splitlines()
    for line in lines:
        first, _, last = line.split()[0].partition("-")
        t.equal(int(first), at, "the first position of a line")
        at = int(last or first) + 1
    t.check(at == 30001 and any("-" in x.split()[0] for x in lines), "no REP in the trace")
