"""Commands lock themselves in (docs/security.md): what they open, connect to and start after that."""
import os
import re
import shutil
import subprocess

from suite.harness import IMAGES, test

CALLS = "open,openat,openat2,creat,socket,connect,bind,execve,fork,vfork,clone,clone3,kill," \
        "mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat," \
        "seccomp,ptrace,process_vm_readv,process_vm_writev"
DOOR = re.compile(r"seccomp\(SECCOMP_SET_MODE_FILTER, [^)]*\{len=\d+.*= 0")


def traced(t, *argv, code=0):
    """The system calls of the command's own process behind the door."""
    if not shutil.which("strace"):
        t.skip("strace is not installed")
    out = t.dir / "trace"
    t.run("strace", "-f", "-o", out, "-e", f"trace={CALLS}", t.reprise, *argv, code=code)
    lines = [line.split(None, 1) for line in out.read_text().splitlines() if " " in line]
    main, mine, cut = lines[0][0], [], ""
    for rest in (rest for pid, rest in lines if pid == main):
        if rest.endswith("<unfinished ...>"):
            cut = rest[:-len("<unfinished ...>")]
            continue
        mine.append(re.sub(r"^<\.\.\. \w+ resumed>", lambda m: cut, rest))
    door = [i for i, rest in enumerate(mine) if DOOR.search(rest)]
    t.check(door, f"reprise {argv[0]} does not lock itself in")
    return mine[door[0] + 1:]


def outside(lines, *inside):
    """Calls that opened, made or started something that is not beneath one of `inside`."""
    found = []
    for line in lines:
        name = line.split("(")[0]
        if name in ("+++", "---", "exit_group") or name.startswith(("+++", "---")) or " = -1 " in line:
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


@test("locked/commands", cost=8)
def commands(t):
    """Each command, traced: nothing but the recording's own files behind the door."""
    if t.mode not in ("rel", "ubsan"):
        t.skip("this build locks nothing in")
    t.tiny("rec", "echo", code=None)
    rec = t.dir / "rec"
    count = 0
    with open(t.dir / "disk.img", "wb") as f:
        f.truncate(1 << 20)
    t.run("openssl", "genpkey", "-algorithm", "ed25519", "-out", t.dir / "key.pem")
    for argv in (("info", rec), ("events", rec), ("diff", rec, rec), ("replay", "--verify", rec),
                 ("replay", "--to", "1000", "--regs", rec), ("trace", "--to", "30", rec),
                 ("core", rec, "-o", t.dir / "core"), ("checkpoint", rec), ("disk", rec),
                 ("replay", "--to", "end", "--console", rec),
                 ("sign", "--key", t.dir / "key.pem", rec),
                 ("replay", "-o", t.dir / "again", "--quiet", rec),
                 ("record", "-o", t.dir / "new", "--kernel", IMAGES / "tiny" / "stretch.elf", "--memory", "16M",
                  "--disk", t.dir / "disk.img", "--net", "user", "--gpu", "2d", "--console", "hvc0",
                  "--port", f"a=unix:{t.dir}/port", "--display", f"png-every=0.1,{t.dir}/png", "--checkpoint-every", "0.001",
                  "--no-realtime"),
                 ("record", "-o", t.dir / "shown", "--kernel", IMAGES / "tiny" / "stretch.elf", "--memory", "16M",
                  "--gpu", "2d", "--display", "png-every=0.1", "--no-realtime")):
        found = outside(traced(t, *argv), rec, t.dir / "again", t.dir / "new", t.dir / "png", t.dir / "shown", "/proc/self/pagemap")
        t.check(not found, f"reprise {argv[0]}: {found[:3]}")
        count += 1
    t.check((t.dir / "core").stat().st_size > 1000, "no core was written")
    t.replay("again")
    t.replay("new")
    return f"{count} commands"


@test("locked/doctor")
def doctor(t):
    """doctor tries it, and says which of both hold."""
    text = t.run(t.reprise, "doctor", code=None, timeout=200).text
    if t.mode in ("asan", "cov"):
        t.has(text, r"sandbox.*not in this build")
    else:
        t.has(text, r"sandbox\s.*seccomp")


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
