"""Somebody at the console: terminal, keys, pacing, signals."""
import fcntl
import os
import re
import signal
import termios
import time

from suite.harness import ERROR, FINE, HALTED, IMAGES, Session, test


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def replayed(t, name, s):
    """The console of the replay is in what the terminal showed, line by line."""
    shown = re.sub(r"\x1b\[K|\r|\x1b\[6n", "", s.out.decode("utf-8", "replace"))
    for line in t.replay(name).text.replace("\x1b[6n", "").splitlines():
        t.check(line.rstrip("\r") in shown, f"the terminal never showed {line!r}")


@test("session/continued", cost=3)
def continued(t):
    """SIGCONT, as `fg` sends it, while translated code runs with the guest's stack pointer: the handler sets the
    terminal, and the guest does not notice."""
    s = Session(t, "rec", "--memory", "16M", "--max-insns", 1500000000, terminal=True,
                kernel=IMAGES / "tiny" / "spin.elf")
    s.wait("[0-9a-f]{16}")

    def cooked():
        return termios.tcgetattr(s.slave)[3] & termios.ICANON and s.child.poll() is None
    while s.child.poll() is None:
        termios.tcsetattr(s.slave, termios.TCSANOW, s.before)
        s.child.send_signal(signal.SIGCONT)
        for _ in range(1000):
            if not cooked():
                break
            s.read(0.002)
        t.check(not cooked(), "SIGCONT was lost: the terminal is not raw")
    s.finish()
    t.lacks(s.out.decode("utf-8", "replace"), "vector", "what the guest printed")
    t.replay("rec")


@test("session/sent-fault")
def sent_fault(t):
    """A SIGSEGV that somebody sends is no fault of the guest's code: the process ends by it."""
    s = Session(t, "rec", "--memory", "16M", kernel=IMAGES / "tiny" / "spin.elf")
    s.wait("[0-9a-f]{16}")
    s.child.send_signal(signal.SIGSEGV)
    s.finish(code=-signal.SIGSEGV)
    t.lacks(s.out.decode("utf-8", "replace"), "vector", "what the guest printed")


@test("session/terminal", cost=14)
def terminal(t):
    """Raw and interactive; time is real; idle costs nothing; the terminal is given back."""
    s = Session(t, "rec", terminal=True)
    s.prompt()
    t.check(termios.tcgetattr(s.slave)[3] & (termios.ICANON | termios.ECHO) == 0,
            "the terminal is not raw")
    s.type("echo $((6*7))", r"^42\r+\n[^\n]*(/root|~) # (\x1b\[6n)?$")
    began = time.monotonic()
    s.type("sleep 5")
    took = time.monotonic() - began
    # On a busy host the guest is late, and what it is late comes off its next sleep.
    t.check(4.4 < took < 6.5, f"sleep 5 took {took:.2f} s")
    before = cpu_seconds(s.child.pid)
    time.sleep(5)
    used = (cpu_seconds(s.child.pid) - before) / 5
    t.check(used < 0.02 * t.slow, f"a guest at its prompt uses {100 * used:.1f}% of a CPU")
    s.send("sleep 100\n")  # Ctrl-C belongs to the guest
    time.sleep(0.5)
    start = len(s.out)
    s.send("\x03")
    s.wait(r"(/root|~) # (\x1b\[6n)?$", 10, start)
    s.type("echo still $((40+2))", r"^still 42\r+\n[^\n]*(/root|~) # (\x1b\[6n)?$")
    typed = s.out.index(b"echo $((6*7))")
    t.check(b" M/s" not in s.out[typed:], "a progress line among what is typed and answered")
    s.send("\x01h")
    s.wait("Ctrl-A x +quit")
    s.send("\x01x")
    s.wait("ended by Ctrl-A x")
    after = termios.tcgetattr(s.slave)
    s.finish(FINE)
    t.equal(after, s.before, "the terminal's state")
    t.equal(t.info("rec")["end"], "quit", "the end")
    replayed(t, "rec", s)
    return f"sleep 5 took {took:.2f} s, idle {100 * used:.2f}% CPU"


