"""What bench.py and its parts measure: commands, and how one is run."""
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
NOLOG = str(ROOT / "build" / "rel" / "tests" / "bench" / "nolog")
LINUX = ROOT / "build" / "images" / "linux"
TINY = ROOT / "build" / "images" / "tiny"
APPEND = "console=ttyS0 panic=-1 -- true"
MEMORY = 512
os.environ["XDG_STATE_HOME"] = str(ROOT / "build" / "bench-state")  # not the user's own


def run(argv, log=None):
    """CPU seconds, wall seconds and peak KiB of one command that must end well."""
    began = time.monotonic()
    with open(log or os.devnull, "wb") as out:
        child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"bench: failed: {' '.join(map(str, argv))}")
    return {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.monotonic() - began,
            "rss": usage.ru_maxrss}


def record(out, *options, append=APPEND, kernel=LINUX / "vmlinuz", initrd=LINUX / "initrd"):
    argv = [REPRISE, "record", "--force", "-o", out, "--memory", f"{MEMORY}M", "--seed", "1",
            "--kernel", kernel]
    if initrd:
        argv += ["--initrd", initrd, "--append", append]
    return argv + list(options)


def info(path):
    return json.loads(subprocess.run([REPRISE, "info", "--json", path], stdout=subprocess.PIPE,
                                     check=True).stdout)


def qemu(place, append=APPEND, initrd=LINUX / "initrd", cpu="Nehalem", recorded=True):
    """Without -nodefaults its firmware waits for ever on a clock that sleep=off never advances."""
    icount = ["-icount", f"shift=auto,sleep=off,rr=record,rrfile={place}/qemu.rr"] if recorded else []
    return ["qemu-system-x86_64", "-accel", "tcg,thread=single", *icount, "-cpu", cpu, "-m",
            str(MEMORY), "-nographic", "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel",
            LINUX / "vmlinuz", "-initrd", initrd, "-append", append]
