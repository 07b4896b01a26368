"""reprise-net, the companion that is a network in user space: its death, a hostile one, its sandbox."""
import os
import re
import shutil
import signal
import subprocess
import sys

from suite.boot import image
from suite.harness import ERROR, IMAGES, Session, rnd, test
from suite.net import UP, Guest, echo, guest_files

MAGIC, VERSION, READY = 0x544e5652, 1, 0  # host/net_protocol.h
FORWARDS = 32
# A stand-in for reprise-net: Python, with a socket at 3 and MODE in the environment.
STAND_IN = f"""#!{sys.executable}
import os, random, socket, struct, time
s = socket.socket(fileno=3)
mode = os.environ["MODE"]
start = s.recv(65536)
assert struct.unpack_from("<II", start) == ({MAGIC}, {VERSION}), start[:8]


def hello(step=0, error=0, forward=0, magic={MAGIC}, version={VERSION}):
    return struct.pack("<IIIiI{FORWARDS}H", magic, version, step, error, forward,
                       *range(1, {FORWARDS} + 1))


GREETINGS = {{"quits": None, "brief": b"x" * 10, "other": hello(version=2), "busy": hello(3, 98),
             "beyond": hello(3, 98, 1 << 31), "strange": hello(99, -5), "library": hello(2, 12),
             "sandbox": hello(5, 38)}}
greeting = GREETINGS.get(mode, hello())
if greeting is None:
    os._exit(3)
s.send(greeting)
frame = struct.pack("<I", 1) + b"\\xff" * 6 + b"\\x52" * 6 + b"\\x08\\x06"
if mode == "small":
    s.send(b"xyz")
elif mode == "empty":
    s.send(b"")
elif mode == "kind":
    s.send(struct.pack("<I", 77) + bytes(100))
elif mode == "short":
    s.send(frame[:17])
elif mode == "long":
    s.send(frame + bytes(32768 - 13))
elif mode == "longest":
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    s.send(frame + bytes(150000))
elif mode == "sync":
    s.send(struct.pack("<IQ", 2, 1))
elif mode == "random":
    r = random.Random(int(os.environ["SEED"]))
    while True:
        size = r.choice((r.randrange(4, 60), r.randrange(33000)))
        s.send((frame if r.random() < 0.9 else r.randbytes(4)) + r.randbytes(size))
elif mode == "flood":
    while True:
        s.send(frame + bytes(1400))
elif mode == "mute":
    while s.recv(65536):
        pass
time.sleep(1000)
"""
GONE = r"network 0: reprise-net is gone \((.*)\); the guest's link is down from here on"


def stand_in(t):
    """A directory with reprise and a stand-in beside it."""
    place = t.dir / "bin"
    place.mkdir()
    shutil.copy(t.reprise, place)
    (place / "reprise-net").write_text(STAND_IN)
    (place / "reprise-net").chmod(0o755)
    return place / "reprise"


def companion(t, pid):
    found = subprocess.run(["pgrep", "-P", str(pid), "reprise-net"], stdout=subprocess.PIPE,
                           text=True).stdout.split()
    t.equal(len(found), 1, "companions")
    return int(found[0])


def links(t, name):
    return [e["up"] if "up" in e else e for e in t.events(name) if e["type"] == "link"]


@test("net/companion-killed", cost=8)
def killed(t):
    """The companion is locked in while it records; it is killed: the link goes down, the recording goes
    on, and the replay is the same. The recorder itself has no libslirp."""
    image(t)
    t.lacks(t.run("ldd", t.reprise).text, "libslirp")
    t.has(t.run("ldd", t.build / "reprise-net").text, "libslirp")
    script = UP + """/echod &
last=1
while :; do
    now=$(cat /sys/class/net/eth0/carrier)
    [ $now = $last ] || break
    sleep 0.05
done
echo LINK $now
ping -c 1 -W 1 10.0.2.2 | grep received
echo ON
"""
    g = Guest(t, "rec", script, "--net", "user,hostfwd=tcp::0-:7")
    s = g.tcp(7)
    t.equal(echo(s, b"before"), b"before", "an echo")
    pid = companion(t, g.child.pid)
    with open(f"/proc/{pid}/status") as f:
        status = f.read()
    for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t0000000000000000"):
        t.has(status, f"^{line}$", "the companion's status")
    os.kill(pid, signal.SIGKILL)
    g.wait("^LINK 0")
    g.wait("^ON")
    g.finish()
    t.has(g.out.decode(), "0 packets received")
    t.equal(re.findall(GONE, g.err.decode()), ["killed by signal 9 (Killed)"], "what was said")
    t.equal(links(t, "rec"), [False], "changes of the link in the log")
    t.equal(t.replay("rec").out, g.out, "the console of the replay")


