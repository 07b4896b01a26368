"""Packed recordings: one file that replays where nothing else of it is left, and hostile ones."""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import tarfile

from suite.disk import make_disk, need
from suite.harness import DAMAGE, ERROR, FINE, IMAGES, USAGE, Session, killed_typed, rnd, test
from suite.share import MOUNT, guest

MIB = 1 << 20
READS = """
mkdir -p /mnt; mount -t ext4 /dev/vda /mnt; cat /mnt/hello; echo written >/mnt/new; sync
dd if=/dev/vda bs=512 skip=40 count=3 2>/dev/null | sha256sum
echo DONE
"""


def pack(t, name, *options, to=None, code=0, **more):
    to = to or name + ".reprise"
    return t.run(t.reprise, "pack", t.dir / name, "-o", t.dir / to, *options, code=code, **more)


def unpack(t, name, to, *options, code=0):
    return t.run(t.reprise, "unpack", t.dir / name, "-o", t.dir / to, *options, code=code)


def identity(t, name):
    return json.loads(t.run(t.reprise, "verify", "--no-replay", "--json", t.dir / name).text.splitlines()[0])["identity"]


def clean_root(t):
    """A directory with the program, its libraries and an empty /dev/null: all that a chroot will have."""
    root = t.dir / "root"
    (root / "dev").mkdir(parents=True)
    (root / "tmp").mkdir()
    (root / "dev/null").write_bytes(b"")
    for path in re.findall(r"(/\S+) \(0x", t.run("ldd", t.reprise).text):
        to = root / path.lstrip("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, to)
    shutil.copy(t.reprise, root / "reprise")
    return root


@test("pack/clean", cost=8)
def clean(t):
    """Replayed in a chroot with the program, its libraries and the pack; all else of it is gone. Its listing is
    tar's."""
    listing = t.tiny("rec", "paging")
    said = pack(t, "rec")
    t.has(said.text, r"^.*rec\.reprise: .* in \d files$")
    names = t.run("tar", "tf", t.dir / "rec.reprise").text.split()
    t.equal((names[0], names[-1]), ("machine.dtb", "manifest"), "the first and the last in it")
    t.check("log.zst" in names, "there is a log in it")
    t.equal((t.dir / "rec.reprise").stat().st_mode & 0o777, 0o600, "the pack's mode")
    whole = identity(t, "rec")
    t.equal(identity(t, "rec.reprise"), whole, "its identity")
    # As any tar and zstd unpack it, too.
    (t.dir / "byhand").mkdir()
    t.run("tar", "xf", t.dir / "rec.reprise", "-C", t.dir / "byhand")
    need(t, "zstd")
    t.run("zstd", "-dq", "--rm", *(t.dir / "byhand").rglob("*.zst"))
    (t.dir / "byhand" / "manifest").unlink()
    t.equal(identity(t, "byhand"), whole, "its identity, by hand")
    shutil.rmtree(t.dir / "rec")
    t.same("rec.reprise", listing)
    if os.getuid() or subprocess.run(["unshare", "--mount", "true"], capture_output=True).returncode:
        t.skip("no root, or no mount namespaces, so no chroot; all else was checked")
    root = clean_root(t)
    shutil.copy(t.dir / "rec.reprise", root / "rec.reprise")
    r = t.run("unshare", "--mount", "chroot", root, "/reprise", "replay", "--verify", "/rec.reprise",
              env={"HOME": "/nowhere", "XDG_STATE_HOME": "/nowhere"})
    t.equal(r.out, listing.out, "the console in the chroot")
    t.has(r.error, "replayed without a difference")


@test("pack/commands", cost=12)
def commands(t):
    """Every command takes the file, and prints what it prints of the directory; those that write say no."""
    t.tiny("rec", "paging")
    pack(t, "rec")
    for command in (["info"], ["info", "--json"], ["events"], ["events", "--json"], ["disk"],
                    ["trace", "--to", "5"], ["replay", "--to", "insn:1000", "--regs"]):
        one, two = (t.run(t.reprise, *command, t.dir / n) for n in ("rec", "rec.reprise"))
        said = re.sub(r"^packed .*\n", "", two.text.replace("rec.reprise", "rec"))
        said = re.sub(r"\npacked .*", "", re.sub(r'"packed_bytes":\d+', '"packed_bytes":0', said))
        t.equal(said, one.text, " ".join(command))
    t.has(t.run(t.reprise, "info", t.dir / "rec.reprise").text, r"^packed +[\d.]+ KiB$")
    t.run(t.reprise, "diff", t.dir / "rec", t.dir / "rec.reprise")
    t.run(t.reprise, "core", "-o", t.dir / "core", t.dir / "rec.reprise")
    t.run(t.reprise, "gdb", "--program", "true", t.dir / "rec.reprise")
    t.run(t.reprise, "replay", "--quiet", "-o", t.dir / "again", t.dir / "rec.reprise")
    t.run(t.reprise, "record", "--from", t.dir / "rec.reprise", "--at", "insn:1000", "-o", t.dir / "on")
    t.run(t.reprise, "verify", t.dir / "on", timeout=300)
    r = t.run(t.reprise, "gpu", "list", t.dir / "rec.reprise", code=ERROR)
    t.has(r.error, r"there is no gpu\.log in it")
    t.tiny("drawn", "gpu", "--gpu", "2d")
    pack(t, "drawn")
    for command in (["gpu", "list"], ["replay", "--to", "end"]):
        one, two = (t.run(t.reprise, *command, t.dir / n) for n in ("drawn", "drawn.reprise"))
        t.check(one.out, "there is something to compare")
        t.equal(two.text.replace("drawn.reprise", "drawn"), one.text, " ".join(command))
    before = (t.dir / "rec.reprise").read_bytes()
    t.run("openssl", "genpkey", "-algorithm", "ed25519", "-out", t.dir / "key.pem")
    for command in (["checkpoint"], ["checkpoint", "--remove"], ["sign", "--key", t.dir / "key.pem"]):
        r = t.run(t.reprise, *command, t.dir / "rec.reprise", code=ERROR)
        t.has(r.error, "is packed, and stays as it is: `reprise unpack`", command[0])
    t.check((t.dir / "rec.reprise").read_bytes() == before, "the pack is as it was")
    # There and back, and what is packed is packed again: the same bytes.
    unpack(t, "rec.reprise", "back")
    t.equal(identity(t, "back"), identity(t, "rec"), "what was unpacked")
    for name in ("back", "rec.reprise"):
        pack(t, name, to="twice")
        t.check((t.dir / "twice").read_bytes() == before, f"{name} packed again is the same")
        (t.dir / "twice").unlink()
    # Checkpoints where they are asked for, and a signature.
    t.tiny("spun", "spin", "--max-insns", 5000000, "--checkpoint-every", "0.001")
    t.run(t.reprise, "sign", "--key", t.dir / "key.pem", t.dir / "spun")
    t.has(pack(t, "spun").text, "^left out: checkpoints, which `reprise checkpoint` makes$")
    t.equal(t.info("spun.reprise")["checkpoints"], 0, "checkpoints")
    pack(t, "spun", "--checkpoints", "--force")
    t.verify_checkpoints("spun.reprise")
    t.check(t.info("spun.reprise")["checkpoints"] > 0, "there are checkpoints")
    r = t.run(t.reprise, "verify", "--key", t.dir / "key.pem", t.dir / "spun.reprise", timeout=300)
    t.has(r.text, "^signature +right, by the key")
    t.has(r.text, r"^pack +\d+ files, hashes right$")


@test("pack/usage", cost=2)
def usage(t):
    t.tiny("rec", "paging")
    for argv in (["pack", t.dir / "rec"], ["pack", t.dir / "rec", "-o", "x", "--disks", "some"],
                 ["pack", t.dir / "rec", "-o", "x", "--redact", "--checkpoints"], ["unpack"],
                 ["unpack", t.dir / "rec"]):
        t.run(t.reprise, *argv, code=USAGE)
    pack(t, "rec")
    t.has(pack(t, "rec", code=ERROR).error, "is there already; --force")
    pack(t, "rec", "--force")
    t.has(unpack(t, "rec", "out", code=ERROR).error, "is a directory, and not packed")
    t.has(unpack(t, "rec.reprise", "rec", code=ERROR).error, "exists already")
    unpack(t, "rec.reprise", "rec", "--force")
    said = json.loads(pack(t, "rec", "--force", "--json").text)
    t.equal(said["bytes"], (t.dir / "rec.reprise").stat().st_size, "bytes, as JSON says")


@test("pack/disks", cost=25)
def disks(t):
    """Of a disk what a replay reads is in it, and no more; images that moved are found by what is in them, and
    one that has changed is refused."""
    image = make_disk(t)
    data = bytearray(image.read_bytes())
    secret = b"not read by anybody" * 20
    at = data.rfind(bytes(65536)) // 4096 * 4096 + 4096  # free blocks of it
    data[at:at + len(secret)] = secret
    image.write_bytes(data)
    recorded = t.linux("rec", "--disk", image, script=READS, append="quiet")
    t.has(pack(t, "rec").text, r"^disk 0: .* of it \(read\)$")
    t.has(pack(t, "rec", "--disks", "none", to="none.reprise").text, r"^disk 0: 0 B of it \(none\)$")
    pack(t, "rec", "--disks", "all", to="all.reprise")
    elsewhere = t.dir / "elsewhere"
    elsewhere.mkdir()
    image.rename(elsewhere / "another-name")
    other = bytearray(data)
    other[1024 + 120] ^= 1  # in the superblock, which is read
    (elsewhere / "changed").write_bytes(other)
    t.same("rec.reprise", recorded)
    unpack(t, "rec.reprise", "back")
    t.run(t.reprise, "replay", "--to", "console:hello", t.dir / "back")
    t.check(secret not in (t.dir / "back/disks/pages").read_bytes(), "what nobody read is not in it")
    r = t.run(t.reprise, "disk", t.dir / "rec.reprise", "export", "-o", t.dir / "x", code=ERROR)
    t.has(r.error, r"is not in the pack, which has what the recording's replay reads \(`pack --disks all`")
    t.run(t.reprise, "disk", t.dir / "all.reprise", "export", "--at", "insn:0", "-o", t.dir / "x")
    t.check((t.dir / "x").read_bytes() == data, "all of the image is in the other")
    (t.dir / "x").unlink()
    # Without its blocks.
    t.has(t.replay("none.reprise", code=ERROR).error, r"--disk \d=FILE, or --disk-path DIR")
    r = t.run(t.reprise, "replay", "--to", "insn:1000", "--disk-path", elsewhere, t.dir / "none.reprise")
    t.has(r.error, r"disk 0: .*/another-name, found by what is in it")
    r = t.replay("none.reprise", "--disk", f"0={elsewhere}/changed", code=ERROR)
    t.has(r.error, r"changed has changed: the page at byte 0 is not what was read there")
    (t.dir / "beside").mkdir()
    shutil.copy(t.dir / "none.reprise", t.dir / "beside")
    shutil.copy(elsewhere / "changed", t.dir / "beside")
    r = t.replay("beside/none.reprise", code=ERROR)
    t.has(r.error, r"beside/changed is not the image as it was recorded")
    shutil.copy(elsewhere / "another-name", t.dir / "beside")
    t.same("beside/none.reprise", recorded)
    # Of a file that nobody named no more is read than what the recording knows.
    r = t.run(t.reprise, "disk", t.dir / "beside/none.reprise", "export", "-o", t.dir / "x", code=ERROR)
    t.has(r.error, "is not in the pack")
    # A directory whose image has moved: by its name.
    t.has(t.replay("rec", code=ERROR).error, "--disk-path DIR")
    (elsewhere / "another-name").rename(elsewhere / image.name)
    t.run(t.reprise, "replay", "--to", "insn:1000", "--disk-path", elsewhere, t.dir / "rec")
    # Another recording that begins in the pack is complete.
    t.run(t.reprise, "record", "--from", t.dir / "rec.reprise", "--at", "console:hello", "-o", t.dir / "on.reprise")
    shutil.rmtree(elsewhere)
    shutil.rmtree(t.dir / "beside")
    t.run(t.reprise, "verify", t.dir / "on.reprise", timeout=300)


@test("pack/redact", cost=10)
def redact(t):
    """What a replay can do without is not in it, and what is still in it is said."""
    d = t.dir / "private-name"
    d.mkdir()
    (d / "one").write_text("first")
    s = Session(t, "rec", "--memory", "16M", kernel=IMAGES / "tiny" / "echo.elf")
    s.wait("\n")
    s.send("hunter2\n")
    s.wait("hunter2")
    s.send("\x01x")
    s.finish()
    typed = pack(t, "rec", "--redact")
    t.has(typed.text, "^left out: notes of the log: date, host, command; marks$")
    t.has(typed.text, "^still in it: 8 bytes typed on the console$")
    t.equal(json.loads(pack(t, "rec", "--redact", "--force", "--json").text)["kept"]["typed"], 8, "typed, in JSON")
    guest(t, "share", MOUNT + "cat /mnt/one", d)
    said = json.loads(pack(t, "share", "--redact", "--json").text)["kept"]
    data = [e for e in t.events("share") if e["type"] in ("share", "content")]
    t.equal(said["contents"], sum(e["type"] == "content" for e in data), "reads of shared files")
    t.equal(said["content_bytes"], sum(e["size"] for e in data if e["type"] == "content"), "bytes in these")
    t.check(said["share_bytes"] > 100, "what the share said of files")
    for name in ("rec.reprise", "share.reprise"):
        t.run(t.reprise, "verify", t.dir / name, timeout=300)
        info = t.run(t.reprise, "info", t.dir / name).text + t.run(t.reprise, "events", t.dir / name).text
        t.lacks(info, "private-name|hunter2.*command|began|/build/images")
        unpack(t, name, name + "-all")
        for path in (t.dir / (name + "-all")).rglob("*"):
            if path.is_file():
                t.check(os.fsencode(t.dir) not in path.read_bytes(), f"no name of this host in {path.name}")


@test("pack/begun", cost=12)
def begun(t):
    """A recording that began in another one has all that the other read of files; its pack has what its own
    replay reads."""
    d = t.dir / "dir"
    d.mkdir()
    early, late = rnd.randbytes(10000), rnd.randbytes(10000)  # LZ4 leaves them as they are
    (d / "early").write_bytes(early)
    (d / "late").write_bytes(late)
    guest(t, "rec", MOUNT + "cat /mnt/early | sha256sum; echo BETWEEN; cat /mnt/late | sha256sum", d)
    t.run(t.reprise, "record", "--from", t.dir / "rec", "--at", "console:BETWEEN", "--max-insns", "1000", "-o", t.dir / "on",
          code=None)
    t.check(late[:100] in (t.dir / "on/contents").read_bytes(), "the directory has what came later")
    t.has(pack(t, "on", code=(FINE, DAMAGE)).text, r"^left out: \d+ pieces of files that its replay does not read$")
    unpack(t, "on.reprise", "back")
    kept = (t.dir / "back/contents").read_bytes()
    t.check(early[:100] in kept and late[:100] not in kept, "its pack has what it reads")
    shutil.rmtree(d)
    t.run(t.reprise, "verify", t.dir / "on.reprise", timeout=300)


@test("pack/record", cost=8)
def record(t):
    """`record -o FILE.reprise`; a signal ends it as ever; where it cannot be packed the directory stays."""
    r = t.tiny("rec.reprise", "paging")
    t.has(r.error, r"reprise replay .*/rec\.reprise$")
    t.check((t.dir / "rec.reprise").is_file() and not (t.dir / "rec.reprise.recording").exists(), "a file is left")
    t.same("rec.reprise", r)
    t.has(t.tiny("rec.reprise", "paging", code=ERROR).error, "exists already; --force")
    t.tiny("rec.reprise", "paging", "--force")
    s = Session(t, "ended.reprise", "--memory", "16M", kernel=IMAGES / "tiny" / "echo.elf")
    s.wait("\n")
    s.child.send_signal(signal.SIGTERM)
    s.finish()
    t.replay("ended.reprise")
    # No room for the pack, which has to be in a directory of its own for that: nothing is lost.
    s = Session(t, "kept.reprise", "--memory", "16M", kernel=IMAGES / "tiny" / "echo.elf")
    s.wait("\n")
    (t.dir / "kept.reprise").write_bytes(b"somebody else's")
    s.child.send_signal(signal.SIGTERM)
    s.finish(code=ERROR)
    t.has(s.err.decode(), r"not packed; the recording is .*kept\.reprise\.recording, `reprise pack` packs it")
    t.replay("kept.reprise.recording")
    t.equal((t.dir / "kept.reprise").read_bytes(), b"somebody else's", "what was there")
    (t.dir / "rec2.reprise.recording").mkdir()
    t.has(t.tiny("rec2.reprise", "paging", code=ERROR).error, "a recording that was not packed")


@test("pack/full", cost=3)
def full(t):
    """A disk that is full in between: no file, and the recording as it was. And a recorder that was killed."""
    t.tiny("rec", "paging")
    before = {p: p.read_bytes() for p in (t.dir / "rec").rglob("*") if p.is_file()}
    pack(t, "rec")
    size = (t.dir / "rec.reprise").stat().st_size
    (t.dir / "rec.reprise").unlink()
    for limit in (300, size // 2, size - 600):
        r = pack(t, "rec", code=ERROR, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        t.has(r.error, r"cannot write .*rec\.reprise")
        t.equal([p.name for p in t.dir.glob("*reprise*")], [], "files that are left")
    t.check(all(p.read_bytes() == data for p, data in before.items()), "the recording is as it was")
    killed_typed(t, "killed", ["one", "two"])
    said = t.run(t.reprise, "replay", t.dir / "killed", code=DAMAGE)
    pack(t, "killed", code=DAMAGE)
    t.equal(t.run(t.reprise, "replay", t.dir / "killed.reprise", code=DAMAGE).out, said.out, "the replay")


# ---- hostile ones ----

class Archive:
    """A pack taken apart, to be put together otherwise."""

    def __init__(self, path):
        self.members = [(m.name, tarfile.open(path).extractfile(m).read()) for m in tarfile.open(path)]

    def write(self, path, members=None, end=bytes(1024)):
        out = b""
        for name, data, *more in members or self.members:
            info = tarfile.TarInfo(name)
            info.type = more[0] if more else tarfile.REGTYPE
            info.linkname = "/etc/passwd" if more else ""
            info.size = len(data)
            out += info.tobuf(tarfile.USTAR_FORMAT) + data + bytes(-len(data) % 512)
        path.write_bytes(out + end)

    def but(self, name, data):
        return [(n, data if n == name else d) for n, d in self.members]


@test("pack/hostile", cost=20)
def hostile(t):
    """Archives of somebody else's making: each is refused with words, by every command, and nothing is written
    outside."""
    need(t, "zstd")
    t.tiny("rec", "paging")
    pack(t, "rec")
    good = Archive(t.dir / "rec.reprise")
    parts = dict(good.members)
    manifest = parts["manifest"].decode()
    kernel = next(n for n in parts if n.startswith("files/"))
    bad = t.dir / "bad.reprise"
    table = struct.pack("<II", 0x184d2a5e, 17)

    def bomb(size, packed=None):
        frame = packed or parts["log.zst"][:20]
        return frame + table + struct.pack("<II", len(frame), size) + struct.pack("<IBI", 1, 0, 0x8f92eab1)

    first, rest, last = good.members[:1], good.members[1:-1], good.members[-1:]
    cases = [
        (first + [("../out.zst", b"x")] + rest + last, r"'\.\./out\.zst' in it, which no recording has"),
        (first + [("/etc/x.zst", b"x")] + rest + last, "which no recording has"),
        (first + [("files/../../x.zst", b"x")] + rest + last, "which no recording has"),
        (first + [("files/" + "0" * 32, b"x")] + rest + last, "which no recording has"),
        (first + [("log.zst", b"", tarfile.SYMTYPE)] + rest + last, "'log.zst' in it is a symbolic link"),
        (first + [("log.zst", b"", tarfile.LNKTYPE)] + rest + last, "'log.zst' in it is a hard link"),
        (first + [("files", b"", tarfile.DIRTYPE)] + rest + last, "'files/' in it is a directory"),
        (first + [("dev", b"", tarfile.CHRTYPE)] + rest + last, "'dev' in it is a device"),
        (first + rest + rest[-1:] + last, "is in it twice"),
        (first + first + rest + last, "is in it twice"),
        (rest + last, "does not begin with machine.dtb"),
        (first + rest, "cut off: a pack ends with its manifest"),
        (first + last + rest, "stands behind its manifest"),
        (first + rest[:-1] + last, "has no log|it lacks"),
        ([m for m in good.members if m[0] != kernel], "it lacks 'files/[0-9a-f]{32}', which its manifest names"),
        (first + rest + [("marks.zst", parts["log.zst"])] + last, "'marks' in it, which its manifest does not name"),
        (good.but("manifest", manifest.replace("pack 1", "pack 2").encode()), "packed by another version"),
        (good.but("manifest", manifest.replace("\nend\n", "\nlater 1\nend\n").encode()), r"line \d+ of its manifest"),
        (good.but("manifest", manifest.replace("file log", "file ../log").encode()), r"it lacks '\.\./log'"),
        (good.but("manifest", re.sub(r"(file log) \d+", r"\1 1", manifest).encode()), "another size than its manifest"),
        (good.but("manifest", b""), "does not begin as one"),
        (good.but("machine.dtb", b"x" + parts["machine.dtb"][1:]), "machine.dtb"),
        (good.but("log.zst", b""), "it is too short"),
        (good.but("log.zst", b"x" * 100), "no table of its frames"),
        (good.but("log.zst", bomb(1 << 31)), "larger than any that a pack has|another size"),
        (good.but("log.zst", bomb(1000)), "another size|cannot be unpacked"),
    ]
    for members, words in cases:
        good.write(bad, members)
        for command in (["verify", "--no-replay"], ["replay"], ["info"], ["unpack", "-o", t.dir / "out"]):
            r = t.run(t.reprise, *command, bad, code=ERROR, timeout=30)
            t.has(r.error, words, command[0] + " of one that should have " + words)
            t.check(not (t.dir / "out").exists() and not (t.dir / "out.zst").exists(), "nothing is unpacked")
    # A hash that is wrong, where all else fits: another log that is one.
    wrong = re.sub(r"(file log \d+) ..", lambda m: m.group(1) + (" 00" if not m.group(0).endswith("00") else " 01"), manifest)
    good.write(bad, good.but("manifest", wrong.encode()))
    for command in (["verify"], ["unpack", "-o", t.dir / "out"]):
        t.has(t.run(t.reprise, *command, bad, code=ERROR).error, "log in it is not what its manifest says: wrong hash")
    t.check(not (t.dir / "out").exists(), "nothing is unpacked")
    # Cut off anywhere; a bit that fell over anywhere.
    whole = (t.dir / "rec.reprise").read_bytes()
    for i in range(24):
        bad.write_bytes(whole[:len(whole) * i // 24])
        t.run(t.reprise, "replay", bad, code=ERROR, timeout=30)
    for i in range(24):
        at = (2 * i + 1) * len(whole) // 48
        bad.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1:])
        r = t.run(t.reprise, "verify", bad, code=(ERROR, FINE), timeout=60)
        t.check(r.code == ERROR or not whole[at], "a changed byte is seen, but between files")
    bad.write_bytes(whole + bytes(512))
    t.has(t.run(t.reprise, "info", bad, code=ERROR).error, "cut off|no whole")
