"""What users and disks do wrong: a clear message, an exit code, no crash, nothing lost."""
import json
import os
import pwd
import resource
import shutil
import signal
import struct
import subprocess

from suite.harness import DAMAGE, ERROR, FINE, IMAGES, USAGE, Session, test

LINUX = IMAGES / "linux"
TINY = IMAGES / "tiny"


def refused(t, r, pattern):
    """One line on stderr, with our name in front."""
    lines = r.error.strip().splitlines()
    t.check(len(lines) == 1 and lines[0].startswith("reprise: "), f"stderr is {r.error!r}")
    t.has(lines[0], pattern, "the message")


@test("bad/kernel", cost=2)
def kernel(t):
    image = (LINUX / "vmlinuz").read_bytes()
    sectors = image[0x1f1] or 4  # of the boot protocol's header; then where the packed kernel ends
    end = (1 + sectors) * 512 + sum(struct.unpack_from("<2I", image, 0x248))
    bad = {
        "empty": (b"", "is empty"),
        "text": (b"hello\n" * 1000, "is a text file"),
        "cut-header": (image[:300], "truncated|is "),
        "cut-early": (image[:20000], "truncated"),
        "cut-half": (image[:len(image) // 2], "truncated"),
        "cut-payload-end": (image[:end - 500], "truncated"),
        "zeros": (bytes(100000), "is "),
        "damaged": (image[:5000000] + bytes(3000) + image[5003000:], "damage|corrupt|not"),
        "initrd": ((LINUX / "initrd").read_bytes()[:200000], "is an initramfs"),
        "gzip": (b"\x1f\x8b\x08" + bytes(1000), "is a gzip"),
        "elf32": (b"\x7fELF\x01\x01\x01" + bytes(200), "ELF|bit"),
        "elf-arm": ((TINY / "paging.elf").read_bytes()[:18] + b"\xb7\x00" +
                    (TINY / "paging.elf").read_bytes()[20:], "x86-64|machine"),
        "elf-cut": ((TINY / "paging.elf").read_bytes()[:3000], "truncated|beyond|outside|end"),
    }
    for name, (data, pattern) in bad.items():
        (t.dir / name).write_bytes(data)
        r = t.record("rec", kernel=t.dir / name, code=ERROR)
        refused(t, r, pattern)
        t.check(not (t.dir / "rec").exists(), "a directory was left behind")
    refused(t, t.record("rec", kernel=t.dir / "missing", code=ERROR), "No such file")
    refused(t, t.record("rec", kernel=t.dir, code=ERROR), "not a regular file")
    os.mkfifo(t.dir / "fifo")
    refused(t, t.record("rec", kernel=t.dir / "fifo", code=ERROR, timeout=10), "not a regular file")
    return f"{len(bad) + 3} cases"


@test("bad/initrd", cost=2)
def initrd(t):
    whole = (LINUX / "initrd").read_bytes()
    bad = {
        "empty": (b"", "is empty"),
        "text": (b"hello\n" * 1000, "is a text file"),
        "cut-header": (whole[:50], "truncated"),
        "cut-name": (whole[:1 << 20], "truncated"),
        "no-trailer": (whole[:whole.rindex(b"070701")], "truncated"),
        "elf": ((TINY / "paging.elf").read_bytes(), "is an ELF"),
        "junk-after": (whole + b"junk", "archive"),
    }
    for name, (data, pattern) in bad.items():
        (t.dir / name).write_bytes(data)
        r = t.record("rec", "--initrd", t.dir / name, kernel=LINUX / "vmlinuz", code=ERROR)
        refused(t, r, pattern)
    refused(t, t.record("rec", "--initrd", t.dir / "missing", kernel=LINUX / "vmlinuz", code=ERROR),
            "No such file")
    for spec in ("missing:/x", f"{t.dir}/missing", "/dev/null:/x"):
        refused(t, t.linux("rec", "--add", spec, code=ERROR), "missing|/dev/null")
    t.run("sh", "-c", f"gzip -c {LINUX}/initrd >packed.gz; zstd -q {LINUX}/initrd -o packed.zst")
    for name in ("packed.gz", "packed.zst"):
        (t.dir / "extra").write_text("extra\n")
        r = t.record(name + ".rec", "--initrd", t.dir / name, "--add", t.dir / "extra", "--append",
                     "-- cat /extra", kernel=LINUX / "vmlinuz")
        t.has(r.text, "^extra$")


@test("bad/code-cache")
def code_cache(t):
    for size, pattern in (("3M", "3M: it can have 4M to 1024M"), ("1025M", "it can have"), ("0", "it can have"),
                          ("4Q", "not a size"), ("", "not a size")):
        t.has(t.linux("rec", "--code-cache", size, code=USAGE).error, pattern)
        for command in ("replay", "gdb", "checkpoint"):
            r = t.run(t.reprise, command, "--code-cache", size, t.dir / "rec", code=USAGE)
            t.has(r.error, pattern)
    r = t.run(t.reprise, "checkpoint", "--remove", "--code-cache", "8M", t.dir / "rec", code=USAGE)
    t.has(r.error, "not for --remove")


@test("bad/memory", cost=2)
def memory(t):
    for size, code, pattern in (("2M", ERROR, "16 MiB to 64 GiB"), ("900T", ERROR, "64 GiB"),
                                ("3M", USAGE, "multiple of 2M"), ("0", USAGE, "multiple"),
                                ("12x", USAGE, "not a size"), ("-1M", USAGE, "not a size"),
                                ("32M", ERROR, "does not fit")):
        r = t.linux("rec", "--memory", size, code=code)
        t.has(r.error, pattern)
        t.check(not (t.dir / "rec").exists(), "a directory was left behind")
    # Up to where it starts: no room for the kernel, for its work, for the initramfs.
    said, reasons = [], ["segment", "the kernel needs", "the initrd"]
    for size in range(32, 256, 2):
        r = t.linux("rec", "--memory", f"{size}M", "--max-insns", 1000, code=(ERROR, FINE))
        if not r.code:
            break
        said.append(next((x for x in reasons if x in r.error), r.error))
    t.equal(list(dict.fromkeys(said)), reasons, "the reasons")
    with open(t.dir / "big", "wb") as f:
        f.write((LINUX / "initrd").read_bytes())
    r = t.linux("rec", "--memory", "128M", "--add", f"{IMAGES}/generic/initrd:/a", "--add",
                f"{LINUX}/vmlinuz:/b", "--add", f"{IMAGES}/generic/vmlinuz:/c", "--add",
                f"{LINUX}/vmlinuz:/d", "--add", f"{LINUX}/vmlinuz:/e", "--add",
                f"{LINUX}/vmlinuz:/f", code=ERROR)
    refused(t, r, "initrd|memory")


@test("bad/usage")
def usage(t):
    tiny = TINY / "paging.elf"
    for argv in ([], ["frob"], ["--frob"], ["record"], ["record", "-o", "x"],
                 ["record", "--kernel", tiny], ["record", "-o", "x", "--kernel", tiny, "--cpu", "z"],
                 ["record", "-o", "x", "--kernel", tiny, "--seed", "abc"],
                 ["record", "-o", "x", "--kernel", tiny, "--timeout", "0"],
                 ["record", "-o", "x", "--kernel", tiny, "--timeout", "abc"],
                 ["record", "-o", "x", "--kernel", tiny, "--max-insns", "-1"],
                 ["record", "-o", "x", "--kernel", tiny, "extra"],
                 ["replay"], ["replay", "a", "b"], ["info"], ["events"], ["trace", "a"],
                 ["trace", "a", "--from", "5", "--to", "3"], ["diff", "a"],
                 ["events", "a", "--from", "5", "--to", "3"], ["info", ""], ["diff", "", ""],
                 ["record", "-o", "", "--kernel", tiny], ["record", "-o", "x", "--kernel", ""],
                 ["record", "-o", "x", "--kernel", tiny, "--stop-at", ""],
                 ["record", "-o", "x", "--kernel", tiny, "--idle-limit", "-1"],
                 ["replay", "a", "--force"], ["replay", "a", "--to", "evnt:3"],
                 ["replay", "a", "--to", "end-x"], ["replay", "a", "--to", "time:-1"],
                 ["replay", "a", "--to", "console:"], ["replay", "a", "--verify", "--to", "5"],
                 ["replay", "a", "--gdb", "--regs"], ["replay", "a", "--checkpoint-memory", "1G"],
                 ["replay", "a", "--to", "5", "--checkpoint-memory", "0"],
                 ["gdb"], ["gdb", "a", "b"], ["gdb", "a", "--to", ""], ["checkpoint"],
                 ["checkpoint", "a", "--every", "0"], ["symbols"], ["core", "a"],
                 ["core", "a", "-o", "x", "--at", "nowhere"],
                 ["record", "-o", "x", "--kernel", tiny, "--gdb-wait"],
                 ["record", "-o", "x", "--kernel", tiny, "--gdb=-"],
                 ["record", "-o", "x", "--kernel", tiny, "--checkpoint-every", "0"],
                 ["diff", "a", "b", "c"]):
        r = t.run(t.reprise, *argv, code=USAGE)
        t.has(r.error, "--help")
        t.check(not r.out, "a usage error printed on stdout")
    for command in ("record", "replay", "info", "events", "trace", "diff", "gdb", "checkpoint",
                    "symbols", "core"):
        t.has(t.run(t.reprise, command, "--help").text, "Exit codes", command + " --help")
    t.has(t.run(t.reprise, "--version").text, r"^reprise \d")


@test("bad/output")
def output(t):
    t.tiny("rec", "paging")
    before = sorted((p.name, p.stat().st_mtime_ns) for p in (t.dir / "rec").rglob("*"))
    refused(t, t.tiny("rec", "paging", code=ERROR), "exists already; --force")
    t.equal(sorted((p.name, p.stat().st_mtime_ns) for p in (t.dir / "rec").rglob("*")), before,
            "the recording that was there")
    t.tiny("rec", "rep", "--force")
    t.replay("rec")
    (t.dir / "mine").mkdir()
    (t.dir / "mine" / "thesis.txt").write_text("mine")
    for options in ((), ("--force",)):
        refused(t, t.tiny("mine", "paging", *options, code=ERROR), "mine")
    t.equal((t.dir / "mine" / "thesis.txt").read_text(), "mine", "the user's file")
    (t.dir / "file").write_text("mine")
    for options in ((), ("--force",)):
        refused(t, t.tiny("file", "paging", *options, code=ERROR), "file")
    t.equal((t.dir / "file").read_text(), "mine", "the user's file")
    refused(t, t.tiny("no/such/place", "paging", code=ERROR), "No such file")
    # A failed start with --force must not cost the old recording.
    (t.dir / "text").write_text("no kernel")
    t.record("rec", "--force", kernel=t.dir / "text", code=ERROR)
    t.replay("rec")
    # One that is being recorded is neither replayed nor replaced.
    child = t.start([t.reprise, "record", "-o", t.dir / "busy", "--memory", "16M", "--kernel",
                     TINY / "spin.elf"])
    try:
        child.wait(0.5)
    except subprocess.TimeoutExpired:
        pass
    refused(t, t.tiny("busy", "paging", "--force", code=ERROR), "being recorded")
    refused(t, t.replay("busy", code=ERROR), "being recorded")
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=20)
    t.replay("busy")


@test("bad/unwritable")
def unwritable(t):
    """A directory in which the user may not write; as root, as somebody else."""
    if not shutil.which("setpriv"):
        t.skip("setpriv (util-linux) is not there")
    place = t.dir
    argv = [t.reprise, "record", "-o", str(place / "locked" / "rec"), "--memory", "16M", "--kernel",
            str(TINY / "paging.elf")]
    (place / "locked").mkdir(mode=0o755)
    if os.getuid() == 0:
        nobody = pwd.getpwnam("nobody")
        argv = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}",
                "--clear-groups", *argv]
        if subprocess.run([*argv[:4], "test", "-x", t.reprise], check=False).returncode:
            t.skip("the user nobody cannot reach this directory")
    else:
        (place / "locked").chmod(0o555)
    r = t.run(*argv, code=ERROR)
    refused(t, r, "Permission denied")


