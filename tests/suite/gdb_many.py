"""gdb where there is much of one thing: conditions of watchpoints that seldom hold, steps backwards
over long loops. What `reprise gdb` makes of it is compared with what gdb does by itself."""
from suite.boot import image
from suite.gdb import gdb, marked, need_gdb
from suite.gdb_session import session
from suite.harness import IMAGES, ROOT, test

PROGRAM = IMAGES / "guest" / "many"
SOURCE = (ROOT / "tests" / "guest" / "many.c").read_text().splitlines()
START = ("--to", "console:here")
TURNS = 3000000

HELPERS = """set pagination off
set width 0
set debuginfod enabled off
add-symbol-file PROGRAM
python
import time
def go(*commands):
    for command in commands:
        try:
            gdb.execute(command, to_string=True)
        except gdb.error as e:
            print("error:", e)
        frame = gdb.newest_frame()
        print("at", gdb.execute("monitor when", to_string=True).split()[1], frame.name(),
              frame.find_sal().line, flush=True)
end
"""


def line(text, k=0):
    """The number of the k-th line of many.c that is this."""
    return [i for i, x in enumerate(SOURCE, 1) if x.strip() == text][k]


def record(t):
    need_gdb(t)
    image(t)
    r = t.linux("rec", "--memory", "256M", "--add", f"{PROGRAM}:/bin/many", append="quiet",
                script="echo here; many\n")
    t.has(r.text, r"^many \d+ 1000 0\r?$")


def ours(t, text):
    """The places where the commands stopped in `reprise gdb`, and all that was said."""
    (t.dir / "script").write_text(HELPERS.replace("PROGRAM", str(PROGRAM)) + text)
    out = session(t, f"source {t.dir}/script", options=START, timeout=120).text
    t.lacks(out, "Python Exception|Traceback|error:", "gdb's output")
    return marked(out, "at"), out


def both(t, text):
    """The same, where gdb by itself stops at the same places."""
    said = ours(t, text)
    plain = gdb(t, HELPERS.replace("PROGRAM", str(PROGRAM)) + text, options=START, timeout=120)
    t.equal(said[0], marked(plain, "at"), "the places with and without `reprise gdb`")
    return said


@test("gdb/many-watch", cost=8)
def watch(t):
    """Conditions of watchpoints are evaluated in the server: gdb stops where it would by itself,
    also where a value is the one that it saw last, and 100,000 hits take a moment, each way."""
    record(t)
    begin = "tbreak write_often\ncontinue\n"
    at, _ = both(t, begin + """watch value if value == 1000 && $pid > 1
python go("continue", "continue", "reverse-continue", "continue")
delete
rwatch turns if turns == 3
tbreak call
python go("continue", "continue", "continue", "reverse-continue")
""")
    t.equal(len({x.split()[0] for x in at[:3]}), 3, "stops at equal values")
    # What is not certain stays with gdb: a local variable, two at one place, a place that moves.
    at, out = both(t, begin + """watch value if i == 20
python go("continue")
watch value
python go("continue")
delete
set $where = &value
watch *$where if value == 1
python go("continue")
delete
watch -location value if value == 1
python go("continue", "continue", "reverse-continue")
""")
    t.has(out, r"(?s)Hardware watchpoint.*Hardware watchpoint")
    at, out = ours(t, begin + """watch value if value == 4242
tbreak few
python went = time.monotonic()
python go("continue")
python print("took", round(time.monotonic() - went, 2)); went = time.monotonic()
tbreak main
python go("reverse-continue")
python print("took", round(time.monotonic() - went, 2))
""")
    t.equal([x.split()[1] for x in at], ["few", "main"], "where nothing was hit")
    took = [float(x) for x in marked(out, "took")]
    t.check(max(took) < 12 * t.slow, f"100,000 hits took {took} s")
    return f"100,000 hits: {took[0]} s, backwards {took[1]} s"


@test("gdb/many-back", cost=8)
def back(t):
    """Steps backwards over loops in inlined functions end where single ones lead, and soon."""
    record(t)
    small = f"""tbreak few
continue
tbreak {line("return x;", 2)}
continue
python
go("reverse-next", "reverse-next", "reverse-next")
go(*["tbreak few", "reverse-continue", "tbreak call if turns == 55", "continue"])
go("reverse-finish", "reverse-finish", "reverse-next", "reverse-next")
go("tbreak call if turns == 55", "continue", "finish")
go(*["reverse-step"] * 40, "reverse-step 20", "reverse-finish", "reverse-next 2")
go("tbreak mix if x > 5000", "continue", "reverse-finish", "reverse-next", "reverse-finish")
go("tbreak mix if x > 5000", "continue", "reverse-stepi 100", "reverse-nexti 90")
end
"""
    at, _ = both(t, small)
    last = line("return x;", 3)
    big, out = ours(t, f"""tbreak {last}
continue
python
went = time.monotonic()
go("reverse-next", "reverse-next", "reverse-next", "reverse-next")
print("took", round(time.monotonic() - went, 2))
gdb.execute("tbreak {last}")
go("continue", "reverse-step 6")
went = time.monotonic()
go("reverse-finish", "reverse-finish")
print("took", round(time.monotonic() - went, 2))
# A breakpoint on the way, and a watchpoint.
gdb.execute("tbreak {last}")
go("continue", "tbreak call if turns == 1000000", "reverse-next", "reverse-next", "reverse-next")
gdb.execute("tbreak {last}")
go("continue", "reverse-next", "watch turns if turns == 2000000", "reverse-next")
end
""")
    lines_ = [int(x.split()[2]) for x in big]
    t.equal(lines_[:3], [line("turns = 0;", 1), line("x += calls(n);", 1), line("last = 0;", 1)],
            "the lines backwards")
    t.check(int(big[0].split()[0]) - int(big[1].split()[0]) > 10 * TURNS, f"the loop: {big}")
    t.equal(big[7], big[1], "where reverse-finish ends")
    t.equal([x.split()[1] for x in big[8:]], ["many", "many", "many", "call", "calls", "many", "many", "many", "call"],
            "the functions where points on the way stop")
    took = [float(x) for x in marked(out, "took")]
    t.check(max(took) < 10 * t.slow, f"{TURNS} turns took {took} s")
    return f"{TURNS} turns: reverse-next {took[0]} s, reverse-finish {took[1]} s"
