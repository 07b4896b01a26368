"""Machines with several vCPUs: they run, replay wherever a run is cut, and are told apart."""
import json
import re

from suite import gdb_record
from suite.free import BRANCHES, PMU, alike, behave, convert
from suite.free import record as record_free
from suite.gdb import gdb, need_gdb
from suite.harness import CRASH, IMAGES, USAGE, rnd, test
from suite.imitation import imitation
from suite.kvm import KVM, STEP, need_kvm

CPUS = IMAGES / "guest" / "cpus"
LINES = ("atomic", "lock", "turns", "pages", "code", "signals", "off and on", "again")


def record(t, cpus, *options):
    return t.linux("rec", "--cpus", cpus, "--memory", "256M", "--add", f"{CPUS}:/bin/cpus", *options, append="quiet",
                   script="cpus\ncat /proc/cpuinfo\n")


@test("smp/linux", cost=20)
def linux(t):
    """Four vCPUs, of which threads use what CPUs have in common; one is taken off and put on again. The replay is
    the same in other slices, in any order of places, and from checkpoints; another recording begins there."""
    r = record(t, 4, "--checkpoint-every", "0.5")
    t.has(r.text, "(?m)^cpus 4\r?$")
    for what in LINES:
        t.has(r.text, rf"(?m)^{what} ok\r?$")
    t.equal(re.findall(r"(?m)^(?:apicid|cpu cores|siblings)\s*: (\d+)", r.text),
            [x for i in range(4) for x in ("4", "4", str(i))], "siblings, cores and apicid")
    t.equal(t.info("rec")["cpus"], 4, "cpus of info")
    for slice in ("7919", "100003"):
        t.same("rec", r, env={"REPRISE_TEST_SLICE": slice})
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 4, "--places", 10, "--moves", 20, timeout=300)
    t.verify_checkpoints("rec")
    t.run(t.reprise, "record", "--from", t.dir / "rec", "--at", "console:turns ok", "-o", t.dir / "next", timeout=200)
    t.has(t.replay("next").text, "(?m)^again ok\r?$")


@test("smp/spins", cost=8)
def spins(t):
    """Who waits for another one in a loop without PAUSE gives the turn on, wherever a run is cut, and with chaos."""
    for name, *more in (("rec",), ("chaos", "--chaos=3")):
        r = t.linux(name, "--cpus", 2, "--memory", "256M", "--add", f"{IMAGES / 'guest' / 'spins'}:/bin/spins", *more, append="quiet",
                    script="spins\n")
        t.same(name, r, env={"REPRISE_TEST_SLICE": "7919"})
        if not more:
            took = int(re.search(r"(?m)^(\d+) ns\r?$", r.text).group(1))
    t.check(took < 20000, f"a turn took {took} ns: it is used up")
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 4, "--places", 6, "--moves", 10, timeout=300)
    return f"{took} ns a turn"


@test("smp/turns", cost=6)
def turns(t):
    """How long turns are, by the guest's TSC: long while all work, short while one waits, not for long when one is woken."""
    r = t.tiny("rec", "startup", "--cpus", 4, "--append", "long")
    t.lacks(r.text, "^FAIL")
    t.has(r.text, r"(?m)^ok which has its turn soon when it is woken\r?$")
    for slice in ("1009", "100003"):
        t.same("rec", r, env={"REPRISE_TEST_SLICE": slice})
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 5, "--places", 20, "--moves", 40, timeout=300)
    t.run(t.reprise, "checkpoint", "--every", "0.002", t.dir / "rec", timeout=200)
    t.verify_checkpoints("rec")


@test("smp/many", cost=12)
def many(t):
    """As many as a machine may have."""
    r = record(t, 32)
    for what in LINES:
        t.has(r.text, rf"(?m)^{what} ok\r?$")
    t.same("rec", r)


