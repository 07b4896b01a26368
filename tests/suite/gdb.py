"""gdb on a recording: the real one by scripts, forwards and backwards; and its protocol, raw."""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import threading
import time

from suite.boot import image
from suite.harness import FINE, IMAGES, Failure, test

PRELUDE = """set pagination off
set confirm off
set width 0
set debuginfod enabled off
set remotetimeout 60
set python print-stack full
define when
monitor when
end
"""
# What gdb says at the first position: 13, 16.
BEGINNING = "No more reverse-execution history|Backward execution from here not possible"
SCRIPT = "echo alpha; sleep 1; echo beta; sleep 1; echo alpha\n"


# Helpers


class Server:
    """`reprise replay DIR --gdb ENDPOINT`, waiting."""

    def __init__(self, t, name, *options, endpoint="127.0.0.1:0", argv=None, **more):
        self.t, self.err = t, b""
        self.child = t.start(argv or [t.reprise, "replay", "--gdb", endpoint, *options,
                                      t.dir / name], **more)
        self.lock = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()
        self.address = self.says(r"in gdb: target remote (\S+)")

    def read(self):
        while data := os.read(self.child.stderr.fileno(), 65536):
            with self.lock:
                self.err += data
                self.lock.notify_all()

    def says(self, pattern, seconds=30):
        """Waits until stderr has a match; returns its first group."""
        limit = time.monotonic() + seconds * self.t.slow
        with self.lock:
            while not (found := re.search(pattern, self.err.decode("utf-8", "replace"))):
                if time.monotonic() > limit or not self.lock.wait(0.1) and \
                        self.child.poll() is not None:
                    raise Failure(f"the server never said /{pattern}/, but {self.err[-2000:]!r}")
        return found.group(1) if found.groups() else found.group(0)

    def end(self, code=FINE):
        self.child.send_signal(signal.SIGINT)
        self.ended(code)

    def ended(self, code=FINE):
        self.child.wait(20 * self.t.slow)
        self.t.show(self.child.returncode, b"", self.err)
        self.t.equal(self.child.returncode, code, "the server's exit code")


def connect(address):
    if address.startswith("/"):
        s = socket.socket(socket.AF_UNIX)
        s.connect(address)
    else:
        host, _, port = address.rpartition(":")
        s = socket.create_connection((host, int(port)))
    s.settimeout(60)
    return s


class Client:
    """The protocol without gdb. As a context it has a server of its own."""

    def __init__(self, t, name=None, *options, server=None):
        self.own = None if server else Server(t, name, *options, endpoint=f"unix:{t.dir}/.gdb")
        self.t, self.data = t, b""
        address = (server or self.own).address
        for _ in range(40):
            self.sock = connect(address)
            if self.command("QStartNoAckMode") == "OK":
                break
            self.sock.close()  # the server has not seen yet that the last one is gone
            self.data = b""
            time.sleep(0.05)
        self.sock.sendall(b"+")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()
        if self.own:
            self.own.end()

    def send(self, text):
        body = text if isinstance(text, bytes) else text.encode("latin-1")
        self.sock.sendall(b"$%s#%02x" % (body, sum(body) & 255))

    def receive(self):
        """One packet's contents."""
        while not (found := re.search(rb"\$([^#]*)#[0-9a-f]{2}", self.data)):
            more = self.sock.recv(65536)
            if not more:
                raise Failure("the server closed the connection")
            self.data += more
        self.data = self.data[found.end():]
        text = found.group(1).decode("latin-1")
        return re.sub(r"(.)\*(.)", lambda m: m.group(1) * (ord(m.group(2)) - 28), text)

    def command(self, text):
        self.send(text)
        return self.receive()

    def monitor(self, text):
        """`monitor TEXT`: what it prints."""
        reply, out = self.command("qRcmd," + text.encode().hex()), ""
        while reply.startswith("O") and reply != "OK":
            out += bytes.fromhex(reply[1:]).decode("utf-8", "replace")
            reply = self.receive()
        if reply not in ("OK", ""):
            try:
                out += bytes.fromhex(reply).decode("utf-8", "replace")
            except ValueError:
                out += reply
        return out

    def run(self, how="c"):
        """Resumes (c, s, bc, bs); the stop reply, without texts for the user."""
        self.send(how)
        return self.stopped()[0]

    def stopped(self):
        """What ends a run, and the texts for the user before it."""
        said, reply = "", self.receive()
        while reply.startswith("O"):
            said += bytes.fromhex(reply[1:]).decode("utf-8", "replace")
            reply = self.receive()
        return reply, said

    def onward(self):
        """Continues from a breakpoint, as gdb does: a step over it first."""
        reply = self.run("s")
        return reply if "watch" in reply or "replaylog" in reply else self.run()

    def position(self):
        return int(re.search(r"position +(\d+)", self.monitor("when")).group(1))

    def register(self, number):
        return int.from_bytes(bytes.fromhex(self.command(f"p{number:x}")), "little")

    def memory(self, address, length):
        return bytes.fromhex(self.command(f"m{address:x},{length:x}"))

    def point(self, kind, address, length, insert=True):
        reply = self.command(f"{'Z' if insert else 'z'}{kind},{address:x},{length:x}")
        self.t.equal(reply, "OK", f"the reply to {'Z' if insert else 'z'}{kind} at {address:#x}")


