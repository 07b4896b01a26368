"""gdb on a program in the guest: steps that stay in it, points that are its own."""
import re
import subprocess

from suite.boot import image
from suite.gdb import BEGINNING, Client, Server, addresses, gdb, go, marked, need_gdb, positions
from suite.gdb_record import same_end
from suite.harness import IMAGES, ROOT, test

PROGRAM = IMAGES / "guest" / "steps"
SOURCE = (ROOT / "tests" / "guest" / "steps.c").read_text().splitlines()
RSP, RIP, CS, FS_BASE = 7, 16, 18, 73


def line(text):
    """The number of the only line of steps.c that is this."""
    found = [i for i, x in enumerate(SOURCE, 1) if x.strip() == text]
    assert len(found) == 1, text
    return found[0]


def record(t, name="rec", append="quiet"):
    """The program in a guest; symbols of the kernel, of the program."""
    need_gdb(t)
    image(t)
    r = t.linux(name, "--memory", "256M", "--add", f"{PROGRAM}:/bin/steps", append=append,
                script="steps; echo status $?\n")
    t.has(r.text, r"^steps 66 10 104 20\r?\nstatus 7")
    t.run(t.reprise, "symbols", t.dir / name, "-o", t.dir / (name + ".elf"))
    return addresses(t, t.dir / (name + ".elf")), addresses(t, PROGRAM)


KERNEL = "add-symbol-file rec.elf\n"
# Where the kernel is entered by a timer tick that interrupts a program.
TICK = "*asm_sysvec_apic_timer_interrupt if (*(long *)($rsp + 8) & 3) == 3"


def lines_of(text):
    """The lines of steps.c that `frame` or a step showed."""
    return [int(x) for x in re.findall(r"^(\d+)\t", text, re.M)]


# Steps


@test("gdb/user-oracle", cost=3)
def oracle(t):
    """Steps of a program in rings 3 and 0, each way, are what single positions say they are."""
    t.tiny("rec", "syscalls")
    states = []
    with Client(t, "rec", "--to", "0") as c:
        t.has(c.monitor("scope machine"), "^scope machine")
        names = addresses(t, IMAGES / "tiny" / "syscalls.elf")
        c.point(0, names["user_enter"], 1)
        t.has(c.run(), "^T05")
        c.point(0, names["user_enter"], 1, insert=False)
        while c.register(CS) & 3 != 3:
            c.run("s")
        first = c.position()
        state = lambda: (c.position(), c.register(CS) & 3, c.register(RIP), c.register(RSP))
        for _ in range(4000):
            states.append(state())
            c.run("s")
        t.equal([s[0] for s in states], list(range(first, first + len(states))), "the positions")
        user = [s for s in states if s[1] == 3]
        t.check(any(a[0] - b[0] > 5 for a, b in zip(user[1:], user)), "it is never in ring 0")

        def after(i):
            """Where a step from the i-th state leads: to None, if that is not among them."""
            k = i + 1
            while k < len(states) and states[k][1] != 3:
                k += 1
                if k < len(states) and states[k][1] == 3 and states[k][2:] == states[i][2:]:
                    k += 1
            return k if k < len(states) else None

        t.has(c.monitor("scope process"), "^scope process")
        c.monitor(f"goto {first}")
        at, path = 0, []
        while (then := after(at)) is not None:
            t.check(c.run("s").startswith("T05"), "the stop")
            t.equal(state(), states[then], f"the step from {states[at]}")
            path.append(at)
            at = then
        t.check(any(b - a > 5 for a, b in zip(path, path[1:])), "no step crossed the kernel")
        for back in reversed(path):
            c.run("bs")
            t.equal(state()[1:], states[back][1:], "the step back")
        t.equal(c.position(), first, "where the steps began")
    return f"{len(path)} steps, {len(states)} positions"


