"""What a guest makes grow on the host's disk: limits, what stays free, and room for the log's end."""
import os
import re
import subprocess

from suite.boot import image
from suite.harness import ERROR, IMAGES, Session, test

MIB = 1 << 20
KEPT = r"the last \S+ GiB of the file system stay free"


class Small:
    """A tmpfs of that many MiB at t.dir/small."""

    def __init__(self, t, size):
        self.t, self.path = t, t.dir / "small"
        self.size = size

    def __enter__(self):
        if os.geteuid():
            self.t.skip("mounting a tmpfs takes root")
        self.path.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.size}m", "tmpfs", self.path],
                          check=False, capture_output=True).returncode:
            self.t.skip("mounting a tmpfs is not allowed here")
        return self

    def fill(self):
        """Somebody else takes all that is left."""
        with open(self.path / "others", "wb", buffering=0) as f:
            for size in (MIB, 4096):
                try:
                    while True:
                        f.write(bytes(size))
                except OSError:
                    pass

    def __exit__(self, *why):
        subprocess.run(["umount", "-l", self.path], check=False)


@test("room/log-end", cost=5)
def log_end(t):
    """Others fill the disk of a recording: it ends as it should all the same, and gives back what it had
    reserved."""
    image(t)
    with Small(t, 64) as small:
        s = Session(t, "small/rec", append="quiet")
        s.prompt()
        small.fill()
        for i in range(20):
            s.type(f"echo {i}")
        s.send("poweroff -f\n")
        s.finish()
        t.lacks(s.err.decode(), "could not be written|No space")
        log = (small.path / "rec" / "log").stat()
        t.check(log.st_blocks * 512 <= log.st_size + 4096, "blocks after the end of the log")
        t.equal(t.replay("small/rec").out, s.out, "the console of the replay")


@test("room/log-grows", cost=6)
def log_grows(t):
    """A log that grows on a full disk: the recording ends in time, complete."""
    image(t)
    with Small(t, 64) as small:
        s = Session(t, "small/rec", "--port", "flow=in:/dev/urandom", append="quiet")
        s.prompt()
        small.fill()
        s.send("cat /dev/virtio-ports/flow >/dev/null\n")
        s.finish(code=ERROR)
        t.has(s.err.decode(), "the disk of the recording is full: it was ended while there was room")
        info = t.info("small/rec")
        t.equal((info["end"], info["why"]), ("quit", "disk"), "how it ended")
        t.check(info["log_bytes"] > MIB, f"the log has only {info['log_bytes']} bytes")
        t.equal(t.replay("small/rec").out, s.out, "the console of the replay")


@test("room/overlay", cost=10)
def overlay(t):
    """--overlay-limit and --keep-free: I/O errors of the guest, said before and after; the same again on
    replay."""
    image(t)
    path = t.dir / "disk"
    with open(path, "wb") as f:
        f.truncate(256 * MIB)
    script = """dd if=/dev/urandom of=/dev/vda bs=1M count=%d oflag=direct 2>&1 | grep -i error
dd if=/dev/vda bs=1M count=64 2>/dev/null | wc -c
"""
    # 64 MiB of it are kept in memory.
    for name, options, size, said, before in (
            ("limit", ("--overlay-limit", "16M"), 90, "its limit of 16.0 MiB is reached", 1),
            ("kept", ("--keep-free", "100T"), 70, KEPT, 0)):
        r = t.linux(name, "--disk", f"{path},format=raw", *options, append="quiet", timeout=200,
                    script=script % size)
        t.has(r.text, "I/O error|Input/output error", name)
        t.has(r.text, "^67108864$", name)
        t.has(r.error, r"disk 0: \d+ requests of the guest got an I/O error: no room for what the guest "
              f"writes to the disk .*: {said}", name)
        t.equal(len(re.findall("takes four fifths of the room", r.error)), before, f"warnings, {name}")
        t.same(name, r, timeout=200)


@test("room/gpu-log", cost=8)
def gpu_log(t):
    """gpu.log reaches its limit: it ends there and that is said; the recording goes on, and a replay makes
    it whole."""
    where = IMAGES / "generic"
    if not (where / "vmlinuz").exists():
        t.skip("no image with a GPU driver: make image-generic")
    r = t.linux("rec", "--gpu", "2d", "--gpu-log-limit", "100K", image="generic", append="quiet", script="""
[ -e /dev/fb0 ] || echo NO SCREEN
for i in 1 2 3; do head -c 400000 /dev/urandom >/dev/fb0; sleep 0.2; done
echo ON
""")
    if "NO SCREEN" in r.text:
        t.skip("this kernel has no virtio-gpu")
    t.has(r.text, "^ON")
    t.equal(r.error.count("; the recording goes on"), 1, "times it was said")
    t.has(r.error, "gpu.log ends at its last whole chunk: its limit of 0.1 MiB is reached; the rec")
    t.has(r.error, "gpu.log is not whole: .*`reprise gpu extract` makes it from a replay")
    t.check((t.dir / "rec" / "gpu.log").stat().st_size <= 100 << 10, "it is longer than the limit")
    t.same("rec", r)
    t.run(t.reprise, "gpu", "extract", t.dir / "rec", "-o", t.dir / "whole.log")
    t.check((t.dir / "whole.log").stat().st_size > 1000000, "what was made again")


@test("room/files", cost=4)
def files(t):
    """The file of a port leaves room free as well, and so do checkpoints and pictures."""
    image(t)
    r = t.linux("rec", "--port", "out=out:out.bin", "--port", "other=out:other.bin", "--keep-free",
                "100T", "--checkpoint-every", "0.1", append="quiet", script="echo lost >/dev/virtio-ports/out; echo ON\n")
    t.has(r.text, "^ON")
    t.has(r.error, f"port out: {KEPT}; what the guest sends to it from here on is lost")
    t.lacks(r.error, "port other")
    t.has(r.error, f"checkpoints ended after 0 of them: cannot write a checkpoint: {KEPT}; ")
    t.equal((t.dir / "out.bin").read_bytes(), b"", "the file")
    t.same("rec", r)
    r = t.tiny("pictures", "gpu", "--gpu", "2d,xres=96,yres=64", "--keep-free", "100T", "--display",
               f"png-every=0.001,{t.dir}/pics", code=ERROR)
    t.has(r.error, f"no more pictures of the screen: {KEPT}")
    t.equal(list((t.dir / "pics").iterdir()), [], "pictures")
    t.run(t.reprise, "replay", "--verify", t.dir / "pictures")
