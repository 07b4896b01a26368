"""Recordings whose positions are branches: made by a guest that runs freely (on tests/imitation) or by
dbt on request of a test, replayed on both engines, converted, debugged; and what is refused."""
import shutil
import time

from suite.harness import DAMAGE, ERROR, FINE, IMAGES, ROOT, USAGE, Session, rnd, test
from suite.imitation import imitation, tiny
from suite.run_program import own, replayed

GUESTS = ("interrupts", "msr", "rep", "exceptions", "paging", "smc", "fpu", "mmio", "portstrings")
BRANCHES = {"REPRISE_TEST_BRANCH": "1"}  # for dbt
PMU = ("--engine", "kvm", "--counter", "pmu")


def behave(what="skid=60,early=1/20"):
    return {"REPRISE_IMITATION": f"seed={rnd.getrandbits(31)},cpu=skylake,{what}"}


def record(t, guest, *options, name="rec", env=None, code=None):
    return t.run(imitation(t), "record", "-o", t.dir / name, "--kernel", tiny(guest), "--memory", "16M",
                 "--no-realtime", "--seed", 1, *PMU, *options, code=code, timeout=200,
                 env=env or behave())


def convert(t, name, to):
    """The same run with instructions as positions: nothing else may differ."""
    t.run(t.reprise, "replay", "--verify", "--instructions", "-o", t.dir / to, t.dir / name, code=FINE,
          timeout=200)
    info = t.info(to)
    t.equal(info["position_unit"], "insn", "the unit")
    # A boot may have 25 G of them, mostly iterations of REP: no more slices than take a minute.
    slices = {"REPRISE_TEST_SLICE": str(max(rnd.choice((997, 12347, 500009)), info["position"] // 1000000))}
    t.run(t.reprise, "replay", "--verify", t.dir / to, env=slices, timeout=600)
    return info["position"]


def both(guest):
    @test(f"free/{guest}", cost=8)
    def run(t):
        """Recorded freely, replayed freely and by dbt in other slices, and counted in instructions."""
        record(t, guest)
        for _ in range(2):
            r = t.run(imitation(t), "replay", "--engine", "kvm", "--verify", t.dir / "rec", timeout=200,
                      env=behave())
            t.has(r.error, "replayed without a difference")
        slices = {"REPRISE_TEST_SLICE": str(rnd.choice((3, 101, 9973)))}
        t.run(t.reprise, "replay", "--verify", t.dir / "rec", env=slices, timeout=200)
        insns = convert(t, "rec", "insn")
        if insns < 1000000:  # by single steps
            t.run(imitation(t), "replay", "--engine", "kvm", "--verify", t.dir / "insn", timeout=200)
        return f"{t.info('rec')['position']} branches and events, {insns} instructions"


for name in GUESTS:
    both(name)


@test("free/waits", cost=15)
def waits(t):
    """Waits without a branch are interrupted in the same place."""
    record(t, "waits")
    places = sum(e["type"] == "place" for e in t.events("rec"))
    t.check(places >= 3, f"{places} places in the log")
    t.run(imitation(t), "replay", "--engine", "kvm", "--verify", t.dir / "rec", timeout=200, env=behave())
    t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=200)
    t.run(t.reprise, "replay", "--quiet", "--instructions", "-o", t.dir / "insn", t.dir / "rec", timeout=200)
    t.run(t.reprise, "replay", "--verify", t.dir / "insn", timeout=200)
    return f"{places} places"


@test("free/places", cost=20)
def places(t):
    """Looked at every 20 us, guests are between two positions everywhere: after STI, with CR8 raised,
    in the middle of strings; and killed or ended there."""
    total = 0
    for guest in ("interrupts", "waits", "exceptions", "mmio", "rep"):
        env = behave("skid=60,early=1/20,later,unknown=1/3")
        r = record(t, guest, "--force", env={**env, "REPRISE_TEST_WATCH": 20000})
        t.lacks(r.text, "^FAIL")
        found = [e["position"] for e in t.events("rec") if e["type"] == "place"]
        total += len(found)
        t.check(len(found) >= 10, f"{len(found)} places in {guest}")
        t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=200)
        shutil.rmtree(t.dir / "insn", ignore_errors=True)
        convert(t, "rec", "insn")
    # The end has the CPU's digest: right after the first wait, a jump to itself after STI.
    record(t, "waits", "--force")
    at = next(e["position"] for e in t.events("rec") if e["type"] == "place")
    record(t, "waits", "--force", "--max-insns", at + 1)
    last = [e for e in t.events("rec") if e["type"] == "quit"][-1]
    t.equal(last["position"], at + 1, "where it was ended")
    t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=200)
    return f"{total} places"