@test("gdb/user-next", cost=6)
def steps(t):
    """`next` over lines that touch new pages and take timer ticks never leaves the program; the
    same lines backwards; finish and step too."""
    record(t)
    loop = [line("p[4096 * i] = (char)i;"), line("sum += p[4096 * i];")]
    out = gdb(t, KERNEL + "break touch\ncontinue\n" + "next\n" * 51 +
              "echo backwards\\n\n" + "reverse-next\n" * 50 +
              f"""delete
echo ticks\\n
break spin
continue
delete
break {TICK}
continue
disable
printf "kernel %d\\n", $cs & 3
reverse-stepi
printf "user %d\\n", $cs & 3
set $was = $pc
stepi
printf "stepped %d %d\\n", $cs & 3, $pc != $was
reverse-stepi
printf "back %d %d\\n", $cs & 3, $pc == $was
next
next
next
reverse-next
reverse-next
reverse-step
reverse-stepi
step
""", file=PROGRAM, options=("--to", "insn:1000"))
    forwards, _, rest = out.partition("backwards\n")
    back, _, ticks = rest.partition("ticks\n")
    there, again = lines_of(forwards.partition("Breakpoint")[2]), lines_of(back)
    t.equal((there.count(loop[0]), there.count(loop[1])), (12, 12), "rounds of the loops")
    begin, end = (line(x) for x in ("static void touch(char *p)", "return;"))
    t.check(len(there) >= 51, f"the lines: {there}")
    t.equal((again.count(loop[0]), again.count(loop[1])), (12, 12), "the rounds backwards")
    for n in there + again[:-1]:
        t.check(begin < n <= end or n == line("touch(p);"), f"line {n}")
    t.equal(marked(ticks, "kernel"), ["0"], "the entry of the kernel")
    t.equal(marked(ticks, "user"), ["3"], "one step back")
    t.equal(marked(ticks, "stepped"), ["3 1"], "a step across the tick")
    t.equal(marked(ticks, "back"), ["3 1"], "and back")
    shown = lines_of(ticks.partition("back 3")[2])
    spin = {line("for (spins = 0; spins < n; spins++)"), line("continue;")}
    t.check(len(shown) >= 5 and set(shown) <= spin, f"the lines after it: {shown}")
    t.lacks(out, f"error_entry|{BEGINNING}", "gdb's output")
    return f"{len(there)} lines"


@test("gdb/user-kernel", cost=5)
def kernel(t):
    """At each instruction of the kernel's entries backtraces lead into the program or end at
    once; finish leaves error_entry and what it calls."""
    record(t)
    out = gdb(t, KERNEL + """monitor scope machine
python
def pc(): return int(gdb.parse_and_eval("$pc")) & (1 << 64) - 1
def chain():
    f, names = gdb.newest_frame(), []
    while f and len(names) < 40 and f.pc() >> 63:
        names.append(f.name() or "?")
        f = f.older()
    return names, f
def walk(count):
    for _ in range(count):
        names, f = chain()
        if not pc() >> 63:
            return
        end = f"{f.name()} {int(f.read_register('rsp')) & (1 << 64) - 1:x}" if f else "end"
        print(f"at {pc():x} {end} {'<'.join(names)}")
        gdb.execute("stepi", to_string=True)
for before, entry in (("touch", "*asm_exc_page_fault"), ("spin", "TICK")):
    for place in (before, entry):
        gdb.execute("tbreak " + place)
        gdb.execute("continue")
    # The tick may be when another process has its turn.
    pid = int(gdb.parse_and_eval("$pid"))
    walk(80)
    gdb.execute(f"tbreak swapgs_restore_regs_and_return_to_usermode if $pid == {pid}")
    gdb.execute("continue")
    walk(60)
end
x/80i error_entry
delete
tbreak *error_entry
continue
finish
printf "out %d\\n", $cs & 3
tbreak sync_regs
continue
finish
finish
finish
printf "out %d\\n", $cs & 3
""".replace("TICK", TICK), file=PROGRAM, options=("--to", "insn:1000"))
    rows = [m.split(" ", 2) for m in marked(out, "at")]
    t.check(len(rows) > 200, f"{len(rows)} instructions")
    stacks = {}
    for address, *rest in rows:
        what = " ".join(rest)
        if what.startswith("end "):
            t.has(what, r"^end swapgs_restore\w+$", f"the backtrace at {address}")
        else:
            t.has(what, r"^(touch|spin) [0-9a-f]+ ", f"the backtrace at {address}")
            stacks.setdefault(what.split()[0], set()).add(what.split()[1])
    t.check(all(len(s) == 1 for s in stacks.values()), f"the program's stack pointers: {stacks}")
    # Newer kernels' error_entry does not call it but jumps there.
    caller = "" if re.search(r"<error_entry\+\d+>:\s+jmp .*<sync_regs>", out) else "error_entry<"
    for path in ("error_entry<asm_exc_page_fault$", f"sync_regs<{caller}asm_", "asm_exc_page_fault$"):
        t.has("\n".join(" ".join(r) for r in rows), "(?m)" + path, "the backtraces")
    t.equal(marked(out, "out"), ["3", "3"], "the ring after finish")
    return f"{len(rows)} instructions"


