"""virtio-console: the console on hvc0, named ports on sockets and files."""
import hashlib
import os
import pathlib
import re
import socket
import threading
import time

from suite.harness import DIVERGED, ERROR, FINE, IMAGES, NO_TEXT, PANIC, USAGE, Session, test


def connect(t, path, seconds=30):
    limit = time.monotonic() + seconds * t.slow
    while True:
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(seconds * t.slow)
        try:
            s.connect(str(path))
            return s
        except OSError:
            s.close()
            if time.monotonic() > limit:
                raise
            time.sleep(0.02)


def line(s):
    """Up to a newline."""
    data = b""
    while not data.endswith(b"\n"):
        more = s.recv(1)
        if not more:
            raise EOFError(data)
        data += more
    return data


class Peer(threading.Thread):
    """A program on the host; what it fails at is found by result()."""

    def __init__(self, function, *args):
        super().__init__(daemon=True)
        self.function, self.args, self.value, self.error = function, args, None, None
        self.start()

    def run(self):
        try:
            self.value = self.function(*self.args)
        except Exception as e:  # noqa: BLE001: handed on
            self.error = e

    def result(self, t, seconds=30):
        self.join(seconds * t.slow)
        t.check(not self.is_alive(), "the program on the host did not end")
        if self.error:
            raise self.error
        return self.value


@test("port/console", cost=10)
def console(t):
    """The console on hvc0: typed to, watched, replayed, gone to; serial is something else then."""
    s = Session(t, "rec", "--console", "hvc0", append="quiet")
    s.prompt()
    t.has(s.type("cat /sys/class/tty/console/active"), "^hvc0$")
    s.type("echo $((6*7))", r"^42\r+\n[^\n]*(/root|~) # (\x1b\[6n)?$")
    s.type("echo on the serial port >/dev/ttyS0")
    long = s.type("i=0; while [ $i -lt 300 ]; do echo line $i; i=$((i+1)); done")
    t.equal(len(re.findall("^line", long, re.M)), 300, "lines")
    s.send("poweroff -f\n")
    s.finish(FINE)
    r = t.replay("rec")
    t.equal(r.out, s.out, "the console of the replay")
    t.lacks(s.out.decode("utf-8", "replace").replace("echo on the serial port", ""),
            "on the serial port", "the console")
    kinds = {e["type"] for e in t.events("rec")}
    t.check("port" in kinds and "console" not in kinds, "typed bytes are not the port's")
    debug = [e["debug_bytes"] for e in t.events("rec") if e["type"] == "end"]
    t.equal(debug, [len("on the serial port\r\n")], "bytes on the serial port")
    t.has(t.run(t.reprise, "info", t.dir / "rec").text, r"console +hvc0")
    out = t.run(t.reprise, "replay", "--to", "console:line 299", "--console", t.dir / "rec").text
    t.has(out, "line 299")
    t.lacks(out, "poweroff", "the console up to there")
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 4, "--places", 4,
          "--moves", 8, timeout=300)
    # A changed byte is a difference.
    t.replay("rec", code=DIVERGED, env={"REPRISE_TEST_PERTURB": 1})


@test("port/watch", cost=6)
def watch(t):
    """--stop-at, the panic watch and piped input look at the console that is on the terminal."""
    r = t.linux("stop", "--console", "hvc0", "--stop-at", "MARK", append="quiet",
                script="echo MARK; sleep 100")
    t.has(r.text, "MARK")
    t.same("stop", r)
    r = t.linux("serial", "--console", "hvc0", "--stop-at", "MARK", append="quiet", code=NO_TEXT,
                script="echo MARK >/dev/ttyS0")
    t.lacks(r.text, "MARK")
    r = t.linux("panic", "--console", "hvc0", script="echo c >/proc/sysrq-trigger", code=PANIC)
    t.has(r.error, 'The panic: "Kernel panic - not syncing: sysrq')
    t.same("panic", r)
    r = t.linux("pipe", "--console", "hvc0", append="quiet",
                input=b"echo $((6*7))\npoweroff -f\n")
    t.has(r.text, "^42$")
    t.replay("pipe")
    # The kernel's own choice stands.
    r = t.linux("own", "--console", "hvc0", append="quiet console=ttyS0", script="echo HERE")
    t.equal(r.text, "", "what hvc0 showed")


