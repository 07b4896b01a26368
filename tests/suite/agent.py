"""The agent of build/images/run, spoken to as `reprise run` does: guest-agent/agent/protocol.h."""
import hashlib
import os
import re
import struct
import sys

from suite.boot import image
from suite.harness import GUEST, IMAGES, rnd, test
from suite.port import connect

START, INPUT, SIZE, SIGNAL, CLOSED = range(1, 6)
STARTED, OUTPUT, ERROR_OUTPUT, ENDED, FAILED = range(64, 69)
TROUBLE, NOT_EXECUTABLE, NOT_FOUND = 125, 126, 127


def frame(kind, data=b""):
    return struct.pack("<II", kind, len(data)) + data


def start(*arguments, file=None, variables=None, directory="/", uid=0, gid=0, groups=(), umask=0o22, terminals=0,
          size=(24, 80), host="a-host", version=3, writes=(), counts=None):
    variables = {"PATH": "/usr/bin:/bin"} if variables is None else variables
    counts = counts or (len(groups), len(arguments), len(variables))
    head = struct.pack("<IIIIIIHHIIIQII", version, uid, gid, counts[0], umask, terminals, *size, *counts[1:], 7, 1_790_000_000, len(writes), 0) + \
        struct.pack("<IIII", 0, 0, 0, 0)
    texts = [host, directory, arguments[0] if file is None else file, *arguments,
             *(f"{k}={v}" for k, v in variables.items()), *writes]
    return head + struct.pack(f"<{len(groups)}I", *groups) + b"".join(os.fsencode(x) + b"\0" for x in texts)


class Guest:
    """A machine that is being recorded, and the agent in it."""

    def __init__(self, t, name, *first):
        image(t, "run")
        where = IMAGES / "run"
        path = t.dir / (name + ".port")
        self.t, self.name = t, name
        self.out = {OUTPUT: b"", ERROR_OUTPUT: b""}
        self.child = t.start([t.reprise, "record", "-o", t.dir / name, "--kernel", where / "vmlinuz", "--initrd",
                              where / "initrd", "--share", "/,tag=root", "--port", f"reprise.agent=unix:{path}",
                              "--append", "quiet"])
        self.socket = connect(t, path)
        for data in first:
            self.socket.sendall(data)

    def send(self, kind, data=b""):
        self.socket.sendall(frame(kind, data))

    def bytes(self, n):
        data = b""
        while len(data) < n:
            more = self.socket.recv(n - len(data))
            if not more:
                return None
            data += more
        return data

    def next(self):
        """(type, data) of the agent's next frame; None: there are no more."""
        head = self.bytes(8)
        if not head:
            return None
        kind, n = struct.unpack("<II", head)
        self.t.check(n <= 32 << 10, f"a frame of {n} bytes")
        data = self.bytes(n) or b""
        if kind in self.out:
            self.t.check(data, "output of no bytes")
            self.out[kind] += data
        return kind, data

    def until(self, pattern, kind=OUTPUT):
        while not re.search(pattern, self.out[kind], re.M):
            self.t.check(self.next(), f"no more output, and none was {pattern}: {self.out}")

    def machine(self, status):
        """The machine ends with `status`; its console."""
        out, err = self.child.communicate(timeout=60 * self.t.slow)
        self.t.show(self.child.returncode, out, err)
        self.t.equal(self.child.returncode, GUEST + status % 64 if status else 0, "the exit code")
        self.t.equal(self.t.info(self.name)["end_arg"], status, "the machine's status")
        return out.decode()

    def ends(self, wait):
        """The last frames, `wait` as waitpid() has it."""
        while True:
            got = self.next()
            self.t.check(got, "no ENDED")
            if got[0] not in self.out:
                break
        self.t.equal(got, (ENDED, struct.pack("<I", wait)), "the last frame")
        self.t.equal(self.next(), None, "what comes after it")
        return self.machine(wait >> 8 if wait & 127 == 0 else 128 + (wait & 127))

    def fails(self, status, pattern):
        kind, data = self.next()
        self.t.equal((kind, data[:4]), (FAILED, struct.pack("<I", status)), "the answer")
        self.t.has(data[4:].decode(), pattern, "why")
        self.t.equal(self.next(), None, "what comes after it")
        self.machine(status)


def run(t, name, *arguments, **more):
    g = Guest(t, name, frame(START, start(*arguments, **more)))
    t.equal(g.next(), (STARTED, b""), "the answer")
    return g


