"""Symbols and core dumps out of recorded guests, read by the real gdb, readelf, drgn and crash."""
import json
import os
import re
import shutil

from suite.boot import image
from suite.gdb import Client, addresses, need_gdb
from suite.harness import ERROR, IMAGES, USAGE, test

NAMES = ["_text", "_stext", "start_kernel", "linux_banner", "do_idle", "init_task", "jiffies",
         "page_offset_base", "saved_command_line", "this_cpu_off"]
# The kernel's own; its modules are another test's.
SCRIPT = "grep -v '\\[' /proc/kallsyms | sort | md5sum; grep -E ' (%s)$' /proc/kallsyms\n" % "|".join(NAMES)
ROWS = r"^([0-9a-f]{16}) (\w) (\w+)$"


def gdb(t, *argv):
    r = t.run("gdb", "-nx", "-batch", "-ex", "set debuginfod enabled off", *argv)
    return r.text + r.error


def commands(*lines):
    return [part for line in lines for part in ("-ex", line)]


def symbols(name, kind, options, cost):
    @test("symbols/" + name, cost=cost)
    def run(t):
        """What the guest's own /proc/kallsyms says, byte for byte, from power-on to its end."""
        image(t, kind)
        r = t.linux("rec", *options, image=kind, script=SCRIPT)
        guest = {n: (int(a, 16), k) for a, k, n in re.findall(ROWS, r.text, re.M)}
        t.equal(sorted(guest), sorted(NAMES), "the names that the guest printed")
        digest = re.search(r"^([0-9a-f]{32})  -", r.text, re.M).group(1)
        end = t.info("rec")["position"]
        for at in (0, end // 9, end // 2, "end"):
            listed = t.run(t.reprise, "symbols", "--at", at, t.dir / "rec")
            own = b"".join(x for x in listed.out.splitlines(True)
                           if not x.startswith(b"ffffffffc"))  # where modules lie
            again = t.run("sort", input=own).out
            t.equal(t.run("md5sum", input=again).text[:32], digest, f"the symbols at {at}")
        made = json.loads(t.run(t.reprise, "symbols", "--json", "-o", t.dir / "guest.elf",
                                t.dir / "rec").out)
        t.check(made["symbols"] > 50000 and made["position"] == end, f"made {made}")
        t.check(made["release"].startswith("6.") and len(made["build_id"]) == 40, f"made {made}")
        look = [n for n in NAMES if guest[n][0] >> 63]
        text = gdb(t, *commands("file guest.elf",
                                *(f"info symbol 0x{guest[n][0]:x}" for n in look),
                                *(f"p/x (long)&{n}" for n in look),
                                f"info symbol 0x{guest['do_idle'][0] + 5:x}",
                                "info address start_kernel"))
        values = re.findall(r"\$\d+ = (0x[0-9a-f]+)", text)
        t.equal([int(v, 16) for v in values], [guest[n][0] for n in look], "gdb's addresses")
        for n in ("start_kernel", "do_idle", "init_task", "linux_banner"):
            t.has(text, rf"^{n} in section ", "gdb")
        t.has(text, r"^do_idle \+ 5 in section \.text$", "gdb")
        t.has(text, rf'^Symbol "start_kernel" is at 0x{guest["start_kernel"][0]:x} ', "gdb")
        where = t.run("addr2line", "-f", "-e", "guest.elf", hex(guest["do_idle"][0] + 5)).text
        t.equal(where.splitlines()[0], "do_idle", "addr2line's answer")
        t.lacks(t.run("readelf", "-aW", "guest.elf").error, "[Ww]arning|[Ee]rror", "readelf")
        return f"{made['symbols']} symbols of {made['release']}"


symbols("cloud", "linux", (), 8)
symbols("generic", "generic", ("--memory", "1G"), 14)
symbols("above-4g", "linux", ("--memory", "5G"), 9)


@test("symbols/modules", cost=6)
def modules(t):
    """Symbols of loaded modules, by the kernel's type information; the task that runs."""
    image(t)
    r = t.linux("rec", script="""cd /lib/modules/*/
insmod button.ko; insmod evdev.ko
grep '\\[' /proc/kallsyms
""")
    # The guest shows exported symbols in capitals, whatever their type.
    guest = {(a, k.lower(), n) for a, k, n in
             re.findall(r"^([0-9a-f]{16}) (\w) (\S+)\t\[\w+\]$", r.text, re.M)}
    t.check(len(guest) > 40, f"the guest lists {len(guest)} symbols of modules")
    lines = t.run(t.reprise, "symbols", t.dir / "rec").text.splitlines()
    ours = {(a, k.lower(), n) for a, k, n in (x.split(" ") for x in lines)}
    t.equal(sorted(guest - ours), [], "what is missing")
    t.equal(sorted(x for x in ours - guest if x[0] > "ffffffffc"), [], "what is not in the guest")
    t.run(t.reprise, "symbols", t.dir / "rec", "-o", "guest.elf")
    address = next(a for a, k, n in guest if n == "evdev_open")
    t.has(gdb(t, "guest.elf", *commands(f"info symbol 0x{address}")),
          r"^evdev_open in section evdev\.text$", "gdb")
    # While a module is initialised, the part of it that is then given back has its symbols too.
    with Client(t, "rec", "--to", "end") as c:
        c.point(0, addresses(t, t.dir / "guest.elf")["do_init_module"], 1)
        c.run("bc")
        at = c.position()
    t.run(t.reprise, "symbols", t.dir / "rec", "--at", at, "-o", "init.elf")
    address = addresses(t, t.dir / "init.elf")["evdev_init"]
    t.has(gdb(t, "init.elf", *commands(f"info symbol {address:#x}", "break *evdev_init")),
          r"^(evdev_init|init_module) in section evdev\.init\.text\nBreakpoint 1 at", "gdb")
    made = json.loads(t.run(t.reprise, "core", "--json", t.dir / "rec", "-o", "core").out)
    t.equal(made["comm"], "poweroff", "the task that runs at the end")
    t.check(30 < made["tasks"] < 100 and made["pid"] > 1, f"tasks: {made}")


# In gdb. Frames have names also where gdb writes <signal handler called>.
WALK = """import json, re
REGISTERS = "rip rsp rbx rbp r12 r13 r14 r15".split()
def quiet(line):
    return gdb.execute(line, to_string=True)
def go(point):
    quiet(f"monitor goto {point}")
    return not int(gdb.parse_and_eval("$cs")) & 3
def register(frame, name):
    v = frame.read_register(name)
    return None if v.is_optimized_out else int(v) & 2 ** 64 - 1
def frames():
    out, f = [], gdb.newest_frame()
    while f and len(out) < 100:
        pc = register(f, "rip")
        back = len(out) > 0 and f.newer().type() == gdb.NORMAL_FRAME  # after a call
        found = re.match(r"(\\S+).* in section", quiet(f"info symbol {pc - back}"))
        out.append((found.group(1).replace("[cold]", ".cold") if found else None, pc))
        if not pc >> 63:
            break
        f = f.older()
    return out
def returns():
    caller = gdb.newest_frame().older()
    should = {r: register(caller, r) for r in REGISTERS}
    quiet("finish")
    now = {r: register(gdb.newest_frame(), r) for r in REGISTERS}
    return [r for r in REGISTERS if should[r] not in (None, now[r])], sum(
        v is None for v in should.values())
"""
END = r"ret_from_fork|entry_SYSCALL|asm_|secondary_startup|common_startup|swapgs_|syscall_return|.*native_iret|startup"


def walked(t, script):
    """What a script in gdb says as JSON."""
    (t.dir / "walk.py").write_text(WALK + script)
    r = t.run(t.reprise, "gdb", t.dir / "rec", "--to", 10 ** 6, "--", "-nx", "-batch", "-ex",
              "set debuginfod enabled off", "-x", "walk.py")
    return json.loads(re.search(r"^JSON (.*)$", r.text, re.M).group(1))


@test("symbols/backtraces", cost=9)
def backtraces(t):
    """By the kernel's unwind tables gdb finds all callers, as the kernel does, and what they had in
    their registers."""
    need_gdb(t)
    image(t)
    r = t.linux("rec", script="""cd /lib/modules/*/; insmod button.ko; insmod evdev.ko
sort /proc/kallsyms | md5sum
echo 1 > /proc/sys/kernel/sysrq
echo t > /proc/sysrq-trigger
dmesg | grep -c .
""")
    end = t.info("rec")["position"]
    every = max(1, end // 200)
    found = walked(t, f"""
out = []
for at in range({every // 2}, {end}, {every}):
    if go(at):
        out.append((at, frames()))
print("JSON", json.dumps(out))
""")
    good = 0
    for at, frames in found:
        names = [name for name, pc in frames if pc >> 63]
        fine = None not in names and bool(re.match(END, names[-1]))
        good += fine
        if not fine:
            t.log.write(f"at {at}: {names}\n")
    t.check(len(found) >= 60, f"only {len(found)} points in the kernel")
    t.check(good >= 0.95 * len(found), f"{good} of {len(found)} backtraces are complete")

    # `replay --to` prints the same, without gdb: addresses, and the names that gdb has for them.
    deep = [(at, frames) for at, frames in found if len(frames) > 4 and frames[0][1] >> 63]
    thunks = [x for x in deep if x[1][0][0].startswith("__x86_")]  # where the kernel has no rows
    # One address may have several names; either is right. gdb leaves the number of a clone out:
    # f.isra.0 is f.isra there.
    known = [x.split(" ") for x in t.run(t.reprise, "symbols", t.dir / "rec").text.splitlines()]
    short = lambda name: re.sub(r"\.\d+$", "", name)
    first = {}  # the first name of an address
    alias = {short(x[2]): first.setdefault(x[0], short(x[2])) for x in known}
    plain = lambda name: alias.get(short(name), short(name))
    for at, frames in thunks[:3] + deep[::max(1, len(deep) // 4)]:
        there = json.loads(t.run(t.reprise, "replay", "--json", "--to", at, t.dir / "rec").out)
        ours = there["backtrace"]
        kernel = [pc for name, pc in frames if pc >> 63]
        t.equal([int(x["address"], 16) for x in ours if not x["user"]], kernel, f"the frames at {at}")
        names = [plain(x["symbol"].split("+")[0]) for x in ours[:3]]
        t.equal(names, [plain(name) for name, pc in frames[:3]], f"the names at {at}")
    t.check(len(deep) >= 4, f"only {len(deep)} points with callers")

    # Where the kernel has just printed what it thinks itself.
    trace = re.search(r"task:sh +state:R +running.*?<TASK>(.*?)RIP: 0033:0x(\w+)(.*?)</TASK>", r.text,
                      re.S)
    theirs = re.findall(r"\]  ([\w.]+)\+0x", trace.group(1))
    values = dict(re.findall(r"(RSP|RBX|RBP|R12|R13|R14|R15): (?:002b:)?(\w+)", trace.group(3)))
    there = walked(t, """
go("console:RIP: 0033:0x%s")
names = frames()
f = gdb.newest_frame()
while register(f, "rip") >> 63:
    f = f.older()
user = {r: register(f, r) for r in REGISTERS}
wrong, unknown = [], 0
for at in range(%d, %d, %d):
    f = gdb.newest_frame() if go(at) else None
    g = f.older() if f else None
    if g and f.type() == gdb.NORMAL_FRAME and g.type() == gdb.NORMAL_FRAME:
        w, u = returns()
        wrong += [(at, w)] if w else []
        unknown += u
print("JSON", json.dumps((names, user, wrong, unknown)))
""" % (trace.group(2), end // 50, end * 9 // 10, end // 25))
    frames, user, wrong, unknown = there
    ours = [name for name, pc in frames]
    t.equal(ours[ours.index(theirs[0]):-1], theirs, "the way to the system call")
    t.equal(user["rip"], int(trace.group(2), 16), "the user's RIP")
    t.equal({r: user[r.lower()] for r in values}, {r: int(v, 16) for r, v in values.items()},
            "the user's registers")
    t.check(not wrong and unknown < 40, f"not as after finish: {wrong}, {unknown} unknown")
    t.run(t.reprise, "symbols", t.dir / "rec", "-o", "guest.elf")
    r = t.run("readelf", "--debug-dump=frames", "guest.elf")
    t.lacks(r.error, ".", "readelf")
    lines = t.run("nm", "guest.elf").text
    address = re.search(r"^(\w+) \w evdev_open$", lines, re.M).group(1)
    t.has(r.text, f" pc={address}", "the frames of a module")
    return f"{good} of {len(found)} complete"


@test("symbols/usage")
def usage(t):
    """No Linux, existing files, positions that are not there."""
    t.tiny("rec", "spin", "--max-insns", 100000)
    rec, out = t.dir / "rec", t.dir / "out"
    for command in ("symbols", "core"):
        t.run(t.reprise, command, code=USAGE)
        t.run(t.reprise, command, rec, "--at", "noon", "-o", out, code=USAGE)
        r = t.run(t.reprise, command, rec, "--at", 10 ** 15, "-o", out, code=ERROR)
        t.has(r.error, "^reprise: .*end")
        t.run(t.reprise, command, t.dir / "nothing", "-o", out, code=ERROR)
        out.write_text("mine")
        r = t.run(t.reprise, command, rec, "-o", out, code=ERROR)
        t.has(r.error, "out is there already; --force replaces it")
        t.equal(out.read_text(), "mine", "the file that was there")
        out.unlink()
        r = t.run(t.reprise, command, rec, "-o", t.dir / "no" / "out", code=ERROR)
        t.has(r.error, "No such file")
    t.run(t.reprise, "symbols", "--force", rec, code=USAGE)
    t.run(t.reprise, "core", "-o", "-", rec, code=USAGE)
    r = t.run(t.reprise, "symbols", rec, code=ERROR)
    t.has(r.error, "no Linux kernel .* try a later point")
    t.check(not list(t.dir.glob("out*")), "a file was left")


@test("core/tiny")
def tiny(t):
    """A guest without Linux: its memory by physical addresses, its registers."""
    t.tiny("rec", "spin", "--max-insns", 100000)
    r = t.run(t.reprise, "core", t.dir / "rec", "-o", "core")
    t.has(r.text, "^There is no VMCOREINFO in the guest at this position")
    made = json.loads(t.run(t.reprise, "core", "--json", "--force", t.dir / "rec", "-o", "core")
                      .out)
    t.equal((made["vmcoreinfo"], made["direct_map"], made["segments"]), (False, False, 1), "made")
    elf = IMAGES / "tiny" / "spin.elf"
    text = gdb(t, elf, "core", *commands("p/x $rip", "x/16xb $rip"))
    t.has(text, r"^\$1 = 0x[0-9a-f]+$", "gdb")
    t.lacks(text, "Cannot access memory", "gdb")
    code = gdb(t, elf, *commands(f"x/16xb {re.search(r'= (0x[0-9a-f]+)', text).group(1)}"))
    bytes_of = lambda s: re.findall(r"\t(0x[0-9a-f]{2})\b", s)
    t.equal(bytes_of(text), bytes_of(code), "the code in the core")
    t.check((t.dir / "core").stat().st_blocks * 512 < 4 << 20, "the core has no holes")


@test("core/full")
def full(t):
    """A full disk, or a limit: a text, and nothing left."""
    t.tiny("rec", "spin", "--max-insns", 100000, memory="2G")
    r = t.run("sh", "-c", 'ulimit -f 2000000; exec "$0" "$@"', t.reprise, "core", t.dir / "rec", "-o",
              "core", code=ERROR)  # half of it
    t.has(r.error, "^reprise: core: cannot .*: File too large")
    t.check(not list(t.dir.glob("core*")), "a file was left")


def registers(t, at):
    """Of reprise, by the trace: what changes at the instruction in front of `at`."""
    lines = t.run(t.reprise, "trace", "--json", "--from", at, "--to", at + 3, t.dir / "rec").text
    return json.loads(lines.splitlines()[0])


@test("core/linux", cost=8)
def linux(t):
    """gdb reads a core with the symbols of `reprise symbols`; drgn reads it."""
    image(t)
    t.linux("rec", "--memory", "256M", append="quiet -- echo $((6*7)); head -c 8 /dev/urandom | wc -c")
    end = t.info("rec")["position"]
    at = end * 3 // 4
    made = json.loads(t.run(t.reprise, "core", "--json", "--at", at, t.dir / "rec", "-o",
                            "vmcore").out)
    t.equal((made["vmcoreinfo"], made["direct_map"], made["cut"], made["position"]),
            (True, True, False, at), "what was made")
    t.run(t.reprise, "symbols", "--at", at, t.dir / "rec", "-o", "guest.elf")
    r = t.run("readelf", "-hlnW", "vmcore")
    t.lacks(r.text + r.error, "[Ww]arning|[Ee]rror|corrupt", "readelf")
    for note in ("NT_PRSTATUS", "VMCOREINFO", "QEMU"):
        t.has(r.text, note, "readelf")
    on_disk = (t.dir / "vmcore").stat()
    t.check(on_disk.st_size > 256 << 20 and on_disk.st_blocks * 512 < on_disk.st_size * 3 // 4,
            f"{on_disk.st_blocks * 512} of {on_disk.st_size} bytes on the disk")

    text = gdb(t, "guest.elf", "vmcore", *commands(
        "printf \"banner %s\\n\", (char *)&linux_banner",
        "printf \"cmdline %s\\n\", *(char **)&saved_command_line", "printf \"rip %lx\\n\", $rip",
        "printf \"rsp %lx\\n\", $rsp", "printf \"cs %x\\n\", $cs", "x/2xg $rsp", "info threads"))
    t.has(text, r"^banner Linux version " + re.escape(made["release"]), "gdb")
    t.has(text, r"^cmdline console=ttyS0 .*quiet", "gdb")
    line = registers(t, at)
    t.equal(line["position"], at, "the trace's position")
    t.has(text, f"^rip {int(line['rip'], 16):x}$", "gdb")
    t.equal(int(re.search(r"^cs ([0-9a-f]+)", text, re.M).group(1), 16) & 3, line["cpl"],
            "the privilege level")
    drgn(t, made["release"])


def drgn(t, release):
    if not shutil.which("drgn") or not os.path.exists("/usr/bin/python3"):
        t.log.write("drgn: not installed (python3-drgn): not tried\n")
        return
    (t.dir / "look.py").write_text(f"""
import drgn
p = drgn.Program()
p.set_core_dump("vmcore")
assert p.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
def number(key):
    return int(info[key], 16)
import re, subprocess
raw = open("vmcore", "rb").read(65536)
start = raw.index(b"OSRELEASE=")
info = dict(l.split("=", 1) for l in raw[start:raw.index(bytes(1), start)].decode().splitlines()
            if "=" in l)
uts = number("SYMBOL(init_uts_ns)")
assert {release!r}.encode() in p.read(uts, 512), "by the kernel image"
# By page tables, from what drgn itself knows of VMCOREINFO; and by physical address.
physical = uts - 0xffffffff80000000 + int(info["NUMBER(phys_base)"])
assert p.read(uts, 512) == p.read(physical, 512, True)
print("drgn agrees", info["OSRELEASE"])
""")
    r = t.run("/usr/bin/python3", "look.py")
    t.has(r.text, "^drgn agrees " + re.escape(release), "drgn")
