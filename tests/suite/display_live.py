"""--display: VNC, a window and pictures while recording and replaying; keyboard and pointer."""
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from suite.display import HEIGHT, WIDTH, framebuffer, pixels, read_png, shot
from suite.gdb_access import STRANGER
from suite.gpu_images import RAW, VIRGL, need_virgl, scene
from suite.harness import ERROR, IMAGES, ROOT, USAGE, Failure, Session, rnd, test
from suite.rfb import Client, Closed

GUEST = ROOT / "build" / "images" / "guest"
# Shows a picture; says what is typed at the screen's terminal and what the tablet did.
SCRIPT = """
[ -e /dev/fb0 ] || { echo NO SCREEN; exit 1; }
exec 3</dev/tty1 # a terminal that nobody has open forgets
stty -echo <&3
printf '\\033[?25l' >/dev/tty0
echo 0 >/sys/class/graphics/fbcon/cursor_blink
cat /dev/input/event1 >/tmp/pointer &
echo READY
cat /first >/dev/fb0
sleep 0.2
echo SHOWN
while read -r line; do
    echo "GOT <$line>"
    [ "$line" = end ] && break
done <&3
echo POINTER
head -c 24000 /tmp/pointer | od -An -v -tx1 -w24
echo DONE
"""
LINE = "The quick brown Fox: 0123456789 `-=[]\\;',./~!@#$%^&*()_+{}|:\"<>?"


class Shown(Session):
    """A recording, or a replay, whose screen can be seen at self.address."""

    def __init__(self, t, name, *options, display="vnc=127.0.0.1:0", script=SCRIPT, argv=None,
                 env=None):
        if argv is None:
            (t.dir / "first").write_bytes(framebuffer(pixels(0)))
            (t.dir / "script").write_text(script)
            options = ("--gpu", f"2d,xres={WIDTH},yres={HEIGHT}", "--add", f"{t.dir}/first:/first",
                       "--add", f"{t.dir}/script:/script.sh", "--display", display,
                       "--timeout", str(100 * t.slow), *options)
        super().__init__(t, name, *options, image="generic", argv=argv, env=env,
                         append="quiet reprise.script=/script.sh")
        if display.startswith("vnc"):
            self.address = self.said(r"the screen by VNC: (\S+)").group(1)

    def said(self, pattern, seconds=30):
        limit = time.monotonic() + seconds * self.t.slow
        while time.monotonic() < limit:
            found = re.search(pattern, self.err.decode("utf-8", "replace"))
            if found:
                return found
            if self.child.poll() is not None and not self.read(0):
                break
            self.read(0.1)
        self.close()
        raise Failure(f"stderr never had /{pattern}/")

    def ready(self, pattern="SHOWN"):
        self.wait("NO SCREEN|" + pattern, 60)
        if b"NO SCREEN" in self.out:
            self.t.skip("this kernel has no virtio-gpu")
        return self

    def client(self, **more):
        return Client(self.address, seconds=60 * self.t.slow, **more)

    @property
    def text(self):
        return self.out.decode("utf-8", "replace").replace("\r\n", "\n")


def pointer_events(text):
    part = text.split("POINTER\n", 1)[1].split("DONE", 1)[0]
    return [struct.unpack("<HHi", bytes.fromhex(line.replace(" ", ""))[16:])
            for line in part.splitlines()]


def shows(rows):
    return lambda c: c.rows() == rows


