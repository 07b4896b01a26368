"""`record --from`: recordings that begin in others."""
import os
import re
import shutil
import signal
import subprocess

from suite.harness import ERROR, IMAGES, USAGE, Session, test

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
            at = t.info(name)["from_position"]
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
        told = t.info(name)
        t.equal(told["from"], str(t.dir / "rec"), "where it begins")
    t.has(t.run(t.reprise, "info", t.dir / "r6").text, rf"begun from +\S+/rec, at or after position {end} ")
    shutil.rmtree(t.dir / "rec")
    begun(t, "again", "r6", "--at", f"insn:{end - 1}", typed=b"a third\nexit\n")
    shutil.rmtree(t.dir / "r6")
    t.has(t.replay("again", "--engine", "dbt,paranoid").text, r"a third$")


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
    no("--seed cannot", "--seed", 1, code=USAGE)
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
