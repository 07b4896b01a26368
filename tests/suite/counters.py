"""The guest's performance counters, as its own tools see them: perf and rr of the image `counters`."""
import re

from suite.harness import FINE, IMAGES, ROOT, USAGE, test

MODELS = ("nehalem", "haswell", "skylake-server", "icelake-server", "zen2")


def counters(t, name, script, *options, image="counters", model="skylake-server", seed=1, memory="1G", append="", **more):
    """Records `script` (of sh) among the files of the disk."""
    t.need_model(model)
    disk = IMAGES / image / "disk.img"
    if not disk.exists():
        t.skip(f"no image {image}: make image-{image}")
    inner = t.dir / (name + ".inner.sh")
    inner.write_text(script)
    outer = "set -e\nmkdir /mnt\nmount -t ext4 -o ro /dev/vda /mnt\ncounters /mnt sh -c \"$(cat /inner.sh)\"\n"
    return t.linux(name, "--cpu", model, "--memory", memory, "--seed", seed, "--wall-clock", "@1700000000", "--disk", f"{disk},readonly",
                   "--add", f"{ROOT}/images/counters/run:/bin/counters", "--add", f"{inner}:/inner.sh", *options,
                   script=outer, append="quiet " + append, end="exit", **more)


def stat(text):
    """Lines of `perf stat -x,`: count by event."""
    return {m[2]: int(m[1]) for m in re.finditer(r"^(\d+),,([\w:-]+),\d+,100\.00", text, re.M)}


@test("counters/perf-stat", cost=40)
def perf_stat(t):
    """The numbers are those of our trace, the same each time, and in a replay from the middle."""
    script = ("echo begin\nperf stat -x, -e instructions:u,branches:u,cycles:u,instructions:k,branches:k work 5 2>&1\n"
              "echo done\n")
    one = counters(t, "one", script)
    two = counters(t, "two", script, "--checkpoint-every", "0.1")
    counted = stat(one.text)
    t.check(len(counted) == 5, "five counters")
    t.equal(stat(two.text), counted, "what is counted in the second run")
    t.same("one", one)
    t.same("two", two)
    t.verify_checkpoints("two")
    lines = t.run(t.reprise, "trace", t.dir / "one", "--only", "comm:work", "--from", "console:begin", "--to", "console:done",
                  timeout=400).text.splitlines()
    insns = branches = 0
    for this, after in zip(lines, lines[1:] + [""]):
        words = this.split(None, 4)
        if words[1] != "3" or re.search(r"@asm_exc_page_fault\b", after):
            continue  # the kernel's; or it did not retire
        insns += 1
        # Zydis' names: jmp, jz, ..., call, ret, and what leaves ring 3.
        branches += bool(re.match(r"((bnd|notrack|rep) )*(j\w+|call|ret|syscall|loop\w*)\b", words[4]))
    t.equal((insns, branches), (counted["instructions:u"], counted["branches:u"]),
            "instructions and branches of the trace")
    return f"{insns} instructions, {branches} branches"


@test("counters/models", cost=40)
def models(t):
    """Each model's driver finds its counters; user instructions of the same program are the same."""
    script = ("dmesg | grep 'Performance Events'\nperf stat -x, -e instructions:u,branches:u,branch-misses:u,cache-misses:u work 20 2>&1\n")
    seen = {}
    for model in MODELS:
        r = counters(t, model, script, model=model)
        t.has(r.text, r"Performance Events: .*(Intel|AMD) PMU driver", "the kernel's log")
        seen[model] = stat(r.text)
        t.check(seen[model]["branch-misses:u"] > 0, "branches are missed")
        t.equal(seen[model]["cache-misses:u"], 0, "misses of caches that are not there")
        t.same(model, r)
    off = counters(t, "off", "dmesg | grep -i 'Performance Events'\n", "--pmu", "off", model="haswell")
    t.has(off.text, "no PMU driver|unsupported", "the kernel's log without counters")
    return ", ".join(f"{m} {seen[m]['instructions:u']}" for m in seen)


@test("counters/perf-record", cost=20)
def perf_record(t):
    """Samples of every 10,007 instructions are the same each time; the NMI watchdog counts beside them."""
    script = ("echo 1 >/proc/sys/kernel/nmi_watchdog || :\nperf record -q -e instructions:u -c 10007 -o /tmp/p work 2000 >/dev/null\n"
              "perf script -i /tmp/p -F ip,sym | sort | uniq -c\nperf record -q -e branches:u -c 1009 -o /tmp/p work 100 >/dev/null\n"
              "perf script -i /tmp/p -F ip | wc -l\n")
    one, two = (counters(t, name, script, append="nmi_watchdog=1") for name in ("one", "two"))
    t.equal(two.out.count(b"\n") > 10 and two.out, one.out, "the second run's samples")
    t.has(one.text, r"^\s+\d+\s+[0-9a-f]+ step$")
    t.same("one", one)


