#!/usr/bin/env python3
"""`make check-hardware`: proves on this host what the engine kvm with the counter pmu rests on, and
what tests elsewhere can only imitate: that the CPU counts a guest's conditional branches exactly, in
rings 0 and 3, LOOP and JRCXZ among them and the host's not; how far it skids; that positions are
found again; that single steps hold in REP strings and interrupt shadows; that a guest's TSC stands
still; that interrupts at random positions and a Linux boot replay on both engines.

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
    ("step", "a single step stops behind each instruction"),
    ("breakpoint", "a breakpoint stops before its instruction"),
    ("cpuid", "CPUID shows the model"),
]


class Check:
    def __init__(self, mode, reprise):
        self.build = ROOT / "build" / mode
        self.reprise = reprise or self.build / "reprise"
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
            held = fact["value"].startswith("behind the next")
            self.say("ok" if held else "FAIL", "step.mov_ss", f"{what}: {fact['value']}")

    def run(self, argv, seconds):
        try:
            done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, timeout=seconds,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except subprocess.TimeoutExpired:
            return 124, f"no end after {seconds} s"
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()
        return done.returncode, lines[-1] if lines else "nothing printed"

    def positions(self, ring, seed):
        code, text = self.run([self.build / "tests/tools/pmu_exact", "hardware", ring, seed], 300)
        self.say({0: "ok", 77: "skip"}.get(code, "FAIL"), f"positions.ring{ring}",
                 f"positions are found again: {text}")

    def both(self, options, name, what):
        """Records on kvm, and replays that on both engines."""
        with tempfile.TemporaryDirectory(dir=ROOT / "build") as place:
            code, text = self.run([self.reprise, "record", "-o", place + "/rec", *options], 1800)
            if code:
                self.say("FAIL", name, f"{what} is recorded: exit code {code}: {text}")
                return
            for engine in ("kvm", "dbt"):
                code, text = self.run([self.reprise, "replay", "--verify", "--engine", engine,
                                       place + "/rec"], 1800)
                why = f": exit code {code}: {text}" if code else ""
                self.say("FAIL" if code else "ok", name, f"{what} replays on {engine}{why}")

    def inputs(self, seed):
        """Interrupts at random positions of tiny guests, recorded under KVM, replayed under both."""
        name, what = "inputs.kvm", "inputs at random positions replay on both engines"
        if not any(e["tiny"] for e in self.report["engines"][1:]):
            self.say("skip", name, f"{what}: " + self.report["engines"][1]["text"])
            return
        code, text = self.run([self.build / "tests/tools/inject", "--seed", seed, "--inputs", 300,
                               *sorted((ROOT / "build/images/tiny").glob("*.elf"))], 900)
        self.say("FAIL" if code else "ok", name, f"{what}: {text.removeprefix('inject: all: ')}")

    def recordings(self):
        usage = subprocess.run([self.reprise, "record", "--help"], check=True,
                               stdout=subprocess.PIPE).stdout.decode()
        images = ROOT / "build/images"
        for engine in self.report["engines"][1:]:
            name = f"record.{engine['counter']}"
            counter = ["--counter", engine["counter"]] if "--counter" in usage else []
            lack = "this reprise has no engine kvm" if "--engine" not in usage else \
                "the engine of this reprise has no pmu" if name == "record.pmu" and not counter \
                else "" if engine["tiny"] else engine["text"]
            if lack:
                self.say("skip", name, lack)
                continue
            for guest in ("rep", "exceptions"):  # by single steps: their first seconds
                self.both(["--engine", "kvm", *counter, "--memory", "16M", "--max-insns", 20000,
                           "--kernel", images / f"tiny/{guest}.elf"], name, f"tiny guest {guest}")
            if engine["linux"]:
                self.both(["--engine", "kvm", *counter, "--kernel", images / "linux/vmlinuz",
                           "--initrd", images / "linux/initrd", "--append",
                           "quiet -- dmesg >/dev/null"], name, "a Linux boot")
            else:
                self.say("skip", name, "a Linux boot: " + engine["text"])


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
    c.fact("step.rep", "a single step stops behind each iteration of REP", ["kvm.linux"],
           ["kvm.device", "kvm.guest", "step.ring0"])
    c.shadow()
    c.fact("tsc.still", "a guest's TSC stands still", [],
           ["kvm.device", "kvm.guest", "tsc.offset", "tsc.scaling"])
    for ring in (0, 3):
        c.positions(ring, args.seed)
    c.inputs(args.seed)
    c.recordings()
    print("{ok} passed, {FAIL} failed, {skip} skipped".format(**c.count))
    return 1 if c.count["FAIL"] else 0


if __name__ == "__main__":
    sys.exit(main())