@test("smp/seen", cost=10)
def seen(t):
    """gdb has a thread for each vCPU, and for each of a process, wherever they run; ps misses nobody."""
    need_gdb(t)
    record(t, 4)
    lives = [json.loads(x) for x in t.run(t.reprise, "ps", "--json", t.dir / "rec").out.splitlines()]
    threads = [p for p in lives if p.get("command") == "cpus"]
    t.equal((len({p["pid"] for p in threads}), len(threads)), (1, 1 + 4 * 5 + 1), "processes and threads of the program")
    t.equal([p["pid"] for p in threads if "ended" not in p], [], "who never ended")
    out = t.run(t.reprise, "gdb", t.dir / "rec", "--to", "console:lock ok", "--", "-nx", "-batch", "-ex", "info threads",
                "-ex", "break __schedule", "-ex", "continue", "-ex", "continue", "-ex", "reverse-continue", "-ex",
                "thread 4", "-ex", "p $cs & 3", timeout=100).text
    t.equal(len(re.findall(r"Thread \d \(CPU \d \([\w ]+\), CPL \d\)", out)), 4, "threads")
    t.has(out, r"Thread \d hit Breakpoint 1, .*__schedule")
    t.has(out, r"Switching to thread 4")
    cores(t, out)
    t.has(t.run(t.reprise, "events", "--json", t.dir / "rec").text, "cpu0,cpu1,cpu2,cpu3,machine,lapic,lapic1,lapic2,lapic3,")


@test("smp/steps", cost=12)
def steps(t):
    """Steps are of the thread that is selected, whoever's turn it is: while it is recorded, which gdb changes nothing of,
    and of a process, whose threads run on any vCPU, forwards and back."""
    need_gdb(t)
    t.run(*gdb_record.command(t, "plain", "--cpus", "4", guest="startup"))
    server = gdb_record.recorder(t, "live", "--gdb-wait", "--cpus", "4", guest="startup")
    live = gdb(t, """watch *((int *)&started + 3)
continue
printf "wrote %d\\n", $_thread
delete
thread 3
printf "at %lx\\n", $rip
stepi
stepi
printf "then %lx\\n", $rip
printf "thread %d\\n", $_thread
thread 1
stepi
printf "first %d\\n", $_thread
detach
""", file=IMAGES / "tiny" / "startup.elf", target=server.address, code=None)
    server.ended()
    for what in ("wrote 4", "thread 3", "first 1"):
        t.has(live, f"(?m)^{what}$")
    t.check(len(set(re.findall(r"(?m)^(?:at|then) (\w+)$", live))) == 2, "two steps lead nowhere")
    gdb_record.same_end(t, "live")
    record(t, 4)

    def at(point, *words):
        return t.run(t.reprise, "gdb", "--process", "cpus", t.dir / "rec", "--to", point, "--", "-nx", "-batch", *words, timeout=200)

    # The first one that takes turns: those of before end, and a step of one that ends has nowhere to stop.
    (t.dir / "steps.gdb").write_text("""break takes_turns
continue
set $first = $_thread
continue
delete
info threads
thread $first
printf "from %d at %lx\\n", $_thread, $rip
stepi 12
printf "to %d at %lx\\n", $_thread, $rip
reverse-stepi 12
printf "back %d at %lx\\n", $_thread, $rip
""")
    out = at("console:cpus 4", "-x", t.dir / "steps.gdb").text
    place = {w: re.search(rf"(?m)^{w} (\d+ at \w+)$", out).group(1) for w in ("from", "to", "back")}
    t.equal(place["back"], place["from"], "the place after as many steps back")
    t.check(place["to"] != place["from"] and place["to"].split()[0] == place["from"].split()[0], f"steps of a thread: {place}")
    # One that is ending, in front of what it does in the kernel for that and in the middle of it: it stays where it is.
    (t.dir / "ends.gdb").write_text("catch syscall exit\ncontinue\ndelete\nstepi\nmonitor when\n")
    r = at("console:cpus 4", "-x", t.dir / "ends.gdb")
    t.has(r.error, r"cpus \(pid \d+\) ends here, with status 0\.")
    middle = int(re.search(r"(?m)^position +(\d+)", r.error).group(1)) + 1000
    r = at(f"insn:{middle}", "-ex", "stepi", "-ex", "monitor when", "-ex", "reverse-stepi", "-ex", r'printf "before %lx\n", $rip')
    t.has(r.error, r"cpus \(pid \d+\) is ending: it does nothing more\.")
    t.has(r.error, f"(?m)^position +{middle}$")
    t.has(r.text, r"(?m)^before [0-9a-f]+$")


