"""The engine kvm with the counter pmu stops exactly, or says that it did not: on the imitation."""
import re

from suite.harness import IMAGES, rnd, test

# Of each table of events (docs/doctor.md) a CPU, its margin, and positions between two stops.
CPUS = {"skylake": (100, 500), "alderlake": (125, 600), "zen": (10000, 12000)}


def recordings(t, by_kvm=False, linux=True):
    """Of guests that run for long; positions are branches."""
    program, options, env = t.reprise, (), {"REPRISE_TEST_BRANCH": 1}
    if by_kvm:
        program, options, env = t.build / "tests/imitation/reprise", ("--counter", "pmu"), {}
    made = []
    for guest in ("rep", "timers"):
        made.append(t.dir / guest)
        t.run(program, "record", "-o", made[-1], "--kernel", IMAGES / f"tiny/{guest}.elf", *options,
              "--memory", "16M", code=None, env=env)
    if linux:
        made.append(t.dir / "linux")
        where = IMAGES / "linux"
        t.run(program, "record", "-o", made[-1], "--kernel", where / "vmlinuz", "--initrd",
              where / "initrd", "--append", "quiet -- dmesg >/dev/null; cat /proc/interrupts",
              *options, env=env, timeout=600)
    return made


def stops(t, made, number, cpu, *options, seed=None, gap=None, timeout=300, **more):
    """Returns what the tool said last."""
    seed = rnd.getrandbits(31) if seed is None else seed
    what = ",".join(k if v is True else f"{k}={v}" for k, v in more.items())
    r = t.run(t.build / "tests/imitation/stops", "--seed", seed, "--stops", number, "--gap",
              gap or CPUS[cpu][1], *options, *made, timeout=timeout,
              env={"REPRISE_IMITATION": f"seed={seed},cpu={cpu},{what}"})
    return r.text.strip().splitlines()[-1].removeprefix("stops: ")


def exact(t, made, number, cpu, **more):
    """The skid is up to the margin: all are exact, and most of the way was the counter's."""
    said = stops(t, made, number, cpu, skid=CPUS[cpu][0], **more)
    found = re.search(r"^(\d+) stops exact, (\d+) of them by the counter .*; 0 runs lost", said)
    t.check(found and int(found[1]) >= number and int(found[2]) > number / 4, said)
    return said


# What must end a run, and what is said of it.
MARGIN = r"the vCPU ran on for (\d+) branches after its counter's overflow, which was lost, or late"
LOST = {"skid": ({}, MARGIN), "lost": ({"lost": "1/20"}, MARGIN), "late": ({"late": "1/20"}, MARGIN),
        "stolen": ({"stolen": "1/20"}, "the counter was taken away for a while"),
        "core": ({"core": "1/20"}, "thread moved to a core of another kind"),
        "tick": ({"tick": "1/20"}, r"ran over a tick of its TSC by \d+ ms"),
        "suspend": ({"suspend": "1/20"}, r"suspended for \d+ ms while the guest ran")}


def told(t, made, number, cpu, name, **more):
    """A host that misbehaves while a guest runs ends that many runs, which say what happened; whatever
    was stopped at before is exact."""
    faults, sentence = LOST[name]
    skid = CPUS[cpu][0]
    most = 2 * skid if name == "skid" else skid
    said = stops(t, made, 100000, cpu, "--lost", number, later=True, skid=most, **faults, **more)
    t.has(said, rf"; {number} runs lost and told, the last: ", name)
    t.has(said, sentence, name)
    size = re.search(MARGIN, said)
    t.check(not size or int(size[1]) > skid, said)
    return said


def campaign(cpu, number):
    @test(f"stops/{cpu}", cost=8)
    def run(t):
        """At random positions of guests, with all the skid that is allowed; `tests/soak.py --kind
        pmu` has 100,000."""
        made = recordings(t, by_kvm=cpu == "alderlake", linux=cpu == "skylake")
        return exact(t, made, number, cpu)


campaign("skylake", 2000)
campaign("alderlake", 1000)
campaign("zen", 150)


@test("stops/told", cost=8)
def misbehaves(t):
    """Each fault of a host while a guest runs ends the run, with its size."""
    made = recordings(t, linux=False)
    for name in LOST:
        told(t, made, 2, "alderlake" if name == "core" else "skylake", name)
