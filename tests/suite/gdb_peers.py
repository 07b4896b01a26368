"""Who speaks to the gdbstub: where it listens, who interrupts it, who sends rubbish, and recordings that are damaged."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time

from suite.gdb import PRELUDE, RIP, Client, Server, addresses, connect, gdb, go, linux, marked, need_gdb, positions
from suite.harness import DAMAGE, ERROR, IMAGES, USAGE, test


@test("gdb/endpoints", cost=6)
def endpoints(t):
    """Pipe, TCP, unix socket, `reprise gdb`; detach and attach again; two sessions at once."""
    need_gdb(t)
    _, names = linux(t)
    there = go(t, "console:beta")
    at = there["position"]
    rip = f"{int(there['rip'], 16):x}"
    here = 'printf "pc %lx\\n", $pc\nwhen\n'
    for endpoint in ("127.0.0.1:0", "localhost:0", f"unix:{t.dir}/socket", "0"):
        server = Server(t, "rec", "--to", "console:beta", endpoint=endpoint)
        text = gdb(t, here + "stepi 3\nwhen\ndetach\n", target=server.address)
        t.equal((marked(text, "pc"), positions(text)), ([rip], [at, at + 3]), endpoint)
        server.says("gdb has left at position")
        text = gdb(t, "when\nreverse-stepi 3\n" + here + "disconnect\n", target=server.address)
        t.equal((marked(text, "pc"), positions(text)), ([rip], [at + 3, at]), endpoint + " again")
        other = Server(t, "rec", "--to", "5")
        text = gdb(t, "when\n", target=other.address) + gdb(t, "when\n", target=server.address)
        t.equal(positions(text), [5, at], "two sessions on one recording")
        other.end()
        if endpoint != "0":
            server.end()
            t.check(not (t.dir / "socket").exists(), "the socket is left")
        else:
            text = gdb(t, "kill\n", target=server.address)
            server.ended()
    text = gdb(t, here, options=("--to", "console:beta"))
    t.equal((marked(text, "pc"), positions(text)), ([rip], [at]), "through a pipe")
    (t.dir / "tmp").mkdir()
    r = t.run(t.reprise, "gdb", t.dir / "rec", "--to", "console:beta", "--", "-nx", "-batch", "-ex",
              "monitor when", "-ex", "info symbol $pc", "-ex", "reverse-finish", "-ex", "p/x $pc",
              "-ex", f"info line *{names['kernel_init']:#x}", env={"TMPDIR": t.dir / "tmp"},
              stderr=subprocess.STDOUT)
    t.equal(positions(r.text), [at], "reprise gdb")
    t.has(r.text, r"^io_serial_out \+ \d+ in section")
    t.equal(list((t.dir / "tmp").iterdir()), [], "what is left in TMPDIR")
    r = t.run(t.reprise, "gdb", t.dir / "rec", "--program", "no-such-gdb", code=ERROR)
    t.has(r.error, "cannot start no-such-gdb: No such file.*is gdb installed")
    r = t.run(t.reprise, "gdb", t.dir / "rec", "--symbols", "nothing", code=ERROR)
    t.has(r.error, "^reprise: --symbols nothing: No such file")
    t.run(t.reprise, "gdb", t.dir / "rec", "extra", code=USAGE)


@test("gdb/bad-endpoints", cost=2)
def bad_endpoints(t):
    """Where one cannot listen: one line that says why; what is there stays."""
    t.tiny("rec", "paging")
    (t.dir / "file").write_text("mine")
    taken = socket.create_server(("127.0.0.1", 0))
    port = taken.getsockname()[1]
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(t.dir / "taken"))
    listening.listen()
    for endpoint, why in ((f"127.0.0.1:{port}", "in use"), (f"{port}", "in use"),
                          (f"unix:{t.dir}/file", "file"), (f"unix:{t.dir}", ""),
                          (f"unix:{t.dir}/taken", "in use|listens"),
                          (f"unix:{t.dir}/no/such", "No such file"), ("unix:", ""),
                          ("unix:" + "x" * 300, "long"), ("frob", ""), (":99999", ""),
                          ("127.0.0.1:x", ""), ("no.such.host.invalid:5", ""), ("[::1:5", ""),
                          ("127.0.0.1:-1", "")):
        r = t.run(t.reprise, "replay", f"--gdb={endpoint}", t.dir / "rec", code=(ERROR, USAGE),
                  timeout=30)
        t.has(r.error, "^reprise.*" + why, f"the message for {endpoint[:40]}")
    t.equal((t.dir / "file").read_text(), "mine", "the user's file")
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(t.dir / "stale"))
    stale.close()
    Server(t, "rec", endpoint=f"unix:{t.dir}/stale").end()
    r = t.run(t.reprise, "replay", "--gdb", "-", t.dir / "rec")  # stdin has ended
    t.equal(r.out, b"", "what was sent to nobody")


def endless(t, c):
    """A run that would take for ever: a breakpoint in the guest's loop whose condition is false."""
    c.monitor("goto 1M")
    loop = c.register(RIP)
    # The agent's bytecode: const8 0, end.
    t.equal(c.command(f"Z0,{loop:x},1;X3,220027"), "OK", "the conditional breakpoint")
    return loop


