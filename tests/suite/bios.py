"""Entry by code of 16 bits: the BIOS (images/modes/setup.S asks it), Linux, and Debian's kernels that are no
Linux (make image-kernels)."""
import re

from suite.harness import ERROR, HALTED, IMAGES, test
from suite.boot import NOISE

SETUP = IMAGES / "modes" / "setup.bin"
KERNELS = IMAGES / "kernels"
# 2001-09-09 01:46:40: 116522 ticks after midnight.
CLOCK = ("--wall-clock", "@1000000000")

# What a PC without disk, keyboard and screen says: AX BX CX DX, and c if CF is set.
SERVICES = """
int 0x11 0: 202 0 0 80
int 0x12 0: 27f 0 0 80
int 0x13 0x0000: 100 0 0 80 c
int 0x13 0x0800: 100 0 0 80 c
int 0x13 0x4100: 100 0 0 80 c
int 0x15 0x5300: 8600 0 0 80 c
int 0x15 0x8800: 3c00 0 0 80
int 0x15 0x2401: 1 0 0 80
int 0x15 0x2402: 1 0 0 80
int 0x15 0x2403: 3 0 0 80
int 0x15 0xe801: 3c00 0 3c00 0
int 0x15 0xe980: 8680 0 0 80 c
int 0x15 0xec00: 8600 0 0 80 c
int 0x10 0x0f00: 5003 0 0 80
int 0x10 0x0300: 300 0 0 0
int 0x10 0x1a00: 1a00 0 0 80
int 0x10 0x4f00: 4f00 0 0 80
int 0x14 0x0300: 8000 0 0 80
int 0x17 0x0200: 100 0 0 80
int 0x16 0x0200: 200 0 0 80
int 0x16 0x0100: 100 0 0 80 zf 1
int 0x1a 0x0200: 200 0 146 4000
int 0x1a 0x0400: 400 0 2001 909
int 0x1a 0xb101: b101 0 0 80 c
int 0x60 0x1234: 1234 0 0 80
configuration 600001fc
e820 0:0 0:9fc00 type 1 then 1
e820 0:9fc00 0:400 type 2 then 2
e820 0:e0000 0:20000 type 2 then 3
e820 0:100000 0:f00000 type 1 then 0
refused 86 1
refused 86 1
refused 86 1
ticks 1 c72a slept 3 waited 2 2 ms 1
string abcde
end"""
GIVEN = """cs 9020 ds 9000 es 9000 ss 9000 sp dffc flags 46
loader 81ff heap de00 line 9e000 initrd 0 seed 4000
append {}
kernel 600dc0de
data 3f8 2029fc0 27f 0"""


def setup(t, name, append, *options, kernel=SETUP, **more):
    if not SETUP.exists():
        t.check(False, f"{SETUP} is missing: make tiny")
    return t.record(name, "--memory", "16M", *CLOCK, "--append", append, *options, kernel=kernel, **more)


def lines(r):
    return [x.rstrip() for x in r.text.splitlines()]


@test("bios/services", cost=8)
def services(t):
    """Each service, and what a program is given; a jump to where a reset begins."""
    r = setup(t, "rec", "hello")
    t.equal(lines(r), (GIVEN.format("hello") + SERVICES).splitlines(), "what it met")
    t.same("rec", r)
    t.same("rec", r, "--engine", "dbt,paranoid", timeout=200)
    t.same("rec", r, env={"REPRISE_TEST_SLICE": "997"}, timeout=200)
    t.equal(t.info("rec")["modes"], ["real mode", "16-bit protected mode"], "the modes")
    t.lacks(t.run(t.reprise, "info", t.dir / "rec").text, "entered by")  # there is no other way


@test("bios/memory", cost=6)
def memory(t):
    """The memory map of a machine beyond 4 GiB, and where an initrd goes: as high as it may."""
    (t.dir / "initrd").write_bytes(b"x" * 5000)
    r = setup(t, "rec", "", "--memory", "5G", "--initrd", t.dir / "initrd")
    for line in ("int 0x15 0x8800: ffff 0 0 80", "int 0x15 0xe801: 3c00 bf00 3c00 bf00", "loader 81ff .* initrd 1388 .*",
                 "e820 0:100000 0:bff00000 type 1 then 4 ", "e820 1:0 0:80000000 type 1 then 0 "):
        t.has(r.text, f"(?m)^{line}$")
    t.same("rec", r)


@test("bios/ends", cost=4)
def ends(t):
    """What nothing handles says so, and halts."""
    for append, said in (("ud", "BIOS: an exception without a handler"), ("boot", "BIOS: nothing to boot")):
        r = setup(t, append, append, code=HALTED)
        t.equal(lines(r)[-1], said, "its last line")
        t.same(append, r)


def with_bytes(t, at, value):
    data = bytearray(SETUP.read_bytes())
    data[at:at + len(value)] = value
    path = t.dir / "bad.bin"
    path.write_bytes(data)
    return path