@test("gdb/user-end", cost=5)
def ends(t):
    """A step over a system call, into a signal's handler, and to the end of a program."""
    record(t)
    out = gdb(t, KERNEL + """break on_signal
continue
when
bt 1
reverse-stepi
x/i $pc
stepi
when
printf "handler %d\\n", $pc == &on_signal
delete
monitor scope machine
break work if k == 2
continue
printf "worker %d\\n", $pid
delete
monitor scope process
python
for _ in range(3000):  # up to the system call by which it kills itself, and over that
    text = gdb.execute("stepi", to_string=True)
    if "ends here" in text:
        break
print(text)
end
printf "ring %d\\n", $cs & 3
bt
monitor when
""", file=PROGRAM, options=("--to", "insn:1000"))
    at = positions(out)
    t.equal(at[0], at[1], "the handler, and again after a step back")
    t.has(out, r"^=> 0x\w+ .*:\tsyscall", "where the signal came")
    t.has(out, r"^handler 1$")
    worker = marked(out, "worker")[0]
    t.has(out, rf"^steps \(pid {worker}\) ends here, by signal 6 \(Aborted\)\.")
    t.has(out, "^ring 0$")
    t.has(out, r"^#0 .* in do_exit \(\)(?s:.*) work \(k=2\)", "the backtrace from its end")
    t.has(out, rf"^process +steps \(pid {worker}\)$", "monitor when")


@test("gdb/user-threads", cost=5)
def threads(t):
    """Two threads at the same lines: steps stay in the one that they began in."""
    record(t)
    out = gdb(t, """break thread if *(int *)number == 1
continue
delete
next
set $who = $pid
printf "k %d\\n", k
""" + 'next\nprintf "same %d %d\\n", k, $pid == $who\n' * 25 +
              'reverse-next\nprintf "back %d %d\\n", k, $pid == $who\n' * 12,
              file=PROGRAM, options=("--to", "insn:1000"))
    t.equal(marked(out, "same"), ["1 1"] * 25, "the thread at each line")
    t.equal(marked(out, "back"), ["1 1"] * 12, "and backwards")


# Scope


@test("gdb/user-scope", cost=6)
def scope(t):
    """Four processes write the same address: a watchpoint is of the one where it was set."""
    record(t)
    watch = """watch note
commands
silent
printf "MARK %d %d %d\\n", note, $pid, $pgd == $mine
continue
end
"""
    out = gdb(t, """break spin
continue
delete
monitor scope machine
break work if k == 2
continue
monitor scope process
set $mine = $pgd
printf "mine %d\\n", $pid
info registers pid pgd comm
p/s $comm
python
try: gdb.execute("set $pid = 1")
except gdb.error as e: print("refused:", e)
end
delete
""" + watch.replace("MARK", "own") + """monitor scope
continue
delete
monitor scope machine
break spin
reverse-continue
delete
""" + watch.replace("MARK", "all") + "continue\n", file=PROGRAM, options=("--to", "insn:1000"))
    mine = marked(out, "mine")[0]
    t.equal([x.split() for x in marked(out, "own")],
            [[str(200 + n), mine, "1"] for n in (1, 2, 3)], "the watchpoint of one process")
    t.has(out, rf"(?m)^pid +0x{int(mine):x} +{mine}$")
    t.has(out, r'= "steps\\000')
    t.has(out, "refused: .*pid cannot be changed")
    t.has(out, rf"The recording ends here.*\nA point at a user address stopped in steps \(pid {mine}\)")
    every = {int(x.split()[0]) for x in marked(out, "all")}
    t.check({101, 102, 103, 201, 202, 203, 301, 302, 303} & every > {201, 202, 203},
            f"the watchpoint of all: {every}")


@test("gdb/user-pti", cost=5)
def isolated(t):
    """Page table isolation: the process is known in ring 3 and in ring 0, and is the same."""
    record(t, append="quiet pti=on")
    out = gdb(t, KERNEL + """break touch
continue
printf "user %d %lx %lx\\n", $pid, $pgd, $cr3 & 0x1000
break do_user_addr_fault
continue
printf "kernel %d %lx %lx\\n", $pid, $pgd, $cr3 & 0x1000
delete
watch sum
continue
printf "sum %d\\n", sum
next
next
next
""", file=PROGRAM, options=("--to", "insn:1000"))
    user, kernel_ = (marked(out, n)[0].split() for n in ("user", "kernel"))
    t.equal((user[2], kernel_[2]), ("1000", "0"), "the bit of CR3")
    t.equal(user[:2], kernel_[:2], "process and page tables")
    t.check(int(user[0]) > 1, f"process {user[0]}")
    last = lines_of(out)[-3:]
    t.check(line("static void touch(char *p)") < min(last) and max(last) <= line("return;"),
            f"the lines: {last}")


# While it is recorded