@test("gdb/interrupt", cost=5)
def interrupt(t):
    """Ctrl-C in the middle of a run, forwards and backwards; gdb killed there; others wait."""
    t.tiny("rec", "spin", "--max-insns", 400000000)
    server = Server(t, "rec", "--to", "0")
    c = Client(t, server=server)
    loop = endless(t, c)
    start = c.position()
    began = time.monotonic()
    c.send("c")
    time.sleep(0.5)
    busy = socket.create_connection(c.sock.getpeername())
    c.sock.sendall(b"\x03")
    t.has(c.receive(), "^T02")
    t.check(time.monotonic() - began < 5 * t.slow, "the interrupt took long")
    at = c.position()
    t.check(start < at < 400000000, f"interrupted at {at}")
    busy.settimeout(10)
    t.check(busy.recv(100) is not None, "the second gdb was left in the dark")
    busy.close()
    c.send("bc")
    time.sleep(0.3)
    c.sock.sendall(b"\x03")
    stop = c.receive()
    while stop.startswith("O"):
        stop = c.receive()
    back = c.position()
    t.check(stop.startswith("T02") and back <= at, f"backwards: {stop}, from {at} to {back}")
    c.monitor(f"goto {at}")
    # It vanishes during a run.
    c.send("c")
    time.sleep(0.3)
    c.sock.close()
    server.says("gdb has left at position", 10)
    c = Client(t, server=server)
    where = c.position()
    t.check(at <= where < 400000000, f"left at {where}")
    c.run("s")
    t.equal(c.position(), where + 1, "a step after attaching again")
    c.sock.close()
    if shutil.which("gdb"):
        (t.dir / "kill.gdb").write_text(PRELUDE + f"target remote {server.address}\nbreak *{loop:#x} "
                                        "if $rip == 0\nset breakpoint condition-evaluation target\n"
                                        "echo running\\n\ncontinue\n")
        child = t.start(["gdb", "-nx", "-batch", "-x", t.dir / "kill.gdb"])
        while b"running" not in child.stdout.readline():
            t.check(child.poll() is None, "gdb ended")
        time.sleep(0.5)
        child.kill()
        child.communicate()
        text = gdb(t, "when\nstepi\nwhen\n", target=server.address)
        first, second = positions(text)
        t.equal(second, first + 1, "the position after gdb was killed")
    # SIGTERM ends a session that runs.
    c = Client(t, server=server)
    t.equal(c.command(f"Z0,{loop:x},1;X3,220027"), "OK", "the conditional breakpoint")
    c.send("c")
    time.sleep(0.2)
    server.child.send_signal(signal.SIGTERM)
    server.child.wait(10 * t.slow)
    c.sock.close()


@test("gdb/interrupt-search", cost=6)
def interrupt_search(t):
    """A search backwards that takes long says how far it is; Ctrl-C ends it at the oldest place down
    to which nothing was found, from where it can go on."""
    t.tiny("rec", "spin", "--max-insns", 400000000)
    with Client(t, "rec", "--to", "1M") as c:
        endless(t, c)
        c.monitor("goto 390M")
        last = 390000000
        for turn in range(2):
            c.send("bc")
            said = ""
            while not (found := re.findall(r"^searching backwards: (\d+)%\n", said)):
                reply = c.receive()
                t.check(reply.startswith("O"), f"it ended with {reply}")
                said += bytes.fromhex(reply[1:]).decode()
            c.sock.sendall(b"\x03")
            stop, said = c.stopped()
            t.has(stop, "^T02")
            t.has(said, r"^Interrupted: nothing was hit from there back to here, \d+% of the way")
            at = c.position()
            t.check(0 < at < last, f"turn {turn}: from {last} to {at}")
            t.check(0 <= int(found[0]) < 100, f"{found[0]}%")
            last = at
        # What it skipped is right: the next hit back from here is found as from anywhere.
        loop = c.register(RIP)
        c.command(f"z0,{loop:x},1")
        c.point(0, loop, 1)
        c.run("bc")
        t.check(at - 100 < c.position() < at, f"the hit before {at} is at {c.position()}")