RIP = 16


def addresses(t, path):
    """Symbols of an ELF file."""
    rows = t.run("nm", path).text
    return {n: int(a, 16) for a, n in re.findall(r"^([0-9a-f]{16}) \w (\S+)$", rows, re.M)}


def need_gdb(t):
    if not shutil.which("gdb"):
        t.skip("gdb is not installed")


def linux(t, name="rec", script=SCRIPT, **more):
    """A recorded Linux, and its symbols as a file and a dictionary."""
    image(t)
    r = t.linux(name, "--memory", "256M", append="quiet", script=script, **more)
    t.run(t.reprise, "symbols", t.dir / name, "-o", t.dir / (name + ".elf"))
    return r, addresses(t, t.dir / (name + ".elf"))


def gdb(t, lines, target=None, file=None, options=(), name="rec", code=0, timeout=60):
    """Runs real gdb over a script; what it and the recording's server said."""
    need_gdb(t)
    target = target or f"| {t.reprise} replay --gdb - {' '.join(options)} {t.dir / name}"
    text = PRELUDE + (f"file {file}\n" if file else "") + f"target remote {target}\n" + lines
    path = t.dir / f"script{len(list(t.dir.glob('script*.gdb')))}.gdb"
    path.write_text(text)
    t.log.write("--- script\n" + text)
    out = t.run("gdb", "-nx", "-batch", "-x", path, code=code, timeout=timeout,
                stderr=subprocess.STDOUT).text
    t.lacks(out, "Python Exception|[Ii]nternal error|Remote connection closed|Ignoring packet error",
            "gdb's output")
    return out


def marked(text, mark):
    """What `printf "MARK ..."` printed, all of them."""
    return re.findall(rf"^{mark} (.*)$", text, re.M)


def positions(text):
    return [int(x) for x in re.findall(r"^position +(\d+)$", text, re.M)]


def go(t, point, *options, name="rec"):
    return json.loads(t.run(t.reprise, "replay", "--to", point, "--json", *options,
                            t.dir / name).out)


# A recorded Linux


