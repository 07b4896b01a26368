#!/usr/bin/env python3
"""`make soak`: what `make test` does for seconds, for as long as asked (SOAK_MINUTES).

In turns: boots with random seeds and models, typed input or none, paced or not; recorders of boots
killed at random moments; bits of boots flipped; renderers of recordings killed, stopped and led
into errors; hostile command buffers; instruction tests, device tests and fuzz targets with fresh
seeds; recordings forged with their checksums right. `--kind kill --turns 250` is the campaign of 10,000 kills; `--kind renderer` and `--kind
buffers` alone are the campaigns against the GPU's renderer; one of `--kind cpus` 200 random guests of several vCPUs; a turn of `--kind kvm` is 10,000 inputs
at random positions of guests under KVM, and random programs; one of `--kind programs` 10,000 random
programs under dbt, straight, with stops and in single steps; one of `--kind counters` 100,000 interrupts of
the guest's performance counters; one of `--kind paranoid` a boot and a
speed program, each instruction run a second way; one of `--kind i386` programs of 32 bits, or the kernel's
selftests; one of `--kind servers` (minutes) a Debian server of 4 vCPUs under load, without and with chaos, and one of 32; one of `--kind rr` (minutes) twenty of
rr's own tests in a guest with counters (`make image-rr-tests`); one of `--kind suite` a test of `make test` that
draws, with other numbers; one of `--kind pmu` 100,000 stops at
random positions of guests that run freely, on an imitation. Stops at the first failure, says how to
repeat it, and keeps its recording.
"""
import argparse
import fcntl
import json
import os
import random
import re
import shutil
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from suite import counters as pmu_guests, free, harness, i386, imitation, kvm, kvm_host, net, paranoid, servers, stops, unit, virgl_hostile  # noqa: E402
from suite.harness import DAMAGE, ERROR, IMAGES, KILLED, ROOT, Session  # noqa: E402

COMMANDS = ["cat /proc/uptime; sleep 0.3", "(for i in $(seq 50); do (echo $i); done) | md5sum",
            "head -c 1000 /dev/urandom | md5sum", "dmesg | tail -n 3", "cat /proc/interrupts",
            "sleep 1 & wait", "seq 5000 | sort -n | gzip | gunzip | md5sum"]


def model(rnd, kvm=False):
    """A level that this host has; without AVX-512 where KVM executes."""
    if harness.host_has_avx512() and not kvm and rnd.random() < 0.3:
        return "x86-64-v4"
    return "x86-64-v3" if harness.host_has_avx2() and rnd.random() < 0.4 else "x86-64-v2"


def any_model(t, rnd):
    """One that this host has what it takes for."""
    listed = json.loads(t.run(t.reprise, "cpu", "list", "--json").out)
    features = [f["names"][0] for f in listed["features"] if f["here"]]
    cpu = rnd.choice([m["name"] for m in listed["models"] if m["here"]] + ["host"])
    for name in rnd.sample(features, rnd.randrange(4)):
        more = f"{cpu},{rnd.choice('+-')}{name}"
        if not t.run(t.reprise, "cpu", "show", more, code=None).code:
            cpu = more
    return cpu


def boot(t, rnd):
    options = ["--seed", str(rnd.getrandbits(64)), "--cpu", any_model(t, rnd)]
    image = "generic" if rnd.random() < 0.2 else "linux"
    if rnd.random() < 0.3:
        r = t.linux("rec", *options, image=image, script="\n".join(rnd.sample(COMMANDS, 4)))
        t.same("rec", r)
        return
    if rnd.random() < 0.5:
        options.append("--no-realtime")
    s = Session(t, "rec", *options, image=image)
    s.prompt()
    for _ in range(rnd.randrange(1, 8)):
        if rnd.random() < 0.4:
            time.sleep(rnd.random())
        s.send(rnd.choice(COMMANDS) + "\n")
        if rnd.random() < 0.1:
            s.send(rnd.choice([b"\x01b", b"\x01n", b"\x03"]))
    for more in (True, True, False):
        try:  # A UART that nobody empties in time has an overrun, and what is typed ahead a ^C flushes.
            s.type("\necho $((6*7))", "\r\n42\r\n")
            break
        except harness.Failure:
            if not more:
                raise
    s.send(rnd.choice(["poweroff -f\n", "reboot -f\n", b"\x01p", b"\x01x"]))
    s.finish()
    slices = {"REPRISE_TEST_SLICE": rnd.choice([0, 0, 9973, 123457, 7000003])}
    t.equal(t.replay("rec", env=slices).out, s.out, "the console of the replay")


