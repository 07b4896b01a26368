"""Commands lock themselves in (docs/security.md): what they open, connect to and start after that."""
import os
import re
import shutil
import subprocess

from suite.gpu_play import scene
from suite.harness import IMAGES, test

CALLS = "open,openat,openat2,creat,socket,connect,bind,execve,fork,vfork,clone,clone3,kill," \
        "mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat," \
        "seccomp,prctl,ptrace,process_vm_readv,process_vm_writev,socketpair,sendto,sendmsg,fcntl"
READS = ("read", "pread64", "readv", "preadv", "preadv2", "mmap", "sendfile", "copy_file_range", "splice")
DOOR = re.compile(r"seccomp\(SECCOMP_SET_MODE_FILTER, [^)]*\{len=\d+.*= 0")
# All of a recording but machine.dtb, which says what is opened for a machine; and the kernel, whose copy
# `replay -o` makes by its hash.
BELONGS = re.compile(r"(log|tail|gpu\.log|signature|marks|checkpoints/.*|files/.*)$")


def traced(t, *argv, code=0):
    """The system calls of a command and of all that it starts: (begun, done, pid, text)."""
    if not shutil.which("strace"):
        t.skip("strace is not installed")
    out = t.dir / "trace"
    t.run("strace", "-f", "-y", "-o", out, "-e", f"trace={CALLS},{','.join(READS)}", t.reprise, *argv, code=code)
    calls, cut = [], {}
    for now, line in enumerate(out.read_text(errors="replace").splitlines()):
        pid, rest = line.split(None, 1)
        if rest.endswith("<unfinished ...>"):
            cut[pid] = now, rest[:-len("<unfinished ...>")]
            continue
        began, start = cut.get(pid, (now, "")) if rest.startswith("<... ") else (now, "")
        calls.append((began, now, pid, start + re.sub(r"^<\.\.\. \w+ resumed>", "", rest)))
    return calls


def behind(t, calls, what):
    """What the command's own process does behind the door."""
    mine = [text for _, _, pid, text in calls if pid == calls[0][2]]
    door = [i for i, text in enumerate(mine) if DOOR.search(text)]
    t.check(door, f"{what} does not lock itself in")
    return [text for text in mine[door[0] + 1:] if text.split("(")[0] not in READS]


def read_of(calls, *parts):
    """Reads of what belongs to recordings or streams: all, and those by a process that was not locked in."""
    door, parent, reads, early = {}, {}, [], []
    for began, done, pid, text in calls:
        if DOOR.search(text):
            door.setdefault(pid, done)
        child = re.match(r"(?:clone3?|v?fork)\(.* = (\d+)(?:<[^>]*>)?$", text)
        if child:
            parent[child.group(1)] = pid, began

    def locked(pid, now):
        return door.get(pid, now) < now or pid in parent and locked(*parent[pid])

    for began, _, pid, text in calls:
        paths = re.findall(r"\d+<([^<>]+)>", text) if text.split("(")[0] in READS else ()
        for path in paths:
            beneath = [path[len(str(p)) + 1:] for p in parts if path.startswith(f"{p}/")]
            if path in map(str, parts) or any(BELONGS.match(b) for b in beneath):
                reads.append(text)
                if not locked(pid, began):
                    early.append(text)
    return reads, early


def outside(lines, *inside):
    """Calls that opened, made or started something that is not beneath one of `inside`, or that let
    it reach somebody."""
    found = []
    for line in lines:
        name = line.split("(")[0]
        if name in ("+++", "---", "exit_group") or name.startswith(("+++", "---")) or " = -1 " in line:
            continue
        if name == "prctl" and re.search("PR_SET_DUMPABLE, SUID_DUMP_DISABLE|PR_SET_NAME|PR_SET_VMA", line):
            continue
        if name == "socketpair" and "SOCK_DGRAM" not in line and "SOCK_RAW" not in line:
            continue
        if name == "sendto" and re.search(r", NULL, 0\s*\)", line) or \
                name == "sendmsg" and "msg_name=NULL" in line:
            continue
        if name == "fcntl" and not re.search("F_SETOWN|F_SETSIG|O_ASYNC", line):
            continue
        paths = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
        if name == "openat" and paths and (not paths[0].startswith("/") and "AT_FDCWD" not in line or
                                           any(os.path.abspath(paths[0]).startswith(str(i))
                                               for i in inside)):
            continue
        if name in ("mkdirat", "unlinkat", "renameat", "renameat2") and paths and \
                not any(p.startswith("/") for p in paths) and "AT_FDCWD" not in line:
            continue
        if name in ("clone", "clone3") and "CLONE_THREAD" in line:
            continue
        found.append(line)
    return found


def tried(t, made, *commands):
    """Each command, traced: it locks itself in, reads before that nothing of the recordings `made`, and
    reaches nothing but them and what it writes after that."""
    for argv in commands:
        what = "reprise " + " ".join(str(a) for a in argv[:3])
        calls = traced(t, *argv, code=None if argv[0] == "symbols" else 0)
        lines = behind(t, calls, what)
        t.check(any("PR_SET_DUMPABLE, SUID_DUMP_DISABLE" in line for line in lines), f"{what} leaves dumps")
        found = outside(lines, *made, t.dir / "again", t.dir / "new", t.dir / "png",
                        t.dir / "shown", t.dir / "pictures", "/proc/self/pagemap")
        t.check(not found, f"{what}: {found[:3]}")
        if argv[0] == "record":
            continue
        reads, early = read_of(calls, *made)
        if "-o" in argv and argv[0] == "replay":
            early = [e for e in early if "/files/" not in e]
        t.check(reads, f"{what} reads nothing: does the test look at the right files?")
        t.check(not early, f"{what} reads before it is locked in: {early[:3]}")
    return len(commands)


