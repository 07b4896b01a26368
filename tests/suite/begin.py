"""`record --from`: recordings that begin in others."""
import json
import os
import re
import shutil
import signal
import subprocess

from suite.boot import image
from suite.harness import ERROR, IMAGES, ROOT, USAGE, Session, test

INPUTS = ("console", "quit", "input", "disk", "power", "nmi")


def begun(t, name, source, *options, typed=b"exit\n", **more):
    (t.dir / "typed").write_bytes(typed)
    with open(t.dir / "typed", "rb") as f:
        return t.run(t.reprise, "record", "-o", t.dir / name, "--from", t.dir / source, *options, stdin=f, **more)


def echo(t, name="rec", lines=12):
    """A recording that was left in the middle, at its user's wish."""
    (t.dir / "lines").write_bytes(b"".join(b"line %d\n" % i for i in range(lines)) + b"\x01x")
    with open(t.dir / "lines", "rb") as f:
        return t.tiny(name, "echo", stdin=f)


def inputs(t, name):
    return [e for e in t.events(name) if e["type"] in INPUTS]


def log_before(t, name):
    """Its records up to where it begins in another one, or all of them."""
    records = []
    for e in t.events(name):
        if e["type"] == "note" and e["what"] == "from":
            break
        records.append({k: v for k, v in e.items() if k != "index"})
    return records


@test("begin/points", cost=3)
def points(t):
    """From each kind of point: up to there it is the other recording, input for input; from there on it is live.
    It replays in slices, without the other one, and another one begins in it."""
    echo(t)
    before = inputs(t, "rec")
    end = t.info("rec")["position"]
    middle = before[5]
    for number, (point, given) in enumerate((
            ("insn:0", 0), (f"insn:{middle['position']}", 6), (f"insn:{middle['position'] + 1}", 6),
            (f"insn:{middle['position'] - 1}", 5), (f"event:{t.events('rec').index(middle)}", 6), ("end-1", 12), ("end", 12),
            (f"time:{middle['time'] + 1}ns", 6), ("console:line 0", None))):
        name = f"r{number}"
        r = begun(t, name, "rec", "--at", point, typed=b"another\nexit\n")
        mine = inputs(t, name)
        if given is None:
            at = t.info(name)["descent"][0]["position"]
            given = len([x for x in before if x["position"] <= at])
        for a, b in zip(before[:given], mine):
            t.equal((b["position"], b["time"], b["type"], b["cpu"]), (a["position"], a["time"], a["type"], a["cpu"]),
                    f"an input before {point}")
        t.check(len(mine) > given and mine[given] != before[given:given + 1], f"no input of its own after {point}")
        replayed = t.replay(name)
        t.has(replayed.text, r"another$", "the answer to what was typed")
        t.check(replayed.out.endswith(r.out) and len(r.out) < len(replayed.out) or not given,
                "what the part before printed was shown again")
        t.replay(name, env={"REPRISE_TEST_SLICE": 997})
        t.equal([d["recording"] for d in t.info(name)["descent"]], [str(t.dir / "rec")], "where it begins")
        t.equal(log_before(t, name), log_before(t, "rec")[:len(log_before(t, name))], f"the records before {point}")
    t.has(t.run(t.reprise, "info", t.dir / "r6").text, rf"begun from +\S+/rec, at position {end} ")
    shutil.rmtree(t.dir / "rec")
    begun(t, "again", "r6", "--at", f"insn:{end - 1}", typed=b"a third\nexit\n")
    shutil.rmtree(t.dir / "r6")
    t.has(t.replay("again", "--engine", "dbt,paranoid").text, r"a third$")
    t.has(begun(t, "third", "again", "--at", "end", code=ERROR).error,
          r"machine of .*/again ends at position \d+ \(.*\), and nothing goes on from there; --at=end-1")
    begun(t, "third", "again", "--at", "end-1", typed=b"exit\n")
    t.equal([d["recording"] for d in t.info("third")["descent"]], [str(t.dir / "r6"), str(t.dir / "again")],
            "the line of descent")