def cores(t, out):
    """A core has what gdb shows of all of them."""
    t.run(t.reprise, "symbols", t.dir / "rec", "-o", "guest.elf")
    made = json.loads(t.run(t.reprise, "core", "--json", "--at", "console:lock ok", t.dir / "rec", "-o", "vmcore").out)
    t.equal(made["cpus"], 4, "vCPUs in the core")
    text = t.run("gdb", "-nx", "-batch", "-ex", "info threads", "guest.elf", "vmcore").text
    frames = [re.findall(r"(?m)^[ *] \d .*(0x[0-9a-f]{16}) in (\w+)", x) for x in (out, text)]
    t.equal(frames[1], frames[0][:4], "where each is, in the core and in the recording")
    t.check(any("__schedule" not in f[1] for f in frames[1]), "the core's frames")


@test("smp/pages")
def pages(t):
    """What one vCPU changes in page tables another one sees at once: in its own address space, in one with a table of
    both, in one that is not the writer's. Nothing depends on what a TLB has."""
    for cpus in (2, 4):
        r = t.tiny(f"rec{cpus}", "startup", "--cpus", cpus, "--append", "pages")
        t.lacks(r.text, "^FAIL")
        t.same(f"rec{cpus}", r, env={"REPRISE_TEST_SLICE": 7919})


@test("smp/startup", cost=4)
def startup(t):
    """INIT as the manual has it, to oneself, to all and in storms; NMIs to all; one that never halts while others
    wait; a triple fault of one ends the machine. gdb's watchpoint stops at the vCPU that wrote; its steps are of the
    vCPU that is selected, forwards and back."""
    for cpus in (2, 4, 32):
        r = t.tiny(f"rec{cpus}", "startup", "--cpus", cpus)
        t.lacks(r.text, "^FAIL")
        t.has(r.text, "(?m)^ok and start\r?$")
        t.same(f"rec{cpus}", r, env={"REPRISE_TEST_SLICE": 7919})
    lines = t.run(t.reprise, "trace", "--json", "--from", 2000, "--to", 30000, t.dir / "rec4").out.splitlines()
    t.check(len({json.loads(x)["cpu"] for x in lines}) > 1, "the trace has instructions of one vCPU only")
    r = t.tiny("triple", "startup", "--cpus", 4, "--append", "triple", code=CRASH)
    t.same("triple", r)
    need_gdb(t)
    words = ["file " + str(IMAGES / "tiny" / "startup.elf"), "watch *((int *)&started + 3)", "continue",
             'printf "wrote %d\\n", $_thread', "thread 3", 'printf "at %lx\\n", $rip', "stepi", "stepi", "stepi",
             'printf "stepped %d\\n", $_thread', "reverse-stepi", "reverse-stepi", "reverse-stepi",
             'printf "back %lx\\n", $rip', 'printf "thread %d\\n", $_thread', "delete", "thread 1", "stepi",
             'printf "first %d\\n", $_thread']
    out = t.run(t.reprise, "gdb", t.dir / "rec4", "--to", "0", "--", "-nx", "-batch",
                *(x for w in words for x in ("-ex", w)), timeout=100).text
    t.has(out, "(?m)^wrote 4$")
    t.has(out, "(?m)^stepped 3$")
    t.equal(*(re.search(rf"(?m)^{w} (\w+)$", out).group(1) for w in ("at", "back")), "RIP after steps and as many back")
    t.has(out, "(?m)^thread 3$")
    t.has(out, "(?m)^first 1$")