@test("display/vnc", cost=12)
def vnc(t):
    """A viewer sees the very pixels; what is typed and pointed at arrives, is recorded, replays."""
    s = Shown(t, "rec").ready()
    c = s.client()
    t.equal((c.width, c.height, c.title), (WIDTH, HEIGHT, f"Reprise: {t.dir}/rec"[:109]), "size")
    c.update(False)
    t.equal(c.rows(), pixels(0), "the first update")
    c.type(LINE + "\n")
    s.wait(r"GOT <.*\n")
    t.check(f"GOT <{LINE}>" in s.text, "the guest did not get what was typed")
    for x, y, buttons in ((0, 0, 0), (WIDTH - 1, HEIGHT - 1, 1), (320, 200, 1), (320, 200, 4),
                          (320, 200, 8), (320, 200, 0), (320, 200, 16), (320, 200, 0)):
        c.pointer(x, y, buttons)
        time.sleep(0.05)
    # A key that is held when its client goes is released.
    c.key(0xffe1, True)
    other = s.client()
    time.sleep(0.2)
    c.close()
    time.sleep(0.3)
    other.type("end\n")
    s.wait("GOT <end>\r?\n")
    s.finish()

    def place(v, size):  # where the guest's input layer puts a value of 0 to 32767
        return v * size // 32768

    events = [e for e in pointer_events(s.text) if e[0]]
    moves = [(e[1], place(e[2], WIDTH if e[1] == 0 else HEIGHT)) for e in events if e[0] == 3]
    t.equal(moves, [(0, 0), (1, 0), (0, WIDTH - 1), (1, HEIGHT - 1), (0, 320), (1, 200)], "motion")
    t.equal([e for e in events if e[0] != 3],
            [(1, 0x110, 1), (1, 0x110, 0), (1, 0x111, 1), (1, 0x111, 0), (2, 8, 1), (2, 8, -1)],
            "buttons and wheel")
    keys = [e for e in t.events("rec") if e["type"] == "events" and e["unit"] == 0]
    r = t.replay("rec")
    t.equal(r.out, s.out, "the console of the replay")
    t.replay("rec", env={"REPRISE_TEST_SLICE": 70001})
    t.equal(read_png(shot(t, "console:SHOWN")), pixels(0), "the screenshot")
    t.has(t.run(t.reprise, "info", t.dir / "rec").text, "input +keyboard, tablet")
    return f"{len(keys)} reports of keys, {len(events)} events of the pointer"


@test("display/vnc-viewers", cost=8)
def viewers(t):
    """Viewers that people use see the same, also on a Unix socket's other side."""
    if not shutil.which("gvnccapture"):
        t.skip("gvnccapture (Debian package gvncviewer) is missing")
    s = Shown(t, "rec").ready()
    port = int(s.address.rsplit(":", 1)[1])
    if port < 5900:
        t.skip(f"port {port} is below those that gvnccapture knows")
    t.run("gvnccapture", "-q", f"127.0.0.1:{port - 5900}", t.dir / "seen.png")
    t.equal(read_png(t.dir / "seen.png"), pixels(0), "what gvnccapture saw")
    c = s.client()
    c.type("end\n")
    s.finish()
    t.equal(t.replay("rec").out, s.out, "the console of the replay")
    t.equal(read_png(shot(t, "console:GOT <end>")), pixels(0), "the screenshot")


