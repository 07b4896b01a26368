"""What commands say to people: help, typos, filters of events, notes in recordings, hints."""
import json
import re
import subprocess

from suite.boot import image
from suite.harness import ERROR, USAGE, test


@test("words/help")
def help_(t):
    """-h, `help` and `help COMMAND` are --help; typos are answered with what was meant."""
    whole = t.run(t.reprise, "--help").text
    for words in (("-h",), ("help",)):
        t.equal(t.run(t.reprise, *words).text, whole, f"reprise {words}")
    for command in (("record",), ("gpu", "list"), ("trace",)):
        text = t.run(t.reprise, *command, "--help").text
        t.equal(t.run(t.reprise, *command, "-h").text, text, f"{command} -h")
        t.equal(t.run(t.reprise, "help", *command).text, text, f"help {command}")
        wrapped = [x for x in text.splitlines() if len(x) > 81 and " " in x.strip()]
        t.check(not wrapped, f"lines too long: {wrapped}")
    # The text of an option stands in its column.
    t.lacks(t.run(t.reprise, "record", "-h").text, r"^(A virtio port| {40,}restrict)")
    for words, meant in ((["recrod"], "did you mean 'record'"), (["gpu", "lst"], "did you mean 'list'"),
                         (["record", "--kernal", "x"], "did you mean '--kernel'"),
                         (["replay", "--verfiy", "x"], "did you mean '--verify'"),
                         (["trace", "--form=3", "x"], "did you mean '--from'"),
                         (["events", "x", "--kind", "pakcet"], "did you mean 'packet'"),
                         (["record", "--smp", "2"], "here it is --cpus"),
                         (["replay", "--cores=2", "x"], "here it is --cpus")):
        t.has(t.run(t.reprise, *words, code=USAGE).error, meant)
    r = t.run(t.reprise, "xylophone", code=USAGE)
    t.lacks(r.error, "did you mean")
    # An argument is no option, whatever it looks like.
    r = t.run(t.reprise, "record", "--append", "--kernal", "-o", "--smp", code=USAGE)
    t.has(r.error, "--kernel FILE is missing")


@test("words/events")
def events(t):
    """Without progress records unless asked for; by kind."""
    t.tiny("rec", "echo", input=b"abc", code=None)

    def kinds(*options):
        lines = t.run(t.reprise, "events", *options, t.dir / "rec").text.splitlines()
        return [x.split()[3] for x in lines]

    every = [e["type"] for e in t.events("rec")]
    t.check("progress" in every and "console" in every, f"{every}")
    t.equal(kinds(), [x for x in every if x != "progress"], "the kinds")
    t.equal(kinds("--all"), every, "all kinds")
    t.equal(set(kinds("--kind", "progress,start")), {"progress", "start"}, "two kinds")
    t.equal(set(kinds("--kind", "input")), {"console"}, "the inputs")


@test("words/memory", cost=2)
def memory(t):
    """--mem is checked before the replay; it knows registers, offsets and a length by itself."""
    for spec, said in (("jiffies,0", "from 1 on"), ("1x", "is no address"), ("rsp+x", "the offset is a number"),
                       (",4", "ADDR"), ("phys:", "ADDR"), ("0,2000000", "at most")):
        r = t.run(t.reprise, "replay", "--to", "end", "--mem", spec, "/nowhere", code=USAGE)
        t.has(r.error, said)
    t.tiny("rec", "paging")

    def at(*specs):
        options = [x for spec in specs for x in ("--mem", spec)]
        return json.loads(t.run(t.reprise, "replay", "--json", "--regs", "--to", "20000", *options,
                                t.dir / "rec").out)

    there = at("rsp", "rsp+8,8", "rip-4,8", "phys:rsp,16")
    rsp, rip = (int(there["registers"][x], 16) for x in ("rsp", "rip"))
    again = at(f"{rsp},64", f"{rsp + 8},8", f"{rip - 4},8", f"phys:{rsp},16")
    t.equal([x.get("bytes") for x in there["memory"]], [x.get("bytes") for x in again["memory"]],
            "memory by registers")
    t.equal(len(there["memory"][0]["bytes"]), 128, "the length")
    r = t.run(t.reprise, "replay", "--to", "100", "--mem", "nosuch+4", t.dir / "rec", code=ERROR)
    t.has(r.error, "'nosuch' is no number and no register")
    r = t.run(t.reprise, "replay", "--to", "gpu:1", t.dir / "rec", code=ERROR)
    t.has(r.error, "recorded without a GPU")


@test("words/notes", cost=8)
def notes(t):
    """info says when, where and how it was made, and what of the guest died: also of an instruction that another
    CPU model has; programs without their loader are named when they are added."""
    t.need_v3()
    image(t)
    (t.dir / "v.c").write_text("int main(void) { __asm__ volatile(\"vzeroupper\"); return 0; }\n")
    (t.dir / "d.c").write_text("int main(void) { return 0; }\n")
    for name, how in (("v", "-static"), ("d", "-pie")):
        subprocess.run(["gcc", how, "-o", t.dir / name, t.dir / f"{name}.c"], check=True)
    r = t.linux("rec", "--memory", "256M", "--add", f"{t.dir}/v:/v", "--add", f"{t.dir}/d:/usr/bin/d",
                append="quiet -- \"/v; /v; echo c >/proc/sysrq-trigger\"", code=7)
    t.has(r.error, "/usr/bin/d is linked dynamically, and its loader /lib64/ld-linux-x86-64.so.2 is not")
    t.lacks(r.error, "/v is linked")
    t.equal(len(re.findall("used vzeroupper", r.error)), 2, "said at once, and at the end")
    t.has(r.error, r"'v' \(process \d+\) used vzeroupper at [0-9a-f]+, which the CPU model x86-64-v2 lacks: "
                   "--cpu x86-64-v3 has it")
    t.same("rec", r)
    text = t.run(t.reprise, "info", t.dir / "rec").text
    for line in (r"recorded on +20\d\d-\d\d-\d\dT", r"command +reprise record -o .* --append '.*/v; /v",
                 "panic +Kernel panic - not syncing: sysrq", "hint +'v' .*x86-64-v3"):
        t.has(text, "^" + line)
    found = t.info("rec")["notes"]
    t.equal(found["panic"], "Kernel panic - not syncing: sysrq triggered crash", "the panic")
    r = t.tiny("private", "paging", "--no-notes")
    t.equal(t.info("private")["notes"], {}, "the notes")
    total = int(re.search(r"MemTotal: +(\d+)", open("/proc/meminfo").read()).group(1)) // 1024
    r = t.tiny("large", "paging", memory=f"{total // 2 * 2 + 4096}M", code=None)
    t.has(r.error, "--memory: the guest has .* and this host")