@test("gdb/linux", cost=5)
def on_linux(t):
    """Break by name, find the write that changed a variable, step back and forth over it."""
    _, names = linux(t)
    out = gdb(t, """break kernel_init
hbreak kernel_power_off
continue
printf "init %lx\\n", $pc
when
bt 2
stepi 5
printf "five %lx\\n", $pc
when
reverse-stepi 5
printf "again %lx\\n", $pc
when
watch *(int*)&system_state
reverse-continue
printf "before %lx %d\\n", $pc, *(int*)&system_state
when
stepi
printf "after %lx %d\\n", $pc, *(int*)&system_state
delete 3
continue
continue
printf "off %lx\\n", $pc
watch *(int*)&system_state
reverse-continue
printf "running %d\\n", *(int*)&system_state
stepi
printf "and then %d\\n", *(int*)&system_state
""", file="rec.elf", options=("--to", "insn:1000"))
    init = names["kernel_init"]
    t.equal(marked(out, "init"), [f"{init:x}"], "the first stop")
    t.equal(marked(out, "again"), [f"{init:x}"], "five steps and five back")
    t.has(out, r"^#0 .* in kernel_init \(\)\n#1 .* in ret_from_fork", "the backtrace")
    at = positions(out)
    t.equal((at[1], at[2]), (at[0] + 5, at[0]), "the positions")
    before, after = marked(out, "before")[0].split(), marked(out, "after")[0].split()
    t.equal((before[1], after[1]), ("0", "1"), "system_state around the write")
    t.check(names["rest_init"] <= int(before[0], 16) < names["rest_init"] + 1000 and at[3] < at[0],
            f"the write was found at {before[0]}, position {at[3]}")
    t.equal(marked(out, "off"), [f"{names['kernel_power_off']:x}"], "the last stop")
    now, then = int(marked(out, "running")[0]), int(marked(out, "and then")[0])
    t.check(now != then, f"system_state stayed {now}")
    # The same write, by the trace.
    line = json.loads(t.run(t.reprise, "trace", "--json", "--from", at[3], "--to", at[3],
                            t.dir / "rec").out)
    t.equal(line["rip"], before[0], "the instruction in the trace")
    t.has(line["text"], r"^mov dword ptr")


@test("gdb/linux-functions", cost=4)
def functions(t):
    """finish and reverse-finish, up the stack and back to the call."""
    _, names = linux(t)
    out = gdb(t, """break run_init_process
continue
when
finish
printf "returned %lx\\n", $pc
reverse-stepi
printf "ret %lx\\n", $pc
reverse-continue
printf "entry %lx\\n", $pc
when
reverse-finish
printf "call %lx\\n", $pc
when
stepi
printf "entered %lx\\n", $pc
delete
monitor goto console:beta
maintenance flush register-cache
maintenance flush dcache
printf "beta %lx\\n", $pc
monitor console 1
info symbol $pc
reverse-finish
info symbol $pc
stepi
printf "into %lx\\n", $pc
monitor goto end
maintenance flush register-cache
maintenance flush dcache
continue
reverse-continue
printf "begin %lx\\n", $pc
when
""", file="rec.elf", options=("--to", "insn:1000"))
    entry = f"{names['run_init_process']:x}"
    t.equal((marked(out, "entry"), marked(out, "entered")), ([entry], [entry]), "the entry")
    at = positions(out)
    t.equal(at[0], at[1], "the position of the entry, twice")
    t.equal(at[2], at[0] - 1, "the position of the call")
    t.has(out, r"^beta\n", "the console")
    t.has(out, r"^io_serial_out \+ \d+ in section")
    t.equal(marked(out, "into"), [f"{names['io_serial_out']:x}"], "the call of io_serial_out")
    t.has(out, "The recording ends here: the guest powered off")
    t.has(out, BEGINNING)
    t.equal(at[-1], 0, "the position at the beginning")


