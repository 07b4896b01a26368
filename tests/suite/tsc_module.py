"""The guest's module that answers RDTSC with the virtual TSC (guest-agent/tsc), on its own image."""
import re

from suite.gdb import need_gdb
from suite.harness import FINE, IMAGES, test

APPEND = "quiet clearcpuid=tsc randomize_kstack_offset=off"
LOAD = "insmod /lib/modules/$(uname -r)/reprise_tsc.ko"
TESTS = ("values", "processes", "prctl", "clocks", "prefixes", "page-ends", "other-faults", "umip",
         "trap-flag", "ptrace")


def boot(t, name, script, append=APPEND, **more):
    if not (IMAGES / "generic-tsc" / "initrd").exists():
        t.skip("build/images/generic-tsc is not built: make image-tsc")
    return t.linux(name, "--no-realtime", "--seed", 1, image="generic-tsc", append=append,
                   script=script, end="exit", **more)


def all_good(t, text):
    for name in TESTS:
        t.has(text, f"^ok {name}$")
    t.lacks(text, "^FAIL")
    t.lacks(text, r"BUG:|WARNING:|Oops|Call Trace")


@test("tsc/module", cost=15)
def module(t):
    """Programs read the virtual TSC, and see nothing else of it; removed, everything is as before."""
    r = boot(t, "rec", f"""{LOAD} || exit 1
tsc-test || exit 2
rmmod reprise_tsc || exit 3
tsc-test plain || exit 4
{LOAD} && tsc-test && rmmod reprise_tsc || exit 5
dmesg | grep -A30 -E 'BUG|WARNING|Oops' && exit 6
exit 0
""")
    all_good(t, r.text)
    t.has(r.text, "^tsc-test: -1 answers")
    t.equal(len(re.findall("^ok values$", r.text, re.M)), 2, "the number of good runs with the module")
    t.same("rec", r)
    return re.search(r"^tsc-test: (.*), 0 wrong$", r.text, re.M).group(1)


@test("tsc/kernel", cost=15)
def kernel(t):
    """With the module, and the command line of its README, the kernel executes no RDTSC any more."""
    r = boot(t, "rec", f"""{LOAD} || exit 1
cd /sys/module/reprise_tsc/parameters
echo "before: $(cat kernel_answers)"
echo begin; for i in 1 2 3; do read uptime </proc/uptime; done; echo end
echo "after: $(cat kernel_answers), $(cat kernel_places) places"
""")
    before, after = (int(n) for n in re.findall("^(?:before|after): ([0-9]+)", r.text, re.M))
    t.check(after > before, "the kernel asked for nothing in between")
    trace = t.dir / "trace"
    with open(trace, "wb") as f:
        t.run(t.reprise, "trace", "--from", "console:begin", "--to", "console:end", t.dir / "rec",
              stdout=f, timeout=200)
    total = read = reached = 0
    with open(trace, encoding="utf-8") as f:
        for line in f:
            total += 1
            read += bool(re.search(r"\brdtscp?\b", line))
            reached += "int3" in line
    trace.unlink()
    t.check(total > 10000, f"only {total} instructions")
    t.check(reached, "no breakpoint of a kprobe in there")
    t.equal(read, 0, "the number of RDTSC executed")
    t.same("rec", r)
    return f"{total} instructions, {reached} breakpoints, {after - before} answers"


@test("tsc/kernel-modules", cost=8)
def kernel_modules(t):
    """RDTSC of modules that are loaded before or after it are answered too."""
    r = boot(t, "rec", """cd /lib/modules/$(uname -r)
places() { echo "$1: $(cat /sys/module/reprise_tsc/parameters/kernel_places)"; }
insmod crc16.ko && insmod mbcache.ko && insmod jbd2.ko || exit 1
insmod reprise_tsc.ko && places without && insmod ext4.ko && places later || exit 2
rmmod ext4 && places gone && rmmod reprise_tsc || exit 3
insmod ext4.ko && insmod reprise_tsc.ko && places before && rmmod ext4 && places again || exit 4
rmmod reprise_tsc
""")
    places = {k: int(v) for k, v in re.findall("^([a-z]+): ([0-9]+)$", r.text, re.M)}
    t.check(places["later"] > places["without"], f"ext4 has none: {places}")
    t.equal((places["gone"], places["before"], places["again"]),
            (places["without"], places["later"], places["without"]), "the numbers of places")
    t.lacks(r.text, r"BUG:|WARNING:|Oops|Call Trace")
    t.same("rec", r)
    named(t)


