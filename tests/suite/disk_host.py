"""Disks and what the host does to them: image formats, NBD servers, errors while reading, no room."""
import hashlib
import os
import random
import re
import resource
import shutil
import signal
import stat
import subprocess
import time

from suite.disk import make_disk, need, tool
from suite.harness import DIVERGED, ERROR, IMAGES, Session, test
from suite.nbd_server import Server

MIB = 1 << 20
SPIN = IMAGES / "tiny" / "spin.elf"


def noise(mib, seed=1):
    return random.Random(seed).randbytes(mib * MIB)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def convert(t, raw, form, *options):
    out = raw.with_suffix("." + {"vpc": "vhd"}.get(form, form))
    t.run("qemu-img", "convert", "-f", "raw", "-O", form, *options, raw, out)
    return out


def kinds(t, name):
    return [e["type"] for e in t.events(name)]


def children(pid):
    """The qemu-nbd processes of a process."""
    found = []
    for entry in os.listdir("/proc"):
        try:
            with open(f"/proc/{entry}/stat", encoding="ascii", errors="replace") as f:
                name, _, rest = f.read().rpartition(")")
            if int(rest.split()[1]) == pid and "qemu-nbd" in name:
                found.append(int(entry))
        except (OSError, ValueError, IndexError):
            pass
    return found


FORMATS = """
for d in a b c d; do
    sha256sum </dev/vd$d
    dd if=/dev/urandom of=/dev/vd$d bs=1000 count=300 seek=777 conv=notrunc 2>/dev/null
    sync
    echo 3 >/proc/sys/vm/drop_caches
    sha256sum </dev/vd$d
done
echo DONE
"""


def formats(t, specs, raws):
    """Records a guest that reads and writes disks; compares everything with the raw images."""
    names = [str(s).partition(",")[0] for s in specs]
    before = [sha(open(n, "rb").read()) if os.path.exists(n) else "" for n in names]
    disks = [x for spec in specs for x in ("--disk", spec)]
    script = FORMATS.replace("a b c d", " ".join("abcd"[:len(specs)]))
    r = t.linux("rec", *disks, script=script, append="quiet")
    t.has(r.text, "^DONE")
    sums = re.findall(r"^([0-9a-f]{64})  -$", r.text, re.M)
    t.equal(sums[0::2], [sha(raw) for raw in raws], "what the guest read")
    t.equal([sha(open(n, "rb").read()) if os.path.exists(n) else "" for n in names], before,
            "the images")
    t.same("rec", r)
    for i in range(len(specs)):
        out = t.dir / f"out{i}"
        t.run(t.reprise, "disk", t.dir / "rec", "export", "--disk", i, "-o", out)
        t.equal(sha(out.read_bytes()), sums[2 * i + 1], f"the export of disk {i}")
        out.unlink()
    return t.run(t.reprise, "disk", t.dir / "rec").text


@test("disk/formats", cost=14)
def disk_formats(t):
    """qcow2 with a backing file, vmdk, vdi, vhdx: read, written, replayed, exported, unchanged."""
    need(t, "qemu-nbd", "qemu-img")
    data = noise(5)
    raw = t.dir / "base.img"
    raw.write_bytes(data)
    convert(t, raw, "qcow2", "-c")
    t.run("qemu-img", "create", "-q", "-f", "qcow2", "-b", "base.qcow2", "-F", "qcow2",
          t.dir / "top.qcow2")
    t.run("qemu-io", "-c", "write -P 7 1M 8k", t.dir / "top.qcow2")
    top = bytearray(data)
    top[MIB:MIB + 8192] = b"\x07" * 8192
    specs = [f"{t.dir}/top.qcow2,backing=on"] + [convert(t, raw, f) for f in ("vmdk", "vdi", "vhdx")]
    listed = formats(t, specs, [bytes(top), data, data, data])
    t.has(listed, r"0 .*qcow2.*top\.qcow2\n1 .*vmdk.*\n2 .*vdi.*\n3 .*vhdx")
    # The backing file is part of the disk.
    (t.dir / "base.qcow2").rename(t.dir / "away")
    t.has(t.replay("rec", code=ERROR).error, "disk 0 of the recording.*base.qcow2")


