"""The KVM engine: exits and single steps a second, bare (as `reprise doctor` measures them in a loop of
KVM_RUN) and in a recording."""
import json
import pathlib
import re
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
GUEST = ROOT / "build" / "images" / "tiny" / "paging.elf"


def steps(place):
    """Instructions that KVM ran, of all positions, and seconds; None and why if it cannot."""
    out = pathlib.Path(place) / "kvm"
    r = subprocess.run([REPRISE, "record", "-v", "--engine", "kvm", "--force", "-o", out, "--memory",
                        "16M", "--seed", "1", "--no-realtime", "--max-insns", "100000", "--kernel",
                        GUEST], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if r.returncode:
        return None, r.stderr.strip().splitlines()[-1]
    info = json.loads(subprocess.run([REPRISE, "info", "--json", out], check=True,
                                     capture_output=True).stdout)
    ran = int(re.search(r"KVM ran (\d+) instructions", r.stderr).group(1))
    return (ran, info["position"], info["host_ns"] / 1e9), None


def doctor():
    r = subprocess.run([REPRISE, "doctor", "--json"], stdin=subprocess.DEVNULL, capture_output=True)
    facts = json.loads(r.stdout)["facts"]
    return facts["exit.ring0"]["number"], facts["step.speed"]["number"]


def measure(place, runs):
    bare, recorded, exits = [], [], []
    for _ in range(runs):
        done, why = steps(place)
        if done is None:
            return {"rows": [], "notes": [f"the engine kvm is left out: {why}"]}
        one_exit, speed = doctor()
        exits.append(1 / one_exit)
        bare.append(speed)
        recorded.append(done[0] / done[2])
    rows = []
    for what, value, digits in (
            ("kvm: exits from ring 0 a second", statistics.median(exits), 0),
            ("kvm: bare single steps a second", statistics.median(bare), 0),
            ("kvm: recorded steps a second", statistics.median(recorded), 0),
            ("kvm: a recorded step / a bare one",
             statistics.median(b / r for b, r in zip(bare, recorded)), 2)):
        rows.append({"what": what, "number": value, "value": f"{value:.{digits}f}", "bound": "",
                     "good": True})
    return {"rows": rows, "notes": [f"of {done[1]} positions KVM ran {done[0]}"]}
