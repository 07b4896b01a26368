"""Recorders killed at random moments, recordings damaged."""
import re
import shutil
import time

from suite.harness import DAMAGE, ERROR, IMAGES, KILLED, Session, rnd, test

TINY = IMAGES / "tiny"


def kills(part, count):
    @test(f"damage/kill-{part}", cost=30)
    def run(t):
        """What a killed recorder has written replays, up to a million instructions before its end."""
        replayed = furthest = most = 0
        for turn in range(count):
            name = f"rec{turn}"
            child = t.start([t.reprise, "record", "-o", t.dir / name, "--memory", "16M",
                             "--kernel", TINY / "spin.elf"])
            delay = rnd.uniform(0, 0.03) if turn % 3 == 0 else rnd.uniform(0, 0.6)
            time.sleep(delay)
            child.kill()
            out = child.communicate()[0]
            r = t.run(t.reprise, "replay", "--verify", t.dir / name, code=None, timeout=60)
            if r.code == ERROR:  # before there was anything to replay
                t.check(not out, f"killed after {delay:.3f} s and refused, and there was output: {r.error}")
                t.has(r.error, "^reprise: .*(No such file|not a recording|log|machine)")
            else:
                t.equal(r.code, DAMAGE, "the exit code of the replay")
                t.check(out.startswith(r.out), "the replay's console is not a prefix")
                t.has(r.error, "position")
                # A line of it is a little more than a million instructions, which is the most that is lost.
                lost = out.count(b"\n") - r.out.count(b"\n")
                t.check(lost <= 1, f"killed after {delay:.3f} s, and {lost} lines are lost")
                most = max(most, lost)
                replayed += 1
                reached = t.events(name, code=DAMAGE)[-1]
                t.check(reached["type"] in KILLED, f"the last record is {reached['type']}")
                furthest = max(furthest, reached["position"])
            shutil.rmtree(t.dir / name, ignore_errors=True)
        t.check(replayed > count / 2, f"only {replayed} of {count} could be replayed")
        return f"{count} killed, {replayed} replayed, up to position {furthest}, {most} lines lost at most"


kills(0, 100)
kills(1, 100)


@test("damage/kill-typed", cost=12)
def kill_typed(t):
    """What was typed is in the recording before the guest can answer it, whenever it is killed."""
    for turn in range(12):
        name, image = f"rec{turn}", {} if not turn else {"kernel": TINY / "echo.elf"}
        s = Session(t, name, *([] if not turn else ["--memory", "16M"]), **image)
        if not turn:
            s.prompt()
        words = [f"w{rnd.randrange(10**6)}" for _ in range(rnd.randrange(1, 6))]
        for word in words:
            start = len(s.out)
            s.send(f"echo {word}\n")
            s.wait(word + r"\r\n", start=start)
        s.child.kill()
        s.child.wait()
        s.read(0.1)
        s.close()
        events = t.events(f"rec{turn}", code=DAMAGE)
        typed = "".join(e["data"] for e in events if e["type"] == "console")
        for word in words:
            t.has(typed, f"echo {word}", "the typed text of the recording")
        last = [e["position"] for e in events if e["type"] == "console"][-1]
        t.check(events[-1]["type"] in KILLED, f"the last record is {events[-1]['type']}")
        t.check(events[-1]["position"] >= last, "the machine went back")
        r = t.replay(f"rec{turn}", code=DAMAGE)
        t.has(r.error, f"position {events[-1]['position']}:", "where the replay ended")
        t.check(s.out.startswith(r.out), "the replay's console is not a prefix")


@test("damage/log-by-work", cost=8)
def log_by_work(t):
    """The log does not depend on how fast the host was, nor on where the machine stopped."""
    logs = []
    for name, slices in (("a", 0), ("b", 300007)):
        t.record(name, "--memory", "16M", "--max-insns", 800000000, "--seed", 1,
                 kernel=TINY / "spin.elf", env={"REPRISE_TEST_SLICE": slices})
        events = t.events(name)
        for e in events:
            e.pop("host_ns", None)
        logs.append([(e["type"], e["position"], e["time"]) for e in events])
        t.equal([e["position"] for e in events if e["type"] == "progress"],
                [0, 250000000, 500000000, 750000000], "the progress records")
        t.check(not (t.dir / name / "tail").exists(), "the tail was left behind")
    t.equal(logs[0], logs[1], "the records")
    t.run(t.reprise, "replay", "-o", t.dir / "again", t.dir / "a",
          env={"REPRISE_TEST_SLICE": 123457})
    t.run(t.reprise, "diff", t.dir / "a", t.dir / "again")


def flips(part, count):
    @test(f"damage/flip-{part}", cost=30)
    def run(t):
        """One random bit flipped, or cut short: refused, or replayed up to the damage."""
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
        return f"{outcomes[DAMAGE]} up to the damage, {outcomes[ERROR]} refused"


flips(0, 1000)
flips(1, 1000)
