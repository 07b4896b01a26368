"""Going anywhere in a recording: points, memory there, checkpoints on disk, damage to them."""
import json
import os
import random
import re
import shutil
import subprocess
import time

from suite.boot import image
from suite.gdb import Client, addresses
from suite.gdb_session import session
from suite.harness import ERROR, IMAGES, USAGE, Session, test

RDI = 5  # gdb's number
SCRIPT = "echo alpha; sleep 1; echo beta; cat /proc/uptime; sleep 1; echo alpha\n"


def go(t, name, point, *options, code=0, **more):
    """reprise replay --to POINT --json, as an object."""
    r = t.run(t.reprise, "replay", "--to", point, "--json", *options, t.dir / name, code=code,
              **more)
    return json.loads(r.out)


def place(there):
    return there["position"], there["time"]


def linux(t, name="rec", *options, script=SCRIPT, **more):
    image(t)
    return t.linux(name, "--memory", "256M", *options, append="quiet", script=script, **more)


# Points


@test("travel/points", cost=9)
def points(t):
    """Each kind of point lands exactly where it says; the console is as long as it was then."""
    r = linux(t, "rec", "--checkpoint-every", "0.1")
    end = t.info("rec")
    last = (end["position"], end["time"])

    def reach(point, *options):
        there = go(t, "rec", point, "--console", *options)
        text = there["console"].encode()
        t.equal(len(text), there["console_bytes"], f"the console's length at {point}")
        t.equal(text, r.out[:len(text)], f"the console at {point}")
        return there

    for text, position in (("insn:1234567", 1234567), ("0", 0), ("54321", 54321), ("0x12D687", 1234567),
                           ("insn:300M", 300000000), ("999k", 999000), ("1G", 1000000000),
                           (str(last[0]), last[0]), ("end-1", last[0] - 1),
                           ("end-2M", last[0] - 2000000), (f"end-{last[0]}", 0)):
        there = reach(text)
        t.equal(there["position"], position, f"the position of {text}")
        t.equal(there["ended"], "poweroff" if position == last[0] and text == "end" else
                there["ended"], f"the end at {text}")
    there = reach("end")
    t.equal((*place(there), there["ended"]), (*last, "poweroff"), "the end")
    t.equal(there["console"].encode(), r.out, "the console at the end")
    # Running, a position is a nanosecond; the sleeps of the script are spent halted: no position passes.
    seen = set()
    for text, ns in (("time:0", 0), ("time:100ms", 100000000), ("time:1234567ns", 1234567),
                     ("time:0.1", 100000000), ("time:1.7s", 1700000000), ("time:2.6", 2600000000)):
        there = reach(text)
        t.equal(there["time"], ns, f"the time at {text}")
        later = go(t, "rec", f"time:{ns + 1000}ns")
        t.equal(there["halted"], later["position"] == there["position"], f"halted at {text}")
        seen.add(there["halted"])
    t.equal(seen, {True, False}, "whether it was halted")
    for event in t.events("rec"):
        t.equal(place(reach(f"event:{event['index']}")), (event["position"], event["time"]),
                f"the place of event {event['index']}")
    for text, pattern, k in (("alpha", b"alpha", 1), ("alpha#2", b"alpha", 2), ("a", b"a", 1),
                             ("a#5", b"a", 5), ("alpha\\r\\nbeta", b"alpha\r\nbeta", 1),
                             ("Power down", b"Power down", 1)):
        there = reach("console:" + text)
        shown = there["console"].encode()
        t.check(shown.endswith(pattern) and shown.count(pattern) == k, f"{text}: {shown[-40:]!r}")
        before = go(t, "rec", there["position"] - 1)
        t.equal(before["console_bytes"], len(shown) - 1, f"the console just before {text}")
    r = t.run(t.reprise, "replay", "--to", "console:alpha", "--console", t.dir / "rec")
    t.check(r.text.endswith("alpha\n"), f"the console: {r.text[-40:]!r}")
    t.has(r.error, "^position")
    t.lacks(r.error, "alpha", "the place, where the console was asked for by itself")


