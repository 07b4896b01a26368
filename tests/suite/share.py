"""Shares: directories of the host in the guest, by virtio-fs; and a replay that needs none of them."""
import hashlib
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading

from suite.boot import image
from suite.harness import DAMAGE, DIVERGED, ERROR, FINE, IMAGES, USAGE, Session, rnd, test

MOUNT = "mkdir -p /mnt; mount -t virtiofs share /mnt || exit 9\n"
GONE = r"share 0: reprise-fs is gone \((.*)\); the guest gets an error"


def directory(t, name="dir"):
    """One with what directories have."""
    d = t.dir / name
    (d / "sub" / "deep").mkdir(parents=True)
    (d / "hello").write_text("hello from the host\n")
    (d / "sub" / "deep" / "more").write_text("deep down\n")
    (d / "empty").write_text("")
    (d / "big").write_bytes(rnd.randbytes(3_000_001))
    os.link(d / "hello", d / "sub" / "linked")
    (d / "link").symlink_to("sub/deep/more")
    (d / "absolute").symlink_to("/etc/hostname")
    (d / "escape").symlink_to("../../../../../../../../etc/hostname")
    os.mkfifo(d / "fifo")
    s = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(d)
    s.bind("socket")
    os.chdir(here)
    s.close()
    return d


def guest(t, name, script, *shares, **more):
    options = [o for s in shares for o in ("--share", s)]
    return t.linux(name, *options, *more.pop("options", ()), script=script, append="quiet", **more)


def tree(d):
    """What would show that something was changed, or that a file was read."""
    found = {}
    for p in d.rglob("*"):
        st = p.lstat()
        found[os.fsencode(p)] = (st.st_mode, st.st_mtime_ns, st.st_size, stat.S_ISREG(st.st_mode) and st.st_atime_ns)
    return found


@test("share/read", cost=10)
def read(t):
    """What a directory has is there and nothing can be changed; the replay is the same without it, and
    what was read twice is kept once. Checkpoints and seeks are as ever."""
    image(t)
    d = directory(t)
    odd = bytes(range(1, 256)).replace(b"/", b"")
    (d / "odd").mkdir()
    for name in (odd, b"\xff" * 255, b"-"):
        with open(os.fsencode(d / "odd") + b"/" + name, "wb") as f:
            f.write(b"odd %d\n" % len(name))
    digest = hashlib.md5((d / "big").read_bytes()).hexdigest()
    before = tree(d)
    # Each thing that is tried on the way is one line.
    script = MOUNT + """cd /mnt
ls -la . sub sub/deep
cat hello link sub/linked; md5sum big; wc -c <empty
echo 3 >/proc/sys/vm/drop_caches; md5sum big
ls -i hello sub/linked | awk '{print $1}' | uniq | wc -l
stat -c '%h links' hello
for f in odd/* odd/-; do cat "$f"; echo ${#f}; done
readlink absolute; readlink escape
for f in absolute escape; do cat $f 2>/dev/null && echo ESCAPED; done
cat socket; [ -p fifo ] && echo a fifo
for how in 'echo x >hello' 'echo x >>hello' 'echo x >new' 'mkdir new' 'rm hello' 'mv hello new' \\
    'ln hello new' 'ln -s a new' 'mknod new p' 'chmod 777 hello' 'touch hello' 'rmdir sub' ': >big'; do
    (eval "$how") 2>&1 | grep -q 'Read-only file system' || echo "POSSIBLE: $how"
done
sleep 1
cd /; umount /mnt && mount -t virtiofs share /mnt && cat /mnt/hello
find /mnt | wc -l
"""
    r = guest(t, "rec", script, d, options=("--checkpoint-every", "0.5"))
    t.equal(len(re.findall(f"^{digest}  big$", r.text, re.M)), 2, "times that the file was read right")
    for what in ("^hello from the host\ndeep down\nhello from the host$", "^0$", "^1\n2 links$",
                 "^odd 254\n258$", "^odd 255\n259$", "^odd 1\n5$", "^/etc/hostname$",
                 "socket.*No such device or address", "^a fifo$", r"^hello from the host\n\d+$",
                 "script ended with status 0"):
        t.has(r.text + r.error, what)
    t.lacks(r.text, "ESCAPED|POSSIBLE")
    t.equal(tree(d), before, "the directory afterwards")
    info = t.info("rec")
    t.equal(info["shares"], [{"tag": "share", "path": str(d)}], "what info says of it")
    kept = (t.dir / "rec" / "contents").stat().st_size
    t.check(3_000_001 <= kept < 3_200_000, f"{kept} bytes are kept of what was read twice")
    shutil.rmtree(d)
    t.same("rec", r)
    t.verify_checkpoints("rec")
    half = info["last_time"] // 2 if "last_time" in info else 1_500_000_000
    t.run(t.reprise, "replay", "--to", f"time:{half / 1e9:.6f}", t.dir / "rec")
    again = t.run(t.reprise, "replay", "--verify", "-o", t.dir / "again", t.dir / "rec")
    t.equal(again.out, r.out, "the console of a replay that records")
    t.same("again", r)