def typed(t):
    """Much input, so that the log grows."""
    (t.dir / "typed").write_bytes(b"\n" + b"".join(os.urandom(40).hex().encode() + b"\n"
                                                  for _ in range(3000)) + b"exit\n")
    return open(t.dir / "typed", "rb")


@test("bad/file-size-limit", cost=3)
def file_size(t):
    """A log that cannot grow: the recording ends at its last chunk, says so, and replays."""
    s = Session(t, "rec", kernel=TINY / "echo.elf")
    s.wait("ready")
    # Not before: the engine's code cache is a file too, in memory.
    resource.prlimit(s.child.pid, resource.RLIMIT_FSIZE, (55000, 55000))
    with typed(t) as f:
        try:
            s.send(f.read())
        except BrokenPipeError:
            pass
    s.finish(ERROR)
    t.has(s.err.decode(), "File too large")
    t.has(s.err.decode(), "the log could not be written")
    t.check((t.dir / "rec" / "log").stat().st_size <= 55000, "the log is longer than the limit")
    r = t.replay("rec", code=DAMAGE)
    t.check(r.out and s.out.startswith(r.out), "the replay's console is not a prefix")
    t.run(t.reprise, "events", t.dir / "rec", code=DAMAGE)


@test("bad/full-disk", cost=3)
def full_disk(t):
    """A small tmpfs in a mount namespace of its own."""
    (t.dir / "disk").mkdir()
    with typed(t) as f:
        inner = f"mount -t tmpfs -o size=140k none disk && " \
                f"{t.reprise} record -o disk/rec --memory 16M --kernel {TINY}/echo.elf; " \
                "code=$?; cp -r disk/rec out; exit $code"
        probe = subprocess.run(["unshare", "-rm", "true"], stderr=subprocess.PIPE, check=False)
        if probe.returncode:
            t.skip("no mount namespaces here: " + probe.stderr.decode().strip())
        r = t.run("unshare", "-rm", "sh", "-c", inner, stdin=f, code=ERROR)
    t.has(r.error, "No space left on device")
    s = t.replay("out", code=DAMAGE)
    t.check(s.out and r.out.startswith(s.out), "the replay's console is not a prefix")
    t.has(t.run(t.reprise, "events", t.dir / "out", code=DAMAGE).text + s.error, "No space|cut|ends")


