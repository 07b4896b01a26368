"""Streams of GPU commands, drawn: driving a renderer, and the verbs of `reprise gpu` that do."""
import json
import re

from suite.gpu import gpu, png
from suite.harness import DAMAGE, DIVERGED, ERROR, USAGE, rnd, test


def renderer(t):
    """The renderer of this build; skips where this host cannot render."""
    program = t.build / "reprise-gpu"
    probe = t.run(program, "--check", code=None)
    if probe.code:
        t.skip((probe.error.strip() or probe.text.strip() or "no renderer").splitlines()[-1])
    return program


def tool(t, name):
    return t.build / "tests" / "tools" / name


def scene(t, name, frames, *options, reads=True):
    """A log of a small scene (tests/tools/gpu_scene.c); its frame 1 is a console."""
    reads = ("-p", renderer(t)) if reads else ()
    renderer(t)
    t.run(tool(t, "gpu_scene"), *reads, *options, t.dir / name, frames)
    return t.dir / name


def frames(t, log, *options, **more):
    lines = gpu(t, "replay", log, "--json", *options, **more).text.splitlines()
    rows = [json.loads(line) for line in lines]
    return rows[:-1], rows[-1]


@test("gpu-play/drive", cost=2)
def drive(t):
    """Commands as a device takes them: 2D resources and 3D ones, orientation, uploads, replies."""
    t.run(tool(t, "gpu_drive"), renderer(t))


@test("gpu-play/replay", cost=8)
def replay(t):
    """Frames, their pictures and hashes; what guests read back is the same."""
    log = scene(t, "gpu.log", 6)
    out = gpu(t, "replay", log, "-o", t.dir / "a").text
    t.has(out, r"^frame 7 +\d+  128x128  [0-9a-f]{16} +[0-9.]+ ms$")
    t.has(out, r"^7 frames in [0-9.]+ s: [0-9.]+ frames/s on llvmpipe")
    t.has(out, "^0 of 8 read-backs differ from the recording's$")
    rows, summary = frames(t, log)
    t.equal([r["frame"] for r in rows], list(range(1, 8)), "the frames")
    t.equal(re.findall("  ([0-9a-f]{16}) ", out), [r["hash"] for r in rows], "a second run")
    t.equal(len({r["hash"] for r in rows}), 7, "the number of different frames")
    t.equal((summary["refused"], summary["readbacks"], summary["different"]), (0, 8, 0), "counts")
    # The console as it was uploaded, the first row first.
    width, height, picture = png(t.dir / "a" / "frame-000001.png")
    want = [[tuple((x * 2 + y) & 255 for _ in range(3)) for x in range(128)] for y in range(128)]
    t.equal((width, height), (128, 128), "the size")
    t.check(picture == want, "the console is another picture")
    # In a frame: a corner of the cleared background, the triangle in front, the cursor over it.
    rows4 = png(t.dir / "a" / "frame-000004.png")[2]
    t.equal(rows4[127][127], (64, 128, 128), "the background of frame 4 (its third: 2/4 green)")
    t.check(rows4[10][0][0] > 128 and rows4[9][0] != rows4[127][127], "no cursor at the left")
    t.check(all(c == 255 for c in rows4[9][0]), "the first pixels of the cursor are solid")
    # A part; a directory that has it already.
    rows, _ = frames(t, t.dir, "--frames", "3..4")
    t.equal([r["frame"] for r in rows], [3, 4], "part of the frames")
    t.has(gpu(t, "replay", log, "-o", t.dir / "a", code=ERROR).error, "is there already")
    gpu(t, "replay", log, "-o", t.dir / "a", "--force", "--frames", "7")
    # Another driver draws another picture, and the guest would have read it.
    r = gpu(t, "replay", log, "--driver", "softpipe", "--json", code=(0, DIVERGED))
    t.has(r.error, "softpipe.* lacks .*samples")
    t.equal(r.code, DIVERGED if json.loads(r.text.splitlines()[-1])["different"] else 0, "the code")


@test("gpu-play/seek", cost=40)
def seek(t):
    """Anywhere, by keyframes: every picture from there on is that of playing straight."""
    seed = rnd.randrange(1 << 31)
    for options, good in ((("-m",), 14), ((), 14), (("-d", "-c"), 3), (("-m", "-c"), 3)):
        log = scene(t, "gpu.log", 14, *options, reads=False)
        out = t.run(tool(t, "gpu_seek"), renderer(t), log, seed, 6 // t.slow + 3,
                    timeout=300).text
        kept = re.search(r"^15 frames, (\d+) keyframes, .* used (\d+) times", out, re.M)
        t.check(kept and int(kept.group(1)) >= good and int(kept.group(2)) > 2,
                f"gpu_scene {' '.join(options)}: {out.strip()}")
        # Depth that is not cleared is looked at: what was no keyframe is not among them.
        t.check("-c" not in options or int(kept.group(1)) < 10, f"too many: {out.strip()}")
    # A budget: fewer are kept, and nothing else changes.
    t.run(tool(t, "gpu_seek"), renderer(t), log, seed, 4, 400000, timeout=300)


