"""Points in the lives of a guest's processes (exec:, exit:, crash, panic), and what is kept of them."""
import hashlib
import json
import os
import re
import shutil
import signal
import stat
import struct
import subprocess
import time

from suite.boot import image
from suite.gdb import need_gdb
from suite.harness import ERROR, IMAGES, USAGE, rnd, test

DEATHS = IMAGES / "guest" / "deaths"
# In the order in which they end; each says its number.
SCRIPT = """for how in segv kill abort then exit; do deaths $how; echo $how ended with $?; done
sh -c 'echo sh $$; kill -9 $$'
sleep 1000 &
echo lives $!
insmod /oops.ko
echo insmod $?
echo c >/proc/sysrq-trigger
"""


def broken_module(t):
    """A module of the image whose first act is an instruction that there is none of: an oops."""
    data = bytearray((IMAGES / "linux/modules/button.ko").read_bytes())
    end = b"~Module signature appended~\n"
    if data.endswith(end):
        size, = struct.unpack_from(">I", data, len(data) - len(end) - 4)
        del data[len(data) - len(end) - 12 - size:]
    at, = struct.unpack_from("<Q", data, 40)
    entry, n = struct.unpack_from("<HH", data, 58)
    section = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * entry) for i in range(n)]
    symbols = next(s for s in section if s[1] == 2)  # SHT_SYMTAB
    names = section[symbols[6]][4]
    for i in range(0, symbols[5], 24):
        name, _, _, where, value, _ = struct.unpack_from("<IBBHQQ", data, symbols[4] + i)
        if data[names + name:names + name + 12] == b"init_module\0":
            begin = section[where][4] + value
            begin += 4 if data[begin:begin + 4] == b"\xf3\x0f\x1e\xfa" else 0  # ENDBR64
            data[begin + 5:begin + 7] = b"\x0f\x0b"  # after the call of __fentry__
    (t.dir / "oops.ko").write_bytes(data)
    return f"{t.dir / 'oops.ko'}:/oops.ko"


def record(t, *options, script=SCRIPT):
    image(t)
    return t.linux("rec", "--add", f"{DEATHS}:/bin/deaths", *options, script=script, append="quiet", code=None,
                   env={"XDG_STATE_HOME": t.dir / "state"})


def run(t, *argv, env=None, **more):
    """With a state of its own: the harness has one for all tests."""
    return t.run(*argv, env=env or {"XDG_STATE_HOME": t.dir / "state"}, **more)


def place(t, point, name="rec", *options):
    return json.loads(run(t, t.reprise, "replay", t.dir / name, "--to", point, "--json", *options).out)


def refused(t, point, why, name="rec"):
    r = run(t, t.reprise, "replay", t.dir / name, "--to", point, code=ERROR)
    t.has(r.error, why)
    return r.error


def listed(t, *options, name="rec"):
    r = run(t, t.reprise, "ps", "--json", *options, t.dir / name)
    return [json.loads(line) for line in r.text.splitlines()]


def kept(t):
    found = [p for p in (t.dir / "state/reprise/processes").iterdir()]
    t.equal(len(found), 1, "files of processes")
    return found[0]


def entry(path):
    """Where an ELF program begins."""
    return struct.unpack_from("<Q", path.read_bytes(), 24)[0]