@test("locked/commands", cost=20)
def commands(t):
    """Each command, traced: nothing but the recording's own files behind the door, and nothing of them but
    the machine's description before."""
    if t.mode not in ("rel", "ubsan"):
        t.skip("this build locks nothing in")
    with open(t.dir / "disk.img", "wb") as f:
        f.truncate(1 << 20)
    t.tiny("rec", "gpu", "--gpu", "2d", "--disk", t.dir / "disk.img", "--net", "user", code=None)
    rec = t.dir / "rec"
    t.run("openssl", "genpkey", "-algorithm", "ed25519", "-out", t.dir / "key.pem")
    count = tried(
        t, [rec],
        ("sign", "--key", t.dir / "key.pem", rec), ("checkpoint", "--every", "0.001", rec), ("info", rec),
        ("events", rec), ("events", "--from", "event:1", "--to", "end", rec),
        ("events", "--from", "time:0.0001", rec), ("diff", rec, rec), ("replay", "--verify", rec),
        ("replay", "--to", "1000", "--regs", rec), ("replay", "--to", "event:1", rec),
        ("replay", "--to", "end", "--console", rec), ("replay", "--gdb=-", rec),
        ("replay", "--screenshot", t.dir / "s.png", rec),
        ("replay", "--display", f"png-every=0.1,{t.dir}/png", "--quiet", rec),
        ("replay", "-o", t.dir / "again", "--quiet", rec),
        ("trace", "--to", "30", rec), ("trace", "--to", "event:1", rec),
        ("core", rec, "-o", t.dir / "core"), ("core", "--gpu", rec, "-o", t.dir / "core2"), ("symbols", rec),
        ("disk", rec), ("disk", rec, "export", "--disk", "0", "-o", t.dir / "disk"),
        ("pcap", rec, "-o", t.dir / "pcap"), ("verify", rec), ("verify", "--no-replay", rec),
        ("verify", "--key", t.dir / "key.pem", rec), ("gpu", "list", rec), ("gpu", "show", rec, "1"),
        ("gpu", "extract", rec, "-o", t.dir / "extracted"), ("checkpoint", "--remove", rec),
        ("record", "-o", t.dir / "new", "--kernel", IMAGES / "tiny" / "stretch.elf", "--memory", "16M",
         "--disk", t.dir / "disk.img", "--net", "user", "--gpu", "2d", "--console", "hvc0",
         "--port", f"a=unix:{t.dir}/port", "--display", f"png-every=0.1,{t.dir}/png", "--checkpoint-every", "0.001",
         "--no-realtime"),
        ("record", "-o", t.dir / "shown", "--kernel", IMAGES / "tiny" / "stretch.elf", "--memory", "16M",
         "--gpu", "2d", "--display", "png-every=0.1", "--no-realtime"))
    if shutil.which("gdb"):
        count += tried(t, [rec], ("gdb", rec, "--", "-nx", "-batch", "-ex", "info registers"))
    t.check((t.dir / "core").stat().st_size > 1000, "no core was written")
    t.replay("again")
    t.replay("new")
    return f"{count} commands"


@test("locked/drawing", cost=20)
def drawing(t):
    """Likewise, the commands that draw a stream of GPU commands."""
    if t.mode not in ("rel", "ubsan"):
        t.skip("this build locks nothing in")
    log = scene(t, "scene.log", 4)
    return f"""{tried(
        t, [log], ("gpu", "list", log), ("gpu", "list", "--stats", log), ("gpu", "show", log, "3"),
        ("gpu", "replay", log), ("gpu", "replay", log, "-o", t.dir / "pictures"), ("gpu", "diff", log, log),
        ("gpu", "trim", log, "--frames", "2..3", "-o", t.dir / "part"), ("gpu", "who", log, "5", "5"))} commands"""


@test("locked/doctor")
def doctor(t):
    """doctor tries it, and says which of both hold."""
    text = t.run(t.reprise, "doctor", code=None, timeout=200).text
    if t.mode in ("asan", "cov"):
        t.has(text, r"sandbox.*not in this build")
    else:
        t.has(text, r"sandbox\s.*seccomp")
        t.lacks(text, r"does not hold here")


@test("locked/left-over", cost=2)
def left_over(t):
    """A command that is killed leaves no temporary file, and nobody behind."""
    if t.mode not in ("rel", "ubsan", "dev"):
        t.skip("this build locks nothing in")
    t.tiny("rec", "spin", "--timeout", "3", code=None, timeout=60)
    (t.dir / "to").mkdir()
    child = t.start([t.reprise, "pcap", t.dir / "rec", "-o", t.dir / "to" / "packets"])
    try:
        child.wait(2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    child.communicate(timeout=20)  # the process outside has closed what it had of ours
    for _ in range(100):
        if not [n for n in os.listdir(t.dir / "to") if n.endswith(".tmp")]:
            return
        try:
            t.start(["sleep", "0.1"]).wait(2)
        except subprocess.TimeoutExpired:
            pass
    t.check(False, "a temporary file is left")
