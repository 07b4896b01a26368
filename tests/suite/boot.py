"""Linux boots: recorded, replayed with --verify, and what the guest says about itself."""
import hashlib
import os
import random
import re
import time

from suite.harness import ERROR, IMAGES, NO_TEXT, ROOT, TIMEOUT, Session, cpu, rnd, test

GUEST_CHECK = f"{IMAGES}/guest/check:/bin/check"
NOISE = r"WARNING:|BUG:|Oops|unchecked MSR|general protection|segfault|[Cc]all [Tt]race|rcu_sched"
CALIBRATION = r"PIT calibration|APIC calibration|calibrat.*APIC|[Rr]efined TSC|unable to calibrate"


def image(t, name="linux"):
    if not (IMAGES / name / "vmlinuz").exists():
        t.check(False, f"build/images/{name} is missing: make images")


def boot(name, options, kind="linux", cost=3):
    @test("boot/" + name, cost=cost)
    def run(t):
        image(t, kind)
        if "--cpu" in options:
            t.need_model(options[options.index("--cpu") + 1])
        r = t.linux("rec", *options, image=kind, append="-- uname -a; cat /proc/cmdline")
        t.has(r.text, "^Linux .* x86_64 GNU/Linux")
        t.has(r.text, "reprise: script ended with status 0")
        t.has(r.text, "reboot: Power down")
        t.lacks(r.text, NOISE + ("" if "zen2" in options else "|" + CALIBRATION))
        t.same("rec", r)
        info = t.info("rec")
        t.equal((info["end"], info["state"]), ("poweroff", "complete"), "the end")
        t.check(info["log_bytes"] <= 65536, f"the log has {info['log_bytes']} bytes")
        return f"{info['position'] / 1e9:.2f} G instructions, log {info['log_bytes']} B"


boot("cloud-v2", ())
boot("cloud-v3", ("--cpu", "x86-64-v3"))
boot("cloud-v4", ("--cpu", "x86-64-v4"))
boot("generic", ("--memory", "1G"), "generic", cost=10)
boot("generic-v3", ("--memory", "1G", "--cpu", "x86-64-v3"), "generic", cost=10)
boot("generic-zen2", ("--memory", "1G", "--cpu", "zen2"), "generic", cost=10)
boot("generic-icelake", ("--memory", "1G", "--cpu", "icelake"), "generic", cost=10)
boot("small", ("--memory", "160M"))
boot("above-4g", ("--memory", "5G"), cost=6)


def dmesg(model, cost=3):
    @test("boot/dmesg-" + model, cost=cost)
    def run(t):
        """Linux mitigates nothing on this machine, calibrates nothing, meets no MSR that it misses, and
        knows the CPU; a program there has CPUID and RDTSC taken away from itself."""
        script = """dmesg
grep . /sys/devices/system/cpu/vulnerabilities/*
cat /sys/devices/system/clocksource/clocksource0/current_clocksource
cat /proc/interrupts
cat /proc/cpuinfo
asks
"""
        t.need_model(model)
        amd = model == "zen2"  # Linux reads the TSC's frequency of Intel's CPUs only
        r = t.linux("rec", "--cpu", cpu(model), "--add", f"{IMAGES}/guest/asks:/bin/asks", script=script)
        t.lacks(r.text, NOISE + "|^BAD" + ("" if amd else "|" + CALIBRATION))
        t.has(r.text, r"tsc: Detected (999\.9\d\d|1000\.0\d\d) MHz" if amd else r"tsc: Detected 1000\.000 MHz", "dmesg")
        lines = re.findall(r"vulnerabilities/(\w+):(.*)", r.text)
        t.check(len(lines) >= 10, "no vulnerabilities listed")
        for name, state in lines:
            # These two always name something; only retpolines would cost. Enhanced IBRS costs nothing.
            if name in ("spectre_v1", "spectre_v2"):
                t.lacks(state, "Retpoline", name)
            elif model != "skylake-server" or name != "retbleed":
                t.equal(state.strip(), "Not affected", "the mitigation of " + name)
            else:
                t.equal(state.strip(), "Mitigation: Enhanced IBRS", "the mitigation of " + name)
        t.lacks(r.text, "page tables isolation: enabled")
        # Where the TSC was calibrated Linux refines that for a second first.
        t.has(r.text, "^tsc(-early)?$" if amd else "^tsc$", "current_clocksource")
        faulting = model in ("haswell", "skylake-server", "icelake-server")
        t.equal("NONE cpuid" not in r.text, faulting, "whether CPUID faults")
        t.equal(bool(re.search(r"^flags\s.* cpuid_fault ", r.text, re.M)), faulting, "the flag cpuid_fault")
        t.has(r.text, "^OK no longer$")
        t.same("rec", r)
        return f"{t.info('rec')['position'] / 1e9:.2f} G instructions"