def workload(t, rnd):
    cpu = model(rnd)
    r = t.linux("rec", "--seed", str(rnd.getrandbits(64)), "--cpu", cpu, "--add",
                f"{IMAGES}/guest/check:/bin/check", "--add", ROOT / "tests/guest/workload.sh",
                script=f"MODEL={cpu[-2:]} sh /workload.sh", timeout=300)
    t.lacks(r.text, "^BAD")
    t.same("rec", r, timeout=300)


def killed(t, s, name):
    """Kills the session's recorder at once; the replay goes to its last moment, without a
    difference, and has all that was typed and answered."""
    s.child.kill()
    s.child.wait()
    s.out += s.child.stdout.read() or b""
    s.close()
    r = t.run(t.reprise, "replay", "--verify", t.dir / name, code=(ERROR, DAMAGE), timeout=600)
    if r.code == ERROR:  # before there was anything to replay
        t.check(not s.out, f"refused, and there was output: {r.error}")
        t.has(r.error, "No such file|not a recording|log|machine")
        return 0
    t.check(s.out.startswith(r.out), "the replay's console is not a prefix")
    last = t.events(name, code=DAMAGE)[-1]
    t.check(last["type"] in KILLED, f"the last record is {last['type']}")
    t.has(r.error, f"position {last['position']}:", "where the replay ended")
    return 1


def kill(t, rnd):
    """A boot with a disk, a network and somebody who types, and 40 small guests that are typed to, most
    with a disk and a network too, killed at random moments: in a boot or between two answers."""
    with open(t.dir / "disk.img", "wb") as f:
        f.truncate(64 << 20)
    s = Session(t, "rec", "--disk", t.dir / "disk.img", "--net", "user,ipv6=off",
                *(["--no-realtime"] if rnd.random() < 0.5 else []))
    if rnd.random() < 0.7:
        s.prompt()
        s.send("ip link set eth0 up; udhcpc -i eth0 -q -n -s /bin/true &\n")
        for _ in range(rnd.randrange(6)):
            s.send(rnd.choice(["head -c 3M /dev/urandom >/dev/vda; sync\n", "md5sum /dev/vda\n",
                               "ping -c 1 -W 1 10.0.2.2\n", "cat /proc/interrupts\n"]))
            s.read(rnd.random())
    else:
        s.read(rnd.uniform(0, 5))
    done = killed(t, s, "rec")
    for turn in range(40):
        name = f"small{turn}"
        more = ("--disk", t.dir / "disk.img", "--net", "user,ipv6=off") if rnd.random() < 0.7 else ()
        s = Session(t, name, "--memory", "16M", *more, kernel=IMAGES / "tiny" / "echo.elf")
        for _ in range(rnd.randrange(12)):
            start = len(s.out)
            s.send(bytes(rnd.randrange(32, 127) for _ in range(rnd.randrange(200))) + b"\n")
            if rnd.random() < 0.7:
                s.wait("\n", start=start)
        if rnd.random() < 0.5:
            time.sleep(rnd.random() * 0.02)
        done += killed(t, s, name)
        shutil.rmtree(t.dir / name, ignore_errors=True)
    print(f"     {done} of 41 killed could be replayed", flush=True)


