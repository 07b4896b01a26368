"""The agent in a guest that runs its own system: `record --agent`, `reprise exec`, `cp`, `shutdown`, marks."""
import fcntl
import hashlib
import json
import os
import pty
import re
import select
import socket
import stat
import struct
import subprocess
import tempfile
import termios
import threading
import time
from pathlib import Path

from suite.boot import image
from suite.harness import ERROR, IMAGES, PANIC, ROOT, USAGE, Session, rnd, test
from suite.port import connect

OURS, NOT_FOUND = 125, 127
VERSION = 3
MAGIC = b"\x8freprise\0\xd3\x5a\x0d\x0a\xe1\x9c"
START, INPUT, HELLO, TAKEN, PUT, GET, POWER = 1, 2, 6, 7, 8, 9, 10
STARTED, OUTPUT, ENDED, FAILED, WELCOME, COPIED = 64, 65, 67, 68, 78, 80


def frame(kind, data=b""):
    return struct.pack("<II", kind, len(data)) + data


def hello(number=7, version=VERSION, flags=0):
    return frame(HELLO, MAGIC + b"H" + struct.pack("<QIIQIHH", number, version, flags, 0, 0, 0, 0))


def options(*more):
    return ("--add", f"{ROOT}/build/reprise-agent:/bin/reprise-agent", *more)


class Live:
    """A machine of the image `linux` that is being recorded, and the agent in it."""

    def __init__(self, t, name="rec", *more, script="reprise-agent serve", socket=True):
        image(t)
        where = IMAGES / "linux"
        self.t, self.dir = t, t.dir / name
        self.socket = t.dir / (name + ".sock")
        (t.dir / (name + ".sh")).write_text(script + "\n")
        self.child = t.start([t.reprise, "record", "-o", self.dir, "--kernel", where / "vmlinuz", "--initrd", where / "initrd",
                              f"--agent={self.socket}" if socket else "--agent", "--idle-limit", "0",
                              *options("--add", f"{t.dir / name}.sh:/script.sh"), *more,
                              "--append", "quiet reprise.script=/script.sh"])
        listens = self.socket if socket else Path(t.env["XDG_RUNTIME_DIR"]) / "reprise"
        limit = time.monotonic() + 30 * t.slow
        while not (listens.is_socket() or (listens.is_dir() and list(listens.iterdir()))):
            t.check(self.child.poll() is None and time.monotonic() < limit, "no socket was made")
            time.sleep(0.02)

    def exec(self, *argv, code=0, more=(), **rest):
        return self.t.run(self.t.reprise, "exec", "--timeout", 60, *more, self.socket, "--", *argv, code=code, **rest)

    def cp(self, *argv, code=0, **rest):
        return self.t.run(self.t.reprise, "cp", "--timeout", 60, *argv, code=code, **rest)

    def ends(self, code=0):
        out, err = self.child.communicate(timeout=60 * self.t.slow)
        self.t.show(self.child.returncode, out, err)
        self.t.equal(self.child.returncode, code, "the exit code")
        return out


def tree(path):
    """What is beneath it: kind, permissions, times, contents."""
    found = {}
    for where, directories, files in os.walk(path):
        for name in directories + files:
            one = os.path.join(where, name)
            st = os.lstat(one)
            found[os.path.relpath(one, path)] = (
                stat.S_IFMT(st.st_mode), 0 if os.path.islink(one) else stat.S_IMODE(st.st_mode),
                0 if os.path.islink(one) else int(st.st_mtime),
                os.readlink(one) if os.path.islink(one) else
                hashlib.md5(open(one, "rb").read()).hexdigest() if stat.S_ISREG(st.st_mode) else "")
    return found


