"""What the compiler and the linker do against errors of ours, read out of the binaries."""
import re

from suite.harness import test

PROGRAMS = ["reprise", "reprise-gpu", "reprise-display", "reprise-net", "reprise-fs", "reprise-libvirt"]


@test("hardening/binaries")
def binaries(t):
    """Position-independent, relocations read-only, no executable stack, protected stacks, checked
    libc calls."""
    for name in PROGRAMS:
        path = t.build / name
        if name == "reprise-libvirt" and not path.exists():
            continue  # built where libvirt's headers are
        read = lambda what: t.run("readelf", "-W", what, path).text  # noqa: E731
        t.has(read("-h"), r"Type:\s+DYN", f"{name}: PIE")
        segments = read("-l")
        t.has(segments, r"^\s*GNU_RELRO", f"{name}: RELRO")
        t.has(segments, r"^\s*GNU_STACK\s.*\sRW\s", f"{name}: a stack without code")
        t.has(read("-d"), r"\(FLAGS(_1)?\).*NOW", f"{name}: all symbols bound at the start")
        symbols = t.run("nm", "-D", path).text
        t.has(symbols, r"__stack_chk_fail", f"{name}: protected stacks")
        if t.mode in ("rel", "clang", "dev"):
            t.has(symbols, r"__\w+_chk\b", f"{name}: checked functions of the C library")
        t.lacks(read("-n"), r"IBT|SHSTK", f"{name}: a promise about CET")


@test("hardening/engine")
def engine(t):
    """Between pieces of translated code nothing of it may run: it would use registers of the guest."""
    text = (t.build.parents[1] / "Makefile").read_text()
    names = re.search(r"^GPR_SRC := (.*)$", text, re.M).group(1).split()
    for n in names:
        symbols = t.run("nm", "-u", t.build / "vmm" / "cpu" / (n + ".o")).text
        t.lacks(symbols, r"__stack_chk_fail|__\w+_chk\b", n)