@test("display/vnc-mode", cost=8)
def mode(t):
    """The guest changes the mode: so does the picture."""
    width, height = WIDTH - 8, HEIGHT - 8
    script = SCRIPT.replace("while read", f"/modeset {width} {height} <&3\nwhile read", 1)
    s = Shown(t, "rec", "--add", f"{GUEST}/modeset:/modeset", script=script).ready()
    if os.geteuid() == 0:  # another user is turned away, before the server says a word
        r = t.run(sys.executable, "-c", STRANGER, s.address)
        t.has(r.text, r"^(b''|ConnectionResetError)$", "what another user was told")
    c = s.client()
    c.until(lambda v: (v.width, v.height) == (width, height))
    rows = [b"".join(bytes(((x * 3 + y) & 255, (x ^ y) & 255, (y * 5 + x // 7) & 255))
                     for x in range(width)) for y in range(height)]
    c.until(shows(rows))
    c.type("\n")
    c.until(lambda v: (v.width, v.height) == (WIDTH, HEIGHT))  # the console again
    c.type("end\n")
    s.finish()
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


@test("display/vnc-unix", cost=10)
def unix(t):
    """A Unix socket; passwords; a second display beside it."""
    (t.dir / "secret").write_text("s3cret\nnot this\n")
    s = Shown(t, "rec", "--display", f"vnc=127.0.0.1:0,password-file={t.dir}/secret",
              display=f"vnc=unix:{t.dir}/vnc").ready()
    t.equal(s.address, f"unix:{t.dir}/vnc", "the address")
    t.lacks(s.err.decode(), "every user of this host")
    t.equal(os.stat(t.dir / "vnc").st_mode & 0o777, 0o600, "who may connect")
    c = s.client()
    c.until(shows(pixels(0)))
    guarded = re.search(r"127.0.0.1:\d+", s.err.decode()).group(0)
    for password in (None, "wrong"):
        try:
            Client(guarded, password, 20 * t.slow)
            t.check(False, f"the password {password} was taken")
        except (PermissionError, Closed):
            pass
    time.sleep(0.2)
    d = Client(guarded, "s3cret", 60 * t.slow)
    d.until(shows(pixels(0)))
    d.type("end\n")
    s.finish()
    t.check(not (t.dir / "vnc").exists(), "the socket was left behind")
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


def hostile(s, seed):
    """Connections that no viewer would make; each is left as it is, or closed."""
    rng = random.Random(seed)

    def plain():
        host, port = s.address.split(":")
        c = socket.create_connection((host, int(port)))
        c.settimeout(0.2)
        return c

    left = []
    for k in range(6):  # garbage instead of a greeting, and in its middle
        c = plain()
        c.sendall(rng.randbytes(rng.randrange(1, 3000)) if k else b"RFB 003")
        left.append(c) if k % 2 else c.close()
    c = s.client()  # text to paste: 4 GB are promised, some come
    c.s.sendall(struct.pack(">B3xI", 6, 0xffffffff) + b"x" * 100000)
    c = s.client()
    c.s.sendall(struct.pack(">B3xI", 6, 900000) + b"x" * 900000)
    c.close()
    c = s.client()  # half a message, then nothing
    c.s.sendall(struct.pack(">BB", 3, 0))
    left.append(c)
    c = s.client()  # messages of all kinds with random contents
    try:
        for _ in range(200):
            c.s.sendall(bytes([rng.randrange(256)]) + rng.randbytes(rng.randrange(40)))
    except OSError:
        pass
    left.append(c)
    c = s.client()  # asks for the whole screen again and again, and takes nothing
    c.s.settimeout(2)
    try:
        for _ in range(3000):
            c.ask(False)
    except OSError:
        pass
    left.append(c)
    return left


@test("display/vnc-hostile", cost=25)
def vnc_hostile(t):
    """Clients that send nonsense, stop in the middle, flood: the machine and the next one go on."""
    seed = rnd.getrandbits(30)
    s = Shown(t, "rec").ready()
    left = hostile(s, seed)
    # Keys without end, faster than any guest takes them: pressed keys are dropped, none is left
    # down.
    flood = s.client()
    message = b"".join(struct.pack(">BBxxI", 4, down, keysym) for keysym in range(0x20, 0x7f)
                       for down in (1, 1, 0))
    moves = b"".join(struct.pack(">BBHH", 5, k % 8, k * 7 % WIDTH, k % HEIGHT) for k in range(300))
    for _ in range(150):
        flood.s.sendall(message + moves)
    flood.key(0xffe1, True)  # and shift, held
    flood.close()
    for c in left:
        c.close()
    # What it sent is still on its way; a guest that has been typed to needs lines again.
    c = s.client()
    c.until(shows(pixels(0)))
    limit = time.monotonic() + 40 * t.slow
    while b"GOT <end>" not in s.out and s.child.poll() is None:
        t.check(time.monotonic() < limit, "nothing can be typed any more")
        c.type("\nend\n")
        for _ in range(10):
            s.read(0.1)
    s.finish()
    t.lacks(s.err.decode(), "the display has gone")
    t.equal(t.replay("rec").out, s.out, "the console of the replay")
    events = sum(e["type"] == "events" for e in t.events("rec"))
    return f"seed {seed}, {events} reports"


@test("display/vnc-killed", cost=10)
def killed(t):
    """The viewer dies: the machine goes on, and no key stays down."""
    s = Shown(t, "rec").ready()
    c = s.client()
    c.update(False)
    c.key(0xffe1, True)
    time.sleep(0.3)
    children = subprocess.run(["pgrep", "-P", str(s.child.pid), "reprise-display"],
                              stdout=subprocess.PIPE, text=True).stdout.split()
    t.equal(len(children), 1, "viewers")
    os.kill(int(children[0]), signal.SIGKILL)
    s.said(r"the display has gone \(killed by signal 9")
    time.sleep(0.3)
    os.kill(s.child.pid, signal.SIGTERM)
    s.finish(code=None)
    last = [e for e in t.events("rec") if e["type"] == "events"][-1]
    t.equal(last["data"], "\x01\x00*\x00\x00\x00\x00\x00" + "\x00" * 8, "the release of shift")
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


@test("display/replay", cost=12)
def replay(t):
    """A replay is seen the same, only to look at, at its recording's pace if asked for."""
    script = SCRIPT.replace("while read", "sleep 2\nwhile read", 1)
    s = Shown(t, "rec", script=script).ready()
    time.sleep(5)  # for as long can the replay be looked at
    c = s.client()
    c.type("end\n")
    s.finish()
    r = Shown(t, "rec", argv=[t.reprise, "replay", "--verify", "--realtime", "--display",
                              "vnc=127.0.0.1:0", t.dir / "rec"])
    began = time.monotonic()
    r.wait("SHOWN")
    c = r.client()
    t.has(c.title, r"\(replay\)$")
    c.until(shows(pixels(0)))
    c.type("nothing of this\nend\n")
    r.finish()
    t.check(time.monotonic() - began > 2, "the replay did not wait with its guest")
    t.equal(r.out, s.out, "the console of the replay")


@test("display/png", cost=12)
def png(t):
    """Pictures at multiples of virtual time: those of the screen then, the same in each replay,
    and in the place of nothing."""
    (t.dir / "first").write_bytes(framebuffer(pixels(0)))
    script = SCRIPT[:SCRIPT.index("while read")] + """
for k in 1 2 3; do
    head -c 300000 /first >/dev/fb0; sleep 0.25
    head -c 300000 /dev/zero >/dev/fb0; sleep 0.25
done
cat /first >/dev/fb0; sleep 0.25; echo END
"""
    r = t.linux("rec", "--gpu", f"2d,xres={WIDTH},yres={HEIGHT}", "--add",
                f"{t.dir}/first:/first", "--display", "png-every=0.1", image="generic",
                script=script, append="quiet")
    if "NO SCREEN" in r.text:
        t.skip("this kernel has no virtio-gpu")
    first = {p.name: p.read_bytes() for p in (t.dir / "rec" / "screens").iterdir()}
    t.check(len(first) >= 3, f"{len(first)} pictures")
    t.check(read_png(t.dir / "rec" / "screens" / max(first)) == pixels(0), "the last picture")
    looked_at = sorted(first)[::4]
    for name in first:
        found = re.fullmatch(r"time-(\d{5}\.\d)00000000-insn-(\d+)\.png", name)
        t.check(found, f"a picture is called {name}")
        if name not in looked_at:
            continue
        again = shot(t, f"time:{float(found.group(1)):.1f}s").read_bytes()
        t.check(again == first[name], f"picture {name} is not the screenshot of that time")
    # The same again: over them, elsewhere, with other slices.
    t.run(t.reprise, "replay", "--quiet", "--display", "png-every=0.1", t.dir / "rec")
    for slice_ in (0, 70001):
        t.run(t.reprise, "replay", "--quiet", "--display", f"png-every=0.1,{t.dir}/again{slice_}",
              t.dir / "rec", env={"REPRISE_TEST_SLICE": slice_} if slice_ else None)
        again = {p.name: p.read_bytes() for p in (t.dir / f"again{slice_}").iterdir()}
        t.check(again == first, "the replay's pictures differ")
    # Never in the place of something else, and that is an error.
    victim = t.dir / "again0" / min(first)
    victim.write_text("mine")
    e = t.run(t.reprise, "replay", "--quiet", "--display", f"png-every=0.1,{t.dir}/again0",
              t.dir / "rec", code=ERROR)
    t.has(e.error, "is there already and shows something else")
    t.equal(victim.read_text(), "mine", "the file that was there")
    e = t.run(t.reprise, "replay", "--quiet", "--display", f"png-every=0.1,{t.dir}/no/no",
              t.dir / "rec", code=ERROR)
    t.has(e.error, "cannot make the directory")
    # A recording with pictures can be replaced.
    t.tiny("rec", "echo", "--force", "--append", "x", code=None, input=b"")
    t.check(not (t.dir / "rec" / "screens").exists(), "pictures of a recording that is gone")
    return f"{len(first)} pictures"


def halting(child, stop):
    """Stops and continues the renderer of a recorder, so that its replies come late."""
    while not stop.is_set() and child.poll() is None:
        for pid in subprocess.run(["pgrep", "-P", str(child.pid), "reprise-gpu"],
                                  stdout=subprocess.PIPE, text=True).stdout.split():
            try:
                os.kill(int(pid), signal.SIGSTOP)
                time.sleep(0.031)
                os.kill(int(pid), signal.SIGCONT)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


@test("display/3d", cost=20)
def three_d(t):
    """With a renderer, also a slow one: whole frames, by VNC and as files; the same on replay."""
    need_virgl(t)
    s = Shown(t, "rec", argv=[
        t.reprise, "record", "-o", t.dir / "rec", "--kernel", RAW / "vmlinuz", "--initrd",
        RAW / "initrd", "--gpu", VIRGL, "--append", "quiet -- frames=60 every=1", "--display",
        "vnc=127.0.0.1:0", "--display", "png-every=0.05"])
    stop = threading.Event()
    helper = threading.Thread(target=halting, args=(s.child, stop))
    helper.start()
    seen = []
    try:
        c = s.client()
        while True:
            c.update()
            if any(c.picture):
                seen.append(b"".join(c.rows()))
    except Closed:
        pass
    finally:
        stop.set()
        helper.join()
    s.finish()
    t.has(s.text, "60 frames in .*, 0 of the checked ones wrong")
    t.lacks(t.run(t.reprise, "events", t.dir / "rec").text, "does not answer")
    scenes = {b"".join(scene(n)): n for n in range(1, 61)}
    t.check(seen and all(p in scenes for p in seen), "VNC showed what was never a frame")
    pictures = {p.name: p.read_bytes() for p in (t.dir / "rec" / "screens").iterdir()}
    for name in sorted(pictures)[::6]:
        rows = read_png(t.dir / "rec" / "screens" / name)
        t.check(b"".join(rows) in scenes, f"{name} is no frame")
    t.run(t.reprise, "replay", "--quiet", "--display", f"png-every=0.05,{t.dir}/again",
          t.dir / "rec")
    again = {p.name: p.read_bytes() for p in (t.dir / "again").iterdir()}
    t.check(again == pictures, "the replay's pictures differ")
    return f"{len(set(seen))} frames by VNC, {len(pictures)} pictures"


@test("display/desktop", cost=60)
def desktop(t):
    """weston, used through VNC: what is typed in its terminal arrives; the replay shows the same."""
    need_virgl(t)
    where = IMAGES / "gpu-desktop"
    if not (where / "disk.img").exists():
        t.skip("build/images/gpu-desktop is not built: make image-gpu-desktop")
    s = Shown(t, "rec", argv=[
        t.reprise, "record", "-o", t.dir / "rec", "--kernel", where / "vmlinuz", "--initrd",
        where / "initrd", "--disk", where / "disk.img", "--memory", "1G", "--gpu",
        "virgl,xres=800,yres=600", "--append", "quiet reprise.end=exit -- gpu desktop",
        "--display", "vnc=127.0.0.1:0", "--display", "png-every=0.25"])
    s.wait("desktop: the terminal is open", 200)
    c = Client(s.address, seconds=150 * t.slow)
    c.update(False)
    t.equal((c.width, c.height), (800, 600), "size")
    c.pointer(400, 300)
    time.sleep(2)
    for _ in range(3):  # a shell that is slow to start has forgotten what was typed before
        c.type("echo TYPED by VNC >/dev/console\n", 0.02)
        if s.shown("TYPED by VNC\r?\n", 40):
            break
    else:
        t.check(False, "what was typed by VNC never arrived")
    # Where the pointer goes, the picture changes.
    c.update(False)
    before = c.rows()
    c.pointer(200, 500)
    c.until(lambda v: v.rows()[500:516] != before[500:516])
    c.type("exit\n", 0.02)
    s.wait("desktop: the terminal was closed", 100)
    s.finish(seconds=100)
    r = t.run(t.reprise, "replay", "--verify", "--display", f"png-every=0.25,{t.dir}/again",
              t.dir / "rec", timeout=400)
    t.equal(r.out, s.out, "the console of the replay")
    pictures = {p.name: p.read_bytes() for p in (t.dir / "rec" / "screens").iterdir()}
    again = {p.name: p.read_bytes() for p in (t.dir / "again").iterdir()}
    t.check(len(pictures) >= 4 and again == pictures, "the replay's pictures differ")
    return f"{c.updates} updates by VNC, {len(pictures)} pictures"


@test("display/sdl", cost=12)
def sdl(t):
    """A window: its pixels on an X server, keys and buttons; closed; without a display an error."""
    r = t.run(t.reprise, "record", "-o", t.dir / "none", "--kernel",
              ROOT / "build" / "images" / "tiny" / "echo.elf", "--gpu", "2d", "--display", "sdl",
              code=ERROR, env={"SDL_VIDEODRIVER": "x11", "DISPLAY": ":no"})
    t.has(r.error, "--display: the display: SDL cannot open a window: ")
    t.check(not (t.dir / "none").exists(), "a recording was left behind")
    for tool, package in (("Xvfb", "xvfb"), ("xdotool", "xdotool")):
        if not shutil.which(tool):
            t.skip(f"{tool} (Debian package {package}) is missing")
    screen = t.dir / "x"
    screen.mkdir()
    out, into = os.pipe()
    t.start(["Xvfb", "-displayfd", str(into), "-screen", "0", "800x600x24", "-fbdir",
             screen], pass_fds=[into])
    os.close(into)
    with os.fdopen(out) as said:  # to the end of the line, or the server dies of it
        number = said.readline().strip()
    t.check(number, "Xvfb did not start")
    env = {"DISPLAY": ":" + number, "SDL_VIDEODRIVER": "x11"}
    s = Shown(t, "rec", display="sdl", env=env).ready()

    def x(*args):
        return t.run("xdotool", *args, env=env).text.strip()

    window = x("search", "--sync", "--onlyvisible", "--name", "^Reprise: ").split()[0]
    x("windowmove", "--sync", window, 10, 20)
    rows = pixels(0)
    limit = time.monotonic() + 20 * t.slow
    while xwd_rows(screen / "Xvfb_screen0", 10, 20) != rows:
        t.check(time.monotonic() < limit, "the window never showed the picture")
        time.sleep(0.1)
    x("mousemove", "--window", window, 100, 50)
    time.sleep(0.2)
    x("click", 1)
    time.sleep(0.2)
    x("windowfocus", window)
    x("type", "--delay", 20, "Hello, (window)")
    x("key", "Return")
    s.wait("GOT <.*\n")
    t.check("GOT <Hello, (window)>" in s.text, "the guest did not get what was typed")
    x("type", "--delay", 20, "end")
    x("key", "Return")
    s.wait("GOT <end>\r?\n")
    s.finish()
    events = [e for e in pointer_events(s.text) if e[0]]
    t.check((1, 0x110, 1) in events and (1, 0x110, 0) in events, "no click arrived")
    at = [e[2] for e in events if e[0] == 3][-2:]
    t.equal((at[0] * WIDTH // 32768, at[1] * HEIGHT // 32768), (100, 50), "where the pointer is")
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


def xwd_rows(path, left, top):
    """Part of an X server's screen, as its file in the format of xwd has it (XWDFile.h)."""
    data = path.read_bytes()
    head = struct.unpack(">25I", data[:100])
    t_size, stride, colors = head[0], head[12], head[19]
    start = t_size + colors * 12
    rows = []
    for y in range(top, top + HEIGHT):
        line = data[start + y * stride + left * 4:start + y * stride + (left + WIDTH) * 4]
        rows.append(b"".join(bytes((line[i + 2], line[i + 1], line[i]))
                             for i in range(0, len(line), 4)))
    return rows


@test("display/live-options")
def live_options(t):
    """What is wrong is said, before anything starts."""
    kernel = ROOT / "build" / "images" / "tiny" / "echo.elf"
    for value, what in (("", "is none of none, vnc=ADDRESS, sdl, png-every"),
                        ("x11", "is none of"), ("vnc=", "has 1 to"),
                        ("vnc=-", "vnc=HOST:PORT or vnc=unix:PATH"),
                        ("vnc=nowhere", "no place to listen"),
                        ("vnc=:0,closed", "no option 'closed' (password-file=FILE, open)"),
                        ("vnc=:0,password-file=", "a name of 1 to 4095"),
                        ("png-every=0", "not a number of seconds"),
                        ("png-every=-1", "not a number of seconds"),
                        ("png-every=nan", "not a number of seconds"),
                        ("png-every=1x", "not a number of seconds"),
                        ("png-every=1,", "has 1 to")):
        r = t.run(t.reprise, "record", "-o", "x", "--kernel", kernel, "--gpu", "2d", "--display",
                  value, code=USAGE)
        t.has(r.error, re.escape(what))
    r = t.run(t.reprise, "record", "-o", "x", "--kernel", kernel, "--display", "sdl", code=USAGE)
    t.has(r.error, "--gpu is missing")
    five = [o for _ in range(5) for o in ("--display", "png-every=1")]
    r = t.run(t.reprise, "record", "-o", "x", "--kernel", kernel, "--gpu", "2d", *five, code=USAGE)
    t.has(r.error, "at most 4")
    busy = socket.socket()
    busy.bind(("127.0.0.1", 0))
    busy.listen()
    (t.dir / "long").write_text("ninechars\n")
    (t.dir / "empty").write_text("\n")
    for value, what in ((f"vnc=127.0.0.1:{busy.getsockname()[1]}", "cannot listen on 127.0.0.1"),
                        ("vnc=0.0.0.0:0", "whoever reaches that address"),
                        ("vnc=127.0.0.1:0,password-file=long", "has 1 to 8 characters"),
                        ("vnc=127.0.0.1:0,password-file=empty", "has 1 to 8 characters"),
                        ("vnc=127.0.0.1:0,password-file=none", "cannot read the password"),
                        ("vnc=unix:long", "exists and is not a socket")):
        r = t.run(t.reprise, "record", "-o", "x", "--kernel", kernel, "--gpu", "2d", "--display",
                  value, code=ERROR)
        t.has(r.error, "--display: ")
        t.has(r.error, what)
        t.check(not (t.dir / "x").exists(), "a recording was left behind")
    for value, what in (("vnc=0.0.0.0:0,open", "warning: whoever reaches"),
                        ("vnc=0.0.0.0:0,password-file=short", "VNC is not encrypted"),
                        ("vnc=127.0.0.1:0,open", "every user of this host")):
        (t.dir / "short").write_text("12345678")
        r = t.record("y", "--force", "--gpu", "2d", "--display", value, "--max-insns", 1000,
                     kernel=kernel, code=None)
        t.has(r.error, what)
    t.tiny("rec", "echo", "--append", "x", code=None, input=b"")
    r = t.run(t.reprise, "replay", "--display", "sdl", t.dir / "rec", code=ERROR)
    t.has(r.error, "recorded without a display")
    for other in (["--to", "end"], ["--screenshot", "f"]):
        r = t.run(t.reprise, "replay", "--display", "sdl", *other, t.dir / "rec", code=USAGE)
        t.has(r.error, "for a replay to the end")