@test("counters/shared", cost=40)
def shared(t):
    """More events than counters, sampling by time, of all processes: the same however the run is cut."""
    script = ("perf stat -x, -e instructions:u,branches:u,branch-misses:u,cycles:k,branches:k,cache-misses,r01c4:u,r20c4:u,r02c4:k work 100 2>&1\n"
              "perf record -q -F 3000 -e branches:u -o /tmp/p work 1000 >/dev/null\nperf script -i /tmp/p -F ip | md5sum\n"
              "perf record -q -c 20011 -e cycles -o /tmp/p -a -- work 300 >/dev/null\nperf script -i /tmp/p -F ip | md5sum\n"
              "perf stat -x, -e r01c4:k,r1c0c4:u,instructions:u -I 10 work 300 2>&1\n")
    r = counters(t, "rec", script)
    t.same("rec", r)
    t.same("rec", r, env={"REPRISE_TEST_SLICE": 9973}, timeout=400)
    t.run(t.reprise, "checkpoint", t.dir / "rec", timeout=200)
    t.verify_checkpoints("rec")


@test("counters/perf-test", cost=30)
def perf_test(t):
    """What perf tests itself of counters, breakpoints and their signals."""
    numbers = (2, 4, 8, 9, 20, 21, 22, 23, 25, 26, 35, 50, 51, 71, 73, 77, 78)
    r = counters(t, "rec", f"perf test {' '.join(map(str, numbers))} 2>&1\n")
    said = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", r.text)  # newer ones write a line again, in colours
    for number in numbers:
        # Another perf has other tests of that number: of hardware that is not there.
        t.has(said, rf"^\W*{number}[:.].*: +Ok|^\W*{number}: .*:\s*$|^\W*{number}: (AMD|CoreSight) .*: Skip", f"perf's test {number}")
    t.lacks(r.text, "FAILED", "perf test")
    t.same("rec", r)
    return f"{len(re.findall(': Ok', r.text))} good"


@test("counters/rr", cost=90)
def rr(t):
    """rr records and replays a program, threads, a storm of signals."""
    script = "".join(f"rr record {what} >/tmp/a 2>/dev/null\nrr replay -a >/tmp/b 2>/dev/null\necho {what.split()[0]} $?\n"
                     "cmp /tmp/a /tmp/b && cat /tmp/b | tail -n 1\n" for what in ("ls -l /bench", "work 500", "threads", "signals"))
    r = counters(t, "rr", script, timeout=600)
    for what in ("ls", "work", "threads", "signals"):
        t.has(r.text, rf"^{what} 0$")
    t.has(r.text, r"^3200 turns of 8 threads")
    t.has(r.text, r"^500 faults, .*ticks some, signals some")
    t.same("rr", r, timeout=600)


@test("counters/rr-zen", cost=60)
def rr_zen(t):
    """By AMD's counters, too."""
    r = counters(t, "rr", "rr record threads >/tmp/a 2>/dev/null\nrr replay -a >/tmp/b 2>/dev/null\necho $?\ncmp /tmp/a /tmp/b && cat /tmp/b\n",
                 model="zen2", timeout=600)
    t.has(r.text, r"^3200 turns of 8 threads")
    t.same("rr", r, timeout=600)


@test("counters/cpus", cost=60)
def cpus(t):
    """Each CPU has counters of its own: a program has the same numbers on each; samples of all; rr on one of them."""
    # With the kernel's watch on how long its NMIs take, which includes other CPUs' turns, samples are left out.
    script = ("echo 0 >/proc/sys/kernel/perf_cpu_time_max_percent\ninit=/proc/1/root\nexport on=\"$init/bin/busybox taskset\"\n"
              "for mask in 1 2 4; do $on $mask perf stat -x, -e instructions:u,branches:u work 50 2>&1; done\n"
              "perf stat -x, -a -A -e instructions:u $on 2 work 5000 2>&1\n"
              "perf record -q -e branches:u -c 10007 -a -o /tmp/p sh -c 'for mask in 1 2 4; do $on $mask work 10000 & done; wait' >/dev/null\n"
              "perf script -i /tmp/p -F comm,cpu,ip | grep '^ *work' >/tmp/samples\n"
              "for cpu in 0 1 2; do echo sampled $(grep -c \"\\[00$cpu\\]\" /tmp/samples); done\n"
              "rr record threads >/tmp/a 2>/dev/null\nrr replay -a >/tmp/b 2>/dev/null\ncmp /tmp/a /tmp/b && cat /tmp/b\n")
    r = counters(t, "rec", script, "--cpus", "3", append="nmi_watchdog=1", timeout=600)
    alone = re.findall(r"^(\d+),,(\S+:u),\d+,100\.00", r.text, re.M)
    t.check(len(alone) == 6 and alone[:2] == alone[2:4] == alone[4:], "the same numbers on each CPU")
    each = [int(n) for n in re.findall(r"^CPU\d,(\d+),,instructions:u", r.text, re.M)]
    t.check(len(each) == 3 and each[1] > 5000000 and max(each[0], each[2]) < 100000, "user instructions are CPU 1's")
    samples = [int(n) for n in re.findall(r"^sampled (\d+)", r.text, re.M)]
    t.check(len(samples) == 3 and min(samples) > 50 and max(samples) - min(samples) < 3, "as many samples of each CPU")
    t.has(r.text, r"^3200 turns of 8 threads")
    t.same("rec", r, env={"REPRISE_TEST_SLICE": 9973}, timeout=600)
    return f"{alone[0][0]} instructions, {alone[1][0]} branches on each; samples {samples}"


