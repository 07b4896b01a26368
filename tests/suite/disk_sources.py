"""Which images a replay opens: none that only the recording names. Forged recordings, notes of one's
own recorder, images that the user names, changed images."""
import ctypes
import hashlib
import os
import re
import shutil
import socket
import stat

from suite.disk import make_disk, need
from suite.harness import DIVERGED, ERROR, IMAGES, USAGE, test

MIB = 1 << 20
READS = """
dd if=/dev/vda bs=64k count=4 2>/dev/null | sha256sum
echo DONE
"""
# Every command that builds the machine of a recording; what comes after it.
COMMANDS = [("replay",), ("replay", "--verify"), ("replay", "--quiet", "-o", "again"),
            ("replay", "--to", "end"), ("replay", "--gdb=unix:gdb.sock"), ("gdb", "--program", "true"),
            ("core", "-o", "vmcore"), ("symbols",), ("symbols", "-o", "guest.elf"),
            ("checkpoint",), ("trace", "--to", "10"), ("pcap", "-o", "x.pcapng"),
            ("gpu", "extract", "-o", "gpu.out"), ("events", "--from", "console:DONE")]
# ... and those that do not.
READERS = [("info",), ("info", "--json"), ("events",), ("disk",), ("disk", "--json")]


def make_image(t):
    image = t.dir / "image.raw"
    if not image.exists():
        image.write_bytes(os.urandom(MIB))
    return image


def record(t, name="rec", **more):
    """A guest that has a disk and does not look at it."""
    return t.tiny(name, "paging", "--disk", make_image(t), **more)


def record_linux(t, name="rec"):
    return t.linux(name, "--disk", make_image(t), script=READS, append="quiet")


def commands(t, name):
    """Runs them all on a recording whose disk is not to be had: each says so."""
    for command in COMMANDS:
        r = t.run(t.reprise, *command, t.dir / name, code=ERROR, timeout=30)
        t.has(r.error, r"disk 0 of the recording .*--disk 0=FILE", " ".join(command))
        t.lacks(r.error, "\x1b", " ".join(command))
    t.run(t.reprise, "disk", t.dir / name, "export", "-o", t.dir / "out", code=ERROR)
    for command in READERS:
        t.run(t.reprise, *command, t.dir / name)
    t.run(t.reprise, "diff", t.dir / name, t.dir / name)
    t.run(t.reprise, "checkpoint", "--remove", t.dir / name)


def forge(t, name, path, form="raw", number=0):
    shutil.rmtree(t.dir / name, ignore_errors=True)
    shutil.copytree(t.dir / "rec", t.dir / name)
    t.run(t.build / "tests" / "tools" / "disk_forge", t.dir / name, number, path, form)


