"""What a test is given: running commands with a time limit, recordings, checks, skipping."""
import fcntl
import json
import os
import pathlib
import pty
import random
import re
import select
import shlex
import signal
import subprocess
import termios
import threading
import time
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
IMAGES = ROOT / "build" / "images"
SLOW = {"asan": 6, "ubsan": 4, "cov": 6, "dev": 2}  # time limits are this much longer
TESTS = []

# docs/exit-codes.md
FINE, ERROR, USAGE, DIVERGED, DAMAGE, CRASH, HALTED, PANIC, TIMEOUT, NO_TEXT = range(10)

# What the log of a killed recorder ends with: how far it was, or a chunk that was sealed just then; or an
# input, before the machine went on from it, where the kill tore the one write of both (at a page's end).
KILLED = ("reached", "progress", "console", "packet", "link", "disk_error")
GUEST = 64


class Drawn(threading.local):
    """A random.Random of the test that this thread runs. Each test has its own seed, always the same
    one unless TEST_SEED is set, to a number or to "random": what decides whether a change is good
    must not be a draw. tests/soak.py draws."""

    def begin(self, name):
        said = os.environ.get("TEST_SEED")
        self.seed = (int.from_bytes(os.urandom(4), "little") if said == "random" else
                     int(said) if said else zlib.crc32(name.encode()))
        self.source = random.Random(self.seed)

    def __getattr__(self, name):
        return getattr(self.source, name)


rnd = Drawn()


class Skip(Exception):
    pass


class Failure(Exception):
    pass


class Test:
    def __init__(self, name, cost, function):
        self.name, self.cost, self.function = name, cost, function


def test(name, cost=1):
    """Marks a test; `cost` is about its seconds: the longest are started first."""

    def mark(function):
        TESTS.append(Test(name, cost, function))
        return function

    return mark


class Result:
    def __init__(self, code, out, err, seconds):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @property
    def text(self):
        return self.out.decode("utf-8", "replace").replace("\r\n", "\n")

    @property
    def error(self):
        return self.err.decode("utf-8", "replace")


