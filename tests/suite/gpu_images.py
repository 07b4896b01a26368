"""The images for the GPU: what they draw is known here too, pixel by pixel."""
import json
import os
import pathlib
import re
import signal
import zlib

from suite.display import read_png
from suite.harness import DIVERGED, FINE, GUEST, IMAGES, Session, rnd, test

RAW = IMAGES / "gpu-raw"
WIDTH, HEIGHT, SQUARE = 640, 480, 64
VIRGL = f"virgl,xres={WIDTH},yres={HEIGHT}"
RIGHT = f"right, {SQUARE * SQUARE} samples"
NO_3D, WRONG_PIXELS, BAD_WORD = 3, 1, 2


def need_virgl(t):
    """Skips where a machine cannot have 3D."""
    if "virgl" not in t.run(t.reprise, "record", "--help").text:
        t.skip("this build has no --gpu virgl")
    check = t.run(t.build / "reprise-gpu", "--check", code=None)
    if check.code:
        t.skip((check.error.strip() or check.text.strip()).splitlines()[-1])


def scene(n):
    """Frame n, from 1, as rows of R, G, B: images/gpu-raw/scene.h."""
    f, rows = n - 1, []
    side = min(WIDTH // 4, HEIGHT // 3)
    left, top = WIDTH // 16 + f * 8 % (WIDTH // 2), HEIGHT // 8
    square = bytes((f * 3 & 255, 200, 255 - (f * 5 & 255))) * SQUARE
    for y in range(HEIGHT):
        row = bytearray(b"\x10\x20\x40" * WIDTH)
        if top <= y < top + side:
            row[left * 3:(left + side - (y - top)) * 3] = b"\xff\x80\x00" * (side - (y - top))
        at = y - HEIGHT * 5 // 8
        if 0 <= at < SQUARE:
            row[WIDTH // 16 * 3:(WIDTH // 16 + SQUARE) * 3] = square
            row[WIDTH // 2 * 3:(WIDTH // 2 + SQUARE) * 3] = b"".join(
                bytes(((x * 4 + f) & 255, at * 4, f * 7 & 255)) for x in range(SQUARE))
        rows.append(bytes(row))
    return rows


def crc(rows):
    return f"{zlib.crc32(b''.join(rows)):08x}"


def raw(t, name, words, *options, gpu=VIRGL, **more):
    return t.record(name, "--initrd", RAW / "initrd", "--gpu", gpu, "--append",
                    "quiet -- " + words, *options, kernel=RAW / "vmlinuz", **more)


def mesa(t, name, command, *options, gpu=VIRGL, image="gpu-mesa", **more):
    """A program of an image with a disk; its status is the guest's."""
    where = IMAGES / image
    if not (where / "disk.img").exists():
        t.skip(f"build/images/{image} is not built: make image-{image}")
    return t.record(name, "--initrd", where / "initrd", "--disk", where / "disk.img", "--gpu", gpu,
                    "--append", "quiet reprise.end=exit -- gpu " + command, *options,
                    kernel=where / "vmlinuz", **more)


def frames(text):
    """Number -> (checksum, verdict) of the frames that were checked."""
    return {int(n): (c, v) for n, c, v in
            re.findall(r"^frame (\d+): crc ([0-9a-f]{8}), .*background \w+, (.*)$", text, re.M)}


@test("gpu-images/raw-2d", cost=3)
def raw_2d(t):
    """Without 3D, without a display, with a word it does not know: it says so, by its status too."""
    r = raw(t, "rec", "frames=10", gpu="2d", code=GUEST + NO_3D)
    t.has(r.text, "^gpu-raw: the display has no 3D: the machine needs a virtio-gpu with virgl$")
    t.same("rec", r)
    r = raw(t, "none", "frames=10", gpu="none", code=GUEST + NO_3D)
    t.has(r.text, "^gpu-raw: no display: /dev/dri/card0: No such file")
    r = raw(t, "word", "frames=0", gpu="2d", code=GUEST + BAD_WORD)
    t.has(r.text, "^gpu-raw: 'frames=0' is none of frames=N")


@test("gpu-images/raw", cost=6)
def raw_frames(t):
    """Every pixel of each frame is right, as the guest reads it back and as the screen shows it; a
    second recording and the replay print the same."""
    need_virgl(t)
    r = raw(t, "rec", "frames=10 every=1", "--display", f"png-every=0.01,{t.dir}/shots")
    expected = {n: (crc(scene(n)), RIGHT) for n in range(1, 11)}
    t.equal(frames(r.text), expected, "frames and their checksums")
    t.has(r.text, r"^gpu-raw: 10 frames in \d+\.\d+ s, 0 of the checked ones wrong$")
    t.same("rec", r)
    shown = [crc(read_png(path)) for path in sorted((t.dir / "shots").iterdir())]
    t.equal(shown, [crc(scene(n)) for n in range(1, 11)], "the screen's pictures")
    again = raw(t, "again", "frames=10 every=1")
    t.equal(frames(again.text), expected, "frames of a second recording")


@test("gpu-images/raw-later", cost=10)
def raw_later(t):
    """The recording's frames, looked at later: in a replay, and drawn from its stream alone."""
    need_virgl(t)
    raw(t, "rec", "frames=8")
    for point, n in (("frame:3", 3), ("console:frame 8: crc", 8), ("frame:1", 1)):
        t.run(t.reprise, "replay", t.dir / "rec", "--to", point, "--screenshot", "s.png", "--force")
        t.check(read_png(t.dir / "s.png") == scene(n), f"the screenshot at {point} is not frame {n}")
    r = t.run(t.reprise, "gpu", "replay", t.dir / "rec", "-o", t.dir / "frames")
    t.has(r.text, "^0 of [1-9][0-9]* read-backs differ from the recording's$")
    t.equal([crc(read_png(path)) for path in sorted((t.dir / "frames").iterdir())],
            [crc(scene(n)) for n in range(1, 9)], "the frames of the stream")


@test("gpu-images/raw-planted", cost=12)
def raw_planted(t):
    """A shader that mixes up two colours in one draw: noticed in that frame and no other by the
    program, found by comparing streams, and by asking where a pixel is from."""
    need_virgl(t)
    r = raw(t, "rec", "frames=8 every=1 bug=5", code=GUEST + WRONG_PIXELS)
    seen = frames(r.text)
    side = min(WIDTH // 4, HEIGHT // 3)
    x, y = WIDTH // 16 + 4 * 8, HEIGHT // 8
    t.equal([n for n, (_, verdict) in seen.items() if verdict != RIGHT], [5], "wrong frames")
    t.equal(seen[5][1], f"{side * (side + 1) // 2} pixels wrong, first {x},{y}: 0080ff, should be "
            "ff8000, 4096 samples", "what is wrong")
    t.same("rec", r)
    raw(t, "good", "frames=8 every=1")
    part = json.loads(t.run(t.reprise, "gpu", "diff", "--json", t.dir / "good", t.dir / "rec",
                            code=DIVERGED).text)
    t.equal((part["frame"], part["pixels"], part["x"], part["y"], part["commands"][1]["command"]),
            (5, side * (side + 1) // 2, x, y, "DRAW_VBO"), "where the streams part")
    who = json.loads(t.run(t.reprise, "gpu", "who", "--json", "--frame", 5, t.dir / "rec", x + 9,
                           y + 9).text)
    t.equal((who["command"], who["before"], who["after"]),
            ("DRAW_VBO", [0x10, 0x20, 0x40], [0, 0x80, 0xff]), "the draw that the pixel is from")
    t.equal((who["number"], who["dword"]),
            (part["commands"][1]["number"], part["commands"][1]["dword"]), "its place")
    t.has(t.run(t.reprise, "gpu", "show", t.dir / "rec", f"{who['number']}.{who['dword']}").text,
          r"MOV OUT\[0\], IN\[0\]\.zyxw", "its shader")


@test("gpu-images/raw-wrong", cost=15)
def raw_wrong(t):
    """Wrong requests of every kind, resources in great numbers: the next context draws right."""
    need_virgl(t)
    r = raw(t, "rec", "wrong flood frames=3 every=1", timeout=300, code=(FINE, GUEST + WRONG_PIXELS))
    if r.code and "the renderer is gone: killed by signal" in r.error:
        t.same("rec", r, timeout=300)
        t.skip("this host's libvirglrenderer dies of what is wrong; the recording is whole all the same")
    t.equal(r.code, FINE, "the status")
    t.check(len(re.findall(r"^gpu-raw: \w+: request: errno", r.text, re.M)) >= 26,
            "not all requests were made")
    t.has(r.text, r"^gpu-raw: flood: \d+ contexts, \d+ textures$")
    t.equal(frames(r.text), {n: (crc(scene(n)), RIGHT) for n in (1, 2, 3)}, "frames afterwards")
    t.same("rec", r, timeout=300)


@test("gpu-images/raw-random", cost=30)
def raw_random(t):
    """Random command buffers: all goes on. A renderer that was lost to one draws no more, and the
    stream says so."""
    need_virgl(t)
    seed = rnd.randrange(1 << 31)
    r = raw(t, "rec", f"random=24 seed={seed} frames=2 every=1", timeout=300,
            code=(FINE, GUEST + WRONG_PIXELS))
    t.has(r.text, rf"^gpu-raw: random, seed {seed}: \d+ taken, \d+ refused$")
    lost = "the renderer is gone" in t.run(t.reprise, "gpu", "list", t.dir / "rec").text
    t.equal(r.code, GUEST + WRONG_PIXELS if lost else FINE, "the status")
    if not lost:
        t.equal(frames(r.text), {n: (crc(scene(n)), RIGHT) for n in (1, 2)}, "frames afterwards")
    t.same("rec", r, timeout=300)
    return "the renderer was lost" if lost else ""


@test("gpu-images/raw-endless", cost=4)
def raw_endless(t):
    """Frames without end, a line for each, ended from outside."""
    need_virgl(t)
    r = raw(t, "rec", "endless", "--stop-at", "frame 40")
    t.equal([int(n) for n in re.findall(r"^frame (\d+)\b", r.text, re.M)][:39],
            list(range(1, 40)), "frames")
    t.same("rec", r)


@test("gpu-images/raw-killed", cost=15)
def raw_killed(t):
    """A renderer that is killed at some frame: the program goes on drawing, to no effect."""
    need_virgl(t)
    n = rnd.randrange(2, 40)
    t.log.write(f"killed after frame {n}\n")
    s = Session(t, "rec", argv=[
        t.reprise, "record", "-o", t.dir / "rec", "--kernel", RAW / "vmlinuz", "--initrd",
        RAW / "initrd", "--gpu", VIRGL, "--append", "quiet -- endless every=20"])
    s.wait(rf"^frame {n}\b")
    pid = s.child.pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    names = [pathlib.Path(f"/proc/{child}/comm").read_text().strip() for child in children]
    os.kill(int(children[names.index("reprise-gpu")]), signal.SIGKILL)
    s.wait(rf"^frame {n + 200}\b", 60)
    s.child.terminate()
    s.finish()
    seen = frames(s.out.decode().replace("\r", ""))
    t.check(all(c == crc(scene(k)) for k, (c, _) in seen.items() if k < n), "frames before it")
    t.check(seen[(n // 20 + 3) * 20][1].startswith("307"), "a frame that nobody drew")
    t.has(t.run(t.reprise, "gpu", "list", t.dir / "rec").text,
          "the renderer is gone: killed by signal 9")
    t.replay("rec")


@test("gpu-images/mesa-2d", cost=4)
def mesa_2d(t):
    """Without 3D, without its disk, with a program it has not: it says so, by its status too."""
    r = mesa(t, "rec", "triangle", gpu="2d", code=GUEST + NO_3D)
    t.has(r.text, "^gpu: the display has no 3D: the machine needs a virtio-gpu with virgl$")
    t.same("rec", r)
    need_virgl(t)
    r = mesa(t, "none", "voodoo", code=GUEST + BAD_WORD)
    t.has(r.text, "^gpu: 'voodoo' is none of glmark2 kmscube triangle$")


@test("gpu-images/mesa-triangle", cost=14)
def mesa_triangle(t):
    """Mesa draws the same pictures as gpu-raw; two recordings and the replay agree."""
    need_virgl(t)
    r = mesa(t, "rec", "triangle every=50")
    expected = {n: (crc(scene(n)), "right") for n in (1, 50, 100, 150, 200, 250, 300)}
    t.equal(frames(r.text), expected, "frames and their checksums")
    t.has(r.text, r"^triangle: virgl, OpenGL ES 3\.")
    t.has(r.text, r"^triangle: 300 frames in \d+\.\d+ s, ")
    t.same("rec", r)
    r = mesa(t, "again", "triangle frames=20 every=5 bug=7", code=GUEST + WRONG_PIXELS)
    seen = frames(r.text)
    t.equal({n: c for n, (c, _) in seen.items() if n != 7},
            {n: crc(scene(n)) for n in (1, 5, 10, 15, 20)}, "checksums of a second recording")
    t.has(seen[7][1], "pixels wrong, first 88,60: 0080ff, should be ff8000")


@test("gpu-images/mesa-programs", cost=14)
def mesa_programs(t):
    """kmscube and glmark2 draw with it, and their replay prints the same figures."""
    need_virgl(t)
    r = mesa(t, "cube", "kmscube -c 60")
    t.has(r.text, r"^Rendered 59 frames in \d+\.\d+ sec")
    t.same("cube", r)
    r = mesa(t, "mark", "glmark2 -b build:duration=1")
    t.has(r.text, r"^ +glmark2 Score: [1-9]\d*")
    t.same("mark", r)


@test("gpu-images/desktop", cost=25)
def desktop(t):
    """weston with a terminal: what is typed arrives there, is shown, and is replayed."""
    need_virgl(t)
    (t.dir / "events").write_text('8s text "echo TYPED HERE >/dev/console\\n"\n'
                                  '+1s text "seq 20\\n"\n+1s text "exit\\n"\n')
    r = mesa(t, "rec", "desktop", "--memory", "1G", "--input", t.dir / "events", "--display",
             f"png-every=1,{t.dir}/shots", image="gpu-desktop", gpu="virgl,xres=800,yres=600")
    t.has(r.text, "GL renderer: virgl")
    for line in ("desktop: weston is up", "desktop: the terminal is open", "TYPED HERE",
                 "desktop: the terminal was closed"):
        t.has(r.text, f"^{line}$")
    t.same("rec", r)
    shots = {int(path.name.split("-")[1].split(".")[0]): path
             for path in (t.dir / "shots").iterdir()}
    before, after = (read_png(shots[n]) for n in (max(n for n in shots if n <= 8), max(shots)))
    lit = [sum(any(pixel > 100 for pixel in row[30:-30]) for row in rows[90:]) for rows in
           (before, after)]
    t.check(lit[0] < 60 and lit[1] > 200, f"rows with text, before and after typing: {lit}")