def flip(t, rnd):
    whole = t.linux("rec", "--seed", str(rnd.getrandbits(32)),
                    append="-- cat /proc/uptime; sleep 1; cat /proc/interrupts")
    files = [p for p in (t.dir / "rec").rglob("*") if p.is_file()]
    for _ in range(10):
        path = rnd.choice([*files, t.dir / "rec/log", t.dir / "rec/log"])
        data = path.read_bytes()
        bad = bytearray(data)
        if rnd.random() < 0.3:
            del bad[rnd.randrange(len(bad)):]
        else:
            bad[rnd.randrange(len(bad))] ^= 1 << rnd.randrange(8)
        path.write_bytes(bad)
        r = t.run(t.reprise, "replay", t.dir / "rec", code=(ERROR, DAMAGE))
        t.check(whole.out.startswith(r.out), f"{path.name} was damaged, and the output is another")
        t.has(r.error, "reprise: ")
        path.write_bytes(data)
    t.same("rec", whole)


def programs(t, rnd):
    env = {name: 1 for name, share in (("REPRISE_TEST_NO_PEXT", 0.2), ("REPRISE_TEST_HOT", 0.7), ("REPRISE_TEST_CLOBBER", 0.3))
           if rnd.random() < share}
    t.run(t.build / "tests/insn/insn", "--stops", "--model", model(rnd)[-2:], "--seed", rnd.getrandbits(32),
          "--cases", 10000, "--code", rnd.choice((64, 64, 32)), *(["--interrupts"] if rnd.random() < 0.2 else []), env=env, timeout=3600)


def counters(t, rnd):
    for name in ("nehalem", "haswell", "skylake", "icelake", "zen2")[:5 if harness.host_has_avx2() else 1]:
        env = {"REPRISE_TEST_HOT": 1} if rnd.random() < 0.5 else {}
        r = t.run(t.build / "tests/insn/insn", "--counters", "--model", name, "--seed", rnd.getrandbits(32), "--cases", 8500,
                  "--code", rnd.choice((64, 64, 64, 32)), env=env, timeout=3600)
        print(r.text.strip().splitlines()[-1], flush=True)


def insn(t, rnd):
    code = rnd.choice((64, 64, 32, 16))
    r = t.run(t.build / "tests/insn/insn", "--model", model(rnd)[-2:], "--seed", rnd.getrandbits(32),
              "--cases", 500000, "--code", code, timeout=600, code=None)
    t.check(r.code == 0 or (r.code == 77 and code != 64), f"exit code {r.code}: {r.text[-2000:]}")


def canonical(t, rnd):
    """What is undefined against its models: ten million x87 operations, flags, all operands of RCPPS and RSQRTPS."""
    t.run(t.build / "tests/unit/test_x87_own", env={"X87_CASES": 10000000, "X87_SEED": rnd.getrandbits(63)}, timeout=3600)
    t.run(t.build / "tests/insn/insn", "--canonical", "--model", model(rnd)[-2:], "--seed", rnd.getrandbits(32),
          "--cases", 500000, env={"REPRISE_TEST_OTHER_MAKER": 1} if rnd.random() < 0.5 else {}, timeout=600)
    t.run(t.build / "tests/unit/test_approx", env={"APPROX_ALL": 1}, timeout=3600)


def devices(t, rnd):
    t.run(t.build / "tests/unit/test_dev_all", env={"DEV_SOAK": 300000}, timeout=600, cwd=ROOT)


def fuzz(t, rnd):
    name = rnd.choice([*unit.TARGETS, "inspect"])
    program = ROOT / "build/asan/tests/fuzz" / ("fuzz_" + name)
    if name == "inspect" and program.exists():
        print(unit.fuzz_lies(t, rnd.getrandbits(31), 300, 8), flush=True)
    elif program.exists():
        t.run(program, ROOT / "tests/fuzz/corpus" / name, timeout=1800,
              env={"FUZZ_SEED": rnd.getrandbits(31), "FUZZ_RUNS": 5 * unit.SLOW.get(name, 20000),
                   "FUZZ_RENDERER": t.build / "reprise-gpu"})