def plant(path):
    (path / "a/deep/er").mkdir(parents=True)
    (path / "a/empty").write_bytes(b"")
    (path / "a/much").write_bytes(rnd.randbytes(300_001))
    (path / "a/deep/run").write_text("#!/bin/sh\n")
    (path / "a/deep/run").chmod(0o751)
    os.symlink("../../nowhere", path / "a/deep/er/link")
    with open(path / "a/holes", "wb") as f:
        f.seek(5_000_000)
        f.write(b"end")
        f.truncate(9_000_000)
    for one in (path / "a/much", path / "a/deep"):
        os.utime(one, (1_000_000_000, 1_000_000_000))


SYSTEM = """echo before
marker one two one
reprise-agent mark shell one
sh -c 'kill -SEGV $$'
reprise-agent serve &
while [ ! -e /tmp/over ]; do sleep 0.05; done
echo c >/proc/sysrq-trigger
"""


@test("agent/system", cost=12)
def system(t):
    """Programs, copies both ways, marks, a crash and a panic with their names; then the replay without any agent."""
    runtime = tempfile.mkdtemp(prefix="reprise-test-")
    t.env["XDG_RUNTIME_DIR"] = runtime
    try:
        _system(t)
    finally:
        subprocess.run(["rm", "-rf", runtime], check=True)