def host_has(*flags):
    found = re.search(r"^flags\s*:(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    return bool(found) and set(flags) <= set(found.group(1).split())


def host_has_avx2():
    return host_has("avx2", "bmi2", "fma", "movbe")


def host_has_avx512():
    return host_has("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


class Case:
    """One running test."""

    def __init__(self, mode, place, log):
        self.mode, self.dir, self.log = mode, place, log
        self.env = {}  # of all that it starts
        self.build = ROOT / "build" / mode
        self.reprise = str(self.build / "reprise")
        self.slow = SLOW.get(mode, 1)
        self.state = place.parent / ".state"  # not the user's own
        self.children = []

    def end(self):
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()

    # Commands

    def environment(self, extra=None):
        env = dict(os.environ, LC_ALL="C", XDG_STATE_HOME=str(self.state), XDG_DATA_HOME=str(self.dir / "data"),
                   XDG_CACHE_HOME=str(self.dir.parent / "run-cache"), ASAN_OPTIONS="detect_leaks=1:abort_on_error=1",
                   UBSAN_OPTIONS="print_stacktrace=1")
        env.update(self.env)
        for name in ("REPRISE_TEST_PERTURB", "REPRISE_TEST_SLICE", "REPRISE_TEST_CODE_CACHE"):
            env.pop(name, None)
        env.update({k: str(v) for k, v in (extra or {}).items()})
        return env

    def start(self, argv, env=None, **more):
        """A child in a process group of its own, ended with the test at the latest."""
        argv = [str(a) for a in argv]
        self.log.write("$ " + shlex.join(argv) + "\n")
        self.log.flush()
        more.setdefault("stdin", subprocess.DEVNULL)
        more.setdefault("stdout", subprocess.PIPE)
        more.setdefault("stderr", subprocess.PIPE)
        more.setdefault("cwd", self.dir)
        child = subprocess.Popen(argv, env=self.environment(env), start_new_session=True, **more)
        self.children.append(child)
        return child

    def run(self, *argv, code=0, timeout=120, input=None, env=None, **more):
        """Runs to the end; fails unless the exit code is `code` (or among them; None: any)."""
        if input is not None:
            more["stdin"] = subprocess.PIPE
        began = time.monotonic()
        child = self.start(argv, env=env, **more)
        try:
            out, err = child.communicate(input, timeout * self.slow)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            out, err = child.communicate()
            self.show(child.returncode, out, err)
            raise Failure(f"{shlex.join(str(a) for a in argv)}: no end after "
                          f"{timeout * self.slow:.0f} s")
        result = Result(child.returncode, out or b"", err or b"", time.monotonic() - began)
        self.show(result.code, out, err)
        allowed = (code,) if isinstance(code, int) else code
        if allowed is not None and result.code not in allowed:
            last = (result.error.strip() or "nothing on stderr").splitlines()[-1]
            raise Failure(f"{shlex.join(str(a) for a in argv)}: exit code {result.code}, "
                          f"expected {' or '.join(map(str, allowed))}: {last}")
        return result

    def show(self, code, out, err):
        for name, data in (("stdout", out), ("stderr", err)):
            if data:
                text = data.decode("utf-8", "replace").replace("\r", "")
                if len(text) > 200000:
                    text = text[:100000] + "\n[...]\n" + text[-100000:]
                self.log.write(f"--- {name}\n{text.rstrip()}\n")
        self.log.write(f"--- exit code {code}\n")
        self.log.flush()

    # Recordings

    def record(self, name, *options, kernel=None, code=0, **more):
        return self.run(self.reprise, "record", "-o", self.dir / name, "--kernel", kernel,
                        *options, code=code, **more)

    def tiny(self, name, guest, *options, memory="16M", **more):
        """Records build/images/tiny/GUEST.elf."""
        return self.record(name, "--memory", memory, *options,
                           kernel=IMAGES / "tiny" / (guest + ".elf"), **more)

    def linux(self, name, *options, image="linux", append="", script=None, end=None, **more):
        """Records a boot; `script` becomes a file in the guest and is run."""
        where = IMAGES / image
        if script is not None:
            path = self.dir / (name + ".sh")
            path.write_text(script)
            options += ("--add", f"{path}:/script.sh")
            append += " reprise.script=/script.sh"
        if end:
            append += " reprise.end=" + end
        return self.record(name, "--initrd", where / "initrd", "--append", append.strip(),
                           *options, kernel=where / "vmlinuz", **more)

    def replay(self, name, *options, code=0, **more):
        return self.run(self.reprise, "replay", "--verify", *options, self.dir / name, code=code,
                        **more)

    def same(self, name, recorded, *options, **more):
        """Replays and compares the console with what recording printed."""
        replayed = self.replay(name, *options, **more)
        self.equal(replayed.out, recorded.out, "the console of the replay")
        return replayed

    def verify_checkpoints(self, name):
        """`reprise verify`: each of its checkpoints is what a replay comes to."""
        count = self.info(name)["checkpoints"]
        r = self.run(self.reprise, "verify", self.dir / name, timeout=300)
        self.has(r.error, f"checkpoints that are what the replay came to: {count} of {count}, noted as checked")

    def info(self, name, code=0):
        return json.loads(self.run(self.reprise, "info", "--json", self.dir / name, code=code).out)

    def events(self, name, code=0):
        out = self.run(self.reprise, "events", "--json", self.dir / name, code=code).text
        return [json.loads(line) for line in out.splitlines()]

    # Verdicts

    def check(self, good, what):
        if not good:
            raise Failure(what)

    def equal(self, a, b, what):
        if a != b:
            self.log.write(f"is:        {a!r}\nshould be: {b!r}\n")
            raise Failure(f"{what} is {brief(a)}, should be {brief(b)}")

    def has(self, text, pattern, what="output"):
        if not re.search(pattern, text, re.M):
            raise Failure(f"{what} has no match for /{pattern}/")

    def lacks(self, text, pattern, what="output"):
        found = re.search(f".*(?:{pattern}).*", text, re.M)
        if found:
            raise Failure(f"{what} has: {found.group(0).strip()}")

    def skip(self, why):
        raise Skip(why)

    def preloaded(self, source):
        """A library for LD_PRELOAD."""
        if self.mode == "asan":
            self.skip("the preloaded library and the address sanitizer do not go together")
        out = self.dir / "preloaded.so"
        self.run("gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", out, ROOT / "tests/tools" / source, "-ldl")
        return out

    def need_v3(self):
        self.need_model("v3")

    def need_model(self, model):
        """By its name, or v2, v3, with features or without; `reprise cpu show` says what this CPU lacks for it."""
        shown = json.loads(self.run(self.reprise, "cpu", "show", "--json", cpu(model)).out)
        if not shown["here"]:
            raise Skip(f"this CPU lacks {', '.join(shown['lacks'])} (--cpu {cpu(model)})")


def cpu(model):
    """What --cpu calls it."""
    return "x86-64-" + model if re.match(r"v[1-4]\b", model) else model


def brief(value):
    text = repr(value)
    return text if len(text) < 80 else text[:50] + "..." + text[-20:]


class Session:
    """`reprise record` with somebody at its console: through a pseudo-terminal, or a pipe."""

    def __init__(self, t, name, *options, terminal=False, image="linux", append="", kernel=None,
                 env=None, argv=None):
        self.t, self.out, self.err, self.terminal = t, b"", b"", terminal
        where = IMAGES / image
        if kernel is None:
            options += ("--initrd", where / "initrd", "--append", append)
            kernel = where / "vmlinuz"
        argv = argv or [t.reprise, "record", "-o", t.dir / name, "--kernel", kernel, *options]
        if terminal:
            self.master, self.slave = pty.openpty()
            self.before = termios.tcgetattr(self.slave)
            self.child = t.start(argv, env=dict(env or {}, TERM="dumb"), stdin=self.slave,
                                 stdout=self.slave, stderr=self.slave,
                                 preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        else:
            self.master, self.slave = None, None
            self.child = t.start(argv, env=env, stdin=subprocess.PIPE, bufsize=0)

    def read(self, seconds):
        """Reads what there is within that time; False at the end of it."""
        sources = [self.master] if self.terminal else [self.child.stdout, self.child.stderr]
        ready = select.select(sources, [], [], seconds)[0]
        got = False
        for source in ready:
            try:
                data = os.read(source if self.terminal else source.fileno(), 65536)
            except OSError:
                data = b""
            got = got or bool(data)
            if not self.terminal and source is self.child.stderr:
                self.err += data
            else:
                self.out += data
        return got or not ready

    def shown(self, pattern, seconds=30, start=0):
        """Until the output has a match from `start` on; returns where it ends, None: there was none in time."""
        limit = time.monotonic() + seconds * self.t.slow
        expression = re.compile(pattern.encode(), re.M)
        while True:
            found = expression.search(self.out, start)
            if found:
                return found.end()
            left = limit - time.monotonic()
            alive = left > 0 and self.child.poll() is None and self.read(min(left, 0.2))
            if not alive and not (self.child.poll() is not None and self.read(0) and
                                  expression.search(self.out, start)):
                if left > 0 and self.child.poll() is None:
                    continue
                return None

    def wait(self, pattern, seconds=30, start=0):
        """The same; that there is none in time is a failure."""
        end = self.shown(pattern, seconds, start)
        if end is None:
            self.close()
            raise Failure(f"the console never showed /{pattern}/")
        return end

    def send(self, text):
        data = text if isinstance(text, bytes) else text.encode()
        if self.terminal:
            os.write(self.master, data)
        else:
            self.child.stdin.write(data)

    def type(self, line, pattern=r"(/root|~) # (\x1b\[6n)?$", seconds=30):
        """Types a line, waits for the prompt after it; returns what was printed in between."""
        start = len(self.out)
        self.send(line + "\n")
        # After the echo: the shell may draw its prompt once more while it is typed to.
        end = self.wait(pattern, seconds, self.wait("\n", seconds, start))
        return self.out[start:end].decode("utf-8", "replace").replace("\r", "")

    def prompt(self, seconds=40):
        self.wait(r"(/root|~) # (\x1b\[6n)?$", seconds)

    def finish(self, code=0, seconds=30):
        """Waits for the end; the rest of the output is read. Returns the exit code."""
        limit = time.monotonic() + seconds * self.t.slow
        while self.child.poll() is None and time.monotonic() < limit:
            self.read(0.1)
        if self.child.poll() is None:
            self.close()
            raise Failure("the recorder did not end")
        while self.read(0.05) and select.select(
                [self.master] if self.terminal else [self.child.stdout], [], [], 0)[0]:
            pass
        if not self.terminal:
            self.out += self.child.stdout.read() or b""
            self.err += self.child.stderr.read() or b""
        self.close()
        if code is not None and self.child.returncode != code:
            raise Failure(f"exit code {self.child.returncode}, expected {code}")
        return self.child.returncode

    def close(self):
        if self.out is not None:
            self.t.show(self.child.poll(), self.out, self.err)
        if self.master is not None:
            os.close(self.master)
            os.close(self.slave)
            self.master = None


def killed_typed(t, name, words, *options):
    """A recording whose recorder was killed: echo, which has answered these words."""
    s = Session(t, name, "--memory", "16M", *options, kernel=IMAGES / "tiny" / "echo.elf")
    for word in words:
        start = len(s.out)
        s.send(word + "\n")
        s.wait("\n", start=start)
    s.child.kill()
    s.child.wait()
    s.close()
