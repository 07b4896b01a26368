"""`record --from` a machine with a renderer: what was drawn before is there, and drawing goes on."""
import shutil

from suite.begin import begun, log_before
from suite.gpu_images import frames, need_virgl, raw
from suite.harness import test


@test("begin/renderer", cost=8)
def renderer(t):
    """From a frame, at and before a reply of the renderer's, from power-on, from one that begins so itself, without gpu.log,
    with checkpoints before it: the guest reads back what it would have, and all of it replays."""
    need_virgl(t)
    whole = frames(raw(t, "rec", "frames=24 every=2", "--seed", "7", "--checkpoint-every", "0.5").text)
    t.check(len(whole) > 10, f"{whole} were checked")
    log = log_before(t, "rec")
    reply = [e for e in log if e["type"] == "gpu"][40]
    for name, source, point, options in (("one", "rec", "frame:7", ()), ("two", "rec", f"insn:{reply['position']}", ()),
                                         ("wait", "rec", f"insn:{reply['position'] - 1}", ()), ("zero", "rec", "insn:0", ()),
                                         ("again", "one", "frame:15", ()), ("bare", "rec", "frame:12", ("--gpu-log", "off"))):
        r = begun(t, name, source, "--at", point, *options, typed=b"")
        mine = frames(r.text)
        t.equal(mine, {n: whole[n] for n in mine}, f"frames of {name}, from {point}")
        t.check(24 in mine, f"{name} does not go on to the last frame")
        t.equal(frames(t.replay(name).text), whole, f"frames of a replay of {name}")
        if name != "bare":
            t.run(t.reprise, "gpu", "extract", name, "-o", name + ".log")
            t.equal((t.dir / (name + ".log")).read_bytes(), (t.dir / name / "gpu.log").read_bytes(), "gpu.log of a replay")
    t.equal(log_before(t, "one"), log[:len(log_before(t, "one"))], "how its log begins")
    shutil.rmtree(t.dir / "rec")
    t.replay("bare")