@test("share/several", cost=5)
def several(t):
    """Four at a time, by their tags; beside other devices there may be fewer."""
    image(t)
    names = ["one", "two,with a comma", "three", "four"]
    for name in names:
        (t.dir / name).mkdir()
        (t.dir / name / "name").write_text(name + "\n")
    script = """for tag in share a.tag share2 last; do
    mkdir /$tag; mount -t virtiofs $tag /$tag && cat /$tag/name
done
"""
    where = [t.dir / names[0], f"{t.dir / names[1]},tag=a.tag", t.dir / names[2],
             f"{t.dir / names[3]},tag=last"]
    r = guest(t, "rec", script, *where)
    t.has(r.text, "^" + "\n".join(names) + "$")
    t.same("rec", r)
    t.equal([s["tag"] for s in t.info("rec")["shares"]], ["share", "a.tag", "share2", "last"], "tags")
    (t.dir / "disk").write_bytes(bytes(1 << 20))
    (t.dir / "events").write_text("")
    all_else = (*("--disk", t.dir / "disk") * 4, *("--net", "user") * 4, "--gpu", "2d", "--console", "hvc0",
                "--input", t.dir / "events")
    r = guest(t, "full", "", *where[:3], options=all_else, code=ERROR)
    t.has(r.error, "beside the other devices there is room for 2 shares, not 3")
    r = guest(t, "full", MOUNT + "cat /mnt/name; mkdir /2; mount -t virtiofs a.tag /2; cat /2/name\n", *where[:2],
              options=all_else)
    t.has(r.text, "^" + "\n".join(names[:2]) + "$")
    t.same("full", r)


@test("share/refused")
def refused(t):
    """What cannot be shared is said, in a line, and there is no recording."""
    (t.dir / "dir").mkdir()
    (t.dir / "file").write_text("")
    d = t.dir / "dir"

    def record(*shares, code=ERROR):
        r = t.tiny("rec", "rep", *[o for s in shares for o in ("--share", s)], code=code)
        t.check(not (t.dir / "rec").exists(), "a recording was left")
        if code == ERROR:
            t.equal(len(r.error.splitlines()), 1, "lines")
        return r.error

    t.has(record(t.dir / "none"), "--share: cannot open the directory .*/none: No such file")
    t.has(record(t.dir / "file"), "--share: cannot open the directory .*/file: Not a directory")
    t.has(record(""), "the directory has no name")
    t.has(record(",tag=x"), "the directory has no name")
    t.has(record(f"{d},tag="), "a tag has 1 to 36 bytes")
    t.has(record(f"{d},tag=" + "x" * 37), "a tag has 1 to 36 bytes")
    t.has(record(f"{d},tag=a b"), "printable")
    t.has(record(d, f"{d},tag=share"), "two have the tag share")
    t.has(record(d, d, d, d, d, code=USAGE), "at most 4")
    if os.geteuid():
        os.chmod(d, 0)
        t.has(record(d), "cannot open the directory .*: Permission denied")
        os.chmod(d, 0o700)
    t.tiny("rec", "rep", "--share", f"{d},tag=" + "x" * 36)
    # Of a machine that begins in it nobody need answer.
    for more in ((), ("--share", d)):
        t.run(t.reprise, "record", "--from", t.dir / "rec", "--at", "insn:100", "--force", "-o", t.dir / "more", *more)
        t.replay("more")


