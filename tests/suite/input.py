"""virtio-input: a keyboard and a tablet, fed by a file of events."""
import re
import struct

from suite.harness import DIVERGED, ERROR, IMAGES, USAGE, test

EVENTS = """# keyboard, then tablet
5s key a                 # a comment
+100ms text "Hi!\\n"
key down up
key up up
7s move 100 32767
click left
click down right
wheel -2
hwheel 1
click up right
"""
# type, code, value of all but the SYN_REPORTs
KEYS = [(1, 30, 1), (1, 30, 0),
        (1, 42, 1), (1, 35, 1), (1, 35, 0), (1, 42, 0), (1, 23, 1), (1, 23, 0),
        (1, 42, 1), (1, 2, 1), (1, 2, 0), (1, 42, 0), (1, 28, 1), (1, 28, 0),
        (1, 103, 1), (1, 103, 0)]
POINTER = [(3, 0, 100), (3, 1, 32767), (1, 0x110, 1), (1, 0x110, 0), (1, 0x111, 1), (2, 8, -2),
           (2, 6, 1), (1, 0x111, 0)]
# An event in a 64-bit guest: 24 bytes, seconds and microseconds first.
SCRIPT = f"""
grep -H . /sys/class/input/event*/device/name
(dd if=/dev/input/event0 bs=24 count={2 * len(KEYS)} 2>/dev/null | od -An -v -tx1 -w24 >/tmp/keys) &
dd if=/dev/input/event1 bs=24 count={2 * len(POINTER) - 1} 2>/dev/null | od -An -v -tx1 -w24 >/tmp/pointer
wait
echo KEYS
cat /tmp/keys
echo POINTER
cat /tmp/pointer
echo DONE
"""


def reports(text, name, after):
    """What the guest read, without SYN_REPORTs: (type, code, value)."""
    part = text.split(name + "\n", 1)[1].split(after, 1)[0]
    out = []
    for line in part.splitlines():
        kind, code, value = struct.unpack("<HHi", bytes.fromhex(line.replace(" ", ""))[16:])
        if kind:
            out.append((kind, code, value))
    return out


def times(t, name):
    return [(e["time"], e["unit"], e["data"]) for e in t.events(name) if e["type"] == "events"]


def session(t, name, *options, text=EVENTS, **more):
    path = t.dir / "events"
    path.write_text(text)
    return t.linux(name, "--input", path, "--seed", 5, *options, script=SCRIPT, append="quiet",
                   **more)


@test("input/file", cost=12)
def input_file(t):
    """The guest gets what the file says, at the times it says; again and again the same."""
    r = session(t, "rec")
    t.has(r.text, "event0/device/name:Reprise keyboard")
    t.has(r.text, "event1/device/name:Reprise tablet")
    t.equal(reports(r.text, "KEYS", "POINTER"), KEYS, "what the keyboard did")
    t.equal(reports(r.text, "POINTER", "DONE"), POINTER, "what the tablet did")
    at = times(t, "rec")
    t.equal(len(at), len(KEYS) + len(POINTER) - 1, "reports")
    want = [5.0 + 0.01 * i for i in range(2)]
    want += [5.12 + 0.01 * i for i in range(len(KEYS) - 2)]
    want += [7.0 + 0.01 * i for i in range(len(POINTER) - 1)]
    t.equal([when for when, _, _ in at], [round(w * 1e9) for w in want], "their times")
    t.same("rec", r)
    t.replay("rec", env={"REPRISE_TEST_SLICE": 70001})
    session(t, "again")
    t.equal(times(t, "again"), at, "times of a second recording")
    # Into the middle: after some events, in front of others.
    for point, keys in (("time:5.125s", 3), ("time:6s", len(KEYS)), ("time:7.005s", len(KEYS) + 1)):
        out = t.run(t.reprise, "replay", "--to", point, "--json", t.dir / "rec").text
        t.has(out, r'"time":' + str(round(float(point[5:-1]) * 1e9)))
        seen = sum(when <= float(point[5:-1]) * 1e9 for when, _, _ in at)
        t.equal(seen, keys, "events before " + point)
    t.run(t.build / "tests" / "tools" / "walk", t.dir / "rec", "--seed", 3, "--places", 4,
          "--moves", 8, timeout=300)
    t.has(t.run(t.reprise, "info", t.dir / "rec").text, "input +keyboard, tablet")
    # A changed event is a difference.
    r = t.replay("rec", code=DIVERGED, env={"REPRISE_TEST_PERTURB": 1})
    return f"{len(at)} reports"


