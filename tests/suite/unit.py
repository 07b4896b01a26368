"""tests/unit, tests/fuzz and tests/insn: programs that test by themselves."""
import random
import re
import shutil
import sys

from suite.boot import image
from suite.gpu_play import renderer as gpu_renderer
from suite.harness import ROOT, Failure, rnd, test


def unit(name):
    @test("unit/" + name, cost=3)
    def run(t):
        r = t.run(t.build / "tests" / "unit" / ("test_" + name), timeout=120, cwd=ROOT)
        passed = re.search(r"\[  PASSED  \] (\d+) test", r.text + r.error)
        return f"{passed.group(1)} cases" if passed else ""


for path in sorted((ROOT / "tests" / "unit").glob("test_*.c")):
    unit(path.stem[len("test_"):])


def fuzz(name, runs=20000, renderer=False):
    @test("fuzz/" + name, cost=8)
    def run(t):
        """The committed corpus, then a fixed number of mutations of it."""
        if renderer:
            gpu_renderer(t)
        program = ROOT / "build" / "asan" / "tests" / "fuzz" / ("fuzz_" + name)
        if name == "libvirt_xml" and not (t.build / "reprise-libvirt").exists():
            t.skip("Debian's libvirt-dev and libxml2-dev are missing")
        corpus = ROOT / "tests" / "fuzz" / "corpus" / name
        return t.run(program, corpus, env={"FUZZ_SEED": 1, "FUZZ_RUNS": runs,
                                             "FUZZ_RENDERER": t.build / "reprise-gpu"}, timeout=900) \
            .text.strip().splitlines()[-1]


# Each target has a corpus; mk/test.mk and tests/soak.py go by these folders as well.
TARGETS = sorted(path.name for path in (ROOT / "tests" / "fuzz" / "corpus").iterdir() if path.is_dir())
# Much is behind each of these, the host's part and a log; each log of these starts a renderer.
# The soak has more of all.
SLOW = {"virtio-gpu": 5000, "gpu_play": 40, "libvirt_xml": 8000, "run_write": 2000, "disk_chain": 5000, "log": 8000,
        "agent_copy": 2500, "kallsyms": 8000}
for one in TARGETS:
    fuzz(one, SLOW.get(one, 20000), renderer=one == "gpu_play")


def forging_bases(t):
    """Small recordings of every kind, for fuzz_recording."""
    for guest, *options in (("interrupts",), ("paging",), ("haltforever",), ("rep",), ("msr", "branch"),
                            ("exceptions", "branch")):
        t.tiny("base-" + "-".join((guest, *options)), guest, "--checkpoint-every", "0.001", "--seed", 1,
               "--no-realtime", code=None,
               env={"REPRISE_TEST_BRANCH": "1"} if "branch" in options else {})
    (t.dir / "typed").write_bytes(b"hello\n\x01b\nexit\n")
    with open(t.dir / "typed", "rb") as f:
        t.tiny("base-echo", "echo", stdin=f)
    (t.dir / "disk.img").write_bytes(bytes(1 << 20))
    t.tiny("base-devices", "stretch", "--disk", t.dir / "disk.img", "--net", "user", "--gpu", "2d", "--console",
           "hvc0", "--port", "a=out:/dev/null", "--share", t.dir, "--checkpoint-every", "0.001", "--no-realtime", code=None)
    return ":".join(str(p) for p in sorted(t.dir.glob("base-*")) if p.is_dir())


