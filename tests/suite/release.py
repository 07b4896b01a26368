"""Other people's machines: without the libraries, and of another release of Debian."""
import os
import pathlib
import re

from suite.harness import ROOT, test

BUDGET = 900  # seconds for the other release's demo, of CI's 45 minutes
UNAVAILABLE = 75  # tests/release.sh


@test("build/missing")
def missing(t):
    """Without a compiler or a library `make` says what to do, in one sentence."""
    for wrong, goal, says in (
            ("CC=/nonexistent/cc", "all", "/nonexistent/cc is missing here"),
            ("LDLIBS=-lnosuchlibrary", "build/reprise", "-lnosuchlibrary"),
            ("NETD_LIBS=-lnosuchlibrary", "build/reprise-net", "-lnosuchlibrary")):
        r = t.run("make", "-s", f"B={t.dir}/b", wrong, goal, cwd=ROOT, code=2)
        t.has(r.error, rf"^make: .*{re.escape(says)}.*: run `make deps`")
        t.check(len(r.error.splitlines()) <= 3, f"{wrong}: {len(r.error.splitlines())} lines")


@test("build/compiler")
def compiler(t):
    """A compiler that does not know what the engine's code needs is refused by name, not by pages of errors."""
    cc = t.dir / "cc"
    cc.write_text("#!/bin/sh\ncase \"$*\" in *-mstringop*) echo unknown >&2; exit 1 ;; esac\nexec gcc \"$@\"\n")
    cc.chmod(0o755)
    r = t.run("make", "-s", f"B={t.dir}/b", f"CC={cc}", "all", cwd=ROOT, code=2)
    t.has(r.error, r"^make: .*/cc lacks options of gcc .* CC=gcc$")


@test("build/packages")
def packages(t):
    """The groups of images/deps.sh: what is installed for the demo is not what tests need."""
    def group(*names):
        return set(t.run("images/deps.sh", "--list", *names, cwd=ROOT).text.split())
    everything, demo = group(), group("demo")
    t.check(demo < everything and {"gdb", "libvirglrenderer-dev", "cpio"} <= demo, f"demo: {demo}")
    t.check(not demo & {"libsdl2-dev", "libcmocka-dev", "mmdebstrap", "qemu-utils"}, f"demo: {demo}")
    t.check(group("make") >= group("reprise") | group("gpu") | group("display"), "make builds all")
    t.has(t.run("images/deps.sh", "--list", "nix", cwd=ROOT, code=2).error, "no group 'nix'")


def other_release():
    here = re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)
    return "bookworm" if here and here.group(1) == "trixie" else "trixie"


@test("release/demo", cost=BUDGET)
def demo(t):
    """`make demo` on the other release of Debian, from a minimal system."""
    if os.environ.get("CI") not in ("true", "1"):
        t.skip("in CI, or: make test-release R=" + other_release())
    r = t.run("timeout", "-s", "KILL", BUDGET, "tests/release.sh", other_release(), "demo", cwd=ROOT,
              code=None, timeout=BUDGET + 60)
    if r.code == UNAVAILABLE:
        t.skip(r.error.strip().splitlines()[-1])
    if r.code in (137, -9):
        t.skip(f"not done within {BUDGET} s on this machine: make test-release R={other_release()}")
    t.equal(r.code, 0, "the demo's status")
    t.has(r.text, "final registers, memory and device state are equal")
