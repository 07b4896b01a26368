"""Recordings made before replay as they did: tests/golden, with digests beside them."""
import hashlib
import json
import shutil

from suite.gpu import png
from suite.harness import DAMAGE, ERROR, FINE, IMAGES, ROOT, host_has_avx2, test
from suite.imitation import imitation

GOLDEN = ROOT / "tests" / "golden"
KEPT = json.loads((GOLDEN / "digests.json").read_text())
SLICES = (0, 997, 100003)
STEPS_MAX = 1000000  # instructions, by single steps: longer ones go so far
MOVES_MAX = 100000   # ... and recordings up to here are also gone about in, and replayed in slices
WALK_MAX = 10**9     # up to here at more places
PARTS = 7            # places looked at: beginning, end and between; of a long one fewer


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def image(t, path, kept):
    """A file of build/images that is too large to keep: if it is still the one that was booted."""
    if not (IMAGES / path).exists():
        t.skip(f"build/images/{path} is not there")
    found = sha256((IMAGES / path).read_bytes())
    if found != kept:
        t.skip(f"{path} of this image is another one: {found[:16]}, not {kept[:16]}")
    return IMAGES / path


def lay_out(t, name):
    """A copy of the recording in rec; options for its disks, which were empty. These guests use no instruction
    whose results depend on the CPU's maker, so they replay on any."""
    kept = KEPT[name]
    t.env["REPRISE_TEST_MAKER"] = kept.get("maker", "GenuineIntel")
    shutil.rmtree(t.dir / "rec", ignore_errors=True)
    shutil.copytree(GOLDEN / name, t.dir / "rec")
    for path, (file, digest) in kept.get("images", {}).items():
        (t.dir / "rec" / "files").mkdir(exist_ok=True)
        shutil.copy(image(t, path, digest), t.dir / "rec" / "files" / file)
    options = []
    for i, size in enumerate(kept.get("disks", ())):
        with open(t.dir / f"disk{i}", "wb") as f:
            f.truncate(size)
        options += ["--disk", f"{i}={t.dir}/disk{i}"]
    return options


def screen_at(t, position, options):
    """Pixels of the screen there; None: it is off."""
    r = t.run(t.reprise, "replay", "--to", position, "--screenshot", t.dir / "screen.png", "--force", *options,
              t.dir / "rec", code=(FINE, ERROR), timeout=200)
    if r.code:
        t.has(r.error, "the screen is off here")
        return None
    width, height, rows = png(t.dir / "screen.png")
    return f"{width}x{height} " + sha256(bytes(c for row in rows for pixel in row for c in pixel))


def commands(t, options):
    """The GPU's commands, as gpu.log has them, are what a replay makes anew."""
    log = t.dir / "rec" / "gpu.log"
    t.run(t.reprise, "gpu", "extract", "-o", t.dir / "gpu.log", *options, t.dir / "rec")
    lists = [sha256(t.run(t.reprise, "gpu", "list", "--json", "--inner", path).out) for path in (log, t.dir / "gpu.log")]
    t.equal(lists[1], lists[0], "the digest of the GPU's commands")


def state_at(t, position, options, program=None, **more):
    """Registers, time and console where the machine is at `position`."""
    there = json.loads(t.run(program or t.reprise, "replay", "--json", "--regs", "--to", position, *options, t.dir / "rec",
                             code=(FINE, DAMAGE), timeout=200, **more).out)
    seen = {k: there[k] for k in ("position", "time", "rip", "cpl", "halted", "console_bytes", "registers")}
    return sha256(json.dumps(seen, sort_keys=True).encode())