def reached(t, trace):
    """What was opened, made, started or connected to that no forged recording may name."""
    place = re.search(r'"(/[^"]*/reprise-forged-\w+)/forged', trace).group(1)
    own = re.compile(re.escape(place) + r"(/|$)|/dev/null$|/proc/self/|" + re.escape(str(t.state)) + "(/|$)")
    found = set()
    for line in trace[trace.index(place + "/forged"):].splitlines():
        call = re.match(r"(?:\d+ +)?(\w+)\((.*)", line)
        if not call or call[1] in ("getcwd", "wait4", "exit", "exit_group") or \
                call[1] in ("clone", "clone3") and "CLONE_THREAD" in line or \
                call[1] == "utimensat" and call[2][0].isdigit() and ", NULL, " in line:  # of what is open
            continue
        # The image that this user's recorder noted for the recording that these were made of.
        if f'"{t.dir / "disk.img"}", O_RDONLY' in line:
            continue
        paths = re.findall(r'"((?:[^"\\]|\\.)*)"', call[2])
        # By a descriptor of a directory that is itself open: only names without "..".
        if paths and all(own.match(p) or "AT_FDCWD" not in line and not re.match(r"/|\.\.", p) and "/../" not in p
                         for p in paths):
            continue
        found.add(line)
    return found


