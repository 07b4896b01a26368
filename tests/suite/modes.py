"""Protected, virtual-8086 and real-address mode: images/modes, which prints what it meets, and kernels of
32 bits."""
import json
import re
import shutil
import struct
import subprocess

from suite.harness import ERROR, IMAGES, ROOT, USAGE, rnd, test
from suite.boot import NOISE

ELF = IMAGES / "modes" / "modes.elf"
EXPECTED = ROOT / "images" / "modes" / "expected.txt"


def record(t, name, *options, append="", **more):
    if not ELF.exists():
        t.check(False, f"{ELF} is missing: make tiny")
    return t.record(name, "--memory", "16M", "--append", append, *options, kernel=ELF, **more)


def lines(r):
    return r.text.replace("\r", "").splitlines()


def entered(protocol):
    @test(f"modes/{protocol}", cost=2)
    def run(t):
        """The same by each way in, and as it was looked at; replays."""
        r = record(t, "rec", "--boot-protocol", protocol, code=None)
        t.equal(lines(r), EXPECTED.read_text().splitlines(), "what the guest met")
        t.same("rec", r)
        t.equal(t.info("rec")["boot_protocol"], protocol, "what info says")
        return f"{len(lines(r))} lines"


for name in ("pvh", "multiboot", "multiboot2"):
    entered(name)


def flat(version, wrong=0):
    """The guest as a file that is no ELF file, after a Multiboot header that says where it goes."""
    elf = ELF.read_bytes()
    entry, phoff = struct.unpack_from("<II", elf, 24)
    count = struct.unpack_from("<H", elf, 44)[0]
    parts = [p for p in struct.iter_unpack("<8I", elf[phoff:phoff + 32 * count]) if p[0] == 1]
    low, high = min(p[3] for p in parts), max(p[3] + p[5] for p in parts)
    last = max(p[3] + p[4] for p in parts)
    image = bytearray(last - low)
    for _, offset, _, at, size, _, _, _ in parts:
        image[at - low:at - low + size] = elf[offset:offset + size]
    head = low - 64
    if version == 1:
        flags = 0x10000
        header = struct.pack("<8I", 0x1badb002, flags, -(0x1badb002 + flags) & 0xffffffff, head + wrong, head, last,
                             high, entry)
    else:
        tags = struct.pack("<HHIIIII", 2, 0, 24, head + wrong, head, last, high)
        tags += struct.pack("<HHIII", 3, 0, 12, entry, 0) + struct.pack("<HHI", 0, 0, 8)
        fields = (0xe85250d6, 0, 16 + len(tags))
        header = struct.pack("<4I", *fields, -sum(fields) & 0xffffffff) + tags
    return header.ljust(64, b"\0") + image


@test("modes/flat", cost=2)
def flat_files(t):
    """A file that is loaded as its Multiboot header says, of both versions; addresses that make no sense."""
    path = t.dir / "flat.bin"
    for version in (1, 2):
        for wrong in (0, 0x10000, -0x10000):
            path.write_bytes(flat(version, wrong))
            r = t.record("rec", "--force", "--memory", "16M", kernel=path, code=ERROR if wrong else None)
            if wrong:
                t.has(r.error, r"flat.bin has a Multiboot header at byte 0 whose addresses make no sense \(header 0x")
                continue
            t.equal(lines(r), EXPECTED.read_text().splitlines(), f"what the guest met, version {version}")
            t.same("rec", r)


def fields(version):
    """Where the addresses are in flat()'s header: header, load, load end, memory end, entry."""
    return dict(zip(("header", "load", "end", "room", "entry"), range(12, 32, 4) if version == 1 else (24, 28, 32, 36, 48)))