@test("free/held")
def held(t):
    """A run that was looked at right after a write of CR8, which holds interrupts off: it could not be replayed.
    (kept/held: of many such runs one that was. Nothing in it depends on the CPU's maker.)"""
    t.env["REPRISE_TEST_MAKER"] = "AuthenticAMD"
    shutil.copytree(ROOT / "tests" / "suite" / "kept" / "held", t.dir / "rec")
    for slices in (0, 997):
        t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=200, env={"REPRISE_TEST_SLICE": slices})
    t.run(imitation(t), "replay", "--verify", "--engine", "kvm", t.dir / "rec", timeout=200, env=behave())
    convert(t, "rec", "insn")


@test("free/windows", cost=10)
def windows(t):
    """Somebody types while interrupts come in after STI, where nothing counts: that is no place for an
    input. The time that an MSR's read takes is seen by the timer, wherever slices end."""
    def typed(name, argv, env):
        s = Session(t, name, env=env, argv=[*argv, "record", "-o", t.dir / name, "--kernel", tiny("windows"),
                                            "--memory", "16M", "--seed", 1, *(PMU if env else ())])
        for i in range(60):
            s.send(bytes([97 + i % 16]))
            time.sleep(0.003)
        s.send(b"q")
        s.finish()
        for slices in (0, 9973):
            t.run(t.reprise, "replay", "--verify", t.dir / name, timeout=200, env={"REPRISE_TEST_SLICE": slices})
        convert(t, name, name + "-insn")
    typed("free", [imitation(t)], behave())
    typed("dbt", ["env", "REPRISE_TEST_BRANCH=1", t.reprise], None)
    return f"{sum(e['type'] == 'console' for n in ('free', 'dbt') for e in t.events(n))} inputs"


@test("free/tsc-step", cost=8)
def tsc_step(t):
    """A place whose event reaches the next step of the TSC, with the next record right there."""
    def edge(name, branches, *until):
        t.run(t.reprise, "record", "-o", t.dir / name, "--kernel", tiny("edge"), "--memory", "16M", "--seed",
              1, "--no-realtime", "--append", f"branches={branches:07}", *until, code=None,
              env=BRANCHES, timeout=100)
        return [e["position"] for e in t.events(name) if e["type"] == "place"]

    step = 1 << 19
    ahead = edge("probe", 1, "--timeout", 1)[0] - 1  # branches before the loop
    for at in (step - 2, step - 1, step):
        name = f"at{at}"
        places = edge(name, at - ahead, "--max-insns", step + 3)
        t.equal(places[0], at, "the first place")
        t.check(len(places) >= 2, "no second one")
        t.run(t.reprise, "replay", "--verify", t.dir / name, timeout=100)
        t.run(t.reprise, "replay", "--quiet", "--instructions", "-o", t.dir / (name + "i"), t.dir / name,
              timeout=100)
        t.run(t.reprise, "replay", "--verify", t.dir / (name + "i"), timeout=100)
    return f"{ahead} branches before the loop"


@test("free/forged-place", cost=15)
def forged_place(t):
    """Places that the guest never comes to: told, and not looked for without end."""
    seed = rnd.getrandbits(31)
    t.run(t.reprise, "record", "-o", t.dir / "rec", "--kernel", tiny("waits"), "--memory", "16M",
          "--no-realtime", code=None, env=BRANCHES)
    t.run(t.build / "tests" / "tools" / "log_forge", t.dir / "rec" / "log", t.dir / "forged", seed)
    shutil.copy(t.dir / "forged", t.dir / "rec" / "log")
    r = t.run(t.reprise, "replay", "--quiet", t.dir / "rec", code=ERROR, timeout=200)
    t.has(r.error, "at position .* the guest never is at RIP .*: this is another run")
    return f"seed {seed}"


@test("free/unknown", cost=5)
def unknown(t):
    """Instructions that KVM's emulator does not know are executed by dbt, and count the same."""
    for guest in ("interrupts", "paging", "exceptions"):
        r = record(t, guest, "-v", "--force", env=behave("later,unknown=1/2"))
        t.has(r.error, "[1-9][0-9]+ times its emulator did not know an instruction")
        t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=200)