@test("share/permissions", cost=4)
def permissions(t):
    """What the user who records may not read the guest may not either, root there or not; and is told so."""
    image(t)
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        for file in (t.reprise, t.build / "reprise-fs", IMAGES / "linux" / "vmlinuz", IMAGES / "linux" / "initrd"):
            shutil.copy(file, place)
        d, out = os.path.join(place, "dir"), os.path.join(place, "out")
        os.makedirs(d + "/secrets")
        os.mkdir(out)
        os.chmod(out, 0o777)
        for name in ("secret", "secrets/one", "open"):
            with open(f"{d}/{name}", "w", encoding="ascii") as f:
                f.write(name + "\n")
        os.chmod(d + "/secret", 0)
        os.chmod(d + "/secrets", 0)
        other = [] if os.geteuid() else ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        if other and not shutil.which("setpriv"):
            t.skip("setpriv is not there")
        r = t.run(*other, place + "/reprise", "record", "-o", out + "/rec", "--kernel", place + "/vmlinuz", "--initrd",
                  place + "/initrd", "--share", d, "--append",
                  'quiet -- "mkdir /mnt; mount -t virtiofs share /mnt; cd /mnt; cat secret open; ls secrets; cat secrets/one"',
                  cwd="/")
        os.chmod(d + "/secrets", 0o700)
        t.has(r.text, "^cat: can't open 'secret': Permission denied$")
        t.has(r.text, "^open$")
        t.has(r.text, "^ls: can't open 'secrets': Permission denied$")
        t.has(r.text, "^cat: can't open 'secrets/one': Permission denied$")
        t.lacks(r.text, "^secrets?$")


@test("share/changes", cost=8)
def changes(t):
    """Files that are changed, replaced and removed on the host while the guest reads: it sees what was
    there when it looked, and so does the replay."""
    image(t)
    d = t.dir / "dir"
    d.mkdir()
    (d / "file").write_text("version 1\n")
    (d / "held").write_text("held\n" * 1000)
    script = MOUNT + """cd /mnt
exec 5<held
cat file; echo ONE; read -r x
cat file; echo TWO; read -r x
cat file; echo LONGER; read -r x
cat file; echo THREE; read -r x
cat <&5 | md5sum; ls; cat file; echo FOUR
"""
    (t.dir / "script").write_text(script)
    s = Session(t, "rec", "--add", f"{t.dir}/script:/script.sh", "--share", d,
                append="quiet reprise.script=/script.sh")
    s.wait("^ONE")
    (d / "file").write_text("version 2\n")
    s.send("\n")
    s.wait("^TWO")
    (d / "file").write_text("another version, in the same file, which is longer\n")
    s.send("\n")
    s.wait("^LONGER")
    (d / "new").write_text("version 3, longer\n")
    os.replace(d / "new", d / "file")
    s.send("\n")
    s.wait("^THREE")
    (d / "held").unlink()
    (d / "file").unlink()
    s.send("\n")
    s.wait("^FOUR")
    s.finish()
    out = s.out.decode().replace("\r", "")
    t.has(out, "^version 1\nONE")
    t.has(out, "^version 2\nTWO")
    t.has(out, "^another version, in the same file, which is longer\nLONGER")
    t.has(out, "^version 3, longer\nTHREE")
    t.has(out, "^" + hashlib.md5(b"held\n" * 1000).hexdigest())
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


