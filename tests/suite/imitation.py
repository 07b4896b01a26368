"""The KVM engine on an imitation of KVM and of the performance counter: on every host."""
import json

from suite.harness import FINE, HALTED, IMAGES, ROOT, cpu, rnd, test
from suite.tiny import COMMON, ENDS, OPTIONS, OWN_TEST

LONGEST = 60000  # positions of a guest that is cut
LOOPS = {"across", "faultstorm", "gpu", "gpu_hostile", "meets", "paging", "rep", "smc", "syscalls", "timers",
         "waits"}
STEP = ("--engine", "kvm", "--counter", "step")


def imitation(t, program="reprise"):
    return t.build / "tests" / "imitation" / program


def doctor(t, **misbehaviour):
    """Its facts and what it says of the engine kvm with the counter pmu."""
    what = ",".join(k if v is True else f"{k}={v}" for k, v in misbehaviour.items())
    seed = rnd.getrandbits(31)
    t.log.write(f"REPRISE_IMITATION=seed={seed},{what}\n")
    r = json.loads(t.run(imitation(t), "doctor", "--json", timeout=200,
                         env={"REPRISE_IMITATION": f"seed={seed},{what}"}).out)
    return r["facts"], r["engines"][2]


@test("imitation/doctor", cost=5)
def good(t):
    """Everything that the engine wants is there."""
    facts, pmu = doctor(t)
    lacks = [k for k, f in facts.items() if f["state"] != "yes" and f["state"] != "info" and
             k.split(".")[0] in ("kvm", "insn", "speed", "exit", "step", "breakpoint", "cpuid", "tsc",
                                 "pmu")]
    t.equal(lacks, [], "what it lacks")
    t.equal((pmu["linux"], pmu["tiny"]), (True, True), "the counter pmu")
    t.equal(facts["step.mov_ss"]["value"], "after the next instruction, as on a CPU", "MOV SS")
    t.equal(facts["step.pushf"]["value"], "the guest sees the trap flag", "PUSHF")
    t.check(facts["pmu.skid.ring0"]["number"] > 5, "no skid")
    return f"skid {facts['pmu.skid.ring0']['number']:.0f}"


def misbehaves(name, key, sentence, refused=True, **what):
    @test(f"imitation/{name}", cost=5)
    def run(t):
        """A host that misbehaves is told from a good one, with the reason."""
        facts, pmu = doctor(t, **what)
        t.equal(facts[key]["state"], "no" if refused else "yes", key)
        t.has(facts[key]["note"], sentence)
        t.equal(pmu["linux"], not refused, "whether the counter pmu can be used")


misbehaves("no-pmu", "pmu.counter", "has no hardware counter for event", nopmu=True)
misbehaves("no-scaling", "tsc.scaling", "KVM_CAP_TSC_CONTROL", noscale=True)
# (The next overflow comes.)
misbehaves("lost", "pmu.skid.ring0", r"^up to [1-9]\d{3} branches.*margin is 100$", lost="1/50",
           cpu="skylake")
misbehaves("all-lost", "pmu.overflows.ring3", r"^1000 of 1000 were lost", lost="1/1")
misbehaves("late", "pmu.skid.ring3", r"^up to 1[23]\d{3} branches.*margin is \d+", late="1/50")
misbehaves("stolen", "pmu.exact.ring0", "the counter was taken away for a while", stolen="1/300")
misbehaves("miscount", "pmu.exits.ring0", "KVM counting the host's too", miscount=True)
misbehaves("spec-lock", "pmu.locks.ring0", "SpecLockMap", speclock=True, cpu="zen")
misbehaves("tick", "tsc.still", r"ran over a tick of its TSC by [1-9]\d* ms: the host held it up",
           tick="1/50")
misbehaves("suspend", "tsc.still", r"suspended for [3-5]\d{3} ms while the guest ran",
           suspend="1/50")
# These are no reason to refuse it.
misbehaves("early", "pmu.overflows.ring0", r"^0 of 1000 were lost, [1-9]\d* early, 0 disturbed",
           refused=False, early="1/20")
misbehaves("intel", "pmu.skid.ring0", r"^up to [1-9]\d branches.*margin is 100$", refused=False,
           cpu="skylake", skid=60)
misbehaves("hybrid", "pmu.skid.ring0", r"margin is 125$", refused=False, cpu="alderlake", skid=90)


@test("imitation/no-step", cost=5)
def no_step(t):
    """Single steps that KVM ignores."""
    facts, _ = doctor(t, nostep=True)
    t.has(facts["step.ring0"]["value"], "through the guest's trap flag")
    r = t.run(imitation(t), "record", "-o", t.dir / "rec", "--kernel", tiny("haltforever"), *STEP,
              code=1, env={"REPRISE_IMITATION": "nostep"})
    t.has(r.error, "single step stops in no ring")


@test("imitation/facts", cost=2)
def known_facts(t):
    """What a KVM does where its documentation leaves it open, as tests/imitation/facts has it."""
    r = t.run(imitation(t, "kvm_facts"))
    t.equal(r.error, "", "what it says on stderr")
    t.equal(r.text, (ROOT / "tests/imitation/facts").read_text(), "the facts")


