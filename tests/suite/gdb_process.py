"""`reprise gdb --process`: one process of the guest by itself."""
import json
import re
import subprocess

from suite.boot import image
from suite.gdb import marked, need_gdb
from suite.harness import ERROR, IMAGES, USAGE, test

PROGRAM = IMAGES / "guest" / "parts"
REGISTERS = r'"%lx %lx %lx %lx %lx\n", $pc, $r12, $r13, $xmm6.v2_int64[0], $xmm7.v2_int64[0]'


def record(t, *options, append="quiet"):
    """Two of the program at once, and one that executes another; what each thread says of itself."""
    need_gdb(t)
    image(t)
    r = t.linux("rec", "--memory", "256M", "--checkpoint-every", "0.5", "--add", f"{PROGRAM}:/bin/parts", *options, append=append,
                script="parts & parts & wait\nparts then\necho status $?\n")
    t.has(r.text, "(?m)^status 5")
    rows = re.findall(r"^(\w+) (\d+) tid (\d+) fs (\w+) mark (\w+)\r?$", r.text, re.M)
    t.equal(len(rows), 6, "threads that said who they are")
    return rows


def show(t, process, at, lines, file=PROGRAM, code=0):
    """Real gdb on it; what it says."""
    path = t.dir / "script.gdb"
    path.write_text("set pagination off\nset width 0\n" + lines)
    out = t.run(t.reprise, "gdb", "--process", process, "--to", at, t.dir / "rec", "--", "-nx", "-batch",
                "-x", path, *([file] if file else []), stderr=subprocess.STDOUT, timeout=100, code=code).text
    t.lacks(out, "Python Exception|[Ii]nternal error|Remote connection closed", "gdb's output")
    return out


def thread_registers(rows, tids):
    """gdb's commands that print each thread's, by its number."""
    return "".join(f"""python
for t in gdb.selected_inferior().threads():
    if t.ptid[1] == {tid} or t.ptid[2] == {tid}: t.switch()
end
printf "{tid} {REGISTERS[1:]}
printf "fs {tid} %lx\\n", $fs_base
""" for tid in tids)


@test("gdb/process-threads", cost=4)
def threads(t):
    """Threads that run, wait in the kernel or were preempted have the registers that they said; so
    has each process its own, whichever is on the CPU."""
    compare(t, record(t))


@test("gdb/process-isolated", cost=4)
def isolated(t):
    """The same under page table isolation, where in ring 3 the kernel is not mapped."""
    compare(t, record(t, append="quiet pti=on"))


def compare(t, rows):
    seen = set()
    both = json.loads(t.run(t.reprise, "replay", t.dir / "rec", "--to", "console:main#2", "--json").out)["time"]
    later = [f"time:{both + ms * 1000000}ns" for ms in (1, 5, 7)]  # all of both are there
    for pid in sorted({r[1] for r in rows}):
        own = {r[0]: r for r in rows if r[1] == pid}
        tids = [own[x][2] for x in ("main", "waits", "spins")]
        for at in ("console:main#2", *later):
            out = show(t, pid, at, "info threads\n" + thread_registers(rows, tids) + """thread apply all bt
python
for c in ("x/x 0x1000", "x/x 0xffffffff81000000", "set var $r12 = 4"):
    try: gdb.execute(c, to_string=True)
    except gdb.error as e: print("refused", e)
end
""")
            t.equal(set(re.findall(r"Thread \d+\.(\d+) \"parts\"", out)), set(tids), "gdb's threads")
            for kind, columns in (("waits", (1, 4)), ("spins", (2, 3))):
                values = marked(out, own[kind][2])[0].split()
                for column in columns:
                    t.equal(values[column], own[kind][4], f"register {column} of {kind} at {at}")
            for kind in own:
                t.equal(marked(out, f"fs {own[kind][2]}"), [own[kind][3]], f"FS of {kind}")
            seen |= set(re.findall(r'"parts" \(([^)]*)\)', out))
            t.has(out, r"(?m)^#0 .*\bwaits \(", "the backtrace of waits")
            t.has(out, r"(?m)^#0 .*\bspins_on \(", "the backtrace of spins")
            t.has(out, r"(?m)^#\d+ .*\bmain \(argc=", "the backtrace of main")
            t.equal(len(marked(out, "refused")), 3, "what is refused")
        for quarter in range(1, 28):  # one of them runs at one of them
            if {"running", "in the kernel"} <= seen:
                break
            out = show(t, pid, f"time:{both + quarter * 250000}ns", "info threads\n")
            seen |= set(re.findall(r'"parts" \(([^)]*)\)', out))
    t.check({"running", "in the kernel"} <= seen, f"where threads were: {seen}")


