"""The KVM engine: what is recorded with it replays on both engines, and the other way round.

Everything here needs a /dev/kvm that single-steps; where there is none it is skipped, with what the
program says about it. Each step costs some 30 microseconds, so long guests are cut in the middle."""
import random
import re

from suite.harness import ERROR, FINE, IMAGES, ROOT, host_has_avx2, rnd, test
from suite.tiny import COMMON, ENDS, OPTIONS, OWN_TEST, answered, answers

LONGEST = 40000  # positions of a guest that is cut
WHOLE = {"asks", "debug", "exceptions", "fpu", "haltforever", "interrupts", "mmio", "msr", "triplefault"}
KVM = ("--engine", "kvm")
STEP = (*KVM, "--counter", "step")  # to record with, whatever this host could do


def need_kvm(t):
    """What a host lacks is a reason to skip; anything else that goes wrong is a failure."""
    r = t.tiny("try", "haltforever", *STEP, "--max-insns", 100, "--seed", 1, code=None)
    if r.code == ERROR and re.search("/dev/kvm|lacks KVM_CAP|stops in no ring", r.error):
        t.skip(r.error.strip().splitlines()[-1].removeprefix("reprise: "))
    t.equal(r.code, FINE, "the exit code of a hundred steps")


def record(t, name, guest, *options):
    cut = () if guest in WHOLE else ("--max-insns", LONGEST)
    return t.tiny(name, guest, "--no-realtime", "--seed", 1, *cut, *OPTIONS.get(guest, ()), *options, code=None,
                  timeout=60)


def guest(name):
    @test(f"kvm/{name}", cost=10)
    def run(t):
        """Recorded on each engine and replayed on the other; the two recordings are one."""
        need_kvm(t)
        one = record(t, "kvm", name, *STEP)
        two = record(t, "dbt", name)
        t.equal(one.code, two.code, "the exit code")
        t.lacks(one.text, "^FAIL")
        t.equal(one.code, ENDS.get(name, FINE), "the exit code")
        t.same("kvm", one)
        t.same("kvm", one, *KVM)
        t.same("dbt", two, *KVM)
        ends = [t.events(name)[-1] for name in ("kvm", "dbt")]
        t.equal(*[(e["position"], e["components"][0], e["ram"]) for e in ends],
                "position, vCPU and RAM at the end")
        info = t.info("kvm")
        t.equal((info["engine"], info["counter"], info["position_unit"]), ("kvm", "step", "insn"),
                "what info says")
        t.equal(t.info("dbt")["engine"], "dbt", "what info says of the other")
        progress = sum(e["type"] == "progress" for e in t.events("kvm"))
        return f"{info['position']} positions, {progress} compared on the way"


for path in sorted((ROOT / "images" / "tiny").glob("*.c")):
    if path.stem not in OWN_TEST | COMMON:
        guest(path.stem)


@test("kvm/typed", cost=10)
def typed(t):
    """Console input at random positions, each with a digest of the vCPU in the log."""
    need_kvm(t)
    rnd = random.Random(7)
    lines = [bytes(rnd.choice(b"abcdefgh ") for _ in range(rnd.randrange(1, 20)))
             for _ in range(8)] + [b"exit"]
    data = b"\n" + b"\n".join(lines) + b"\n"
    for engine, other in (("kvm", "dbt"), ("dbt", "kvm")):
        (t.dir / "typed").write_bytes(data)
        with open(t.dir / "typed", "rb") as f:
            r = t.tiny(engine, "echo", "--no-realtime", "--engine", engine, stdin=f, timeout=60)
        t.equal(answered(r), answers(lines), f"the answers under {engine}")
        t.same(engine, r, "--engine", other)


def insn(name, cases, *options, models=("v2", "v3")):
    for model in models:
        @test(f"kvm/{name}-{model}", cost=25)
        def run(t, model=model):
            """Random instructions and programs under KVM, against this CPU and against dbt."""
            need_kvm(t)
            t.need_model(model)
            seed = rnd.getrandbits(31)
            r = t.run(t.build / "tests" / "insn" / "insn", "--engine", "kvm", "--model", model,
                      "--seed", seed, "--cases", cases, *options, timeout=240)
            t.has(r.text, ", 0 failed")
            return r.text.strip().splitlines()[-1]


