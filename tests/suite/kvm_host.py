"""The KVM engine on hosts that cannot: what is missing is said, what fails in the middle is said with
all that is known, and what was recorded until then replays. tests/tools/kvm_fake.c makes them bad."""
import errno
import os
import pathlib
import re
import signal
import time

from suite.harness import DAMAGE, ERROR, IMAGES, ROOT, Session, rnd, test
from suite.kvm import KVM, STEP, need_kvm

# Numbers of KVM's ioctls.
(CREATE_VM, CHECK_EXTENSION, CREATE_VCPU, SET_USER_MEMORY_REGION, SET_TSS_ADDR, RUN, GET_REGS, SET_REGS,
 SET_SREGS, SET_CPUID2, SET_GUEST_DEBUG, SET_VCPU_EVENTS, GET_XSAVE, SET_XSAVE, SET_XCRS, ENABLE_CAP,
 SET_MSR_FILTER) = (0x01, 0x03, 0x41, 0x46, 0x47, 0x80, 0x81, 0x82, 0x84, 0x90, 0x9b, 0xa0, 0xa4, 0xa5,
                    0xa7, 0xa3, 0xc6)


def build_fake(t):
    out = t.preloaded("kvm_fake.c")
    return lambda what: {"LD_PRELOAD": out, "KVM_FAKE": what}


def capabilities():
    """Those that vm.c asks for, with their numbers."""
    table = re.search(r"needed\[\] = {(.*?)};", (ROOT / "vmm/cpu/kvm/vm.c").read_text(), re.S).group(1)
    names = re.findall(r"{(KVM_CAP_\w+),", table)
    numbers = dict(re.findall(r"^#define (KVM_CAP_\w+)\s+(\d+)",
                              pathlib.Path("/usr/include/linux/kvm.h").read_text(), re.M))
    return [(name, numbers[name]) for name in names]


def refuses(t, fake, what, sentence, auto=True):
    r = t.tiny("rec", "haltforever", *STEP, "--seed", 1, code=ERROR, env=fake(what))
    t.has(r.error, sentence, what)
    t.check(not (t.dir / "rec").exists(), f"{what}: a recording was left behind")
    if auto:
        t.has(t.tiny("auto", "haltforever", "-v", "--force", "--seed", 1, "--max-insns", 100,
                     env=fake(what)).error, "the engine is dbt", what)


@test("kvm/refused", cost=4)
def refused(t):
    """Hosts that cannot: a sentence that says what is missing, and nothing is left behind."""
    fake = build_fake(t)
    for why, sentence in ((errno.EACCES, "permission denied.*group kvm"),
                          (errno.EPERM, "permission denied.*group kvm"),
                          (errno.ENOENT, "there is no /dev/kvm here.*modules kvm_intel or kvm_amd"),
                          (errno.ENODEV, "there is no /dev/kvm here"),
                          (errno.EMFILE, "/dev/kvm: Too many open files")):
        refuses(t, fake, f"open={why}", sentence)
    if not (pathlib.Path("/dev/kvm").exists() and os.access("/dev/kvm", os.W_OK)):
        return "without /dev/kvm"
    need_kvm(t)
    caps = capabilities()
    t.check(len(caps) > 10, "no capabilities in vm.c")
    for name, number in caps:
        refuses(t, fake, f"cap={number}", f"lacks {name}, .*Linux 5.10", auto=name == caps[-1][0])
    refuses(t, fake, "api=11", "version 11 of its interface, not 12")
    refuses(t, fake, "nostep", "stops in no ring")
    for number, why, sentence in (
            (CREATE_VM, errno.EBUSY, "KVM_CREATE_VM .does another program hold.*Device or resource busy"),
            (SET_TSS_ADDR, errno.EINVAL, "KVM_SET_TSS_ADDR: Invalid"),
            (SET_USER_MEMORY_REGION, errno.ENOMEM, "RAM at 0: Cannot allocate memory"),
            (ENABLE_CAP, errno.EINVAL, "KVM_CAP_X86_USER_SPACE_MSR: Invalid"),
            (SET_MSR_FILTER, errno.EINVAL, "KVM_X86_SET_MSR_FILTER: Invalid"),
            (CREATE_VCPU, errno.ENOMEM, "KVM_CREATE_VCPU: Cannot allocate memory"),
            (SET_CPUID2, errno.EINVAL, "KVM_SET_CPUID2 of model x86-64-v[23]: Invalid"),
            (SET_SREGS, errno.EINVAL, "setting up the single-step test of ring 0: Invalid"),
            (RUN, errno.EINTR + 1, "KVM_RUN of the single-step test of ring 0: Input/output")):
        refuses(t, fake, f"ioctl={number},{why},1", sentence, auto=False)
    return f"{len(caps)} capabilities"