@test("free/linux-by-dbt", cost=15)
def linux_by_dbt(t):
    """A boot that dbt counts in branches: the replay in other slices, and with instructions."""
    where = IMAGES / "linux"
    r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--kernel", where / "vmlinuz", "--initrd",
              where / "initrd", "--append", "-- cat /proc/interrupts; (sleep 0.1; seq 300 | md5sum)",
              "--no-realtime", "--timeout", 120, code=None, timeout=200, env=BRANCHES)
    t.same("rec", r, timeout=200)
    t.run(t.reprise, "replay", "--verify", t.dir / "rec", timeout=200,
          env={"REPRISE_TEST_SLICE": str(rnd.choice((99991, 7777777)))})
    return f"{convert(t, 'rec', 'insn')} instructions"


def alike(t, name, places):
    """So many places of it are the same on both engines."""
    for position in sorted(rnd.sample(range(1, t.info(name)["position"]), places)):
        at = [t.run(program, "replay", "--engine", engine, "--to", position, "--regs", "--json",
                    t.dir / name, timeout=100, env=behave()).out
              for program, engine in ((imitation(t), "kvm"), (t.reprise, "dbt"))]
        t.equal(at[0], at[1], f"position {position}")


@test("free/seek", cost=10)
def seek(t):
    """Checkpoints of a free run: places in it are the same on both engines, from either side."""
    record(t, "spin", "--checkpoint-every", "0.02", "--max-insns", 20000000)
    info = t.info("rec")
    t.check(info["checkpoints"] >= 3, f"{info['checkpoints']} checkpoints")
    t.verify_checkpoints("rec")
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--places", 10, "--moves", 15, "--seed",
          rnd.getrandbits(16), timeout=200)
    alike(t, "rec", 6)


@test("free/gdb", cost=5)
def gdb(t):
    """gdb wants each instruction: refused with the command that makes such a recording, which works."""
    record(t, "interrupts")
    r = t.run(t.reprise, "replay", "--gdb=-", t.dir / "rec", code=ERROR)
    t.has(r.error, r"positions of this recording are branches.*replay --instructions -o DIR2 ")
    convert(t, "rec", "insn")
    script = t.dir / "script"
    script.write_text("set pagination off\ntarget remote | "
                      f"{t.reprise} replay --gdb=- --to 30000 {t.dir / 'insn'}\n"
                      "print/x $pc\nstepi\nstepi\nreverse-stepi\nreverse-stepi\nprint/x $pc\n"
                      "monitor when\n")
    r = t.run("gdb", "-q", "-batch", "-x", script, timeout=100)
    first, last = [line.split("= ")[1] for line in r.out.decode().splitlines() if line.startswith("$")]
    t.equal(first, last, "RIP after two steps and back")
    t.has(r.error, r"position +30000\b")


@test("free/trace", cost=3)
def trace(t):
    """Instructions of a recording that counts branches: many have one position."""
    record(t, "rep")
    r = t.run(t.reprise, "trace", "--from", 4000, "--to", 4010, t.dir / "rec")
    rows = [int(line.split()[0]) for line in r.out.decode().splitlines() if line[:1].isdigit()]
    t.check(rows == sorted(rows) and rows[0] == 4000 and len(rows) > 15, f"positions {rows[:40]}")


def ends(name, what, sentence, guest="faultstorm"):
    @test(f"free/ends-{name}", cost=4)
    def run(t):
        """What is not exact ends the recording, with its reason; it replays up to there."""
        r = record(t, guest, env=behave(f"later,{what}"), code=ERROR)
        t.has(r.error, sentence)
        t.has(r.error, "the engine lost the guest")
        r = t.run(t.reprise, "replay", "--verify", t.dir / "rec", code=DAMAGE, timeout=100)
        t.has(r.error, "replayed up to the damage")


ends("stolen", "stolen=1/20", r"the counter was taken away.*NMI watchdog or another user of perf")
ends("tick", "tick=1/20", r"a slice of the guest ran over a tick of its TSC by \d+ ms")
ends("suspend", "suspend=1/20", r"the host was suspended for \d+ ms while the guest ran")
ends("internal", "internal=1/20", "an internal error of KVM.*suberror 3, data 8000030e abcd; at position "
     r"\d+, instruction at [0-9a-f]+ \(ring 0\), bytes( [0-9a-f]{2})+; KVM has RIP ")