@test("lives/points", cost=40)
def points(t):
    """exec: is the program's first instruction, exit: its last thread's do_exit(), crash what ends it
    or an oops, panic the panic; whether they are found on the way or in what is kept."""
    r = record(t, "--add", broken_module(t), "--checkpoint-every", "0.1")
    pid = {how: int(number) for how, number in re.findall(r"(?m)^(\w+) (\d+)\r?$", r.text)}
    t.equal([code for _, code in re.findall(r"(?m)^(\w+) ended with (\d+)", r.text)],
            ["139", "137", "134", "5", "4"], "the ends of programs with threads")
    # Found on the way, each a bit further; then once more, with all that is kept.
    seen = {}
    for again in range(2):
        for k in range(1, 7):
            p = place(t, f"exec:deaths#{k}", "rec", "--regs")
            t.equal((p["cpl"], p["rip"], p["process"]["comm"]), (3, f"{entry(DEATHS):x}", "deaths"), f"deaths#{k}")
            before = place(t, f"insn:{p['position'] - 1}")
            t.equal((before["cpl"], before["process"]["pid"]), (0, p["process"]["pid"]), f"in front of deaths#{k}")
            seen.setdefault(f"exec {k}", p["position"])
            t.equal(seen[f"exec {k}"], p["position"], f"deaths#{k} found again")
        for k, (how, function, signal) in enumerate((("segv", "do_coredump", None), ("kill", "do_group_exit", 9),
                                                     ("abort", "do_coredump", None), ("sh", "do_group_exit", 9),
                                                     (None, "oops_begin", None)), 1):
            p = place(t, f"crash#{k}", "rec", "--regs")
            t.equal(p["symbol"], function, f"crash#{k}")
            t.equal(p["process"]["tgid"] if how else p["process"]["comm"], pid[how] if how else "insmod", f"who crashes {k}.")
            if signal:
                t.equal(int(p["registers"]["rdi"], 16), signal, f"the signal of crash#{k}")
            seen.setdefault(f"crash {k}", p["position"])
            t.equal(seen[f"crash {k}"], p["position"], f"crash#{k} found again")
        t.equal(place(t, "crash")["position"], seen["crash 1"], "crash")
        t.equal(place(t, "panic")["symbol"], "panic", "panic")
        every = listed(t)
        for how in ("segv", "kill", "abort", "then", "exit", "sh"):
            p = place(t, f"exit:{pid[how]}")
            ended = max(x["ended"]["position"] for x in every if x["pid"] == pid[how])
            t.equal((p["symbol"], p["process"]["tgid"], p["position"]), ("do_exit", pid[how], ended), f"the end of {how}")
            # `ps` as of there has it ended; one position before that it lives.
            for at, is_there in ((ended - 1, True), (ended, False)):
                lives = [x for x in listed(t, "--at", f"insn:{at}") if x["pid"] == pid[how] and "ended" not in x]
                t.equal(bool(lives), is_there, f"{how} at {at}")
    t.equal([x["command"] for x in every if x["pid"] == pid["then"]][-1], "/bin/deaths plain", "what a thread executed")
    t.check(place(t, "exec:deaths#5")["process"]["tgid"] == pid["then"], "who executes the fifth")
    t.lacks(run(t, t.reprise, "replay", t.dir / "rec", "--to", "panic", "--console").text, "Kernel panic")
    refused(t, "crash#6", r"there were only 5: crash#5 is the last")
    refused(t, "exec:deaths#7", r"deaths was executed 6 times only: exec:deaths#6 is the last")
    refused(t, "exec:death", r"no program death was executed; there was .*deaths.*reprise ps ")
    refused(t, "exec:zzz", r"no program zzz was executed \(`reprise ps ")
    refused(t, "exit:9999", r"there was no process 9999; the next one is \d+ .*reprise ps ")
    thread = next(x for x in every if x["pid"] == pid["exit"] and x["tid"] != x["pid"])
    refused(t, f"exit:{thread['tid']}", rf"{thread['tid']} is a thread of process {pid['exit']}: exit:{pid['exit']} is")
    refused(t, f"exit:{pid['lives']}", rf"process {pid['lives']} \(.*\) lives to the recording's end")
    refused(t, f"exit:{pid['segv']}#2", "only 1 process had the number")
    elsewhere(t, seen, pid)
    return f"{len(every)} processes and threads"


def elsewhere(t, seen, pid):
    """Wherever a POINT can be named."""
    rec = t.dir / "rec"
    core = json.loads(run(t, t.reprise, "core", rec, "--at", "crash#2", "-o", t.dir / "core", "--json").out)
    t.equal((core["position"], core["comm"]), (seen["crash 2"], "deaths"), "the core's place")
    first = run(t, t.reprise, "trace", rec, "--from", "exec:deaths", "--to", f"{seen['exec 1'] + 3}").text.splitlines()[0]
    t.check(first.startswith(f"{seen['exec 1']} 3 "), f"the trace begins with {first}")
    events = [json.loads(x) for x in run(t, t.reprise, "events", rec, "--json", "--from", "crash", "--to", "panic").text.splitlines()]
    t.check(all(seen["crash 1"] <= e["position"] for e in events), "events")
    at = listed(t, "--at", "exec:deaths")
    t.equal([x["command"] for x in at if x["pid"] == pid["segv"]], ["deaths segv"], "ps at exec:")
    # Recorded on from there, the program does what it did.
    r = run(t, t.reprise, "record", "--from", rec, "--at", "exec:deaths#3", "-o", t.dir / "on", code=None)
    t.has(r.text, r"(?m)^abort ended with 134", "the console of what was recorded on")
    t.has(r.text, r"(?m)^abort \d+", "the console of what was recorded on")
    for bad in ("exec:", "exit:sh", "crash#0", "panic#1"):
        run(t, t.reprise, "replay", rec, "--to", bad, code=USAGE)