@test("disk/nbd", cost=12)
def disk_nbd(t):
    """Somebody's server: a socket, a port, a raw image and a VHD beside it; gone at the replay."""
    need(t, "qemu-nbd", "qemu-img")
    data = noise(4, 2)
    raw = t.dir / "plain"
    raw.write_bytes(data)
    local, remote = Server(data, t.dir / "sock"), Server(data)
    specs = [f"nbd+unix:///?socket={t.dir}/sock", f"nbd://127.0.0.1:{remote.port}/some",
             f"{raw},format=raw", f"{convert(t, raw, 'vpc', '-o', 'force_size=on')},format=vpc"]
    listed = formats(t, specs, [data] * 4)
    t.has(listed, r"0 .*nbd .*sock\n1 .*nbd .*nbd://127.*\n2 .*raw .*plain\n3 .*vpc ")
    t.check(local.reads > 10 and remote.reads > 10, "nobody was asked")
    local.data = local.data[:MIB] + b"!" + local.data[MIB + 1:]
    t.has(t.replay("rec", code=DIVERGED).error, "disk0.*base image changed")
    remote.close()
    t.has(t.replay("rec", code=ERROR).error, "disk 1 of the recording.*nbd://127")
    local.close()


class Broken:
    """A guest at its prompt whose disk stops working."""

    def __init__(self, t, spec, name="rec"):
        self.t, self.name = t, name
        self.s = Session(t, name, "--disk", spec, append="quiet", env={"TMPDIR": t.dir})
        self.s.prompt()
        t.has(self.s.type("dd if=/dev/vda bs=4k count=1 2>/dev/null | wc -c"), "^4096")

    def read(self, page, seconds=30):
        return self.s.type(f"dd if=/dev/vda of=/dev/null bs=4k skip={page} count=1",
                           seconds=seconds)

    def fails(self, page, seconds=30):
        self.t.has(self.read(page, seconds), "Input/output error")
        self.t.has(self.s.type("dmesg | tail -4"), "I/O error, dev vda")

    def works(self, page):
        self.t.lacks(self.read(page), "error")

    def end(self, why):
        self.s.type("echo 1 >/proc/sys/vm/drop_caches; echo the end")
        self.s.send("poweroff -f\n")
        self.s.finish()
        self.t.has(self.s.err.decode(), "disk 0: [0-9]+ requests? .*I/O error.*" + why)
        errors = kinds(self.t, self.name).count("disk_error")
        self.t.check(errors > 0, "no error was recorded")
        return errors

    def replayed(self):
        out = self.t.replay(self.name).text.replace("\r", "")
        self.t.has(out, "Input/output error")
        self.t.equal(out, self.s.out.decode().replace("\r", ""), "the console of the replay")


@test("disk/shortened", cost=14)
def disk_shortened(t):
    """An image that becomes shorter: the guest sees I/O errors, the replay the same ones, with the
    image whole again; and one that fails only in the replay is an error of the replay."""
    path = t.dir / "disk"
    data = noise(8, 3)
    path.write_bytes(data)
    b = Broken(t, path)
    b.works(1500)
    os.truncate(path, 5 * MIB)
    b.fails(1700)
    b.works(1100)
    # A write of a part of a page needs the rest of it.
    out = b.s.type("dd if=/dev/zero of=/dev/vda bs=512 count=1 seek=14401 oflag=direct")
    t.has(out, "Input/output error")
    t.lacks(b.s.type("dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=1900 oflag=direct"), "error")
    path.write_bytes(data)
    b.works(1800)
    errors = b.end("became shorter")
    b.replayed()
    os.truncate(path, 5 * MIB)  # and grown again: what is read now are zeros
    os.truncate(path, 8 * MIB)
    t.has(t.replay("rec", code=DIVERGED).error, "base image changed")
    path.write_bytes(data)
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 3, "--places", 8, "--moves",
          20, timeout=200)
    return f"{errors} errors"