@test("gdb/linux-condition", cost=8)
def condition(t):
    """A condition evaluated in the stub, forwards and backwards: each 'a' of the console."""
    r, _ = linux(t)
    count = r.out.count(b"a")
    t.check(count > 5, "too few of them")
    out = gdb(t, "set breakpoint condition-evaluation target\n"
              "break io_serial_out if ($rsi & 0xffff) == 0 && ($rdx & 0xff) == 0x61\n"
              "continue\nwhen\ninfo breakpoints\n" + "continue\nwhen\n" * count +
              "echo backwards\\n\n" + "reverse-continue\nwhen\n" * (count + 1),
              file="rec.elf", options=("--to", "insn:1000"))
    t.has(out, r"stop only if .*\(target evals\)", "info breakpoints")
    forwards, _, back = out.partition("backwards\n")
    there, again = positions(forwards), positions(back)
    t.equal(len(set(there)), count + 1, "the stops")
    t.equal(there, sorted(there), "the stops forwards")
    t.equal(again[:count], there[count - 1::-1], "the stops backwards")
    t.equal(again[count], 0, "the last stop backwards")
    # The character is written at once after: OUT is the one that prints it.
    for position in there[:2]:
        shown = go(t, position, "--console")["console"]
        k = shown.count("a") + 1
        printed = go(t, f"console:a#{k}")["position"]
        t.check(position < printed < position + 20, f"{position} is not where it was printed")
    return f"{count} stops each way"


@test("gdb/linux-many", cost=6)
def many(t):
    """20 breakpoints and 10 watchpoints of all kinds: the same stops backwards."""
    _, names = linux(t)
    wanted = ["schedule", "do_exit", "kernel_clone", "wake_up_process", "do_idle", "vfs_read",
              "vfs_write", "ksys_read", "ksys_write", "do_sys_openat2", "path_openat",
              "do_execveat_common", "begin_new_exec", "free_pid", "alloc_pid", "exit_mm",
              "do_mmap", "do_munmap", "kernel_wait4", "kernel_init", "run_init_process",
              "kernel_power_off", "do_group_exit", "path_lookupat", "mmput", "dup_mm"]
    functions = [n for n in wanted if n in names][:20]
    words = [n for n in ("system_state", "total_forks", "nr_threads", "jiffies_64", "panic_timeout",
                         "oops_in_progress", "init_uts_ns", "tainted_mask", "console_printk",
                         "saved_command_line", "rcu_scheduler_active", "loops_per_jiffy")
             if n in names][:10]
    t.equal((len(functions), len(words)), (20, 10), "what the kernel has of them")
    kinds = ("watch", "watch", "awatch", "rwatch")
    steps = 40
    out = gdb(t, "".join(f"break *{names[n]:#x}\n" for n in functions) +
              "".join(f"{kinds[i % 4]} *(char (*)[{(1, 2, 4, 8, 16, 3, 64, 5, 7, 33)[i]}]){names[n]:#x}\n"
                      for i, n in enumerate(words) if n != "jiffies_64") +
              f"watch *(long*){names['jiffies_64']:#x} if *(long*){names['jiffies_64']:#x} % 16 == 0\n" +
              "info breakpoints\n" + "continue\nwhen\n" * steps + "echo backwards\\n\n" +
              "reverse-continue\nwhen\n" * steps,
              file="rec.elf", options=("--to", "time:90ms"))
    forwards, _, back = out.partition("backwards\n")
    there, again = positions(forwards), positions(back)
    t.equal(there, sorted(there), "the stops forwards")
    # A data access is after the instruction forwards, in front of it backwards.
    t.check(len(there) == steps == len(again), f"{len(there)} and {len(again)} stops")
    want = there[steps - 2::-1]
    near = sum(any(abs(a - b) <= 1 for b in want) for a in again[:steps - 1])
    t.check(near >= steps - 3, f"only {near} of {steps} stops are the same backwards")
    return f"{near} of {steps} the same"


