"""Protected, virtual-8086 and real-address mode: images/modes, which prints what it meets, and kernels of
32 bits."""
import re
import shutil

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