@test("share/escape", cost=10)
def escape(t):
    """A directory that becomes a link to another place and back, as fast as can be: nothing of that
    place is ever read."""
    image(t)
    d, outside = t.dir / "dir", t.dir / "outside"
    outside.mkdir()
    (outside / "file").write_text("OUTSIDE\n")
    (d / "real").mkdir(parents=True)
    (d / "real" / "file").write_text("inside\n")
    (d / "link").symlink_to(outside)
    os.rename(d / "real", d / "x")
    over = threading.Event()

    def swap():
        while not over.is_set():
            for a, b in (("x", "y"), ("link", "x"), ("x", "link"), ("y", "x")):
                os.rename(d / a, d / b)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        r = guest(t, "rec", MOUNT + """cd /mnt
for i in $(seq 400); do
    cat x/file 2>/dev/null
    echo 2 >/proc/sys/vm/drop_caches
    # What it has a name for it may know for so long.
    [ $((i % 40)) != 0 ] || sleep 11
done | sort | uniq -c
""", d)
    finally:
        over.set()
        thread.join()
    t.lacks(r.text, "OUTSIDE")
    t.has(r.text, r"^ +\d+ inside")
    t.same("rec", r)


@test("share/many", cost=20)
def many(t):
    """100,000 files in a directory, and more files open than the host lets a process have."""
    image(t)
    d = t.dir / "dir"
    (d / "all").mkdir(parents=True)
    (d / "open").mkdir()
    for i in range(100_000):
        os.close(os.open(f"{d}/all/{i:06}", os.O_CREAT | os.O_WRONLY))
    for i in range(500):
        (d / "open" / f"{i:03}").write_text(f"{i}\n" * 2)
    limit = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))
    script = MOUNT + """cd /mnt
ls all | wc -l
find all -type f | wc -l
cd open; paste * | md5sum
"""
    (t.dir / "script").write_text(script)
    r = guest(t, "rec", script, d, preexec_fn=limit)
    want = "".join("\t".join(str(i) for i in range(500)) + "\n" for _ in range(2))
    t.has(r.text, "^100000\n100000\n" + hashlib.md5(want.encode()).hexdigest())
    shutil.rmtree(d)
    t.same("rec", r)


@test("share/root", cost=5)
def root(t):
    """The root directory of the host: its kernel's own file systems are empty in it."""
    image(t)
    r = guest(t, "rec", MOUNT + """cd /mnt
for d in proc sys; do echo $d $(ls -A $d | wc -l); done
cat proc/1/environ 2>&1 | grep -c 'No such file'
cmp usr/bin/env /mnt/usr/bin/env && echo READ
""", "/")
    t.has(r.text, "^proc 0\nsys 0\n1\nREAD$")
    t.same("rec", r)


def server(t, pid):
    found = subprocess.run(["pgrep", "-P", str(pid), "reprise-fs"], stdout=subprocess.PIPE,
                           text=True).stdout.split()
    t.equal(len(found), 1, "file servers")
    return int(found[0])


@test("share/server-killed", cost=6)
def killed(t):
    """The file server is locked in; it is killed: the guest gets errors, the recording goes on."""
    image(t)
    d = directory(t)
    script = MOUNT + """cat /mnt/hello; echo READY; read -r x
cat /mnt/big >/dev/null; cat /mnt/sub/deep/more; ls /mnt/sub
umount /mnt; mount -t virtiofs share /mnt; ls /mnt
echo ON
"""
    (t.dir / "script").write_text(script)
    s = Session(t, "rec", "--add", f"{t.dir}/script:/script.sh", "--share", d,
                append="quiet reprise.script=/script.sh")
    s.wait("^READY")
    pid = server(t, s.child.pid)
    with open(f"/proc/{pid}/status") as f:
        status = f.read()
    for line in ("NoNewPrivs:\t1", "Seccomp:\t2", "CapEff:\t000000000000000[04]"):
        t.has(status, f"^{line}$", "the server's status")
    os.kill(pid, signal.SIGKILL)
    s.send("\n")
    s.wait("^ON")
    s.finish()
    out = s.out.decode()
    t.has(out, "big'?: .*(not connected|endpoint)")
    t.has(out, "ls: /mnt: Connection refused|ls: /mnt: Transport endpoint")
    t.equal(re.findall(GONE, s.err.decode()), ["killed by signal 9 (Killed)"], "what was said")
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


