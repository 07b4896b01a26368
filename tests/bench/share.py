"""`bench.py --part share`: files of the host, read while recording, beside QEMU's 9p.

`find` over a directory of the host (/usr) by `reprise run`, and by QEMU (TCG, not recording) whose guest
has the same kernel and runs the host's own `find` on a 9p mount, with Linux' cache for it (cache=loose),
which makes it faster; of each what a program that does nothing takes is subtracted. CPU time, server
included. And a file of 1 GB (random bytes, in the host's page cache), read in `reprise run` for the first
time, less a program that does nothing: wall clock, as who waits for it sees it, and CPU time.
"""
import pathlib
import random
import shutil
import statistics

from jobs import REPRISE, ROOT, own_homes, run
from travel import say
from work import append_file

IMAGE = ROOT / "build" / "images" / "generic-9p"
TREE = "/usr"
SIZE = 1_000_000_000
PROMISED = SIZE / 500e6  # seconds


def script(place, name, text):
    """An initrd with that script, as --add makes it."""
    path, out = place / (name + ".sh"), place / (name + ".initrd")
    path.write_text(text)
    append_file(IMAGE / "initrd", path, "script.sh", out)
    return out


def nine(place, name, command):
    """QEMU with all of the host's files; the guest runs `command` as if it ran here."""
    initrd = script(place, name, f"""for m in netfs fscache 9pnet 9pnet_virtio 9p; do
    insmod /lib/modules/*/$m.ko 2>/dev/null
done
mkdir /mnt
mount -t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose root /mnt || exit 9
chroot /mnt {command} >/tmp/out
""")
    return ["qemu-system-x86_64", "-accel", "tcg,thread=single", "-cpu", "Nehalem", "-m", "1024", "-nographic",
            "-nodefaults", "-serial", "stdio", "-no-reboot", "-kernel", IMAGE / "vmlinuz", "-initrd", initrd,
            "-append", "console=ttyS0 quiet panic=-1 reprise.script=/script.sh",
            "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,disable-legacy=on,fsdev=root,mount_tag=root"]


def beyond(full, empty, what):
    """Median of the differences of runs that were neighbours."""
    return statistics.median(a[what] - b[what] for a, b in zip(full, empty))


def find(place, runs, row, notes):
    own_homes(place)
    out = place / "run"
    run([REPRISE, "run", "-o", place / "first", "true"])  # makes the machine
    ours = {name: [REPRISE, "run", "-o", out, *command]
            for name, command in (("nothing", ["true"]), ("find", ["find", TREE]))}
    samples = {name: [] for name in ours}
    for _ in range(runs):
        for name, argv in ours.items():
            say(f"share: run {name}")
            shutil.rmtree(out, ignore_errors=True)
            samples[name].append(run(argv, place / "found"))
    with open(place / "found", "rb") as f:
        names = sum(1 for _ in f)
    shutil.rmtree(out)
    mine = beyond(samples["find"], samples["nothing"], "cpu")
    row(f"find {TREE} in reprise run, {names} names (CPU)", mine, " s")
    if not shutil.which("qemu-system-x86_64"):
        notes.append("share: qemu-system-x86_64 is not installed: nothing is compared with it")
    elif not (IMAGE / "initrd").exists():
        notes.append("share: build/images/generic-9p is not built (make image-9p): nothing is compared with QEMU")
    else:
        theirs = []
        for name, command in (("nothing", "/bin/true"), ("find", f"/usr/bin/find {TREE}")):
            say(f"share: QEMU {name}")
            theirs.append(run(nine(place, name, command), place / "qemu.out", limit=1800)["cpu"])
        row("... in QEMU, 9p, one run (CPU)", theirs[1] - theirs[0], " s")
        row("... reprise run / QEMU", mine / (theirs[1] - theirs[0]), "", 3)


def read(place, runs, row):
    directory = place / "share"
    directory.mkdir()
    with open(directory / "file", "wb") as f:
        for _ in range(SIZE // 1_000_000):
            f.write(random.randbytes(1_000_000))
    out = place / "rec"
    ours = {name: [REPRISE, "run", "--memory", "2G", "-o", out, "sh", "-c", script]
            for name, script in (("nothing", ":"), ("read", f"cat '{directory / 'file'}' >/dev/null"))}
    run(ours["nothing"], place / "rec.out")  # makes the machine
    samples = {name: [] for name in ours}
    for _ in range(runs):
        for name, argv in ours.items():
            say(f"share: {name}")
            shutil.rmtree(out, ignore_errors=True)
            samples[name].append(run(argv, place / "rec.out"))
    shutil.rmtree(place / "rec")
    shutil.rmtree(directory)
    row("1 GB of a file, read for the first time (wall)", beyond(samples["read"], samples["nothing"], "wall"), " s",
        PROMISED)
    row("... (CPU)", beyond(samples["read"], samples["nothing"], "cpu"), " s")


def measure(place, runs):
    place, rows, notes = pathlib.Path(place), [], []

    def row(what, value, unit, bound=None):
        rows.append({"what": what, "number": value, "value": f"{value:.2f}{unit}",
                     "bound": "" if bound is None else f"<= {bound:g}{unit}",
                     "good": bound is None or value <= bound})

    find(place, min(runs, 3), row, notes)
    read(place, runs, row)
    return {"rows": rows, "notes": notes}
