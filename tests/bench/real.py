"""`bench.py --part real`: real programs in a guest, beside the same files on the host and in QEMU.

They are Debian's packages on a disk (images/programs); what they do is real/run, for the guest and for the
host, which enters the same files by chroot. work.py runs them.
"""
import os

import work
from jobs import ROOT, one_cpu

IMAGE = ROOT / "build" / "images" / "programs"
ENTER = ROOT / "tests" / "bench" / "real" / "enter"
WHAT = {
    "gcc": "gcc -O2 -c of 3,000 lines of C",
    "nbody": "Python: floating point", "json": "Python: JSON and regular expressions",
    "objects": "Python: objects and method calls",
    "sqlite": "sqlite3: 100,000 rows inserted, with an index",
    "aes": "libcrypto: AES-CBC, CTR, GCM", "p256": "libcrypto: ECDSA, P-256",
    "luajit": "LuaJIT", "node": "Node.js", "java": "OpenJDK, from the source", "perl": "perl: words of a file",
    "xz": "xz -6", "rust": "ripgrep, which is Rust: four expressions over 400,000 lines",
    "go": "gojq, which is Go: 20,000 rows parsed, grouped and sorted", "git": "git: a history imported, gc, clone, log, fsck",
}
GROUPS = {"programs": tuple(WHAT)}
UNMASKED = "host's CPU"


class Real(work.Work):
    name = "real"
    program = ENTER
    disk = IMAGE / "disk.img"
    memory = 1024
    before = staticmethod(one_cpu)

    def native(self, name, model, column):
        """In mounts of its own, and a user of its own unless it is root already."""
        return ["unshare", "-m", *([] if os.geteuid() == 0 else ["-r"]), "sh", ENTER, IMAGE / "tree", name, model,
                "host" if column == UNMASKED else "model"]

    def command(self, name, model):
        return f"enter /disk {name} {model} model /dev/vda"


def measure(place, runs, names):
    kept = IMAGE / "tree" / "bench" / "run"
    if not kept.exists() or kept.read_bytes() != ENTER.with_name("run").read_bytes():
        return {"rows": [], "notes": ["real: skipped: build/images/programs is not built, or of other work "
                                      "(make image-programs)"], "samples": {}}
    notes = []
    columns = (UNMASKED, *work.columns_here("real", notes))
    model = "v3" if work.host_has_avx2() else "v2"
    r = Real(place, runs, columns)
    good = r.measure([(name, model) for name in names])
    facts = {name: r.facts_of(name, model) for name, _ in good}
    notes = work.lines_of_works(facts, columns) + notes
    return {"rows": work.rows_of_works("real", facts, r.failed), "notes": notes,
            "samples": {"works": facts, "rounds": r.rounds()}}