@test("modes/nonsense", cost=4)
def nonsense(t):
    """Each address of a Multiboot header, and pairs of them, as they cannot be: refused with what is wrong."""
    path = t.dir / "flat.bin"
    for version in (1, 2):
        good = flat(version)
        load = struct.unpack_from("<I", good, fields(version)["load"])[0]
        sense = "addresses make no sense"
        for change, text in (({"header": 0}, sense), ({"header": 0xffffffff}, sense), ({"header": load + len(good)}, sense),
                             ({"load": load + 0x100000}, sense), ({"load": 0}, sense), ({"end": load}, sense),
                             ({"end": load - 1}, sense), ({"end": 1}, sense), ({"end": load + len(good) + 1}, sense),
                             ({"end": 0xffffffff}, sense), ({"room": load}, sense), ({"room": load + 1}, sense),
                             ({"room": 1}, sense), ({"room": 0xffffffff}, "does not fit into 16 MiB"),
                             ({"entry": 0}, "entry point 0x0 is in none"),
                             ({"entry": load - 1}, "entry point .* is in none"),
                             ({"entry": 0xffffffff}, "entry point 0xffffffff is in none"),
                             ({"header": 0x8000, "load": 0x8000, "end": 0, "room": 0}, "below 1 MiB"),
                             ({"header": 0, "load": 0, "end": 0, "room": 0}, "below 1 MiB"),
                             ({"header": 0xfffffff0, "load": 0xfffffff0, "end": 0, "room": 0}, sense),
                             ({"header": 0xc0000000, "load": 0xc0000000, "end": 0, "room": 0}, "does not fit into 16 MiB"),
                             ({"header": 0xf00000, "load": 0xf00000, "end": 0, "room": 0x1000001}, "does not fit into 16 MiB")):
            file = bytearray(good)
            for name, value in change.items():
                struct.pack_into("<I", file, fields(version)[name], value)
            path.write_bytes(file)
            r = t.record("x", "--memory", "16M", kernel=path, code=ERROR)
            t.has(r.error, text)
        for size in range(0, 64, 4):  # cut short in the header
            path.write_bytes(good[:size])
            t.record("x", "--memory", "16M", kernel=path, code=ERROR)
    # In an ELF file, which is loaded as its program headers say, they must mean the same entry.
    elf = bytearray(ELF.read_bytes())
    at = elf.index(struct.pack("<I", 0x1badb002))
    struct.pack_into("<8I", elf, at, 0x1badb002, 0x10000, -(0x1badb002 + 0x10000) & 0xffffffff, 0, 0, 0, 0, 0x1234)
    path.write_bytes(elf)
    r = t.record("x", "--memory", "16M", "--boot-protocol", "multiboot", kernel=path, code=ERROR)
    t.has(r.error, "no entry for the boot protocol multiboot")


@test("modes/info", cost=2)
def info(t):
    """What ran, by `info`."""
    record(t, "rec", code=None)
    names = ["real mode", "virtual-8086 mode", "16-bit protected mode", "32-bit protected mode",
             "32-bit compatibility mode", "64-bit mode"]
    t.equal(t.info("rec")["modes"], names, "the modes of a guest that goes through all")
    t.has(t.run(t.reprise, "info", t.dir / "rec").text, "(?m)^code +" + ", ".join(names) + "$")
    t.tiny("one", "exceptions", code=None)
    t.equal(t.info("one")["modes"], ["64-bit mode"], "the modes of a guest of 64 bits")


@test("modes/gdb", cost=4)
def gdb(t):
    """Started in real-address mode, gdb is shown an i8086, whose program counter is linear."""
    if not shutil.which("gdb"):
        t.skip("no gdb")
    record(t, "rec", code=None)
    out = t.run(t.reprise, "trace", "--json", "--from", "console:real limits", "--to", "console:unreal",
                t.dir / "rec").text
    trace = [json.loads(x) for x in out.splitlines()]
    begin = next(i for i, x in enumerate(trace) if x["text"] == "mov ebx, 0x200000")  # in real mode, at 800:
    here, later = trace[begin], trace[begin + 4]
    path = t.dir / "script.gdb"
    path.write_text(f"""show architecture
printf "at %x %x\\n", $ip, $eip - $cs_base
printf "base %x\\n", $cs_base
printf "bytes %02x\\n", *(unsigned char *)$eip
hbreak *($cs_base + 0x{later["rip"]})
continue
printf "later %x %x\\n", $ip, $eip - $cs_base
set $last = $eip
reverse-stepi 4
printf "back %x\\n", $ip
continue
printf "again %d\\n", $eip == $last
monitor when
""")
    out = t.run(t.reprise, "gdb", "--to", f"insn:{here['position']}", t.dir / "rec", "--", "-nx", "-batch", "-x", path,
                stderr=subprocess.STDOUT, timeout=100, code=None).text
    first, second = int(here["rip"], 16), int(later["rip"], 16)
    for line in ("i8086", f"^at {first:x} {first:x}$", f"^bytes {here['bytes'][:2]}$", f"^later {second:x} {second:x}$",
                 f"^back {first:x}$", "^again 1$", "^base 8000$", f"insn:{later['position']}|{later['position']}"):
        t.has(out, "(?m)" + line)