@test("input/early", cost=6)
def early(t):
    """Events from before the guest has a driver wait for it, in their order; and a recording does
    not end for lack of input while the file has some."""
    (t.dir / "events").write_text("key a\n0.5s key b\n60s key c\n")
    t.linux("rec", "--idle-limit", 5, "--input", t.dir / "events", append="quiet",
                script="dd if=/dev/input/event0 bs=24 count=4 2>/dev/null | wc -c")
    at = times(t, "rec")
    t.equal([data[2] for _, _, data in at], [chr(c) for c in (30, 30, 48, 48, 46, 46)], "the order")
    t.check(500000000 < at[0][0] <= at[3][0] < 10000000000, "events before there was a driver")
    t.equal([when for when, _, _ in at[4:]], [60000000000, 60010000000], "those in time")
    t.replay("rec")
    return f"the driver came at {at[0][0] / 1e9:.3f} s"


@test("input/bad")
def bad(t):
    """Nonsense is refused with the number of its line, and nothing is left behind."""
    kernel = IMAGES / "tiny" / "spin.elf"
    path = t.dir / "events"
    for text, message in (
            ("jump", "events:1: 'jump' is none of key, text"),
            ("# fine\n\nkey", "events:3: which key"),
            ("key hyper", "events:1: there is no key 'hyper'"),
            ("key down", None),
            ("click", "events:1: which button"),
            ("click a", "there is no button 'a'"),
            ("5s key a\n4s key b", "events:2: time goes back: 4s"),
            ("5 key a", "'5' is no time"),
            ("5parsecs key a", "'5parsecs' is no time"),
            ("0.0000000001s key a", "is no time"),
            ("99999999999999999999s key a", "is no time"),
            ("4611686018s key a\n+4611686018s key b", "events:2: that is too late"),
            ("5s", "a time, and nothing"),
            ("key a b", "'b' is too much"),
            ("move 1", "move takes two numbers"),
            ("move 1 32768", "move takes two numbers"),
            ("move -1 0", "move takes two numbers"),
            ("wheel 0", "wheel takes a number"),
            ("wheel x", "wheel takes a number"),
            ("text hello", "in \"quotes\""),
            ("text \"hello", "has no \" at its end"),
            ("text \"\\q\"", "only n, t"),
            ("text \"\u00e9\"", "no key of a US keyboard gives the byte 0xc3"),
            ("key \x1b[2J", "there is no key '\\?\\[2J'")):
        path.write_text(text + "\n")
        if message is None:
            t.record("x", "--input", path, "--max-insns", 1000, "--force", kernel=kernel,
                     code=None)
            t.run("rm", "-r", t.dir / "x")
            continue
        r = t.record("x", "--input", path, kernel=kernel, code=ERROR)
        t.has(r.error, re.escape(message) if "\\?" not in message else message)
        t.check(not (t.dir / "x").exists(), "a recording was left behind")
    for path, message in ((t.dir / "none", "No such file"), (t.dir, "not in a regular file"),
                          ("/dev/zero", "not in a regular file")):
        t.has(t.record("x", "--input", path, kernel=kernel, code=ERROR).error, message)
    big = t.dir / "big"
    big.write_text("#\n" * (1 << 19) + "#\n")
    t.has(t.record("x", "--input", big, kernel=kernel, code=ERROR).error, "more than 1 MiB")
    t.record("x", "--input", big, "--input", big, kernel=kernel, code=USAGE)