def copy(t, name="bad"):
    shutil.rmtree(t.dir / name, ignore_errors=True)
    shutil.copytree(t.dir / "rec", t.dir / name)
    return t.dir / name


@test("bad/recording", cost=2)
def recording(t):
    """Missing, foreign, changed and other-version parts of a recording, for every command."""
    t.tiny("rec", "paging")
    kernel_file = next((t.dir / "rec" / "files").iterdir()).name

    def every(pattern, commands=("replay", "info", "events", "trace", "diff"), code=ERROR):
        for command in commands:
            options = ["--to", "100"] if command == "trace" else []
            options += [t.dir / "rec"] if command == "diff" else []
            r = t.run(t.reprise, command, *options, t.dir / "bad", code=code)
            t.has(r.error + r.text, pattern, command)

    every("No such file")
    (t.dir / "bad").write_text("x")
    every("is no whole packed recording")
    (t.dir / "bad").unlink()
    (t.dir / "bad").mkdir()
    every("is not a recording")
    (copy(t) / "log").unlink()
    every("log")
    (copy(t) / "machine.dtb").write_bytes(b"junk")
    every("machine.dtb")
    (copy(t) / "machine.dtb").write_bytes(b"")
    every("machine.dtb")
    (copy(t) / "files" / kernel_file).unlink()
    every("kernel", ("replay", "info", "trace"))
    path = copy(t) / "files" / kernel_file
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    every("kernel.*(changed|differ|not)|changed", ("replay", "info", "trace"))
    path = copy(t) / "log"
    t.run(t.build / "tests" / "tools" / "log_version", path, 99)
    every("version 99; this program reads")
    path = copy(t) / "log"
    path.write_bytes(b"")
    every("log")
    path.write_bytes(b"hello world, this is no log at all, not even nearly\n" * 3)
    every("log")
    # The log of another machine.
    t.tiny("other", "rep")
    shutil.copy(t.dir / "other" / "log", copy(t) / "log")
    every("machine", ("replay", "trace"))


