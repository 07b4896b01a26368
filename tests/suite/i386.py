"""Programs of 32 bits, and x32, under Debian's 64-bit kernel (images/i386): as on the host, recorded, replayed.

The same files run on the host, entered by chroot, where its kernel has what they need; the kernel's x86 selftests
say themselves whether all is well.
"""
import os
import re
import subprocess

from suite.boot import NOISE
from suite.harness import IMAGES, Failure, rnd, test

IMAGE = IMAGES / "i386"
STATIC = IMAGE / "static"
ENTER = """mount --make-rprivate / && mount -o rbind /dev "$1/dev" && mount -o rbind /proc "$1/proc" &&
mount -t tmpfs tmp "$1/tmp" || exit 99
root=$1; shift
exec env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin no_x32=y setarch -R chroot "$root" /i386/run "$@"
"""
SKIPPED = "== status 4"  # of the kernel's selftests
# What a selftest's status is where it is not 0, and why.
OTHERWISE = {"amx_64": (1, "the CPU models have no AMX")}


def parts(text):
    """What each part of run's said, its status as the last line."""
    out, name = {}, None
    for line in text.replace("\r", "").splitlines():
        if line.startswith("== status "):
            out[name].append(line)
            name = None
        elif line.startswith("== "):
            name = line[3:]
            out[name] = []
            name = None if name == "end" else name
        elif name:
            out[name].append(line)
    return out


def guest(t, name, group, *options, append="", timeout=300, **more):
    if not (IMAGE / "disk.img").exists():
        t.skip("build/images/i386 is not built: make image-i386")
    r = t.linux(name, "--disk", f"{IMAGE}/disk.img,readonly", "--memory", "2G", *options, image="i386",
                append=f"quiet syscall.x32=y {append} reprise.end=exit -- i386 {group}", timeout=timeout, **more)
    t.has(r.text, "^== end$")
    t.lacks(r.text, NOISE)
    return r


def native(t, group, timeout=120):
    """The same on the host; None where that cannot be."""
    (t.dir / "enter.sh").write_text(ENTER)
    r = t.run("unshare", "-m", *([] if os.geteuid() == 0 else ["-r"]), "sh", t.dir / "enter.sh", IMAGE / "tree",
              *group.split(), timeout=timeout, stderr=subprocess.STDOUT, code=None)
    found = parts(r.text)
    return found if "end" in found else None


def fine(t, found, names=()):
    for name, lines in found.items():
        status = lines[-1] if lines else ""
        if name != "end" and status not in ("== status 0", SKIPPED) and name not in names:
            raise Failure(f"{name}: {status[3:] or 'no end'}: {' / '.join(lines[-4:-1])}")


def as_there(t, found, there, leave_out=None):
    """Compared with the host's, but for the lines that match `leave_out`."""
    for name, lines in (there or {}).items():
        a, b = ([x for x in y if not (leave_out and re.match(leave_out, x))] for y in (found.get(name, []), lines))
        differ = [f"{x!r}, there {y!r}" for x, y in zip(a, b) if x != y]
        t.equal((differ[:3], len(a)), ([], len(b)), f"{name}: what is not as on the host")


def told(t, found, there, name="rec"):
    where = "as on the host" if there else "this host cannot run them"
    return f"{len(found) - 1} parts, {where}; {t.info(name)['position'] / 1e9:.2f} G instructions"


def same_abi(t, found, kinds):
    """The same program by its three ABIs prints the same but for its first line, the sizes."""
    for kind in kinds:
        t.equal(found[kind][1:], found[kinds[0]][1:], f"{kind}, compared with {kinds[0]}")


@test("i386/programs", cost=25)
def programs(t):
    """dash, busybox, gcc -m32, -m64 and -mx32 and what it makes, perl, Python."""
    r = guest(t, "rec", "programs")
    found, there = parts(r.text), native(t, "programs")
    fine(t, found)
    if there:
        del there["gcc-x32"]
    as_there(t, found, there)
    same_abi(t, found, ("gcc-64", "gcc-32", "gcc-x32"))
    t.same("rec", r, timeout=300)
    return told(t, found, there)


@test("i386/segments", cost=15)
def segments(t):
    """LDT segments of all kinds, calls between code of 16, 32 and 64 bits, 16-bit stacks, thread areas, ways into the
    kernel; one program by three ABIs."""
    r = guest(t, "rec", "segments", append="vsyscall=xonly")
    found, there = parts(r.text), native(t, "segments")
    fine(t, found)
    as_there(t, found, there, "way_sys|vsyscall")
    same_abi(t, found, ("program-64", "program-32", "program-x32"))
    # As an Intel CPU has it, whatever the host's: SYSCALL is 64-bit code's, SYSENTER everybody's.
    for name in ("segments-32", "segments-64"):
        t.has("\n".join(found[name]), "^way_syscall: signal 4 trap 6 ")
    t.has("\n".join(found["segments-32"]), "^way_sysenter: 00000000 ")
    for line in ("time: signal 0 trap 0", "time near: 1", "read: signal 11 trap 14"):
        t.has("\n".join(found["segments-64"]), f"^vsyscall {line}$")
    t.same("rec", r, timeout=300, env={"REPRISE_TEST_SLICE": rnd.choice([997, 123457])})
    return told(t, found, there)