@test("gpu-play/shader-bug", cost=10)
def shader_bug(t):
    """One draw of one frame has a wrong shader: `diff` and `who` name it."""
    good = scene(t, "good", 8, reads=False)
    bad = scene(t, "bad", 8, "-b", 5, reads=False)
    inner = gpu(t, "list", bad, "--inner", "--from", "frame:7", "--to", "frame:7").text
    number, dword = re.search(r"^ +(\d+)\.\d+ +BIND_SHADER handle=24 type=FRAGMENT\n(?:.*\n){2}"
                              r" +\d+\.(\d+) +DRAW_VBO", inner, re.M).groups()
    r = gpu(t, "diff", good, bad, "-o", t.dir / "d.png", code=DIVERGED)
    t.has(r.text, r"^frame 7 differs: \d+ pixels, by up to 255, the first at \d+,\d+$")
    t.has(r.text, fr"^first after command {number}\.{dword} \(DRAW_VBO\) of the first, "
                  fr"{number}\.{dword} \(DRAW_VBO\) of the second: resource 2, ")
    j = json.loads(gpu(t, "diff", good, bad, "--json", code=DIVERGED).text)
    t.equal((j["frame"], j["parted"], j["commands"][1]),
            (7, 7, {"number": int(number), "dword": int(dword), "command": "DRAW_VBO"}), "JSON")
    # The difference: exactly the pixels that differ are not black.
    width, height, rows = png(t.dir / "d.png")
    lit = sum(any(p) for row in rows for p in row)
    t.equal((width, height, lit), (128, 128, j["pixels"]), "the difference image")
    t.check(any(rows[j["y"]][j["x"]]) and
            not any(any(p) for row in rows[:j["y"]] for p in row), "the first pixel")
    # A pixel in the middle of the triangle, in its frame and two later, when it is overdrawn.
    who = json.loads(gpu(t, "who", bad, 60, 60, "--frame", 7, "--json").text)
    t.equal((who["number"], who["dword"], who["frame"], who["after"]),
            (int(number), int(dword), 7, [0, 255, 128]), "who drew pixel 60,60")
    t.check({"stage": "FRAGMENT", "handle": 24, "command": who["shaders"][1]["command"],
             "dword": who["shaders"][1]["dword"]} == who["shaders"][1], f"{who['shaders']}")
    t.equal([s["surface"] for s in who["targets"]], [13, 11], "the surfaces")
    shader = gpu(t, "show", bad,
                 f"{who['shaders'][1]['command']}.{who['shaders'][1]['dword']}").text
    t.has(shader, r"IMM\[0\] FLT32 \{0.0, 1.0, 0.5, 1.0\}")
    later = json.loads(gpu(t, "who", bad, 60, 60, "--json").text)
    t.check(later["number"] > who["number"] and later["after"] != [0, 255, 128], f"{later}")
    text = gpu(t, "who", bad, 60, 60, "--frame", 7).text
    t.has(text, fr"^{number}\.{dword}: DRAW_VBO, context 1, frame 7, position \d+$")
    t.has(text, r"^    FRAGMENT shader 24, made by \d+\.\d+$")
    # Between two frames, and what an upload drew.
    at = json.loads(gpu(t, "who", bad, 60, 60, "--at", who["position"], "--json").text)
    t.check(at["number"] < who["number"] and at["resource"] == 1, "it is not shown there yet")
    upload = json.loads(gpu(t, "who", bad, 9, 8, "--frame", 1, "--json").text)
    t.equal((upload["command"], upload["after"]), ("TRANSFER_TO_HOST_2D", [26, 26, 26]), "upload")


