"""The KVM engine: at full speed, where the host can, against KVM alone; exits handled and single steps a second, in an empty loop of KVM_RUN (as `reprise
doctor` measures it) and in a recording; and where a recorded step spends what it takes longer, call by
call (kvm_calls.c)."""
import json
import os
import pathlib
import statistics
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
TINY = ROOT / "build" / "images" / "tiny"
LINUX = ROOT / "build" / "images" / "linux"
GUESTS = ("exceptions", "stretch")  # one that talks to devices; one with REP strings and ring 3
KINDS = (("plain", "a step after a step"),
         ("sent", "one before which registers were set"),
         ("shutdown", "one whose trap ended as a shutdown"),
         ("device", "an exit for a device"))


def record(place, guest):
    """Sums by kinds of steps, and instructions a second; None and why if it cannot."""
    env = dict(os.environ, LD_PRELOAD=str(place / "kvm_calls.so"), KVM_CALLS=str(place / "kvm.json"))
    r = subprocess.run([REPRISE, "record", "--counter", "step", "--force", "-o", place / "kvm", "--memory",
                        "16M", "--seed", "1", "--no-realtime", "--max-insns", "100000", "--kernel",
                        TINY / (guest + ".elf")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True, env=env)
    if not (place / "kvm.json").exists() or "engine kvm" in r.stderr or r.returncode == 1:
        return None, (r.stderr.strip().splitlines() or ["no output"])[-1]
    return json.loads((place / "kvm.json").read_text()), None


def doctor():
    """Exits and steps a second of loops that do nothing else."""
    r = subprocess.run([REPRISE, "doctor", "--json"], stdin=subprocess.DEVNULL, capture_output=True)
    facts = json.loads(r.stdout)["facts"]
    return 1 / facts["exit.ring0"]["number"], facts["step.speed"]["number"]


def parts(sums, kind):
    """Microseconds of one step of a kind: all, KVM_RUN, reading and setting registers, our own."""
    s = sums[kind]
    n = 1000 * max(1, s["steps"])
    own = s["all"] - s["run"] - s["get"] - s["set"]
    return [x / n for x in (s["all"], s["run"], s["get"], s["set"], own)]


def explain(runs):
    """A line for each kind of step, medians of all runs, each kind from the guest that has most."""
    lines = []
    for kind, what in KINDS:
        guest = max(GUESTS, key=lambda g, k=kind: runs[g][0][k]["steps"])
        steps = runs[guest][0][kind]["steps"]
        if steps < 100:
            continue
        us = [statistics.median(x) for x in zip(*(parts(s, kind) for s in runs[guest]))]
        lines.append(f"{what} takes {us[0]:.1f} us: KVM_RUN {us[1]:.1f}, reading registers {us[2]:.1f}, "
                     f"setting them {us[3]:.1f}, ourselves {us[4]:.1f} ({steps} in {guest})")
    return lines


# What the guest's shell does, how often, and how much longer than with KVM alone it may take.
WORK = (("compute", "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done", 1.15),
        ("system calls", "dd if=/dev/zero of=/dev/null bs=1 count=3000000 2>/dev/null", 2))


def boot(argv):
    began = time.monotonic()
    r = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    if r.returncode or b"done 42" not in r.stdout:
        raise RuntimeError((r.stdout.decode(errors="replace").strip().splitlines() or ["no output"])[-1])
    return time.monotonic() - began


def recorded(place, script, program):
    return [program, "record", "--counter", "pmu", "--no-realtime", "--force", "-o", place / "free",
            "--seed", "1", "--kernel", LINUX / "vmlinuz", "--initrd", LINUX / "initrd", "--append",
            f'quiet -- "{script}; echo done $((6*7)); poweroff -f"']


def unrecorded(script, accel):
    """KVM and nothing else: QEMU with the same kernel."""
    return ["qemu-system-x86_64", "-accel", accel, "-cpu", "max", "-m", "512", "-nographic",
            "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel", LINUX / "vmlinuz", "-initrd",
            LINUX / "initrd", "-append",
            f'console=ttyS0 panic=-1 quiet -- "{script}; echo done $((6*7)); poweroff -f"']


def at_full_speed(place, runs, program=REPRISE, accel="kvm"):
    """The counter pmu against KVM alone: what the work takes beyond a boot. Rows and notes."""
    engine = json.loads(subprocess.run([program, "doctor", "--json"], stdin=subprocess.DEVNULL,
                                       capture_output=True, check=False).stdout)["engines"][2]
    if not engine["linux"]:
        return [], [f"kvm at full speed (counter pmu) is left out: {engine['text']}"]
    rows, took = [], {}
    try:
        for _ in range(runs):
            for name, script, _ in (("a boot", "true", 0),) + WORK:
                for how, argv in (("recorded", recorded(place, script, program)),
                                  ("alone", unrecorded(script, accel))):
                    took.setdefault((name, how), []).append(boot(argv))
    except (OSError, RuntimeError) as e:
        return [], [f"kvm at full speed (counter pmu) is left out: {e}"]
    for name, _, bound in WORK:
        ours, alone = [statistics.median(w - b for w, b in zip(took[name, how], took["a boot", how]))
                       for how in ("recorded", "alone")]
        rows.append({"what": f"kvm, counter pmu: {name}, recorded / KVM alone", "number": ours / alone,
                     "value": f"{ours / alone:.2f}", "bound": f"<= {bound}",
                     "good": ours <= bound * alone})
    return rows, []


def measure(place, runs):
    place = pathlib.Path(place)
    rows, notes = at_full_speed(place, runs)
    more = by_steps(place, runs)
    return {"rows": rows + more["rows"], "notes": notes + more["notes"]}


def by_steps(place, runs):
    subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", place / "kvm_calls.so",
                    ROOT / "tests/bench/kvm_calls.c", "-ldl"], check=True)
    loops, recorded = [], {guest: [] for guest in GUESTS}
    for _ in range(runs):
        for guest in GUESTS:
            sums, why = record(place, guest)
            if sums is None:
                return {"rows": [], "notes": [f"the engine kvm is left out: {why}"]}
            recorded[guest].append(sums)
        loops.append(doctor())
    exits = [1e6 / parts(s, "device")[0] for s in recorded["exceptions"]]
    steps = [1e9 * sum(k["steps"] for k in s.values()) / sum(k["all"] for k in s.values())
             for s in recorded["exceptions"]]
    rows = []
    for what, loop, ours in (("exits", [e for e, _ in loops], exits),
                             ("single steps", [s for _, s in loops], steps)):
        for how, values, digits in (
                (f"{what} a second, in an empty loop of KVM_RUN", loop, 0),
                (f"{what} a second, recorded", ours, 0),
                (f"{what}: a recorded one / one of the loop", [b / r for b, r in zip(loop, ours)], 2)):
            value = statistics.median(values)
            rows.append({"what": "kvm: " + how, "number": value, "value": f"{value:.{digits}f}",
                         "bound": "", "good": True})
    return {"rows": rows, "notes": explain(recorded)}