@test("agent/program", cost=8)
def program(t):
    """Output apart, input up to its end, the status; who and where it is; all of it again in a replay."""
    g = run(t, "rec", "sh", "-c", """cat; echo bad >&2; pwd; umask; id -u; id -g; id -G; uname -n; tr "\\0" "\\n" </proc/$$/environ
echo mine >/tmp/agent-test; cat /tmp/agent-test; echo through >/dev/stdout; [ -t 0 ] || echo no terminal; exit 3""",
            uid=1234, gid=1235, groups=(1235, 77), umask=0o27, directory="/usr/bin",
            variables={"PATH": "/usr/bin:/bin", "WITH SPACE": "a=b"})
    g.send(INPUT, b"first\n")
    g.until(b"^first$")
    g.send(INPUT, b"second\n")
    g.send(INPUT)
    console = g.ends(3 << 8)
    t.equal(g.out[OUTPUT].decode(), "first\nsecond\n/usr/bin\n0027\n1234\n1235\n1235 77\na-host\nPATH=/usr/bin:/bin\n"
            "WITH SPACE=a=b\nmine\nthrough\nno terminal\n", "the output")
    t.equal(g.out[ERROR_OUTPUT], b"bad\n", "what is said on standard error")
    t.has(console, "^reprise-agent: ready\r?$", "the console")
    t.check(not os.path.exists("/tmp/agent-test"), "the guest wrote to the host")
    t.equal(t.replay("rec").out, g.out[OUTPUT], "the replay's output")


@test("agent/much", cost=12)
def much(t):
    """10 MB to each output; 3 MB of input, with a signal that passes what is not read."""
    g = run(t, "rec", "sh", "-c", "head -c 10000000 /dev/zero >&2 & yes | head -c 10000000; wait")
    g.ends(0)
    t.equal({k: (len(v), hashlib.md5(v).hexdigest()) for k, v in g.out.items()},
            {k: (10_000_000, hashlib.md5(v).hexdigest()) for k, v in
             ((OUTPUT, b"y\n" * 5_000_000), (ERROR_OUTPUT, bytes(10_000_000)))}, "the outputs")
    data = rnd.randbytes(3_000_000)
    g = run(t, "in", "md5sum")
    for at in range(0, len(data), 32 << 10):
        g.send(INPUT, data[at:at + (32 << 10)])
    g.send(INPUT)
    g.ends(0)
    t.equal(g.out[OUTPUT].split()[0].decode(), hashlib.md5(data).hexdigest(), "the digest of what it read")
    g = run(t, "signal", "sleep", "1000")
    for _ in range(20):
        g.send(INPUT, bytes(32 << 10))
    g.send(SIGNAL, struct.pack("<I", 15))
    g.ends(15)


@test("agent/background", cost=4)
def background(t):
    """What others hold open is not waited for; what was printed is sent."""
    g = run(t, "rec", "sh", "-c", "sleep 1000 & echo done")
    g.ends(0)
    t.equal(g.out[OUTPUT], b"done\n", "the output")


# A shell's `read` ends when a trap runs, Python's does not. print() in a handler may meet itself.
AT_TERMINAL = """import os, signal, sys
def say(*words): os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def size(*_): say(*os.get_terminal_size())
signal.signal(signal.SIGWINCH, size)
signal.signal(signal.SIGINT, lambda *_: say("interrupted"))
say(os.ttyname(0), [os.isatty(fd) for fd in range(3)])
size()
sys.stderr.write("apart\\n")
with open("/dev/tty", "w") as f: f.write("here\\n")
say("READY")
while line := sys.stdin.readline(): say("got", line.rstrip())
say("OVER")
sys.exit(5)
"""


@test("agent/terminal", cost=6)
def terminal(t):
    """A terminal of the size that was said, Ctrl-C and Ctrl-D typed at it, its changes; another output apart."""
    g = run(t, "rec", sys.executable, "-c", AT_TERMINAL, terminals=3, size=(31, 97), uid=os.getuid(),
            gid=os.getgid())
    g.until(b"^READY\r$")
    g.send(INPUT, b"typed\n")
    g.until(b"^got typed\r$")
    g.send(SIZE, struct.pack("<HH", 50, 132))
    g.send(INPUT, b"more\n")
    g.until(b"^132 50\r$")
    g.until(b"^got more\r$")
    g.send(INPUT, b"\x03")
    g.until(b"^(\\^C)?interrupted\r$")
    g.send(INPUT, b"after\n")
    g.until(b"^got after\r$")
    g.send(INPUT)
    g.ends(5 << 8)
    text = g.out[OUTPUT].decode().replace("\r", "")
    t.has(text, r"^/dev/pts/0 \[True, True, False\]\n97 31\nhere\nREADY$")
    t.has(text, "^OVER$")
    t.equal(g.out[ERROR_OUTPUT], b"apart\n", "the output that is no terminal")
    t.replay("rec")
    g = run(t, "user", "sh", "-c", "echo opened >$(tty); kill -TERM $$", terminals=7, uid=1234, gid=1234)
    g.ends(15)
    t.equal(g.out, {OUTPUT: b"opened\r\n", ERROR_OUTPUT: b""}, "what a user writes to his terminal by its name")


