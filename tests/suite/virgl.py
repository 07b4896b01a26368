"""3D: what a recording keeps of the GPU, and what is seen of it in a replay."""
import json
import re
import struct

from suite.gpu_images import GUEST, WRONG_PIXELS, frames, need_virgl, raw
from suite.harness import test

NOTE_GPU = 0x52500001


def stats(t, path):
    return json.loads(t.run(t.reprise, "gpu", "list", "--stats", "--json", path).text)


@test("virgl/extract", cost=6)
def extract(t):
    """A replay writes the same gpu.log, byte for byte; also of a recording made without it."""
    need_virgl(t)
    r = raw(t, "rec", "frames=20 every=5", "--seed", "7")
    log = (t.dir / "rec/gpu.log").read_bytes()
    t.run(t.reprise, "gpu", "extract", "rec", "-o", "again.log")
    t.equal((t.dir / "again.log").read_bytes(), log, "extracted gpu.log")
    again = t.run(t.reprise, "gpu", "extract", "rec", code=1)
    t.has(again.error, "is there already; --force replaces it")
    n = raw(t, "bare", "frames=20 every=5", "--seed", "7", "--gpu-log", "off")
    t.equal(frames(n.text), frames(r.text), "frames")
    t.check(not (t.dir / "bare/gpu.log").exists(), "there is a gpu.log all the same")
    t.has(t.run(t.reprise, "gpu", "list", "bare", code=1).error, "there is no gpu.log in it")
    t.run(t.reprise, "gpu", "extract", "bare")
    t.equal(stats(t, "bare")["frames"], 20, "frames in the extracted log")


@test("virgl/extract-2d", cost=8)
def extract_2d(t):
    """The same of a display without 3D; a recording without a GPU says so."""
    t.linux("rec", "--gpu", "2d,xres=320,yres=200,hz=75", image="generic", script="true\n")
    t.run(t.reprise, "gpu", "extract", "rec", "-o", "again.log")
    t.equal((t.dir / "again.log").read_bytes(), (t.dir / "rec/gpu.log").read_bytes(),
            "extracted gpu.log")
    t.has(t.run(t.reprise, "info", "rec").text, r"^display +320 by 200, 75 Hz, 2D$")
    t.tiny("none", "echo", "--max-insns", "100000", code=None)
    t.has(t.run(t.reprise, "gpu", "extract", "none", code=1).error, "without a GPU")


@test("virgl/checkpoints", cost=6)
def checkpoints(t):
    """From checkpoint files in the middle of frames the replay goes on the same, read-backs too."""
    need_virgl(t)
    r = raw(t, "rec", "frames=60 every=1")
    t.run(t.reprise, "checkpoint", "rec", "--every", "0.1")
    t.same("rec", r)
    t.verify_checkpoints("rec")
    last = 0
    for n in (3, 30, 59):
        at = json.loads(t.run(t.reprise, "replay", "rec", "--to", f"frame:{n}", "--json").text)
        t.check(at["position"] > last, f"frame {n} is at position {at['position']}")
        last = at["position"]


@test("virgl/gdb", cost=6)
def gdb(t):
    """`monitor gpu` tells contexts, resources, the last commands and what is bound; `core --gpu` too."""
    need_virgl(t)
    raw(t, "rec", "frames=10 every=1")
    t.run(t.reprise, "core", "rec", "--at", "frame:6", "--gpu", "-o", "core")
    with open(t.dir / "core", "rb") as f:
        head = f.read(1 << 20)
    at = head.index(b"REPRISE\0")
    _, size, kind = struct.unpack("<III", head[at - 12:at])
    t.equal(kind, NOTE_GPU, "type of the note")
    note = json.loads(head[at + 8:at + 8 + size])
    t.equal(note["frames"], 6, "frames in the note")
    t.equal(len(note["contexts"]), 1, "contexts in the note")
    context = note["contexts"][0]["context"]
    t.check(any(b["command"] == "SET_FRAMEBUFFER_STATE" for b in note["contexts"][0]["bound"]),
            "no framebuffer is bound")
    log = t.run(t.reprise, "gdb", "rec", "--", "-batch", "-ex", "set pagination off",
                "-ex", "monitor goto frame:6", "-ex", "monitor gpu", "-ex", f"monitor gpu {context}",
                "-ex", "monitor gpu x", timeout=120)
    said = log.text + log.error
    t.has(said, r" commands, 6 frames; 1 contexts, \d+ resources; shown: resource \d+")
    t.has(said, r"RESOURCE_FLUSH, frame 6$")
    t.has(said, r"^SET_FRAMEBUFFER_STATE \[0\] \(set by \d+\.\d+\): nr_cbufs=1")
    t.has(said, "usage: monitor gpu")
    (t.dir / "rec/gpu.log").unlink()
    t.has(t.run(t.reprise, "core", "rec", "--gpu", "-o", "core2", code=1).error,
          "`reprise gpu extract` makes it")


@test("virgl/point", cost=5)
def point(t):
    """gpu:N stands in front of the instruction that hands command N over; one step, and it is done."""
    need_virgl(t)
    raw(t, "rec", "frames=4 every=1")
    listed = [json.loads(line) for line in
              t.run(t.reprise, "gpu", "list", "rec", "--json").text.splitlines()]
    n = [c["number"] for c in listed if c.get("command") == "SUBMIT_3D"][2]
    log = t.run(t.reprise, "gdb", "rec", "--", "-batch", "-ex", f"monitor goto gpu:{n}",
                "-ex", "monitor gpu", "-ex", "stepi", "-ex", "monitor gpu", timeout=120)
    said = re.findall(r"^(\d+) commands, ", log.text + log.error, re.M)
    t.equal([int(k) for k in said], [n, n + 1], "commands before and after the step")
    t.has(t.run(t.reprise, "replay", "rec", "--to", "gpu:100000", code=1).error,
          "has no command 100000")


@test("virgl/who", cost=6)
def who(t):
    """In gdb, from the wrong pixel to the guest's own instruction that submitted the wrong draw."""
    need_virgl(t)
    raw(t, "rec", "frames=8 every=1 bug=5", code=GUEST + WRONG_PIXELS)
    log = t.run(t.reprise, "gdb", "rec", "--", "-batch", "-ex", "monitor goto frame:5",
                "-ex", "monitor gpu who 100 70", "-ex", "monitor gpu who 9999 0", timeout=120)
    said = log.text + log.error
    t.has(said, r"^\d+\.\d+: DRAW_VBO, context \d+, frame 5, position \d+$")
    t.has(said, r"pixel 100,70 of resource \d+: 16,32,64 became 0,128,255$")
    t.has(said, r"^error: .*9999")
    n = re.search(r"monitor goto (gpu:\d+)` goes to", said).group(1)
    there = t.run(t.reprise, "gdb", "rec", "--", "-batch", "-ex", f"monitor goto {n}",
                  "-ex", "x/i $pc", timeout=120)
    t.has(there.text + there.error, "iowrite16|mov ")
