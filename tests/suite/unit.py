"""tests/unit, tests/fuzz and tests/insn: programs that test by themselves."""
import re

from suite.gpu_play import renderer as gpu_renderer
from suite.harness import ROOT, Failure, test


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
        corpus = ROOT / "tests" / "fuzz" / "corpus" / name
        return t.run(program, corpus, env={"FUZZ_SEED": 1, "FUZZ_RUNS": runs,
                                             "FUZZ_RENDERER": t.build / "reprise-gpu"}, timeout=300) \
            .text.strip().splitlines()[-1]


for one in ("log", "kernel", "boot", "bootentry", "description", "keys", "checkpoint", "kallsyms",
            "rsp", "net", "input_file", "display_input", "virtio-rng", "virtio-blk", "virtio-net",
            "virtio-console", "virtio-input", "gpu_decode", "gpu_log"):
    fuzz(one)
# Much is behind each of these, the host's part and a log; each log of these starts a renderer.
fuzz("virtio-gpu", 5000)
fuzz("gpu_play", 40, renderer=True)


@test("fuzz/guest", cost=15)
def fuzz_guest(t):
    """Random ring 0 code: the host survives, and slices do not show."""
    r = t.run(t.build / "tests" / "fuzz" / "fuzz_guest", "--cases", 250 if t.mode == "rel" else 40,
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


def insn(model):
    @test("insn/" + model, cost=12)
    def run(t):
        """The engine against the host's CPU: half a million cases, always the same; `make soak` takes
        new seeds."""
        if model == "v3":
            t.need_v3()
        if t.mode == "asan":  # its shadow, 16 TiB, covers addresses that cases expect to be empty
            t.skip("the host's CPU cannot run the cases under the address sanitizer")
        cases = 500000 if t.mode == "rel" else 50000
        r = t.run(t.build / "tests" / "insn" / "insn", "--model", model, "--cases", cases,
                  "--seed", 1, timeout=300, code=None)
        last = r.text.strip().splitlines()[-1] if r.text.strip() else "nothing printed"
        if r.code != 0:
            why = [f"exit code {r.code}: {last}"] + failures(r.text) + \
                r.error.strip().splitlines()[-5:]
            raise Failure(" | ".join(why))
        return last.removeprefix("insn: ")


insn("v2")
insn("v3")


@test("insn/found", cost=1)
def insn_found(t):
    """Cases that once differed from the host's CPU."""
    if t.mode == "asan":
        t.skip("the host's CPU cannot run the cases under the address sanitizer")
    for seed, case in ((1986333383, 18182),):  # XSAVE: misaligned comes before not canonical
        t.run(t.build / "tests" / "insn" / "insn", "--model", "v2", "--seed", seed, "--case", case)