@test("agent/no-program", cost=20)
def no_program(t):
    """Why there is none, with a shell's status."""
    d = t.dir / "files"
    d.mkdir()
    for name, text, mode in (("plain", "text\n", 0o644), ("gone", "#!/no/such/thing\n", 0o755),
                             ("other", "\x7fELF\0\1\2", 0o755), ("script", "echo $0 $1\n", 0o755)):
        (d / name).write_text(text)
        (d / name).chmod(mode)
    for i, (file, status, why) in enumerate((
            ("no-such-program", NOT_FOUND, "^no-such-program: not found in PATH: No such file"),
            ("/no/such", NOT_FOUND, "^/no/such: No such file"),
            (f"{d}/plain", NOT_EXECUTABLE, "plain: Permission denied$"),
            (f"{d}", NOT_EXECUTABLE, "files: Permission denied$"),
            (f"{d}/gone", NOT_EXECUTABLE, "gone: the interpreter that it names is not there: No such"),
            (f"{d}/other", NOT_EXECUTABLE, "other: is no program for this machine: Exec format error"))):
        Guest(t, f"rec{i}", frame(START, start(file))).fails(status, why)
    Guest(t, "dir", frame(START, start("true", directory="/no/where"))).fails(
        TROUBLE, "^cannot enter the working directory /no/where: No such file")
    g = run(t, "script", "script", "word", variables={"PATH": f"/no/where:{d}"})
    g.ends(0)
    t.equal(g.out[OUTPUT].decode(), f"{d}/script word\n", "what a script without #! said")


@test("agent/wrong-start", cost=20)
def wrong_start(t):
    """A START that is wrong is answered; the recording of that replays."""
    good = start("true")
    for i, (data, why) in enumerate((
            (b"", "START ends in its head"),
            (good[:-1], "START ends in its variables, of 1 the 1th"),
            (good + b"x", "START has 1 bytes too many"),
            (start("true", version=1), "START is of version 1, the agent of 3"),
            (start("true", counts=(0, 0xffffffff, 1)), "START says 4294967295 arguments, and has"),
            (start("true", counts=(0xffffffff, 1, 1)), "START says 4294967295 groups"),
            (good.replace(b"PATH=", b"PATH+"), "variable 1 is not NAME=VALUE"),
            (good.replace(b"/\0", b".\0", 1), "the working directory does not begin with /"),
            (start("true", terminals=8), "terminals 0x8"))):
        Guest(t, f"rec{i}", frame(START, data)).fails(TROUBLE, why)
    t.replay("rec1")


@test("agent/hostile-host", cost=15)
def hostile(t):
    """A frame that is not awaited ends the machine, and so does a host that goes."""
    for i, (data, why) in enumerate((
            (frame(INPUT, b"x"), "the host begins with a frame of type 2 and 1 bytes"),
            (struct.pack("<II", START, 0xffffffff), "the host begins with a frame of type 1 and 4294967295"))):
        t.has(Guest(t, f"first{i}", data).machine(TROUBLE), f"^reprise-agent: {why}", "the console")
    for i, (data, why) in enumerate((
            (frame(99), "the host sent a frame of type 99 and 0 bytes"),
            (struct.pack("<II", INPUT, 1 << 20), "the host sent a frame of type 2 and 1048576 bytes"),
            (frame(SIGNAL, struct.pack("<I", 65)), "the host sent a signal 65"),
            (frame(CLOSED, struct.pack("<I", 0)), "the host closed descriptor 0"),
            (frame(SIZE, bytes(4)), "the host sent a frame of type 3 and 4 bytes"),
            (frame(INPUT) + frame(INPUT), "the host sent input after its end"))):
        g = run(t, f"later{i}", "sleep", "1000")
        g.socket.sendall(data)
        t.has(g.machine(TROUBLE), f"^reprise-agent: {why}", "the console")
    g = run(t, "gone", "sleep", "1000")
    g.socket.close()
    t.has(g.machine(TROUBLE), "^reprise-agent: the host has hung up", "the console")
    t.replay("gone")