@test("travel/switches", cost=6)
def switches(t):
    """Where the kernel changes from one process to another the stack is already the next one's: its program's
    frames have no name of the last one's, which may be none at all; afterwards they have theirs again."""
    linux(t, "rec", "--checkpoint-every", "0.05", script="sleep 3; for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done | cat\n")
    t.run(t.reprise, "symbols", "--at", "end", "-o", t.dir / "vmlinux", t.dir / "rec")
    names = addresses(t, t.dir / "vmlinux")
    found = {True: 0, False: 0}  # with a program's frame: from the idle task, from another

    def frames(position):
        return [x for x in go(t, "rec", position)["backtrace"] if x["user"]]

    with Client(t, "rec", "--to", "console:2") as c:
        c.point(0, names["__switch_to"], 1)
        for _ in range(200):
            if min(found.values()) >= 2 or not re.match("T05(?!.*replaylog)", c.onward()):
                break
            idle, position = c.register(RDI) == names["init_task"], c.position()
            if found[idle] >= 2 or not (there := frames(position)):
                continue
            t.check(not any(x["symbol"] for x in there), f"a name of another program's at {position}: {there}")
            later = frames(position + 400)  # of programs of which the kernel has the file in memory
            if [x["address"] for x in later] == [x["address"] for x in there]:
                found[idle] += all(x["symbol"] for x in later)
    t.check(all(found.values()), f"there were no programs' frames: {found}")
    return f"{found[True]} from idle, {found[False]} from a program"


@test("travel/marks", cost=4)
def marks(t):
    """mark:NAME is where `reprise gdb` set it; a name is given once; odd names and lines survive;
    a gdb that came by itself writes nothing."""
    linux(t)
    said = session(t, "monitor when", "monitor mark here", "monitor mark here", "monitor goto 777",
                   "monitor mark two words #2", "monitor mark", "monitor goto mark:here",
                   "monitor marks", "monitor goto 5", "set $rax = 1", "monitor mark branch",
                   options=("--to", "console:beta")).text
    at = re.search(r"^position +(\d+)", said, re.M).group(1)
    t.has(said, f"^mark:here is position {at}$")
    t.has(said, "there is a mark 'here' already, at position " + at)
    t.has(said, "^mark:two words #2 is position 777$")
    t.has(said, "error: a mark needs a name")
    t.has(said, rf"(?s)a mark needs.*^position +{at}$")
    t.has(said, r"^ +777 +0\.0{6}777 s +mark:two words #2$")
    t.has(said, "error: a what-if branch")  # has no place
    before = (t.dir / "rec" / "marks").read_bytes()
    with Client(t, "rec", "--to", "777") as c:
        t.has(c.monitor("mark other"), "^error: only the gdb that `reprise gdb` started.* point 777$")
        t.has(c.monitor("goto mark:here"), f"^position +{at}$")
    t.equal((t.dir / "rec" / "marks").read_bytes(), before, "the marks")
    with open(t.dir / "rec" / "marks", "a", encoding="ascii") as f:
        f.write("no numbers here\n" + "9" * 600 + "\n\n99999999999 5 outside\n")
    t.equal(str(go(t, "rec", "mark:here")["position"]), at, "mark:here")
    t.equal(go(t, "rec", "mark:two words #2")["position"], 777, "the other mark")
    for name, why in (("nobody", "there is no mark 'nobody'"), ("outside", "recording ends before")):
        r = t.run(t.reprise, "replay", "--to", "mark:" + name, t.dir / "rec", code=ERROR)
        t.has(r.error, "^reprise: .*" + why)
    t.replay("rec")