def _system(t):
    g = Live(t, "rec", "--add", f"{IMAGES}/guest/marker:/bin/marker", "--wall-clock", "2001-01-01", script=SYSTEM, socket=False)
    g.socket = t.dir / "rec"  # found by it
    g.exec("true")  # it may say that it waits
    # The program: output apart, input to its end, status, user, directory, environment.
    r = g.exec("sh", "-c", "cat; echo bad >&2; pwd; id -u; id -g; echo $A; exit 3", code=3, input=b"typed\n",
               more=("--chdir", "/tmp", "--user", "12:34", "--env", "A=b c"))
    t.equal((r.out, r.err), (b"typed\n/tmp\n12\n34\nb c\n", b"bad\n"), "the outputs")
    t.equal(t.run(t.reprise, "exec", "--", "echo", "the only one").out, b"the only one\n", "without a name")
    t.has(g.exec("no-such-program", code=NOT_FOUND).error, "no-such-program: not found in PATH")
    t.has(g.exec("true", more=("--chdir", "/no/where"), code=OURS).error, "cannot enter the working directory /no/where")
    g.exec("sh", "-c", "kill -TERM $$", code=128 + 15)
    # The clock, only if it is asked for.
    t.check(int(g.exec("date", "+%s").out) < 1_000_000_000, "the guest's clock was set without being asked")
    t.check(abs(int(g.exec("date", "+%s", more=("--set-time",)).out) - time.time()) < 60, "the guest's clock")
    # More than fits anywhere, each way, with a reader that takes its time.
    data = rnd.randbytes(3_000_000)
    t.equal(g.exec("md5sum", input=data).out.split()[0].decode(), hashlib.md5(data).hexdigest(), "input")
    slow = t.start([t.reprise, "exec", g.socket, "--", "sh", "-c", "yes | head -c 3000000"])
    time.sleep(0.3)
    t.equal(len(slow.communicate(timeout=60 * t.slow)[0]), 3_000_000, "output")
    # A terminal.
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 31, 97, 0, 0))
    shown = t.start([t.reprise, "exec", g.socket, "--", "stty", "size"], stdin=slave, stdout=slave)
    t.equal(shown.wait(60 * t.slow), 0, "exec at a terminal")
    size = b""
    while not size.endswith(b"\n") and select.select([master], [], [], 10 * t.slow)[0]:  # it may come in pieces
        size += os.read(master, 100)
    t.equal(size.replace(b"\r", b""), b"31 97\n", "its size")
    os.close(master)
    os.close(slave)
    # Copies.
    plant(t.dir / "from")
    g.cp("-r", t.dir / "from", f"{g.socket}:/tmp/there")
    g.cp("-r", f"{g.socket}:/tmp/there", t.dir / "back")
    t.equal(tree(t.dir / "back"), tree(t.dir / "from"), "what came back")
    t.check(os.stat(t.dir / "back/a/holes").st_blocks < 1000, "the holes are there no more")
    g.cp(t.dir / "from/a/much", t.dir / "from/a/empty", ":/tmp")
    t.equal(g.exec("md5sum", "/tmp/much").out.split()[0].decode(), hashlib.md5((t.dir / "from/a/much").read_bytes()).hexdigest(), "a file")
    for names, why in (((t.dir / "from", ":/tmp/x"), "is a directory: -r"),
                       ((t.dir / "from/a/much", ":/no/where/x"), "in the guest: /no/where/: No such file"),
                       ((t.dir / "from/a/much", ":/dev/null"), "in the guest: null is there, and is a device"),
                       ((t.dir / "from/a/much", ":/sys/kernel/x"), "in the guest: x: "),
                       ((":/no/where", t.dir / "x"), "in the guest: /no/where: No such file"),
                       ((":/dev/zero", t.dir / "x"), "in the guest: /dev/zero: it is no regular file"),
                       ((":/tmp/much", t.dir / "no/x"), "no/: No such file"),
                       ((":/tmp/much", "/proc/x"), "x: "),
                       ((t.dir / "gone", ":/tmp/x"), "gone: No such file"),
                       ((":/tmp/a", ":/tmp/b"), "one of them is to be in the guest"),
                       (("a", "b"), "one of them is to be in the guest")):
        t.has(g.cp(*names, code=ERROR).error, why)
    t.check(not (t.dir / "x").exists(), "half a copy is there")
    g.exec("sh", "-c", "mkdir /small && mount -t tmpfs -o size=100k none /small && echo old >/small/much")
    t.has(g.cp(t.dir / "from/a/much", ":/small/", code=ERROR).error, "in the guest: much: No space left on device")
    t.equal(g.exec("sh", "-c", "ls -A /small; cat /small/much").out, b"much\nold\n", "after a copy without room")
    t.run(t.reprise, "exec", "true", code=OURS)
    t.run(t.reprise, "cp", "x", code=USAGE)
    g.exec("touch", "/tmp/over")
    console = g.ends(PANIC)
    # Nobody is there any more, and it replays.
    t.has(t.run(t.reprise, "exec", t.dir / "rec", "--", "true", code=OURS).error, "is not being recorded with --agent now")
    t.equal(t.replay("rec").out, console, "the console of the replay")
    lines = [json.loads(x) for x in t.run(t.reprise, "marks", "--json", t.dir / "rec").out.splitlines()]
    t.equal([(x["point"], x["program"]) for x in lines],
            [("mark:one", "marker one two one"), ("mark:two", "marker one two one"), ("mark:one#2", "marker one two one"),
             ("mark:shell", "reprise-agent mark shell one"), ("mark:one#3", "reprise-agent mark shell one"),
             ("crash", "sh -c kill -SEGV $$"),
             ("panic", "sh /script.sh")], "marks")
    t.check(all(x["pid"] > 1 for x in lines), "all have a process")
    t.check(lines[0]["pid"] == lines[2]["pid"] != lines[3]["pid"] and lines[5]["kind"] == "crash", "whose they are")
    for point in ("mark:one#3", "panic"):
        at = json.loads(t.run(t.reprise, "replay", t.dir / "rec", "--to", point, "--json").out)
        t.equal(at["position"], next(x["position"] for x in lines if x["point"] == point), point)
    t.has(t.run(t.reprise, "replay", t.dir / "rec", "--to", "mark:three", code=ERROR).error, "no mark 'three'; there are one, two, shell")
    t.has(t.run(t.reprise, "replay", t.dir / "rec", "--to", "mark:one#4", code=ERROR).error, "mark one was made 3 times only")