@test("gdb/garbage", cost=4)
def garbage(t):
    """Whatever comes in: an answer or a closed connection, and the next gdb is served."""
    t.tiny("rec", "paging")
    server = Server(t, "rec", "--to", "5000")
    for data in (b"GET / HTTP/1.0\r\n\r\n", b"\x00" * 5000, b"$" * 5000, b"#" * 5000, b"\x03" * 50,
                 b"$m0,ffffffffffffffff#%02x" % (sum(b"m0,ffffffffffffffff") & 255),
                 b"$" + b"a" * 200000 + b"#00", os.urandom(50000), b"+-+-+-" * 100, b"$g#00" * 100,
                 b"$vCont;c:ffff#ee", b"$Z9,0,0#aa", b"$qSupported:" + b"x" * 9000 + b"#00"):
        s = connect(server.address)
        try:
            s.sendall(data)
            s.settimeout(0.1)
            s.recv(100)
        except OSError:
            pass
        s.close()
    with Client(t, server=server) as c:
        for text in ("", "m", "m,", "m0", "m0,0", "mfffffffffffffff0,20", "M0,4:zz", "M0,4:00",
                     "Z0", "Z0,0", "Z7,0,1", "Z2,0,ffffffffffffffff", "z0,1234,1", "P", "P0", "Pffff=0",
                     "p", "pffff", "qRcmd,", "qRcmd,zz", "qXfer:features:read:nothing:0,10",
                     "qXfer:features:read:target.xml:ffffffffffff,10", "vCont", "vCont;x", "H", "Hg-9",
                     "X0,4:", "G00", "!", "R00", "vRun;00", "vAttach;1", "QPassSignals:", "T5"):
            reply = c.command(text)
            while reply.startswith("O") and reply != "OK":
                reply = c.receive()
        t.has(c.monitor("frob"), "There is no command of this name; `monitor help` lists them")
        for text in ("goto", "goto noon", "goto 99G", "phys", "phys zz", "phys 0 0",
                     "phys 0xffffffffffff 4", "mark", "console -1", "back", "goto console:zz"):
            c.monitor(text)
        t.equal(c.position() if "branch" not in c.monitor("when") else 5000, 5000, "the position")
    server.end()
    t.replay("rec")


@test("gdb/physical", cost=3)
def physical(t):
    """Guest-physical memory: by monitor, by QEMU's packet, by --mem: the same bytes."""
    _, names = linux(t)
    banner = names["linux_banner"]
    want = go(t, "end-1000", "--mem", f"phys:{banner & 0x7fffffff:#x},16", "--mem",
              f"{banner:#x},16")["memory"]
    t.equal(want[0]["bytes"], want[1]["bytes"], "the two of --mem")
    text = gdb(t, f"""x/16xb {banner:#x}
monitor phys {banner & 0x7fffffff:#x} 16
maintenance packet Qqemu.PhyMemMode:1
maintenance flush dcache
x/16xb {banner & 0x7fffffff:#x}
maintenance packet Qqemu.PhyMemMode:0
maintenance flush dcache
x/16xb {banner:#x}
monitor phys 0xfffffff0 4
""", options=("--to", "end-1000"), file="rec.elf")
    shown = ["".join(x) for x in re.findall(r":((?:\t0x[0-9a-f]{2}){8})$", text, re.M)]
    shown = [re.sub(r"\s*0x", "", x) for x in shown]
    t.equal(shown, 3 * [want[0]["bytes"][:16], want[0]["bytes"][16:]], "the bytes in gdb")
    row = re.search(r"^0{8}[0-9a-f]{8}  (.{48})  ", text, re.M).group(1)
    t.equal(row.replace(" ", ""), want[0]["bytes"], "monitor phys")
    t.has(text, "error: there is no memory at physical address 0xfffffff0 here")


@test("gdb/damaged", cost=3)
def damaged(t):
    """A recording that was cut off: gdb runs to where it ends and back."""
    t.tiny("rec", "spin", "--max-insns", 800000000)
    names = addresses(t, IMAGES / "tiny" / "spin.elf")
    path = t.dir / "rec" / "log"
    os.truncate(path, path.stat().st_size * 2 // 3)
    end = t.run(t.reprise, "replay", "--to", "end", "--json", t.dir / "rec", code=DAMAGE)
    at = json.loads(end.out)["position"]
    with Client(t, "rec", "--to", "0") as c:
        stop = c.run()
        t.has(stop, "^T05.*replaylog:end")
        t.equal(c.position(), at, "where it ends")
        t.has(c.monitor("when"), "^end +.*(cut|damage|end)")
        c.point(0, names["guest_main"], 1)
        c.run("bc")
        t.equal(c.register(RIP), names["guest_main"], "backwards from there")
