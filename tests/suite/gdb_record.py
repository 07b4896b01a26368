"""gdb on a machine that is being recorded: it looks and steps, and leaves no trace in the log."""
import re
import select
import signal
import subprocess
import time

from suite.boot import image
from suite.gdb import RIP, Client, Server, addresses, gdb, marked, positions
from suite.harness import FINE, IMAGES, USAGE, Session, test

SCRIPT = "echo alpha; cat /proc/uptime; echo beta\n"


def command(t, name, *options, append="", guest=None):
    """The arguments of `reprise record` for a Linux, or a tiny guest."""
    argv = [t.reprise, "record", "-o", t.dir / name, "--seed", "7", "--no-realtime", *options]
    if guest:
        return argv + ["--memory", "16M", "--kernel", IMAGES / "tiny" / (guest + ".elf")]
    image(t)
    (t.dir / "script.sh").write_text(SCRIPT)
    where = IMAGES / "linux"
    return argv + ["--memory", "256M", "--kernel", where / "vmlinuz", "--initrd", where / "initrd",
                   "--add", f"{t.dir}/script.sh:/script.sh", "--append",
                   (append + " quiet reprise.script=/script.sh").strip()]


def recorder(t, name, *options, endpoint="127.0.0.1:0", mute=False, **more):
    """mute: nobody reads the console, which would stop the machine in time."""
    return Server(t, name, argv=command(t, name, f"--gdb={endpoint}", *options, **more),
                  stdout=subprocess.DEVNULL if mute else subprocess.PIPE)


def same_end(t, name, other="plain"):
    """A recording under gdb ends as the one without, down to every digest; both replay. (All but
    the RTC's, which began at another date.)"""
    t.replay(name)
    ends = []
    for events in (t.events(name), t.events(other)):
        names = events[0]["components"].split(",")
        end = events[-1]
        t.equal(end["type"], "end", "the last record")
        components = dict(zip(names, end["components"]))
        t.check(components.pop("rtc"), "there is no RTC")
        ends.append((end["position"], end["time"], end["reason"], end["ram"], end["console"],
                     components))
    t.equal(ends[0], ends[1], "the end with gdb")


@test("gdb/record", cost=6)
def record(t):
    """Break, step, watch, interrupt and detach while Linux is recorded: the same recording."""
    plain = t.run(*command(t, "plain"))
    t.run(t.reprise, "symbols", t.dir / "plain", "-o", t.dir / "plain.elf")
    names = addresses(t, t.dir / "plain.elf")
    server = recorder(t, "rec", "--gdb-wait")
    t.check(not select.select([server.child.stdout], [], [], 0.3)[0], "the machine did not wait")
    out = gdb(t, """monitor when
hbreak kernel_init
continue
printf "init %lx\\n", $pc
monitor when
stepi
stepi
monitor when
monitor mark first
watch *(int*)&system_state
continue
printf "state %d\\n", *(int*)&system_state
delete
break kernel_power_off if $rip != 0
continue
printf "off %lx\\n", $pc
info registers
x/4i $pc
x/s &linux_banner
monitor phys 0 16
set $rax = 5
""", file="plain.elf", target=server.address, code=None)
    server.ended()
    at = positions(out)
    t.equal(at[0], 0, "where the machine waited")
    t.equal(marked(out, "init"), [f"{names['kernel_init']:x}"], "the first stop")
    t.equal(at[2], at[1] + 2, "the position after two steps")
    t.check(int(marked(out, "state")[0]) >= 1, "the watchpoint")
    t.equal(marked(out, "off"), [f"{names['kernel_power_off']:x}"], "the last stop")
    t.has(out, "mark:first is position")
    t.has(out, "(?s)is being recorded.*Could not write register|Could not write register.*recorded")
    # The date differs, and with it a few instructions at the boot.
    times = lambda text: re.sub(rb"\[ *\d+\.\d+\]|^\d+\.\d+ \d+\.\d+", b"", text, flags=re.M)
    t.equal(times(server.child.stdout.read()), times(plain.out), "the console")
    r = t.run(t.reprise, "replay", "--to", "mark:first", t.dir / "rec")
    t.equal(positions(r.text), [at[2]], "mark:first")
    t.replay("rec")
    kinds = [e["type"] for e in t.events("rec") if e["type"] not in ("progress", "mark")]
    t.equal(kinds, [e["type"] for e in t.events("plain") if e["type"] != "progress"], "the events")


@test("gdb/record-stops", cost=4)
def stops(t):
    """Hundreds of stops and steps, and writes that are refused: the log does not know them."""
    t.run(*command(t, "plain", guest="timers"))
    names = addresses(t, IMAGES / "tiny" / "timers.elf")
    server = recorder(t, "rec", "--gdb-wait", guest="timers", endpoint=f"unix:{t.dir}/gdb")
    c = Client(t, server=server)
    t.equal(c.position(), 0, "where the machine waited")
    registers = c.command("g")
    for text in ("P0=1122334455667788", f"M{names['ticks']:x},4:01000000"):
        c.send(text)
        said, reply = "", c.receive()
        while reply.startswith("O") and reply != "OK":
            said, reply = said + bytes.fromhex(reply[1:]).decode(), c.receive()
        t.has(said + reply, r"is being recorded", f"the reply to {text[:8]}")
    t.equal(c.command("g"), registers, "the registers")
    c.point(1, names["on_tick"], 1)
    c.point(2, names["ticks"], 8)
    hits = {"break": 0, "watch": 0}
    for _ in range(400):
        stop = c.onward()
        if stop[0] in "WX":
            break
        hits["watch" if "watch" in stop else "break"] += 1
        if c.register(RIP) == names["on_tick"]:
            at = c.position()
            for k in range(1, 30):
                c.run("s")
                t.equal(c.position(), at + k, "a step")
    t.check(stop.startswith("W00"), f"the end: {stop}")
    t.check(hits["break"] >= 14, f"{hits}")
    c.sock.close()
    server.ended()
    same_end(t, "rec")
    return str(hits)