class Opened:
    """Counts how often a file is opened, by anybody."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK)
        libc.inotify_add_watch(self.fd, os.fsencode(path), 0x20)  # IN_OPEN

    def count(self):
        try:
            return len(os.read(self.fd, 65536)) // 16
        except BlockingIOError:
            return 0


@test("disk/forged", cost=12)
def disk_forged(t):
    """A recording names a server, a private file, /proc, another format, a device: nothing of it is
    connected to or opened, by any command."""
    record(t)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0)
    private = t.dir / "private"
    private.write_bytes(b"secret" * 100000)
    seen = Opened(private)
    os.open(private, os.O_RDONLY)
    t.equal(seen.count(), 1, "the probe of the test itself")
    port = listener.getsockname()[1]
    names = [(f"nbd://127.0.0.1:{port}/x", "nbd"), (private, "raw"), (private, "qcow2")]
    for i, (path, form) in enumerate(names):
        forge(t, "forged", path, form)
        for command in COMMANDS if not i else COMMANDS[:2]:
            t.run(t.reprise, *command, t.dir / "forged", code=ERROR, timeout=30)
        commands(t, "forged")
        try:
            listener.accept()
            t.check(False, f"{path}: somebody connected")
        except BlockingIOError:
            pass
        t.equal(seen.count(), 0, f"{path}: times that the private file was opened")
    for path, form in (("/proc/self/fd/3/x.qcow2", "qcow2"), ("/dev/zero", "raw"),
                       ("x\x1b]0;title\x07", "raw"), ("/proc/self/fd/3/disks/0", "raw")):
        forge(t, "forged", path, form)
        r = t.replay("forged", code=ERROR)
        t.has(r.error, "is not opened only because a recording says so.*--disk 0=FILE")
        t.lacks(r.error, "[\x1b\x07]")
    return f"{len(COMMANDS)} commands"


@test("disk/strace", cost=6)
def disk_strace(t):
    """What a replay opens, seen from outside: the path and the server of a forged recording are in no
    system call."""
    need(t, "strace")
    record(t)
    for path, form in (("/nowhere/disk.img", "raw"), ("nbd://127.0.0.2:10809/x", "nbd"),
                       ("nbd+unix:///?socket=/nowhere/sock", "nbd")):
        forge(t, "forged", path, form)
        for command in COMMANDS:
            t.run("strace", "-f", "-qq", "-s", "300", "-o", t.dir / "calls", "-e",
                  "trace=%file,%network,execve", t.reprise, *command, t.dir / "forged", code=None)
            calls = (t.dir / "calls").read_text(errors="replace")
            if "ptrace" in calls or not calls:
                t.skip("strace does not work here")
            t.lacks(calls, "nowhere|127.0.0.2|AF_INET", " ".join(command))


@test("disk/named", cost=8)
def disk_named(t):
    """--disk N=FILE: of a recording by somebody else, of an image that was moved; its mistakes."""
    r = record_linux(t)
    image, moved = t.dir / "image.raw", t.dir / "a,b.img"
    stranger = {"XDG_STATE_HOME": str(t.dir / "stranger")}
    t.same("rec", r)
    t.has(t.replay("rec", code=ERROR, env=stranger).error, "--disk 0=FILE")
    image.rename(moved)
    t.has(t.replay("rec", code=ERROR).error, "image.raw.*if it is elsewhere now: --disk 0=FILE")
    named = f"--disk=0={str(moved).replace(',', ',,')}"
    for env in ({}, stranger):
        t.equal(t.replay("rec", named, env=env).out, r.out, "the console")
    t.run(t.reprise, "replay", "--to", "console:DONE", named, t.dir / "rec", env=stranger)
    t.run(t.reprise, "disk", t.dir / "rec", "export", named, "--disk", "0", "-o", t.dir / "out",
          env=stranger)
    t.equal((t.dir / "out").read_bytes(), moved.read_bytes(), "the export")
    t.run(t.reprise, "core", named, "-o", t.dir / "vmcore", t.dir / "rec", env=stranger)
    t.run(t.reprise, "checkpoint", named, t.dir / "rec", env=stranger)
    for wrong, text in (("0", "N=FILE"), ("4=x", "N=FILE"), ("=x", "N=FILE"), ("0=", "no name"),
                        ("0=x,readonly", "readonly"), ("0=x,serial=y", "serial")):
        t.has(t.replay("rec", "--disk", wrong, code=USAGE).error, text)
    t.replay("rec", named, named, code=USAGE)
    t.has(t.replay("rec", named, "--disk", f"1={image}", code=ERROR).error, "has 1 disk$")
    t.has(t.replay("rec", "--disk", f"0={image}", code=ERROR).error, "No such file")
    (t.dir / "short").write_bytes(bytes(4096))
    t.has(t.replay("rec", "--disk", f"0={t.dir}/short", code=ERROR).error, "4096 bytes, it had")


@test("disk/inside", cost=8)
def disk_inside(t):
    """DIR/disks/N is a disk that a recording carries; a link or anything else there is not opened."""
    r = record_linux(t)
    stranger = {"XDG_STATE_HOME": str(t.dir / "stranger")}
    rec, image = t.dir / "rec", t.dir / "image.raw"
    inside = rec / "disks" / "0"
    inside.parent.mkdir()
    shutil.copy(image, inside)
    t.equal(t.replay("rec", env=stranger).out, r.out, "the console")
    private = t.dir / "private"
    shutil.copy(image, private)
    seen = Opened(private)
    inside.unlink()
    inside.symlink_to(private)
    t.has(t.replay("rec", code=ERROR).error, "link or not a regular file")
    inside.unlink()
    os.link(private, inside)
    t.has(t.replay("rec", code=ERROR).error, "link or not a regular file")
    seen.count()  # opened by that name, and closed again
    inside.unlink()
    os.mkfifo(inside)
    t.has(t.replay("rec", code=ERROR).error, "link or not a regular file")
    inside.unlink()
    inside.parent.rmdir()
    inside.parent.symlink_to(t.dir)  # the whole folder
    shutil.copy(image, t.dir / "0")
    t.has(t.replay("rec", code=ERROR, env=stranger).error, "--disk 0=FILE")
    t.equal(seen.count(), 0, "times that the private file was opened")
    # The other files of a recording are no links either.
    for name in ("machine.dtb", "log"):
        (rec / name).rename(t.dir / name)
        (rec / name).symlink_to(t.dir / name)
        t.has(t.run(t.reprise, "info", rec, code=ERROR).error, name)
        (rec / name).unlink()
        (t.dir / name).rename(rec / name)
    t.replay("rec")


@test("disk/noted", cost=8)
def disk_noted(t):
    """What the recorder noted: for the recording wherever it is, for no other; not believed when
    others could have written it; kept for a limited number; missing without harm."""
    state = t.dir / "state"
    env = {"XDG_STATE_HOME": str(state)}
    r = record(t, env=env)
    notes = state / "reprise" / "disks"
    t.equal([oct(p.stat().st_mode & 0o777) for p in (state, state / "reprise", notes)],
            ["0o700"] * 3, "modes")
    note, = notes.iterdir()
    t.equal(stat.S_IMODE(note.stat().st_mode), 0o600, "the note's mode")
    t.equal(t.replay("rec", env=env).out, r.out, "the console")
    # Elsewhere, and a copy of it.
    shutil.copytree(t.dir / "rec", t.dir / "copy")
    (t.dir / "rec").rename(t.dir / "moved")
    for name in ("moved", "copy"):
        t.replay(name, env=env)
    t.run(t.reprise, "replay", "--quiet", "-o", t.dir / "rec", t.dir / "copy", env=env)
    t.replay("rec", env=env)
    # Not when it was changed after it was recorded, be it back to what it was noted with.
    forge(t, "forged", t.dir / "image.raw", "raw", 0)
    t.replay("forged", env=env)  # nothing changed
    forge(t, "forged", t.dir / "other.raw")
    t.has(t.replay("forged", code=ERROR, env=env).error, "--disk 0=FILE")
    # Notes that somebody else could have written.
    text = note.read_bytes()
    forged = text.replace(b"image.raw", b"other.raw")
    (t.dir / "other.raw").write_bytes((t.dir / "image.raw").read_bytes())
    seen = Opened(t.dir / "other.raw")

    def refused(why):
        error = t.replay("rec", code=ERROR, env=env).error
        t.has(error, "--disk 0=FILE")
        t.has(error, why)
    note.chmod(0o622)
    refused("written by others")
    note.chmod(0o600)
    notes.chmod(0o777)
    refused("written by others")
    notes.chmod(0o700)
    os.link(note, t.dir / "second")
    refused("more than one name")
    (t.dir / "second").unlink()
    note.unlink()
    (t.dir / "forged-note").write_bytes(forged)
    note.symlink_to(t.dir / "forged-note")
    refused("symbolic links")
    note.unlink()
    for bad in (b"", b"x", text[:-1], text + b"\n", forged.replace(b"format=raw", b"format=frob"),
                forged.replace(b"backing=0", b"backing=2"), forged.replace(b"file=/", b"file=")):
        note.write_bytes(bad)
        note.chmod(0o600)
        refused("line [0-9]+ is not what a recorder writes")
    note.unlink()
    if os.geteuid() == 0:
        note.write_bytes(forged)
        note.chmod(0o644)
        os.chown(note, 12345, 12345)
        refused("another user")
        note.unlink()
    (state / "reprise").rename(t.dir / "elsewhere")
    (state / "reprise").symlink_to(t.dir / "elsewhere")
    error = t.replay("rec", code=ERROR, env=env).error
    t.has(error, "--disk 0=FILE")
    t.equal(seen.count(), 0, "times that the other image was opened")
    (state / "reprise").unlink()
    (t.dir / "elsewhere").rename(state / "reprise")
    note.write_bytes(text)
    note.chmod(0o600)
    t.replay("rec", env=env)
    # A thousand are kept: the others go, those not used for longest first.
    for i in range(1005):
        old = notes / f"{i:064x}"
        old.touch()
        os.utime(old, (i, i))
    t.equal(len(list(notes.iterdir())), 1006, "notes")
    record(t, "last", env=env)
    left = sorted(p.name for p in notes.iterdir())
    t.equal(len(left), 1000, "notes left")
    t.check(note.name in left and f"{0:064x}" not in left and f"{1004:064x}" in left, "the oldest")


@test("disk/no-state", cost=4)
def disk_no_state(t):
    """Nowhere to note it: said once, and recorded all the same."""
    (t.dir / "file").touch()
    places = [{"XDG_STATE_HOME": "", "HOME": ""}, {"XDG_STATE_HOME": "relative", "HOME": ""},
              {"XDG_STATE_HOME": str(t.dir / "file")}, {"XDG_STATE_HOME": "", "HOME": "/nowhere"}]
    image = t.dir / "image.raw"
    image.write_bytes(bytes(MIB))
    for i, env in enumerate(places):
        r = t.tiny(f"rec{i}", "paging", "--disk", image, env=env)
        t.equal(len(re.findall("cannot be noted: .*--disk 0=FILE", r.error)), 1, "warnings")
        t.has(t.replay(f"rec{i}", code=ERROR, env=env).error, "--disk 0=FILE")
        t.replay(f"rec{i}", "--disk", f"0={image}", env=env)
    t.lacks(t.tiny("none", "paging", env=places[0]).error, "noted")
    # With a home there is a place.
    env = {"XDG_STATE_HOME": "", "HOME": str(t.dir)}
    t.lacks(t.tiny("home", "paging", "--disk", image, env=env).error, "noted")
    t.equal(len(list((t.dir / ".local/state/reprise/disks").iterdir())), 1, "notes")
    t.replay("home", env=env)


@test("disk/without-id", cost=4)
def disk_without_id(t):
    """A recording of an older version has no id: its images are named by the user."""
    image = t.dir / "image.raw"
    image.write_bytes(bytes(MIB))
    t.tiny("rec", "paging", "--disk", image)
    t.replay("rec")
    t.run(t.build / "tests" / "tools" / "disk_forge", t.dir / "rec", 0, image, "raw", MIB, "old")
    t.has(t.replay("rec", code=ERROR).error, "image.raw.*--disk 0=FILE")
    t.replay("rec", "--disk", f"0={image}")


def qcow2(t, path, backing, form="raw", data=None):
    """An image of 1 MiB that names a backing file, without looking whether it is there."""
    options = ("-o", f"data_file={data},data_file_raw=on") if data else ("-u", "-b", backing, "-F", form)
    t.run("qemu-img", "create", "-q", "-f", "qcow2", *options, path, "1M")
    return path


@test("disk/backing", cost=14)
def disk_backing(t):
    """Files that an image names are read if the user says backing=on, and only files; the replay of
    one's own recording knows, somebody else has to say."""
    need(t, "qemu-nbd", "qemu-img")
    base = make_image(t)
    data = base.read_bytes()
    (t.dir / "sub").mkdir()
    qcow2(t, t.dir / "sub" / "middle.qcow2", "../image.raw")
    top = qcow2(t, t.dir / "top.qcow2", "sub/middle.qcow2", "qcow2")
    plain = qcow2(t, t.dir / "plain.qcow2", "file:" + str(base))
    external = qcow2(t, t.dir / "external.qcow2", None, data="data.raw")
    t.run("qemu-img", "create", "-q", "-f", "vmdk", "-o", "subformat=monolithicFlat",
          t.dir / "flat.vmdk", "1M")
    t.run("qemu-img", "create", "-q", "-f", "qed", "-u", "-b", base, "-F", "raw", t.dir / "top.qed",
          "1M")
    seen = Opened(base)
    spin = {"kernel": IMAGES / "tiny" / "spin.elf", "code": ERROR}
    for image, name in ((top, "sub/middle.qcow2"), (plain, "image.raw"), (external, "data.raw"),
                        (t.dir / "flat.vmdk", "flat-flat.vmdk"), (t.dir / "top.qed", "image.raw")):
        error = t.record("x", "--disk", image, **spin).error
        t.has(error, f"names the file .*{name}.*add ,backing=on")
        t.lacks(error, r"\n.")
    t.equal(seen.count(), 0, "times that the backing file was opened")
    specs = [f"{i},backing=on" for i in (top, external, f"{t.dir}/flat.vmdk", f"{t.dir}/top.qed")]
    disks = [x for s in specs for x in ("--disk", s)]
    r = t.linux("rec", *disks, append="quiet", script="for d in a b c d; do sha256sum </dev/vd$d; done")
    zeros = hashlib.sha256(bytes(MIB)).hexdigest()
    t.equal(re.findall("^([0-9a-f]{64})  -", r.text, re.M),
            [hashlib.sha256(data).hexdigest(), zeros, zeros, hashlib.sha256(data).hexdigest()], "disks")
    t.same("rec", r)
    stranger = {"XDG_STATE_HOME": str(t.dir / "stranger")}
    named = [f"--disk={i}={s}" for i, s in enumerate(specs)]
    t.equal(t.replay("rec", *named, env=stranger).out, r.out, "the console")
    named[0] = f"--disk=0={top}"
    t.has(t.replay("rec", *named, code=ERROR, env=stranger).error, "backing=on")
    # Other things than files, however they are called; a chain without an end.
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0)
    port = server.getsockname()[1]
    (t.dir / "folder").mkdir()
    for name, text in ((f"nbd://127.0.0.1:{port}/x", "no name of a file"),
                       (f"nbd:127.0.0.1:{port}", "no name of a file"),
                       ('json:{"driver":"nbd","host":"127.0.0.1","port":"%d"}' % port,
                        "no name of a file"),
                       (f"http://127.0.0.1:{port}/x", "no name of a file"),
                       ("fat:folder", "no name of a file"), (t.dir / "folder", "neither a file"),
                       ("/dev/zero", "neither a file"), ("loop.qcow2", "more than 64 files"),
                       ("none", "cannot open .*/none, which .*loop.qcow2 names")):
        qcow2(t, t.dir / "loop.qcow2", name, "qcow2" if name == "loop.qcow2" else "raw")
        t.has(t.record("x", "--disk", f"{t.dir}/loop.qcow2,backing=on", **spin).error, text, str(name))
    try:
        server.accept()
        t.check(False, "somebody connected")
    except BlockingIOError:
        pass


