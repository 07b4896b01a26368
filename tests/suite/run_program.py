"""`reprise run`: a program of the host in a machine of its own."""
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import threading
import time

from suite.boot import image
from suite.harness import ERROR, IMAGES, ROOT, USAGE, test

OURS = 125


def own(t):
    """The harness gives each test recordings of its own; the machine that programs run in all have together."""
    image(t, "run")


def run(t, *argv, options=(), typed=b"", **more):
    """In a directory of its own, with these bytes as input."""
    (t.dir / "here").mkdir(exist_ok=True)
    (t.dir / "typed").write_bytes(typed)
    with open(t.dir / "typed", "rb") as f:
        return t.run(t.reprise, "run", *options, "--", *argv, stdin=f, cwd=t.dir / "here", **{"timeout": 300, **more})


def last(t):
    return t.dir / "data/reprise/latest"


def replayed(t, r):
    """The last one replays, and shows what it showed, apart."""
    again = t.run(t.reprise, "replay", "--verify", timeout=300)
    t.equal(again.out, r.out, "standard output of the replay")
    t.has(again.error, "replayed without a difference")
    return again


def compiled(t, source, *options):
    (t.dir / "p.c").write_text(source)
    t.run("gcc", "-g", "-o", t.dir / "p", t.dir / "p.c", *options)
    return t.dir / "p"


@test("run/programs", cost=20)
def programs(t):
    """What a program is given and gives: input, outputs apart, arguments, environment, directory, user, exit status."""
    own(t)
    r = run(t, "sh", "-c", "echo out; echo err >&2; exit 7", code=7)
    t.equal(r.out, b"out\n", "standard output")
    t.has(r.error, "^err$")
    again = replayed(t, r)
    t.has(again.error, "^err$")
    (t.dir / "here").mkdir(exist_ok=True)
    (t.dir / "here/of the host").write_bytes(b"before\n")
    r = run(t, "sh", "-c", 'cat; pwd; id -u; id -g; umask; echo "$GIVEN"; for a; do echo "<$a>"; done; cat "of the host"; '
            'echo after >"of the host"; cat "of the host"; uname -n', "x", "", "two words", "\xe4\n", typed=b"one\n\0\xff two",
            env={"GIVEN": "a\nb"})
    mask = os.umask(0o22)
    os.umask(mask)
    t.equal(r.out, b"one\n\0\xff two" + (f"{t.dir}/here\n{os.getuid()}\n{os.getgid()}\n{mask:04o}\na\nb\n<>\n<two words>\n<\xe4\n>\n"
            f"before\nafter\n{os.uname().nodename}\n").encode(), "what it saw")
    t.equal((t.dir / "here/of the host").read_bytes(), b"before\n", "the host's file")
    shutil.rmtree(t.dir / "here")
    replayed(t, r)
    for how, code in (("kill -SEGV $$", 139), ("kill -KILL $$", 137), ("exec false", 1)):
        run(t, "sh", "-c", how, code=code)
    size = 5_000_000
    r = run(t, "sh", "-c", f"head -c {size} /dev/zero; head -c {size} /dev/zero | tr '\\0' x >&2")
    t.equal(r.out, bytes(size), "much output")
    t.equal(r.error, "x" * size, "much standard error")
    began = abs(time.time() - int(run(t, "date", "+%s").out))
    t.check(began < 100 * t.slow, f"the clock is {began} s off")
    a, b = (run(t, "head", "-c", "16", "/dev/urandom").out for _ in "ab")
    t.check(a != b, "the same randomness in two runs")
    a, b = (run(t, "head", "-c", "16", "/dev/urandom", options=("--seed", 5)).out for _ in "ab")
    t.equal(a, b, "the randomness of --seed 5")