@test("gdb/linux-lines", cost=6)
def lines(t):
    """Source lines of a program in the guest: step, next, and both backwards; values known."""
    need_gdb(t)
    image(t)
    program = IMAGES / "guest" / "lines"
    r = t.linux("rec", "--memory", "256M", "--add", f"{program}:/bin/lines", append="quiet",
                script="lines\n")
    t.has(r.text, "^lines 174 174$")
    source = (program.parents[3] / "tests" / "guest" / "lines.c").read_text().splitlines()
    line = {n: 1 + next(i for i, x in enumerate(source) if x.strip() == n) for n in
            ("a += 2;", "a = square(a);", "a += 4;", "a = square(a) + 5;", "total = a;", "return r;",
             "int r = n * n;")}
    show = 'frame\nprintf "a %d total %d\\n", a, total\n'
    out = gdb(t, "break main\ncontinue\nnext\nnext\n" + show + "next\n" + show + "next\n" + show +
              "reverse-next\n" + show + "reverse-next\n" + show + "next\nnext\nnext\n" + show +
              "reverse-step\nframe\nreverse-step\nframe\nreverse-finish\n" + show +
              "break square if n == 13\ncontinue\nframe\nfinish\nwatch total\nreverse-continue\n"
              "frame\ninfo breakpoints\n", file=program, options=("--to", "insn:1000"))
    found = [(int(a), int(b)) for a, b in re.findall(r"^a (-?\d+) total (\d+)$", out, re.M)]
    t.equal(found, [(1, 0), (3, 0), (9, 9), (3, 0), (1, 0), (13, 9), (3, 0)], "the values")
    at = [int(x) for x in re.findall(r"^#0 .* at .*lines\.c:(\d+)$", out, re.M)]
    t.equal(at[:5], [line[n] for n in ("a += 2;", "a = square(a);", "a += 4;", "a = square(a);",
                                       "a += 2;")], "the lines")
    t.equal(at[5], line["a = square(a) + 5;"], "the line after three times next")
    t.has(out, r"square \(n=13\) at ")
    t.has(out, r"Value returned is \$\d+ = 169")
    t.has(out, r"^Old value = 178\nNew value = 9$")


@test("gdb/linux-heap", cost=8)
def heap(t):
    """A word of the heap goes bad at random and the program crashes later: gdb finds the culprit,
    backwards from the crash."""
    need_gdb(t)
    image(t)
    program = IMAGES / "guest" / "heap"
    names = addresses(t, program)
    ordered = sorted(names.values())
    end_of = lambda n: next(a for a in ordered if a > names[n])
    rounds = set()
    for turn in range(2):
        r = t.linux("rec", "--force", "--memory", "256M", "--add", f"{program}:/bin/heap",
                    script="heap\n")
        said = re.search(r"^corrupt (0x[0-9a-f]+): (\d+), not (\d+), since round (\d+)", r.text, re.M)
        t.check(said, "the program did not notice")
        t.has(r.text, "heap.*: segfault at|general protection.*heap")
        word, bad, good, number = said.group(1), *(int(x) for x in said.groups()[1:])
        rounds.add(number)
        out = gdb(t, f"""watch *(unsigned long *){word}
reverse-continue
printf "culprit %lx %lu\\n", $pc, *(unsigned long *){word}
x/i $pc
printf "wrote %lu\\n", $rsi
when
bt 2
stepi
printf "then %lu\\n", *(unsigned long *){word}
reverse-stepi
reverse-continue
printf "honest %lx\\n", $pc
reverse-finish
info source
""", file=program, options=("--to", "console:segfault"))
        at, value = marked(out, "culprit")[0].split()
        t.check(names["remember"] <= int(at, 16) < end_of("remember"),
                f"found {at}, not in remember at {names['remember']:x}")
        t.equal((int(value), int(marked(out, "then")[0])), (good, bad), "the word around it")
        t.equal(int(marked(out, "wrote")[0]), bad, "what the culprit wrote")
        t.has(out, r"#1 +0x[0-9a-f]+ in main|#1 .* main \(\)", "the backtrace")
        honest = int(marked(out, "honest")[0], 16)
        t.check(names["deposit"] <= honest < end_of("deposit"), f"before that: {honest:x}")
    return f"rounds {sorted(rounds)}"