@test("travel/ranges", cost=6)
def ranges(t):
    """events and trace take the same points."""
    linux(t, "rec", "--checkpoint-every", "0.1")
    events = t.events("rec")

    def listed(a, b):
        out = t.run(t.reprise, "events", "--json", "--from", a, "--to", b, t.dir / "rec").text
        return [json.loads(line) for line in out.splitlines()]

    for a, b in (("event:3", "event:5"), ("0", "end"), ("console:alpha", "end"),
                 ("insn:5", "end-1"), ("time:50ms", "time:200ms"), ("event:0", "console:beta")):
        first, last = (go(t, "rec", p)["position"] for p in (a, b))
        t.equal(listed(a, b), [e for e in events if first <= e["position"] <= last],
                f"the events from {a} to {b}")
    traced = 0
    for point in ("insn:1234567", "time:100ms", "event:3", "console:beta", "end-5", "5M"):
        there = go(t, "rec", point)
        line = t.run(t.reprise, "trace", "--json", "--from", point, "--to", there["position"],
                     t.dir / "rec").text
        t.check(line or there["halted"], f"no instruction at {point}")
        one = json.loads(line.splitlines()[0])
        t.equal((one["position"], one["rip"]), (there["position"], there["rip"]), f"trace {point}")
        traced += 1
    r = t.run(t.reprise, "trace", "--from", "end-3", "--to", "end", t.dir / "rec")
    t.equal(len(r.text.splitlines()), 3, "the lines of the last three positions")
    for command in ("events", "trace"):
        r = t.run(t.reprise, command, "--from", "console:beta", "--to", "console:alpha",
                  t.dir / "rec", code=ERROR)
        t.has(r.error, r"^reprise: --to, position \d+, lies before --from, \d+$")
        r = t.run(t.reprise, command, "--from", "event:99", "--to", "end", t.dir / "rec",
                  code=ERROR)
        t.has(r.error, "no event 99")
    return f"{traced} traced"


@test("travel/bad-points", cost=5)
def bad_points(t):
    """What is not in the recording is an error that says why; what is no point is wrong usage."""
    linux(t, "rec", "--checkpoint-every", "0.2")
    last = t.info("rec")["position"]
    number = t.events("rec")[-1]["index"]
    for point, why in (("99G", f"position 99000000000 lies after the end .*, {last}$"),
                       (str(last + 1), "lies after the end"),
                       ("time:99", "99 s lies after the end of the recording, "),
                       ("event:99", f"has no event 99: the last one is {number}$"),
                       (f"event:{number + 1}", "has no event"),
                       ("end-99G", f"has only {last} positions"),
                       (f"end-{last + 1}", "has only"),
                       ("console:zebra", "the console never shows 'zebra'"),
                       ("console:alpha#3", "shows 'alpha' 2 times, not 3 times"),
                       ("console:#2", "never shows"), ("mark:x", "there is no mark 'x'")):
        for options in ((), ("--json",)):
            r = t.run(t.reprise, "replay", "--to", point, *options, t.dir / "rec", code=ERROR)
            t.has(r.error, "^reprise: .*" + why)
            t.equal((r.error.count("\n"), r.out), (1, b""), f"what {point} prints")
    commands = (("replay", "--to"), ("events", "--from"), ("events", "--to"), ("gdb", "--to"))
    for point, why in (("noon", "'noon' is no point"), ("-5", "is no point"), ("", "is no point"),
                       ("time:-1", "takes a time like"), ("time:", "takes a time like"),
                       ("0x", "is no point"), ("0xg", "is no point"), ("insn:0x", "whole number"),
                       ("event:x", "whole number"), ("end-", "end-N takes a number"),
                       ("console:", "which text"), ("console:a#0", "first text is #1"),
                       ("console:\\q", r"only \\n"), ("console:" + "x" * 300, "longer than 256"),
                       ("mark:", "takes a name"), ("5k5", "is no point")):
        for command, option in commands:
            r = t.run(t.reprise, command, option, point, t.dir / "rec", code=USAGE)
            t.has(r.error, why)
            t.has(r.error, option)
    r = t.run(t.reprise, "replay", "--to", "5", t.dir / "nothing", code=ERROR)
    t.has(r.error, "No such file")
    for options in (["--verify", "--to", "5"], ["--quiet", "--regs"], ["-o", "x", "--to", "5"],
                    ["--gdb", "--json"], ["--gdb", "--regs"], ["--checkpoint-memory", "64M"],
                    ["--to", "5", "--checkpoint-memory", "0"]):
        t.run(t.reprise, "replay", *options, t.dir / "rec", code=USAGE)


