"""What bench.py and its parts measure: commands, and how one is run."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
NOLOG = str(ROOT / "build" / "rel" / "tests" / "bench" / "nolog")
LINUX = ROOT / "build" / "images" / "linux"
TINY = ROOT / "build" / "images" / "tiny"
APPEND = "console=ttyS0 panic=-1 -- true"
MEMORY = 512
os.environ["XDG_STATE_HOME"] = str(ROOT / "build" / "bench-state")  # not the user's own


def own_homes(place):
    """Recordings that nobody named and what is cached do not go to the user's."""
    os.environ["XDG_CACHE_HOME"], os.environ["XDG_DATA_HOME"] = f"{place}/cache", f"{place}/data"


def one_cpu():
    """A guest has one: a native run stays on the one where it began, as its children do."""
    with open("/proc/self/stat") as f:
        os.sched_setaffinity(0, {int(f.read().rsplit(")", 1)[1].split()[36])})


def run(argv, log=None, limit=None, before=None):
    """CPU seconds, wall seconds and peak KiB of one command that must end well, within `limit` seconds."""
    began = time.monotonic()
    with open(log or os.devnull, "wb") as out:
        child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=subprocess.STDOUT, preexec_fn=before)
        timer = threading.Timer(limit, child.kill) if limit else None
        if timer:
            timer.start()
        _, status, usage = os.wait4(child.pid, 0)
        if timer:
            timer.cancel()
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"bench: failed: {' '.join(map(str, argv))}")
    return {"cpu": usage.ru_utime + usage.ru_stime, "wall": time.monotonic() - began,
            "rss": usage.ru_maxrss}


def record(out, *options, append=APPEND, kernel=LINUX / "vmlinuz", initrd=LINUX / "initrd",
           memory=MEMORY, seed=1):
    argv = [REPRISE, "record", "--force", "-o", out, "--memory", f"{memory}M", "--seed", seed,
            "--kernel", kernel]
    if initrd:
        argv += ["--initrd", initrd, "--append", append]
    return argv + list(options)


def info(path):
    return json.loads(subprocess.run([REPRISE, "info", "--json", path], stdout=subprocess.PIPE,
                                     check=True).stdout)


def counted(place, recording, *options):
    """Instructions of the host that a replay takes: its positions in `reprise run` with those options."""
    out = f"{place}/counted"
    run([REPRISE, "run", *options, "--seed", "1", "-o", out, "--", REPRISE, "replay", recording])
    facts = info(out)
    shutil.rmtree(out)
    return facts["position"]


def stats(argv):
    """The JSON that a command ends with."""
    return json.loads(subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL,
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                     check=True).stdout)


def qemu(place, append=APPEND, initrd=LINUX / "initrd", cpu="Nehalem", recorded=True, memory=MEMORY,
         disk=None):
    """Without -nodefaults its firmware waits for ever on a clock that sleep=off never advances. A recording
    that reads a disk does not get on with sleep=off at all. The initramfs knows virtio's modern disks."""
    sleep = "" if disk else ",sleep=off"
    more = ["-icount", f"shift=auto{sleep},rr=record,rrfile={place}/qemu.rr"] if recorded else []
    if disk:
        more += ["-drive", f"file={disk},format=raw,if=none,readonly=on,id=file"]
        if recorded:
            more += ["-drive", "driver=blkreplay,if=none,image=file,readonly=on,id=replay"]
        more += ["-device", f"virtio-blk-pci,disable-legacy=on,drive={'replay' if recorded else 'file'}"]
    return ["qemu-system-x86_64", "-accel", "tcg,thread=single", *more, "-cpu", cpu, "-m",
            str(memory), "-nographic", "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel",
            LINUX / "vmlinuz", "-initrd", initrd, "-append", append]