# Guests where everything is known


def tiny(t, name, **more):
    r = t.tiny("rec", name, **more)
    return r, addresses(t, IMAGES / "tiny" / (name + ".elf"))


@test("gdb/tiny-smc", cost=4)
def smc(t):
    """Code that is rewritten all the time, with breakpoints in it: each call stops, the guest sees
    its own bytes, and the recording agrees to the end."""
    r, names = tiny(t, "smc")
    code = names["code"]
    with Client(t, "rec", "--to", "0") as c:
        entry = names["guest_main"]
        original = c.memory(entry, 16)
        c.point(0, entry, 1)
        c.point(1, entry + 1, 1)
        t.equal(c.memory(entry, 16), original, "the bytes under a breakpoint")
        t.has(c.run(), "^T05.*swbreak|^T05")
        t.equal(c.register(RIP), entry, "where it stopped")
        c.point(0, entry, 1, False)
        c.point(1, entry + 1, 1, False)
        c.point(0, code + 0x100, 1)
        values, at = [], []
        while c.onward() and c.register(RIP) == code + 0x100:
            t.check(len(at) < 5000, "too many stops")
            text = c.memory(code + 0x100, 6)
            t.check(text[0] == 0xb8 and text[5] == 0xc3, f"the code is {text.hex()}")
            values.append(int.from_bytes(text[1:5], "little"))
            at.append(c.position())
        t.equal(values, list(range(2000)) + [3 * i for i in range(2000)], "what was called")
        t.has(c.monitor("when"), "^end +the guest ended with status 0$")
        # Backwards the same.
        for k in range(1, 60):
            c.run("bc")
            t.equal((c.position(), c.register(RIP)), (at[-k], code + 0x100), f"number {k} from the end")
        c.point(0, code + 0x100, 1, False)
        # The store into its own loop is seen, with and without a breakpoint after it.
        c.point(0, code + 0x307, 1)
        c.monitor("goto 0")
        turns = 0
        while c.onward() and c.register(RIP) == code + 0x307:
            turns += 1
            t.check(turns < 100, "no end")
        t.equal(turns, 10, "the turns of the loop")
        t.has(c.monitor("when"), "status 0$")
    t.lacks(r.text, "^FAIL")
    t.same("rec", r)