@test("gdb/process-points", cost=4)
def points(t):
    """A breakpoint stops in this process only; a watchpoint leads back to who overwrote; steps go over
    system calls; its end."""
    rows = record(t)
    pids = sorted({r[1] for r in rows})
    for pid in pids:
        main = [r[2] for r in rows if r[1] == pid and r[0] == "main"][0]
        out = show(t, pid, "console:main#2", """break overwrite
python
hits = 0
while hits < 20:
    gdb.execute("continue", to_string=True)
    if gdb.newest_frame().name() != "overwrite": break
    print("hit", int(gdb.parse_and_eval("with")) - ord("a"))
    hits += 1
end
printf "spun %d\\n", spins > 0
info threads
continue
reverse-continue
printf "last %c\\n", with
delete
watch *(char *)(block + 9)
reverse-continue
backtrace
printf "was %c\\n", *(char *)(block + 9)
stepi
printf "is %c\\n", *(char *)(block + 9)
delete
tbreak work
continue
next
next
next
next
next
python
frame = gdb.newest_frame()
print("line in", frame.name())
""" + f"""print("tid", gdb.selected_thread().ptid[1] == {main} or gdb.selected_thread().ptid[2] == {main})
end
stepi
info threads
""")
        # The other one says that it is there after a round or two of this one.
        hits = marked(out, "hit")
        t.check(hits == [str(i) for i in range(6 - len(hits), 6)] and len(hits) >= 3, f"the hits in {pid}: {hits}")
        t.equal(marked(out, "spun"), ["1"], "memory at its end")
        t.has(out, rf"parts \(pid \d+\) ends here, with status 3\.", "its end")
        t.equal(marked(out, "last"), ["f"], "the last hit, backwards")
        t.equal((marked(out, "was"), marked(out, "is")), (["d"], ["e"]), "around the write")
        t.has(out, r"(?m)^#\d+ .*overwrite \(at=.*with=with@entry=101", "who wrote")
        t.check(marked(out, "line in")[0] in ("main", "work", "overwrite"), "steps over a sleep")
        t.equal(marked(out, "tid"), ["True"], "the thread that steps")
    return f"{len(pids)} processes"


@test("gdb/process-exec", cost=4)
def executes(t):
    """A process that executes another program is still followed; it stops there where that is caught, at
    its first instruction; back to its beginning."""
    record(t)
    rows = t.run(t.reprise, "ps", t.dir / "rec").text
    pid, began = re.search(r"(?m)^ *(\d+) +\d+ +\d+ +(\d+\.\d+) +\S+ +status 5 +parts plain", rows).groups()
    out = show(t, pid, f"time:{float(began) + 0.0003:.6f}s", """catch exec
continue
continue
continue
info threads
reverse-continue
""")
    t.equal(len(re.findall(r"\(exec'd /bin/parts\)", out)), 2, "programs that it executed")
    t.has(out, rf"parts \(pid {pid}\) ends here, with status 5\.")
    t.has(out, rf"The program begins here: before, parts \(pid {pid}\) was another one")


@test("gdb/process-bad", cost=2)
def bad(t):
    """Processes that are not there, names that mean several, kernels that do not say."""
    record(t)
    for process, at, text, code in (
            ("4000", "end", "there is no process 4000 here", ERROR),
            ("nobody", "end", "of the name nobody run here", ERROR),
            ("parts", "console:main#2", r"which\? parts#1 to parts#2", ERROR),
            ("parts#7", "console:main#2", "2 processes of the name parts run here", ERROR),
            ("2", "end", "that is a thread of the kernel", ERROR),
            ("parts#", "end", "neither the number of a process nor NAME", ERROR),
            ("0", "end", "neither the number of a process nor NAME", ERROR),
            ("99999999999", "end", "neither the number of a process nor NAME", ERROR),
            ("parts", "insn:1000", "no Linux kernel is to be seen|cannot be known", ERROR)):
        t.has(show(t, process, at, "", None, code), text, f"--process {process}")
    r = t.run(t.reprise, "gdb", "--process", "1", "--symbols", PROGRAM, t.dir / "rec", code=USAGE)
    t.has(r.error, "--symbols is the kernel's")


@test("gdb/process-compat", cost=2)
def compat(t):
    """A program of 32 bits in the kernel: gdb is shown an i386 with its registers and stack. A kernel of
    32 bits: what is lost is said."""
    need_gdb(t)
    program = IMAGES / "guest" / "compat"
    t.linux("rec", "--checkpoint-every", "0.5", "--add", f"{program}:/bin/compat", append="quiet", script="compat")
    out = show(t, "compat", "console:pusha", """printf "eax %d cs %x\\n", $eax, $cs
backtrace
stepi
printf "then %x\\n", $cs
""", program)
    t.equal((marked(out, "eax"), marked(out, "then")), (["-38 cs 23"], ["23"]), "the registers")
    t.has(out, r"(?m)^#\d+ .*fast_call \((?:[^)]*, )?c=(?s:.*)\bstart \(", "the backtrace")
    if (IMAGES / "linux-686" / "vmlinuz").exists():
        t.linux("rec686", image="linux-686", append="quiet", script="true")
        r = t.run(t.reprise, "gdb", "--process", "1", t.dir / "rec686", code=ERROR)
        t.has(r.error, "the guest's kernel has 32 bits: processes can be told apart")
