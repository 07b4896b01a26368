"""reprise trace: whose instruction it was and where, what it read and wrote, and only what is wanted."""
import json
import re

from suite.boot import image
from suite.harness import ERROR, IMAGES, USAGE, test

SCRIPT = "sleep 0.5; uname; echo beta\n"  # first what newer kernels still have to do after a boot


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def trace(t, first, last, *options, **more):
    return t.run(t.reprise, "trace", "--from", first, "--to", last, *options, t.dir / "rec", **more)


def place(t, position, *options):
    return json.loads(t.run(t.reprise, "replay", "--json", "--to", position, *options,
                            t.dir / "rec").out)


@test("trace/memory", cost=5)
def memory(t):
    """What a line says was read is there before the instruction, what it wrote after it."""
    t.tiny("rec", "rep")
    # Ordinary code, then the first REP MOVSB and REP MOVSW: where, is the compiler's to say.
    code = t.run("objdump", "-d", "--no-show-raw-insn", IMAGES / "tiny/rep.elf").text
    spans = [(0, 30000)]
    for unit in "bw":
        at = re.search(rf"^ *([0-9a-f]+):\s+rep movs{unit} ", code, re.M).group(1)
        first = next(x for x in objects(trace(t, 0, "end", "--json", "--only", f"{at}..{at}").text) if x["rip"] == at)
        spans.append((first["position"] - 50, first["last"] + 50))
    lines = [x for a, b in spans for x in objects(trace(t, a, b, "--json").text)]
    touching = [x for x in lines if x["memory"] and x["rip"] != "0"]
    t.check(len(touching) > 100, f"{len(touching)} lines with memory")

    def known(a):
        """Memory that lies in RAM, with its value shown."""
        return "value" in a and int(a["address"], 16) < 0xa0000 or \
            0x100000 <= int(a["address"], 16) < 0x1000000 and "value" in a

    def shown(value, size):
        return int(value, 16).to_bytes(size, "little") if size <= 8 else bytes.fromhex(value)

    seen = set()
    checked = 0
    for x in touching:
        kind = (x["text"].split()[0], len(x["memory"]), x["last"] != x["position"])
        if kind in seen or not all(known(a) for a in x["memory"]) or len(seen) >= 16:
            continue
        seen.add(kind)
        for write in (False, True):
            some = [a for a in x["memory"] if a["write"] == write]
            if not some:
                continue
            at = x["last"] + 1 if write else x["position"]
            options = [y for a in some for y in ("--mem", f"0x{a['address']},{a['size']}")]
            for a, b in zip(some, place(t, at, *options)["memory"]):
                t.equal(bytes.fromhex(b["bytes"]), shown(a["value"], a["size"]),
                        f"memory at {a['address']} at {at}, {x['text']}")
                checked += 1
    t.check(checked >= 6, f"only {checked} accesses to compare")
    # A REP MOVS shows one read and one write, as long as all its iterations.
    movs = [x for x in lines if x["text"].startswith("rep movs") and len(x["memory"]) == 2]
    t.equal({x["text"][8] for x in movs}, set("bw"), "the widths of REP MOVS")
    for x in movs:
        unit = {"b": 1, "w": 2, "d": 4, "q": 8}[x["text"][8]]
        if all(k in x["changed"] for k in ("rcx", "rsi")):
            t.equal([a["size"] for a in x["memory"]], [unit * (x["last"] - x["position"] + 1)] * 2,
                    f"the sizes of {x}")
    # As text: the same, after what changed.
    text = trace(t, 0, 2000).text
    t.has(text, r"^\d+ 0 [0-9a-f]{16} [0-9a-f]+ +mov .*; .*\bw\d\[[0-9a-f]+\]=[0-9a-f]+$")


@test("trace/only", cost=12)
def only(t):
    """--only leaves out lines of the whole trace, and nothing else; names and processes are right."""
    image(t)
    t.linux("rec", "--memory", "256M", "--checkpoint-every", "0.2", append="quiet", script=SCRIPT)
    # From what uname prints to what the shell prints: both run, wherever interrupts come.
    first = place(t, "console:Linux")["position"]
    last = place(t, "console:beta")["position"]

    t.check(last - first < 3000000, f"{last - first} positions between them: too many to hold")

    def lines(*options):
        return trace(t, first, last, "--json", *options).out.decode().splitlines()

    whole = lines()
    parsed = [json.loads(x) for x in whole]
    names = {x["symbol"].split("+")[0] for x in parsed if x["symbol"]}
    tasks = {(x["comm"], x["pid"]) for x in parsed}
    t.check(len(names) > 50 and {"uname", "sh"} <= {comm for comm, _ in tasks}, f"{len(names)} functions, tasks {tasks}")
    kernel = [x for x in parsed if x["cpl"] == 0]
    t.check(sum(bool(x["symbol"]) for x in kernel) > 0.99 * len(kernel), "instructions have names")
    # Names and tasks are those that replay and core show there.
    for x in parsed[::len(parsed) // 3]:
        there = place(t, x["position"])
        t.equal((there["rip"], there["symbol"]), (x["rip"], x["symbol"]), f"at {x['position']}")

    def wanted(what, choose, *options):
        chosen = [line for line, x in zip(whole, parsed) if choose(x)]
        t.check(0 < len(chosen) < len(whole), f"{what}: {len(chosen)} lines")
        t.check(lines(*options) == chosen, f"{what} are not those lines of the whole trace")

    counts = {}
    for x in kernel:
        name = x["symbol"].split("+")[0]
        counts[name] = counts.get(name, 0) + 1
    name = sorted(counts, key=counts.get)[-3]
    comm, pid = "uname", dict(tasks)["uname"]

    def named(x, n):
        return re.fullmatch(re.escape(n) + r"(\..*)?", x["symbol"].split("+")[0])

    wanted(name, lambda x: named(x, name), "--only", name)
    wanted("user", lambda x: int(x["rip"], 16) < 1 << 47, "--only", "0..7fffffffffff")
    wanted(comm, lambda x: x["comm"] == comm, "--only", comm)
    both = "function:" + name, f"pid:{pid}", f"comm:{comm}"
    wanted("both", lambda x: named(x, name) and (x["comm"] == comm or x["pid"] == pid),
           *(y for x in both for y in ("--only", x)))
    # From power-on, where no kernel is yet: the names are those of the end.
    r = t.run(t.reprise, "trace", "--to", "300M", "--only", "start_kernel", t.dir / "rec")
    t.has(r.text, r"@start_kernel \[swapper(/0)? 0\]$")
    r = trace(t, first, first + 1000, "--only", "comm:nobody")
    t.equal(r.out, b"", "the trace of nobody")
    t.has(r.error, "of what --only names nothing ran")
    r = trace(t, first, last, "--only", "function:no_such_function", code=ERROR)
    t.has(r.error, "no function 'no_such_function'")
    for word, said in (("5..4", "ends before it begins"), ("4..x", "is no range"),
                       ("pid:x", "no process number"), ("", "missing")):
        r = trace(t, 0, 1, "--only", word, code=USAGE)
        t.has(r.error, said)