def forge(t, rnd):
    if not (ROOT / "build/asan/tests/fuzz/fuzz_recording").exists():
        t.skip("build/asan is not built: make soak builds it, or make test-build MODE=asan")
    print(unit.fuzz_recording(t, rnd.getrandbits(31), 2000, traced=bool(shutil.which("strace"))), flush=True)


def pmu(t, rnd):
    t.run(t.build / "tests/unit/test_pmu", timeout=600,
          env={"PMU_INJECTIONS": 100000, "PMU_SEED": rnd.getrandbits(32)})
    made = stops.recordings(t, by_kvm=rnd.random() < 0.5)
    for cpu, number in (("skylake", 50000), ("alderlake", 40000), ("zen", 10000)):
        said = stops.exact(t, made, number, cpu, seed=rnd.getrandbits(31), timeout=3600)
        print(f"{cpu}: {said}", flush=True)
    for name in stops.LOST:
        said = stops.told(t, made[:2], 20, "alderlake", name, seed=rnd.getrandbits(31), timeout=3600)
        print(f"{name}: {said}", flush=True)


def ring0(t, rnd):
    t.run(t.build / "tests/fuzz/fuzz_guest", "--cases", 300, "--seed", rnd.getrandbits(31),
          "--insns", 3000000, timeout=900)
    t.run(t.build / "tests/fuzz/fuzz_guest", "--modes", "--cases", 1000, "--seed", rnd.getrandbits(31),
          "--insns", 400000, timeout=900)


def cpus(t, rnd):
    """Random guests of several vCPUs, and one of them recorded: replayed in other slices, and walked about in."""
    fuzz, seed = t.build / "tests/fuzz/fuzz_guest", rnd.getrandbits(31)
    r = t.run(fuzz, "--cpus", rnd.choice([2, 4, 8]), "--cases", 200, "--seed", seed, "--insns", 1000000, timeout=1800)
    print(r.text.strip().splitlines()[-1], flush=True)
    drawn = t.run(fuzz, "--cpus", 4, "--seed", seed, "--write", t.dir / "guest.elf").text
    ncpus, cpu = re.match(r"(\d) vCPUs, (\S+)", drawn).groups()
    r = t.run(t.reprise, "record", "-o", t.dir / "rec", "--memory", "16M", "--cpus", ncpus, "--cpu", cpu,
              "--no-realtime", "--timeout", 1, "--max-insns", 30000000, "--kernel", t.dir / "guest.elf", code=None,
              timeout=300)
    t.check((t.dir / "rec/log").exists(), r.error)
    for slice in (0, 1, 9973):
        r = t.run(t.reprise, "replay", "--verify", t.dir / "rec", env={"REPRISE_TEST_SLICE": slice}, code=None, timeout=600)
        t.has(r.error, "replayed without a difference")
    t.run(t.build / "tests/tools/walk", t.dir / "rec", "--seed", rnd.getrandbits(31), "--places", 10, "--moves", 30,
          timeout=600)


def renderer(t, rnd):
    if not (IMAGES / "gpu-raw/vmlinuz").exists():
        t.skip("build/images/gpu-raw is not built: make image-gpu-raw")
    if not virgl_hostile.can_render(t):
        t.skip("there is no renderer here")
    virgl_hostile.harm(t, rnd, rnd.choice(["kill", "kill", "kill", "stop", "latch"]))


def buffers(t, rnd):
    if not virgl_hostile.can_render(t):
        t.skip("there is no renderer here")
    t.run(t.build / "tests/tools/gpu_hostile", "-p", t.build / "reprise-gpu",
          rnd.getrandbits(31), 20000, timeout=1800)


