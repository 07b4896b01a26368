"""`bench.py --part gpu`: programs that draw with virgl, recorded, beside QEMU's virtio-gpu-gl.

The images gpu-raw and gpu-mesa. CPU time is of the process and those it started (the renderer is one
of ours; QEMU draws in its own process). QEMU needs a display with OpenGL: egl-headless where there is
a render node, or else a window on an Xvfb of its own, whose CPU time is not counted. Both draw with
llvmpipe where there is no GPU. Frames a second are of host time, from the first frame to the last.
"""
import glob
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
RENDERER = str(ROOT / "build" / "rel" / "reprise-gpu")
IMAGES = ROOT / "build" / "images"
TICK = os.sysconf("SC_CLK_TCK")
SIZE = "xres=640,yres=480"
FRAMES = 1500
# Command in the guest; what it prints at its first frame, at its last.
PROGRAMS = {
    "triangle": (f"gpu triangle frames={FRAMES} every={FRAMES}", "triangle: first frame",
                 f"triangle: {FRAMES} frames"),
    "kmscube": (f"gpu kmscube -c {FRAMES}", "Modifiers failed!", f"Rendered {FRAMES - 1} frames"),
}


def cpu_of(pid):
    """CPU seconds of a process and its children, so far."""
    total = 0
    try:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total = sum(int(n) for n in fields[11:15])
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                total += cpu_of(int(child)) * TICK
    except (OSError, IndexError):
        pass
    return total / TICK


def watch(argv, marks, env=None, limit=600):
    """Runs until the last of the texts was printed, then ends it: (time, CPU) at each; None: never
    printed."""
    child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env)
    timer = threading.Timer(limit, child.kill)
    timer.start()
    found = []
    for line in child.stdout:
        while len(found) < len(marks) and marks[len(found)].encode() in line:
            found.append((time.monotonic(), cpu_of(child.pid)))
        if len(found) == len(marks):
            break
    timer.cancel()
    child.terminate()
    child.stdout.read()
    child.wait()
    return found if len(found) == len(marks) else None


class Screen:
    """A display with OpenGL for QEMU; options is None where there is none."""

    def __init__(self):
        self.child, self.env, self.options = None, dict(os.environ), None
        if not shutil.which("qemu-system-x86_64"):
            self.why = "qemu-system-x86_64 is not installed"
        elif glob.glob("/dev/dri/renderD*"):
            self.options = ["-display", "egl-headless"]
        elif shutil.which("Xvfb"):
            read, write = os.pipe()
            self.child = subprocess.Popen(
                ["Xvfb", "-displayfd", str(write), "-screen", "0", "1280x1024x24"],
                pass_fds=[write], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            os.close(write)
            with os.fdopen(read) as number:
                self.env["DISPLAY"] = ":" + number.readline().strip()
            self.options = ["-display", "sdl,gl=on"]
        else:
            self.why = "no display with OpenGL for QEMU: neither a render node nor Xvfb (xvfb)"

    def close(self):
        if self.child:
            self.child.terminate()
            self.child.wait()

    def qemu(self, image, append):
        where = IMAGES / image
        argv = ["qemu-system-x86_64", "-accel", "tcg", "-m", "512", "-nodefaults", "-serial",
                "stdio", "-no-reboot", "-vga", "none", "-device", f"virtio-gpu-gl-pci,{SIZE}",
                *self.options, "-kernel", where / "vmlinuz", "-initrd", where / "initrd", "-append",
                f"console=ttyS0 panic=-1 quiet -- {append}"]
        if (where / "disk.img").exists():
            argv += ["-drive", f"file={where}/disk.img,format=raw,if=none,id=d,readonly=on",
                     "-device", "virtio-blk-pci,drive=d,disable-legacy=on"]
        return argv


def record(place, image, append, *options):
    where = IMAGES / image
    argv = [REPRISE, "record", "--force", "-o", pathlib.Path(place) / "gpu", "--seed", "1",
            "--kernel", where / "vmlinuz", "--initrd", where / "initrd", "--gpu", f"virgl,{SIZE}",
            "--append", f"quiet -- {append}", *options]
    if (where / "disk.img").exists():
        argv += ["--disk", where / "disk.img"]
    return argv


def rounds(runs, kinds, marks):
    """Each kind once a round: name -> list of (CPU to the first mark, frames a second, CPU seconds
    from the first to the last)."""
    samples = {}
    for turn in range(runs):
        for name, (argv, env) in kinds.items():
            if sys.stderr.isatty():
                print(f"\r\033[K{turn + 1}/{runs} gpu: {name}", end="", file=sys.stderr)
            found = watch(argv, marks, env)
            if found:
                (t0, c0), (t1, c1) = found[0], found[-1]
                samples.setdefault(name, []).append(
                    (c0, FRAMES / (t1 - t0) if t1 > t0 else 0, c1 - c0))
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return samples


def median(samples, name, column):
    return statistics.median(s[column] for s in samples[name])


def first_frame(place, runs, screen, table):
    kinds = {"recorded": (record(place, "gpu-raw", "frames=2"), None)}
    if screen.options:
        kinds["QEMU"] = (screen.qemu("gpu-raw", "frames=2"), screen.env)
    samples = rounds(runs, kinds, ["gpu-raw: first frame"])
    for name in samples:
        value = median(samples, name, 0)
        table(f"gpu: gpu-raw, power-on to first frame, {name}", value, f"{value:.2f} s CPU")
    if len(samples) == 2:
        ratio = median(samples, "recorded", 0) / median(samples, "QEMU", 0)
        table("gpu: first frame, recorded / QEMU, CPU", ratio, f"{ratio:.2f}", 1)


def programs(place, runs, screen, table):
    for program, (command, *marks) in PROGRAMS.items():
        kinds = {"recorded": (record(place, "gpu-mesa", command), None),
                 "without gpu.log": (record(place, "gpu-mesa", command, "--gpu-log", "off"), None)}
        if screen.options:
            kinds["QEMU"] = (screen.qemu("gpu-mesa", command), screen.env)
        samples = rounds(runs, kinds, marks)
        for name in samples:
            value, cpu = median(samples, name, 1), median(samples, name, 2)
            table(f"gpu: {program}, {name}", -value,
                  f"{value:.0f} frames a second, {cpu * 1000 / FRAMES:.2f} ms CPU each")
        if "QEMU" in samples:
            ratio = median(samples, "QEMU", 1) / median(samples, "recorded", 1)
            table(f"gpu: {program}, frame rate of QEMU / recorded", ratio, f"{ratio:.2f}", 1)
        # Neighbours, and CPU: on a busy machine only that is the same from run to run.
        ratio = statistics.median(a[2] / b[2] for a, b in
                                  zip(samples["recorded"], samples["without gpu.log"]))
        table(f"gpu: {program}, CPU of a frame, with gpu.log / without", ratio, f"{ratio:.3f}", 1.03)
        if program == "triangle":
            stream(place, median(samples, "recorded", 1), table)


def run(argv):
    """Output, wall and CPU seconds of a command that must end well."""
    began = time.monotonic()
    child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"gpu: failed: {' '.join(map(str, argv))}")
    return out, time.monotonic() - began, usage.ru_utime + usage.ru_stime