def insn(name, cases, *options, models=("v2", "v3")):
    for model in models:
        @test(f"imitation/{name}-{model}", cost=8)
        def run(t, model=model):
            """Random instructions and programs, each a single step."""
            t.need_model(model)
            r = t.run(imitation(t, "insn"), "--engine", "kvm", "--model", model, "--seed",
                      rnd.getrandbits(31), "--cases", cases, *options, timeout=240)
            t.has(r.text, ", 0 failed")
            return r.text.strip().splitlines()[-1]


insn("forms", 30000, models=("v2", "v3", "icelake-server"))
insn("stops", 100, "--stops")
insn("injected", 100, "--stops", "--interrupts")


def tiny(name):
    return IMAGES / "tiny" / (name + ".elf")


def guest(name, model="v2"):
    @test(f"imitation/tiny-{name}" + f"-{model}" * (model != "v2"), cost=3)
    def run(t):
        """Recorded by single steps; replayed by dbt, which records the same by itself."""
        t.need_model(model)
        cut = ("--max-insns", LONGEST) if name in LOOPS else ()
        options = ("--kernel", tiny(name), "--memory", "16M", "--no-realtime", "--seed", 1, *cut,
                   "--cpu", cpu(model), *OPTIONS.get(name, ()))
        one = t.run(imitation(t), "record", "-o", t.dir / "kvm", *options, *STEP, code=None)
        two = t.run(t.reprise, "record", "-o", t.dir / "dbt", *options, code=None)
        t.equal((one.code, one.code), (two.code, ENDS.get(name, FINE)), "the exit codes")
        t.lacks(one.text, "^FAIL")
        t.same("kvm", one)
        ends = [t.events(rec)[-1] for rec in ("kvm", "dbt")]
        t.equal(*[(e["position"], e["components"][0], e["ram"]) for e in ends],
                "position, vCPU and RAM at the end")
        r = t.run(imitation(t), "replay", t.dir / "dbt", "--engine", "kvm", )
        t.equal(r.text, two.text, "what it printed under KVM")
        return f"{t.info('kvm')['position']} positions"


for path in sorted((ROOT / "images" / "tiny").glob("*.c")):
    if path.stem not in OWN_TEST | COMMON:
        guest(path.stem)


def free(name, model="v2"):
    @test(f"imitation/free-{name}" + f"-{model}" * (model != "v2"), cost=4)
    def run(t):
        """Recorded at the CPU's own speed, counted by branches; replayed by dbt."""
        t.need_model(model)
        what = f"seed={rnd.getrandbits(31)},cpu=skylake,skid=60,early=1/20,tlb"
        r = t.run(imitation(t), "record", "-o", t.dir / "rec", "--kernel", tiny(name), "--memory",
                  "16M", "--no-realtime", "--seed", 1, "--max-insns", 400000, "--engine", "kvm",
                  "--counter", "pmu", "--cpu", cpu(model), *OPTIONS.get(name, ()), code=None, timeout=200, env={"REPRISE_IMITATION": what})
        info = t.info("rec")
        t.equal((info["engine"], info["counter"], info["position_unit"]), ("kvm", "pmu", "branch"),
                "what info says")
        t.same("rec", r)
        return f"{info['position']} positions, {what}"


for path in sorted((ROOT / "images" / "tiny").glob("*.c")):
    if path.stem not in OWN_TEST | COMMON:
        free(path.stem)
for model in ("haswell", "zen2"):  # CPUID that faults; no CPUID leaves and MSRs of Intel's
    guest("named", model)
    free("named", model)


@test("imitation/linux", cost=40)
def linux(t):
    """A boot at the CPU's own speed."""
    where = IMAGES / "linux"
    what = f"seed={rnd.getrandbits(31)},cpu=skylake,skid=60,early=1/50,tlb"
    r = t.run(imitation(t), "record", "-o", t.dir / "rec", "--kernel", where / "vmlinuz", "--initrd",
              where / "initrd", "--no-realtime", "--seed", 1, "--engine", "kvm", "--counter", "pmu",
              code=HALTED, timeout=300, env={"REPRISE_IMITATION": what})
    t.has(r.text, "Linux version")
    t.same("rec", r, timeout=200)
    return f"{t.info('rec')['position']} positions, {what}"


def lost(name, sentence, what, guest="faultstorm"):
    @test(f"imitation/free-{name}", cost=3)
    def run(t):
        """What goes wrong after the self-test is told."""
        said = f"seed={rnd.getrandbits(31)},cpu=skylake,later,{what}"
        r = t.run(imitation(t), "record", "-o", t.dir / "rec", "--kernel", tiny(guest),
                  "--memory", "16M", "--no-realtime", "--seed", 1, "--engine", "kvm", "--counter",
                  "pmu", code=1, timeout=100, env={"REPRISE_IMITATION": said})
        t.has(r.error, sentence, said)


lost("stolen", "the counter was taken away for a while", "stolen=1/50")
lost("tick", "ran over a tick of its TSC|the engine lost the guest", "tick=1/50")
lost("suspend", "suspended|the engine lost the guest", "suspend=1/50")
lost("lost", "branches after its counter.s overflow", "lost=1/1", "timers")
lost("late", "branches after its counter.s overflow", "late=1/1", "timers")