def tested(t, found):
    fine(t, found, OTHERWISE)
    for name, (status, why) in OTHERWISE.items():
        if name in found:
            t.equal(found[name][-1], f"== status {status}", f"{name} ({why})")
    for name, lines in found.items():
        if name not in OTHERWISE:
            t.lacks("\n".join(lines), r"\[FAIL\]", name)


@test("i386/selftests", cost=20)
def selftests(t):
    """The kernel's x86 selftests, of 32 and of 64 bits."""
    r = guest(t, "rec", "selftests", append="vsyscall=emulate")
    found = parts(r.text)
    tested(t, found)
    t.check(len(found) > 40, f"only {len(found)} selftests")
    t.same("rec", r, timeout=300)
    return told(t, found, True).replace("as on the host", "as they want it")


@test("i386/counters", cost=20)
def counters(t):
    """The kernel's selftests of performance counters, of 32 and of 64 bits, as processes of a CPU that has some."""
    t.need_model("skylake-server")
    r = guest(t, "rec", "counters", "--cpu", "skylake-server")
    found = parts(r.text)
    tested(t, found)
    t.check(len(found) == 5, f"{len(found)} parts")
    for name, lines in found.items():
        if name != "end":
            t.has("\n".join(lines), r"# PASSED: (\d+) / \1 tests passed", name)
    t.same("rec", r, timeout=300)
    return told(t, found, True).replace("as on the host", "as they want it")


@test("i386/kernel", cost=20)
def kernel(t):
    """The selftests of 32 bits under a kernel of 32 bits. (Debian's have no vm86(): for that mode see modes/.)"""
    names = sorted(x.name for x in STATIC.glob("*")) if STATIC.exists() else []
    if not names or not (IMAGES / "linux-686-pae" / "vmlinuz").exists():
        t.skip("build/images/i386 or linux-686-pae is not built: make image-i386 image-686 (Debian 12 has them)")
    script = "\n".join(f"echo == {x}; timeout -s KILL 60 /t/{x} 2>&1; echo == status $?" for x in names)
    r = t.linux("rec", *(o for x in names for o in ("--add", f"{STATIC / x}:/t/{x}")), "--memory", "512M",
                image="linux-686-pae", append="quiet", script=script + "\necho == end", timeout=300)
    found = parts(r.text)
    t.lacks(r.text, NOISE)
    tested(t, found)
    t.check(len(found) > 15, f"only {len(found)} selftests")
    t.same("rec", r, timeout=300)
    return told(t, found, True).replace("as on the host", "as they want it")


@test("i386/more", cost=60)
def more(t):
    """Python and perl for longer."""
    r = guest(t, "rec", "more", timeout=900)
    found, there = parts(r.text), native(t, "more")
    fine(t, found)
    as_there(t, found, there)
    t.same("rec", r, timeout=900)
    return told(t, found, there)


@test("i386/stress", cost=100)
def stress(t):
    """stress-ng of i386, which checks what it computes."""
    r = guest(t, "rec", "stress", timeout=1500)
    found = parts(r.text)
    fine(t, found)
    t.lacks(r.text, r"stress-ng: fail")
    t.same("rec", r, timeout=1500)
    return told(t, found, True).replace("as on the host", "without a failure of its checks")


@test("i386/wine", cost=100)
def wine(t):
    """Wine's loader: makes its directory, runs programs for Windows of 32 and of 64 bits."""
    r = guest(t, "rec", "wine", timeout=1500)
    found = parts(r.text)
    fine(t, found, ("hello32", "hello64"))
    for bits in (32, 64):
        t.equal(found[f"hello{bits}"], [f"hello from {bits} bits of Windows_NT, sum 562641396", "== status 3"],
                f"hello{bits}.exe")
    t.equal(found["cmd32"], ["x86", "== status 0"], "cmd.exe of 32 bits")
    t.same("rec", r, timeout=1500)
    return told(t, found, True).replace("as on the host", "as they should")


def soak(t, drawn):
    """A group with other seeds, models and engines; replayed in other slices."""
    group = drawn.choice(["segments", "segments", "selftests", "selftests", "programs", "stress"])
    options = ["--seed", str(drawn.getrandbits(64)), "--cpu", drawn.choice(["x86-64-v2", "x86-64-v3"])]
    if drawn.random() < 0.25 and group == "segments":
        options += ["--engine", f"dbt,paranoid,seed={drawn.randrange(1 << 20)}"]
    r = guest(t, "rec", group, *options, append="vsyscall=" + drawn.choice(["emulate", "xonly"]), timeout=3000)
    tested(t, parts(r.text))
    t.same("rec", r, timeout=3000, env={"REPRISE_TEST_SLICE": drawn.choice([997, 123457, 7000003])})
