"""--stats of record and replay: numbers that fit together, and a guest that does not notice."""
import json
import re

from suite.boot import image
from suite.harness import FINE, IMAGES, USAGE, Session, test

PLAIN = ("--memory", "256M", "--seed", "1", "--wall-clock", "2001-02-03T04:05:06Z")
PHASES = ("translated code", "translation", "instructions one at a time", "log and digests")


def table(text):
    """The lines of the table: what, its number (or the text where it is none), and what follows."""
    rows = {}
    for line in text.split("reprise: statistics of the run\n")[1].splitlines():
        found = re.match(r"  ( *\S.*?)  +(\d[\d,]*(?:\.\d+)?)( s| MiB| KiB|%)?(   .*)?$", line)
        if found:
            rows[found.group(1).strip()] = (float(found.group(2).replace(",", "")), found.group(4) or "",
                                            found.end(3) if found.group(3) else found.end(2))
    return rows


def fits(t, c):
    """Counters of the JSON."""
    t.equal(sum(v for k, v in c.items() if k.startswith("exit_")), c["exits"], "all kinds of exits together")
    t.check(c["blocks"] <= c["block_insns"] <= 64 * c["blocks"], "instructions in blocks")
    t.check(8 * c["block_insns"] < c["code_bytes"], "bytes of code")
    t.check(c["tlb_fills"] <= c["walks"] and c["slow_mem"] <= c["walks"], "page walks")
    t.check(c["exit_insn"] <= c["careful"] + c["exceptions"], "instructions by themselves")


@test("stats/tiny", cost=2)
def tiny(t):
    """A guest that touches devices, takes interrupts and faults: recorded and replayed, with and without."""
    for name in ("interrupts", "exceptions", "mmio"):
        r = t.tiny(name, name, "--stats", "--seed", "1")
        info = t.info(name)
        rows = table(r.error)
        t.equal(rows["instructions"][0], info["position"], "instructions")
        t.equal(rows["bytes of the log"][0], info["log_bytes"], "bytes of the log")
        t.equal(len({end for _, _, end in rows.values()}) <= 3, True, "columns that line up")
        t.same(name, r)
        again = json.loads(t.replay(name, "--stats", "--json").out)
        t.equal(again["result"], "same", "the replay")
        s = again["stats"]
        c = s["counters"]
        fits(t, c)
        t.equal((s["positions"], s["log_bytes"]), (info["position"], info["log_bytes"]), "positions, log")
        t.equal((c["interrupts"], c["exceptions"], c["pio"]),
                tuple(rows[k][0] for k in ("interrupts delivered", "exceptions delivered",
                                           "accesses to ports of devices")), "what both counted")
        t.check(c["pio"] > 0 and c["careful"] > 0 and c["kvm_exits"] == 0, "counters")
        t.check(1 << 15 < s["touched_bytes"] < min(s["peak_resident_bytes"], 16 << 20), "the guest's memory")
        t.check(0 < s["wall_ns"] and (1 << 20) < s["peak_resident_bytes"] < 1 << 30, "time and memory")
    t.lacks(json.dumps(json.loads(t.replay("mmio", "--json").out)), "stats")
    t.run(t.reprise, "replay", "--stats", "--to", "end", t.dir / "mmio", code=USAGE)


@test("stats/linux", cost=8)
def linux(t):
    """A boot is sampled a thousand times a second, and is the boot that it is without."""
    image(t)
    show = "quiet -- head -c 30000000 /dev/zero | sha256sum"
    r = t.linux("with", "--stats", *PLAIN, append=show)
    t.linux("without", *PLAIN, append=show)
    t.equal(t.run(t.reprise, "diff", t.dir / "with", t.dir / "without", code=FINE).text,
            "the recordings are equal\n", "with and without")
    t.same("with", r)
    t.equal(t.replay("without", "--stats").out, r.out, "the console of a sampled replay")
    info, rows = t.info("with"), table(r.error)
    t.equal(rows["instructions"][0], info["position"], "instructions")
    t.check(rows["instructions executed one at a time"][0] < info["position"] / 10, "most are translated")
    stats = json.loads(t.replay("with", "--stats", "--json").out)["stats"]
    fits(t, stats["counters"])
    cpu = stats["cpu_ns"] / 1e9
    samples = sum(stats["samples"].values())
    t.check(0.5 * 1000 * cpu < samples < 1.1 * 1000 * cpu + 10, f"{samples} samples in {cpu:.3f} s")
    t.check(abs(sum(rows[k][0] for k in rows if rows[k][1] == "" and k in PHASES) - 100) < 40, "shares")
    t.check(stats["samples"]["code"] > samples / 10 and stats["samples"]["translate"], "where the time went")
    return f"{samples} samples in {cpu:.2f} s of CPU time"


@test("stats/typed", cost=5)
def typed(t):
    """A terminal, pacing, waits that a signal interrupts: input arrives, and it replays."""
    image(t)
    s = Session(t, "rec", "--stats", terminal=True)
    s.prompt()
    t.has(s.type("echo $((6*7))"), "^42$")
    s.send("head -c 30000000 /dev/zero | md5sum; poweroff -f\n")
    s.finish()
    t.has(s.out.decode("utf-8", "replace"), "translated code +\\d")
    t.replay("rec", "--stats")


@test("stats/kvm", cost=2)
def kvm(t):
    """The engine kvm with its counter (imitated) is interrupted by the samples as by any signal."""
    imitation = t.build / "tests" / "imitation" / "reprise"
    for name in ("exceptions", "smc"):
        r = t.run(imitation, "record", "-o", t.dir / name, "--stats", "--engine", "kvm", "--counter", "pmu",
                  "--memory", "16M", "--kernel", IMAGES / "tiny" / (name + ".elf"), env={"REPRISE_IMITATION": "seed=1"})
        rows = table(r.error)
        t.equal(rows["branches and events"][0], t.info(name)["position"], "branches and events")
        t.check(rows["returns from KVM"][0] > 100, "returns from KVM")
        t.same(name, r)
        t.run(imitation, "replay", "--verify", "--stats", "--engine", "kvm", t.dir / name,
              env={"REPRISE_IMITATION": "seed=2"})