TALK = """
ls -l /dev/virtio-ports
exec 3<>/dev/virtio-ports/agent
read line <&3
echo "guest got $line"
echo "hello $line" >&3
until read line <&3; do sleep 0.05; done
echo "guest got $line"
echo "again $line" >&3
"""


@test("port/socket", cost=8)
def on_socket(t):
    """A program on the host connects, talks, goes away, and another comes."""
    path = t.dir / "agent"

    def talk():
        with connect(t, path) as s:
            s.sendall(b"first\n")
            one = line(s)
        time.sleep(0.3)
        with connect(t, path) as s:
            s.sendall(b"second\n")
            return one, line(s)

    peer = Peer(talk)
    r = t.linux("rec", "--port", f"agent=unix:{path}", "--port", "other=in:/dev/null",
                script=TALK, append="quiet")
    t.equal(peer.result(t), (b"hello first\n", b"again second\n"), "what the host got")
    t.has(r.text, r"agent -> \.\./vport\w+")
    t.has(r.text, r"other -> \.\./vport\w+")
    t.has(r.text, "guest got first")
    t.has(r.text, "guest got second")
    t.check(not path.exists(), "the socket was left behind")
    opens = [e["open"] for e in t.events("rec") if e["type"] == "port_open" and e["unit"] == 1]
    t.equal(opens[:3], [1, 0, 1], "port_open records")
    t.same("rec", r)
    t.check(not path.exists(), "a replay made the socket")
    t.replay("rec", env={"REPRISE_TEST_SLICE": 70001})
    t.replay("rec", code=DIVERGED, env={"REPRISE_TEST_PERTURB": 4})
    t.has(t.run(t.reprise, "info", t.dir / "rec").text, "port 1 +agent, unix:")


BULK = """
exec 3<>/dev/virtio-ports/bulk
echo READY >&3
head -c %d <&3 | sha256sum
head -c %d /dev/zero | tr '\\0' 'x' >/tmp/out
sha256sum </tmp/out
cat /tmp/out >&3
echo SENT
read line <&3
echo "$line"
"""


@test("port/bulk", cost=12)
def bulk(t):
    """Megabytes in both directions arrive whole, also at a slow reader."""
    path = t.dir / "bulk"
    sent = os.urandom(3 << 20)
    size = 5 << 20

    def talk():
        with connect(t, path) as s:
            t.equal(line(s), b"READY\n", "the first line")
            s.sendall(sent)
            time.sleep(0.5)
            got = b""
            while len(got) < size:
                got += s.recv(1 << 16)
                if len(got) < 1 << 20:
                    time.sleep(0.005)
            s.sendall(b"host is done\n")
            return got

    peer = Peer(talk)
    r = t.linux("rec", "--port", f"bulk=unix:{path}", script=BULK % (len(sent), size),
                append="quiet", timeout=120)
    got = peer.result(t)
    t.equal(len(got), size, "bytes from the guest")
    t.has(r.text, hashlib.sha256(sent).hexdigest())
    t.has(r.text, hashlib.sha256(got).hexdigest())
    t.has(r.text, "^host is done$")
    t.same("rec", r)
    log = os.path.getsize(t.dir / "rec" / "log")
    t.check(log < len(sent) * 1.1 + 100000, f"the log has {log} bytes for {len(sent)} of input")
    return f"{log} B log for {len(sent)} B of random input"


@test("port/mute", cost=10)
def mute(t):
    """A reader that does not read is left behind; it does not stop the machine for ever (only the
    guest's writer, as Linux does when nobody is connected)."""
    path = t.dir / "bulk"
    done = threading.Event()

    def hold():
        with connect(t, path):
            done.wait(60)

    peer = Peer(hold)
    r = t.linux("rec", "--port", f"bulk=unix:{path}", append="quiet",
                script="head -c 4000000 /dev/zero >/dev/virtio-ports/bulk & sleep 4; echo DONE",
                timeout=60)
    done.set()
    peer.result(t)
    t.has(r.text, "DONE")
    t.has(r.error, "port bulk: its reader does not read")
    t.same("rec", r)