@test("gdb/record-interrupt", cost=6)
def interrupt(t):
    """Interrupted, left and attached to again while it runs; nobody at all; the same recording."""
    limit = ("--max-insns", "4000000000")
    t.run(*command(t, "plain", *limit, guest="spin"))
    for wait in ((), ("--gdb-wait",)):
        server = recorder(t, "rec", "--force", *limit, *wait, guest="spin", mute=True)
        last = -1
        for turn in range(3):
            c = Client(t, server=server)
            at = c.position()
            t.check(at >= last, f"the machine went back from {last} to {at}")
            c.send("c")
            time.sleep(0.05)
            c.sock.sendall(b"\x03")
            t.has(c.receive(), "^T02")
            last = c.position()
            t.check(at < last < 4000000000, f"interrupted at {last}, from {at}")
            if turn == 0:
                t.equal(c.command("D"), "OK", "the reply to detach")
            elif turn == 1:
                c.send("c")  # it vanishes while the machine runs
                time.sleep(0.05)
            else:
                t.check(c.run("s").startswith("T05"), "a step")
                t.equal(c.position(), last + 1, "the position after a step")
                t.check(c.run().startswith(("W", "X")), "the end")
            c.sock.close()
            time.sleep(0.05)
        server.ended()
        same_end(t, "rec")
    # Nobody attaches.
    server = recorder(t, "rec", "--force", *limit, guest="spin", mute=True)
    server.ended()
    same_end(t, "rec")


@test("gdb/record-typed", cost=6)
def typed(t):
    """Somebody types at the console of a machine that is stopped now and then."""
    image(t)
    s = Session(t, "rec", "--memory", "256M", f"--gdb=unix:{t.dir}/gdb", append="quiet")
    s.prompt()
    server = type("Address", (), {"address": f"{t.dir}/gdb"})
    c = Client(t, server=server)
    t.has(s.t and c.monitor("when"), "^position")
    s.send("echo $((6*7)); sleep 0.2; echo done\n")
    time.sleep(0.3)
    t.lacks(s.out.decode("utf-8", "replace"), "^42", "the console of a stopped machine")
    for _ in range(20):
        c.run("s")
    t.equal(c.command("D"), "OK", "the reply to detach")
    s.wait("done\r\n", start=len(s.out))
    c = Client(t, server=server)
    c.send("c")
    s.send("echo and $((7*7))\n")
    s.wait("\nand 49\r\n")
    c.sock.sendall(b"\x03")
    t.has(c.receive(), "^T02")
    c.sock.close()
    s.send("poweroff -f\n")
    s.finish()
    t.equal(t.replay("rec").out, s.out, "the console of the replay")
    info = t.info("rec")
    t.equal((info["end"], info["state"]), ("poweroff", "complete"), "the end")


@test("gdb/record-kill", cost=3)
def kill(t):
    """gdb's kill, and a signal while it is stopped, end the recording cleanly."""
    for how in ("kill", "term", "gone"):
        server = recorder(t, "rec", "--force", "--gdb-wait", guest="spin")
        c = Client(t, server=server)
        names = addresses(t, IMAGES / "tiny" / "spin.elf")
        c.point(1, names["guest_main"], 1)
        t.has(c.run(), "^T05")
        at = c.position()
        if how == "kill":
            c.send("k")
        elif how == "term":
            server.child.send_signal(signal.SIGTERM)
        else:
            c.sock.close()
            time.sleep(0.3)  # it goes on by itself
            server.child.send_signal(signal.SIGINT)
        server.ended(FINE)
        c.sock.close()
        info = t.info("rec")
        t.equal((info["end"], info["state"]), ("quit", "complete"), f"the end by {how}")
        t.check(info["position"] >= at, f"{how}: at {at}, ended at {info['position']}")
        t.replay("rec")


@test("gdb/record-usage")
def usage(t):
    """--gdb where it cannot be; nothing is left of a recording that could not start."""
    (t.dir / "file").write_text("mine")
    for options, code in ((["--gdb=-"], USAGE), (["--gdb-wait"], USAGE), (["--gdb=frob"], (1, 2)),
                          ([f"--gdb=unix:{t.dir}/file"], 1), (["--gdb=127.0.0.1:99999"], (1, 2))):
        r = t.run(*command(t, "rec", *options, guest="spin"), code=code, timeout=20)
        t.has(r.error, "^reprise")
        t.check(not (t.dir / "rec").exists(), "a recording was left")
    t.equal((t.dir / "file").read_text(), "mine", "the user's file")
    server = recorder(t, "rec", "--gdb-wait", guest="paging")
    try:
        server.child.wait(0.7)
    except subprocess.TimeoutExpired:
        pass
    t.check(server.child.poll() is None, "it did not wait")
    server.end(FINE)
    t.equal(t.info("rec")["position"], 0, "the position of the end")
    t.replay("rec")