# Reads two files again and again, each time to the end, and says which version each was: the last bytes of both, of
# which the first consists.
READS_ITS_OWN = """
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static char data[1 << 20];
static long whole(const char *path)
{
    for (int tries = 0; tries < 200; tries++) {
        int fd = open(path, O_RDONLY);
        long n = 0, got = 1;
        while (fd >= 0 && got > 0 && (got = read(fd, data + n, sizeof(data) - n)) > 0)
            n += got;
        if (fd >= 0)
            close(fd);
        if (fd >= 0 && !got)
            return n;
        if (errno != ESTALE) {
            perror(path);
            exit(3);
        }
    }
    printf("%s: no version is found any more\\n", path);
    exit(4);
}
int main(int argc, char **argv)
{
    int last = -1, different = 0;
    for (int i = 0; i < 20000 && different < 15; i++) {
        long n = whole(argv[1]);
        int version = atoi(data + n - 8);
        for (long k = 0; k < n; k += 8)
            if (atoi(data + k) != version) {
                printf("torn at %ld of %ld: %d in %d\\n", k, n, atoi(data + k), version);
                return 2;
            }
        n = whole(argv[2]);
        if (version != last)
            printf("%d %d %ld\\n", version, atoi(data + n - 8), n), different++;
        last = version;
    }
    return 0;
}
"""


@test("run/replaced", cost=8)
def replaced(t):
    """A program that reads its own files, a copy of itself among them, while they are replaced on the host all the
    time: each is one that there was, whole, never an older one than before, and found soon; and the replay, without
    any of them, has the same."""
    own(t)
    if not shutil.which("gcc"):
        t.skip("gcc is not there")
    here = t.dir / "here"
    here.mkdir()
    program = compiled(t, READS_ITS_OWN)
    bare = program.read_bytes()
    over = threading.Event()

    def put(name, data):
        (here / "new").write_bytes(data)
        (here / "new").chmod(0o755)
        os.replace(here / "new", here / name)

    def replace(version):
        stamp = b"%07d\n" % version
        put("file", stamp * (1000 + version % 9000))
        put("copy", bare + stamp)

    def go_on():
        version = 2
        while not over.is_set():
            replace(version)
            version += 1
            time.sleep(0.02)

    replace(1)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        r = run(t, program, "file", "copy")
    finally:
        over.set()
        thread.join()
    shutil.rmtree(here)
    program.unlink()
    rows = [tuple(int(n) for n in line.split()) for line in r.out.splitlines()]
    t.check(len(rows) > 5, f"only {len(rows)} versions were seen")
    t.equal({size for _, _, size in rows}, {len(bare) + 8}, "sizes of the copy")
    for column in list(zip(*rows))[:2]:
        t.check(list(column) == sorted(column), f"an older one was seen: {column}")
    replayed(t, r)
    return f"{len(rows)} versions of {rows[-1][0]}"


@test("run/recordings", cost=8)
def recordings(t):
    """Where they are, `latest`, ls, rm; -o; what a recording adds, and that it stands alone."""
    own(t)
    t.has(t.run(t.reprise, "ls").error, "no recordings in")
    t.has(t.run(t.reprise, "info", code=USAGE).error, "which recording")
    for _ in range(2):
        run(t, "true")
    run(t, "/bin/echo", "x")
    names = [json.loads(line) for line in t.run(t.reprise, "ls", "--json").out.splitlines()]
    t.equal([(n["name"], n["latest"]) for n in names], [("true-0", False), ("true-1", False), ("echo-0", True)], "names")
    t.check(max(n["bytes"] for n in names[:2]) < 2_000_000, f"a recording adds {names}")
    t.has(t.run(t.reprise, "ps").text, "/bin/echo x$")
    t.equal(json.loads(t.run(t.reprise, "info", "--json").out)["end"], "exit", "how the latest ended")
    t.run(t.reprise, "rm", "true-0", "echo-0")
    t.check(not (t.dir / "data/reprise/true-0").exists(), "rm left it")
    t.equal(last(t).resolve().name, "true-1", "the latest when the last one was removed")
    t.has(t.run(t.reprise, "rm", "true-0", code=ERROR).error, "true-0: No such file")
    (t.dir / "data/reprise/true-1/mine").write_bytes(b"")
    t.has(t.run(t.reprise, "rm", "true-1", code=ERROR).error, "not only a recording .*'mine'")
    (t.dir / "data/reprise/true-1/mine").unlink()
    t.run(t.reprise, "rm", "latest")
    t.check(not last(t).is_symlink(), "there is a latest of none")
    several = [t.start([t.reprise, "run", "--", "sh", "-c", f"exit {n}"]) for n in range(4)]
    t.equal([child.wait(300 * t.slow) for child in several], [0, 1, 2, 3], "statuses of four at once")
    t.equal(sorted(json.loads(x)["name"] for x in t.run(t.reprise, "ls", "--json").out.splitlines()),
            [f"sh-{n}" for n in range(4)], "names of four at once")
    r = run(t, "echo", "there", options=("-o", t.dir / "named"))
    t.has(run(t, "true", options=("-o", t.dir / "named"), code=OURS).error, "named exists already")
    other = t.dir / "other"
    shutil.copytree(t.dir / "named", other)
    again = t.run(t.reprise, "replay", "--verify", other, env={"XDG_CACHE_HOME": t.dir / "none"})
    t.equal(again.out, r.out, "what a copy shows without the machine that it began in")
    # That machine damaged, or not finished: it is made anew.
    t.env["XDG_CACHE_HOME"] = str(t.dir / "cache")
    small = ("--memory", "192M")
    total = int(run(t, "grep", "MemTotal", "/proc/meminfo", options=small).text.split()[1])
    t.check(140_000 < total < 192 << 10, f"{total} kB in a machine of 192M")
    base, = (t.dir / "cache/reprise").glob("run-????????????????")
    with open(base / "log", "r+b") as f:
        f.truncate(100)
    r = run(t, "echo", "again", options=small)
    t.equal(r.out, b"again\n", "what a program prints then")
    t.has(r.error, "making the machine that programs run in")
    t.equal([x.name for x in (t.dir / "cache/reprise").iterdir() if x.is_dir()], [base.name], "what is left of machines")