@test("modes/auto", cost=1)
def auto(t):
    """PVH is first; what is wrong with a kernel's entry is said."""
    r = record(t, "rec", code=None)
    t.equal(lines(r)[-1], "end", "its last line")
    t.lacks(t.run(t.reprise, "info", t.dir / "rec").text, "entered by")
    r = t.tiny("x", "spin", "--boot-protocol", "multiboot", code=ERROR)
    t.has(r.error, "no entry for the boot protocol multiboot")
    r = t.tiny("x", "spin", "--boot-protocol", "netboot", code=USAGE)
    t.has(r.error, "--boot-protocol: 'netboot' is none of linux, pvh, multiboot, multiboot2")
    bare = t.dir / "bare.elf"
    data = bytearray(ELF.read_bytes())
    for magic in (b"\x02\xb0\xad\x1b", b"\xd6\x50\x52\xe8", b"Xen\0"):
        while magic in data:
            data[data.index(magic)] ^= 0xff
    bare.write_bytes(data)
    r = t.record("x", kernel=bare, code=ERROR)
    t.has(r.error, "has 32 bits, and neither a note for PVH nor a header for Multiboot")


@test("modes/brief", cost=1)
def brief(t):
    """Without what is random: the same lines otherwise."""
    r = record(t, "rec", append="brief", code=None)
    rest = [x for x in EXPECTED.read_text().splitlines() if not re.match("seg |null |callgate |intgate ", x)]
    t.equal(lines(r), rest, "what the guest met")


@test("modes/slices", cost=3)
def slices(t):
    """Wherever slices end, and by other engines."""
    r = record(t, "rec", "--boot-protocol", "pvh", code=None)
    for n in (1, 7, 997):
        t.same("rec", r, env={"REPRISE_TEST_SLICE": str(n)})
    seed = rnd.randrange(1 << 20)
    t.has(t.same("rec", r, "--engine", f"dbt,paranoid,seed={seed}").error, "no difference$")


# What QEMU's translator does otherwise: it looks at no segment's limit, says of a reserved bit that the page is
# absent, checks no PDPTE, and takes CR0.PG without PE (the guest leaves out what follows, when told "tcg").
OTHERWISE = re.compile(r"real limits|p32 reserved|pae reserved|pae pdpte|pae without NXE|control")


def comparable(text):
    out = []
    for x in text:
        if out and out[-1] == "v86 free" or OTHERWISE.match(x):
            continue
        out.append(x)
    return out


@test("modes/qemu", cost=6)
def qemu(t):
    """A second opinion, on random descriptors and gates."""
    program = shutil.which("qemu-system-x86_64")
    if not program:
        t.skip("no qemu-system-x86_64")
    for _ in range(3):
        seed = rnd.randrange(1, 1 << 30)
        append = f"seed={seed} tcg"
        t.run(program, "-M", "pc", "-cpu", "max", "-m", 16, "-display", "none", "-no-reboot", "-serial",
              f"file:{t.dir}/serial", "-monitor", "none", "-kernel", ELF, "-append", append, timeout=60)
        theirs = (t.dir / "serial").read_text().replace("\r", "").splitlines()
        ours = lines(record(t, "rec", "--boot-protocol", "multiboot", "--force", append=append, code=None))
        a, b = comparable(ours), comparable(theirs)
        different = [f"ours {x!r}, QEMU's {y!r}" for x, y in zip(a, b) if x != y]
        t.equal((different[:3], len(a)), ([], len(b)), f"the lines with seed={seed}")
    return f"{len(a)} lines each"