@test("disk/confined", cost=8)
def disk_confined(t):
    """What reads images for us can open nothing else and has no network: a stand-in for qemu-nbd tries."""
    need(t, "qemu-nbd", "qemu-img")
    for name in ("base.raw", "other.raw"):
        (t.dir / name).write_bytes(bytes(MIB))
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0)
    local = socket.socket(socket.AF_UNIX)
    local.bind(str(t.dir / "sock"))
    local.listen()
    local.settimeout(0)
    datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    datagrams.bind(str(t.dir / "datagrams"))
    datagrams.settimeout(0)
    tries = t.dir / "bin" / "qemu-nbd"
    tries.parent.mkdir()
    shutil.copy(t.build / "tests" / "tools" / "confined", tries)
    env = {"PATH": f"{tries.parent}:{os.environ['PATH']}"}
    for name in ("grub-fstest", "qemu-img"):
        shutil.copy(tries, tries.parent / name)
    port = server.getsockname()[1]
    image = qcow2(t, t.dir / f"image-{port}.qcow2", t.dir / "base.raw")
    abi = int(t.run(t.build / "tests" / "tools" / "confined", "--abi").text)
    wanted = {"image": "yes", "backing": "yes", "other": "no" if abi else "yes", "list": "no" if abi else
              "yes", "write": "no" if abi else "yes", "tcp": "no", "unix": "no", "uring": "no",
              "pair": "no", "address": "no", "owner": "no", "limits": "no", "parent": "no", "core": "0"}
    if not abi:
        t.log.write("this kernel has no Landlock\n")
    error = t.record("x", "--disk", f"{image},backing=on", kernel=IMAGES / "tiny" / "spin.elf",
                     code=ERROR, env=env).error
    got = dict(re.findall(r"(\w+)=(\w+)", error[error.index("tried:"):]))
    t.equal(got, wanted, "what it can do")
    for listener in (server, local):
        try:
            listener.accept()
            t.check(False, "somebody connected")
        except BlockingIOError:
            pass
    try:
        t.check(not datagrams.recv(1), "somebody sent")
    except BlockingIOError:
        pass
    # The programs that find a boot entry, too.
    raw = t.dir / f"image-{port}.raw"
    raw.write_bytes(bytes(MIB))
    wanted["backing"] = wanted["other"]
    wanted["list"] = "yes"  # GRUB lists "/"
    error = t.run(t.reprise, "record", "-o", t.dir / "x", "--kernel", "auto", "--disk", raw, code=ERROR,
                  env=env).error
    got = dict(re.findall(r"(\w+)=(\w+)", error[error.index("tried:"):]))
    t.equal(got, wanted, "what grub-fstest can do")
    return f"Landlock {abi}"