@test("agent/sessions", cost=8)
def sessions(t):
    """Whatever the host's side says, and wherever it stops, the next session finds the agent as it was."""
    g = Live(t)
    g.exec("true")
    start = struct.pack("<IIIIIIHHIIIQII", VERSION, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 512 << 10) + bytes(16) + \
        b"\0/\0sleep\0sleep\x001000\0"
    put = bytes(8) + b"/tmp/half\0x\0"
    entry = struct.pack("<IIIIqQ", 0o100644, 0, 0, 1, 0, 1 << 20) + b"x"
    dying = {
        "garbage": rnd.randbytes(5000),
        "half a HELLO": hello()[:20],
        "half a header": hello() + b"\1\0\0",
        "half a START": hello() + frame(START, start)[:40],
        "a program": hello() + frame(START, start),
        "much input": hello() + frame(START, start) + frame(INPUT, bytes(32 << 10)) * 100,
        "half a copy": hello() + frame(PUT, put) + frame(73, entry) + frame(74, bytes(8) + bytes(1000))[:500],
        "two HELLOs": hello(1) + hello(2),
        "a wrong frame": hello() + frame(99),
        "a wrong length": hello() + struct.pack("<II", POWER, 5) + bytes(5),
        "a wrong power": hello() + frame(POWER, struct.pack("<I", 9)),
        "a path that is none": hello() + frame(GET, bytes(8) + b"/tmp"),
        "a name that leads up": hello() + frame(PUT, put) + frame(73, entry[:-1].replace(b"\1\0\0\0", b"\2\0\0\0", 1) + b".."),
        "another version": hello(version=99) + frame(START, start),
    }
    for what, data in dying.items():
        s = connect(t, g.socket)
        s.settimeout(0.3 * t.slow)
        try:
            s.sendall(data)
            s.recv(4096)
        except OSError:
            pass
        s.close()
        t.equal(g.exec("echo", what).out.decode().strip(), what, f"after {what}")
    t.equal(g.exec("sh", "-c", "ls -A /tmp; ps -o comm | grep -c '[s]leep'", code=1).out, b"0\n", "what was left behind")
    # Its version, told to whoever speaks another.
    s = connect(t, g.socket)
    s.sendall(hello(5, 99))
    data = s.recv(4096)
    t.equal(data[:24] + data[24:36], frame(WELCOME, bytes(32))[:8] + MAGIC + b"G" + struct.pack("<QI", 5, VERSION), "WELCOME")
    s.close()
    # Nothing is asked of it, nothing wakes it.
    g.exec("sh", "-c", """(sleep 1; p=/proc/$(pidof reprise-agent); cat $p/status >/tmp/one; sleep 2; cat $p/status >/tmp/two; touch /tmp/done) \
        >/dev/null 2>&1 </dev/null &""")
    time.sleep(3.5)
    g.exec("sh", "-c", "until [ -e /tmp/done ]; do sleep 0.1; done")
    one, two = (dict(re.findall(r"^(\w+):\s+(\d+)", g.exec("cat", f"/tmp/{name}").text, re.M)) for name in ("one", "two"))
    for name in ("voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"):
        t.equal(two[name], one[name], f"{name} while it was idle")
    t.check(int(two["VmRSS"]) < 2048, f"it has {two['VmRSS']} kB")
    t.run(t.reprise, "shutdown", g.socket)
    out = g.ends()
    t.has(out.decode(), "reboot: Power down")
    t.equal(t.replay("rec").out, out, "the console of the replay")
    return f"{two['VmRSS']} kB resident"


class Liar(threading.Thread):
    """At a socket, in place of a recorder and an agent: says `answer` to a HELLO; None: nothing."""

    def __init__(self, t, name, answer):
        super().__init__(daemon=True)
        self.path = t.dir / name
        self.answer = answer
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.path))
        self.server.listen()
        self.start()

    def run(self):
        s, _ = self.server.accept()
        data = b""
        while len(data) < 56:
            data += s.recv(4096)
        if self.answer is not None:
            first, then = self.answer(data[24:32])
            try:
                s.sendall(first)
                if then is not None:
                    s.recv(4096)
                    s.sendall(then)
            except OSError:
                pass
        else:
            s.recv(1 << 20)
            time.sleep(30)
        s.close()