def linux(kind, *options):
    @test(f"modes/linux-{kind}", cost=15)
    def run(t):
        if not (IMAGES / f"linux-{kind}" / "vmlinuz").exists():
            t.skip("no kernel of 32 bits: make image-686 (Debian 12 has them)")
        r = t.linux("rec", *options, image=f"linux-{kind}", append="-- uname -m; busybox sha256sum /bin/busybox",
                    timeout=120)
        t.has(r.text, "^i686$")
        t.has(r.text, "reprise: script ended with status 0")
        t.has(r.text, "reboot: Power down")
        t.lacks(r.text, NOISE)
        t.same("rec", r, timeout=120)
        return f"{t.info('rec')['position'] / 1e9:.2f} G instructions"


linux("686")
linux("686-pae", "--cpu", "x86-64-v2", "--memory", "1G")


# What a kernel of 32 bits says of itself, then a 32-bit program, and where it asks for its stack.
ASK = """grep -v '\\[' /proc/kallsyms | sort | md5sum
grep '\\[' /proc/kallsyms
echo 1 >/proc/sys/kernel/sysrq
echo t >/proc/sysrq-trigger
dmesg | grep -c Trace
busybox timeout 1 compat | head -c 600
"""


def in_gdb(t, at, *lines, add=()):
    path = t.dir / "script.gdb"
    path.write_text("\n".join(("set pagination off", *lines)) + "\n")
    return t.run(t.reprise, "gdb", "--to", at, t.dir / "rec", "--", "-nx", "-batch", "-x", path, *add,
                 stderr=subprocess.STDOUT, timeout=100, code=None).text