@test("disk/server-errors", cost=12)
def disk_server_errors(t):
    """An NBD server with a bad range, that stalls; a replay in which the server fails where it did
    not when recording."""
    data = noise(8, 4)
    server = Server(data, t.dir / "sock")
    b = Broken(t, f"nbd+unix:///x?socket={t.dir}/sock,timeout=2")
    server.bad = (6 * MIB, 7 * MIB)
    b.works(1400)
    b.fails(1600)
    server.bad = None
    b.works(1700)
    server.stalled = True
    began = time.monotonic()
    b.fails(1900)
    took = time.monotonic() - began
    t.check(1.5 < took < 20 * t.slow, f"a stalled server was given {took:.1f} s")
    server.stalled = False
    b.fails(300)  # it is not asked again
    b.end("did not answer within 2 s")
    b.replayed()
    server.bad = (1600 * 4096, 1601 * 4096)  # as when it was recorded, but not for page 1700
    b.replayed()
    server.bad = (5 * MIB, 6 * MIB)
    t.has(t.replay("rec", code=ERROR).error, "cannot read the disk nbd.*Input/output error.*"
          "could be when it was recorded")
    server.bad = None
    t.replay("rec")
    server.close()


@test("disk/server-killed", cost=12)
def disk_server_killed(t):
    """qemu-nbd is killed while recording, and while replaying; a backing file is cut short."""
    need(t, "qemu-nbd", "qemu-img")
    raw = t.dir / "base.img"
    raw.write_bytes(noise(8, 5))
    image = convert(t, raw, "qcow2")
    b = Broken(t, image)
    mine = children(b.s.child.pid)
    t.equal(len(mine), 1, "qemu-nbd processes")
    os.kill(mine[0], signal.SIGKILL)
    b.fails(1600)
    b.end("qemu-nbd was ended by signal 9")
    b.replayed()
    # An image that returns errors: a packed one whose end is overwritten, because qemu-nbd fills a
    # file that became shorter up with zeros.
    data = raw.read_bytes()
    raw.write_bytes(b"".join(data[i:i + 32768] + bytes(32768) for i in range(0, 8 * MIB, 65536)))
    packed = convert(t, raw, "qcow2", "-c").rename(t.dir / "packed.qcow2")
    good = packed.read_bytes()
    b = Broken(t, packed, "two")
    mine = children(b.s.child.pid)
    with open(packed, "r+b") as f:
        f.seek(len(good) * 65 // 100)
        f.write(b"\xff" * (len(good) * 35 // 100))
    b.fails(1600)
    b.works(1100)
    b.end("qemu-nbd says: Input/output error")
    t.equal([p for p in mine if os.path.exists(f"/proc/{p}")], [], "servers left behind")
    packed.write_bytes(good)
    b.replayed()
    packed.write_bytes(good[:60])
    t.has(t.replay("two", code=ERROR).error, "disk 0 of the recording.*packed.qcow2 as qcow2")
    # We are killed: so is it.
    raw.write_bytes(data)
    image = convert(t, raw, "qcow2")
    s = Session(t, "three", "--disk", image, append="quiet", env={"TMPDIR": t.dir})
    s.prompt()
    mine = children(s.child.pid)
    t.equal(len(mine), 1, "qemu-nbd processes")
    s.child.kill()
    s.finish(code=None)
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{mine[0]}") and time.monotonic() < until:
        time.sleep(0.05)
    t.check(not os.path.exists(f"/proc/{mine[0]}"), "qemu-nbd lives on")
    t.equal(list(t.dir.glob("reprise-*")), [], "sockets left behind")


@test("disk/server-killed-in-replay", cost=8)
def disk_server_killed_in_replay(t):
    """qemu-nbd ends in the middle of a replay: an error, and no other result."""
    need(t, "qemu-nbd", "qemu-img")
    raw = t.dir / "base.img"
    raw.write_bytes(noise(8, 6))
    image = convert(t, raw, "qcow2")
    r = t.linux("rec", "--disk", image, script="""
        echo GO
        for i in 1 2 3 4 5 6 7; do
            dd if=/dev/vda bs=1M skip=$i count=1 2>/dev/null | sha256sum
            i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done
        done""", append="quiet")
    t.equal(len(re.findall("  -$", r.text, re.M)), 7, "lines")
    def kill(child):
        for pid in children(child.pid):
            os.kill(pid, signal.SIGKILL)

    child = t.start([t.reprise, "replay", "--verify", t.dir / "rec"])
    err = limited(t, child, kill, ERROR)[1]
    t.has(err.decode(), "cannot read the disk .*base.qcow2: qemu-nbd was ended by signal "
          "9.*could be when it was recorded")
    t.replay("rec")


@test("disk/full", cost=20)
def disk_full(t):
    """What the guest writes has no room on the host: an I/O error to the guest; the replay has one
    only where the recording has it."""
    path = t.dir / "disk"
    with open(path, "wb") as f:
        f.truncate(256 * MIB)
    script = """
dd if=/dev/urandom of=/tmp/noise bs=1M count=1 2>/dev/null
i=0
while [ $i -lt 120 ]; do
    dd if=/tmp/noise of=/dev/vda bs=1M seek=$i oflag=direct 2>/dev/null || break
    i=$((i+1))
done
echo wrote $i MiB
dmesg | grep -c 'I/O error, dev vda'
dd if=/dev/vda bs=1M count=$i 2>/dev/null | sha256sum
"""

    # The limit comes once the program has its memory, which to the kernel is a file as well.
    def limit(child):
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (20 * MIB, 20 * MIB))

    tmp = {"TMPDIR": str(t.dir)}
    where = IMAGES / "linux"
    (t.dir / "script").write_text("echo GO\n" + script)
    argv = [t.reprise, "record", "-o", t.dir / "rec", "--kernel", where / "vmlinuz", "--initrd",
            where / "initrd", "--disk", f"{path},format=raw", "--add",
            f"{t.dir}/script:/script.sh", "--append", "quiet reprise.script=/script.sh"]
    child = t.start(argv, env=tmp)
    text = limited(t, child, limit)
    wrote = int(re.search(rb"wrote (\d+) MiB", text[0]).group(1))
    t.check(64 <= wrote < 90, f"{wrote} MiB were written")
    t.has(text[1].decode(),
          "disk 0: .*no room for what the guest writes to the disk .*File too large")
    t.has(text[0].decode(), "^[1-9]")
    t.check("disk_error" in kinds(t, "rec"), "no error was recorded")
    t.equal(t.replay("rec", timeout=200).out, text[0], "the console of the replay")
    # All of it fits: the replay that has not the room says so.
    argv[3] = t.dir / "two"
    r = t.run(*argv, timeout=200)
    t.has(r.text, "wrote 120 MiB")
    t.equal([p.name for p in (t.dir / "two").iterdir() if p.name not in
             ("machine.dtb", "log", "files")], [], "files left behind")
    child = t.start([t.reprise, "replay", "--verify", t.dir / "two"], env=tmp)
    text = limited(t, child, limit, ERROR)
    t.has(text[1].decode(), "no room for what the guest writes.*there was when")
    t.same("two", r, timeout=200)
    return f"{wrote} MiB"


def limited(t, child, limit, code=0):
    """Calls `limit` once the guest says GO; returns stdout and stderr."""
    seen = b""
    while b"GO" not in seen:
        more = os.read(child.stdout.fileno(), 4096)
        t.check(more, "it ended too early")
        seen += more
    limit(child)
    out, err = child.communicate(timeout=200 * t.slow)
    t.show(child.returncode, seen + out, err)
    t.equal(child.returncode, code, "the exit code")
    return seen + out, err


@test("disk/full-tmpfs", cost=12)
def disk_full_tmpfs(t):
    """The file system of the recording is full (a small tmpfs; only root can mount one)."""
    if os.geteuid() != 0:
        t.skip("mounting a tmpfs takes root")
    small = t.dir / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=45m", "tmpfs", small], check=False,
                      capture_output=True).returncode:
        t.skip("mounting a tmpfs is not allowed here")
    try:
        path = t.dir / "disk"
        with open(path, "wb") as f:
            f.truncate(256 * MIB)
        r = t.linux("small/rec", "--disk", f"{path},format=raw", "--keep-free", "0", append="quiet",
                    timeout=200, script="""
            dd if=/dev/urandom of=/dev/vda bs=1M count=110 oflag=direct 2>&1 | grep error
            dd if=/dev/vda bs=1M count=64 2>/dev/null | wc -c
            """)
        t.has(r.text, "Input/output error|I/O error")
        t.has(r.text, "^67108864$")
        t.has(r.error, "No space left on device")
        t.same("small/rec", r, timeout=200)
    finally:
        subprocess.run(["umount", "-l", small], check=False)


def shim(t, name, text):
    """A qemu-nbd of ours in front of the PATH."""
    folder = t.dir / name
    folder.mkdir()
    program = folder / "qemu-nbd"
    program.write_text(text)
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{folder}:{os.environ['PATH']}"}


@test("disk/bad-images", cost=4)
def disk_bad_images(t):
    """Images, names, servers and a qemu-nbd that are no good: said at once, nothing left behind."""
    need(t, "qemu-nbd", "qemu-img")
    raw = t.dir / "raw.img"
    raw.write_bytes(noise(2, 7))
    qcow2 = convert(t, raw, "qcow2")
    (t.dir / "cut.qcow2").write_bytes(qcow2.read_bytes()[:60])
    (t.dir / "none.qcow2").write_bytes(bytes(65536))
    (t.dir / "junk.vmdk").write_bytes(bytes(65536))
    shutil.copy(qcow2, t.dir / "qcow2.img")
    shutil.copy(qcow2, t.dir / "qcow2")
    (t.dir / "raw.vdi").write_bytes(raw.read_bytes())
    shutil.copy(qcow2, t.dir / "orphan.qcow2")
    t.run("qemu-img", "rebase", "-u", "-f", "qcow2", "-b", "missing.raw", "-F", "raw",
          t.dir / "orphan.qcow2")
    (t.dir / "text.img").write_bytes(b"hello\n")
    stalled, refusing = Server(bytes(4096), t.dir / "stalled"), Server(bytes(4096), t.dir / "ref")
    odd_server = Server(bytes(4097), t.dir / "odd")
    stalled.stalled, refusing.refuse = True, True
    unix = f"nbd+unix:///?socket={t.dir}"
    for spec, text in ((f"{t.dir}/cut.qcow2", "cut.qcow2 as qcow2: .*qemu-nbd:|qcow2"),
                       (f"{t.dir}/none.qcow2", "does not begin like one of format qcow2"),
                       (f"{t.dir}/junk.vmdk", "does not begin like one of format vmdk"),
                       (f"{t.dir}/raw.vdi", "does not begin like one of format vdi"),
                       (f"{t.dir}/qcow2.img", "begins like one of format qcow2.*format=raw"),
                       (f"{t.dir}/qcow2", "begins like one of format qcow2"),
                       (f"{t.dir}/orphan.qcow2", "names the file .missing.raw.*,backing=on"),
                       (f"{t.dir}/orphan.qcow2,backing=on", "cannot open .*/missing.raw, which .*orphan"),
                       (f"{t.dir}/orphan.qcow2,backing=maybe", "backing is on or off"),
                       (f"{t.dir}/text.img", "has 6 bytes"),
                       (f"{t.dir}/raw.img,format=qcow2", "raw.img as qcow2: .*qcow2"),
                       (f"{t.dir}/raw.img,format=frob", "'frob' is none of: auto, raw, qcow2"),
                       (f"{t.dir}/raw.img,format=nbd", "'nbd' is none of"),
                       (f"{t.dir}/raw.img,format=", "format is NAME"),
                       (f"{t.dir}/raw.img,timeout=0", "number of SECONDS from 1"),
                       (f"{t.dir}/raw.img,timeout=x", "number of SECONDS from 1"),
                       (f"{unix}/nobody", "cannot open the disk nbd.unix.*No such file"),
                       (f"{unix}/stalled,timeout=1", "did not answer within 1 s"),
                       (f"{unix}/ref", "cannot open the disk nbd.unix"),
                       (f"{unix}/odd", "has 4097 bytes"),
                       (f"{unix}/ref,format=qcow2", "'qcow2' is not for an NBD server"),
                       ("nbd+unix:///?socket=here", "not absolute"),
                       ("nbd://127.0.0.1:1/x", "Connection refused"),
                       ("nbd+frob://x", "neither nbd://HOST"),
                       ("nbd:x", "neither nbd://HOST")):
        r = t.record("x", "--disk", spec, kernel=SPIN, code=ERROR)
        t.has(r.error, text, f"the message for {spec}")
        t.lacks(r.error, r"\n.", f"the message for {spec}")
        t.check(not (t.dir / "x").exists(), "a recording was left behind")
    missing = t.record("x", "--disk", qcow2, kernel=SPIN, code=ERROR, env={"PATH": t.dir})
    t.has(missing.error, "qemu-nbd, which reads qcow2 images, is not installed.*qemu-utils")
    for name, text, why in (("says", "#!/bin/sh\necho cannot today >&2\nexit 3\n", "cannot today"),
                            ("exits", "#!/bin/sh\nexit 3\n", "ended with status 3"),
                            ("no", "nothing that runs", "cannot start qemu-nbd: Exec format"),
                            ("hangs", "#!/bin/sh\nexec sleep 1000\n", "did not answer within 1 s")):
        r = t.record("x", "--disk", f"{qcow2},timeout=1", kernel=SPIN, code=ERROR,
                     env=shim(t, name, text))
        t.has(r.error, why, name)
    (t.dir / "dies").mkdir()
    shutil.copy(t.build / "tests" / "tools" / "confined", t.dir / "dies" / "qemu-nbd")
    r = t.record("x", "--disk", qcow2, kernel=SPIN, code=ERROR,
                 env={"PATH": f"{t.dir}/dies:{os.environ['PATH']}"})
    t.has(r.error, "ended by signal 4")
    for server in (stalled, refusing, odd_server):
        server.close()
    # Bytes that look like another format, on purpose; a comma in the name.
    comma = t.dir / "a,b.img"
    shutil.copy(qcow2, comma)
    size = os.path.getsize(qcow2) // 512 * 512
    os.truncate(comma, size)
    t.tiny("ok", "paging", "--disk", f"{t.dir}/a,,b.img,format=raw,serial=me")
    t.has(t.run(t.reprise, "disk", t.dir / "ok", "--json").text, r'"size":%d.*"format":"raw"' % size)
    t.replay("ok")


@test("disk/discard", cost=12)
def disk_discard(t):
    """A file system on a qcow2 disk with discard and write zeroes; checkpoints all along."""
    need(t, "qemu-nbd", "qemu-img", "mkfs.ext4", "e2fsck")
    disk = make_disk(t, "small.img", 24)
    image = convert(t, disk, "qcow2")
    r = t.linux("rec", "--disk", image, "--checkpoint-every", "0.3", append="quiet", script="""
        cat /sys/block/vda/queue/discard_max_bytes /sys/block/vda/queue/physical_block_size
        ls /sys/block/vda/mq
        mkdir -p /mnt; mount -t ext4 -o discard /dev/vda /mnt && cat /mnt/hello
        dd if=/dev/urandom of=/mnt/f bs=64k count=60 2>/dev/null; sync
        sha256sum </mnt/f
        rm /mnt/f; sync; fstrim /mnt; sync
        dd if=/dev/urandom of=/mnt/g bs=64k count=60 conv=fsync 2>/dev/null
        fallocate -l 4M /mnt/h
        umount /mnt; mount -t ext4 /dev/vda /mnt; sha256sum </mnt/g; umount /mnt
        """)
    t.has(r.text, "hello from the image")
    t.has(r.text, r"([0-9]+) bytes.*trimmed|^[0-9a-f]{64}  -")
    t.has(r.text, "^2147483648$")
    t.has(r.text, "^4096$")
    t.same("rec", r)
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 7, "--places", 10,
          "--moves", 25, timeout=300)
    t.run(t.reprise, "disk", t.dir / "rec", "export", "-o", t.dir / "end.img")
    t.run(tool("e2fsck"), "-fn", t.dir / "end.img")
