#!/usr/bin/env python3
"""`make check-hardware`: proves on this host what the engine kvm with the counter pmu rests on, and
what tests elsewhere can only imitate: that the CPU counts a guest's conditional branches exactly, in
rings 0 and 3, LOOP and JRCXZ among them and the host's not; how far it skids; that single steps hold
in REP strings and interrupt shadows; that a guest's TSC stands still. Then what follows: every tiny
guest and a Linux boot, recorded as they run freely, replay on both engines; stops at random positions
of them are where dbt has them; positions become instructions; interrupts at random positions of
guests that are stepped replay on both engines.

Each line says ok, FAIL or skip (what is missing for it). Exit code 1 when anything failed.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]

# A fact of `reprise doctor`, and what it proves. Those of `pmu` need the counter, of `tsc` scaling.
FACTS = [
    ("pmu.exact", "a loop's branches are counted exactly, a thousand times"),
    ("pmu.insns", "LOOP and JRCXZ are counted"),
    ("pmu.rep", "iterations of REP strings are not counted"),
    ("pmu.exits", "the host's branches are not counted"),
    ("pmu.overflows", "overflows come, and do not disturb the count"),
    ("pmu.skid", "the skid is within the margin"),
    ("pmu.locks", "locked instructions do not disturb the count"),
    ("step", "a single step stops after each instruction"),
    ("cpuid", "CPUID shows the model"),
]


IMAGES = ROOT / "build" / "images"
STOPS = 20000  # of each recording


class Check:
    def __init__(self, mode, reprise):
        self.build = ROOT / "build" / mode
        self.reprise = pathlib.Path(reprise or self.build / "reprise").absolute()
        self.options = subprocess.run([self.reprise, "record", "--help"], check=True,
                                      stdout=subprocess.PIPE).stdout.decode()
        self.count = {"ok": 0, "FAIL": 0, "skip": 0}
        report = subprocess.run([self.reprise, "doctor", "--json"], check=True,
                                stdout=subprocess.PIPE)
        self.report = json.loads(report.stdout)
        self.facts = self.report["facts"]

    def say(self, verdict, name, text):
        self.count[verdict] += 1
        print(f"{verdict:<4} {name:<24} {text}", flush=True)

    def state(self, key):
        return self.facts.get(key, {}).get("state")

    def fact(self, key, what, needs, tried_with):
        """What doctor found out. Without a fact of `needs` it proves nothing; without one of
        `tried_with` it was not tried at all."""
        fact = self.facts.get(key)
        lack = next((k for k in needs if self.state(k) != "yes"), None)
        if fact is None and not lack:
            lack = next((k for k in tried_with if self.state(k) != "yes"), key)
        if lack:
            self.say("skip", key, f"{what}: {lack}: "
                                  f"{self.facts.get(lack, {}).get('note') or 'not tried'}")
            return
        verdict = {"yes": "ok", "no": "FAIL"}.get(fact["state"], "skip")
        note = f"; {fact['note']}" if fact["note"] else ""
        self.say(verdict, key, f"{what}: {fact['value']}{note}")

    def shadow(self):
        fact, what = self.facts.get("step.mov_ss"), "MOV SS holds its shadow"
        if not fact or self.state("kvm.linux") != "yes":
            self.say("skip", "step.mov_ss", what + ": this KVM emulates, or runs no guest")
        else:
            held = fact["value"].startswith("after the next")
            self.say("ok" if held else "FAIL", "step.mov_ss", f"{what}: {fact['value']}")

    def run(self, argv, seconds):
        try:
            done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, timeout=seconds,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired:
            return 124, f"no end after {seconds} s"
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
        return done.returncode, lines[-1] if lines else "nothing printed"

    def tool(self, name):
        """An imitation has tools of its own beside it."""
        beside = self.reprise.parent / name
        return beside if beside.exists() else self.build / "tests/tools" / name

    def must(self, name, text, argv, codes=(0,), seconds=1800):
        code, last = self.run(argv, seconds)
        good = code in codes
        self.say("ok" if good else "FAIL", name, text if good else f"{text}: exit code {code}: {last}")
        return good

    def recorded(self, name, what, rec, options, codes=(0,), seconds=600):
        """Records on kvm, and replays that on both engines."""
        return self.must(name, f"{what} is recorded", [self.reprise, "record", "-o", rec, *options],
                         codes, seconds) and \
            all([self.must(name, f"{what} replays on {engine}",
                           [self.reprise, "replay", "--verify", "--engine", engine, rec], (0,), seconds)
                 for engine in ("kvm", "dbt")])

    def inputs(self, seed):
        """Interrupts at random positions of tiny guests, stepped by KVM, replayed under both."""
        name, what = "inputs.kvm", "inputs at random positions replay on both engines"
        if not any(e["tiny"] for e in self.report["engines"][1:]):
            self.say("skip", name, f"{what}: " + self.report["engines"][1]["text"])
            return
        code, text = self.run([self.tool("inject"), "--seed", seed, "--inputs", 300,
                               *sorted((IMAGES / "tiny").glob("*.elf"))], 900)
        self.say("FAIL" if code else "ok", name, f"{what}: {text.removeprefix('inject: all: ')}")

    def lacks(self, engine):
        if "--counter" not in self.options:
            return "this reprise has no engine kvm with counters"
        return "" if engine["tiny"] else engine["text"]

    def boot(self, name, engine, place, *options):
        """False: there is no such recording."""
        if not engine["linux"]:
            self.say("skip", name, "a Linux boot: " + engine["text"])
            return False
        where = IMAGES / "linux"
        return self.recorded(name, "a Linux boot", place / "linux",
                             ["--kernel", where / "vmlinuz", "--initrd", where / "initrd", "--append",
                              "quiet -- dmesg >/dev/null", *options], seconds=5400)

    def stepped(self, engine, place, boot):
        name, options = "record.step", ("--engine", "kvm", "--counter", "step")
        if self.lacks(engine):
            self.say("skip", name, self.lacks(engine))
            return
        for guest in ("rep", "exceptions"):  # their first seconds
            self.recorded(name, f"tiny guest {guest}", place / guest,
                          ["--kernel", IMAGES / f"tiny/{guest}.elf", "--memory", "16M", "--max-insns",
                           20000, *options])
        if boot:  # takes up to an hour
            self.boot(name, engine, place, *options)

    def free(self, engine, place, seed):
        """Guests that run freely, and what makes them exact."""
        name, options = "record.pmu", ("--engine", "kvm", "--counter", "pmu")
        if self.lacks(engine):
            for lacking in (name, "positions", "instructions"):
                self.say("skip", lacking, self.lacks(engine))
            return
        made = []
        for path in sorted((IMAGES / "tiny").glob("*.elf")):
            rec, what = place / path.stem, f"tiny guest {path.stem}"
            guest = ["--kernel", path, "--memory", "16M", "--max-insns", 2000000, "--no-realtime",
                     "--seed", 1]
            # How it ends is the guest's; here it is to end as on the engine dbt.
            os.environ["REPRISE_TEST_BRANCH"] = "1"
            end, _ = self.run([self.reprise, "record", "-o", place / "dbt", "--force", "--engine",
                               "dbt", *guest], 300)
            del os.environ["REPRISE_TEST_BRANCH"]
            if self.recorded(name, what, rec, [*guest, *options], (end,)) and \
                    path.stem in ("rep", "timers"):
                made.append(rec)
        if self.boot(name, engine, place, *options):
            made.append(place / "linux")
        if not made:
            return
        margin = int(self.facts["pmu.event"]["value"].split()[-1])
        code, text = self.run([self.tool("stops"), "--seed", seed, "--stops", STOPS * len(made),
                               "--gap", margin + 500, *made], 3600)
        self.say("FAIL" if code else "ok", "positions",
                 "stops at random positions are where dbt is: " + text.removeprefix("stops: "))
        by_insn = place / "instructions"
        if self.must("instructions", f"positions of {made[-1].name} become instructions",
                     [self.reprise, "replay", "--instructions", "-o", by_insn, made[-1]]):
            self.must("instructions", "and that replays on dbt",
                      [self.reprise, "replay", "--verify", by_insn])

    def recordings(self, seed):
        step, pmu = self.report["engines"][1:3]
        for what in (lambda p: self.stepped(step, p, not pmu["linux"]), lambda p: self.free(pmu, p, seed)):
            with tempfile.TemporaryDirectory(dir=ROOT / "build") as place:
                what(pathlib.Path(place))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", default="rel")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--reprise", help="instead of the one that was built")
    args = parser.parse_args()
    os.chdir(ROOT)
    c = Check(args.mode, args.reprise)
    print(f"{c.facts['host.cpu']['value']}; {c.facts['host.kernel']['value']}; seed {args.seed}")
    for key, what in FACTS:
        for ring in (0, 3):
            pmu = key.startswith("pmu")
            # What a KVM that emulates does proves nothing of hardware.
            c.fact(f"{key}.ring{ring}", f"ring {ring}: {what}", [] if pmu else ["kvm.linux"],
                   ["kvm.device", "kvm.guest", "pmu.counter"])
    c.fact("step.rep", "a single step stops after each iteration of REP", ["kvm.linux"],
           ["kvm.device", "kvm.guest", "step.ring0"])
    c.shadow()
    c.fact("tsc.still", "a guest's TSC stands still", [],
           ["kvm.device", "kvm.guest", "tsc.offset", "tsc.scaling"])
    c.inputs(args.seed)
    c.recordings(args.seed)
    print("{ok} passed, {FAIL} failed, {skip} skipped".format(**c.count))
    return 1 if c.count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