def welcome(number, version=VERSION, refused=0):
    return frame(WELCOME, MAGIC + b"G" + number + struct.pack("<II", version, refused))


@test("agent/liars", cost=3)
def liars(t):
    """An agent that lies, says too much or nothing, is from the past or the future; and none."""
    noise = rnd.randbytes(100_000)
    for name, answer, why in (
            ("silent", None, r"no agent answers in the guest within 1 s: none runs there \(yet\)"),
            ("noise", lambda n: (noise, None), "the recording has ended, or its recorder"),
            ("past", lambda n: (welcome(n, 2), b""), "speaks version 2 of the protocol, this reprise version 3: put the agent"),
            ("future", lambda n: (frame(WELCOME, MAGIC + b"G" + n + struct.pack("<II", 4, 0) + bytes(100)), b""),
             "speaks version 4 of the protocol, this reprise version 3: use the reprise"),
            ("clock", lambda n: (welcome(n, refused=1), b""), "could not set the guest's clock"),
            ("early", lambda n: (welcome(n) + frame(STARTED), b""), "says more than it was asked"),
            ("type", lambda n: (welcome(n), frame(STARTED) + frame(200)), "the program's end is not known"),
            ("host's", lambda n: (welcome(n), frame(INPUT, b"x")), "the program's end is not known"),
            ("long", lambda n: (welcome(n), struct.pack("<II", OUTPUT, 1 << 30) + bytes(1 << 16)), "the program's end is not known"),
            ("tree", lambda n: (welcome(n), frame(STARTED) + frame(70, bytes(32))), "the program's end is not known"),
            ("room", lambda n: (welcome(n), frame(STARTED) + frame(79, b"\xff" * 4)), "the program's end is not known"),
            ("gone", lambda n: (welcome(n), frame(STARTED)), "the program's end is not known"),
            ("failed", lambda n: (welcome(n), frame(FAILED, struct.pack("<I", 7) + b"because")), "reprise: because")):
        liar = Liar(t, name, answer)
        r = t.run(t.reprise, "exec", "--timeout", "1", liar.path, "--", "true", code=7 if name == "failed" else OURS)
        t.has(r.error, why, name)
    entry = struct.pack("<IIIIqQ", 0o100644, 0, 0, 2, 0, 4)
    for name, then, why in (
            ("up", frame(73, entry + b".."), "an entry's name is none"),
            ("beside", frame(73, entry + b"xy") + frame(74, struct.pack("<Q", 9) + b"data"), "contents beside the file"),
            ("none", frame(COPIED, bytes(24)), "the agent broke the protocol"),
            ("early-end", frame(COPIED, bytes(16)), "the end comes too early"),
            ("leave", frame(72), "the end of no directory"),
            ("cut", frame(73, entry + b"xy"), "has ended before the copy had")):
        liar = Liar(t, "cp-" + name, lambda n: (welcome(n), then))
        t.has(t.run(t.reprise, "cp", f"{liar.path}:/x", t.dir / "out", code=ERROR).error, why, name)
        t.check(not list(t.dir.glob("out*")) and not list(t.dir.glob(".reprise*")), f"{name}: something is left")
    t.has(t.run(t.reprise, "shutdown", t.dir / "nobody", code=ERROR).error, "is not being recorded with --agent now")


@test("agent/console", cost=5)
def console(t):
    """The guest's console has the size of the recorder's terminal, and is told of changes."""
    s = Session(t, "rec", f"--agent={t.dir / 'sock'}", *options(), terminal=True, append="quiet")
    fcntl.ioctl(s.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    s.prompt()
    s.type("reprise-agent serve &")
    s.type("until stty size | grep '33 111'; do sleep 0.1; done", r"^33 111[^#]*(/root|~) # (\x1b\[6n)?$")
    fcntl.ioctl(s.slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    s.type("until stty size | grep '40 100'; do sleep 0.1; done", r"^40 100[^#]*(/root|~) # (\x1b\[6n)?$")
    s.send("poweroff -f\n")
    s.finish()
    t.replay("rec")