def stream(place, recorded, table):
    """A whole recording of the triangle, 300 frames: its stream on the disk and drawn again, frames
    of it looked at. recorded: frames a second while recording."""
    where = pathlib.Path(place) / "gpu"
    run(record(place, "gpu-mesa", "gpu triangle every=300"))
    s = json.loads(run([REPRISE, "gpu", "list", "--json", "--stats", where])[0])
    ratio = s["records_packed"] / s["records_raw"]
    table("gpu: triangle, commands in gpu.log, packed / raw", ratio,
          f"{ratio:.3f} of {s['records_raw'] / 1024:.0f} KiB", 0.1)
    table("gpu: triangle, bytes carried by commands, kept", s["kept"] / s["carried"],
          f"{s['kept'] / 1e6:.1f} of {s['carried'] / 1e6:.1f} MB")
    out, _, cpu = run([REPRISE, "gpu", "replay", "--json", where])
    end = json.loads(out.splitlines()[-1])
    # Without the first ten: in them the renderer's driver compiles.
    times = [json.loads(line).get("ms", 0) for line in out.splitlines()[:-1]]
    rate = 1000 * (len(times) - 10) / sum(times[10:]) if sum(times[10:]) else end["fps"]
    table("gpu: triangle, stream drawn alone", -rate, f"{rate:.0f} frames a second, {cpu:.1f} s CPU")
    table("gpu: triangle, frame rate recorded / drawn alone", recorded / rate,
          f"{recorded / rate:.2f}", 0.33)
    run([REPRISE, "checkpoint", "--every", "0.5", where])
    places = random.Random(1).sample(range(1, s["frames"]), 8)
    shots = [run([REPRISE, "replay", "--to", f"frame:{n}", "--force", "--screenshot",
                  pathlib.Path(place) / "shot.png", where])[1:] for n in places]
    worst = max(wall for wall, _ in shots)
    table("gpu: screenshot of a random frame, checkpoints on disk", worst,
          f"{statistics.median(w for w, _ in shots):.2f} s, worst {worst:.2f} s, "
          f"{statistics.median(c for _, c in shots):.2f} s CPU", 2)


def measure(place, runs):
    rows, notes = [], []

    def table(what, number, text, bound=None):
        rows.append({"what": what, "number": number, "value": text,
                     "good": bound is None or number <= bound,
                     "bound": "" if bound is None else f"<= {bound}"})

    check = subprocess.run([RENDERER, "--check"], stdout=subprocess.DEVNULL,
                           stderr=subprocess.PIPE, text=True)
    if check.returncode:
        why = (check.stderr.strip() or "reprise-gpu --check fails").splitlines()[-1]
        return {"rows": [], "notes": [f"gpu: skipped: {why}"]}
    screen = Screen()
    if not screen.options:
        notes.append(f"gpu: {screen.why}: nothing is compared with it")
    try:
        for image, part in (("gpu-raw", lambda: first_frame(place, runs, screen, table)),
                            ("gpu-mesa", lambda: programs(place, runs, screen, table))):
            if (IMAGES / image / "initrd").exists():
                part()
            else:
                notes.append(f"gpu: skipped: build/images/{image} is not built (make image-{image})")
    finally:
        screen.close()
    return {"rows": rows, "notes": notes}