def digests(t, name, options):
    """All that is kept of a recording, computed anew by the default engine."""
    kept = KEPT.get(name, {})
    code = DAMAGE if kept.get("killed") else FINE
    r = t.run(t.reprise, "replay", "--verify", *options, t.dir / "rec", code=code, timeout=300)
    end = json.loads(t.run(t.reprise, "info", "--json", t.dir / "rec", code=(FINE, DAMAGE)).out)["position"]
    parts = kept.get("parts", PARTS)
    places = sorted({end * k // (parts - 1) for k in range(parts)})
    found = {"console": sha256(r.out), "end": end,
             "places": {str(at): state_at(t, at, options) for at in places}}
    if (t.dir / "rec" / "gpu.log").exists():
        found["screens"] = {str(at): screen_at(t, at, options) for at in places}
    return found


def by_kvm(t, name, options):
    """The same by the other engine. Steps and counters are imitated, so any host has both."""
    kept = KEPT[name]
    kvm = ["--engine", "kvm"]
    env = {"REPRISE_IMITATION": "seed=1,cpu=skylake,skid=60"}
    unit = json.loads(t.run(t.reprise, "info", "--json", t.dir / "rec", code=(FINE, DAMAGE)).out)["position_unit"]
    if unit == "insn" and kept["end"] > STEPS_MAX:
        t.equal(state_at(t, STEPS_MAX, [*options, *kvm], imitation(t), env=env), state_at(t, STEPS_MAX, options),
                f"what kvm and dbt have at {STEPS_MAX}")
        return
    for slice_ in (0, SLICES[1]) if kept["end"] <= MOVES_MAX else (0,):
        replay(t, imitation(t), name, *kvm, env={**env, "REPRISE_TEST_SLICE": slice_})
    if kept["end"] <= MOVES_MAX:
        t.run(imitation(t, "walk"), t.dir / "rec", *options, *kvm, "--places", 4, "--moves", 8, "--seed", 1, timeout=300,
              env=env)


def replay(t, program, name, *options, **more):
    """Replays a copy of it to its end; console and verification must be as they were."""
    kept = KEPT[name]
    code = DAMAGE if kept.get("killed") else FINE
    r = t.run(program, "replay", "--verify", *options, *lay_out(t, name), t.dir / "rec", code=code, timeout=300,
              **more)
    t.equal(sha256(r.out), kept["console"], f"the console of {name}")


def golden(name):
    @test(f"golden/{name}", cost=KEPT[name].get("cost", 3))
    def run(t):
        """Made by an older program: same digests, on both engines, in slices, forwards and backwards."""
        options = lay_out(t, name)
        kept = KEPT[name]
        if kept.get("avx2") and not host_has_avx2():
            t.skip("its model has AVX2, and this host's CPU has not")
        if kept.get("avx512"):
            t.need_model("v4")
        code = DAMAGE if kept.get("killed") else FINE
        found = digests(t, name, options)
        for what, value in found.items():
            t.equal(value, kept[what], what)
        for slice_ in SLICES[1:] if kept["end"] < 10**8 else (1000003,):
            t.run(t.reprise, "replay", "--verify", *options, t.dir / "rec", code=code, timeout=300,
                  env={"REPRISE_TEST_SLICE": slice_})
        if not kept.get("avx512"):  # which kvm executes none of
            by_kvm(t, name, options)
        if (t.dir / "rec" / "gpu.log").exists():
            commands(t, options)
        places, moves = (6, 12) if kept["end"] < WALK_MAX else (3, 4)
        t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", *options, "--places", places, "--moves", moves,
              "--seed", 1, timeout=300)
        return f"{kept['end']} positions"


for one in sorted(KEPT):
    golden(one)


def identity():
    """Of all that is kept: any change of a file shows."""
    h = hashlib.sha256()
    for path in sorted(p for p in GOLDEN.rglob("*") if p.is_file() and p.suffix not in (".py", ".md")):
        h.update(str(path.relative_to(GOLDEN)).encode() + b"\0" + path.read_bytes())
    return h.hexdigest()[:16]


@test("golden/changelog")
def changelog(t):
    """Whoever changes one says in CHANGELOG.md why old recordings may replay otherwise."""
    text = (ROOT / "CHANGELOG.md").read_text()
    t.has(text, rf"golden {identity()}: \S", "CHANGELOG.md, for tests/golden as it is now")
    size = sum(p.stat().st_size for p in GOLDEN.rglob("*") if p.is_file())
    t.check(size < 1 << 20, f"tests/golden has {size} bytes")
    return f"{size >> 10} KiB"