@test("begin/checkpoints", cost=6)
def checkpoints(t):
    """Where it has checkpoint files of its own user's, it is there at once, and they are the new one's as well;
    nobody else's are, damaged ones are said and left out, and a file system of its own is no reason to fail."""
    for _ in range(20):  # how many there are is the host's time's
        t.tiny("rec", "stretch", "--force", "--checkpoint-every", "0.001", "--seed", 1)
        count, end = t.info("rec")["checkpoints"], t.info("rec")["position"]
        if count >= 3:
            break
    t.check(count >= 3, "too few checkpoints")
    files = [t.dir / f"rec/checkpoints/{n:06}" for n in range(count)]
    whole = t.run(t.reprise, "replay", "--to", end - 10, "--regs", "--json", t.dir / "rec").out

    def begin(name, point, how, source="rec", env=None):
        r = begun(t, name, source, "--force", "--at", point, "-v", typed=b"", env=env)
        t.has(r.error, how, f"how {name} begins")
        t.replay(name)
        t.equal(json.loads(t.run(t.reprise, "replay", "--to", end - 10, "--regs", "--json", t.dir / name).out),
                json.loads(whole), "the place in it")
        return r
    begin("all", f"insn:{end - 10}", f"from checkpoint {count} of {count}, ")
    for n, file in enumerate(files):
        t.equal((t.dir / "all/checkpoints" / file.name).stat().st_ino, file.stat().st_ino, f"the inode of file {n}")
    t.verify_checkpoints("all")
    at = re.search(r"from checkpoint \d+ of \d+, at position (\d+)", begin("first", "insn:1", "from power-on").error)
    t.check(not at, "a checkpoint of before")
    t.check(not (t.dir / "first/checkpoints").exists(), "checkpoints of after it are kept")
    for n, block in [(n, False) for n in range(count)] + [(count - 1, True)]:
        forged = t.dir / "bad"
        shutil.rmtree(forged, ignore_errors=True)
        shutil.copytree(t.dir / "rec", forged)
        path = forged / f"checkpoints/{n:06}"
        data = bytearray(path.read_bytes())
        data[len(data) // 3 if block else -8] ^= 1  # the last one's pages are all loaded; the end is the table of all
        path.write_bytes(data)
        r = begin("new", f"insn:{end - 10}", rf"checkpoints/{n:06} is of no use \((wrong checksum|.*cannot be decompressed)",
                  source="bad")
        # Of few pages that place may be none of theirs: then it is seen at once.
        found = rf"replayed from power-on|wrong checksum[\s\S]*from checkpoint {n} of"
        t.has(r.error, found if block else f"from checkpoint {n} of" if n else "from power-on")
    other = {"XDG_STATE_HOME": str(t.dir / "elsewhere")}
    begin("stranger", f"insn:{end - 10}", "from power-on", env=other)
    shutil.rmtree(t.dir / "rec")
    t.verify_checkpoints("all")
    begin("again", f"insn:{end - 10}", f"from checkpoint {count} of {count}, ", source="all")


@test("begin/linux", cost=8)
def linux(t):
    """A shell goes on where another recording was left, idle, with its disk; time goes on, too. A killed one
    likewise, from its end."""
    (t.dir / "disk.img").write_bytes(bytes(1 << 20))
    s = Session(t, "rec", "--disk", t.dir / "disk.img")
    s.prompt()
    s.type("echo of the first | dd of=/dev/vda conv=fsync 2>/dev/null; cut -d. -f1 /proc/uptime")
    s.send("\x01x")
    s.finish()
    middle = next(e for e in reversed(t.events("rec")) if e["type"] == "console")
    r = begun(t, "new", "rec", typed=b"head -c 12 /dev/vda; echo; echo $((6*7)); poweroff -f\n")
    t.has(r.text, "of the first[\\s\\S]*^42\\s")
    t.replay("new")
    r = begun(t, "time", "rec", "--at", f"time:{middle['time'] + 1}ns", "--checkpoint-every", "0.2",
              typed=b"echo $((7*7)); poweroff -f\n")
    t.has(r.text, r"^49\s")
    t.replay("time")
    t.verify_checkpoints("time")
    s = Session(t, "killed")
    s.prompt()
    s.type("echo here $((1+1))", "here 2")
    s.child.send_signal(signal.SIGKILL)
    s.child.wait()
    s.close()
    r = begun(t, "on", "killed", typed=b"echo $((6*9)); poweroff -f\n")
    t.has(r.text, r"^54\s")
    t.replay("on")


def branch(t, name, source, seed, **more):
    """What a shell there reads of its kernel's randomness; with that seed."""
    options = ("--seed", seed) if seed is not None else ()
    r = begun(t, name, source, *options, typed=b"echo its $(head -c 16 /dev/urandom | md5sum); poweroff -f\n", **more)
    return re.findall(r"^its ([0-9a-f]{32})", r.text, re.M)


def booted(t):
    """A recording left at its prompt, with a kernel that knows the generation ID."""
    image(t, "generic")
    s = Session(t, "rec", "--memory", "512M", "--checkpoint-every", "0.3", image="generic", append="quiet")
    s.prompt()
    s.send("\x01x")
    s.finish()


@test("begin/hundred", cost=150)
def hundred(t):
    """A hundred branches with a hundred seeds: each replays, no two have the same randomness."""
    booted(t)
    seen = set()
    for seed in range(1, 101):
        seen.update(branch(t, "branch", "rec", seed))
        t.equal(len(seen), seed, "random numbers that are different")
        t.replay("branch")
        shutil.rmtree(t.dir / "branch")


@test("begin/seeds", cost=8)
def seeds(t):
    """Branches from one point with other seeds have other randomness, at once; with the same one, or with none, the same.
    Their guest's kernel is told by the generation ID. A machine of before has none, which is said."""
    booted(t)
    seen = {}
    for seed in (None, 1, 2, 3, 4, 5):
        got = [branch(t, f"s{seed}{n}", "rec", seed) for n in "ab"]
        t.check(len(got[0]) == 1, f"seed {seed} gave {got}")
        t.equal(got[1], got[0], f"the randomness with seed {seed} again")
        seen[seed] = got[0][0]
        t.replay(f"s{seed}a")
        told = [e["type"] for e in t.events(f"s{seed}a") if e["type"] in ("reseed", "generation")]
        t.equal(told, ["reseed", "generation"] if seed else [], f"what the machine was given with seed {seed}")
    t.equal(len(set(seen.values())), len(seen), "different random numbers")
    t.check(branch(t, "later", "s1a", None, code=ERROR) == [], "a machine that powered off goes on")
    t.env["REPRISE_TEST_MAKER"] = "GenuineIntel"  # it has none of the instructions in which makers differ
    golden = t.dir / "golden"
    shutil.copytree(ROOT / "tests/golden/typed", golden)
    r = begun(t, "older", "golden", "--at", "insn:1000", "--seed", 7, code=None)
    t.has(r.error, "has no generation ID: only its entropy device has another seed")
    t.replay("older")
    t.equal([e["type"] for e in t.events("older") if e["type"] in ("reseed", "generation")], ["reseed"],
            "what an older machine was given")


@test("begin/connections", cost=5)
def connections(t):
    """Ports and shares of the machine are connected anew, or to nobody; what was read before is kept in the new one."""
    image(t)
    (t.dir / "sh").mkdir()
    (t.dir / "sh/a").write_bytes(b"of before\n" * 2000)
    (t.dir / "in").write_bytes(b"to the port\n")
    s = Session(t, "rec", "--share", t.dir / "sh", "--port", "agent=none", "--port", "other=none", "--checkpoint-end")
    s.prompt()
    s.type("mkdir -p /m; mount -t virtiofs share /m; md5sum /m/a; cat /dev/virtio-ports/agent; echo none $?", "none 0")
    s.send("\x01x")
    s.finish()
    (t.dir / "sh/b").write_bytes(b"of later\n")
    commands = b"cat /m/b; head -c 20 /m/a; head -n 1 /dev/virtio-ports/agent; poweroff -f\n"
    alone = begun(t, "alone", "rec", "-v", typed=commands)
    t.has(alone.error, "from checkpoint 1 of 1")
    t.has(alone.text, "/m/b.*: (Transport endpoint is not connected|Connection refused)")
    t.lacks(alone.text, "of later")
    r = begun(t, "connected", "rec", "--share", t.dir / "sh", "--port", f"agent=in:{t.dir}/in", typed=commands)
    t.has(r.text, "^of later[\\s\\S]*^of before\\s*^of before[\\s\\S]*^to the port")
    shutil.rmtree(t.dir / "sh")
    shutil.rmtree(t.dir / "rec")
    t.replay("alone")
    t.replay("connected")
    t.verify_checkpoints("connected")
    for options, why in ((("--port", f"nobody=in:{t.dir}/in"), "the machine has no port of that name"),
                         (("--share", t.dir, "--share", t.dir), "the machine has 1, not 2")):
        t.has(begun(t, "x", "alone", "--at", "insn:1000", *options, code=ERROR).error, why)


@test("begin/refused", cost=2)
def refused(t):
    """What cannot be, each with its reason; nothing is left behind, and the other recording is as it was."""
    echo(t)
    log = (t.dir / "rec/log").read_bytes()

    def no(text, *options, source="rec", code=ERROR):
        r = begun(t, "x", source, *options, code=code)
        t.has(r.error, text)
        t.check(not (t.dir / "x").exists(), "a recording is left")
    no("the machine is the one of .*; --memory cannot be said again", "--memory", "32M", code=USAGE)
    no("--kernel cannot", "--kernel", IMAGES / "tiny/echo.elf", code=USAGE)
    no("seed", "--seed", "often", code=USAGE)
    no("--disk cannot", "--disk", "x.img", code=USAGE)
    no("engine=dbt only", "--engine", "kvm", code=USAGE)
    no("lies after the end", "--at", "insn:99G")
    no("nothing of the kind", "--at", "console:nothing of the kind")
    no("there is no mark", "--at", "mark:none")
    no("POINT|point", "--at", "nowhere:1", code=USAGE)
    no("No such file", source="none")
    t.has(t.tiny("x", "echo", "--at", "end", code=USAGE).error, "--at goes with --from")
    t.has(t.run(t.reprise, "record", "--force", "-o", t.dir / "rec", "--from", t.dir / "rec", code=ERROR).error,
          "is the recording that it is to begin in")
    damaged = t.dir / "damaged"
    shutil.copytree(t.dir / "rec", damaged)
    data = bytearray((damaged / "log").read_bytes())
    data[len(data) // 2] ^= 1
    (damaged / "log").write_bytes(data)
    no("damage|lies after", "--at", f"insn:{t.info('rec')['position']}", source="damaged")
    t.equal((t.dir / "rec/log").read_bytes(), log, "the log of the other recording")
    with open(os.devnull, "rb") as f:
        child = t.start([t.reprise, "record", "-o", t.dir / "y", "--from", t.dir / "rec", "--gdb", "--gdb-wait"],
                        stdin=f, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        line = child.stderr.readline().decode()
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=30)
    t.check(re.search("target remote", line), f"--gdb said {line!r}")
    t.replay("y")