@test("lives/tree", cost=10)
def tree(t):
    """Some hundred processes: each one's parent is the one that it says itself, and the tree shows it."""
    r = record(t, script="deaths tree 3 6\necho tree done\n")
    said = {int(pid): int(parent) for pid, parent in re.findall(r"(?m)^tree (\d+) (\d+)\r?$", r.text)}
    t.equal(len(said), 1 + 6 + 36 + 216, "processes that say who they are")
    every = {x["pid"]: x for x in listed(t)}
    t.equal({p: every[p]["parent"] for p in said}, said, "parents")
    parents, last = {}, []
    for line in run(t, t.reprise, "ps", "--tree", t.dir / "rec").text.splitlines():
        found = re.match(r" *(\d+) +\d+ +\d+ .{46}((?:  )*)deaths tree", line)
        if found and int(found.group(1)) in said:
            pid, depth = int(found.group(1)), len(found.group(2)) // 2
            last = last[:depth] + [None] * (depth - len(last)) + [pid]
            parents[pid] = last[depth - 1] if depth else 0
    root = next(p for p in said if said[p] not in said)
    t.equal({p: q for p, q in parents.items() if p != root}, {p: q for p, q in said.items() if p != root}, "the tree")
    return f"{len(said)} processes"


def forge(path, change):
    """Other bytes with the right sum."""
    data = change(path.read_bytes()[:-32])
    path.write_bytes(data + hashlib.sha256(data).digest())


