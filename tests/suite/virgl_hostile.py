"""Hostile guests and dying renderers behind a recorded virtio-gpu."""
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import time

from suite.gpu_images import RAW, need_virgl
from suite.harness import DIVERGED, ERROR, FINE, IMAGES, USAGE, rnd, test
from suite.renderer import without_driver

BUFFERS = 2000
KILLS = 5
FRAMES = 650000000  # positions: some 60 frames or more


def can_render(t):
    return not t.run(t.build / "reprise-gpu", "--check", code=None).code


def renderer_of(child):
    """The renderer process of a recorder; None: it has none (yet, or any more)."""
    try:
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as f:
            children = f.read().split()
    except OSError:
        return None
    for pid in children:
        try:
            with open(f"/proc/{pid}/comm", encoding="ascii") as f:
                if f.read().strip() == "reprise-gpu":
                    return int(pid)
        except OSError:
            continue
    return None


@functools.lru_cache
def power_off(reprise, place):
    """Where a guest is at its end that draws one frame: how long a boot is, kernels differ in."""
    subprocess.run([reprise, "record", "-o", place, "--memory", "256M", "--kernel", RAW / "vmlinuz", "--initrd",
                    RAW / "initrd", "--gpu", "virgl,xres=640,yres=480", "--append", "quiet -- frames=1"],
                   check=True, stdin=subprocess.DEVNULL, capture_output=True, timeout=1000)
    said = subprocess.run([reprise, "info", "--json", place], check=True, capture_output=True)
    shutil.rmtree(place)
    return json.loads(said.stdout)["position"]


def run_and_harm(t, rnd, how):
    """Records an endless gpu-raw; at a random moment its renderer gets a signal. What was printed."""
    # Of random buffers few are errors; of those that are wrong on purpose some are, for sure.
    words = (f"wrong random={rnd.randrange(1, 20)} seed={rnd.randrange(1 << 31)} " if how == "latch"
             else "")
    out = open(t.dir / "out", "wb")
    child = t.start([t.reprise, "record", "-o", t.dir / "rec", "--force", "--memory", "256M",
                     "--kernel", RAW / "vmlinuz", "--initrd", RAW / "initrd", "--gpu",
                     "virgl,xres=640,yres=480" + ",timeout=2" * (how == "stop"), "--append", f"quiet -- {words}endless",
                     "--max-insns", power_off(t.reprise, t.dir / "short") + FRAMES], stdout=out, stderr=out)
    frame = b"frame %d\r\n" % rnd.randrange(1, 40) if rnd.random() < 0.8 else b""
    began, pid = time.monotonic(), None
    # A renderer that dies before it has begun is another matter: there is no recording then.
    while child.poll() is None and (not pid or not (t.dir / "rec" / "log").exists()
                                    or frame not in (t.dir / "out").read_bytes()):
        t.check(time.monotonic() - began < 120 * t.slow, "the recording does not begin")
        pid = pid or renderer_of(child)
        time.sleep(0.01)
    time.sleep(rnd.uniform(0, 0.1) if frame else rnd.uniform(0, 3))
    harmed = how != "latch" and child.poll() is None
    if harmed:
        os.kill(pid, signal.SIGKILL if how == "kill" else signal.SIGSTOP)
    t.check(child.wait(300 * t.slow) == 0, "the recording did not end as it should")
    out.close()
    return harmed, (t.dir / "out").read_text(errors="replace")


def harm(t, rnd, how):
    """The machine and the recording go on, the log says what happened, and it replays."""
    harmed, text = run_and_harm(t, rnd, how)
    why = {"kill": r"killed by signal 9 \(Killed\)", "stop": r"hangs: nothing came from it for \d+ s",
           "latch": ".*"}[how]  # the library may die of what is wrong
    t.has(text, r"(?m)^reprise: ended by the limit of --max-insns after ")
    if harmed and how == "kill":
        t.has(text, rf"(?m)^reprise: the renderer is gone: {why}$")
    t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=300)
    whole = (t.dir / "rec" / "gpu.log").read_bytes()
    t.run(t.reprise, "gpu", "extract", "-o", t.dir / "extracted", "--force", t.dir / "rec",
          timeout=300)
    t.check((t.dir / "extracted").read_bytes() == whole, "gpu.log from the replay is another")
    rows = [json.loads(line) for line in
            t.run(t.reprise, "gpu", "list", "--json", t.dir / "rec").text.splitlines()]
    lost = [i for i, row in enumerate(rows) if "lost" in row]
    t.check(len(lost) <= (harmed or how == "latch"), f"{len(lost)} renderers lost")
    later = rows[lost[0]:] if lost else []
    if lost:
        t.has(rows[lost[0]]["lost"], f"^{why}$")
    submits = [row for row in later if row.get("command") == "SUBMIT_3D" and "response" in row]
    t.check(all(row["response"].startswith("ERR_") for row in submits),
            "the guest got no error for what nobody drew")
    faults = sum("fault" in row for row in rows)
    return harmed, bool(lost), len(submits), faults


@test("virgl-hostile/renderer-ends", cost=60)
def renderer_ends(t):
    """Renderers killed, stopped and led into errors at random moments of a recording."""
    need_virgl(t)
    seen = [harm(t, rnd, how) for how in ("kill", "stop", "latch", "kill", "kill")[:KILLS]]
    t.check(sum(lost for _, lost, _, _ in seen) >= 2, f"hardly any was noticed: {seen}")
    t.check(any(errors for _, _, errors, _ in seen), f"the guest had no error: {seen}")
    t.check(seen[2][3], "no context error in the log")
    return f"{sum(harmed for harmed, _, _, _ in seen)} of {len(seen)} harmed"


