"""Programs of the host that draw, recorded by `reprise run --gpu`."""
import json
import shutil

from suite.display import read_png
from suite.gpu_images import HEIGHT, SQUARE, WIDTH, frames, need_virgl, scene
from suite.harness import ROOT, USAGE, test
from suite.run_program import OURS, own, replayed, run

LIBRARIES = ("-lgbm", "-lEGL", "-lGLESv2")
FRAMES = 3


def triangle(t):
    """The image gpu-mesa's program, for this machine and its Mesa."""
    if not shutil.which("gcc"):
        t.skip("gcc is not there")
    sources = [ROOT / "images/gpu-raw" / f"{part}.c" for part in ("card", "options", "picture")]
    built = t.run("gcc", "-std=gnu11", "-O1", "-g", "-I", ROOT, "-I", ROOT / "vmm", "-I/usr/include/libdrm", "-o", t.dir / "triangle",
                  ROOT / "images/gpu-mesa/triangle.c", *sources, *LIBRARIES, code=None)
    if built.code:
        t.skip("no program that draws by EGL and GBM can be built here: " +
               next((line for line in built.error.splitlines() if "error" in line or "cannot find" in line), built.error))
    return t.dir / "triangle"


@test("run/gpu", cost=15)
def gpu(t):
    """A program that draws with this machine's Mesa, for whoever it is; what it drew is there in the GPU's commands, in its
    pictures, and the draw behind a pixel."""
    own(t)
    need_virgl(t)
    program = triangle(t)
    r = run(t, program, f"frames={FRAMES}", "every=1", f"size={WIDTH}x{HEIGHT}", options=(f"--gpu={WIDTH}x{HEIGHT}",), code=None)
    if "no EGL" in r.text or "has no 3D" in r.text:
        t.skip(f"this machine's Mesa has no driver virtio_gpu: {r.text.strip()}")
    t.equal(r.code, 0, "its exit status")
    t.has(r.text, r"(?m)^triangle: virgl, OpenGL ES 3")
    t.equal([v for _, (_, v) in sorted(frames(r.text).items())], ["right"] * FRAMES, "what it read back")
    replayed(t, r)
    drawn = [json.loads(line) for line in t.run(t.reprise, "gpu", "replay", "--json", "-o", t.dir / "frames").out.splitlines()]
    pictures = {x["hash"]: x["frame"] for x in drawn if "hash" in x}  # of the kernel's there are several
    rows = {number: read_png(t.dir / "frames" / f"frame-{number:06}.png") for number in pictures.values()}
    shown = [[number for number, picture in rows.items() if picture == scene(n)] for n in range(1, FRAMES + 1)]
    t.check(all(len(x) == 1 for x in shown) and shown == sorted(shown), f"pictures that are its frames: {shown}")
    number = shown[-1][0]
    x, y = WIDTH // 16 + SQUARE // 2, HEIGHT * 5 // 8 + SQUARE // 2
    who = json.loads(t.run(t.reprise, "gpu", "who", "--json", "--frame", number, x, y).out)
    t.has(t.run(t.reprise, "gpu", "show", f"{who['number']}.{who['dword']}").text, "DRAW_VBO")
    place = json.loads(t.run(t.reprise, "replay", "--to", f"gpu:{who['number']}", "--json").out)
    t.equal(place["process"]["comm"], "triangle", "whose instruction hands it to the GPU")
    for size, code, what in (("640", USAGE, "no WIDTHxHEIGHT"), ("1x1", OURS, "cannot be made")):
        t.has(run(t, "true", options=(f"--gpu={size}",), code=code).error, what)
    t.has(run(t, "sh", "-c", "ls /dev/dri; true").error, "cannot access '/dev/dri'")