@test("gdb/user-record", cost=6)
def recorded(t):
    """The same on a live machine, and the recording is as without gdb."""
    need_gdb(t)
    image(t)
    (t.dir / "script.sh").write_text("steps\n")
    where = IMAGES / "linux"
    argv = lambda name, *more: [
        t.reprise, "record", "-o", t.dir / name, "--seed", "7", "--wall-clock", "1700000000",
        "--no-realtime", *more, "--memory", "256M", "--kernel", where / "vmlinuz", "--initrd", where / "initrd", "--add",
        f"{PROGRAM}:/bin/steps", "--add", f"{t.dir}/script.sh:/script.sh", "--append",
        "quiet reprise.script=/script.sh"]
    t.run(*argv("plain"))
    server = Server(t, "rec", argv=argv("rec", f"--gdb=unix:{t.dir}/gdb", "--gdb-wait"))
    out = gdb(t, """break touch
continue
printf "pid %d\\n", $pid
monitor when
""" + "next\n" * 12 + """delete
watch sum
continue
monitor scope
delete
break spin
continue
monitor scope machine
delete
break work if k == 2
continue
delete
monitor scope process
watch note
commands
silent
printf "note %d\\n", note
continue
end
continue
""", file=PROGRAM, target=f"{t.dir}/gdb", code=None)
    server.ended()
    pid = marked(out, "pid")[0]
    t.has(out, rf"(?m)^process +steps \(pid {pid}\)$")
    shown = [n for n in lines_of(out.partition("process ")[2])][:12]
    t.check(len(shown) == 12 and line("static void touch(char *p)") < min(shown) and
            max(shown) <= line("return;"), f"the lines: {shown}")
    t.has(out, rf"(?m)^watch +0x\w+ +steps \(pid {pid}\), pgd 0x")
    t.equal(marked(out, "note"), ["201", "202", "203"], "the watchpoint of one process")
    same_end(t, "rec")


@test("gdb/compat", cost=5)
def compat(t):
    """Started in a 32-bit program, gdb is shown an i386: registers, stack, steps both ways, a handler's
    arguments, what is written; started elsewhere, x86-64."""
    program = IMAGES / "guest" / "compat"
    need_gdb(t)
    t.linux("rec", "--add", f"{program}:/bin/compat", append="quiet", script="compat")
    path = t.dir / "script.gdb"
    path.write_text("""printf "in %d\\n", $cs
printf "size %d\\n", sizeof($sp)
set $at = $pc
stepi 3
reverse-stepi 3
printf "back %d\\n", $pc == $at
break handler
continue
printf "signal %d address %d\\n", sig, info[3]
bt 2
finish
printf "after %d\\n", $cs
reverse-continue
printf "before %d\\n", $pc == handler
set var $eax = 0x87654321
printf "eax %x\\n", $eax
info registers rip
""")
    at = go(t, "exec:compat")["position"]
    out = t.run(t.reprise, "gdb", "--to", f"insn:{at}", t.dir / "rec", "--", "-nx", "-batch", "-x", path,
                program, stderr=subprocess.STDOUT, timeout=100, code=None).text
    t.equal([marked(out, x) for x in ("in", "size", "back", "signal", "before", "eax")],
            [["35"], ["4"], ["1"], ["11 address 16"], ["1"], ["87654321"]], "what gdb says")
    t.has(out, r"(?m)^#0 +handler \(sig=11")
    t.has(out, "Invalid register `rip'|rip: No such register|Invalid register")
    t.has(out, "gdb is shown an i386")
    out = t.run(t.reprise, "gdb", "--to", "insn:1000", t.dir / "rec", "--", "-nx", "-batch", "-ex",
                "printf \"size %d\\n\", sizeof($sp)", stderr=subprocess.STDOUT).text
    t.equal(marked(out, "size"), ["8"], "the size of an address elsewhere")
    # From the kernel into the program and back: gdb follows.
    path.write_text(f"""set pagination off
break handler
printf "size %d\\n", sizeof($sp)
continue
printf "size %d\\n", sizeof($sp)
printf "signal %d\\n", sig
delete
break ksys_write
continue
printf "size %d\\n", sizeof($sp)
backtrace
monitor goto insn:{at}
printf "size %d\\n", sizeof($sp)
""")
    out = t.run(t.reprise, "gdb", "--to", "console:pusha", t.dir / "rec", "--", "-nx", "-batch", "-ex",
                f"add-symbol-file {program}", "-x", path, stderr=subprocess.STDOUT, timeout=100).text
    t.equal(marked(out, "size"), ["8", "4", "8", "4"], "the size of an address on the way")
    t.equal(marked(out, "signal"), ["11"], "what the handler was given")
    t.has(out, r"(?ms)^#0 .* in ksys_write .*do_fast_syscall_32 .*entry_SYSENTER_compat\w* \(\)\n#\d+ +0x0*f7\w+ in \?\? "
          r"\(\)\n[^#]")
