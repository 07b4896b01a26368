"""Disks: virtio-blk on a raw image, recorded, replayed, walked through and exported."""
import os
import pathlib
import shutil

from suite.harness import DIVERGED, ERROR, IMAGES, USAGE, test

LINUX = IMAGES / "linux"
SCRIPT = """
set -e
mkdir -p /mnt
mount -t ext4 /dev/vda /mnt
cat /mnt/hello
dd if=/dev/urandom of=/mnt/random bs=64k count=64 2>/dev/null
sync
sha256sum /mnt/random
echo PHASE ONE
cp /mnt/random /mnt/copy
dd if=/dev/zero of=/mnt/zeros bs=1M count=4 conv=fsync 2>/dev/null
echo 3 >/proc/sys/vm/drop_caches
cmp /mnt/random /mnt/copy
rm /mnt/zeros
cat /sys/block/vda/serial; echo
blockdev --getro /dev/vdb
dd if=/dev/vdb bs=512 count=1 2>/dev/null | sha256sum
if dd if=/dev/zero of=/dev/vdb bs=512 count=1 2>/dev/null; then echo WRITTEN; else echo REFUSED; fi
umount /mnt
sync
echo PHASE TWO
"""


def need(t, *programs):
    for program in programs:
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin"):
            t.skip(f"{program} is not installed")


def tool(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")


def make_disk(t, name="disk.img", mib=48):
    """An ext4 image with one file, without root."""
    files = t.dir / "files"
    files.mkdir(exist_ok=True)
    (files / "hello").write_text("hello from the image\n")
    path = t.dir / name
    with open(path, "wb") as f:
        f.truncate(mib << 20)
    t.run(tool("mkfs.ext4"), "-q", "-d", files, path)
    return path


def session(t, name="rec", *options):
    disk = make_disk(t)
    second = t.dir / "second.img"
    second.write_bytes(bytes(range(256)) * 80)
    r = t.linux(name, "--disk", f"{disk},serial=first-disk", "--disk", f"{second},readonly",
                *options, script=SCRIPT, append="quiet")
    return disk, second, r


@test("disk/session", cost=15)
def disk_session(t):
    """ext4 on a disk: the image stays as it is, the replay is exact, so is every checkpoint, and the
    disk can be had as it was at any point."""
    need(t, "mkfs.ext4", "e2fsck", "debugfs")
    disk, second, r = session(t, "rec", "--checkpoint-every", "0.3")
    t.has(r.text, "hello from the image")
    t.has(r.text, "first-disk")
    t.has(r.text, "REFUSED")
    t.has(r.text, "PHASE TWO")
    fresh = t.dir / "fresh"
    fresh.mkdir()
    t.equal(sorted(p.name for p in t.dir.glob("*.img")), ["disk.img", "second.img"], "images")
    t.same("rec", r)
    t.verify_checkpoints("rec")
    # As it was at the start, in the middle, at the end.
    def export(point, out):
        t.run(t.reprise, "disk", t.dir / "rec", "export", "--at", point, "-o", t.dir / out)
        return t.dir / out
    t.equal(export("insn:0", "zero").read_bytes(), disk.read_bytes(), "the disk at power-on")
    one = export("console:PHASE ONE", "one")
    end = export("end", "end")
    t.run(tool("e2fsck"), "-fn", end)
    # In the middle the file system is mounted: its journal has to be replayed, as after a power cut.
    t.run(tool("e2fsck"), "-fy", one, code=(0, 1))
    sums = [line.split()[0] for line in r.text.splitlines() if line.endswith("/mnt/random")]
    for image in (one, end):
        t.run(tool("debugfs"), "-R", f"dump /random {image}.random", image)
        got = t.run("sha256sum", f"{image}.random").text.split()[0]
        t.equal(got, sums[0], f"/random in {image.name}")
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 5, "--places", 15,
          "--moves", 40, timeout=300)
    t.has(t.run(t.reprise, "disk", t.dir / "rec").text, r"0 .*disk\.img\n1 .*read-only.*second\.img")
    return r.text.count("PHASE") and f"{os.path.getsize(t.dir / 'rec' / 'log')} B log"


@test("disk/changed", cost=8)
def disk_changed(t):
    """A base image that was changed, shortened, or is gone is named."""
    need(t, "mkfs.ext4")
    disk, second, _ = session(t)
    keep = second.read_bytes()
    second.write_bytes(b"\x01" + keep[1:])
    r = t.replay("rec", code=DIVERGED)
    t.has(r.error, "disk1.*base image")
    second.write_bytes(keep[:-512])
    t.has(t.replay("rec", code=ERROR).error, "second.img has .* bytes, it had")
    second.unlink()
    t.has(t.replay("rec", code=ERROR).error, "cannot open the disk image .*second.img")
    second.write_bytes(keep)
    t.replay("rec")


@test("disk/bad")
def disk_bad(t):
    """Images that are none, options that make no sense."""
    (t.dir / "odd").write_bytes(bytes(1000))
    (t.dir / "empty").touch()
    (t.dir / "good").write_bytes(bytes(4096))
    kernel = IMAGES / "tiny" / "spin.elf"
    for spec, text in ((t.dir, "neither a file nor"), (t.dir / "none", "No such file"),
                       (t.dir / "odd", "1000 bytes"), (t.dir / "empty", "0 bytes"),
                       ("/dev/null", "neither a file nor"),
                       (f"{t.dir}/good,frob", "frob"), (f"{t.dir}/good,serial=", "serial"),
                       (f"{t.dir}/good,serial={'x' * 21}", "serial")):
        r = t.record("x", "--disk", spec, kernel=kernel, code=ERROR)
        t.has(r.error, text)
        t.check(not (t.dir / "x").exists(), "a recording was left behind")
    five = [x for _ in range(5) for x in ("--disk", t.dir / "good")]
    t.record("x", *five, kernel=kernel, code=USAGE)
    t.tiny("rec", "paging")
    t.equal(t.run(t.reprise, "disk", t.dir / "rec").text, "", "disks of a machine without")
    t.has(t.run(t.reprise, "disk", t.dir / "rec", "export", "-o", t.dir / "o", code=ERROR).error,
          "there is no disk 0")
    t.run(t.reprise, "disk", t.dir / "rec", "export", code=USAGE)
    t.run(t.reprise, "disk", t.dir / "rec", "frob", code=USAGE)
    t.check(not pathlib.Path(t.dir / "o").exists(), "a file was left behind")


@test("disk/entropy", cost=4)
def entropy(t):
    """virtio-rng: the seed decides what the guest gets."""
    script = "dd if=/dev/hwrng bs=32 count=1 2>/dev/null | sha256sum"
    got = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        r = t.linux(name, "--seed", seed, script=script, append="quiet")
        got.append([line for line in r.text.splitlines() if line.endswith("  -")])
    t.check(len(got[0]) == 1, "no entropy device")
    t.equal(got[0], got[1], "entropy of one seed")
    t.check(got[0] != got[2], "two seeds give the same entropy")
    t.replay("a")
