"""How a guest can end, each with its exit code and a clear sentence."""
from suite.harness import CRASH, FINE, GUEST, HALTED, IMAGES, PANIC, test


def ends(name, code, sentence, reason, arg=None, cost=3, **options):
    @test("ends/" + name, cost=cost)
    def run(t):
        r = t.linux("rec", code=code, **options)
        t.has(r.error, sentence, "the summary")
        info = t.info("rec")
        t.equal((info["end"], info["state"]), (reason, "complete"), "the end in the log")
        if arg is not None:
            t.equal(info["end_arg"], arg, "its status")
        t.same("rec", r)


ends("poweroff", FINE, "the guest powered off", "poweroff", script="exit 0")
ends("reboot", FINE, "the guest reset the machine", "reset", script="exit 0", end="reboot")
ends("exit-0", FINE, "the guest ended with status 0", "exit", 0, script="exit 0", end="exit")
ends("exit-3", GUEST + 3, "the guest ended with status 3", "exit", 3, script="exit 3", end="exit")
ends("exit-200", GUEST + 200 % 64, "the guest ended with status 200", "exit", 200,
     script="exit 200", end="exit")
ends("panic", PANIC, "the guest's kernel panicked", "reset",
     script="echo c >/proc/sysrq-trigger")
ends("panic-init", PANIC, r"Attempted to kill init", "reset", append="rdinit=/bin/false")
ends("halt", HALTED, "the guest halted and nothing can wake it", "halted", script="halt -f")
ends("triple", CRASH, "the guest crashed .triple fault.", "triple-fault", append="reboot=t",
     script="exit 0", end="reboot")
ends("keyboard-reset", FINE, "the guest reset the machine", "reset", append="reboot=k",
     script="exit 0", end="reboot")


@test("ends/panic-stays", cost=6)
def panic_stays(t):
    """A kernel that is told to stay there after a panic: a limit ends it, code 7."""
    r = t.linux("rec", "--max-insns", 2500000000, append="panic=0", code=PANIC,
                script="echo c >/proc/sysrq-trigger")
    t.has(r.error, "the guest's kernel panicked; ended by the limit of --max-insns")
    t.has(r.error, "sysrq triggered crash")
    t.same("rec", r)


@test("ends/tiny")
def tiny(t):
    """The whole 32-bit status is kept."""
    r = t.tiny("triple", "triplefault", code=CRASH)
    t.has(r.error, "triple fault")
    r = t.tiny("halt", "haltforever", code=HALTED)
    t.has(r.error, "nothing can wake it")
    t.equal(t.info("halt")["end"], "halted", "the end")
    text = t.run(t.reprise, "info", t.dir / "halt").text
    t.has(text, "^end .*halted")
    t.check((IMAGES / "tiny" / "paging.elf").exists(), "no tiny guests")