for name in ("v2", "v3", "nehalem", "haswell", "skylake-server", "icelake-server", "zen2"):
    dmesg(name)


def workload(model):
    @test("boot/workload-" + model, cost=16)
    def run(t):
        """The workload in the guest: right answers, and it replays."""
        if model == "v3":
            t.need_v3()
        r = t.linux("rec", "--cpu", "x86-64-" + model, "--add", GUEST_CHECK, "--add",
                    ROOT / "tests/guest/workload.sh", timeout=300,
                    script=f"MODEL={model} sh /workload.sh")
        x, s = 0.5, 0.0
        for i in range(1, 100001):
            x = 3.75 * x * (1 - x)
            s += x / i
        text = b"the quick brown fox\n"
        numbers = "".join(f"{i}\n" for i in range(1, 150001)).encode()
        checks = 64 if model == "v3" else 49
        for line in (
                "sha256 " + hashlib.sha256((text * (67108864 // len(text) + 1))[:67108864])
                .hexdigest(),
                "zeros " + hashlib.sha512(bytes(8388608)).hexdigest()[:32],
                "gzip " + hashlib.md5(numbers).hexdigest(),
                f"awk {x:.15g} {s:.15g}",
                f"forks {sum(i % 7 for i in range(500))}",
                "pipes 20 999", "signals 100", "killed 143", "urandom 1048576",
                f"check 0 {checks}"):
            t.has(r.text, "^OK " + re.escape(line) + "$")
        t.lacks(r.text, NOISE + "|^BAD")
        t.same("rec", r, timeout=300)
        info = t.info("rec")
        return f"{info['position'] / 1e9:.2f} G instructions, log {info['log_bytes']} B"


workload("v2")
workload("v3")


def compat(name, *options):
    @test("boot/" + name, cost=5)
    def run(t):
        program_prints_the_same(t, *options)


def program_prints_the_same(t, *options):
    """A 32-bit program prints in the guest what it prints on this CPU: system calls both ways, faults
    and signals, segments of an LDT, far calls to 64-bit code and back."""
    program = IMAGES / "guest" / "compat"
    try:
        native = t.run(program)
    except OSError as e:
        t.skip(f"this host's kernel runs no 32-bit programs: {e}")
    r = t.linux("rec", *options, "--add", f"{program}:/bin/compat", append="quiet", script="compat; echo END")
    t.lacks(r.text, NOISE)
    said = r.text.partition("pusha")
    t.equal((said[1] + said[2].partition("END")[0]).split("\n")[:-1], native.text.splitlines(),
            "what it prints")
    t.same("rec", r)
    return f"{len(native.text.splitlines())} lines"


compat("compat")
compat("compat-zen2", "--cpu", "zen2")  # by AMD's SYSCALL


def ten(part):
    @test(f"boot/seeds-{part}", cost=14)
    def run(t):
        """Ten boots in all with other seeds, typed input or none, paced and not."""
        for turn in range(5):
            seed = rnd.getrandbits(32)
            name = f"rec{turn}"
            if turn == 4:
                r = t.linux(name, "--seed", seed, script="echo $((6*7)); cat /proc/uptime; sleep 1")
                t.has(r.text, "^42$")
                t.same(name, r)
                continue
            s = Session(t, name, "--seed", seed, *(["--no-realtime"] if turn % 2 else []))
            s.prompt()
            for _ in range(3):
                time.sleep(rnd.random() / 3)
                s.send("cat /proc/uptime; sleep 0.1\n")
            time.sleep(rnd.random() / 3)
            t.has(s.type("echo $((6*7))", "\\r\n42\r\n"), "42")
            s.send("head -c 8 /dev/urandom | md5sum; poweroff -f\n")
            s.finish()
            t.has(s.out.decode("utf-8", "replace"), "reboot: Power down")
            t.equal(t.replay(name).out, s.out, "the console of the replay")
            t.equal(t.info(name)["seed"], seed, "the seed in the recording")
            t.run("rm", "-r", t.dir / name)


for number in range(2):
    ten(number)


@test("boot/seed-decides", cost=6)
def seed(t):
    """The guest's randomness follows from --seed."""
    sums = {}
    for name, value in (("a", 1), ("b", 1), ("c", 2)):
        r = t.linux(name, "--seed", value, append="-- head -c 64 /dev/urandom | md5sum")
        sums[name] = re.search(r"^([0-9a-f]{32})", r.text, re.M).group(1)
    t.check(sums["a"] != sums["c"], "two seeds gave the same random bytes")


@test("boot/add", cost=3)
def add(t):
    """--add: files, a name of their own, directories; modes kept."""
    (t.dir / "one").write_text("first\n")
    (t.dir / "two.sh").write_text("#!/bin/sh\necho ran $0\n")
    os.chmod(t.dir / "two.sh", 0o755)
    (t.dir / "tree" / "sub").mkdir(parents=True)
    (t.dir / "tree" / "sub" / "leaf").write_text("leaf\n")
    os.symlink("sub/leaf", t.dir / "tree" / "link")
    r = t.linux("rec", "--add", t.dir / "one", "--add", f"{t.dir}/two.sh:/bin/second", "--add",
                f"{t.dir}/tree:/data", append="-- cat /one; second; cat /data/link; ls -l /data")
    for line in ("first", "ran /bin/second", "leaf"):
        t.has(r.text, f"^{line}$")
    t.has(r.text, "link -> sub/leaf")
    t.same("rec", r)


@test("boot/elf", cost=4)
def elf(t):
    """The vmlinux that was taken out of the bzImage, given as a plain ELF."""
    t.linux("first", "--max-insns", 1000)
    size = t.info("first")["kernel_size"]
    vmlinux = [f for f in (t.dir / "first" / "files").iterdir() if f.stat().st_size == size]
    t.equal(len(vmlinux), 1, "the number of kernels kept")
    r = t.record("rec", "--initrd", IMAGES / "linux" / "initrd", "--append", "-- uname -a",
                 kernel=vmlinux[0])
    t.has(r.text, "^Linux .* x86_64")
    t.same("rec", r)


@test("boot/limits", cost=8)
def limits(t):
    """--stop-at, --max-insns, --timeout."""
    r = t.linux("text", "--stop-at", "Run /init as", append="-- echo not reached")
    t.lacks(r.text, "^not reached$")
    t.has(r.error, "text of --stop-at was printed")
    t.same("text", r)
    r = t.linux("notext", "--stop-at", "no such text", append="-- true", code=NO_TEXT)
    t.has(r.error, "did not print 'no such text'")
    t.same("notext", r)
    r = t.linux("insns", "--max-insns", 123456789)
    t.equal(t.info("insns")["position"], 123456789, "the position of the end")
    t.same("insns", r)
    r = t.linux("time", "--timeout", "0.7", append="-- while :; do :; done", code=TIMEOUT)
    t.has(r.error, "time limit")
    t.check(r.seconds < 3 * t.slow, f"--timeout 0.7 took {r.seconds:.1f} s")
    t.same("time", r)


@test("boot/slices", cost=14)
def slices(t):
    """Where the run loop stops shows nowhere."""
    script = "cat /proc/interrupts /proc/uptime; sleep 1; ls -R /sys | md5sum; date"
    r = t.linux("rec", script=script, env={"REPRISE_TEST_SLICE": 77773})
    for length in (10007, 0, 5000011):
        t.same("rec", r, env={"REPRISE_TEST_SLICE": length})
    t.run(t.reprise, "replay", "-o", t.dir / "again", t.dir / "rec",
          env={"REPRISE_TEST_SLICE": 20011})
    t.run(t.reprise, "diff", t.dir / "rec", t.dir / "again")


@test("boot/code-cache", cost=14)
def code_cache(t):
    """A boot whose code does not fit into the code cache is the same boot."""
    script = "ls -R /sys | md5sum; gzip -c /proc/kallsyms | gunzip | wc; ps >/dev/null; date"
    r = t.linux("rec", "--code-cache", "4M", script=script)
    t.same("rec", r)
    t.same("rec", r, "--code-cache", "4096K", env={"REPRISE_TEST_SLICE": 77773})
    t.same("rec", r, "--code-cache", "7M", env={"REPRISE_TEST_CODE_CACHE": 150})
    t.run(t.reprise, "replay", "-o", t.dir / "again", "--code-cache", "5M", t.dir / "rec")
    t.run(t.reprise, "diff", t.dir / "rec", t.dir / "again")
    t.run(t.reprise, "replay", "--to", "end", "--code-cache", "4M", t.dir / "rec")
    t.run(t.reprise, "checkpoint", "--code-cache", "4M", t.dir / "rec")


@test("boot/trace", cost=8)
def trace(t):
    """Windows of a boot's trace fit together, also across the user-kernel border."""
    t.linux("rec", append="-- true")
    end = t.info("rec")["position"]
    rnd = random.Random(7)
    for start in (0, rnd.randrange(end // 2), end - 5000):
        def window(a, b):
            out = t.run(t.reprise, "trace", "--from", a, "--to", b, t.dir / "rec").text
            return [line.rstrip() for line in out.splitlines()]
        whole = window(start, start + 999)
        while len(whole) < 100:  # clearing a page is one line
            start += 5000
            whole = window(start, start + 999)
        # Deliveries are positions without a line; REP iterations are one line, "first-last".
        positions = [int(x.split()[0].split("-")[0]) for x in whole]
        t.equal(positions, sorted(set(positions)), "the positions")
        middle = len(whole) // 2
        t.equal(window(positions[middle], start + 999), whole[middle:],
                "the trace of the second half")


@test("boot/perturb", cost=8)
def perturb(t):
    """A deliberate nondeterminism is caught and named, by replay and by diff."""
    s = Session(t, "rec", "--no-realtime")
    s.prompt()
    s.type("echo hello")
    s.type("cat /proc/uptime")
    s.send("poweroff -f\n")
    s.finish()
    events = t.events("rec")
    inputs = [e for e in events if e["type"] == "console"]
    for number in (1, len(inputs) // 2, len(inputs)):
        where = inputs[number - 1]["position"]
        r = t.replay("rec", "-o", t.dir / "other", "--force", code=3,
                     env={"REPRISE_TEST_PERTURB": number})
        named = re.search(r"diverged at position (\d+)", r.error)
        agreed = re.search(r"still agreed at position (\d+)", r.error)
        later = [e["position"] for e in events if e["position"] > where][:1] or [where]
        t.check(named and agreed and where <= int(named.group(1)) <= later[0] + 1 and
                int(agreed.group(1)) <= where,
                f"input {number} at {where} was changed; the report: {r.error.strip()[:100]}")
        d = t.run(t.reprise, "diff", t.dir / "rec", t.dir / "other", code=ERROR).text
        t.has(d, r"first difference at position \d+: ")
        position = int(re.search(r"first difference at position (\d+)", d).group(1))
        t.equal(position, where, "the position that diff names")