@test("travel/memory", cost=4)
def memory(t):
    """--mem: symbols, physical and virtual addresses agree; what is not there is said."""
    linux(t, "rec", "--checkpoint-every", "0.2")
    rec = t.dir / "rec"

    def mem(point, spec, code=0):
        return t.run(t.reprise, "replay", "--to", point, "--mem", spec, rec, code=code)

    def bytes_of(r):
        rows = re.findall(r"^[0-9a-f]{16}  ((?:[0-9a-f]{2} {1,2}){1,16})", r.text, re.M)
        return bytes.fromhex(" ".join(rows))

    banner = bytes_of(mem("end", "linux_banner,64"))
    t.check(banner.startswith(b"Linux version 6."), f"linux_banner is {banner!r}")
    listed = t.run(t.reprise, "symbols", rec).text
    address = int(re.search(r"^([0-9a-f]{16}) \w linux_banner$", listed, re.M).group(1), 16)
    for spec in (f"0x{address:x},64", f"{address},0x40"):
        t.equal(bytes_of(mem("end", spec)), banner, spec)
    # The kernel's text is mapped at 0xffffffff80000000 plus where it lies.
    there = go(t, "rec", "end", "--mem", "linux_banner,64", "--mem", "phys:0,4096", "--mem",
               "phys:0x10000000,1", "--mem", "0,8", "--regs")
    t.equal(bytes.fromhex(there["memory"][0]["bytes"]), banner, "the JSON's bytes")
    t.equal(int(there["memory"][0]["address"], 16), address, "the JSON's address")
    t.equal(len(there["memory"][1]["bytes"]), 2 * 4096, "the length in the JSON")
    t.has(there["memory"][2]["error"], "no memory at physical address 0x10000000 here")
    t.has(there["memory"][3]["error"], "no memory at virtual address (0x)?0 here")
    t.equal(there["registers"]["rip"], there["rip"], "RIP among the registers")
    whole = bytes_of(mem("end", f"phys:{(address & 0x7fffffff):#x},64"))
    t.equal(whole, banner, "the banner by its physical address")
    # Across the last page of RAM: what is not there is named.
    t.has(mem("end", "phys:0xffffff8,9", ERROR).error, "no memory at physical address 0x10000000")
    t.has(mem("5", "linux_banner,8", ERROR).error, "no memory at virtual address")
    # Names are looked up on the way: not only where the place was not found either.
    for spec, why in (("nosuch_symbol", "has no symbol 'nosuch_symbol'.* MODULE:NAME"),
                      ("linux_banner", "never shows"), ("nosuch:symbol", "never shows")):
        t.has(mem("console:never shown", spec, ERROR).error, why, spec)
    for spec, why in (("nosuch:linux_banner,8", "has no symbol 'nosuch:linux_banner'"),
                      ("nosuch_symbol,8", "has no symbol 'nosuch_symbol'"),
                      ("0xffffffffffffffff,2", "no memory at virtual address"),
                      ("phys:0xffffffffffffffff,2", "no memory at physical address")):
        t.has(mem("end", spec, ERROR).error, "^reprise: .*(?:" + why + ")")
    # What is no place at all is refused before anything is replayed (words/memory says how).
    for spec in (",5", "5,", "5,0", "5,-1", "5,x", "5,99999999999999999999", "0,1048577", "phys:,8",
                 "99999999999999999999999,1", "0x,1", "5z,1"):
        mem("end", spec, USAGE)
    r = t.run(t.reprise, "replay", "--regs", "--mem", "linux_banner,8", rec)
    t.has(r.text, "^rax +[0-9a-f]{16}  rcx")


# Checkpoints


def tool(t, *argv):
    return t.run(t.build / "tests" / "tools" / "walk", *argv, timeout=400).text.strip().splitlines()[-1]