def named(t):
    """Where a module runs that came after a debugger had read the kernel's symbols, its functions have names, and its callers."""
    need_gdb(t)
    at = t.run(t.reprise, "replay", t.dir / "rec", "--to", "console:before: ", "--mem", "ext4:ext4_exit_fs,1").text
    address = re.search(r"(?m)^(?:0x)?([0-9a-f]{16})\b", at).group(1)
    r = t.run(t.reprise, "gdb", t.dir / "rec", "--to", "console:gone: ", "--", "-nx", "-batch", "-ex", f"hbreak *0x{address}", "-ex", "continue",
                "-ex", "monitor when", timeout=200)
    t.has(r.error, rf"(?m)^RIP +{address} +(ext4_exit_fs|cleanup_module)\b")


@test("tsc/reload", cost=30)
def reload(t):
    """Loaded and removed under programs that read the TSC all the time: they notice nothing."""
    r = boot(t, "rec", f"""pids=
for i in 1 2; do tsc-test endless & pids="$pids $!"; done
for i in 1 2; do
    usleep 20000; {LOAD} || exit 1
    usleep 50000; cat /sys/module/reprise_tsc/parameters/user_answers
    rmmod reprise_tsc || exit 2
done
kill $pids
for i in $pids; do wait $i || exit 3; done
""")
    t.equal(len([n for n in re.findall("^([0-9]+)$", r.text, re.M) if int(n) > 10]), 2,
            "how often it was there and was needed")
    t.equal(len(re.findall("^ok endless", r.text, re.M)), 2, "the number of programs that were content")
    t.lacks(r.text, r"BUG:|WARNING:|Oops|Call Trace")
    t.same("rec", r)


@test("tsc/pti", cost=12)
def pti(t):
    """With page-table isolation, which our CPU model does not need, it works as well."""
    r = boot(t, "rec", f"dmesg | grep -i 'isolation: enabled'; {LOAD} && tsc-test",
             append=APPEND + " pti=on", code=FINE)
    t.has(r.text, "isolation: enabled")
    all_good(t, r.text)


def refused(name, append, prepare, why):
    @test(f"tsc/{name}", cost=6)
    def run(t):
        """Where it cannot do its work it is not loaded, and says why in one sentence."""
        r = boot(t, "rec", f"""{prepare}
{LOAD} && exit 1
[ ! -e /sys/module/reprise_tsc ] || exit 2
dmesg | grep 'reprise_tsc: not loaded'
tsc-test plain # no test of UMIP's where there is none
exit 0
""", append=append)
        t.has(r.text, "reprise_tsc: not loaded: " + why)
        t.equal(len(re.findall("reprise_tsc: not loaded", r.text)), len(re.findall(why, r.text)),
                "the number of reasons")
        t.has(r.text, "^ok prefixes$")


refused("uses-tsc", "quiet", "", "the kernel itself uses the TSC; boot it with clearcpuid=tsc")
refused("no-umip", APPEND.replace("=tsc", "=tsc,umip"), "", "the kernel does not use UMIP")
refused("no-ftrace", APPEND, "echo 0 >/proc/sys/kernel/ftrace_enabled", "fixup_umip_exception cannot be hooked")
refused("no-kprobes", APPEND, "mount -t debugfs debugfs /sys/kernel/debug; "
        "echo 0 >/sys/kernel/debug/kprobes/enabled", "kprobes are switched off")
