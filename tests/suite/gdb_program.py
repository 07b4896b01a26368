"""`reprise gdb --process` and `reprise debug`: the program's file and its libraries, by themselves."""
import pathlib
import re
import subprocess

from suite.boot import image
from suite.gdb import need_gdb
from suite.harness import ERROR, test

LOADER = "/lib64/ld-linux-x86-64.so.2"
SOURCE = """#include <stdio.h>
int table[] = {1, 2, 4, 8};
__attribute__((noinline)) int sum(int n)
{
    int all = 0;
    for (int i = 0; i < n; i++) all += table[i];
    return all;
}
int main(int argc, char **argv)
{
    printf("all %%d\\n", sum(4));
    fflush(stdout);
    puts("again");
    fflush(stdout);
    if (argc > 1) *(volatile int *)%d = 1;
    return 3;
}
"""


def build(t, number):
    source = t.dir / "whole.c"
    source.write_text(SOURCE % number)
    t.run("cc", "-g", "-O1", "-fPIE", "-pie", "-Wl,--build-id", "-o", t.dir / "whole", source)


def record(t, name, script, libc=None):
    need_gdb(t)
    image(t)
    build(t, 8)
    program = t.dir / "whole"
    needs = re.findall(r"(/\S+) \(", t.run("ldd", program).text)
    libs = [x for x in needs if "libc.so" in x]
    t.equal(len(libs), 1, "the C library of this machine")
    return libs[0], t.linux(name, "--memory", "256M", "--checkpoint-every", "0.5", "--add", f"{program}:{program}", "--add",
                            f"{pathlib.Path(LOADER).resolve()}:{LOADER}", "--add",
                            f"{libc or pathlib.Path(libs[0]).resolve()}:{libs[0]}",
                            append="quiet", script=script)


def show(t, *command, code=0, lines=()):
    more = [x for line in lines for x in ("-ex", line)]
    out = t.run(t.reprise, *command, "--", "-nx", "-batch", "-ex", "set width 0", *more,
                stderr=subprocess.STDOUT, timeout=100, code=code).text
    t.lacks(out, "Python Exception|[Ii]nternal error|Remote connection closed", "gdb's output")
    return out


@test("gdb/program-found", cost=3)
def found(t):
    """Program and C library at their addresses, breakpoints in both, both ways; another build of the
    program is told and not read."""
    libc, _ = record(t, "rec", f"{t.dir}/whole\n{t.dir}/whole crash\n")
    out = show(t, "gdb", t.dir / "rec", "--process", "whole#1", lines=(
        "break sum", "continue", "backtrace", "info sharedlibrary", "break puts", "continue", "backtrace",
        "reverse-continue", "backtrace", "info auxv", "catch syscall exit_group", "printf \"orig %d\\n\", $orig_rax"))
    t.has(out, f"gdb reads {t.dir}/whole, the build that the guest runs")
    t.equal(len(re.findall(r"(?m)^#0 .*\bsum \(n=", out)), 2, "stops in the program")
    t.has(out, r"(?m)^#1 .*\bmain \(argc=1")
    t.has(out, rf"(?m)^0x\w+ +0x\w+ +Yes.* {re.escape(libc)}$")
    t.has(out, r'(?m)^#0 .*puts \(')
    t.has(out, rf"AT_EXECFN .*\"{t.dir}/whole\"")
    t.has(out, "(?m)^orig -1$")
    out = show(t, "debug", t.dir / "rec", lines=("backtrace", "break sum", "reverse-continue", "backtrace"))
    t.has(out, r"whole crash \(pid \d+\) crashes here")
    t.has(out, r"(?m)^#0 .*\bmain \(argc=2")
    t.has(out, r"(?m)^#0 .*\bsum \(n=")
    build(t, 16)
    out = show(t, "debug", t.dir / "rec", lines=("info files",))
    t.has(out, f"the process runs {t.dir}/whole; the file of that name here is another build")
    t.has(out, f'Symbols from "target:{t.dir}/whole"')
    (t.dir / "whole").unlink()
    out = show(t, "debug", t.dir / "rec", lines=("backtrace",))
    t.has(out, "here that is no program's file")
    t.has(out, r"(?m)^#0 .*\bmain \(argc=2, argv=.*\) at .*whole\.c:15$")


@test("gdb/program-library", cost=3)
def library(t):
    """A library of another build is told, and none is shown; where nothing crashed and processes are
    many, `debug` says so."""
    need_gdb(t)
    build(t, 8)
    libc = re.search(r"(/\S*libc\.so\S*) \(", t.run("ldd", t.dir / "whole").text).group(1)
    said = t.run("readelf", "-n", libc).text
    own = bytes.fromhex(re.search(r"Build ID: (\w+)", said).group(1))
    changed = t.dir / "libc"
    changed.write_bytes(pathlib.Path(libc).read_bytes().replace(own, bytes(b ^ 255 for b in own)))
    record(t, "rec", f"{t.dir}/whole\n{t.dir}/whole\n", changed)
    out = show(t, "gdb", t.dir / "rec", "--process", "whole#1", lines=(
        "break sum", "continue", "backtrace", "info sharedlibrary"))
    t.has(out, f"{re.escape(libc)} here is another build than the guest's")
    t.has(out, r"(?m)^#0 .*\bsum \(n=")
    t.lacks(out, rf"Yes.* {re.escape(libc)}$")
    out = show(t, "debug", t.dir / "rec", code=ERROR)
    t.has(out, "no process crashed, and which one is meant cannot be known")