def walked(t, name, *options, moves=40, small=None):
    """From every file, and at random, and at random with little memory: as a straight replay."""
    files = tool(t, "--each-file", "--seed", 1, t.dir / name)
    found = int(re.search(r"(\d+) files", files).group(1))
    for seed in (1, 2):
        tool(t, "--seed", seed, "--places", 20, "--moves", moves, *options, t.dir / name)
    if small:
        tool(t, "--seed", 3, "--places", 20, "--moves", moves // 2, "--memory", small, t.dir / name)
    return found


def from_tiny(name, least, every="0.002"):
    @test("travel/files-" + name, cost=2)
    def run(t):
        """Checkpoints of a small guest, some in places where Linux is never."""
        typed = b"\nhello\n\x01b" + b"some more input\n" * 40 + b"exit\n" if name == "echo" else b""
        r = t.tiny("rec", name, "--checkpoint-every", every, input=typed,
                   env={"REPRISE_TEST_SLICE": 1009 if name in ("echo", "interrupts") else 10007})
        files = walked(t, "rec", small=None)
        t.check(files >= least, f"only {files} checkpoints")
        t.same("rec", r)
        t.verify_checkpoints("rec")
        return f"{files} files"


from_tiny("timers", 30, "0.02")  # it waits most of the time
for one, number in (("interrupts", 1), ("rep", 2), ("smc", 2), ("paging", 2),
                    ("faultstorm", 10), ("echo", 1)):
    from_tiny(one, number)


@test("travel/files-linux", cost=16)
def files_linux(t):
    """Checkpoints taken while recording, and afterwards."""
    r = linux(t, "rec", "--checkpoint-every", "0.1")
    found = walked(t, "rec", moves=20, small=80)
    t.check(found >= 4, f"only {found} checkpoints while recording")
    t.same("rec", r)
    made = json.loads(t.run(t.reprise, "checkpoint", "--every", "0.05", "--json",
                            t.dir / "rec").out)
    t.check(made["checkpoints"] >= 4, f"made {made}")
    t.equal(made["bytes"], sum(f.stat().st_size for f in (t.dir / "rec/checkpoints").iterdir()),
            "the bytes")
    tool(t, "--each-file", "--seed", 2, t.dir / "rec")
    t.verify_checkpoints("rec")
    there = go(t, "rec", "console:beta")
    r = t.run(t.reprise, "checkpoint", "--remove", t.dir / "rec")
    t.check(not (t.dir / "rec" / "checkpoints").exists(), "checkpoints are left")
    t.equal(go(t, "rec", "console:beta"), there, "the place without checkpoints")
    return f"{found} while recording, {made['checkpoints']} afterwards"


def files_typed(name, options):
    @test("travel/files-" + name, cost=12)
    def run(t):
        """Somebody types while checkpoints are written: places between inputs, and in a wait."""
        image(t)
        s = Session(t, "rec", "--memory", "256M", "--checkpoint-every", "0.1", *options,
                    append="quiet")
        s.prompt()
        for line in ("echo $((6*7))", "ls -R /sys | md5sum", "sleep 0.5", "cat /proc/interrupts"):
            s.type(line)
        s.send("poweroff -f\n")
        s.finish()
        files = walked(t, "rec", moves=20)
        t.check(files >= 4, f"only {files} checkpoints")
        t.equal(t.replay("rec").out, s.out, "the console of the replay")
        t.verify_checkpoints("rec")
        # The k-th character of what was typed, where it was echoed.
        there = go(t, "rec", "console:md5sum", "--console")
        t.equal(there["console"].encode(), s.out[:there["console_bytes"]], "the console")
        return f"{files} files"


files_typed("paced", ())
files_typed("unpaced", ("--no-realtime",))


def flip(path, rnd, start, end):
    data = bytearray(path.read_bytes())
    at = rnd.randrange(int(start * len(data)), max(1, int(end * len(data))))
    data[at] ^= 1 << rnd.randrange(8)
    path.write_bytes(data)


def replace(path, make):
    path.unlink()
    make(path)


DAMAGE = {
    "header": lambda p, rnd, other: flip(p, rnd, 0, 0.00001),
    "pages": lambda p, rnd, other: flip(p, rnd, 0.01, 0.5),
    "tail": lambda p, rnd, other: flip(p, rnd, 0.98, 1),
    "cut": lambda p, rnd, other: os.truncate(p, p.stat().st_size * 2 // 3),
    "short": lambda p, rnd, other: os.truncate(p, 20),
    "longer": lambda p, rnd, other: p.write_bytes(p.read_bytes() + b"junk"),
    "empty": lambda p, rnd, other: p.write_bytes(b""),
    "text": lambda p, rnd, other: p.write_text("hello\n" * 5000),
    "foreign": lambda p, rnd, other: shutil.copy(other, p),
    "directory": lambda p, rnd, other: replace(p, lambda q: q.mkdir()),
    "fifo": lambda p, rnd, other: replace(p, os.mkfifo),
    "link": lambda p, rnd, other: replace(p, lambda q: q.symlink_to("/etc/passwd")),
    "gone": lambda p, rnd, other: p.unlink(),
}


def copied(t, name):
    shutil.rmtree(t.dir / "bad", ignore_errors=True)
    shutil.copytree(t.dir / name, t.dir / "bad")
    return t.dir / "bad" / "checkpoints"


@test("travel/damaged-files", cost=20)
def damaged_files(t):
    """A checkpoint that is damaged is named and left out: the places are the same without it."""
    linux(t, "rec", "--seed", 1, "--checkpoint-every", "0.1")
    linux(t, "other", "--seed", 2, "--checkpoint-every", "0.1")
    names = sorted(p.name for p in (t.dir / "rec" / "checkpoints").iterdir())
    middle = go(t, "rec", "console:beta", "--regs", "--mem", "jiffies_64,8")
    place_of = str(middle["position"])
    rnd = random.Random(4)
    for turn, (kind, spoil) in enumerate(DAMAGE.items()):
        # The first, the last and one between in turn.
        name = (names[0], names[-1], names[len(names) // 2])[turn % 3]
        files = copied(t, "rec")
        spoil(files / name, rnd, t.dir / "other" / "checkpoints" / name)
        r = t.run(t.reprise, "replay", "--to", place_of, "--json", "--regs", "--mem",
                  "jiffies_64,8", t.dir / "bad", timeout=30)
        t.equal(json.loads(r.out), {**middle, "time": json.loads(r.out)["time"]},
                f"the place with {kind} damage of {name}")
        lines = r.error.splitlines()
        if kind == "gone" or (kind in ("pages", "tail") and not lines):  # pages that this place needs not
            t.check(len(lines) <= 1, f"{kind}: {r.error!r}")
            continue
        t.check(len(lines) == 1, f"{kind} damage of {name}: stderr is {r.error!r}")
        t.has(lines[0], f"checkpoints/{name} is of no use|cannot open .*{name}", kind)
    return f"{len(DAMAGE)} kinds of damage, {len(names)} files"


@test("travel/foreign-files", cost=6)
def foreign_files(t):
    """Checkpoints of another recording of the very same machine, typed to differently."""
    image(t)
    for name, line in (("rec", "echo right"), ("other", "echo wrong")):
        t.linux(name, "--seed", 1, "--memory", "256M", "--checkpoint-every", "0.1",
                append="quiet", input=(f"{line}; sleep 1; cat /proc/uptime; ls -R /proc | md5sum; "
                                       "poweroff -f\n").encode())
    want = go(t, "rec", "end-1000", "--regs", "--console")
    files = copied(t, "rec")
    shutil.rmtree(files)
    shutil.copytree(t.dir / "other" / "checkpoints", files)
    r = t.run(t.reprise, "replay", "--to", "end-1000", "--json", "--regs", "--console",
              t.dir / "bad", code=None)
    t.check(r.code == 0, f"exit code {r.code}: {r.error}")
    t.equal(json.loads(r.out), want, "the place, by another recording's checkpoints")
    t.has(r.error, "checkpoints/.* is of no use|another recording")


@test("travel/left-over", cost=5)
def left_over(t):
    """What an interrupted `reprise checkpoint` leaves does no harm and goes with the next."""
    linux(t, "rec")
    want = go(t, "rec", "end-1000", "--regs")
    rec = t.dir / "rec"
    for number in (0.05, 0.3):
        child = t.start([t.reprise, "checkpoint", "--every", "0.02", rec])
        try:
            child.wait(number)
        except subprocess.TimeoutExpired:
            pass
        child.kill()
        child.communicate()
        t.check(not (rec / "checkpoints").exists() or child.returncode == 0, "half of it is there")
    (rec / "checkpoints.new").mkdir(exist_ok=True)
    (rec / "checkpoints.new" / "incomplete").write_bytes(b"x" * 1000)
    (rec / "checkpoints.new" / "000000").write_bytes(b"x" * 1000)
    r = t.run(t.reprise, "replay", "--to", "end-1000", "--regs", "--json", rec)
    t.equal((json.loads(r.out), r.error), (want, ""), "the place beside what was left")
    t.run(t.reprise, "checkpoint", "--every", "0.1", rec)
    t.check(not (rec / "checkpoints.new").exists(), "checkpoints.new is left")
    (rec / "checkpoints" / "incomplete").write_bytes(b"x" * 1000)
    (rec / "checkpoints" / "junk").write_bytes(b"x")
    r = t.run(t.reprise, "replay", "--to", "end-1000", "--regs", "--json", rec)
    t.equal((json.loads(r.out), r.error), (want, ""), "the place beside other files")
    tool(t, "--each-file", rec)
    # An interrupt takes nothing away.
    before = sorted(p.name for p in (rec / "checkpoints").iterdir())
    child = t.start([t.reprise, "checkpoint", "--every", "0.02", rec])
    while child.poll() is None and not (rec / "checkpoints.new").exists():
        time.sleep(0.01)  # from then on it takes interrupts itself
    child.send_signal(2)
    err = child.communicate()[1].decode()
    if child.returncode != 0:
        t.has(err, "^reprise: .*interrupted")
        t.equal(sorted(p.name for p in (rec / "checkpoints").iterdir()), before, "the files")
    t.replay("rec")


@test("travel/full-disk", cost=5)
def full_disk(t):
    """No room for checkpoints: the recording goes on without, and says so."""
    probe = subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.PIPE, check=False)
    if probe.returncode:
        t.skip("no mount namespaces here: " + probe.stderr.decode().strip())
    image(t)
    (t.dir / "disk").mkdir()
    script = t.dir / "script.sh"
    script.write_text(SCRIPT)
    where = IMAGES / "linux"
    t.linux("probe", "--max-insns", 1000)
    kept = sum(f.stat().st_size for f in (t.dir / "probe" / "files").iterdir())
    for extra in (1, 9):
        size = (kept >> 10) + extra * 1024
        inner = f"mount -t tmpfs -o size={size}k none disk && {t.reprise} record -o disk/rec " \
                f"--keep-free 0 --memory 256M --checkpoint-every 0.05 --kernel {where}/vmlinuz --initrd " \
                f"{where}/initrd --add {script}:/s.sh --append 'quiet reprise.script=/s.sh'; " \
                f"code=$?; cp -r disk/rec out{extra}; exit $code"
        r = t.run("unshare", "-rm", "sh", "-c", inner)
        t.has(r.error, r"^reprise: checkpoints ended after \d+ of them: .*No space left on device")
        t.same(f"out{extra}", r)
        t.equal(t.info(f"out{extra}")["state"], "complete", "the state")
        tool(t, "--each-file", t.dir / f"out{extra}")
        inner = f"mount -t tmpfs -o size={size}k none disk && cp -r out{extra} disk/rec && " \
                f"{t.reprise} checkpoint --every 0.02 disk/rec"
        r = t.run("unshare", "-rm", "sh", "-c", inner, code=ERROR)
        t.has(r.error, "^reprise: .*No space left on device")


@test("travel/little-memory", cost=5)
def little_memory(t):
    """--checkpoint-memory: what the message asks for is enough."""
    linux(t)
    want = go(t, "rec", "console:beta")
    for size in ("1", "1M", "8M"):
        r = t.run(t.reprise, "replay", "--to", "5", "--checkpoint-memory", size, t.dir / "rec",
                  code=ERROR)
        found = re.search(r"^reprise: checkpoints need at least (\d+) MiB of memory", r.error)
        t.check(found, f"the message: {r.error}")
    enough = found.group(1) + "M"
    there = go(t, "rec", "console:beta", "--checkpoint-memory", enough)
    t.equal(there, want, f"the place with {enough}")
    tool(t, "--seed", 5, "--places", 10, "--moves", 12, "--memory", found.group(1), t.dir / "rec")
    return f"{found.group(1)} MiB at least"