# A stand-in for reprise-fs: Python, with the socket at 3, the memory at 4 and MODE in the environment.
STAND_IN = f"""#!{sys.executable}
import mmap, os, random, socket, struct, time
s = socket.socket(fileno=3)
memory = mmap.mmap(4, 0)
mode = os.environ["MODE"]
r = random.Random(int(os.environ["SEED"]))
assert struct.unpack_from("<II", s.recv(100)) == (0x53465652, 1)
SLOT = (1 << 20) + 4096
hello = {{"other": (0x53465652, 2, 0, 0), "busy": (0x53465652, 1, 5, 38), "odd": (0x53465652, 1, 77, 1)}}
if mode == "quits":
    os._exit(3)
s.send(struct.pack("<IIIi", *hello.get(mode, (0x53465652, 1, 0, 0))))
while True:
    m = s.recv(1 << 17)
    if len(m) < 24:
        break
    kind, slot, total, room, _ = struct.unpack_from("<IIQII", m)
    if kind != 1 or slot == 0xffffffff:
        continue
    length, opcode, unique = struct.unpack_from("<IIQ", m, 24)
    if opcode == 26:  # INIT
        memory[slot * SLOT:slot * SLOT + 80] = struct.pack("<IiQIIIIHHIIHHI", 80, 0, unique, 7, 31, 1 << 17, 0, 12, 9,
                                                           4096, 1, 256, 0, 0) + bytes(28)
        s.send(struct.pack("<II", slot, 80))
        continue
    size = r.choice((16, 32, 80, 104, 120, 144, 4112, 100000, SLOT))
    head = struct.pack("<IiQ", size, 0, unique)
    if mode == "slot":
        slot = r.choice((64, 63, 1 << 31))
    elif mode == "size":
        size = SLOT + 1
    elif mode == "short":
        s.send(b"1234567")
    elif mode == "length":
        head = struct.pack("<IiQ", r.choice((0, 15, size + 1, 1 << 31)), 0, unique)
    elif mode == "error":
        head = struct.pack("<IiQ", size, r.choice((1, -5000, -1 << 31, -5)), unique)
    elif mode == "tiny":
        size = r.randrange(16)
    at = slot * SLOT if slot < 64 else 0
    memory[at:at + 16] = head
    if size > 16:
        n = min(size - 16, 8192)
        memory[at + 16:at + 16 + n] = r.randbytes(n)
    s.send(struct.pack("<II", slot, size))
"""


@test("share/server-hostile", cost=20)
def hostile(t):
    """A server that speaks nonsense costs the guest its share and no more: what it got is replayed."""
    image(t)
    place = t.dir / "bin"
    place.mkdir()
    shutil.copy(t.reprise, place)
    (place / "reprise-fs").write_text(STAND_IN)
    (place / "reprise-fs").chmod(0o755)
    (t.dir / "dir").mkdir()
    (t.dir / "script").write_text("mount -t virtiofs share /tmp; ls /tmp; cat /tmp/a /tmp/b; ls -la /tmp/; echo ON\n")
    where = IMAGES / "linux"

    def record(mode, code=0, *more):
        return t.run(place / "reprise", "record", *more, "-o", t.dir / "rec", "--force", "--kernel", where / "vmlinuz",
                     "--initrd", where / "initrd", "--add", f"{t.dir}/script:/script.sh", "--append",
                     "quiet reprise.script=/script.sh", "--share", t.dir / "dir", code=code,
                     env={"MODE": mode, "SEED": rnd.randrange(10 ** 9)})

    for mode, said in (("quits", "did not start, or is of another version"), ("other", "did not start, or is"),
                       ("busy", "cannot lock itself in: Function not"), ("odd", "of another version")):
        r = record(mode, ERROR)
        t.has(r.error, "--share: reprise-fs .*" + said, mode)
        t.check(not (t.dir / "rec").exists(), f"a recording was left by {mode}")
    for mode in ("slot", "size", "short"):
        r = record(mode)
        t.equal(re.findall(GONE, r.error), ["it sent nonsense"], f"what was said of {mode}")
        t.has(r.text, "^ON")
        t.same("rec", r)
    for mode in ("length", "error", "tiny", "random", "random"):
        # A directory may have no end.
        r = record(mode, FINE, "--max-insns", 2_500_000_000)
        t.same("rec", r)