@test("kvm/memory", cost=3)
def memory(t):
    """Less memory than the guest is to have."""
    need_kvm(t)
    if t.mode == "asan":
        t.skip("the address sanitizer takes terabytes of addresses")
    for size, limit in (("2G", 1 << 30), ("64M", 40 << 20)):
        r = t.run("prlimit", f"--as={limit}", t.reprise, "record", *STEP, "--memory", size, "-o",
                  t.dir / "rec", "--kernel", IMAGES / "tiny" / "haltforever.elf", code=(ERROR, 127))
        if r.code == 127:
            continue # not even the program itself was loaded
        t.has(r.error, "(?i)memory", f"{size} within {limit} bytes")
        t.check(not (t.dir / "rec").exists(), "a recording was left behind")


def ends_there(t, what, fake, sentence, guest="interrupts", *options):
    """Recorded until KVM fails; the recording replays up to there on both engines."""
    r = t.tiny("rec", guest, *STEP, "--no-realtime", "--seed", 1, "--force", *options, code=ERROR,
               env=fake(what), timeout=60)
    t.has(r.error, sentence, what)
    end = t.events("rec")[-1]
    t.equal(end["reason"], "quit", f"{what}: the end")
    t.same("rec", r)
    t.same("rec", r, *KVM)
    return r, end["position"]


@test("kvm/broken", cost=14)
def broken(t):
    """KVM comes out with what has no answer: all it says is shown."""
    need_kvm(t)
    fake = build_fake(t)
    for reason, sentence in ((17, "internal error of KVM.*suberror 3, data abcd 1234"),
                             (9, "does not take the guest's state.*hardware reason 80000021"),
                             (0, "has no answer: KVM_EXIT_UNKNOWN .0., hardware reason 77"),
                             (8, "a single step of `.*` stopped at [0-9a-f]+: KVM_EXIT_SHUTDOWN"),
                             (7, "has no answer: KVM_EXIT_IRQ_WINDOW_OPEN"),
                             (99, "has no answer: an unnamed exit .99.")):
        when = rnd.randrange(2000, 9000)
        r, _ = ends_there(t, f"exit={reason},{when}", fake, sentence)
        t.has(r.error, r"at position \d+, instruction at [0-9a-f]+ .ring 0., bytes( [0-9a-f]{2}){15}")
        t.has(r.error, "RIP [0-9a-f]+ RFLAGS .* R15 ")


@test("kvm/gone", cost=25)
def gone(t):
    """/dev/kvm stops to work at any moment, in the middle of an instruction too."""
    need_kvm(t)
    fake = build_fake(t)
    any_of = "KVM_RUN at position|KVM_(GET|SET)_\\w+|does not take the (guest's control|general) registers"
    for n in range(6): # the last thousands of some 36,000 talk to devices
        what = (f"gone={errno.EIO},{rnd.randrange(8000, 76000)}" if n % 2 else
                f"ioctl={RUN},{errno.EIO},{rnd.randrange(27500, 38000)}")
        t.log.write(f"KVM_FAKE={what}\n")
        ends_there(t, what, fake, f"({any_of if n % 2 else 'KVM_RUN at position'}).*Input/output error")
    for number, guest, sentence in (
            (GET_REGS, "interrupts", "KVM_GET_REGS: Input/output error"),
            (SET_REGS, "interrupts", "does not take the general registers: Input/output error"),
            (SET_GUEST_DEBUG, "interrupts", "KVM_SET_GUEST_DEBUG: Input/output error")):
        ends_there(t, f"ioctl={number},{errno.EIO},{rnd.randrange(1000, 3000)}", fake, sentence, guest)


@test("kvm/replay-gone", cost=4)
def replay_gone(t):
    """KVM that fails in a replay is an error of this host, and neither a divergence nor the end."""
    need_kvm(t)
    fake = build_fake(t)
    t.tiny("rec", "interrupts", "--no-realtime", "--seed", 1)
    for what, sentence in ((f"gone={errno.EIO},9000", "^reprise: .*Input/output error"),
                           (f"ioctl={RUN},{errno.EIO},5000", "^reprise: .*KVM_RUN at position .*Input"),
                           ("exit=17,5000", "^reprise: an internal error of KVM.*suberror 3")):
        for options in ((), ("--verify",), ("--to", "insn:30000", "--regs"), ("-o", t.dir / "copy", "--force")):
            r = t.run(t.reprise, "replay", *KVM, *options, t.dir / "rec", code=ERROR, env=fake(what))
            t.has(r.error, sentence, what)
            t.lacks(r.error, "diverged|recording ends", what)
    for why, sentence in (("open=13", "permission denied"), ("cap=41", "lacks KVM_CAP_VCPU_EVENTS")):
        t.has(t.run(t.reprise, "replay", *KVM, t.dir / "rec", code=ERROR, env=fake(why)).error,
              sentence, why)