ends("late", "late=1/1", r"ran on for \d+ branches after its counter.s overflow", "timers")


# System calls of a good host that fail, each with what the recorder says of it.
FAILING = {"KVM_RUN": "KVM_RUN", "KVM_GET_REGS": "KVM_GET_REGS", "KVM_SET_REGS": "KVM_SET_REGS",
           "KVM_GET_SREGS": "KVM_GET_SREGS", "KVM_SET_SREGS": "control registers",
           "KVM_GET_VCPU_EVENTS": "VCPU_EVENTS", "KVM_SET_VCPU_EVENTS": "VCPU_EVENTS",
           "KVM_GET_DEBUGREGS": "DEBUGREGS", "KVM_SET_DEBUGREGS": "DEBUGREGS", "KVM_GET_MSRS": "MSRS|TSC",
           "KVM_SET_MSRS": "MSRS", "KVM_GET_XCRS": "XCRS", "KVM_GET_XSAVE": "XSAVE",
           "KVM_SET_DEVICE_ATTR": "TSC",
           "PERF_EVENT_IOC_PERIOD": "program the counter", "read": "read the counter"}


def fails(t, what, sentence, *options, guest="interrupts"):
    """Whether it failed; then the recording has ended with an error that says so, and replays."""
    env = behave(f"later,{what}")
    t.log.write(f"{env}\n")
    r = record(t, guest, "--force", "--max-insns", 30000, *options, env=env)
    t.lacks(r.error, "internal error")
    failed = "imitation: " in r.error
    if failed and sentence:
        t.equal(r.code, ERROR, "the exit code")
        t.has(r.error, f"^reprise: .*({sentence}).*: Cannot allocate memory")
    else:
        t.check(r.code != ERROR, r.error)
    t.run(t.reprise, "replay", "--verify", t.dir / "rec", code=DAMAGE if failed and sentence else FINE,
          timeout=100)
    return failed


def failing(call, sentence):
    @test(f"free/fails-{call}", cost=4)
    def run(t):
        """A system call that fails at some time ends the recording with an error; it replays up to there."""
        failed, guest = 0, "debug" if "DEBUG" in call else "interrupts"
        for turn in range(20):  # with some seeds nobody needs the call; least where KVM knows much
            share = 3 if turn < 10 else 1
            failed = failed or fails(t, f"fail={call}@1,unknown=1/{share}", sentence, guest=guest)
        for nth in (2, rnd.randrange(3, 12), rnd.randrange(12, 200)):
            failed += fails(t, f"fail={call}@{nth},unknown=1/3", sentence, guest=rnd.choice(GUESTS))
        t.check(failed, "it never failed")
        return f"{failed} times"


for name, text in FAILING.items():
    failing(name, text)


@test("free/fails-dirty-log", cost=3)
def fails_dirty_log(t):
    """Without KVM's list of written pages a checkpoint has all of them: nothing is lost."""
    for nth in (1, 2, 3, 6):
        fails(t, f"fail=KVM_GET_DIRTY_LOG@{nth}", "", "--checkpoint-every", 0.001)
        t.run(t.reprise, "replay", "--to", "end", t.dir / "rec", timeout=100)


@test("free/fails-any", cost=10)
def fails_any(t):
    """Whatever fails, whenever, also before the guest runs, and of a replay or single steps."""
    for rate in (3, 30, 300, 3000, 3000, 3000):
        seed = {"REPRISE_IMITATION": f"seed={rnd.getrandbits(31)},cpu=skylake,fails=1/{rate}"}
        t.log.write(f"{seed}\n")
        for options in (PMU, ("--engine", "kvm", "--counter", "step")):
            r = t.run(imitation(t), "record", "--force", "-o", t.dir / "rec", "--kernel", tiny("interrupts"),
                      "--memory", "16M", "--no-realtime", "--seed", 1, "--max-insns", 20000, *options,
                      code=None, timeout=200, env=seed)
            t.lacks(r.error, "internal error")
            t.check(r.code >= 0, f"signal {-r.code}")
            if (t.dir / "rec").exists():
                t.run(t.reprise, "replay", "--verify", t.dir / "rec", code=(FINE, DAMAGE), timeout=100)
    record(t, "interrupts", "--force")
    for rate in (30, 300, 3000):
        r = t.run(imitation(t), "replay", "--engine", "kvm", "--verify", t.dir / "rec", code=(FINE, ERROR),
                  timeout=200, env=behave(f"fails=1/{rate}"))
        t.lacks(r.error, "internal error|diverged")