def taken_branches(lines):
    """(from, to, whether a branch that goes as it looks) of the branches that a trace of one process has in ring 3."""
    user = []
    for this, after in zip(lines, lines[1:]):
        words = this.split(None, 4)
        if words[1] == "3" and not re.search(r"@asm_exc_page_fault\b", after):  # else it has not retired
            user.append((int(words[2], 16), len(words[3]) // 2, words[4]))
    taken = []
    for (at, size, text), (to, _, _) in zip(user, user[1:]):
        kind = re.match(r"(?:(?:bnd|notrack|rep) )*(j\w+|call|ret|loop\w*)\b", text)
        if kind and (kind[1] in ("jmp", "call", "ret") or to != at + size):
            taken.append((at, to, "P" if kind[1] in ("jmp", "call", "ret") or to <= at else "M"))
    return taken


@test("counters/branches", cost=30)
def branches(t):
    """perf's branch stacks are rows of the branches that our trace has; call graphs by them go back to the program's start."""
    script = ("dmesg | grep 'Performance Events'\necho begin\nperf record -q -b -e branches:u -c 1009 -o /tmp/p work 5 >/dev/null\necho done\n"
              "perf script -i /tmp/p -F brstack\n"
              "perf record -q --call-graph lbr -e instructions:u -c 100003 -o /tmp/p work 3000 >/dev/null\n"
              "perf script -i /tmp/p -F ip,sym >/tmp/s\nfor f in main _start; do echo called $f $(grep -c \" $f$\" /tmp/s); done\n")
    depth, r = 32, counters(t, "rec", script)
    t.has(r.text, rf"Performance Events: .*\b{depth}-deep LBR", "the kernel's log")
    called = {m[1]: int(m[2]) for m in re.finditer(r"^called (\w+) (\d+)", r.text, re.M)}
    t.check(called["_start"] > 20 and called["main"] == called["_start"], f"callers: {called}")
    lines = t.run(t.reprise, "trace", t.dir / "rec", "--only", "comm:work", "--from", "console:begin", "--to", "console:done",
                  timeout=400).text.splitlines()
    taken = taken_branches(lines)
    ends = {}
    for i, branch in enumerate(taken):
        ends.setdefault(branch, []).append(i + 1)
    stacks = [[(int(a, 16), int(b, 16), m) for a, b, m in re.findall(r"0x([0-9a-f]+)/0x([0-9a-f]+)/([MP])/", line)][::-1]
              for line in r.text.splitlines() if line.strip().startswith("0x")]
    t.check(len(stacks) > 20 and max(map(len, stacks)) == depth, f"{len(stacks)} samples with branches")
    before = 0
    for n, stack in enumerate(stacks):
        there = [end for end in ends.get(stack[-1], ()) if end > before and taken[end - len(stack):end] == stack]
        t.check(there, f"sample {n}: no such row of branches in the trace after branch {before}: {stack}")
        before = there[0]
    t.same("rec", r)
    return f"{len(stacks)} stacks of {len(taken)} branches"


@test("counters/threads", cost=15)
def threads(t):
    """AnyThread counts the other thread of the core, and none of another core."""
    script = ("init=/proc/1/root\nexport on=\"$init/bin/busybox taskset\"\n"
              "for mask in 1 2 4; do perf stat -x, -C 0 -e cpu/event=0xc0,any=1,name=any/u,instructions:u $on $mask work 5000 2>&1; done\n"
              "perf record -q -C 0 -e cpu/event=0xc4,any=1/u -c 10007 -o /tmp/p $on 2 work 5000 >/dev/null\n"
              "echo sampled $(perf script -i /tmp/p -F ip | wc -l)\n")
    r = counters(t, "rec", script, "--cpus", "4,cores=2,threads=2", timeout=400)
    seen = [int(n) for n in re.findall(r"^(\d+),,(?:any|instructions)(?::u)?,\d+,100\.00", r.text, re.M)]
    t.equal(len(seen), 6, "counters")
    many = seen[1]
    t.check(many > 5000000, f"{many} instructions on CPU 0")
    t.check(abs(seen[0] - many) < 500000 and abs(seen[2] - many) < 500000, f"any thread's of the core: {seen}")
    t.check(max(seen[3:]) < 500000, f"what other threads do: {seen}")
    # CPU 1's branches interrupt CPU 0, at its next turn.
    samples = int(re.search(r"^sampled (\d+)", r.text, re.M).group(1))
    t.check(samples > 5, f"{samples} samples of CPU 0")
    t.same("rec", r)
    t.same("rec", r, env={"REPRISE_TEST_SLICE": 9973}, timeout=600)
    return f"{seen}, {samples} samples"


@test("counters/perf-top", cost=15)
def perf_top(t):
    """`perf list` knows the events, `perf top` shows who runs."""
    script = ("perf list hw 2>&1 | cat\nperf list pmu 2>&1 | grep -c -E '^  [a-z]+_?[a-z0-9]*\\.[a-z]'\nwork 3000000 >/dev/null &\n"
              "sleep 9 | timeout -s INT 4 perf top --stdio -d 1 -e branches:u -c 100003 2>&1 | cat\nkill %1\n")
    r = counters(t, "rec", script)
    for event in ("branch-instructions", "branch-misses", "cpu-cycles", "instructions", "ref-cycles"):
        t.has(r.text, rf"^ *{event}\b.*\[Hardware event\]")
    named = int(re.search(r"^(\d+)$", r.text, re.M).group(1))
    t.check(named > 100, f"{named} events of the model")
    last = r.text[r.text.rindex("PerfTop:"):]
    t.has(last, r"PerfTop: +\d{3,} irqs/sec .*100003 branches:u")
    shares = {m[2]: float(m[1]) for m in re.finditer(r"^ +([\d.]+)% +work +\[\.\] (main|step)", last, re.M)}
    t.check(len(shares) == 2 and sum(shares.values()) > 90, f"perf top shows work: {shares}")
    t.same("rec", r)
    return f"{named} events of the model; {shares}"


@test("counters/options")
def options(t):
    """--pmu on is refused where there are none."""
    kernel = IMAGES / "tiny" / "rep.elf"
    r = t.record("none", "--pmu", "on", kernel=kernel, code=USAGE)
    t.has(r.error, "the model x86-64-v2 has no performance counters")
    r = t.record("free", "--cpu", "nehalem", "--pmu", "on", "--counter", "pmu", kernel=kernel, code=USAGE)
    t.has(r.error, "--pmu: with --counter=pmu")
    r = t.record("what", "--pmu", "maybe", kernel=kernel, code=USAGE)
    t.has(r.error, "'maybe' is none of on, off")
    t.need_model("nehalem")
    t.tiny("on", "rep", "--cpu", "nehalem")
    t.equal(t.info("on")["pmu"], "on", "what info says of the counters")
    t.replay("on", code=FINE)


# rr's, which take too long for all of them to be run each time.
RR_COUNT = 1566
# `chown` wants a group beside its own; Debian 12's lldb looks for its Python module where it is not.
RR_TESTS = """mount -t tmpfs log /rr/obj/Testing
cd /rr/obj
export PYTHONPATH=$(echo /usr/lib/llvm-*/lib/python3.*/dist-packages)
ctest -N | tail -n 1
/usr/bin/setpriv --groups 0 ctest --timeout 700 --output-on-failure -I %s || echo some failed
"""
# Neither with rr nor without: there is no bridge in the guest's kernel, and no Ethernet device.
RR_FAIL = {"ioctl_br", "ioctl_br-no-syscallbuf", "sioc", "sioc-no-syscallbuf"}


def soak_rr(t, rnd):
    """Twenty of rr's own tests, each of which records a program and replays it, under our recording and its replay."""
    first = rnd.randrange(1, RR_COUNT - 18)  # the last twenty, too
    print(f"     rr's tests {first} to {first + 19}", flush=True)
    r = counters(t, "rec", RR_TESTS % f"{first},{first + 19}", image="rr-tests", model=rnd.choice(("skylake-server", "icelake-server")),
                 seed=rnd.getrandbits(32), memory="3G", append="nmi_watchdog=0", timeout=7200)
    passed = re.findall(r"Test +#\d+: (\S+) \.+ +Passed", r.text)
    other = dict(re.findall(r"Test +#\d+: (\S+) \.+ *\*\*\*(\w+)", r.text))
    t.has(r.text, rf"^Total Tests: {RR_COUNT}\r?$")
    t.equal(len(passed) + len(other), 20, "tests that ended")
    t.equal({x: why for x, why in other.items() if why != "Skipped" and x not in RR_FAIL}, {}, "tests that did not pass")
    t.same("rec", r, timeout=14400)
