"""`reprise debug` on what `reprise run` recorded: system calls, processes that it makes, signals, /proc,
the program's file out of the recording."""
import os
import platform
import re
import shutil
import subprocess

from suite.gdb import need_gdb
from suite.harness import test
from suite.run_program import last, own, run

# From 2.41 on the C library calls the kernel in a function of its own, whose name it does not export.
CALL_HAS_NAME = [int(x) for x in re.findall(r"\d+", platform.libc_ver()[1])] < [2, 41]

SOURCE = """#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
static volatile int caught;
static void on_signal(int number)
{
    caught = number;
}
__attribute__((noinline)) int child_work(int n)
{
    return n * 2 + caught;
}
__attribute__((noinline)) int crash(int *at)
{
    return *at = 5;
}
int main(int argc, char **argv)
{
    int status;
    if (argc > 1)
        return 10 + child_work(argc);
    signal(SIGUSR1, on_signal);
    if (!fork()) {
        child_work(3);
        execl(argv[0], argv[0], "again", NULL);
        _exit(1);
    }
    wait(&status);
    if (!vfork())
        _exit(6);
    printf("status %d\\n", WEXITSTATUS(status));
    fflush(stdout);
    raise(SIGUSR1);
    return crash((int *)(long)(caught - 2));
}
"""


def record(t):
    """The program in a directory of its own."""
    need_gdb(t)
    own(t)
    (t.dir / "its").mkdir()
    (t.dir / "its/p.c").write_text(SOURCE)
    t.run("gcc", "-g", "-O1", "-Wl,--build-id", "-o", t.dir / "its/p", t.dir / "its/p.c")
    r = run(t, t.dir / "its/p", code=139)
    t.equal(r.out, b"status 14\n", "what it printed")


def show(t, *lines, options=()):
    """Real gdb on it, by `debug`."""
    path = t.dir / "script.gdb"
    path.write_text("set pagination off\nset width 0\n" + "\n".join(lines) + "\n")
    out = t.run(t.reprise, "debug", *options, last(t), "--", "-nx", "-batch", "-x", path,
                stderr=subprocess.STDOUT, timeout=100).text
    t.lacks(out, "Python Exception|Traceback|[Ii]nternal error|Remote connection closed", "gdb's output")
    return out


def in_order(t, out, *patterns):
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.M).search(out, at)
        t.check(found, f"after {at} characters there is no /{pattern}/ in what gdb says:\n{out}")
        at = found.end()


@test("gdb/run-events", cost=14)
def events(t):
    """A crash is SIGSEGV with its address; system calls, forks and signals stop where they are caught, both
    ways; gdb follows into the child, through its exec; the machine and back."""
    record(t)
    out = show(t, "info signals SIGSEGV", "print $_siginfo.si_signo", "print $_siginfo._sifields._sigfault.si_addr",
               "catch syscall write", "catch fork", "catch vfork", *6 * ("reverse-continue",), *5 * ("continue",))
    write = r"Catchpoint 1 \(%s syscall '?write'?\), .*" + ("write" if CALL_HAS_NAME else r"in \?\?") + r" \("
    back = [write % "returned from", write % "call to", r"Catchpoint 3 \(vforked process \d+\)",
            r"Catchpoint 2 \(forked process \d+\)", "The program begins here"]
    on = [r"Catchpoint 3 \(vforked", write % "call to", write % "returned from",
          r"received signal SIGUSR1, .*\n.*\bon_signal \(number=10\)"]
    in_order(t, out, r"\(pid \d+\) crashes here", r"crash \(at=0x8\)", r"(?m)^\$1 = 11$", r"(?m)^\$2 = \(void \*\) 0x8$",
             r"received signal SIGUSR1", *back, r"Catchpoint 2 \(forked", *on)
    out = show(t, "reverse-continue", "handle SIGUSR1 nostop noprint pass", "reverse-continue",
               "set follow-fork-mode child", "break child_work", "continue", "backtrace", "catch exec", "continue",
               "continue", "backtrace", "info threads", "delete", "continue")
    in_order(t, out, r"received signal SIGUSR1", r"The program begins here", r"Attaching after Thread (\d+)\.\1 fork to child",
             r"hit Breakpoint 1, child_work \(n=", r"(?m)^#1 .*\bmain \(", r"hit Catchpoint 2 \(exec'd .*/its/p\)",
             r"hit Breakpoint 1, child_work \(n=2\)", r"(?m)^#1 .*\bmain \(", r"(?m)^\* .*Thread (\d+)\.\1 \"p\"",
             r"ends here, with status 14\.")
    # Of that name the child of vfork() may still be on its way out.
    out = show(t, "monitor kernel", "backtrace", "printf \"pid %d\\n\", $pid", "monitor process p#1", "backtrace",
               "catch syscall exit_group", "monitor kernel", "info threads")
    in_order(t, out, r"gdb is shown the machine", r"(?m)^#0 .*\bdo_coredump \(", r"(?m)^#1 .*get_signal", r"(?m)^pid \d+$",
             r"gdb is shown the process", r"(?m)^#0 .*\bcrash \(at=0x8\) at ", r"gdb is shown the machine", r"CPU 0")


@test("gdb/run-alone", cost=12)
def alone(t):
    """/proc of the process; and with its directory gone, and no library of this machine, names and lines
    out of the guest's memory."""
    record(t)
    shutil.rmtree(t.dir / "its")
    out = show(t, "info proc", "info proc mappings", "info proc status", "info proc cmdline", "backtrace", "x/2i puts",
               "set sysroot target:", "info sharedlibrary", "break child_work", "catch syscall write", "reverse-continue",
               "reverse-continue", "info symbol $pc", "monitor process nobody",
               "python gdb.execute('maint packet vFile:open:%s,0,0' % b'/etc/passwd'.hex())",
               "python gdb.execute('maint packet vFile:open:%s,0,0' % b'/proc/1/maps'.hex())")
    program = re.escape(f"{t.dir}/its/p")
    in_order(t, out, rf"the process runs {program}; here that is no program's file",
             r"gdb has of it what was in the guest's memory", r"(?m)^#0  crash \(at=0x8\) at .*p\.c:16$",
             rf"cmdline = '{program}'", rf"cwd = '{re.escape(str(t.dir))}/here'", rf"exe = '{program}'",
             rf"0x\w+ +0x\w+ +0x\w+ +0x\w+ +r-xp +{program}", r"libc\.so\.6", r"\[stack\]", rf"(?m)^Uid:\t{os.getuid()}\t",
             r"(?m)^#1 .*\bmain \(argc=.*p\.c:\d+$", r"puts.*>:\t\w+", r"Yes.* target:/.*libc\.so\.6",
             r"received signal SIGUSR1", r"returned from syscall '?write", r"write.* in section \.text of target:/.*libc\.so" if CALL_HAS_NAME else r"No symbol matches \$pc",
             r"0 processes of the name nobody run here", r'received: "F-1,2"', r'received: "F-1,2"')