@test("gpu-play/diff", cost=8)
def diff(t):
    """The same; tolerance; two drivers; streams of different lengths and kinds."""
    log = scene(t, "a", 4, reads=False)
    t.equal(gpu(t, "diff", log, log).text, "5 frames are the same\n", "a stream and itself")
    r = gpu(t, "diff", log, "--drivers", "llvmpipe,softpipe", "--json", code=DIVERGED)
    j = json.loads(r.text)
    t.check(j["frame"] > 1 and j["most"] > 0 and "dword" in j["commands"][0], f"{j}")
    gpu(t, "diff", log, "--drivers", "llvmpipe,softpipe", "--tolerance", 255)
    longer = scene(t, "b", 6, reads=False)
    t.equal(gpu(t, "diff", log, longer, code=DIVERGED).text,
            "only one has a frame 6; those before are the same\n", "a longer stream")
    t.has(gpu(t, "diff", log, longer, "--frames", "2..4").text, "^3 frames are the same$")
    other = scene(t, "c", 4, "-m", reads=False)
    t.has(gpu(t, "diff", log, other, code=DIVERGED).text, r"^frame 2 differs")
    small = scene(t, "d", 4, "-s", 64, reads=False)
    t.has(gpu(t, "diff", log, small, code=DIVERGED).text, "^frame 1 differs: .* different sizes$")
    t.has(gpu(t, "diff", log, small, "-o", t.dir / "x.png", code=ERROR).error, "128x128 and 64x64")


@test("gpu-play/trim", cost=15)
def trim(t):
    """A smaller stream draws the same frames, and is one itself."""
    log = scene(t, "a", 20)
    want = [r["hash"] for r in frames(t, log)[0]]
    out = gpu(t, "trim", log, "--frames", "12..14", "-o", t.dir / "b").text
    t.has(out, r"b: frames 12 to 14, ")
    t.has(out, r"^\d+ commands set up what there was after frame 11$")
    rows, summary = frames(t, t.dir / "b")
    t.equal([r["hash"] for r in rows], want[11:14], "the frames")
    t.equal((summary["refused"], summary["different"]), (0, 0), "refused and different")
    t.check(summary["readbacks"] > 0, "no read-back is left to compare")
    stats = json.loads(gpu(t, "list", t.dir / "b", "--stats", "--json").text)
    whole = json.loads(gpu(t, "list", log, "--stats", "--json").text)
    t.check(stats["frames"] == 3 and stats["commands"] < whole["commands"] and
            stats["errors"] == 0 and stats["replies"] == stats["commands"], f"{stats}")
    # Again, of what is left; to the end; from the start.
    gpu(t, "trim", t.dir / "b", "--frames", "2..", "-o", t.dir / "c")
    t.equal([r["hash"] for r in frames(t, t.dir / "c")[0]], want[12:14], "trimmed twice")
    gpu(t, "trim", log, "--frames", "1..2", "-o", t.dir / "d", "--no-verify")
    t.equal([r["hash"] for r in frames(t, t.dir / "d")[0]], want[:2], "the first frames")
    # Where depth is needed that cannot be read, it goes further back.
    log = scene(t, "e", 14, "-m", "-c")
    want = [r["hash"] for r in frames(t, log)[0]]
    out = gpu(t, "trim", log, "--frames", "8..9", "-o", t.dir / "f").text
    t.check("start are needed" in out or "nearest that can be" in out, out)
    t.equal([r["hash"] for r in frames(t, t.dir / "f")[0]], want[7:9], "the frames")
    # Nothing is overwritten, nothing is left behind.
    was = (t.dir / "b").read_bytes()
    t.has(gpu(t, "trim", log, "--frames", "1", "-o", t.dir / "b", code=ERROR).error, "there already")
    t.has(gpu(t, "trim", log, "--frames", "99..", "-o", t.dir / "g", code=ERROR).error,
          "no frame 99: the log has 15")
    t.equal((t.dir / "b").read_bytes(), was, "the file that was there")
    t.equal([p.name for p in t.dir.iterdir() if p.name.startswith("g")], [], "what is left of g")