@test("lives/kept", cost=30)
def kept_list(t):
    """What a replay found is kept, so that the next one takes none; in parts, too; and never believed of a
    file that others can write, that is damaged, of another recording, or lies in the recording."""
    record(t, script="sh -c 'exit 7'\nsh -c 'kill -11 $$'\necho done\n")
    whole = listed(t)
    file = kept(t)
    t.equal(stat.S_IMODE(file.stat().st_mode), 0o600, "its mode")
    good = file.read_bytes()
    # What only it says is shown: nothing was replayed.
    forge(file, lambda d: d.replace(b"exit 7", b"exit 8"))
    told = listed(t)
    t.equal([x["command"] for x in told if "exit" in x.get("command", "")], ["sh -c exit 8"], "what was kept")
    t.equal(len(told), len(whole), "how many")
    # In parts it is what it is at once, to the byte.
    file.unlink()
    for at in ("time:0.4", "insn:700M", "exit:1"):
        run(t, t.reprise, "ps", "--at", at, t.dir / "rec", code=None)
    t.equal(listed(t), whole, "what was found in parts")
    t.equal(file.read_bytes(), good, "the file of what was found in parts")
    # Interrupted wherever it is, it goes on from there.
    file.unlink()
    for _ in range(3):
        child = t.start([t.reprise, "ps", t.dir / "rec"], env={"XDG_STATE_HOME": t.dir / "state"}, stdout=subprocess.DEVNULL)
        time.sleep(rnd.random() * 0.8)
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=100 * t.slow)
        t.check(child.returncode in (0, ERROR, -signal.SIGINT), f"the end of one that was interrupted: {child.returncode}: {error}")
    t.equal(listed(t), whole, "what was found with interruptions")
    t.equal(file.read_bytes(), good, "the file of what was found with interruptions")
    # Damaged: said, and made anew.
    half = len(good) // 2
    for what, data in (("cut off", good[:half]), ("empty but for a byte", b"r"), ("changed", good[:half] + b"!" + good[half + 1:]),
                       ("longer", good + b"x"), ("other", b"reprise lives 9\n" + good[16:])):
        file.write_bytes(data)
        r = run(t, t.reprise, "ps", "--json", t.dir / "rec")
        t.has(r.error, r"what is known of the guest's processes is found anew: .*: it is (damaged|not a list)", what)
        t.equal([json.loads(x) for x in r.text.splitlines()], whole, f"the list where its file was {what}")
        t.equal(file.read_bytes(), good, f"the file that was {what}")
    # Nonsense with the right sum neither.
    forge(file, lambda d: d + b"\x01")
    t.has(run(t, t.reprise, "ps", t.dir / "rec").error, "it makes no sense")
    # Of another log, kernel or machine: found anew in silence.
    key = len("reprise lives 2\n")
    forge(file, lambda d: (d[:key] + bytes(32) + d[key + 32:]).replace(b"exit 7", b"exit 8"))
    r = run(t, t.reprise, "ps", "--json", t.dir / "rec")
    t.equal(([json.loads(x) for x in r.text.splitlines()], r.error), (whole, ""), "the list where another's was kept")
    # Of this recording, where others could have written it: not believed, and left alone.
    lie = lambda d: d.replace(b"exit 7", b"exit 8")
    for what in ("writable", "linked", "twice"):
        file.write_bytes(good)
        file.chmod(0o600)
        forge(file, lie)
        if what == "writable":
            file.chmod(0o622)
        elif what == "linked":
            file.rename(t.dir / "elsewhere")
            file.symlink_to(t.dir / "elsewhere")
        else:
            os.link(file, t.dir / "other-name")
        bytes_there = file.read_bytes()
        t.equal(listed(t), whole, f"the list where its file is {what}")
        t.equal(file.read_bytes(), bytes_there, f"the file that is {what}")
        file.unlink()
    # What whoever sent the recording put into it is nothing.
    for name in ("processes", file.name, "checkpoints"):
        (t.dir / "rec" / name).write_bytes(bytes_there)
    t.equal(listed(t), whole, "the list where the recording has one")
    for name in ("processes", file.name, "checkpoints"):
        (t.dir / "rec" / name).unlink()
    # A copy of the recording has the same.
    forge(file, lie)
    shutil.copytree(t.dir / "rec", t.dir / "copy")
    t.equal([x["command"] for x in listed(t, name="copy") if "exit" in x.get("command", "")], ["sh -c exit 8"], "of a copy")
    # Nowhere to keep it: found each time.
    for env in ({"XDG_STATE_HOME": "", "HOME": ""}, {"XDG_STATE_HOME": "/proc/nowhere"}):
        out = run(t, t.reprise, "ps", "--json", t.dir / "rec", env=env)
        t.equal(([json.loads(x) for x in out.text.splitlines()], out.error), (whole, ""), "the list without a place for it")
    # Checkpoints that nobody looked at may be lies: nothing that was found with them is kept.
    file.unlink()
    run(t, t.reprise, "ps", "--trust-checkpoints", t.dir / "rec")
    t.equal(file.stat().st_size, 0, "what is kept after checkpoints were trusted")


