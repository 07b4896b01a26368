"""Recorders killed at random moments, recordings damaged."""
import os
import random
import re
import shutil
import time

from suite.harness import DAMAGE, ERROR, IMAGES, test

TINY = IMAGES / "tiny"


def seeded(t):
    seed = int(os.environ.get("TEST_SEED") or int.from_bytes(os.urandom(4), "little"))
    t.log.write(f"TEST_SEED={seed} repeats this\n")
    return random.Random(seed), seed


def kills(part, count):
    @test(f"damage/kill-{part}", cost=30)
    def run(t):
        rnd, seed = seeded(t)
        replayed = lost = 0
        for turn in range(count):
            name = f"rec{turn}"
            child = t.start([t.reprise, "record", "-o", t.dir / name, "--memory", "16M",
                             "--kernel", TINY / "spin.elf"])
            delay = rnd.uniform(0, 0.03) if turn % 3 == 0 else rnd.uniform(0, 0.6)
            time.sleep(delay)
            child.kill()
            killed = time.time()
            out = child.communicate()[0]
            r = t.run(t.reprise, "replay", "--verify", t.dir / name, code=None, timeout=60)
            if r.code == ERROR:  # before there was anything to replay
                t.check(delay < 0.2 * t.slow, f"killed after {delay:.3f} s, and refused: {r.error}")
                t.has(r.error, "^reprise: .*(No such file|not a recording|log|machine)")
            else:
                t.equal(r.code, DAMAGE, "the exit code of the replay")
                t.check(out.startswith(r.out), "the replay's console is not a prefix")
                t.has(r.error, "position")
                replayed += 1
                lost = max(lost, killed - (t.dir / name / "log").stat().st_mtime)
            shutil.rmtree(t.dir / name, ignore_errors=True)
        t.check(replayed > count / 2, f"only {replayed} of {count} could be replayed")
        t.check(lost < 0.6 * t.slow, f"{lost:.2f} s were lost")
        return f"{count} killed, {replayed} replayed, at most {1000 * lost:.0f} ms lost, seed {seed}"


kills(0, 100)
kills(1, 100)


def flips(part, count):
    @test(f"damage/flip-{part}", cost=30)
    def run(t):
        """One random bit flipped, or cut short: refused, or replayed up to the damage."""
        rnd, seed = seeded(t)
        (t.dir / "typed").write_bytes(b"\n" + b"".join(b"%d some text\n" % i for i in range(200)) +
                                      b"exit\n")
        with open(t.dir / "typed", "rb") as f:
            whole = t.tiny("rec", "echo", stdin=f)
        files = [p for p in (t.dir / "rec").rglob("*") if p.is_file()]
        outcomes = {ERROR: 0, DAMAGE: 0}
        for turn in range(count):
            # The log most often: it is what can be damaged and still replayed.
            path = rnd.choice(files) if turn % 3 == 0 else t.dir / "rec" / "log"
            data = path.read_bytes()
            if rnd.random() < 0.3:
                change = rnd.randrange(len(data))
                path.write_bytes(data[:change])
                what = f"cut to {change} bytes"
            else:
                change = rnd.randrange(len(data) * 8)
                bad = bytearray(data)
                bad[change // 8] ^= 1 << change % 8
                path.write_bytes(bad)
                what = f"bit {change} flipped"
            command = rnd.choice(["replay"] * 4 + ["info", "events"])
            r = t.run(t.reprise, command, t.dir / "rec", code=None, timeout=30)
            what = f"{command} after {path.name} was {what}"
            if command == "replay":
                t.check(r.code in outcomes, f"{what}: exit code {r.code}")
                t.check(whole.out.startswith(r.out), f"{what}: other output")
            elif command == "info" or path.name in ("log", "machine.dtb"):
                t.check(r.code in outcomes, f"{what}: exit code {r.code}")
            if r.code in outcomes:
                outcomes[r.code] += 1
                t.check(command == "info" or re.match(r"\s*reprise: \S", r.error),
                        f"{what}: no message")
            path.write_bytes(data)
        t.same("rec", whole)
        return f"{outcomes[DAMAGE]} up to the damage, {outcomes[ERROR]} refused, seed {seed}"


flips(0, 1000)
flips(1, 1000)
