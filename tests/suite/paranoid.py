"""`--engine dbt,paranoid`: finds nothing, changes nothing, and catches what is broken on purpose."""
import os
import re
import shutil

from suite.harness import ERROR, IMAGES, ROOT, USAGE, host_has_avx2, test

SPEED = "tests/bench/speed/speed"
WORKS = ("integer", "matrix", "memory", "sha256", "gzip", "syscalls", "fork", "interp", "vcalls", "strings",
         "signals", "faults", "futex", "smc")


def paranoid(seed):
    return ("--engine", f"dbt,paranoid,seed={seed}")


def nothing_found(t, r):
    t.has(r.error, r"^reprise: paranoid, seed \d+: [\d.]+( [kMG])? positions in \d+ windows compared; no difference$")
    t.lacks(r.error, "windows could not be")


def logged(t, name):
    """All records but what the host's clock said."""
    events = t.events(name)
    for e in events:
        e.pop("host_ns", None)
    return events


def guest(name, env=None, *options):
    @test(f"paranoid/{name}{'-branches' if env else ''}", cost=3)
    def run(t):
        """Nothing differs, and the recording is that of the engine alone."""
        made = ("--no-notes", "--seed", 7, "--wall-clock", 1000000000)
        t.tiny("plain", name, *made, "--engine", "dbt", env=env)
        nothing_found(t, t.tiny("rec", name, *made, *options, *paranoid(11), env=env))
        t.equal(logged(t, "rec"), logged(t, "plain"), "the log")
        if name == "across":
            nothing_found(t, t.replay("plain", *paranoid(12)))


for tiny in ("smc", "across", "meets", "compat", "paging", "spaces", "shadow", "fpu", "faultstorm"):
    guest(tiny)
guest("rep", None, "--checkpoint-every", "0.3")  # asks which pages were written, too
guest("across", {"REPRISE_TEST_BRANCH": 1})


@test("paranoid/boot", cost=8)
def boot(t):
    """The first part of a boot, with slices of another length; tests/soak.py has whole ones."""
    options = ("--no-notes", "--seed", 7, "--wall-clock", 1000000000, "--max-insns", 40000000)
    t.linux("plain", *options, "--engine", "dbt")
    nothing_found(t, t.linux("rec", *options, *paranoid(13), timeout=300, env={"REPRISE_TEST_SLICE": 77773}))
    t.equal(logged(t, "rec"), logged(t, "plain"), "the log")


DBT = "vmm/cpu/dbt/"
# What is broken, the guest, and the instruction that is to be named.
BROKEN = (
    ("LEA with a scale of 2 does nothing", DBT + "translate.c", "case T_LEA: put_lea(t, in, i); break;",
     "case T_LEA:\n        if (in->index < 0 || in->scale != 2)\n            put_lea(t, in, i);\n        break;",
     "stretch", r"lea \w+, \[\w+\+\w+\*2"),
    ("stores to translated code are not seen", DBT + "cache.c", "pg->flags |= PG_CODE;", ";", "smc", r"mov eax, 0x"),
    ("the TLB keeps what a changed page-table entry mapped", "vmm/cpu/x86/tlb.c",
     "drop_everywhere(d, pg->pt_root, lin, 1ull << shift);", "(void)lin;", "paging", ""),
)


@test("paranoid/caught", cost=25)
def caught(t):
    """Programs with a mistake: the difference is found, and the instruction is the one at the position
    that is named; the command that is said finds it again."""
    if t.mode not in ("rel", "dev"):
        t.skip("one build of it is enough")
    tree = t.dir / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns("build", ".git", "__pycache__"), symlinks=True)
    shutil.copytree(t.build, tree / "build" / t.mode, copy_function=os.link,
                    ignore=lambda at, names: [n for n in names if n in ("test", "tests", "soak") or
                                              n.startswith(("reprise", "libreprise"))])
    for number, (what, name, old, new, guest_, instruction) in enumerate(BROKEN):
        path = tree / name
        text = path.read_text()
        t.equal(text.count(old), 1, f"places of {old!r} in {name}")
        path.write_text(text.replace(old, new))
        built = tree / "build" / t.mode / (name[:-1] + "o")
        built.unlink()  # a link to ours
        t.run("make", "-s", f"MODE={t.mode}", f"build/{t.mode}/reprise", cwd=tree, env={"MAKEFLAGS": ""}, timeout=600)
        reprise = tree / "build" / t.mode / "reprise"
        rec = t.dir / f"rec{number}"
        r = t.run(reprise, "record", "-o", rec, "--memory", "16M", "--kernel", IMAGES / f"tiny/{guest_}.elf",
                  *paranoid(5), code=ERROR)
        first = [x for x in r.error.splitlines() if "differ in window" in x][:1]
        t.check(first, f"{what}: nothing found")
        found = re.search(r"it takes the instruction at position (\d+), RIP ([0-9a-f]+): ([^;]*), translated", first[0])
        t.check(found, first[0])
        t.has(found[3], instruction, what)
        # As the engine that is right traces it.
        line = t.run(t.reprise, "trace", rec, "--from", found[1], "--to", int(found[1]) + 1, code=None).text.split()
        t.check(not instruction or [line[0], int(line[2], 16)] == [found[1], int(found[2], 16)], f"{what}: {line}")
        again = re.search(r"^reprise: paranoid, .*To see the difference again: (reprise replay .*)$", r.error, re.M)
        r = t.run(reprise, *again[1].split()[1:], code=ERROR)
        t.has(r.error, re.escape(first[0]), "the replay")
        path.write_text(text)
        built.unlink()


@test("paranoid/usage")
def usage(t):
    """What does not go together is said."""
    kernel = IMAGES / "tiny/echo.elf"
    for engine in ("kvm,paranoid", "auto,paranoid", "paranoid", "dbt,", "dbt,sure", "dbt,paranoid,", "dbt,paranoid,seed=",
                   "dbt,paranoid,seed=x"):
        r = t.record("rec", "--engine", engine, kernel=kernel, code=USAGE)
        t.has(r.error, "^reprise record: --engine: ")
    t.has(t.record("rec", "--engine", "dbt,paranoid", "--gdb", kernel=kernel, code=USAGE).error, "--gdb")
    t.tiny("rec", "fpu")
    r = t.run(t.reprise, "replay", "--engine", "dbt,paranoid", "--to", "end", t.dir / "rec", code=USAGE)
    t.has(r.error, "for a replay to the end")


def soak(t, rnd):
    """A boot, and what one of the speed programs does after it."""
    work, model = rnd.choice(WORKS), rnd.choice(["v2", "v3"] if host_has_avx2() else ["v2"])
    options = ("--no-notes", "--seed", rnd.getrandbits(32), "--wall-clock", 1000000000, "--cpu", "x86-64-" + model,
               "--max-insns", 1500000000 + rnd.randrange(1000000000), "--add", f"{t.build / SPEED}:/bin/speed")
    append = f"quiet -- speed {work}"
    t.linux("plain", *options, "--engine", "dbt", append=append, timeout=300)
    r = t.linux("rec", *options, *paranoid(rnd.getrandbits(32)), append=append, timeout=7200)
    nothing_found(t, r)
    t.equal(logged(t, "rec"), logged(t, "plain"), "the log")
    print(f"{work}, {model}: " + re.search(r"^reprise: paranoid, (.*)$", r.error, re.M)[1], flush=True)