PARTS = ("core_id", "physical_package_id", "thread_siblings_list", "package_cpus_list")
SHOW_PARTS = ("cd /sys/devices/system/cpu\n" + "".join(f"echo {x}: $(cat cpu[0-9]/topology/{x} cpu[0-9][0-9]/topology/{x})\n" for x in PARTS) +
              "echo apicids: $(grep ^apicid /proc/cpuinfo | cut -d: -f2)\necho cpu cores: $(grep '^cpu cores' /proc/cpuinfo | cut -d: -f2)\n"
              "echo of level 3: $(cat cpu0/cache/index3/shared_cpu_list)\n")


def parts_found(t, text, cpus, cores, threads):
    """Linux has found these, by CPUID, under the APIC ids that leave gaps (SDM vol. 3, 9.9.1)."""
    said = {what: re.search(rf"(?m)^{what}: ?(.*?)\s*$", text).group(1) for what in (*PARTS, "apicids", "cpu cores", "of level 3")}
    width = [(n - 1).bit_length() for n in (threads, cores)]
    where = [(i // threads // cores, i // threads % cores, i % threads) for i in range(cpus)]
    def together(i, n):
        return f"{i - i % n}-{i - i % n + n - 1}" if n > 1 else str(i)
    want = {"physical_package_id": [p for p, _, _ in where], "apicids": [(p << width[1] | c) << width[0] | h for p, c, h in where],
            "thread_siblings_list": [together(i, threads) for i in range(cpus)],
            "package_cpus_list": [together(i, cores * threads) for i in range(cpus)],
            "cpu cores": [cores] * cpus, "of level 3": [together(0, cores * threads)]}
    for what, each in want.items():
        t.equal(said[what], " ".join(map(str, each)), what)
    # Which number a core has is the kernel's choice: it tells those of a package apart.
    ids = said["core_id"].split()
    t.equal([len({ids[i] for i in range(cpus) if where[i][0] == p}) for p in range(cpus // cores // threads)],
            [cores] * (cpus // cores // threads), f"cores of each package by core_id {ids}")


@test("smp/topology", cost=4)
def topology(t):
    """Packages, cores and threads, as Linux finds them by Intel's leaves; a recording says what there are."""
    r = t.linux("rec", "--cpus", "8,cores=2,threads=2", "--memory", "256M", append="quiet", script=SHOW_PARTS)
    parts_found(t, r.text, 8, 2, 2)
    t.same("rec", r)
    t.equal([t.info("rec")[x] for x in ("cpus", "cores", "threads")], [8, 2, 2], "what info says")
    for bad, why in (("8,cores=3", "whole packages"), ("8,cores=4,threads=4", "whole packages"), ("32,cores=4294967295", "0 to 32"),
                     ("1,cores=2", "whole packages"), ("8,threads=0", "1 to 32"), ("8,cores", "none of"), ("8,x=1", "none of")):
        x = t.run(t.reprise, "record", "-o", t.dir / "bad", "--cpus", bad, "--memory", "16M", "--kernel",
                  IMAGES / "tiny" / "rep.elf", code=None)
        t.check(x.code != 0 and not (t.dir / "bad").exists(), f"--cpus {bad}: code {x.code}")
        t.has(x.error, why)


@test("smp/uneven", cost=12)
def uneven(t):
    """Where cores are three, APIC ids have gaps. Two packages of three cores of two threads by Intel's leaves, whose IPIs of every kind
    arrive, by an xAPIC and its ids of 8 bits; three packages of three cores by AMD's leaves and x2APICs."""
    for name, kind, cpus, cores, threads, append, script in (("intel", "skylake-server", 12, 3, 2, "quiet nox2apic", "cpus\n"),
                                                             ("amd", "zen2", 9, 3, 1, "quiet", "")):
        r = t.linux(name, "--cpus", f"{cpus},cores={cores},threads={threads}", "--cpu", kind, "--memory", "256M", "--add", f"{CPUS}:/bin/cpus",
                    append=append, script=script + SHOW_PARTS)
        for what in LINES if script else ():
            t.has(r.text, rf"(?m)^{what} ok\r?$")
        parts_found(t, r.text, cpus, cores, threads)
        t.same(name, r, env={"REPRISE_TEST_SLICE": "7919"})


@test("smp/refused", cost=1)
def refused(t):
    """How many there may be, and what has one only."""
    kernel = ("--kernel", IMAGES / "tiny" / "rep.elf", "--memory", "16M")
    for n in ("0", "33", "-1", "two"):
        t.run(t.reprise, "record", "-o", t.dir / "rec", f"--cpus={n}", *kernel, code=USAGE)
    told = "dbt,paranoid follows one CPU, and the machine has 2"
    r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--cpus", 2, "--engine", "dbt,paranoid", *kernel, code=None)
    t.check(r.code != 0 and not (t.dir / "rec").exists(), f"code {r.code}")
    t.has(r.error, told)
    r = t.tiny("rec", "rep", "--cpus", "2", "-v")
    t.has(r.error, "the engine is dbt, and not kvm: the turns of several CPUs")
    r = t.run(t.reprise, "replay", "--engine", "dbt,paranoid", t.dir / "rec", code=None)
    t.check(r.code, "it is replayed by paranoid")
    t.has(r.error, told)


@test("smp/kvm", cost=15)
def by_kvm(t):
    """Recorded by single steps in KVM and replayed by dbt; with chaos the other way round, which looks in front of
    each atomic operation. What waits by PAUSE and what IPIs start are in both."""
    need_kvm(t)
    r = t.tiny("kvm", "startup", *STEP, "--cpus", 4, timeout=300)
    t.same("kvm", r)
    r = t.tiny("dbt", "startup", "--cpus", 4, "--chaos=7")
    t.same("dbt", r, *KVM)


@test("smp/branches", cost=18)
def branches(t):
    """Turns that are branches, as dbt counts them: in other slices, and with instructions besides. One that waits
    without a branch ends its turn by an input."""
    t.tiny("tiny", "startup", "--cpus", 4, code=None, env=BRANCHES)
    t.check(any(e["type"] == "place" for e in t.events("tiny")), "no place between two branches")
    where = IMAGES / "linux"
    chaos = f"--chaos={rnd.getrandbits(31)}"
    r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--kernel", where / "vmlinuz", "--initrd", where / "initrd", "--append",
              "-- nproc; seq 300 | md5sum", "--no-realtime", "--timeout", 120, "--cpus", 4, chaos, timeout=200, env=BRANCHES)
    t.has(r.text, "(?m)^4\r?$")
    t.same("rec", r, timeout=200)
    t.run(t.reprise, "replay", "--verify", t.dir / "tiny", env={"REPRISE_TEST_SLICE": str(rnd.choice((997, 9973, 99991)))})
    convert(t, "tiny", "insn")
    return chaos


@test("smp/free", cost=25)
def free(t):
    """On an imitation of KVM and its counter: each vCPU in a KVM of its own, which has one counter; what they write is
    the machine's, checkpoints say."""
    r = record_free(t, "startup", "--cpus", 4, "--checkpoint-every", "0.02", name="tiny")
    t.verify_checkpoints("tiny")
    for _ in range(2):
        again = t.run(imitation(t), "replay", "--engine", "kvm", "--verify", t.dir / "tiny", code=None, timeout=200, env=behave())
        t.has(again.error, "replayed without a difference")
    t.same("tiny", r)
    alike(t, "tiny", 4)
    where = IMAGES / "linux"
    r = t.run(imitation(t), "record", "-o", t.dir / "rec", "--kernel", where / "vmlinuz", "--initrd", where / "initrd", "--append",
              "-- nproc; seq 300 | md5sum", "--no-realtime", "--seed", rnd.getrandbits(31), *PMU, "--cpus", 2, timeout=300,
              env=behave("skid=60,early=1/50,tlb"))
    t.has(r.text, "(?m)^2\r?$")
    t.same("rec", r, timeout=200)
    return f"{t.info('rec')['position']} positions"