@test("run/refused", cost=5)
def refused(t):
    """No program, or none that can be executed; no image; no place."""
    own(t)
    t.has(t.run(t.reprise, "run", code=USAGE).error, "which program")
    t.has(run(t, "nothing-of-that-name", code=127).error, "^reprise: nothing-of-that-name: not found in PATH: No such file or directory")
    (t.dir / "text").write_bytes(b"#!/nowhere/interpreter\n")
    (t.dir / "text").chmod(0o755)
    t.has(run(t, t.dir / "text", code=126).error, "the interpreter that it names is not there")
    t.has(run(t, t.dir, code=126).error, "Permission denied")
    (t.dir / "arm").write_bytes(b"\x7fELF\2\1\1" + bytes(9) + b"\2\0\xb7\0\1\0\0\0" + bytes(40))
    (t.dir / "arm").chmod(0o755)
    t.has(run(t, t.dir / "arm", code=126).error, "Exec format error")
    t.has(run(t, "true", options=("--memory", "3"), env={"XDG_CACHE_HOME": t.dir / "c"}, code=OURS).error, "cannot be made")
    t.has(run(t, "true", env={"XDG_CACHE_HOME": "", "HOME": ""}, code=OURS).error, "neither XDG_CACHE_HOME nor HOME")
    t.has(run(t, "true", env={"XDG_DATA_HOME": "", "HOME": ""}, code=OURS).error, "neither XDG_DATA_HOME nor HOME")


@test("run/packed", cost=6)
def packed(t):
    """`run -o FILE.reprise`: one file, which replays. Where the name is taken nothing is recorded; taken while the program ran
    (by itself, with --write), the recording stays a directory, and that is the result."""
    own(t)
    r = run(t, "sh", "-c", "cat; exit 7", options=("-o", "p.reprise"), typed=b"typed\n", code=7)
    t.equal(r.out, b"typed\n", "standard output")
    t.equal([p.name for p in (t.dir / "here").iterdir()], ["p.reprise"], "what is left")
    again = t.run(t.reprise, "replay", "--verify", t.dir / "here/p.reprise", timeout=300)
    t.equal(again.out, r.out, "standard output of the replay")
    # What gdb wants of the program is in it, as it may be opened where these files are not.
    pieces = {e["hash"]: e["size"] for e in t.events(t.dir / "here/p.reprise") if e["type"] in ("content", "kept")}
    t.check(any(e["type"] == "kept" for e in t.events(t.dir / "here/p.reprise")), "nothing was kept")
    t.run(t.reprise, "unpack", t.dir / "here/p.reprise", "-o", t.dir / "unpacked")
    data, at, there = (t.dir / "unpacked/contents").read_bytes(), 32, {}  # docs/format.md, "The file `contents`"
    while at < len(data):
        _, size, stored, _, high, low, _ = struct.unpack_from("<IIIIQQQ", data, at)
        there[f"{high:016x}{low:016x}"] = size
        at += 40 + stored
    t.equal(there, pieces, "the pieces that are there, and those that the log names")
    before = (t.dir / "here/p.reprise").read_bytes()
    r = run(t, "echo", "out", options=("-o", "p.reprise"), code=OURS)
    t.has(r.error, r"p\.reprise exists already$")
    t.equal((r.out, (t.dir / "here/p.reprise").read_bytes()), (b"", before), "what was there")
    r = run(t, "sh", "-c", "echo mine >k.reprise; exit 3", options=("--write", ".", "-o", "k.reprise"), code=OURS)
    t.has(r.error, r"not packed; the recording is k\.reprise\.recording, `reprise pack` packs it")
    t.has(r.error, "without that the exit code were 3$")
    t.equal((t.dir / "here/k.reprise").read_text(), "mine\n", "what was there")
    t.run(t.reprise, "info", t.dir / "here/k.reprise.recording")