@test("bios/refused", cost=2)
def refused(t):
    """Files that cannot be entered so."""
    setup(t, "rec", "hello")
    for at, value, text in ((0x206, b"\x01\x02", r"is a kernel of boot protocol 2\.01; 2\.02"),
                            (0x211, b"\0", r"below 1 MiB \(a zImage\)"),
                            (0x1f1, b"\x40", r"has 32 KiB of setup code|is truncated"),
                            (0x1f1, b"\xff", "has 128 KiB of setup code; 32 are the most"),
                            (0x1f1, b"\x3e", "is truncated: 4112 bytes are not more than its setup code"),
                            (0x238, b"\x03\0\0\0", "the command line has 5 bytes; this kernel takes 3")):
        r = setup(t, "x", "hello", kernel=with_bytes(t, at, value), code=ERROR)
        t.has(r.error, text)
    (t.dir / "initrd").write_bytes(b"x" * 5000)
    r = setup(t, "x", "hello", "--initrd", t.dir / "initrd", kernel=with_bytes(t, 0x22c, b"\0\x10\x10\0"), code=ERROR)
    t.has(r.error, "the initrd of 4 KiB does not fit between the kernel, which ends at 0x100010, and 0x101001")
    for protocol in ("linux", "pvh", "multiboot"):
        r = setup(t, "x", "hello", "--boot-protocol", protocol, code=ERROR)
        t.has(r.error, f"no entry for the boot protocol {protocol}")
    r = t.tiny("x", "spin", "--boot-protocol", "linux16", code=ERROR)
    t.has(r.error, "no entry for the boot protocol linux16")


def imitated(counter, imitation):
    @test(f"bios/kvm-{counter}", cost=6)
    def run(t):
        """By the engine kvm, on the imitation of KVM; replays by dbt."""
        r = t.run(t.build / "tests" / "imitation" / "reprise", "record", "-o", t.dir / "rec", "--memory", "16M", *CLOCK,
                  "--engine", "kvm", "--counter", counter, "--kernel", SETUP, "--append", "hello",
                  env={"REPRISE_IMITATION": imitation}, timeout=200)
        ours = [x for x in lines(r) if not x.startswith("ticks")]  # time is another where branches count
        want = [x for x in (GIVEN.format("hello") + SERVICES).splitlines() if not x.startswith("ticks")]
        t.equal(ours, want, "what it met")
        t.has(r.text, "slept 3 waited 2 2 ms 1")
        t.same("rec", r)


imitated("step", "seed=3")
imitated("pmu", "seed=5,cpu=skylake,skid=60,early=1/20")


@test("bios/linux", cost=15)
def linux(t):
    """Debian's kernel by its setup code, which unpacks it: the same memory map, console and end."""
    r = t.linux("rec", "--boot-protocol", "linux16", append="-- cat /proc/cmdline", timeout=120)
    t.has(r.text, "^Probing EDD .* ok")
    t.has(r.text, r"BIOS-e820: \[mem 0x0000000000100000-0x000000001fffffff\] usable")
    t.has(r.text, "crng init done")
    t.has(r.text, "reprise: script ended with status 0")
    t.has(r.text, "reboot: Power down")
    t.lacks(r.text, NOISE)
    t.equal(t.info("rec")["modes"][0], "real mode", "where it began")
    t.same("rec", r, timeout=120)
    return f"{t.info('rec')['position'] / 1e9:.2f} G instructions"


def kernel(t, name):
    path = KERNELS / name
    if not path.exists():
        t.skip("no such kernel: make image-kernels")
    return path


@test("bios/xen", cost=4)
def xen(t):
    """Xen by both versions of Multiboot, up to where it misses what it is to run."""
    for protocol in ("multiboot", "multiboot2"):
        r = t.record(protocol, "--memory", "512M", "--boot-protocol", protocol, "--append",
                     "xen no-real-mode com1=115200,8n1 console=com1", kernel=kernel(t, "xen"))
        t.has(r.text, r"\(XEN\) Xen version 4\.")
        t.has(r.text, r"\(XEN\) dom0 kernel not specified")
        t.same(protocol, r)


@test("bios/xen-linux", cost=60)
def xen_linux(t):
    """Debian's Linux under Xen, as its dom0: in ring 3, with page tables by hypercalls."""
    r = t.record("rec", "--memory", "1G", "--boot-protocol", "multiboot2", "--append",
                 "xen no-real-mode com1=115200,8n1 console=com1 dom0_mem=512M", "--initrd",
                 IMAGES / "generic" / "vmlinuz", "--stop-at", "Linux version", kernel=kernel(t, "xen"),
                 timeout=600)
    t.has(r.text, r"\(XEN\) Xen is relinquishing VGA console|\(XEN\) \*\*\* Serial input to DOM0")
    t.has(r.text, "Linux version")
    t.same("rec", r, timeout=600)


@test("bios/ipxe", cost=40)
def ipxe(t):
    """iPXE: back and forth between real and protected mode, the tick, the memory map."""
    r = t.record("rec", "--memory", "32M", "--append", "echo in a script", kernel=kernel(t, "ipxe"), code=HALTED,
                 timeout=900)
    t.has(r.text, r"iPXE initialising devices\.\.\.ok")
    t.has(r.text, "Open Source Network Boot Firmware")
    t.has(r.text, "in a script")
    t.has(r.text, "BIOS: nothing to boot")
    t.same("rec", r, timeout=900)


@test("bios/memtest", cost=40)
def memtest(t):
    """memtest86+ by both of its entries: its screen on the serial port."""
    for protocol in ("linux", "linux16"):
        r = t.record(protocol, "--memory", "32M", "--boot-protocol", protocol, "--append", "console=ttyS0,115200",
                     "--stop-at", "walking ones, no cache", kernel=kernel(t, "memtest"), timeout=300)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", r.text)
        t.has(text, "Memtest86.* v[67].*Reprise x86-64-v2")
        t.same(protocol, r, timeout=300)