@test("free/refused", cost=4)
def refused(t):
    """Without a counter, or with a TSC that runs: the reason, and what would help. Nothing is left."""
    for what, sentence in (("nopmu", "no hardware counter for event 0x"),
                           ("noscale", "cannot scale the guest's TSC.*--guest-tsc.*--engine=dbt"),
                           ("miscount", "is not exact here: ring 0, test exact")):
        r = record(t, "mmio", env=behave(what), code=ERROR)
        t.has(r.error, sentence, what)
        t.check(not (t.dir / "rec").exists(), "a directory was left behind")
    for options, sentence in ((("--engine", "dbt", "--counter", "pmu"), "--counter is for --engine=kvm"),
                              (("--gdb", "--counter", "pmu"), "--gdb stops at each instruction"),
                              (("--counter", "pmc"), "none of auto, pmu, step"),
                              (("--guest-tsc",), "--guest-tsc goes with --counter=pmu"),
                              (("--guest-tsc", "--counter", "step"), "goes with --counter=pmu")):
        r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--kernel", tiny("mmio"), *options,
                  code=USAGE)
        t.has(r.error, sentence)
    t.tiny("rec", "mmio", "--seed", 1)
    r = t.run(t.reprise, "replay", "--instructions", "-o", t.dir / "x", t.dir / "rec", code=ERROR)
    t.has(r.error, "are instructions")
    t.run(t.reprise, "replay", "--instructions", t.dir / "rec", code=USAGE)


@test("free/auto", cost=4)
def auto(t):
    """auto is kvm where the counter is exact and the TSC can be held, and says why if it is not."""
    for what, sentence, engine in (("skid=40", "the engine is kvm with counter pmu", "kvm"),
                                   ("nopmu", "the engine is dbt, and not kvm: .*counter", ""),
                                   ("noscale", "the engine is dbt, and not kvm: .*TSC", "")):
        r = t.run(imitation(t), "record", "-v", "--force", "-o", t.dir / "rec", "--kernel", tiny("mmio"),
                  "--memory", "16M", "--seed", 1, timeout=100, env=behave(what))
        t.has(r.error, sentence)
        t.equal(t.info("rec")["engine"], engine or "dbt", "the engine")


@test("free/run", cost=12)
def by_run(t):
    """Where auto is kvm with pmu: `run`'s machine counts instructions, as what begins in it does."""
    own(t)
    for program in ("reprise-fs", "reprise-net"):
        (t.dir / program).symlink_to(t.build / program)
    shutil.copy(imitation(t), t.dir / "reprise")
    r = t.run(t.dir / "reprise", "run", "--", "sh", "-c", "echo seen; exit 3", cwd=t.dir, code=3, timeout=200,
              env={**behave("skid=40"), "XDG_CACHE_HOME": str(t.dir / "cache"), "REPRISE_IMAGES": str(IMAGES)})
    t.equal(r.out, b"seen\n", "what it printed")
    t.has(r.error, "making the machine")
    replayed(t, r)


@test("free/guest-tsc", cost=15)
def guest_tsc(t):
    """KVM that cannot scale the TSC: from the moment the guest's module is loaded, it runs freely."""
    where = IMAGES / "generic-tsc"
    if not (where / "initrd").exists():
        t.skip("the image generic-tsc is not there (make image-tsc)")
    command = ("insmod /lib/modules/*/reprise_tsc.ko; tsc-test quick; cat /proc/uptime; "
               "seq 200 | md5sum; poweroff -f")
    r = t.run(imitation(t), "record", "-v", "-o", t.dir / "rec", "--kernel", where / "vmlinuz",
              "--initrd", where / "initrd", *PMU, "--guest-tsc", "--timeout", 250, "--append",
              f'quiet clearcpuid=tsc randomize_kstack_offset=off -- "{command}"', timeout=300,
              env=behave("noscale"))
    t.has(r.error, r"KVM ran the guest freely [1-9]\d\d+ times")
    t.same("rec", r, timeout=200)
    t.run(imitation(t), "replay", "--engine", "kvm", "--verify", t.dir / "rec", timeout=200,
          env=behave("noscale"))
