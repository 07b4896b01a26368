#!/usr/bin/env python3
"""make.py [NAME...]: makes what is missing in tests/golden, and its digests, or anew those of NAMEs; tests/golden/README.md says when.

Run from a tree whose programs and tests are built (`make test-build`)."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
if not (HERE / "digests.json").exists():
    (HERE / "digests.json").write_text("{}")

from suite import golden, harness  # noqa: E402

REPRISE = ROOT / "build" / "rel" / "reprise"
IMAGES = ROOT / "build" / "images"
IMITATION = ROOT / "build" / "rel" / "tests" / "imitation" / "reprise"
BRANCH = {"REPRISE_TEST_BRANCH": "1"}
FREE = {"REPRISE_IMITATION": "seed=5,cpu=skylake,skid=60,early=1/20", "REPRISE_TEST_WATCH": "200000"}
PMU = ["--engine", "kvm", "--counter", "pmu"]

# Name: guest, options of record, and more.
RECORDINGS = {
    "rep": ("rep", []),
    "smc": ("smc", ["--cpu", "x86-64-v3"], {"avx2": True}),
    "interrupts": ("interrupts", []),
    "undefined": ("undefined", []),
    "avx512": ("avx512", ["--cpu", "x86-64-v4"], {"avx512": True}),
    "paging": ("paging", ["--memory", "32M"]),
    "compat": ("compat", []),
    "counters": ("counters", ["--cpu", "nehalem"]),
    "lastbranch": ("lastbranch", ["--cpu", "nehalem"]),
    "modes": ("modes", ["--boot-protocol", "pvh", "--append", "brief"], {"kernel": IMAGES / "modes/modes.elf"}),
    "multiboot": ("modes", ["--boot-protocol", "multiboot2", "--append", "brief"],
                  {"kernel": IMAGES / "modes/modes.elf"}),
    "setup": ("setup", ["--append", "hello"], {"kernel": IMAGES / "modes/setup.bin"}),
    "timers": ("timers", ["--checkpoint-every", "1"]),
    "typed": ("echo", [], {"input": b"hello\n\x01b\nsecond line\nexit\n"}),
    "gpu": ("gpu", ["--gpu", "2d,xres=96,yres=64"]),
    "gpu-hostile": ("gpu_hostile", ["--gpu", "2d,xres=96,yres=64"]),
    "linux": ("vmlinuz", ["--initrd", IMAGES / "linux/initrd", "--memory", "256M",
                          "--append", "-- cat /proc/interrupts /proc/cmdline"],
              {"kernel": IMAGES / "linux/vmlinuz", "images": ["linux/vmlinuz", "linux/initrd"], "cost": 20,
               "parts": 4}),
    "share": ("vmlinuz", ["--initrd", IMAGES / "linux/initrd", "--memory", "128M", "--append",
                          'quiet -- "mkdir /mnt; mount -t virtiofs share /mnt; cd /mnt; ls -la . deep; cat small; '
                          'md5sum large deep/*; cat none; echo x >small"'],
              {"kernel": IMAGES / "linux/vmlinuz", "images": ["linux/vmlinuz", "linux/initrd"], "cost": 20,
               "parts": 4, "share": {"small": b"a small file\n", "large": bytes(range(256)) * 40,
                                     "deep/again": bytes(range(256)) * 40, "deep/empty": b""}}),
    "devices": ("stretch", ["--disk", "disk0", "--net", "user", "--gpu", "2d", "--console", "hvc0", "--port",
                            "a=out:/dev/null"], {"disks": [1 << 20]}),
    "several": ("startup", ["--cpus", "4,cores=2,threads=2", "--chaos=7"]),
    "turns": ("startup", [*PMU, "--cpus", "3", "--max-insns", "4000000"], {"env": FREE, "program": IMITATION}),
    "longer": ("startup", ["--cpus", "4", "--append", "long"]),
    "branches": ("exceptions", [], {"env": BRANCH}),
    "places": ("waits", PMU, {"env": FREE, "program": IMITATION}),
    "quit": ("faultstorm", ["--max-insns", "30000", "--checkpoint-every", "0.001"], {"env": BRANCH}),
    "killed": ("spin", [], {"killed": True}),
}


def record(name, guest, options, more):
    out = HERE / name
    argv = [more.get("program", REPRISE), "record", "-o", out, "--kernel",
            more.get("kernel", IMAGES / "tiny" / (guest + ".elf")), "--seed", "1", "--wall-clock", "@1000000000", "--no-notes", "--no-realtime"]
    if "--memory" not in options:
        argv += ["--memory", "16M"]
    with tempfile.TemporaryDirectory() as place:
        for i, size in enumerate(more.get("disks", ())):
            with open(f"{place}/disk{i}", "wb") as f:
                f.truncate(size)
        for path, data in more.get("share", {}).items():
            file = pathlib.Path(place) / "dir" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            options = options if "--share" in options else [*options, "--share", "dir"]
        child = subprocess.Popen([str(a) for a in (*argv, *options)], cwd=place, stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 env={**os.environ, "XDG_STATE_HOME": place, **more.get("env", {})})
        if more.get("killed"):
            time.sleep(0.2)
            child.kill()
        said = child.communicate(more.get("input"))[0]
    print(name, child.returncode, said.splitlines()[-1:] if said else "")


def of_recording(name):
    return json.loads(subprocess.run([REPRISE, "info", "--json", HERE / name], check=True, stdout=subprocess.PIPE).stdout)


def take_out(name, images):
    """What is too large to keep is not kept: its name in the recording and its SHA-256 are."""
    info = of_recording(name)
    taken = {}
    for path, key in zip(images, ("kernel_hash", "initrd_hash")):
        (HERE / name / "files" / info[key]).unlink()
        taken[path] = [info[key], golden.sha256((IMAGES / path).read_bytes())]
    (HERE / name / "files").rmdir()
    return taken


def main():
    for name, (guest, options, *more) in RECORDINGS.items():
        if not (HERE / name).exists():
            more = more[0] if more else {}
            record(name, guest, options, more)
            golden.KEPT[name] = {"maker": of_recording(name)["host_cpu"]}
            if "images" in more:
                golden.KEPT[name]["images"] = take_out(name, more["images"])
    kept = golden.KEPT
    for name, (guest, options, *more) in RECORDINGS.items():
        more = more[0] if more else {}
        before = kept.get(name, {})
        if "end" in before and name not in sys.argv[1:]:
            continue
        images = {k: before[k] for k in ("images", "maker") if k in before}
        kept[name] = {k: more[k] for k in ("killed", "disks", "avx2", "avx512", "cost", "parts") if k in more} | images
        with tempfile.TemporaryDirectory() as place, open(os.devnull, "w", encoding="ascii") as log:
            t = harness.Case("rel", pathlib.Path(place) / name, log)
            t.dir.mkdir()
            try:
                kept[name].update(golden.digests(t, name, golden.lay_out(t, name)))
            except harness.Skip as why:
                print(name, "stays:", why)
                kept[name] = before
    (HERE / "digests.json").write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print("golden", golden.identity())


if __name__ == "__main__":
    main()
