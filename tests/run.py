#!/usr/bin/env python3
"""Runs the tests: `make test`, or tests/run.py [PATTERN...] after `make test-build`.

Prints one line a test, keeps what each said in build/test/MODE/NAME.log, goes on after failures,
and ends with "N passed, N failed, N skipped". Tests are functions in tests/suite/*.py marked with
@test("group/name"); tests/suite/harness.py says what they are given. Names in tests/off are
skipped with the reason that stands there, unless --all or the exact name asks for them.
"""
import argparse
import fnmatch
import importlib
import os
import shutil
import sys
import threading
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True

from suite import harness  # noqa: E402

MODULES = ["source", "release", "install", "hardening", "unit", "tiny", "modes", "bios", "golden", "kvm", "kvm_host", "imitation", "free", "stops", "paranoid", "tsc_module",
           "boot", "avx512", "smp", "litmus", "hunt", "chaos", "simplify", "planted", "session", "begin", "libvirt", "lives", "life_points", "ends", "privacy", "locked", "mutations", "badinput", "damage", "docs", "symbols", "travel", "checkpoints", "trace", "words", "compare", "counters", "stats", "perf", "gdb", "gdb_peers",
           "gdb_record", "gdb_access", "gdb_session", "gdb_user", "gdb_process", "gdb_program", "gdb_run", "gdb_many", "disk",
           "disk_sources", "disk_host", "bootdisk", "net", "net_user", "net_begin", "share", "agent", "agent_system", "run_program", "run_daily", "run_write", "run_gpu", "room",
           "display", "display_live", "debian", "i386", "port", "input",
           "gpu", "renderer", "gpu_images", "virgl", "virgl_begin", "virgl_hostile", "gpu_play", "doctor", "verify", "pack", "cpu"]


def off_list():
    """tests/off: a pattern, a blank, the reason."""
    result = []
    path = harness.ROOT / "tests" / "off"
    for line in path.read_text().splitlines() if path.exists() else []:
        if line and not line.startswith("#"):
            pattern, _, reason = line.partition(" ")
            result.append((pattern, reason.strip()))
    return result


class Runner:
    def __init__(self, tests, args):
        self.queue = sorted(tests, key=lambda t: -t.cost)
        self.args = args
        self.off = [] if args.all else off_list()
        self.lock = threading.Lock()
        self.count = {"ok": 0, "FAIL": 0, "skip": 0}
        self.failed = []
        self.began = time.monotonic()

    def take(self):
        with self.lock:
            return self.queue.pop(0) if self.queue else None

    def say(self, verdict, test, seconds, note=""):
        with self.lock:
            self.count[verdict] += 1
            if verdict == "FAIL":
                self.failed.append((test.name, harness.rnd.seed, note))
            line = f"{verdict:<4} {test.name:<32} {seconds:7.1f} s"
            print(line + (f"  {note}" if note else ""), flush=True)

    def run_one(self, test):
        for pattern, reason in self.off:
            if fnmatch.fnmatch(test.name, pattern) and test.name not in self.args.pattern:
                self.say("skip", test, 0, "switched off: " + reason)
                return
        harness.rnd.begin(test.name)
        base = harness.ROOT / "build" / "test" / self.args.mode
        place = base / test.name.replace("/", "-")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        began = time.monotonic()
        verdict, note = "ok", ""
        with open(str(place) + ".log", "w", encoding="utf-8", errors="replace") as log:
            log.write(f"TEST_SEED={harness.rnd.seed}\n")
            t = harness.Case(self.args.mode, place, log)
            try:
                note = test.function(t) or ""
            except harness.Skip as why:
                verdict, note = "skip", str(why)
            except harness.Failure as why:
                verdict, note = "FAIL", str(why)
            except Exception:  # a broken test must not end the others
                verdict, note = "FAIL", traceback.format_exc().strip().splitlines()[-1]
                log.write(traceback.format_exc())
            finally:
                t.end()
            log.write(f"\n{verdict}: {note}\n")
        if verdict == "FAIL":
            note += f" [{os.path.relpath(str(place) + '.log', harness.ROOT)}]"
        elif not self.args.keep:
            shutil.rmtree(place, ignore_errors=True)
        self.say(verdict, test, time.monotonic() - began, note.replace("\n", " "))

    def work(self):
        while (test := self.take()) is not None:
            try:
                self.run_one(test)
            except Exception:  # there was no place or no log for it
                self.say("FAIL", test, 0, traceback.format_exc().strip().splitlines()[-1])

    def show_end(self, name, lines=12, columns=400):
        """The end of a test's log: where the tests ran far away, it is what there is."""
        log = harness.ROOT / "build" / "test" / self.args.mode / (name.replace("/", "-") + ".log")
        if not log.exists():
            return
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:]:
            print("    " + line[:columns])

    def run(self):
        threads = [threading.Thread(target=self.work) for _ in range(self.args.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - self.began
        for name, seed, note in sorted(self.failed):
            self.show_end(name)
            print(f"failed: {name}: {note}; again: TEST_SEED={seed} tests/run.py --mode {self.args.mode} {name}")
        print(f"{len(self.failed) or 'no'} failure(s) in {seconds:.0f} s, MODE={self.args.mode}")
        print("{ok} passed, {FAIL} failed, {skip} skipped".format(**self.count), flush=True)
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pattern", nargs="*", help="names of tests, with * and ?")
    parser.add_argument("--mode", default="rel", help="rel, clang, asan, ubsan, dev")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--all", action="store_true", help="those in tests/off too")
    parser.add_argument("--keep", action="store_true", help="keep the recordings of all tests")
    parser.add_argument("--list", action="store_true", help="only print the names")
    args = parser.parse_args()
    os.chdir(harness.ROOT)
    tests = []
    for name in MODULES:
        importlib.import_module("suite." + name)
    for test in harness.TESTS:
        if not args.pattern or any(fnmatch.fnmatch(test.name, p) for p in args.pattern):
            tests.append(test)
    if args.list:
        print("\n".join(sorted(t.name for t in tests)))
        return 0
    if not tests:
        print("no test has such a name", file=sys.stderr)
        return 2
    return Runner(tests, args).run()


if __name__ == "__main__":
    sys.exit(main())