@test("fuzz/recording", cost=25)
def fuzz_recording(t, seed=1, runs=300, traced=False):
    """Forged recordings, checksums right, on the real machine: opened, replayed, moved about in."""
    trace = t.dir / "trace"
    by = ("strace", "-f", "--seccomp-bpf", "-qq", "-s", "4096", "-o", trace, "-e",
          "trace=%file,%network,%process,memfd_create") if traced else ()
    r = t.run(*by, ROOT / "build" / "asan" / "tests" / "fuzz" / "fuzz_recording", timeout=6000,
              env={"FUZZ_SEED": seed, "FUZZ_RUNS": runs, "FUZZ_RECORDINGS": forging_bases(t),
                   "ASAN_OPTIONS": "abort_on_error=1" + ":detect_leaks=0" * traced})  # leaks: not with strace
    opened = int(re.search(r"opened (\d+)", r.text).group(1))
    t.check(opened > runs // 4, f"only {opened} of {runs} could be opened")
    if traced:
        found = reached(t, trace.read_text(errors="replace"))
        t.check(not found, f"reached: {sorted(found)[:5]}")
    return r.text.strip().splitlines()[-1]


@test("fuzz/recording-traced", cost=15)
def fuzz_recording_traced(t):
    """... of which none has a file opened but its own, a process started or a socket made."""
    if not shutil.which("strace"):
        t.skip("strace is not installed")
    return fuzz_recording(t, rnd.getrandbits(31), 150, True)


def fuzz_lies(t, seed=1, runs=60, places=5):
    """The last line of `fuzz_inspect`, at places drawn with the seed."""
    image(t)
    t.linux("lies", "--memory", "256M", "--checkpoint-every", "0.2", append="quiet",
            script="(sleep 1; sleep 1) & for i in 1 2 3; do echo $i; sleep 0.3; done | cat\n")
    draw, end = random.Random(seed), t.info("lies")["position"]
    where = ["console:2", "end-20"] + [draw.randrange(end // 2, end) for _ in range(places - 2)]
    r = t.run(ROOT / "build" / "asan" / "tests" / "fuzz" / "fuzz_inspect", "--runs", runs, "--seed", seed, t.dir / "lies", *where,
              timeout=900, env={"ASAN_OPTIONS": "abort_on_error=1"})
    t.check(r.text.count("processes known") >= 2, "no place where the guest's processes are known")
    return r.text.strip().splitlines()[-1]


@test("fuzz/inspect", cost=20)
def fuzz_inspect(t):
    """A guest's kernel whose structures are other ones each time it is looked at: nothing of ours ends, or takes for ever."""
    return fuzz_lies(t)


@test("fuzz/guest", cost=15)
def fuzz_guest(t):
    """Random ring 0 code: the host survives, and slices do not show."""
    r = t.run(t.build / "tests" / "fuzz" / "fuzz_guest", "--cases", 250 if t.mode == "rel" else 40,
              "--seed", 1, "--insns", 400000, timeout=600)
    return r.text.strip().splitlines()[-1]


@test("fuzz/cpus", cost=12)
def fuzz_cpus(t):
    """Two to four vCPUs of which each changes what the others have, run, read and are: neither slices nor stops
    show, nor steps, nor a way back, nor another machine to go on in; also where turns are branches."""
    program = t.build / "tests" / "fuzz" / "fuzz_guest"
    # A look at a loop that waits, kept over turns in which no other could run.
    t.run(program, "--cpus", 8, "--seed", 121083918, "--cases", 1, "--insns", 300000, timeout=600)
    for unit in ("branch", "both"):
        t.run(program, "--cpus", 4, "--unit", unit, "--cases", 12, "--seed", 1, "--insns", 300000, timeout=600)
    r = t.run(program, "--cpus", 4, "--cases", 50 if t.mode == "rel" else 10, "--seed", 1, "--insns", 300000, timeout=600)
    return r.text.strip().splitlines()[-1]


@test("fuzz/features", cost=4)
def fuzz_features(t):
    """... on CPUs with features more and less."""
    r = t.run(t.build / "tests" / "fuzz" / "fuzz_guest", "--features", 1, "--cases", 50 if t.mode == "rel" else 10,
              "--seed", 1, "--insns", 300000, timeout=600)
    return r.text.strip().splitlines()[-1]


PEAK = ("import resource, subprocess, sys\n"
        "ended = subprocess.run(sys.argv[1:]).returncode\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, 'MiB')\n"
        "sys.exit(ended)")


@test("fuzz/emptied", cost=5)
def fuzz_emptied(t):
    """One that writes to its own code, 250 MB of which would be dead. Emptying a region of the code cache
    looked at each page once for each dead block, and did not end; and nothing was emptied until all was full."""
    r = t.run(sys.executable, "-c", PEAK, t.build / "tests" / "fuzz" / "fuzz_guest", "--cases", 1, "--seed", 191014252,
              "--insns", 3000000, timeout=100 * t.slow)
    peak = int(r.out.split()[-2])
    if t.mode == "rel":
        t.check(peak < 150, f"{peak} MiB were resident")
    return f"{peak} MiB"


@test("fuzz/modes", cost=15)
def fuzz_modes(t):
    """The same in all other modes."""
    r = t.run(t.build / "tests" / "fuzz" / "fuzz_guest", "--modes", "--cases", 150 if t.mode == "rel" else 20,
              "--seed", 1, "--insns", 400000, timeout=600)
    return r.text.strip().splitlines()[-1]


def failures(text, lines=60):
    """The blocks in which the program says what differs, up to so many lines. tests/run.py prints
    a message as one line, so blanks go."""
    found, block = [], False
    for line in text.splitlines():
        if not line.startswith(" "):
            block = line.startswith(("FAIL", "ONCE"))
        if block:
            found.append(" ".join(line.split()))
    more = len(found) - lines
    return found[:lines] + ([f"[{more} lines more]"] if more > 0 else [])


def insn(model, name=None, *options):
    @test("insn/" + (name or model), cost=12)
    def run(t):
        """The engine against the host's CPU: a quarter of a million cases, always the same; `make soak` takes
        new seeds."""
        t.need_model(model)
        if t.mode == "asan":  # its shadow, 16 TiB, covers addresses that cases expect to be empty
            t.skip("the host's CPU cannot run the cases under the address sanitizer")
        few = "--canonical" in options or "," in model
        cases = 50000 if t.mode != "rel" else 100000 if few else 250000
        r = t.run(t.build / "tests" / "insn" / "insn", "--model", model, "--cases", cases,
                  "--seed", 1, *options, timeout=300, code=None)
        if r.code == 77:
            t.skip(r.text.strip().splitlines()[-1].removeprefix("insn: "))
        last = r.text.strip().splitlines()[-1] if r.text.strip() else "nothing printed"
        if r.code != 0:
            why = [f"exit code {r.code}: {last}"] + failures(r.text) + \
                r.error.strip().splitlines()[-5:]
            raise Failure(" | ".join(why))
        return last.removeprefix("insn: ")


insn("v2")
insn("v3")
# The named ones: what they have more than v3 (AES, SHA, ADX, ...), and less than v2.
insn("nehalem")
insn("icelake-server")
insn("zen2")
# Features more and less than a model has: nothing of what is not there is executed.
insn("v2,+aes,+sha_ni,+adx,+gfni,+avx,-cx16,-popcnt,-lahf_lm", "features-more")
insn("icelake-server,-avx,-avx2,-fma,-f16c,-vaes,-vpclmulqdq,-sha_ni,-bmi1,-movbe,-xsave", "features-less")
# AVX-512, and all else that the host has.
insn("v4")
insn("host", "host")
# Compatibility mode, with segments of an LDT: bases, limits, types.
insn("v2", "compat-v2", "--code", 32)
insn("v3", "compat-v3", "--code", 32)
insn("icelake-server", "compat-icelake-server", "--code", 32)
insn("zen2", "compat-zen2", "--code", 32)
insn("v3", "compat16-v3", "--code", 16)
insn("v4", "compat-v4", "--code", 32)
# By today's rules: what is undefined is what a table of the test's own says.
insn("v2", "canonical-v2", "--canonical")
insn("v3", "canonical-v3", "--canonical")
insn("zen2", "canonical-compat-zen2", "--canonical", "--code", 32)


@test("insn/approximations", cost=3)
def approximations(t):
    """RCPPS and its like as they are where the host's own are none that were chosen, against a host's that are."""
    t.need_model("v3")
    if t.mode == "asan":
        t.skip("the host's CPU cannot run the cases under the address sanitizer")
    skipped = 0
    for name in ("RCPPS", "RCPSS", "RSQRTPS", "RSQRTSS", "VRCPPS", "VRCPSS", "VRSQRTPS", "VRSQRTSS"):
        r = t.run(t.build / "tests" / "insn" / "insn", "--model", "v3", "--canonical", "--only", name, "--cases", 2000,
                  "--seed", 1, env={"REPRISE_TEST_OTHER_MAKER": "1", "REPRISE_TEST_CLOBBER": "1"}, timeout=100)
        skipped += int(re.search(r"(\d+) skipped$", r.text.strip()).group(1))
    if skipped > 8000:
        t.skip("this host's CPU has other approximations: nothing to compare with")


def programs(name, model, *options, env=None, cost=8):
    @test("insn/programs-" + name, cost=cost)
    def run(t):
        """Random programs (loops, faults, stores into their own code) straight, with stops, and in single steps."""
        t.need_model(model)
        if t.mode == "asan":
            t.skip("the host's CPU cannot run the cases under the address sanitizer")
        r = t.run(t.build / "tests" / "insn" / "insn", "--stops", "--model", model, "--cases",
                  500 if t.mode == "rel" else 100, "--seed", 1, *options, env=env, timeout=300, code=None)
        if r.code != 0:
            raise Failure(" | ".join([f"exit code {r.code}"] + failures(r.text)))
        return r.text.strip().splitlines()[-1].removeprefix("stops: ")


programs("v2", "v2")
programs("v3", "v3")
programs("icelake-server", "icelake-server")
programs("v4", "v4")
programs("v4-clobber-hot", "v4", env={"REPRISE_TEST_CLOBBER": 1, "REPRISE_TEST_HOT": 1})
programs("interrupts", "v2", "--interrupts")
programs("random-compat", "v2,+rdrand,+rdseed,+sha_ni", "--code", 32)
programs("compat", "v3", "--code", 32)
programs("compat-hot-interrupts", "v2", "--code", 32, "--interrupts", env={"REPRISE_TEST_HOT": 1})
programs("no-pext", "v2", env={"REPRISE_TEST_NO_PEXT": 1})
programs("hot", "v2", env={"REPRISE_TEST_HOT": 1})
programs("clobber", "v3", env={"REPRISE_TEST_CLOBBER": 1, "REPRISE_TEST_HOT": 1})
programs("clobber-interrupts", "v2", "--interrupts", env={"REPRISE_TEST_CLOBBER": 1})
programs("clobber-compat", "v2", "--code", 32, env={"REPRISE_TEST_CLOBBER": 1})
programs("hot-interrupts", "v3", "--interrupts", env={"REPRISE_TEST_HOT": 1})
programs("small-cache", "v2", "--interrupts", env={"REPRISE_TEST_CODE_CACHE": 2})
programs("small-cache-hot", "v3", env={"REPRISE_TEST_CODE_CACHE": 5, "REPRISE_TEST_HOT": 1})


def counters(name, model, cases, *options, env=None):
    @test("insn/counters-" + name, cost=5)
    def run(t):
        """Counters of the guest, programmed at random, against an oracle: values, and where overflows interrupt.

        tests/soak.py --kind counters has 100,000 interrupts.
        """
        if model != "nehalem":
            t.need_v3()
        if t.mode == "asan":
            t.skip("the host's CPU cannot run the cases under the address sanitizer")
        r = t.run(t.build / "tests" / "insn" / "insn", "--counters", "--model", model, "--cases",
                  cases if t.mode == "rel" else cases // 5, "--seed", 1, *options, env=env, timeout=300, code=None)
        if r.code != 0:
            raise Failure(" | ".join([f"exit code {r.code}"] + failures(r.text)))
        last = r.text.strip().splitlines()[-1].removeprefix("counters: ")
        t.check(int(re.search(r"(\d+) interrupts", last)[1]) > cases / 5, last)
        return last


counters("skylake", "skylake", 250)
counters("icelake-clobber", "icelake", 150, env={"REPRISE_TEST_CLOBBER": 1})
counters("haswell-hot", "haswell", 200, env={"REPRISE_TEST_HOT": 1})
counters("nehalem-compat", "nehalem", 150, "--code", 32)
counters("zen-hot", "zen2", 250, env={"REPRISE_TEST_HOT": 1})
counters("paranoid", "zen2", 30, "--engine", "dbt,paranoid")


@test("insn/found", cost=1)
def insn_found(t):
    """Cases that once differed from the host's CPU."""
    if t.mode == "asan":
        t.skip("the host's CPU cannot run the cases under the address sanitizer")
    # XSAVE: misaligned comes before not canonical; XRSTOR: has loaded x87 when it finds MXCSR bad.
    # ENTER with a 32-bit operand on a 16-bit stack: EBP has all of ESP.
    for model, seed, case, code in (("v2", 1986333383, 18182, 64), ("v3", 2059002834, 6256, 64),
                                    ("v3", 20261139, 749834, 32)):
        t.run(t.build / "tests" / "insn" / "insn", "--model", model, "--seed", seed, "--case", case, "--code", code)


@test("insn/found-v4", cost=1)
def insn_found_v4(t):
    """A store that was aligned, and whose mask left nothing: its page became dirty in translated code only."""
    if t.mode == "asan":
        t.skip("the host's CPU cannot run the cases under the address sanitizer")
    t.need_model("v4")
    t.run(t.build / "tests" / "insn" / "insn", "--stops", "--model", "v4", "--seed", 2244631460, "--case", 5143, "--code", 64)


@test("insn/decoded", cost=25)
def decoded(t):
    """Each encoding's treatment, operands and flags are those of tests/tools/decoded.txt, by digest.

    A recording made on one host replays on another whose Zydis is older or newer.
    """
    if t.mode != "rel":
        t.skip("of the release build")
    kept = (ROOT / "tests/tools/decoded.txt").read_text()
    now = t.run(t.build / "tests/tools/decoded", timeout=400).text
    wrong = [line for line in now.splitlines() if line not in kept.splitlines()]
    t.check(not wrong and len(now.splitlines()) == len(kept.splitlines()),
            f"decoded otherwise: {', '.join(wrong)}; which opcodes: tests/tools/decoded -v. "
            "If insn.def or insn.c changed on purpose: decoded >tests/tools/decoded.txt")