@test("port/files", cost=6)
def files(t):
    """Input from a file, output to one, FIFOs."""
    (t.dir / "a,b").write_bytes(bytes(range(256)) * 500)
    os.mkfifo(t.dir / "fifo")
    fifo = Peer(lambda: (t.dir / "fifo").write_bytes(b"through a fifo\n"))
    comma = str(t.dir / "a,b").replace(",", ",,")
    r = t.linux("rec", "--port", f"file=in:{comma},out:{t.dir}/out",
                "--port", f"fifo=in:{t.dir}/fifo", "--port", f"ro=in:{comma}", append="quiet",
                script="head -c 128000 /dev/virtio-ports/file >/tmp/f; sha256sum </tmp/f\n"
                       "cat /tmp/f /tmp/f >/dev/virtio-ports/file\n"
                       "head -n 1 /dev/virtio-ports/fifo\n"
                       "cat /dev/virtio-ports/ro | wc -c\n")
    fifo.result(t)
    whole = (t.dir / "a,b").read_bytes()
    t.has(r.text, hashlib.sha256(whole).hexdigest())
    t.equal((t.dir / "out").read_bytes(), 2 * whole, "the output file")
    t.has(r.text, "^through a fifo$")
    t.has(r.text, "^128000$")  # to its end, which the guest sees
    t.same("rec", r)


@test("port/bad")
def bad(t):
    """What cannot be is refused before anything starts, and nothing is overwritten."""
    kernel = IMAGES / "tiny" / "spin.elf"
    (t.dir / "file").write_text("precious")
    busy = socket.socket(socket.AF_UNIX)
    busy.bind(str(t.dir / "busy"))
    busy.listen()
    for spec, message in (
            ("agent", "NAME=... is missing"), ("=unix:x", "NAME=... is missing"),
            ("a/b=unix:x", "NAME=... is missing"), (".x=unix:x", "NAME=... is missing"),
            ("x" * 32 + "=unix:x", "at most 31"),
            ("a=", "connected to what"), ("a=pipe:x", "'pipe:x' is neither"),
            ("a=unix:", "1 to 107 bytes"), (f"a=unix:{'x' * 200}", "1 to 107 bytes"),
            (f"a=unix:{t.dir}/none/s", "cannot make the socket"),
            (f"a=unix:{t.dir}/busy", "in use by another program"),
            (f"a=unix:{t.dir}/file", "exists and is not a socket"),
            (f"a=unix:{t.dir}/s,out:x", "is neither"), (f"a=in:{t.dir}/none", "No such file"),
            (f"a=in:{t.dir}", "neither a file nor a FIFO"),
            (f"a=in:{t.dir}/file,in:{t.dir}/file", "one too many"),
            (f"a=out:{t.dir}/file", "exists; choose another"),
            (f"a=out:{t.dir}/none/x", "cannot open"), (f"a=out:{t.dir}/o,nonsense", "'nonsense'")):
        r = t.record("x", "--port", spec, kernel=kernel, code=ERROR)
        t.has(r.error, message)
        t.check(not (t.dir / "x").exists(), "a recording was left behind")
        t.check(not (t.dir / "o").exists(), "a file was left behind")
    busy.close()
    t.equal((t.dir / "file").read_text(), "precious", "the file")
    r = t.record("x", "--port", "a=in:/dev/null", "--port", "a=in:/dev/zero", kernel=kernel,
                 code=ERROR)
    t.has(r.error, "two of that name")
    eight = [x for i in range(8) for x in ("--port", f"p{i}=in:/dev/null")]
    t.has(t.record("x", *eight, kernel=kernel, code=USAGE).error, "at most 7")
    t.has(t.record("x", "--console", "vga", kernel=kernel, code=USAGE).error,
          "neither serial nor hvc0")
    # A socket that nobody listens at any more is replaced.
    old = socket.socket(socket.AF_UNIX)
    old.bind(str(t.dir / "stale"))
    old.close()
    t.record("y", "--port", f"a=unix:{t.dir}/stale", "--max-insns", 1000, kernel=kernel, code=None)
    t.check(not pathlib.Path(t.dir / "stale").exists(), "the socket was left behind")