@test("lives/cut-off", cost=5)
def cut_off(t):
    """A recording that was killed, and one whose log is damaged, are told up to there, every time."""
    record(t, script="sh -c 'exit 7'\necho done\n")
    log = (t.dir / "rec/log").read_bytes()
    (t.dir / "rec/log").write_bytes(log[:len(log) * 3 // 4])
    first = run(t, t.reprise, "ps", t.dir / "rec", code=None)
    t.check(first.code != 0 and len(first.text.splitlines()) > 2, f"exit code {first.code}")
    again = run(t, t.reprise, "ps", t.dir / "rec", code=first.code)
    t.equal(again.text, first.text, "the second list")


@test("lives/no-types", cost=15)
def no_types(t):
    """A kernel without type information: what cannot be found is said; the panic is found."""
    if not (IMAGES / "linux-686" / "vmlinuz").exists():
        t.skip("build/images/linux-686 is not built: make image-686 (Debian 12 has its kernel)")
    t.linux("rec", "--checkpoint-every", "0.5", image="linux-686", script="sh -c 'kill -11 $$'\necho c >/proc/sysrq-trigger\n", append="quiet", code=None,
            env={"XDG_STATE_HOME": t.dir / "state"})
    for again in range(2):
        p = place(t, "panic")
        t.equal((p["symbol"], p["cpl"]), ("panic", 0), "panic")
        why = "the guest's kernel has 32 bits, and no type information"
        refused(t, "exec:sh", why + ": programs and processes cannot be found; `panic` can")
        refused(t, "exit:1", why + ": programs and processes cannot be found")
        t.has(run(t, t.reprise, "ps", t.dir / "rec", code=ERROR).error, why + ": its processes cannot be told")
        error = refused(t, "crash", "no process died of a signal")
        t.has(error, why + ": `crash` finds oopses of the kernel only")
    t.tiny("tiny", "rep")
    for point in ("exec:sh", "panic", "crash"):
        refused(t, point, "no Linux kernel is to be seen", "tiny")


@test("lives/branches", cost=15)
def branches(t):
    """Where positions count branches, several instructions have one: the points are at theirs all the same."""
    image(t)
    env = {"XDG_STATE_HOME": t.dir / "state"}
    r = t.linux("rec", "--add", f"{DEATHS}:/bin/deaths", script="for how in segv kill; do deaths $how; done\necho c >/proc/sysrq-trigger\n",
                append="quiet", code=None, env=dict(env, REPRISE_TEST_BRANCH=1))
    pid = {how: int(number) for how, number in re.findall(r"(?m)^(\w+) (\d+)\r?$", r.text)}
    first = place(t, "crash")
    t.equal(kept(t).stat().st_size, 0, "what is kept of a part")
    listed(t)
    t.equal(place(t, "crash"), first, "crash found again")
    for point, symbol, how in (("crash", "do_coredump", "segv"), ("crash#2", "do_group_exit", "kill"), (f"exit:{pid['kill']}", "do_exit", "kill"),
                               ("panic", "panic", None)):
        p = place(t, point)
        t.check(p["symbol"] == symbol and (not how or p["process"]["tgid"] == pid[how]), f"{point} is {p['symbol']} of {p['process']}")
    p = place(t, "exec:deaths#2")
    t.equal((p["rip"], p["cpl"], p["process"]["pid"]), (f"{entry(DEATHS):x}", 3, pid["kill"]), "the program's beginning")


@test("lives/gdb", cost=15)
def in_gdb(t):
    """--process of a program that is over begins where it began; `monitor goto` knows the points and leaves
    breakpoints as they are."""
    need_gdb(t)
    r = record(t, script="for how in segv then; do deaths $how; done\necho done\n")
    pid = {how: int(number) for how, number in re.findall(r"(?m)^(\w+) (\d+)\r?$", r.text)}

    def gdb(process, *commands, code=0):
        options = ("--process", process) if process else ("--to", "insn:500M")
        return run(t, t.reprise, "gdb", *options, t.dir / "rec", "--", "-nx", "-batch",
                   *(x for c in commands for x in ("-ex", c)), *([DEATHS] if process else []), code=code, timeout=100)
    out = gdb("deaths", "p $pc", "break main", "continue", "p argv[1]", "delete", "continue", "continue", "reverse-continue")
    t.has(out.error, rf"it is not there at the recording's end, so gdb starts where its program begins: exec:deaths#1, deaths \(pid {pid['segv']}\)")
    t.has(out.text, rf"\$1 = .* {entry(DEATHS):#x} <_start>")
    t.has(out.text, r'"segv"')
    t.has(out.text, "received signal SIGSEGV")
    t.has(out.text + out.error, r"ends here, by signal 11")
    t.has(gdb("deaths#2", "info inferiors").error, rf"exec:deaths#2, deaths \(pid {pid['then']}\)")
    t.has(gdb(str(pid["then"]), "info inferiors").error, rf"exec:deaths#3, deaths \(pid {pid['then']}\)")
    t.has(gdb("death", "p 1", code=ERROR).error, "no program death was executed; there was deaths")
    t.has(gdb("9999", "p 1", code=ERROR).error, "there was no process 9999")
    out = gdb(None, "break do_exit", "monitor goto exec:deaths", "p $pc", "monitor goto crash", "bt 1", "monitor goto panic",
              "monitor goto exec:deaths", "continue")
    out, said = out.text, out.error
    t.has(out, rf"\$1 = .*{entry(DEATHS):#x}")
    t.has(out, r"#0  0x\w+ in do_coredump \(\)")
    t.has(said, r"error: the guest's kernel did not panic")
    t.has(out, r"Breakpoint 1, 0x\w+ in do_exit")