@test("session/keys", cost=8)
def keys(t):
    """Ctrl-A b, n, Ctrl-A and p: BREAK, NMI, the byte itself, the power button."""
    s = Session(t, "rec", terminal=True)
    s.prompt()
    s.type("echo 1 >/proc/sys/kernel/sysrq")
    s.send("\x01b")
    time.sleep(0.3)
    s.send("h")
    s.wait("sysrq: HELP")
    s.type("")
    s.send("\x01n")
    s.wait("NMI")
    s.type("")
    s.send("echo\x01\x01x")  # the guest's line editor goes to the line's start: "xecho"
    s.type("", "xecho: not found")
    s.prompt()
    s.send("\x01p")
    s.wait("Power down")
    s.finish(FINE)
    kinds = {e["type"] for e in t.events("rec")}
    for kind in ("line_break", "nmi", "power_button", "console"):
        t.check(kind in kinds, f"no {kind} in the log")
    replayed(t, "rec", s)


@test("session/unpaced", cost=6)
def unpaced(t):
    """--no-realtime: a sleep takes no time, although somebody is typing."""
    s = Session(t, "rec", "--no-realtime")
    s.prompt()
    began = time.monotonic()
    s.type("sleep 1000")
    took = time.monotonic() - began
    t.check(took < 30 * t.slow, f"sleep 1000 took {took:.1f} s")
    s.send("poweroff -f\n")
    s.finish(FINE)
    t.equal(t.replay("rec").out, s.out, "the console of the replay")


@test("session/replay-unpaced", cost=8)
def replay_unpaced(t):
    """A replay does not wait: ten seconds of sleep replay at once, on a busy host too."""
    s = Session(t, "rec")
    s.prompt()
    s.type("sleep 10")
    s.send("poweroff -f\n")
    s.finish(FINE)
    t.check(t.info("rec")["time"] > 11e9, "virtual time did not follow host time")
    r = t.replay("rec")
    t.equal(r.out, s.out, "the console of the replay")
    t.check(r.seconds < 9 * t.slow, f"the replay took {r.seconds:.1f} s")


def ended_by(number):
    @test(f"session/{number.name.lower()}", cost=4)
    def run(t):
        """Ends a recording cleanly: busy, and asleep at a prompt."""
        child = t.start([t.reprise, "record", "-o", t.dir / "busy", "--memory", "16M", "--kernel",
                         IMAGES / "tiny" / "spin.elf"])
        time.sleep(0.6)
        child.send_signal(number)
        out, err = child.communicate(timeout=20 * t.slow)
        t.show(child.returncode, out, err)
        t.equal(child.returncode, FINE, "the exit code")
        t.has(err.decode(), "ended by a signal")
        t.equal(t.info("busy")["end"], "quit", "the end")
        t.equal(t.replay("busy").out, out, "the console of the replay")
        s = Session(t, "idle", kernel=IMAGES / "tiny" / "echo.elf")
        s.wait("ready")
        time.sleep(0.4)
        s.child.send_signal(number)
        s.finish(FINE)
        t.has(s.err.decode(), "ended by a signal")
        t.equal(t.replay("idle").out, s.out, "the console of the replay")


for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    ended_by(one)


@test("session/closed-pipe", cost=3)
def closed_pipe(t):
    """Whoever reads the console goes away: the recording goes on."""
    r = t.run("bash", "-c", f"{t.reprise} record -o rec --memory 16M --kernel "
              f"{IMAGES}/tiny/paging.elf | head -n 1; exit ${{PIPESTATUS[0]}}")
    t.equal(len(r.text.splitlines()), 1, "the number of lines")
    t.replay("rec")
    t.run("bash", "-c", f"{t.reprise} replay rec >&-")
    t.has(t.run("bash", "-c", f"{t.reprise} replay rec >/dev/full", code=ERROR).error,
          "cannot write the guest's console.*No space left")
    t.has(t.run("bash", "-c", f"{t.reprise} record -o full --memory 16M --kernel "
                f"{IMAGES}/tiny/paging.elf >/dev/full").error, "cannot write the guest's console")
    t.replay("full")


