"""The screen of a guest: virtio-gpu in 2D, screenshots of a replay, points by frame."""
import shutil
import struct
import subprocess
import zlib

from suite.gdb import Client
from suite.harness import ERROR, USAGE, test

WIDTH, HEIGHT = 640, 400
SCRIPT = """
[ -e /dev/fb0 ] || { echo NO SCREEN; exit 1; }
cat /sys/class/drm/card0-Virtual-1/modes | head -n 1
printf '\\033[?25l' >/dev/tty0
echo 0 >/sys/class/graphics/fbcon/cursor_blink
cat /first >/dev/fb0
sleep 0.3
echo FIRST SHOWN
cat /second >/dev/fb0
sleep 0.3
echo SECOND SHOWN
cat /first >/dev/fb0
sleep 0.3
echo THIRD SHOWN
"""


def pixels(which):
    """Rows of R, G, B: a picture in which each place differs from its neighbours."""
    return [b"".join(bytes(((x * (which + 1) + y) & 255, (x ^ y * 3) & 255, (y + 7 * which) & 255))
                     for x in range(WIDTH)) for y in range(HEIGHT)]


def framebuffer(rows):
    """The same as the kernel's framebuffer has it: B, G, R, X."""
    return b"".join(bytes((row[i + 2], row[i + 1], row[i], 0)) for row in rows
                    for i in range(0, len(row), 3))


def read_png(path):
    """Rows of an 8-bit picture, RGB or with alpha, which is left out (PNG specification, sections
    5, 9 and 11)."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, size = 8, b"", None
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        body = data[at + 8:at + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[at + 8 + length:at + 12 + length])[0]
        if kind == b"IHDR":
            size = struct.unpack(">II", body[:8])
            assert body[8:] in (bytes((8, 2, 0, 0, 0)), bytes((8, 6, 0, 0, 0)))
            each = 3 if body[9] == 2 else 4
        elif kind == b"IDAT":
            packed += body
        at += 12 + length
    raw, rows, stride = zlib.decompress(packed), [], size[0] * each
    last = bytes(stride)
    for y in range(size[1]):
        how = raw[y * (stride + 1)]
        row = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            a = row[i - each] if i >= each else 0
            b, c = last[i], last[i - each] if i >= each else 0
            if how == 1:
                row[i] = (row[i] + a) & 255
            elif how == 2:
                row[i] = (row[i] + b) & 255
            elif how == 3:
                row[i] = (row[i] + (a + b) // 2) & 255
            elif how == 4:
                p = a + b - c
                near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))
                row[i] = (row[i] + near[2]) & 255
        last = bytes(row)
        if each == 4:
            del row[3::4]
        rows.append(bytes(row))
    return rows


def session(t, *options):
    first, second = pixels(0), pixels(1)
    (t.dir / "first").write_bytes(framebuffer(first))
    (t.dir / "second").write_bytes(framebuffer(second))
    r = t.linux("rec", "--gpu", f"2d,xres={WIDTH},yres={HEIGHT}", "--add", f"{t.dir}/first:/first",
                "--add", f"{t.dir}/second:/second", *options, image="generic", script=SCRIPT,
                append="quiet")
    if "NO SCREEN" in r.text:
        t.skip("this kernel has no virtio-gpu")
    t.has(r.text, f"^{WIDTH}x{HEIGHT}")
    t.has(r.text, "THIRD SHOWN")
    return r, first, second


def shot(t, point, name="s.png"):
    t.run(t.reprise, "replay", t.dir / "rec", "--to", point, "--screenshot", name, "--force")
    return t.dir / name


@test("display/screenshot", cost=15)
def screenshot(t):
    """Known pixels at three points, from power-on and from checkpoint files, and the same frames."""
    r, first, second = session(t)
    t.same("rec", r)

    t.equal(read_png(shot(t, "console:FIRST SHOWN", "1.png")), first, "the first picture")
    t.equal(read_png(shot(t, "console:SECOND SHOWN", "2.png")), second, "the second picture")
    t.equal(read_png(shot(t, "console:THIRD SHOWN", "3.png")), first, "the third picture")
    frame = shot(t, "frame:5", "frame5.png").read_bytes()
    t.run(t.reprise, "checkpoint", "--every", "0.2", t.dir / "rec")
    for number, point in enumerate(("FIRST", "SECOND", "THIRD"), 1):
        again = shot(t, f"console:{point} SHOWN").read_bytes()
        t.check(again == (t.dir / f"{number}.png").read_bytes(),
                f"picture {number} differs when it comes from a checkpoint file")
    t.check(shot(t, "frame:5").read_bytes() == frame, "frame 5 differs from a checkpoint file")
    # gdb's `monitor screen`: only of the gdb that we start, and it replaces nothing.
    with Client(t, "rec", "--to", "console:FIRST SHOWN") as c:
        for name in ("5.png", "1.png"):
            t.has(c.monitor(f"screen {t.dir}/{name}"),
                  "error: only the gdb that `reprise gdb` started may write.*--screenshot FILE")
    t.check(not (t.dir / "5.png").exists(), "a file was written for whoever connects")
    if shutil.which("gdb"):
        r = t.run(t.reprise, "gdb", t.dir / "rec", "--to", "console:FIRST SHOWN", "--", "-nx",
                  "-batch", "-ex", "monitor screen 4.png", "-ex", "monitor screen 3.png",
                  stderr=subprocess.STDOUT)
        t.has(r.text, r"^4\.png shows the screen")
        t.has(r.text, r"^error: 3\.png is there already")
        t.equal(read_png(t.dir / "4.png"), first, "the picture from gdb")
        t.equal(read_png(t.dir / "3.png"), first, "the file that was there")
        t.equal((t.dir / "4.png").stat().st_mode & 0o777, 0o600, "the picture's mode")
    many = t.run(t.reprise, "replay", t.dir / "rec", "--to", "frame:100000", code=ERROR).error
    t.has(many, r"the guest shows \d+ frames, not 100000")


@test("display/options")
def options(t):
    """What is wrong is said."""
    for value, what in (("3d", "is none of virgl, 2d, none"), ("2d,xres=1", "64 to 4096 pixels"),
                        ("2d,xres=99999", "64 to 4096"), ("2d,depth=3", "no option .depth=3. .xres=N, yres=N, hz=N[)]"),
                        ("", "is none of virgl, 2d, none")):
        r = t.run(t.reprise, "record", "-o", "x", "--kernel", "k", "--gpu", value, code=USAGE)
        t.has(r.error, what)
    t.tiny("rec", "echo", "--append", "x", code=None, input=b"")
    r = t.run(t.reprise, "replay", t.dir / "rec", "--screenshot", "s.png", code=ERROR)
    t.has(r.error, "recorded without a display")
    (t.dir / "there.png").write_text("mine")
    r = t.run(t.reprise, "replay", t.dir / "rec", "--screenshot", "there.png", code=ERROR)
    t.has(r.error, "there.png")
    t.equal((t.dir / "there.png").read_text(), "mine", "the file that was there")
    r = t.run(t.reprise, "replay", t.dir / "rec", "--to", "frame:1", code=ERROR)
    t.has(r.error, "recorded without a display")


@test("display/early", cost=4)
def early(t):
    """Before the driver there is no picture, and that is said."""
    t.linux("rec", "--gpu", "2d", "--max-insns", "30000000", code=None)
    r = t.run(t.reprise, "replay", t.dir / "rec", "--to", "insn:1000", "--screenshot", "s.png",
              code=ERROR)
    t.has(r.error, "the screen is off here")
    t.check(not (t.dir / "s.png").exists(), "a picture of nothing was written")