@test("gpu-play/bad-input", cost=8)
def bad_input(t):
    """Logs that are cut or no logs; wrong words on the command line."""
    log = scene(t, "a", 4, reads=False)
    whole = log.read_bytes()
    cut = t.dir / "cut"
    cut.write_bytes(whole[:-40])
    r = gpu(t, "replay", cut, code=DAMAGE)
    t.has(r.error, "^reprise: the GPU log ends early: ")
    r = gpu(t, "diff", cut, cut, code=DAMAGE)
    r = gpu(t, "who", cut, 1, 1, code=(ERROR, DAMAGE))
    cut.write_bytes(b"no log")
    for verb in (("replay", cut), ("diff", cut, log), ("trim", cut, "--frames", "1", "-o", "x"),
                 ("who", cut, 1, 1)):
        t.has(gpu(t, *verb, code=ERROR).error, "^reprise: .*cut: ")
    for verb, what in ((("replay", log, "--driver", "voodoo"), "no driver 'voodoo'"),
                       (("replay", log, "--frames", "77.."), "no frame 77: the log has 5"),
                       (("diff", log, log, "--frames", "77.."), "no frame 77: the log has 5"),
                       (("who", log, 999, 0), "no pixel 999,0: the screen is 128x128"),
                       (("who", log, 0, 0, "--frame", 88), "no frame 88: the log has 5"),
                       (("who", log, 0, 0, "--at", 5), "scanout 0 is off"),
                       (("who", log, 0, 0, "--scanout", 3), "scanout 3 is off"),
                       (("replay", log, "-o", log), "is there already and no directory")):
        t.has(gpu(t, *verb, code=ERROR).error, "^reprise: .*" + what)
    for args in (("replay",), ("replay", log, "--frames", "0"), ("replay", log, "--frames", "3..2"),
                 ("replay", log, "--frames", "x"), ("replay", log, "--force"),
                 ("replay", log, "--scanout", 16), ("diff",), ("diff", log),
                 ("diff", log, "--drivers", "softpipe"), ("diff", log, log, log),
                 ("diff", log, log, "--tolerance", 256), ("diff", log, log, "--force"),
                 ("trim", log), ("trim", log, "--frames", "1"), ("trim", log, "-o", "x"),
                 ("who", log), ("who", log, 1), ("who", log, 1, 2, 3), ("who", log, -1, 2),
                 ("who", log, 1, 2, "--frame", 1, "--at", 2), ("who", log, 1, 2, "--frame", 0)):
        gpu(t, *args, code=USAGE)
    t.check(not (t.dir / "x").exists(), "a file was left behind")


# Stands between reprise and its renderer; a submit that binds shader 24 to draw is the end.
MORTAL = """#!/usr/bin/python3
import os, signal, socket, struct, subprocess, sys, threading
ours = socket.socket(fileno=3)
here, there = socket.socketpair()
def become():
    os.dup2(there.fileno(), 3)
child = subprocess.Popen(["{renderer}"] + sys.argv[1:], pass_fds=[3], preexec_fn=become)
there.close()
def back():
    while data := here.recv(65536):
        ours.sendall(data)
    if not dying:
        os._exit(0)
dying = False
threading.Thread(target=back, daemon=True).start()
mark = struct.pack("<5I", 0x2001f, 24, 1, 0x10102, 25)
kept = b""
while data := ours.recv(65536):
    kept = kept[-64:] + data
    if mark in kept:
        dying = True # not of its child's end
        child.kill()
        os.kill(os.getpid(), signal.SIGSEGV)
    here.sendall(data)
child.kill()
"""


@test("gpu-play/death", cost=8)
def death(t):
    """A renderer that dies, or is no renderer: said with the command, and it ends."""
    log = scene(t, "a", 300, "-m", reads=False)
    # Killed while it draws, unless it is done by then. The programs lie beside each other.
    here = t.dir / "bin"
    here.mkdir()
    copy = here / "program"
    copy.write_bytes((t.build / "reprise").read_bytes())
    copy.chmod(0o755)
    fake = here / "reprise-gpu"
    fake.write_text(f"#!/bin/sh\n(sleep 0.6; kill -9 $$) >/dev/null 2>&1 &\nexec {renderer(t)} \"$@\"\n")
    fake.chmod(0o755)
    r = t.run(copy, "gpu", "replay", log, "-o", t.dir / "frames", code=(0, ERROR, DIVERGED))
    if r.code == ERROR:
        t.has(r.error, "^reprise: .*the renderer died at (command \\d+|one of the commands \\d+ to "
                       "\\d+, and not again): killed by signal 9")
    fake.write_text("#!/bin/sh\nexit 3\n")
    r = t.run(copy, "gpu", "replay", log, code=ERROR)
    t.has(r.error, "^reprise: the renderer did not start: ended with status 3")
    # A command that ends it each time: the draw with the wrong shader.
    log = scene(t, "b", 8, "-b", 5, reads=False)
    inner = gpu(t, "list", log, "--inner").text
    number = re.search(r"^ +(\d+)\.\d+ +BIND_SHADER handle=24 type=FRAGMENT\n(?:.*\n){2}"
                       r" +\d+\.\d+ +DRAW_VBO", inner, re.M).group(1)
    fake.write_text(MORTAL.format(renderer=renderer(t)))
    for verb in (("replay", log), ("diff", log, log), ("who", log, 1, 1),
                 ("trim", log, "--frames", "8", "-o", t.dir / "c")):
        r = t.run(copy, "gpu", *verb, code=ERROR)
        t.has(r.error, f"^reprise: .*the renderer died at command {number}: killed by signal 11")
    t.check(not list(t.dir.glob("c*")), "a file was left behind")