@test("kvm/not-taken", cost=6)
def not_taken(t):
    """The host refuses a guest's state in the middle: control registers, XCR0, the FPU's."""
    need_kvm(t)
    fake = build_fake(t)
    why = errno.EINVAL
    ends_there(t, f"ioctl={SET_SREGS},{why},40", fake, "does not take the guest's control registers .CR0 "
               "[0-9a-f]+, CR4 [0-9a-f]+, EFER [0-9a-f]+, CS [0-9a-f]{4}.*Invalid argument", "paging")
    for number, count, sentence in ((SET_XCRS, 1, "does not take XCR0 = [0-9a-f]+: Invalid"),
                                    (SET_XSAVE, 5, "does not take the x87, SSE and AVX registers: Inv"),
                                    (GET_XSAVE, 1, "KVM_GET_XSAVE: Invalid")):
        ends_there(t, f"ioctl={number},{why},{count}", fake, sentence, "fpu")


@test("kvm/signals", cost=12)
def signals(t):
    """A KVM_RUN that a signal interrupts, steps whose trap is lost, instructions that KVM's emulator
    does not know: the recording is the same."""
    need_kvm(t)
    fake = build_fake(t)
    ends = set()
    for what in ("eintr=3", "lose=23", "unknown=97"):
        r = t.tiny("rec", "interrupts", *STEP, "-v", "--no-realtime", "--seed", 1, "--force",
                   env=fake(what), timeout=60)
        t.same("rec", r)
        end = t.events("rec")[-1]
        ends.add((end["position"], end["components"][0], end["ram"]))
        if what.startswith("unknown"):
            t.has(r.error, "executed here, [1-9][0-9]* times because", what)
    t.equal(len(ends), 1, "the number of different ends")


@test("kvm/killed", cost=8)
def killed(t):
    """A killed recorder leaves what replays up to its last chunk, on both engines."""
    need_kvm(t)
    child = t.start([t.reprise, "record", "-o", t.dir / "rec", *STEP, "--memory", "16M", "--kernel",
                     IMAGES / "tiny" / "spin.elf"])
    time.sleep(rnd.uniform(1.5, 2.2) * t.slow)
    t.check(child.poll() is None, "it ended before it was killed")
    child.kill()
    out = child.communicate()[0]
    for engine in ("dbt", "kvm"):
        r = t.replay("rec", "--engine", engine, code=DAMAGE)
        t.check(out.startswith(r.out), "the replay's console is not a prefix")
        t.has(r.error, "ends|cut|killed", "the message")
    info = t.info("rec", code=DAMAGE)
    t.equal(info["state"], "killed", "the state")
    # No device is asked in between.
    t.check(info["position"] > 1000, "nothing was recorded")
    t.check(info["counts"]["progress"] == 1 + info["position"] // 10000,
            f"{info['counts']['progress']} progress records up to {info['position']}")


@test("kvm/suspended", cost=10)
def suspended(t):
    """A recorder that is stopped for seconds, as by a host that sleeps, goes on as if nothing was."""
    need_kvm(t)
    s = Session(t, "rec", *STEP, "--memory", "16M", kernel=IMAGES / "tiny" / "echo.elf")
    s.wait("ready")
    for n, line in enumerate(("before", "between", "after")):
        start = len(s.out)
        s.send(line + "\n")
        s.wait(rf"^{len(line)} [0-9a-f]+ \d+ {line}\r$", start=start)
        if n < 2:
            if n:
                s.send("half a l")
                s.read(0.05)
            os.kill(s.child.pid, signal.SIGSTOP)
            time.sleep(2)
            os.kill(s.child.pid, signal.SIGCONT)
            if n:
                s.send("ine\n")
                s.wait("^11 .* half a line\r$", start=start)
    s.send("exit\n")
    s.finish()
    for engine in ("dbt", "kvm"):
        t.equal(t.replay("rec", "--engine", engine).out, s.out, "the console of the replay")


@test("boot/suspended", cost=12)
def pacing(t):
    """A guest that sleeps does not hurry through its sleeps after a host's."""
    s = Session(t, "rec")
    s.prompt()
    start = len(s.out)
    s.send("for i in 1 2 3 4 5 6 7 8; do sleep 0.4; echo tick-$i; done; echo $((6*7))\n")
    times = []
    for n in range(1, 9):
        start = s.wait(rf"^tick-{n}\r$", start=start)
        times.append(time.monotonic())
        if n == 2:
            os.kill(s.child.pid, signal.SIGSTOP)
            time.sleep(2.5)
            os.kill(s.child.pid, signal.SIGCONT)
    gaps = [b - a for a, b in zip(times, times[1:])]
    t.log.write(f"gaps {gaps}\n")
    t.check(gaps[1] > 2.4, "it was not stopped")
    t.check(min(gaps[2:]) > 0.25, f"it hurried: {min(gaps[2:]):.2f} s for a sleep of 0.4 s")
    s.wait("^42\r$", start=start)
    s.send("poweroff -f\n")
    s.finish()
    t.equal(t.replay("rec").out, s.out, "the console of the replay")
