"""`reprise ps`: the processes that a guest had, as the guest itself knows them."""
import json
import re

from suite.boot import image
from suite.harness import ERROR, USAGE, test

SCRIPT = """sh -c 'exit 7'
sh -c 'kill -9 $$; echo not reached'
sh -c 'kill -11 $$'
sh -c 'sleep 0.01; exec sleep 0.02' &
one=$!
sh -c '(sleep 0.03; true); sleep 1000' &
sleep 0.1
echo background $one $!
/bin/ls "b c"
ps -o pid,ppid,stat,args | sed 's/^/have /'
echo now they are
wait $one
"""


@test("lives/ps", cost=8)
def ps(t):
    """Each process with its end; those that live are those that the guest lists, threads of the kernel among them."""
    image(t)
    r = t.linux("rec", script=SCRIPT)
    text = r.text.replace("\r", "")

    def listed(*options):
        out = t.run(t.reprise, "ps", "--json", *options, t.dir / "rec", timeout=100).text
        return [json.loads(line) for line in out.splitlines()]
    every = listed()
    by = {x.get("command", x["comm"]): x for x in every}
    t.equal(by["sh -c exit 7"]["status"], 7, "exit 7")
    t.equal((by["sh -c kill -9 $$; echo not reached"]["signal"], by["sh -c kill -11 $$"]["signal"]), (9, 11), "signals")
    t.equal(by["/bin/ls b c"]["status"], 1, "ls")
    one = int(re.search(r"^background (\d+) (\d+)$", text, re.M).group(1))
    other = int(re.search(r"^background (\d+) (\d+)$", text, re.M).group(2))
    slept = next(x for x in every if x["pid"] == one)
    t.equal((slept["command"], slept["executions"], slept["status"]), ("sleep 0.02", 2, 0), "what executed twice")
    inner = next(x for x in every if x.get("command") == "sleep 0.03")
    middle = next(x for x in every if x["pid"] == inner["parent"])
    t.equal((middle["parent"], middle["executions"]), (other, 0), "the subshell in between")
    for x in every:
        if "ended" in x and "began" in x:
            t.check(x["began"]["position"] < x["ended"]["position"] and ("status" in x) != ("signal" in x), f"the end of {x}")
    t.equal(len({(x["pid"], x["tid"]) for x in every}), len(every), "numbers")
    # As `ps` saw it in the guest, but for the pipeline of its own.
    theirs = re.findall(r"^have +(\d+) +(\d+) +\S+ +(.*)$", text, re.M)
    living = {x["pid"]: x for x in listed("--at", "console:now they are") if "ended" not in x and x["pid"]}
    t.check(len(theirs) > 30, f"the guest lists {len(theirs)}")
    for pid, parent, args in theirs:
        args = re.sub(r"^\{[^ ]+\} ", "", args) if "{ps}" not in args else "ps"
        if args.startswith(("ps", "sed ")):
            continue
        x = living.pop(int(pid), None)
        t.check(x, f"process {pid}, {args}, is not in the list")
        t.equal(x["parent"], int(parent), f"the parent of {pid}")
        name = f"[{x['comm']}]" if x["kernel"] else x["command"]
        # A worker's name has what it works for, there.
        t.check(args.rstrip("]").startswith(name.rstrip("]")[:15]), f"{pid} is {args} there, here {name}")
    t.equal([x for x in living.values() if not x["kernel"]], [], "what the guest does not list")
    shown = t.run(t.reprise, "ps", "--tree", t.dir / "rec").text
    t.has(shown, rf"(?m)^ +{other} +{other} .* lives +(  )+sh -c .sleep 0\.03|^ +{other} +{other} ")
    depth = {m.group(1): len(m.group(2)) for m in re.finditer(r"(?m)^ +(\d+) .{60}( +)\S", shown)}
    t.check(depth[str(middle["pid"])] < depth[str(inner["pid"])] and depth[str(other)] < depth[str(middle["pid"])], "the tree")
    t.lacks(shown, r"\[kthreadd\]")
    t.has(t.run(t.reprise, "ps", "--threads", t.dir / "rec").text, r"\[kthreadd\]")
    # Where there is no Linux, or not yet.
    t.has(t.run(t.reprise, "ps", "--at", "insn:1000", t.dir / "rec", code=ERROR).error,
          "the guest's kernel had made no process yet at position 1000")
    t.tiny("tiny", "rep")
    t.has(t.run(t.reprise, "ps", t.dir / "tiny", code=ERROR).error, "no Linux kernel is to be seen")
    t.run(t.reprise, "ps", "--at", "nowhere", t.dir / "rec", code=USAGE)
    t.run(t.reprise, "ps", code=USAGE)
    return f"{len(every)} processes and threads"