def backtraces(t, text):
    """Symbols, frames and tasks of a kernel of 32 bits, as it says them itself; then in gdb."""
    digest = re.search(r"^([0-9a-f]{32})  -", text, re.M).group(1)
    own = t.run(t.reprise, "symbols", t.dir / "rec").text
    # Exported ones are in capitals there, whatever their type.
    guest = {(a, k.lower(), n) for a, k, n in
             re.findall(r"^([0-9a-f]{8}) (\w) (\S+)\t\[\w+\]$", text.replace("\r", ""), re.M)}
    ours = {(a, k.lower(), n) for a, k, n in re.findall(r"^0{8}([0-9a-f]{8}) (\w) (\S+)$", own, re.M)}
    t.check(len(guest) > 100, f"the guest lists {len(guest)} symbols of modules")
    t.equal(sorted(guest - ours), [], "symbols of modules that are missing")
    lines = sorted(x[8:] for x in own.splitlines() if (x[8:16], x[17].lower(), x[19:]) not in guest)
    sums = t.run("md5sum", input=("\n".join(lines) + "\n").encode()).text
    t.equal(sums[:32], digest, "the kernel's symbols")
    # Where the kernel prints its own stack of the shell that asks.
    trace = re.search(r"task:sh +state:R +running.*?Call Trace:\n(.*?)EIP: 0x(\w+)", text.replace("\r", ""), re.S)
    theirs = re.findall(r"\]  ([\w.]+)\+0x", trace.group(1))
    there = json.loads(t.run(t.reprise, "replay", "--json", "--to", "console:sched_show_task", t.dir / "rec").out)
    names = [re.sub(r"\+.*", "", x["symbol"]) for x in there["backtrace"]]
    t.equal(names[names.index(theirs[0]):-1], theirs, "the way to the system call")
    last = there["backtrace"][-1]
    t.equal((int(last["address"], 16), last["user"]), (int(trace.group(2), 16), True), "the program that made it")
    t.equal(there["process"]["comm"], "sh", "the task that runs")
    end = t.info("rec")["position"]
    good = []
    for at in range(end // 20, end, end // 10):
        frames = json.loads(t.run(t.reprise, "replay", "--json", "--to", at, t.dir / "rec").out)["backtrace"]
        last = frames[-1]
        good.append(last["user"] or last["symbol"].startswith(("ret_from_fork", "startup_32")) or
                    not int(last["address"], 16))
    t.check(good.count(True) >= len(good) - 1, f"complete backtraces: {good}")
    if not shutil.which("gdb"):
        return
    out = in_gdb(t, "console:sched_show_task", "bt", "printf \"pid %d\\n\", $pid", "print/s $comm")
    frames = re.findall(r"^#\d+ +(?:0x(\w+) in )?([\w.]+)", out, re.M)
    plain = [x.removesuffix(".cold") for x in theirs]
    ours = [x[1].removesuffix(".cold") for x in frames]
    t.equal(ours[names.index(theirs[0]):][:len(plain)], plain, "gdb's frames")
    t.has(out, f"(?m)^pid {there['process']['pid']}$")
    t.has(out, '= "sh"')


def program(t):
    """A 32-bit program: its stack above the kernel's, through the kernel's page and a signal's handler."""
    elf = IMAGES / "guest" / "compat"
    # In a process where its addresses are mapped a breakpoint would be that one's.
    out = in_gdb(t, t.info("rec")["position"] // 10, f"add-symbol-file {elf}", "tbreak handler",
                 "continue", "print/s $comm", "bt 3", "tbreak ksys_write", "continue", "bt", "show architecture")
    t.has(out, r'"compat')
    t.has(out, r"(?m)^#0 +handler \(sig=11")
    t.has(out, r"(?ms)^#0 .* ksys_write .*entry_SYSENTER_32 .*in fast_call \(.*compat.c:\d+.*start \(")
    t.has(out, "i386")


def cores(t):
    """A core of a kernel of 32 bits, by gdb."""
    made = json.loads(t.run(t.reprise, "core", "--json", "--at", "console:sched_show_task", t.dir / "rec", "-o",
                            "vmcore").out)
    t.equal((made["vmcoreinfo"], made["direct_map"], made["cut"], made["comm"]), (True, True, False, "sh"), "made")
    t.run(t.reprise, "symbols", t.dir / "rec", "-o", "guest.elf")
    r = t.run("readelf", "-hlnW", "vmcore")
    t.lacks(r.text + r.error, "[Ww]arning|[Ee]rror|corrupt", "readelf")
    t.has(r.text, "Intel 80386")
    t.lacks(t.run("readelf", "-aW", "guest.elf").error, "[Ww]arning|[Ee]rror", "readelf")
    t.lacks(t.run("readelf", "--debug-dump=frames", "guest.elf").error, ".", "readelf")
    if shutil.which("gdb"):
        out = t.run("gdb", "-nx", "-batch", "-ex", "bt", "guest.elf", "vmcore", stderr=subprocess.STDOUT).text
        t.has(out, r"(?ms)sched_show_task.*__ia32_sys_write.*do_SYSENTER_32")


def inspected(kind, *options):
    @test(f"modes/inspect-{kind}", cost=30)
    def run(t):
        """Symbols, tasks, backtraces, cores and programs of a kernel of 32 bits."""
        elf = IMAGES / "guest" / "compat"
        if not (IMAGES / f"linux-{kind}" / "vmlinuz").exists():
            t.skip("no kernel of 32 bits: make image-686 (Debian 12 has them)")
        r = t.linux("rec", *options, "--add", f"{elf}:/bin/compat", image=f"linux-{kind}", script=ASK, timeout=120)
        t.run(t.reprise, "checkpoint", t.dir / "rec", timeout=120)
        backtraces(t, r.text)
        cores(t)
        if shutil.which("gdb"):
            program(t)


inspected("686")
inspected("686-pae", "--memory", "1G")


def imitated(counter, imitation):
    @test(f"modes/kvm-{counter}", cost=4)
    def run(t):
        """By the engine kvm, on the imitation of KVM; replays by dbt."""
        if not ELF.exists():
            t.check(False, f"{ELF} is missing: make tiny")
        r = t.run(t.build / "tests" / "imitation" / "reprise", "record", "-o", t.dir / "rec", "--memory", "16M",
                  "--engine", "kvm", "--counter", counter, "--boot-protocol", "pvh", "--kernel", ELF, code=None,
                  env={"REPRISE_IMITATION": imitation}, timeout=100)
        t.equal(lines(r), EXPECTED.read_text().splitlines(), "what the guest met")
        t.same("rec", r)


imitated("step", "seed=3")
imitated("pmu", "seed=5,cpu=skylake,skid=60,early=1/20")
