"""AVX-512 in guests: its registers over everything that a kernel and we do with them. (What instructions compute:
insn/v4, insn/host; state images, masks, gathers: tiny/avx512-v4.)"""
import re

from suite.boot import image
from suite.gdb import Client, addresses, gdb, go, marked, need_gdb
from suite.gdb_process import show
from suite.harness import IMAGES, test
from suite.symbols import commands
from suite.symbols import gdb as of_core

WIDE = IMAGES / "guest" / "wide"


def recorded(t, *options):
    t.need_model("v4")
    image(t)
    r = t.linux("rec", "--cpu", "x86-64-v4", "--memory", "256M", "--add", f"{WIDE}:/bin/wide", *options, append="quiet",
                script="wide & wide; echo status $?; wait; cat /proc/cpuinfo")
    t.has(r.text, "(?m)^status 0")
    t.equal(r.text.count("all kept"), 2, "programs whose threads kept their registers")
    t.lacks(r.text, "BAD")
    t.has(r.text, "^flags.* avx512f .*avx512vl")
    return r


@test("avx512/threads", cost=6)
def threads(t):
    """Two programs of several threads, preempted, in system calls and signals; slices, checkpoints, `trace`."""
    r = recorded(t)
    t.same("rec", r)
    t.same("rec", r, env={"REPRISE_TEST_SLICE": "99991"})
    t.run(t.reprise, "checkpoint", "--every", "0.2", t.dir / "rec")
    t.verify_checkpoints("rec")
    at = go(t, "console:stays")["position"]
    changed = t.run(t.reprise, "trace", "--from", at, "--to", at + 400000, t.dir / "rec").text
    t.has(changed, r"\bmask\[7\]=[0-9a-f]+", "masks in the trace")
    t.has(changed, r"vpbroadcastq zmm31, rax.*\bzmm_above\[960\]=", "registers above the 16th in the trace")


@test("avx512/cpus", cost=8)
def cpus(t):
    """... on several CPUs."""
    r = recorded(t, "--cpus", 3)
    t.same("rec", r)
    r = t.tiny("init", "startup", "--cpus", 4, "--cpu", "x86-64-v4")
    t.lacks(r.text, "^FAIL")
    t.has(r.text, "^ok INIT: k5 stays")
    t.same("init", r)


def shown(t, out, wanted, what):
    for name, values in wanted.items():
        lines = marked(out, name)
        t.check(lines, f"{what}: no {name} in {out[-600:]}")
        t.equal([int(x, 16) for x in lines[0].split()], values, f"{name} {what}")


@test("avx512/process", cost=5)
def process(t):
    """gdb on a process: threads that run or were preempted have the registers that they have."""
    need_gdb(t)
    r = recorded(t)
    tids = re.findall(r"^stays (\d+) (\d+)", r.text, re.M)
    t.equal(len(tids), 2, "threads that stay")
    mark = 0xaa55000000000000
    lines = """printf "k5 %lx\\n", $k5
printf "zmm3 %lx %lx\\n", $zmm3.v8_int64[0], $zmm3.v8_int64[7]
printf "zmm20 %lx %lx\\n", $zmm20.v8_int64[1], $zmm20.v8_int64[6]
printf "xmm31 %lx\\n", $xmm31.v2_int64[1]
printf "ymm17 %lx\\n", $ymm17.v4_int64[3]
"""
    wanted = {"k5": [mark + 105], "zmm3": [mark + 3] * 2, "zmm20": [mark + 20] * 2, "xmm31": [mark + 31],
              "ymm17": [mark + 17]}
    for pid, tid in tids:
        switch = f"python\nfor x in gdb.selected_inferior().threads():\n    if {tid} in x.ptid: x.switch()\nend\n"
        shown(t, show(t, pid, "console:looked at", switch + lines, file=WIDE), wanted, f"of thread {tid}")


TINY = """printf "k1 %lx\\n", $k1
printf "zmm2 %x %x\\n", $zmm2.v16_int32[2], $zmm2.v16_int32[15]
printf "zmm5 %x %x\\n", $zmm5.v16_int32[4], $zmm5.v16_int32[15]
"""


@test("avx512/gdb", cost=2)
def with_gdb(t):
    """gdb on the machine, which sets them too; and on a core."""
    need_gdb(t)
    t.need_model("v4")
    r = t.tiny("rec", "avx512", "--cpu", "x86-64-v4")
    t.lacks(r.text, "^FAIL")
    elf = IMAGES / "tiny" / "avx512.elf"
    wanted = {"k1": [0x100], "zmm2": [0x3f000000, 0xffffffff], "zmm5": [4, 15]}
    out = gdb(t, TINY + """p $k1 = 0x55
p $zmm5.v16_int32[15] = 0x77
p $xmm29.v4_int32[1] = 0x99
printf "set %lx %x %x\\n", $k1, $zmm5.v16_int32[15], $zmm29.v16_int32[1]
info registers xcr0
""", options=("--to", "end-3"), file=elf)
    shown(t, out, wanted, "of the machine")
    t.equal(marked(out, "set"), ["55 77 99"], "what was set")
    t.has(out, r"^xcr0 .*OPMASK ZMM_HI256 HI16_ZMM", "XCR0")
    t.run(t.reprise, "core", t.dir / "rec", "-o", "core")
    shown(t, of_core(t, elf, "core", *commands(*TINY.splitlines())), wanted, "in the core")


@test("avx512/watched", cost=2)
def watched(t):
    """A debugger's watchpoint changes nothing of what an access with an empty mask does, also one instruction at a time."""
    t.need_model("v4")
    r = t.tiny("rec", "avx512", "--cpu", "x86-64-v4")
    bits = [int(b, 16) for b in re.search(r"^marked (\w+) (\w+)", r.text, re.M).groups()]
    names = addresses(t, IMAGES / "tiny" / "avx512.elf")
    with Client(t, "rec", "--to", "0") as c:
        at = []
        for i in range(2):
            c.point(2, names["marked"] + 8 * i, 8)
            t.has(c.run(), "watch")
            at.append(c.position())
            c.point(2, names["marked"] + 8 * i, 8, False)
        c.point(2, names["numbers"], 4)
        for i in range(2):
            c.monitor(f"goto {at[i]}")
            c.point(0, names["map"], 1)
            c.run("bc")
            t.check(0 < at[i] - c.position() < 20000, "map() is shortly before it")
            c.point(0, names["map"], 1, False)
            while c.position() < at[i]:
                c.run("s")
            t.equal(int.from_bytes(c.memory(names["marked"] + 8 * i, 8), "little"), bits[i], "accessed and dirty bits")
    return f"{bits}"