@test("gdb/tiny-watch", cost=4)
def watch(t):
    """Watchpoints of 1 to 64 bytes around one write that is known; what lies beside does not count."""
    _, names = tiny(t, "smc")
    word = names["code"] + 0x100  # first written by `rewritten`, one byte
    with Client(t, "rec", "--to", "0") as c:
        c.point(2, word, 1)
        stop = c.run()
        t.has(stop, f"watch:0*{word:x};", "the stop")
        at, rip = c.position(), c.register(RIP)
        t.equal(c.memory(word, 1), b"\xb8", "the byte after the write")
        c.run("bs")
        t.equal((c.position(), c.memory(word, 1)), (at - 1, b"\0"), "one step before it")
        writer = c.register(RIP)
        c.point(2, word, 1, False)
        for length in range(1, 65):
            for address, hit in ((word, True), (word - length + 1, True), (word - length, False),
                                 (word - length // 2, True)):
                for kind in (2, 4) if length % 8 == 1 else (2,):
                    c.monitor(f"goto {at - 3000 if at > 3000 else 0}")
                    c.point(kind, address, length)
                    c.point(0, rip, 1)  # at the latest
                    stop = c.run()
                    t.equal(c.position(), at, f"the stop with {length} bytes at {address:#x}")
                    t.equal("watch" in stop, hit, f"a hit of {length} bytes at {address:#x}")
                    c.point(0, rip, 1, False)
                    c.point(kind, address, length, False)
        # Read, write and access.
        c.monitor("goto 0")
        c.point(3, word, 1)
        stop = c.run()
        t.check("rwatch" in stop or "W00" in stop or "replaylog" in stop, f"reading: {stop}")
        c.point(3, word, 1, False)
        # Backwards: in front of the instruction.
        c.monitor("goto end")
        c.point(2, word + 1, 4)
        seen = []
        for _ in range(5):
            c.run("bc")
            before = int.from_bytes(c.memory(word + 1, 4), "little")
            c.run("s")
            seen.append((before, int.from_bytes(c.memory(word + 1, 4), "little")))
            c.run("bs")
        t.equal(seen, [(3 * (1998 - i), 3 * (1999 - i)) for i in range(5)], "the last values")
    return f"the write is at position {at - 1}, RIP {writer:x}"


@test("gdb/tiny-rep", cost=2)
def rep(t):
    """Inside a REP instruction: an iteration is a step, both ways, and a place to stop."""
    _, names = tiny(t, "rep")
    with Client(t, "rec", "--to", "0") as c:
        # rep stosq of 1000 words, the last but one in the guest.
        target = names["b"] + 8 * 500
        c.point(2, target, 8)
        c.monitor("goto end")
        while True:
            t.has(c.run("bc"), "^T05.*watch")
            if c.memory(c.register(RIP), 3) == b"\xf3\x48\xab":
                break
        at = c.position()
        t.equal((c.register(2), c.register(5)), (500, target), "RCX and RDI before")
        c.point(2, target, 8, False)
        for k in range(1, 40):
            t.has(c.run("s"), "^T05")
            t.equal((c.position(), c.register(2), c.register(5)), (at + k, 500 - k, target + 8 * k),
                    "after a step")
        t.equal(c.memory(target, 8).hex(), "8877665544332211", "what was stored")
        for k in range(38, -20, -1):
            c.run("bs")
            t.equal((c.position(), c.register(2)), (at + k, 500 - k), "after a step back")
        t.equal(c.memory(target, 8) == bytes.fromhex("8877665544332211"), False, "it is stored")


@test("gdb/tiny-timers", cost=3)
def timers(t):
    """Interrupts while somebody debugs: handlers stop, values are those of the guest, and stepping
    through a delivery and back."""
    r, names = tiny(t, "timers")
    with Client(t, "rec", "--to", "0") as c:
        c.point(1, names["on_tick"], 1)
        ticks, at = [], []
        while c.onward() and c.register(RIP) == names["on_tick"]:
            ticks.append(int.from_bytes(c.memory(names["ticks"], 8), "little"))
            at.append(c.position())
        t.equal(ticks[:12], [0] + list(range(11)), "the values of ticks")
        t.has(c.monitor("when"), "status 0$")
        again = []
        for _ in at:
            c.run("bc")
            again.append(c.position())
        t.equal(again, at[::-1], "the stops backwards")
        c.point(1, names["on_tick"], 1, False)
        # From before an interrupt into its handler, step by step, and all the way back.
        c.monitor(f"goto {at[3] - 30}")
        trail = []
        for _ in range(40):
            trail.append((c.position(), c.register(RIP), c.register(7)))
            c.run("s")
        for there in reversed(trail):
            c.run("bs")
            t.equal((c.position(), c.register(RIP), c.register(7)), there, "a step back")
    t.same("rec", r)
    return f"{len(at)} ticks"


@test("gdb/tiny-debug", cost=2)
def debug(t):
    """A guest that uses the debug registers, INT3 and TF itself, under breakpoints of gdb."""
    r, names = tiny(t, "debug")
    with Client(t, "rec", "--to", "0") as c:
        c.point(0, names["on_db"], 1)
        c.point(2, names["watched"], 32)
        c.point(3, names["hits"], 8)
        stops = {"break": 0, "watch": 0, "rwatch": 0}
        while "replaylog" not in (stop := c.onward()):
            kind = "rwatch" if "rwatch" in stop else "watch" if "watch" in stop else "break"
            stops[kind] += 1
            t.check(sum(stops.values()) < 2000, "no end")
        t.has(c.monitor("when"), "^end +the guest ended with status 0$")
        t.check(stops["break"] >= 20 and stops["watch"] >= 8 and stops["rwatch"] >= 20, f"{stops}")
        c.monitor("goto 0")
        t.equal(c.position(), 0, "the beginning")
    t.lacks(r.text, "^FAIL")
    t.same("rec", r)
    return str(stops)


# What-if


@test("gdb/branch", cost=4)
def branch(t):
    """A write makes a branch: it runs on by itself, and back is the recording as it was."""
    _, names = tiny(t, "smc")
    middle = "insn:200000"
    want = go(t, middle, "--regs", "--mem", f"{names['failures']},4")
    with Client(t, "rec", "--to", middle) as c:
        registers = c.command("g")
        c.command(f"M{names['failures']:x},4:01000000")
        t.has(c.monitor("when"), "^branch +what-if")
        for how in ("bc", "bs"):
            t.check("T05" in c.run(how) and c.position() == 200000, "it went back in a branch")
        t.has(c.monitor("goto 5"), "error: .*branch")
        t.has(c.monitor("checkpoint"), "error: .*branch")
        c.run()
        t.has(c.monitor("when"), "^end +the guest ended with status 1$")
        t.lacks(c.monitor("back"), "branch|error")
        t.equal((c.position(), c.command("g")), (200000, registers), "the place after back")
        t.equal(c.memory(names["failures"], 4), bytes(4), "the word after back")
        c.command("P0=8877665544332211")
        t.equal(c.register(0), 0x1122334455667788, "RAX in the branch")
        c.command(f"P10={names['guest_main'].to_bytes(8, 'little').hex()}")
        c.point(0, names["exit_guest"], 1)
        c.run()
        t.check(c.register(RIP) != names["guest_main"], "it did not run on")
        c.point(0, names["exit_guest"], 1, False)
        c.monitor("back")
        t.equal((c.position(), c.command("g")), (200000, registers), "the place after back again")
        t.has(c.monitor("back"), "error|no")
        c.run()
        t.has(c.monitor("when"), "^end +the guest ended with status 0$")
    t.equal(go(t, middle, "--regs", "--mem", f"{names['failures']},4"), want, "the recording")
    t.replay("rec")


@test("gdb/branch-linux", cost=5)
def branch_linux(t):
    """The same by gdb itself, on Linux: changed on the way, console included, and undone."""
    linux(t)
    before = go(t, "console:beta", "--regs")
    out = gdb(t, """info registers
when
echo change\\n
set $rax = 0x1234
set *(int*)&panic_timeout = 77
p *(int*)&panic_timeout
when
break kernel_power_off
continue
p *(int*)&panic_timeout
monitor console 1
echo changed\\n
monitor back
maintenance flush register-cache
maintenance flush dcache
info registers
when
p *(int*)&panic_timeout
continue
monitor console 3
when
""", file="rec.elf", options=("--to", "console:beta"))
    first, _, rest = out.partition("change\n")
    branch_, _, after = rest.partition("changed\n")
    t.has(branch_, "^branch +what-if")
    t.equal(re.findall(r"^\$\d+ = (-?\d+)$", branch_, re.M), ["77", "77"], "panic_timeout changed")
    t.lacks(after, "^branch")
    rows = lambda s: re.findall(r"^(r\w\w|eflags|cr\d|[fg]s_base) +(0x[0-9a-f]+)", s, re.M)
    t.check(len(rows(first)) > 15, "gdb showed no registers")
    t.equal(rows(after)[:len(rows(first))], rows(first), "the registers after back")
    t.equal(positions(first), positions(after)[-2:-1], "the position after back")
    t.has(after, "^alpha$", "the console at the end")
    t.equal(go(t, "console:beta", "--regs"), before, "the recording")
