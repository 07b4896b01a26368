"""`bench.py --part agent`: the agent in a guest (docs/agent.md), wall clock, as who waits sees it.

`reprise exec -- true` of a guest that is paced, `cp` of 100 MB each way, and a mark: the difference of boots with
a million of them and with none. Of the best of several, as others may be at the machine.
"""
import os
import pathlib
import subprocess
import time

from jobs import REPRISE, ROOT, run

IMAGE = ROOT / "build" / "images" / "linux"
SIZE = 100_000_000
MARKS = 1_000_000


def wall(argv, runs):
    best = None
    for _ in range(runs):
        began = time.monotonic()
        subprocess.run([str(a) for a in argv], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took = time.monotonic() - began
        best = took if best is None else min(best, took)
    return best


def record(place, name, *words):
    return [REPRISE, "record", "--force", "-o", place / name, "--kernel", IMAGE / "vmlinuz", "--initrd", IMAGE / "initrd",
            "--add", f"{ROOT}/build/reprise-agent:/bin/reprise-agent", "--add", f"{ROOT}/build/images/guest/marker:/bin/marker",
            *words]


def line(what, number, value, bound, good):
    return {"what": "agent: " + what, "number": number, "value": value, "bound": bound, "good": good}


def measure(place, runs):
    place, rows = pathlib.Path(place), []
    socket = place / "agent"
    child = subprocess.Popen([str(a) for a in record(place, "live", f"--agent={socket}", "--memory", "1G", "--append", "quiet -- reprise-agent serve")],
                             stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not socket.exists():
            time.sleep(0.02)
        call = [REPRISE, "exec", "--timeout", "60", socket, "--", "true"]
        wall(call, 3)
        took = wall(call, max(10, runs))
        rows.append(line("exec -- true", took, f"{took * 1e3:.0f} ms", "<= 50 ms", took <= 0.05))
        (place / "big").write_bytes(os.urandom(SIZE))
        for what, names in (("cp into the guest", (place / "big", f"{socket}:/tmp/big")),
                            ("cp out of it", (f"{socket}:/tmp/big", place / "back"))):
            took = wall([REPRISE, "cp", *names], max(3, runs))
            rows.append(line(what, SIZE / took, f"{SIZE / took / 1e6:.0f} MB/s", ">= 200 MB/s", SIZE / took >= 200e6))
        run([REPRISE, "shutdown", socket])
    finally:
        child.wait(60)
    none, all_ = (wall(record(place, "marks", "--append", f"quiet -- marker {words}"), max(3, runs))
                  for words in ("one", f"x{MARKS} one"))
    each = (all_ - none) / MARKS
    rows.append(line("a mark", each, f"{each * 1e6:.2f} us", "<= 2 us", each <= 2e-6))
    return {"rows": rows, "notes": []}