@test("bad/no-files", cost=2)
def no_files(t):
    """FIFOs, links and files without end where a recording has its files: refused at once."""
    t.tiny("rec", "paging")
    t.run(t.reprise, "checkpoint", t.dir / "rec")
    (t.dir / "rec/marks").write_text("1000 1000 there\n")
    t.run(t.reprise, "replay", "--to", "mark:there", t.dir / "rec")
    names = ["machine.dtb", "log", "marks", "gpu.log", "checkpoints/000000",
             next(str(p.relative_to(t.dir / "rec")) for p in (t.dir / "rec/files").iterdir())]
    commands = {"marks": ["replay", "--to", "mark:there"], "gpu.log": ["gpu", "list"],
                "checkpoints/000000": ["replay", "--to", "end"]}
    for name in names:
        for kind in ("fifo", "link", "huge"):
            path = copy(t) / name
            path.unlink(missing_ok=True)
            if kind == "fifo":
                os.mkfifo(path)
            elif kind == "link":
                path.symlink_to("/dev/zero")
            else:
                with open(path, "wb") as f:
                    f.truncate(1 << 40)
            r = t.run(t.reprise, *commands.get(name, ["replay"]), t.dir / "bad", code=None,
                      timeout=20)
            # A checkpoint is only a cache: it is told and left aside.
            t.equal(r.code, 0 if name.startswith("check") else ERROR, f"{name} as {kind}")
            t.has(r.error, "^reprise: .*(" + ("is of no use" if name.startswith("check") else
                  "is not a regular file|more than|not a Reprise log|not a GPU log|GPU log") + ")")