@test("run/signals", cost=5)
def signals(t):
    """Signals reach the program; the second of two SIGINT within a second ends the recording."""
    own(t)
    script = "trap 'echo told' INT TERM USR1; echo ready; for i in 1 2 3 4 5 6 7 8 9; do sleep 30 & wait $!; done"

    def start():
        return t.start([t.reprise, "run", "--", "sh", "-c", script], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE)
    child = start()
    t.equal(child.stdout.readline(), b"ready\n", "its first line")
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        child.send_signal(number)
        t.equal(child.stdout.readline(), b"told\n", f"what it said of signal {number}")
    for _ in range(2):
        child.send_signal(signal.SIGINT)
        time.sleep(0.1)
    out, err = child.communicate(timeout=60 * t.slow)
    t.equal(child.returncode, OURS, f"the exit code ({err})")
    t.has(err.decode(), "the program's end is not known")
    t.has(t.run(t.reprise, "replay", t.dir / "data/reprise/sh-0").text, "^told\n")


@test("run/reader-gone", cost=3)
def reader_gone(t):
    """Who reads its output leaves: the program gets SIGPIPE, and nothing else is lost."""
    own(t)
    child = t.start([t.reprise, "run", "--", "sh", "-c", "yes; echo $? >&2; exec yes"], stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    t.equal(child.stdout.readline(), b"y\n", "its first line")
    child.stdout.close()
    t.equal((child.wait(60 * t.slow), child.stderr.read()), (128 + signal.SIGPIPE, b"%d\n" % (128 + signal.SIGPIPE)), "its end")
    t.has(t.run(t.reprise, "ps").text, r"signal 13 .* yes$")
    t.has(t.run(t.reprise, "replay", "--verify", last(t)).error, "replayed without a difference")


@test("run/terminal", cost=5)
def terminal(t):
    """On a terminal the program has one: its size, its changes, Ctrl-C."""
    own(t)
    import fcntl
    import struct
    import termios
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    child = t.start([t.reprise, "run", "--", "bash", "--norc", "-c",
                     "tty; stty size; trap 'stty size' WINCH; trap 'echo broken' INT; echo ready; read x; echo got $x; read y; echo $y"],
                    stdin=slave, stdout=slave, stderr=slave, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(slave)
    seen = b""

    def shown(pattern):
        nonlocal seen
        limit = time.monotonic() + 60 * t.slow
        while not re.search(pattern, seen):
            t.check(time.monotonic() < limit, f"the terminal never showed {pattern}: {seen}")
            if not select.select([master], [], [], 1)[0]:
                continue
            try:
                seen += os.read(master, 4096)
            except OSError:
                t.check(False, f"the terminal is closed without {pattern}: {seen}")
    shown(rb"/dev/pts/\d+\r\n33 77\r\nready\r\n")
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    time.sleep(0.3)  # the shell runs traps once its `read` has a line
    os.write(master, b"some words\r")
    shown(rb"40 100\r\n")
    shown(rb"got some words\r\n")
    os.write(master, b"\x03")
    shown(rb"broken\r\n")
    os.write(master, b"last\r")
    shown(rb"last\r\n[^l]*")
    t.equal(child.wait(60 * t.slow), 0, "its exit status")
    os.close(master)


CRASH = r"""
#include <pthread.h>
#include <stdio.h>
static int *volatile where;
static void *other(void *arg) { puts("other"); fflush(stdout); *where = 1; return arg; }
int main(void)
{
    pthread_t t;
    pthread_create(&t, 0, other, 0);
    pthread_join(t, 0);
    return 0;
}
"""


@test("run/crash", cost=12)
def crash(t):
    """A threaded program that crashes: one command records it, points and ps find it, from a machine without its file."""
    own(t)
    program = compiled(t, CRASH, "-pthread")
    r = run(t, program, code=139)
    t.equal(r.out, b"other\n", "what it printed")
    program.unlink()
    lives = [json.loads(line) for line in t.run(t.reprise, "ps", "--json").out.splitlines()]
    main, = (p for p in lives if p.get("command", "").endswith("/p") and p["pid"] == p["tid"])
    t.equal(len([p for p in lives if p["pid"] == main["pid"]]), 2, "its threads")
    place = json.loads(t.run(t.reprise, "replay", "--to", "crash", "--json", last(t)).out)
    t.equal(place["process"]["comm"], "p", "who crashed")
    t.has("\n".join(f["symbol"] for f in place["backtrace"] if f["user"]), r"^\w+\+0x[0-9a-f]+ \(p\)$")
    t.run(t.reprise, "replay", "--to", "exec:p", last(t))
    replayed(t, r)


RACE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>
#define TIMES 3000000
static volatile long bare, locked;
static void *add(void *arg)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((long)arg, &one);
    if (sched_setaffinity(0, sizeof(one), &one))
        return perror("sched_setaffinity"), (void *)-1L;
    for (int i = 0; i < TIMES; i++)
        bare++;
    for (int i = 0; i < TIMES / 100; i++)
        __atomic_fetch_add(&locked, 1, __ATOMIC_SEQ_CST);
    return (void *)(long)sched_getcpu();
}
int main(void)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    pthread_t t[32];
    void *ran;
    for (long i = 0; i < cpus; i++)
        pthread_create(t + i, 0, add, (void *)i);
    for (long i = 0; i < cpus; i++) {
        pthread_join(t[i], &ran);
        printf("%ld on %ld\n", i, (long)ran);
    }
    printf("%ld CPUs, atomic %s, %ld lost\n", cpus, locked == cpus * (TIMES / 100) ? "whole" : "torn", cpus * TIMES - bare);
    return bare == cpus * TIMES;
}
"""


@test("run/copies", cost=15)
def copies(t):
    """Processes have their libraries at addresses of their own: what is copied is what is translated, wherever it is; and
    what is decoded by its head is what Zydis decodes."""
    own(t)
    r = run(t, "/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do echo $i | sed s/1/2/ | sort; done; ls -l / | wc -l",
            options=("--cpus", "2"))
    for room, least in (None, 5000), ("2000", 1000):
        env = {"REPRISE_TEST_COPIES": "1", "REPRISE_TEST_HEADS": "1", **({"REPRISE_TEST_CODE_CACHE": room} if room else {})}
        again = t.run(t.reprise, "replay", "--verify", "--stats", timeout=300, env=env)
        t.equal(again.out, r.out, "standard output of the replay")
        n = int(re.search(r"blocks copied.* ([\d,]+)\n", again.error)[1].replace(",", ""))
        t.check(n >= least, f"{n} blocks were copied")


@test("run/cpus", cost=10)
def cpus(t):
    """A program with a thread on each of three CPUs, which lose each other's additions; the replay loses the same. How
    many there may be."""
    own(t)
    if not shutil.which("gcc"):
        t.skip("gcc is not there")
    program = compiled(t, RACE, "-pthread")
    r = run(t, program, options=("--cpus", 3))
    t.has(r.text, r"^0 on 0\n1 on 1\n2 on 2\n3 CPUs, atomic whole, [1-9]\d* lost\n$")
    t.equal(t.info(last(t))["cpus"], 3, "cpus of info")
    replayed(t, r)
    for n in ("0", "33", "two"):
        t.has(run(t, "true", options=(f"--cpus={n}",), code=USAGE).error, "--cpus")
    t.equal(run(t, "nproc").out, b"1\n", "CPUs when nothing is said")