@test("virgl-hostile/buffers", cost=20)
def buffers(t):
    """Mutated and generated command buffers for a real renderer; `make soak` takes more."""
    need_virgl(t)
    r = t.run(t.build / "tests" / "tools" / "gpu_hostile", "-p", t.build / "reprise-gpu", rnd.getrandbits(31),
              BUFFERS // t.slow, timeout=300)
    t.has(r.text, r"(?m)^\d+ buffers: \d+ refused by the device, [1-9]\d* context errors")
    return r.text.splitlines()[1]


def refused(t, pattern, gpu="virgl", env=None, code=ERROR, reprise=None):
    r = t.run(reprise or t.reprise, "record", "-o", t.dir / "x", "--kernel", RAW / "vmlinuz",
              "--initrd", RAW / "initrd", "--gpu", gpu, code=code, env=env)
    lines = r.error.strip().splitlines()
    t.check(lines[0].startswith("reprise") and (code == USAGE or len(lines) == 1),
            f"stderr is {r.error!r}")
    t.has(lines[0], pattern, "the message")
    t.check(not (t.dir / "x").exists(), "a directory was left behind")


@test("virgl-hostile/no-renderer", cost=2)
def no_renderer(t):
    """No EGL, no driver, no program, no such node: what to install, and nothing is left behind."""
    need_virgl(t)
    for value, pattern in (("virgl,driver=voodoo", "no driver 'voodoo': give llvmpipe, softpipe or"),
                           ("virgl,driver=device:/nowhere", "the render node '/nowhere': No such"),
                           ("virgl,driver=device:/dev/null", "'/dev/null' is no render node"),
                           ("virgl,driver=device:/etc", "the render node '/etc': Is a dir"),
                           ("virgl,driver=device:", "the render node '': No such")):
        refused(t, f"--gpu=virgl: .*({pattern})", value)
    for value, pattern in (("virgl,timeout=0", "timeout is 1 to 3600 seconds"),
                           ("virgl,timeout=soon", "1 to 3600"), ("virgl,timeout=", "1 to 3600"),
                           ("2d,timeout=5", "timeout goes with virgl"),
                           ("2d,driver=llvmpipe", "driver goes with virgl"),
                           ("virgl,driver=" + "x" * 300, "driver is a name of 1 to 255"),
                           ("virgl,driver=" + "x" * 600, "is too long"),
                           ("virgl,,", "there is no option"), ("voodoo", "is none of")):
        refused(t, pattern, value, code=USAGE)
    broken = t.dir / "lib"
    broken.mkdir()
    (broken / "libEGL.so.1").write_text("no library\n")
    refused(t, "--gpu=virgl: .*no EGL on this host .*install libegl1", env={"LD_LIBRARY_PATH": broken})
    refused(t, "--gpu=virgl: .*finds no driver .*install .*libgl1-mesa-dri", env=without_driver(t))
    # Without the program beside it.
    alone = t.dir / "alone" / "reprise"
    alone.parent.mkdir()
    alone.write_bytes((t.build / "reprise").read_bytes())
    alone.chmod(0o755)
    refused(t, "--gpu=virgl: cannot start the renderer: reprise-gpu is missing.* neither .*alone/reprise-gpu nor", reprise=alone)
    # 2D needs none of that.
    r = t.run(alone, "record", "-o", t.dir / "flat", "--kernel", IMAGES / "tiny" / "paging.elf",
              "--memory", "16M", "--gpu", "2d", env={"LD_LIBRARY_PATH": broken})
    t.check(r.code == 0, "2D does not work without a renderer")


def without_times(text):
    return re.sub(r"it took [0-9.]+ s|[0-9.]+ s\b", "", text)


@test("virgl-hostile/forged", cost=30)
def forged(t):
    """Replies of the renderer that were forged, in a log whose checksums are right: the machine
    diverges, or goes on, and the same way each time."""
    need_virgl(t)
    whole = t.record("rec", "--memory", "256M", "--initrd", RAW / "initrd", "--gpu",
                     "virgl,xres=640,yres=480", "--append", "quiet -- frames=3 every=1",
                     kernel=RAW / "vmlinuz")
    log = (t.dir / "rec" / "log").read_bytes()
    outcomes = {}
    for _ in range(3):
        (t.dir / "rec" / "log").write_bytes(log)
        r = t.run(t.build / "tests" / "tools" / "log_forge", t.dir / "rec" / "log", t.dir / "forged",
                  rnd.randrange(1 << 31))
        count = int(re.search(r"(\d+) forged", r.text).group(1))
        os.replace(t.dir / "forged", t.dir / "rec" / "log")
        first = t.replay("rec", code=None, timeout=300)
        t.check(first.code in ((FINE, DIVERGED) if count else (FINE,)),
                f"exit code {first.code} of the replay with {count} forged: {first.error}")
        again = t.run(t.reprise, "gpu", "extract", "-o", t.dir / "extracted", "--force",
                      t.dir / "rec", code=None, timeout=300)
        t.check(again.code in (FINE, ERROR, DIVERGED), f"exit code {again.code} of gpu extract")
        second = t.replay("rec", code=first.code, timeout=300)
        t.equal(second.out, first.out, "the console of a second replay")
        t.equal(without_times(second.error), without_times(first.error), "what a second replay says")
        outcomes[first.code] = outcomes.get(first.code, 0) + 1
    (t.dir / "rec" / "log").write_bytes(log)
    t.same("rec", whole, timeout=300)
    return f"{outcomes}"