@test("bad/damaged-pair")
def damaged_pair(t):
    """Two recordings that are equal up to the same damage are not called equal."""
    t.tiny("rec", "paging")
    path = copy(t) / "log"
    os.truncate(path, path.stat().st_size - 20)
    r = t.run(t.reprise, "diff", t.dir / "bad", t.dir / "bad", code=DAMAGE)
    t.has(r.text, "equal up to the damage")
    r = t.run(t.reprise, "diff", "--json", t.dir / "bad", t.dir / "bad", code=DAMAGE)
    t.check(json.loads(r.out)["damage"], "no damage in the JSON")
    t.run(t.reprise, "diff", t.dir / "rec", t.dir / "bad", code=ERROR)


@test("bad/names")
def names(t):
    """Odd file names: suggestions can be pasted, JSON stays JSON, terminals stay sane."""
    shutil.copy(TINY / "paging.elf", t.dir / 'ü"\n\x1b[2J.elf')
    r = t.record("-it's odd", "--memory", "16M", kernel=t.dir / 'ü"\n\x1b[2J.elf')
    again = r.error[r.error.index("reprise replay ") + len("reprise replay "):].strip()
    t.equal(again, "'" + str(t.dir) + "/-it'\\''s odd'", "the quoted name")
    t.equal(t.info("-it's odd")["kernel"], 'ü"\n\x1b[2J.elf', "the kernel's name")
    t.lacks(t.run(t.reprise, "info", t.dir / "-it's odd").text, "\x1b")
    t.run("sh", "-c", f"{t.reprise} record -o -x --memory 16M --kernel {TINY}/paging.elf 2>err && "
          f"grep 'reprise replay ./-x$' err && {t.reprise} replay ./-x")
    r = t.run(t.reprise, "replay", "./-x", "-o", "../bad-names/-x", "--force", code=ERROR)
    refused(t, r, "is the recording that is replayed")


@test("bad/closed-files")
def closed_files(t):
    """Started without standard files: nothing that is printed lands in the log."""
    t.run("sh", "-c", f"{t.reprise} record -o rec --memory 16M --kernel {TINY}/paging.elf "
          "<&- >&- 2>&-")
    t.replay("rec")


@test("bad/stdout")
def stdout(t):
    """Readers that are gone end the commands that print, without a word; full disks are told."""
    t.tiny("rec", "paging")
    for command in ("info", "events"):
        r = t.run("sh", "-c", f"{t.reprise} {command} rec >/dev/full", code=ERROR)
        t.has(r.error, "cannot write to standard output")
    r = t.run("sh", "-c", f"{t.reprise} trace rec --to 100000 >/dev/full", code=ERROR)
    t.has(r.error, "cannot write to standard output")
    r = t.run("bash", "-c", f"{t.reprise} trace rec --to 200000 | head -n 1; "
              "exit ${PIPESTATUS[0]}", code=128 + signal.SIGPIPE)
    t.equal((len(r.text.splitlines()), r.error), (1, ""), "one line, and stderr")


@test("bad/terminal", cost=4)
def terminal(t):
    """Control characters in names of a recording: no command hands them on."""
    escape = "\x1b]0;x\x07\x1b[31m"
    disk = t.dir / f"disk{escape}.img"
    disk.write_bytes(bytes(1 << 20))
    t.tiny("rec", "rep", "--seed", 1, "--append", f"x{escape}y", "--disk", disk, code=None)
    t.tiny("other", "rep", "--seed", 2, "--append", f"{escape}", code=None)
    rec = t.dir / "rec"
    disk.rename(t.dir / "gone")
    for command in (["info"], ["info", "--json"], ["events", "--all"], ["replay", "--to", "100"], ["disk", "list"],
                    ["replay", "--to", "mark:" + escape], ["replay", "--to", f"console:{escape}"], ["diff"]):
        r = t.run(t.reprise, *command, rec, *([t.dir / "other"] if command == ["diff"] else []), code=None)
        raw = [b for b in r.out + r.error.encode() if (b < 32 and b not in b"\n\t\r") or b == 127]
        t.equal(raw, [], f"control characters of {command}")