def kvm_steps(t, rnd):
    kvm.need_kvm(t)
    r = kvm.inject(t, rnd.getrandbits(31), 10000, timeout=3600)
    print(r.text.strip().splitlines()[-1], flush=True)
    often = rnd.choice([[], ["--interrupts"]])
    t.run(t.build / "tests/insn/insn", "--engine", "kvm", "--stops", *often, "--model", model(rnd, kvm=True)[-2:],
          "--seed", rnd.getrandbits(32), "--cases", 150, timeout=1200)


DRAWING = (free, imitation, kvm, kvm_host, net, stops, virgl_hostile)


def suite(t, rnd):
    """A test that draws, with other numbers than in `make test`."""
    names = [m.__name__ for m in DRAWING]
    one = rnd.choice([x for x in harness.TESTS if x.function.__module__ in names])
    print(f"     {one.name}", flush=True)
    one.function(t)


KINDS = {"boot": (boot, 12), "workload": (workload, 1), "kill": (kill, 4), "flip": (flip, 2),
         "insn": (insn, 2), "canonical": (canonical, 1), "programs": (programs, 2), "counters": (counters, 1), "devices": (devices, 1), "ring0": (ring0, 2), "cpus": (cpus, 2), "fuzz": (fuzz, 1),
         "forge": (forge, 1), "renderer": (renderer, 4), "buffers": (buffers, 1), "pmu": (pmu, 1),
         "paranoid": (paranoid.soak, 1), "kvm": (kvm_steps, 1), "suite": (suite, 2),
         "i386": (i386.soak, 1), "servers": (servers.soak, 1), "rr": (pmu_guests.soak_rr, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="rel")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--kind", choices=KINDS, help="only this")
    parser.add_argument("--turns", type=int, help="so many instead of --minutes")
    parser.add_argument("--seed", type=int, help="only one turn, with this seed")
    args = parser.parse_args()
    os.chdir(ROOT)
    until = time.monotonic() + 60 * args.minutes
    place = ROOT / "build" / "soak" / args.mode
    place.parent.mkdir(parents=True, exist_ok=True)
    alone = open(f"{place}.lock", "w")
    try:
        fcntl.flock(alone, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        parser.error(f"another soak uses {os.path.relpath(place)}")
    turns, skipped = {}, {}
    here = {k: w for k, (_, w) in KINDS.items() if args.kind in (None, k)}
    while here and (sum(turns.values()) < args.turns if args.turns else time.monotonic() < until):
        seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(4), "little")
        rnd = harness.rnd.source = random.Random(seed)
        kind = rnd.choices(list(here), here.values())[0]
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        began = time.monotonic()
        why_not = None
        with open(str(place) + ".log", "w", encoding="utf-8", errors="replace") as log:
            t = harness.Case(args.mode, place, log)
            try:
                KINDS[kind][0](t, rnd)
            except harness.Skip as why:
                why_not = why
            except harness.Failure as why:
                print(f"FAIL {kind} seed {seed}: {why}\nthe log: {os.path.relpath(place)}.log, "
                      f"the recording: {os.path.relpath(place)}/rec\nagain: tests/soak.py "
                      f"--mode {args.mode} --kind {kind} --seed {seed}", flush=True)
                return 1
            finally:
                t.end()
        if why_not is None:
            turns[kind] = turns.get(kind, 0) + 1
            print(f"ok   {kind:<10} {time.monotonic() - began:6.1f} s  seed {seed}", flush=True)
        else:
            skipped[kind] = skipped.get(kind, 0) + 1
            print(f"skip {kind:<10} {why_not}", flush=True)
            if kind != "suite":  # which draws another test the next time; the others need what is not here
                del here[kind]
        if args.seed is not None:
            break
    shutil.rmtree(place, ignore_errors=True)
    ran, not_run = (", ".join(f"{n} {k}" for k, n in sorted(of.items())) for of in (turns, skipped))
    print(f"soak: {ran or 'nothing'}: no failure" + (f"; skipped: {not_run}" if skipped else ""))
    return 0


sys.exit(main())