# A program has some fifteen stops with interrupts and complete comparisons; tests/soak.py has more.
insn("forms", 15000, models=("v2", "v3", "icelake-server"))
insn("stops", 12, "--stops")
insn("injected", 20, "--stops", "--interrupts")


@test("kvm/found", cost=3)
def found(t):
    """Programs that once differed under KVM."""
    need_kvm(t)
    if host_has_avx2():  # BSF of zero, where KVM emulates it
        t.run(t.build / "tests" / "insn" / "insn", "--engine", "kvm", "--model", "v3", "--seed", 885271945, "--case",
              7278)
    programs = [("v2", 415035079, 1)]  # LOOPE with a REPNE prefix, on AMD
    if host_has_avx2():  # the end of a page, where KVM's emulator reads on in the next one
        programs.append(("v3", 100691383, 6))
    for model, seed, case in programs:
        t.run(t.build / "tests" / "insn" / "insn", "--engine", "kvm", "--model", model, "--seed", seed,
              "--case", case, "--stops")


@test("kvm/travel", cost=15)
def travel(t):
    """Seeks, steps back and breakpoints in a replay under KVM land where a straight one is."""
    need_kvm(t)
    t.tiny("rec", "interrupts", "--no-realtime", "--seed", 3, "--checkpoint-every", 0.01)
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", *KVM, "--places", 12, "--moves", 25,
          "--seed", 5, timeout=200)


def asked(t, engine):
    """What gdb sees of a recording."""
    commands = ["set pagination off", "set confirm off", "set architecture i386:x86-64",
                "set remotetimeout 60",
                f"target remote | {t.reprise} replay {t.dir}/rec --engine {engine} --to insn:30000 "
                "--gdb=- 2>/dev/null",
                "info registers", "stepi 5", "x/3i $rip", "reverse-stepi", "info registers rip",
                "break *$rip", "continue", "info registers", "reverse-continue", "detach"]
    argv = ["gdb", "-q", "-nx", "-batch"]
    for c in commands:
        argv += ["-ex", c]
    return t.run(*argv, IMAGES / "tiny" / "interrupts.elf", code=None, timeout=100)


@test("kvm/gdb", cost=15)
def gdb(t):
    """gdb sees the same of a recording whichever engine replays it."""
    need_kvm(t)
    t.tiny("rec", "interrupts", "--no-realtime", "--seed", 3, *STEP)
    dbt, kvm = asked(t, "dbt"), asked(t, "kvm")
    t.has(dbt.text, r"^rip +0x")
    t.equal(kvm.text, dbt.text, "what gdb prints")
    regs = [t.run(t.reprise, "replay", t.dir / "rec", "--engine", e, "--to", "insn:12345",
                  "--regs").text for e in ("dbt", "kvm")]
    t.equal(regs[1], regs[0], "the registers at a point")


@test("kvm/interrupted", cost=15)
def interrupted(t):
    """Inputs at random positions of random guests, recorded under KVM, replayed under both; the whole
    campaign is `tests/soak.py --kind kvm`."""
    need_kvm(t)
    r = inject(t, rnd.getrandbits(31), 250, timeout=200)
    return r.text.strip().splitlines()[-1].removeprefix("inject: all: ")


def inject(t, seed, inputs, **more):
    """Every guest in turns, the one with REP strings and branchless stretches more often."""
    guests = [p for p in sorted((IMAGES / "tiny").glob("*.elf"))
              if (ROOT / "images" / "tiny" / (p.stem + ".c")).exists()]
    guests += [IMAGES / "tiny" / "stretch.elf"] * 4
    random.Random(seed).shuffle(guests)
    return t.run(t.build / "tests/tools/inject", "--seed", seed, "--inputs", inputs, *guests, **more)


@test("kvm/unasked")
def unasked(t):
    """auto says why it is dbt; an engine that is none is refused."""
    r = t.tiny("rec", "haltforever", "-v", "--max-insns", 1000, "--seed", 1)
    t.has(r.error, "^reprise: the engine is (dbt, and not kvm: .|kvm, which)")
    t.equal(t.info("rec")["engine"], "dbt" if "is dbt" in r.error else "kvm", "the engine")
    for argv in (["record", "-o", "x", "--kernel", "k", "--engine", "qemu"],
                 ["replay", "rec", "--engine", "auto"], ["replay", "rec", "--engine", ""]):
        t.has(t.run(t.reprise, *argv, code=2).error, "--engine: '.*' is n")
