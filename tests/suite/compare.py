"""reprise diff in words, and record --wall-clock, which makes two recordings comparable."""
import json

from suite.boot import image
from suite.harness import ERROR, USAGE, test

CLOCK = ("--memory", "256M", "--seed", "1", "--wall-clock")


def diff(t, a, b, *options, code=ERROR):
    return t.run(t.reprise, "diff", *options, t.dir / a, t.dir / b, code=code)


@test("compare/clock", cost=14)
def clock(t):
    """--wall-clock is what the guest's clock shows; with it and a seed two recordings are equal, and diff
    looks past it where it differs."""
    image(t)
    show = "quiet loglevel=1 -- \"date +%F; poweroff -f\""
    r = t.linux("a", *CLOCK, "2001-02-03T04:05:06Z", append=show)
    t.has(r.text, "^2001-02-03\r?$", "the guest's date")
    t.linux("b", *CLOCK, "2001-02-03 05:05:06+01:00", append=show)
    t.equal(diff(t, "a", "b", code=0).text, "the recordings are equal\n", "of the same time")
    t.linux("c", *CLOCK, "@1000000000", append=show)
    r = diff(t, "a", "c")
    t.has(r.text, "^the machines differ: wall clock$")
    t.has(r.text, "^  wall clock: 2001-02-03T04:05:06Z, 2001-09-09T01:46:40Z$")
    t.lacks(r.text, "components .rtc.", "what is past the clock")
    t.has(r.text, "^inputs: ")
    t.has(r.text, "^the consoles (agree up to line \\d+|differ from their first line on): "
                  ".*/a prints '2001-02-03', .*/c prints '2001-09-09'$")
    j = json.loads(diff(t, "a", "c", "--json").out)
    t.equal((j["machine"], j["looked_past"], j["consoles"]["same"], j["consoles"]["a"]),
            (["chosen/wall-clock"], "rtc", False, "2001-02-03"), "the JSON")
    t.lacks(diff(t, "a", "c", "--log-only").text, "the consoles")
    for text in ("yesterday", "2001-13-01", "2001-02-03T04:05:06+99:00", "253402300800", "-5", ""):
        r = t.run(t.reprise, "record", "-o", t.dir / "x", "--kernel", "x", "--wall-clock", text, code=USAGE)
        t.has(r.error, "is no time from 1970 to 9999|beyond the year 9999")


@test("compare/inputs", cost=8)
def inputs(t):
    """Of recordings that differ in what was typed diff names it, whatever the digests say first."""
    for name, word in (("a", b"one"), ("b", b"two")):
        t.tiny(name, "echo", "--wall-clock", "5", "--seed", "1", input=b"same " + word + b"\x04",
               code=None)
    r = diff(t, "a", "b")
    t.lacks(r.text, "the machines differ")
    t.has(r.text, r"^inputs: .*differs:$")
    t.has(r.text, r"^  .*/a: .* console .*one")
    t.has(r.text, r"^  .*/b: .* console .*two")
    t.has(r.text, r"^the consoles agree")