MOUNTS = """
mkdir /mnt
mount /dev/vda /mnt && ls /mnt && cat /mnt/hello
echo DONE
"""


@test("disk/suspected", cost=14)
def disk_suspected(t):
    """An image that was changed is named, with its file: by size and date before the replay, and where
    the replay differs, be it in something else than the disk; touching it is no harm."""
    need(t, "mkfs.ext4")
    image = make_disk(t, mib=8)
    r = t.linux("rec", "--disk", image, script=MOUNTS, append="quiet")
    t.has(r.text, "hello from the image")
    before, good = os.stat(image), image.read_bytes()
    t.lacks(t.same("rec", r).error, "disk 0")
    told = f"disk 0: {re.escape(str(image))} has changed since it was recorded " \
        r"\(modified 2001-09-09 0[0-9]:46:40\)"
    os.utime(image, (1000000000, 1000000000))
    t.has(t.same("rec", r, env={"TZ": "UTC"}).error, "^reprise: " + told.replace("0[0-9]", "01"))
    t.has(t.run(t.reprise, "replay", "--to", "insn:1000", t.dir / "rec").error, told)
    # Another file system in its place: the guest goes another way at once.
    image.write_bytes(bytes(20480) + good[20480:])
    os.utime(image, (1000000000, 1000000000))
    for command in (("replay",), ("replay", "--verify"), ("replay", "--to", "end"), ("core", "-o", "x")):
        error = t.run(t.reprise, *command, t.dir / "rec", code=DIVERGED).error
        t.has(error, "^reprise: " + told, " ".join(command))
        t.has(error, "the replay diverged .*" + told, " ".join(command))
    # As old as it was: nothing is seen before, and the digest tells.
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns))
    error = t.replay("rec", code=DIVERGED).error
    t.lacks(error, "has changed since it was recorded .mod")
    # Named by somebody who has no note: its reads are what differs.
    stranger = {"XDG_STATE_HOME": str(t.dir / "stranger")}
    error = t.replay("rec", "--disk", f"0={image}", code=DIVERGED, env=stranger).error
    t.has(error, f"the replay diverged .*disk 0, {image}, was read since they last agreed")
    # Of another size.
    image.write_bytes(good[:-512])
    t.has(t.replay("rec", code=ERROR).error, "disk.img has .* bytes, it had")


@test("disk/suspected-file", cost=5)
def disk_suspected_file(t):
    """The file of an image in another format has another size: said, and what is in it decides."""
    need(t, "qemu-nbd", "qemu-img")
    raw = make_image(t)
    image = t.dir / "image.qcow2"
    t.run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image)
    t.tiny("rec", "paging", "--disk", image)
    with open(image, "ab") as f:
        f.write(bytes(65536))
    t.has(t.replay("rec").error, r"disk 0: .*image.qcow2 has changed since it was recorded \([0-9]+ bytes "
          "then, [0-9]+ now; modified ")