@test("session/progress", cost=4)
def progress(t):
    """A progress line on stderr when it is a terminal, and only then."""
    s = Session(t, "rec", terminal=True, kernel=IMAGES / "tiny" / "spin.elf")
    s.wait(r"instructions, virtual time .* M/s, log", 20)
    s.send("\x01x")
    s.finish(FINE)
    r = t.tiny("quiet", "faultstorm")
    t.lacks(r.error, "M/s")


@test("session/piped", cost=6)
def piped(t):
    """Commands on a pipe, before the guest listens: all of them arrive, and Ctrl-A keys in them."""
    lines = b"echo one\necho t\x01\x01\x05wo; uname -s\n"
    for name, end, code, what in (("poweroff", b"poweroff -f\n", FINE, "powered off"),
                                  ("quit", b"echo three\n\x01x", FINE, "ended by Ctrl-A x"),
                                  ("idle", b"echo three\n", HALTED, "no input is left")):
        r = t.linux(name, append="quiet", input=lines + end, code=code)
        t.has(r.text, r"^one$")
        t.has(r.text, r"^Linux$")
        t.has(r.error, what)
        if end != b"poweroff -f\n":
            t.has(r.text, r"^three$")
        t.same(name, r)


@test("session/idle-limit", cost=6)
def idle_limit(t):
    """No input left: a guest that only waits ends the recording; one that sleeps goes on."""
    script = b"sleep 2000; echo still here\n"
    r = t.linux("long", append="quiet", input=script, code=HALTED)
    t.has(r.text, "^still here$")
    info = t.info("long")
    t.equal((info["end"], info["why"]), ("quit", "idle"), "the end")
    t.check(5600e9 < info["time"] < 5800e9, f"the end came at {info['time']}")
    t.same("long", r)
    r = t.linux("short", "--idle-limit", "100", append="quiet", input=script, code=HALTED)
    t.lacks(r.text, "^still here$")
    # As many instructions as the boot and that time took.
    t.linux("none", "--idle-limit", "0", "--max-insns", info["position"], append="quiet")
    t.check(t.info("none")["time"] > 4000e9, "the limit was not switched off")


@test("session/questions", cost=3)
def questions(t):
    """A replay on a terminal leaves out what the terminal would answer into the user's shell."""
    r = t.linux("rec", append="quiet", script="printf 'a\\033[6nb\\033[1mc\\033[0c\\033Zd\\n'")
    t.has(r.text, "a\x1b\\[6nb\x1b\\[1mc\x1b\\[0c\x1bZd")
    s = Session(t, "", argv=[t.reprise, "replay", t.dir / "rec"], terminal=True)
    s.finish(FINE)
    t.has(s.out.decode(), "ab\x1b\\[1mcd")


@test("session/stalled-reader", cost=3)
def stalled_reader(t):
    """Whoever reads the console stops reading: a signal still ends the recording."""
    child = t.start([t.reprise, "record", "-o", t.dir / "rec", "--memory", "16M", "--kernel",
                     IMAGES / "tiny" / "spin.elf"])
    fcntl.fcntl(child.stdout, fcntl.F_SETPIPE_SZ, 4096)
    time.sleep(1.5)
    child.send_signal(signal.SIGTERM)
    child.wait(10 * t.slow)
    out, err = child.communicate()
    t.show(child.returncode, out, err)
    t.equal(child.returncode, FINE, "the exit code")
    t.has(err.decode(), "its reader does not read")
    t.check(t.replay("rec").out.startswith(out), "the replay's console")