@test("share/full", cost=3)
def full(t):
    """No room for what the guest reads: the recording ends there, complete."""
    image(t)
    (t.dir / "dir").mkdir()
    (t.dir / "dir" / "file").write_bytes(bytes(100_000))
    free = os.statvfs(t.dir)
    r = guest(t, "rec", MOUNT + "echo BEFORE; cat /mnt/file | wc -c; echo AFTER\n", t.dir / "dir",
              options=("--keep-free", free.f_bsize * free.f_blocks), code=ERROR)
    t.has(r.text, "^BEFORE$")
    t.lacks(r.text, "^AFTER")
    t.has(r.error, "the disk of the recording is full: it was ended while there was room for its end")
    t.equal(t.replay("rec", code=None).out, r.out, "the console of the replay")
    t.equal((t.info("rec")["why"], t.info("rec")["state"]), ("disk", "complete"), "why it ended")


@test("share/damage", cost=6)
def damage(t):
    """What is kept of files is damaged, lost, or another recording's: the replay goes up to there."""
    image(t)
    (t.dir / "dir").mkdir()
    for i in range(3):
        (t.dir / "dir" / str(i)).write_bytes(rnd.randbytes(200_000))
    r = guest(t, "rec", MOUNT + "cat /mnt/hello 2>/dev/null; md5sum /mnt/*\n", t.dir / "dir")
    kept = t.dir / "rec" / "contents"
    whole = kept.read_bytes()

    def replay(pattern):
        said = t.replay("rec", code=DAMAGE).error
        t.has(said, r"replayed up to the damage, position \d+: " + pattern)

    at = len(whole) // 2
    kept.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:])
    replay("contents is damaged: the piece [0-9a-f]{32}, at byte")
    kept.write_bytes(whole[:at])
    replay("contents lacks the piece|contents is damaged")
    kept.write_bytes(b"x" + whole[1:])
    replay("contents is damaged: it does not begin as one")
    kept.unlink()
    replay("the recording has lost its file contents")
    t.info("rec")
    for bad in (whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1:], whole[:at], whole + b"x"):
        kept.write_bytes(bad)
        t.has(t.run(t.reprise, "verify", "--no-replay", t.dir / "rec", code=ERROR).error, "contents is damaged")
    kept.write_bytes(whole)
    t.has(t.run(t.reprise, "verify", "--no-replay", t.dir / "rec").text, "^contents +right$")
    t.same("rec", r)
    log = (t.dir / "rec" / "log").read_bytes()
    outcomes = {}
    for _ in range(3):
        (t.dir / "rec" / "log").write_bytes(log)
        t.run(t.build / "tests" / "tools" / "log_forge", t.dir / "rec" / "log", t.dir / "forged", rnd.randrange(1 << 31))
        os.replace(t.dir / "forged", t.dir / "rec" / "log")
        first = t.replay("rec", code=(FINE, DIVERGED))
        second = t.replay("rec", code=first.code)
        t.equal(second.out, first.out, "the console of a second replay of a forged log")
        outcomes[first.code] = outcomes.get(first.code, 0) + 1
    return f"{outcomes}"


@test("share/sandbox")
def sandbox(t):
    """Once it serves it reads what is beneath the share, and can do nothing else."""
    r = t.run(t.build / "reprise-fs", "--check")
    t.has(r.text, r"^files: FUSE 7\.31$")
    t.has(r.text, "^sandbox: holds$")
    t.equal(r.error, "", "complaints")
    r = t.run(t.build / "reprise-fs", code=2)
    t.has(r.error, "reprise starts this, for record --share")