@test("net/companion-hostile", cost=8)
def hostile(t):
    """A companion that speaks nonsense, or too much, or ends, costs the guest its link and no more."""
    image(t)
    reprise = stand_in(t)
    kernel = IMAGES / "linux" / "vmlinuz"

    def record(mode, *more, code=0, seed=0):
        return t.run(reprise, "record", "-o", t.dir / "rec", "--force", "--kernel", kernel, "--net",
                     "user,hostfwd=tcp::0-:1,hostfwd=udp::5353-:53", "--stop-at", "Command line",
                     *more, code=code, env={"MODE": mode, "SEED": seed})

    for mode, pattern in (("quits", "did not start, or is of another version"),
                          ("brief", "did not start, or is of another version"),
                          ("other", "did not start, or is of another version"),
                          ("strange", "of another version"),
                          ("busy", "cannot listen on tcp port 0 of 127.0.0.1 .*in use"),
                          ("beyond", "cannot listen on udp port 5353 of 127.0.0.1 .*in use"),
                          ("library", "libslirp does not start: Cannot allocate"),
                          ("sandbox", "cannot lock itself in: Function not")):
        r = record(mode, code=ERROR)
        t.has(r.error, "--net user: .*" + pattern, mode)
        t.equal(len(r.error.splitlines()), 1, f"lines about {mode}")
        t.check(not (t.dir / "rec").exists(), f"a recording was left by {mode}")
    for mode in ("small", "empty", "kind", "short", "long", "longest", "sync", "random"):
        seed = rnd.randrange(10 ** 9)
        r = record(mode, seed=seed)
        t.has(r.error, "tcp port 1 of 127.0.0.1 leads to port 1", mode)
        t.equal(re.findall(GONE, r.error)[:2],
                ["killed by signal 9 (Killed)" if mode == "empty" else "it sent nonsense"],
                f"what was said of {mode} (seed {seed})")
    t.replay("rec")
    t.equal(links(t, "rec"), [False], "changes of the link in the log")
    r = record("flood")
    t.lacks(r.error, "is gone")
    t.replay("rec")


@test("net/companion-mute", cost=30)
def mute(t):
    """One that does not answer where time would jump is given up, and one that reads nothing."""
    image(t)
    where, reprise = IMAGES / "linux", stand_in(t)
    for mode, script, options, said in (
            ("mute", UP + "echo ON\n", ("--no-realtime",), "it does not answer"),
            ("deaf", "ip link set eth0 up\n/frames 1 5000\necho ON\n", (), "it takes nothing")):
        r = t.run(reprise, "record", "-o", t.dir / mode, "--kernel", where / "vmlinuz", "--initrd",
                  where / "initrd", *guest_files(t, mode, script), "--append",
                  "quiet reprise.script=/script.sh", "--net", "user", *options, env={"MODE": mode})
        t.has(r.text, "^ON")
        t.equal(re.findall(GONE, r.error), [said], "what was said")
        t.same(mode, r)


@test("net/sandbox")
def sandbox(t):
    """Once it listens it can open, start and signal nothing; with restrict=on it connects to nothing."""
    r = t.run(t.build / "reprise-net", "--check")
    t.has(r.text, r"^network: libslirp \d+\.\d+")
    t.has(r.text, "^sandbox: holds$")
    t.equal(r.error, "", "complaints")
    r = t.run(t.build / "reprise-net", code=2)
    t.has(r.error, "reprise starts this, for record --net user")


# Serves 127.0.0.1:53 in its own namespace: every A is 10.9.8.7 or, by the second address, 10.9.8.6.
NAMES = """import socket, struct, sys, threading
def serve(address, answer):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((address, 53))
    while True:
        q, peer = s.recvfrom(4096)
        kind = struct.unpack(">H", q[12:].split(b"\\0", 1)[1][:2])[0]
        a = b"" if kind != 1 else b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\5\\0\\4" + socket.inet_aton(answer)
        name = q[12:].split(b"\\0", 1)[0] + b"\\0" + q[12:].split(b"\\0", 1)[1][:4]
        s.sendto(q[:2] + b"\\x81\\x80\\0\\1" + (b"\\0\\1" if a else b"\\0\\0") + bytes(4) + name + a, peer)
for pair in (("127.0.0.1", "10.9.8.7"), ("127.0.0.2", "10.9.8.6")):
    threading.Thread(target=serve, args=pair, daemon=True).start()
sys.stdin.read()
"""


@test("net/names", cost=8)
def names(t):
    """The guest resolves names by the host's server, also by another one that /etc/resolv.conf is changed
    to, although the companion opens no file."""
    image(t)
    if os.geteuid():
        t.skip("a resolv.conf of our own takes root")
    conf = t.dir / "resolv.conf"
    conf.write_text("nameserver 127.0.0.1\n")
    (t.dir / "names.py").write_text(NAMES)
    script = UP + """echo nameserver 10.0.2.3 >/etc/resolv.conf
nslookup one.test
echo FIRST
until nslookup two.test | grep 10.9.8.6; do sleep 0.2; done
"""
    # The server ends with the recorder, whose end of the pipe is its input's.
    place = f'mount --bind {conf} "$(realpath /etc/resolv.conf)" && ip link set lo up'
    line = f'{place} && exec "$@" 9> >({sys.executable} {t.dir}/names.py)'
    if t.run("unshare", "-mn", "sh", "-c", place, code=None).code:
        t.skip("no namespaces here")
    where = IMAGES / "linux"
    g = Session(t, "rec", argv=[
        "unshare", "-mn", "bash", "-c", line, "bash", t.reprise, "record", "-o", t.dir / "rec",
        "--kernel", where / "vmlinuz", "--initrd", where / "initrd",
        *guest_files(t, "rec", script), "--append", "quiet reprise.script=/script.sh", "--net",
        "user"])
    g.wait("^FIRST")
    t.has(g.out.decode(), "10.9.8.7")
    with open(conf, "r+") as f:
        f.write("nameserver 127.0.0.2\n")
    g.finish()
    t.has(g.out.decode(), "10.9.8.6")
    t.equal(t.replay("rec").out, g.out, "the console of the replay")
