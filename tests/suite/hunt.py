"""`reprise hunt`: seed after seed until it fails."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

from suite.boot import image
from suite.harness import ERROR, FINE, IMAGES, PANIC, USAGE, test
from suite.room import Small

NOT_FOUND = 11
PLANTED = IMAGES / "guest" / "planted"
# Most runs of `planted KIND N` hold no window open: a seed decides.
DRAWN = 3


def hunt(t, *options, behind=(), code=FINE, **more):
    return t.run(t.reprise, "hunt", "--json", *options, "--", *behind, code=code, **{"timeout": 300, **more})


def told(r):
    return json.loads(r.out)


def state(t, name):
    """What a hunt's state says: runs that are done, and lines."""
    text = (t.dir / name / "state").read_text()
    return sum(int(b) - int(a) + 1 for a, b in re.findall(r"^done (\d+) (\d+)$", text, re.M)), text


def begun(t, name, runs, *behind, options=("--stop-on", "crash")):
    return t.start([t.reprise, "hunt", "-o", name, "--runs", runs, *options, "--", *behind])


def until(t, what, holds, seconds=120):
    for _ in range(int(seconds * t.slow * 20)):
        if holds():
            return
        time.sleep(0.05)
    t.check(False, f"{what} did not happen")


@test("hunt/planted", cost=25)
def planted(t):
    """Planted races are found, each by its kind and place; the first recording of each kind is kept, shows the
    failure again, and no other is there."""
    image(t, "run")
    kinds = {"counter": r"^status 3: lost N of N$", "wakeup": r"^hang: in .*\(planted\)", "deadlock": r"^hang: in .*\(planted\)",
             "publish": r"^crash: signal 11 at 0 in \w+\+0x[0-9a-f]+ \(planted\) < "}
    for kind, outcome in kinds.items():
        r = told(hunt(t, "-o", kind, "--runs", 60, "--kinds", 1, "--stop-on", "crash", "--stop-on", "hang:5", "--stop-on",
                      "exit!=0", behind=("run", PLANTED, kind, DRAWN)))
        found = [k for k in r["kinds"] if k["found"]]
        t.equal(len(found), 1, f"{kind}: kinds that were found")
        t.has(found[0]["outcome"], outcome, kind)
        t.equal(sum(k["runs"] for k in r["kinds"]), r["runs"], f"{kind}: runs of all kinds")
        kept = pathlib.Path(found[0]["recording"])
        t.equal(kept, t.dir / kind / f"seed-{found[0]['seed']}", f"{kind}: the recording")
        t.equal({p.name for p in (t.dir / kind).iterdir()}, {"lock", "state", kept.name}, f"{kind}: what is in the directory")
        t.equal(t.info(kept)["state"], "complete", f"{kind}: the recording's state")
        if kind == "counter":
            again = t.run(t.reprise, "replay", "--verify", kept, timeout=300)
            t.has(again.error, "replayed without a difference")
            t.has(again.text, r"^lost \d+ of 100$")


@test("hunt/goes-on", cost=15)
def goes_on(t):
    """A hunt that is killed goes on where it was; there is one at a time in a directory, and one hunt only; SIGINT lets
    runs end, a second one ends them; at the end each run was counted once."""
    image(t, "run")
    program = (PLANTED, "counter", DRAWN)
    stop = ("--stop-on", "exit=3")
    options = ("-o", "h", *stop)
    child = begun(t, "h", 1000, *program, options=stop)
    until(t, "a run", lambda: (t.dir / "h/state").exists() and state(t, "h")[0])
    r = hunt(t, *options, behind=program, code=ERROR)
    t.has(r.error, "another hunt goes on in .*/h; -o names another directory")
    child.kill()
    child.wait()
    done = state(t, "h")[0]
    r = told(hunt(t, *options, "--runs", done + 2, behind=program, code=(FINE, NOT_FOUND)))
    t.equal((r["runs"], r["complete"]), (done + 2, True), "runs after the kill, and the end")
    t.equal(sum(k["runs"] for k in r["kinds"]), done + 2, "runs of all kinds")
    t.lacks(" ".join(os.listdir(t.dir / "h")), "run-|done-", "the directory")
    r = hunt(t, *options, behind=(PLANTED, "counter", DRAWN + 1), code=ERROR)
    t.has(r.error, "is of another hunt .*counter 3.*; -o names another directory")
    r = hunt(t, *options, "--first-seed", 5, behind=program, code=ERROR)
    t.has(r.error, "is of a hunt whose first seed is 1;")
    # Once: what goes on is counted. Twice: it is gone, and done later.
    for times in (1, 2):
        child = begun(t, "h", 1000, *program, options=stop)
        before = state(t, "h")[0]
        until(t, "a run", lambda before=before: state(t, "h")[0] > before)
        for _ in range(times):
            child.send_signal(signal.SIGINT)
            time.sleep(0.2)
        out, err = child.communicate(timeout=120 * t.slow)
        t.has(err.decode(), "the same command goes on with it")
        t.check(child.returncode in (FINE, NOT_FOUND), f"exit code {child.returncode}")
        t.lacks(" ".join(os.listdir(t.dir / "h")), "run-|done-", "the directory")
    last = max(int(n) for n in re.findall(r"^done \d+ (\d+)$", state(t, "h")[1], re.M)) + 1
    r = told(hunt(t, *options, "--runs", last + 1, behind=program, code=(FINE, NOT_FOUND)))
    t.equal((r["runs"], sum(k["runs"] for k in r["kinds"])), (last + 1, last + 1), "runs, of all kinds")
    t.has(state(t, "h")[1], rf"^done 0 {last}$", "the state: no run was left out")


@test("hunt/refused", cost=6)
def refused(t):
    """What is no hunt: options, those behind --, directories of others, states that are damaged or of a later version;
    what fails at once is said, with what was said of it, and ends the hunt."""
    image(t, "run")
    for options, behind, text in (
            ((), ("true",), "--stop-on is missing"), (("--stop-on", "crash"), (), "what is to be run"),
            (("--stop-on", ""), ("true",), "the text is empty"), (("--stop-on", "exit=x"), ("true",), "'x' is not a number"),
            (("--stop-on", "hang:0"), ("true",), "not a number of seconds"), (("--at", "end", "--stop-on", "crash"), ("true",), "--at goes with --from"),
            (("--runs", 0, "--stop-on", "crash"), ("true",), "--runs: 0 is none of 1 to"), (("--on", "moon", "--stop-on", "crash"), ("true",), "neither local nor slurm"),
            (("--stop-on", "crash"), ("run", "--sed", 3, "true"), "unrecognized option '--sed'"),
            (("--stop-on", "crash"), ("run", "-o", "x", "true"), "-o behind --: the hunt has a place"),
            (("--stop-on", "crash"), ("--seed=4", "true"), "--seed behind --: each run has a seed"),
            (("--stop-on", "crash"), ("--write", ".", "true"), "--write behind --"),
            (("--stop-on", "crash"), ("record", "--kernel", "x", "--gdb=1"), "--gdb behind --"),
            (("--stop-on", "crash"), ("--kernel", "x", "--memory", "1X"), "not a size"),
            (("--stop-on", "crash"), ("record", "--from", "x"), "options of the hunt itself")):
        t.has(hunt(t, *options, behind=behind, code=USAGE).error, re.escape(text))
    t.check(not (t.dir / "hunt").exists(), "a directory was made all the same")
    r = hunt(t, "--stop-on", "crash", "-o", "nothing", behind=("./nothing-here",), code=ERROR)
    t.has(r.error, "of the first run there is no recording: ./nothing-here: No such file or directory")
    r = hunt(t, "--stop-on", "panic", "-o", "kernel", behind=("record", "--kernel", "no-kernel"), code=ERROR)
    t.has(r.error, "of the first run there is no recording: .*no-kernel")
    r = hunt(t, "--from", "no-recording", "--stop-on", "panic", "-o", "from", code=ERROR)
    t.has(r.error, "no-recording")
    (t.dir / "others").mkdir()
    (t.dir / "others/file").write_text("x")
    r = hunt(t, "--stop-on", "crash", "-o", "others", behind=("true",), code=ERROR)
    t.has(r.error, "holds something else than a hunt")
    hunt(t, "--stop-on", "crash", "-o", "h", "--runs", 1, behind=("true",), code=NOT_FOUND)
    good = (t.dir / "h/state").read_text()
    for bad, text in ((good.replace("hunt 1", "hunt 2"), "state: it was written by a later version of reprise"),
                      (good.replace("done 0 0", "done 0 1"), "state: it is damaged: its sum"),
                      (good[:40], "state: it is damaged"), ("", "state: it is not what a hunt has written")):
        (t.dir / "h/state").write_text(bad)
        r = hunt(t, "--stop-on", "crash", "-o", "h", behind=("true",), code=ERROR)
        t.has(r.error, re.escape(text))
        t.equal((t.dir / "h/state").read_text(), bad, "the state that was refused")


@test("hunt/full", cost=6)
def full(t):
    """A disk that is full ends the hunt, which says so and keeps what it has found; with room it goes on."""
    image(t, "run")
    with Small(t, 160) as small:
        options = ("-o", small.path / "h", "--jobs", 1, "--stop-on", "exit=3")
        behind = (PLANTED, "counter", 1)
        t.equal(told(hunt(t, *options, "--runs", 1, behind=behind))["runs"], 1, "runs before")
        small.fill()
        r = hunt(t, *options, "--runs", 3, behind=behind, code=ERROR)
        t.has(r.error, "disk.* is full.*what was found is kept, and the hunt goes on when it is started again")
        (small.path / "others").unlink()
        r = told(hunt(t, *options, "--runs", 3, behind=behind))
        t.equal((r["found"] + r["without_recording"], r["found_kinds"]), (3, 1), "what was found")
        t.equal(t.info(r["kinds"][0]["recording"])["state"], "complete", "what was kept")


@test("hunt/machine", cost=12)
def machine(t):
    """A machine instead of a program, from a point of its recording on: a process that dies, a panic, a text."""
    image(t)
    r = t.linux("base", code=None, append="quiet", script="""echo going; sleep 1; x=$(head -c 999 /dev/hwrng | tail -c 1 | od -An -tu1)
        case $((x % 4)) in 0) sleep 9 & kill -SEGV $!; wait;; 1) echo c >/proc/sysrq-trigger;; 2) echo number $x;; esac""")
    t.check(r.code in (FINE, PANIC), f"code {r.code} of a base that may draw the panic itself")
    r = told(hunt(t, "-o", "h", "--from", "base", "--at", "console:going", "--runs", 24, "--stop-on", "crash", "--stop-on",
                  "panic", "--stop-on", "text:number "))
    kinds = {k["outcome"].split(":")[0]: k for k in r["kinds"]}
    t.equal(r["runs"], 24, "runs")
    t.check({"crash", "panic", "text"} <= kinds.keys(), f"kinds: {', '.join(kinds)}")
    t.has(kinds["crash"]["outcome"], r"^crash: signal 11 in busybox\+0x")
    t.has(kinds["panic"]["outcome"], "sysrq triggered crash; .*in sysrq_handle_crash")
    t.equal(kinds["text"]["outcome"], "text: number N", "the text's kind")
    again = t.run(t.reprise, "replay", kinds["panic"]["recording"], timeout=300)
    t.has(again.text, "^going$")
    t.has(again.text, "sysrq triggered crash")
    r = hunt(t, "-o", "g", "--from", "base", "--stop-on", "panic", code=ERROR)  # it has powered off
    t.has(r.error, "nothing can begin in base there")


@test("hunt/outside", cost=4)
def outside(t):
    """A recorder of a hunt has ended when the process that it left outside its sandbox has, too: else that removes the
    directory that the next one has made, while it is empty (`simplify` failed so once in 900 runs)."""
    log = t.dir / "log"
    hunt(t, "-o", t.dir / "hunt", "--runs", 2, "--jobs", 1, "--stop-on", "panic",
         behind=("record", "--kernel", IMAGES / "tiny" / "rep.elf", "--memory", "16M"), code=NOT_FOUND,
         env={"LD_PRELOAD": t.preloaded("slow_outside.c"), "SLOW_OUTSIDE": log})
    t.check(log.exists() and log.read_text() == 2 * "late\n", "a process of a recorder still runs")


@test("hunt/max-time", cost=2)
def max_time(t):
    """`record --max-time`: at that virtual time, idle or not; `--unpaced`: without the host's clock."""
    image(t)
    for name, script in (("idle", "sleep 100"), ("busy", "while :; do :; done")):
        t.linux(name, "--max-time", "2.5", append="quiet", script=script, code=8)
        is_now = t.info(name)
        t.equal((is_now["end"], is_now["why"], is_now["time"]), ("quit", "timeout", 2_500_000_000), name)
        t.replay(name)


# ---- a cluster on this host ----

CLUSTER = """
ClusterName=hunt
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={here}/munge.sock
CryptoType=crypto/munge
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={here}/ctld
SlurmdSpoolDir={here}/%n
SlurmctldPidFile={here}/ctld.pid
SlurmdPidFile={here}/%n.pid
SlurmctldLogFile={here}/ctld.log
SlurmdLogFile={here}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdTimeout=5
ReturnToService=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 RealMemory=100
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 RealMemory=100
PartitionName=p Nodes=n[1-2] Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    """Two nodes of one CPU each, slurmctld and munged; of this user, on this host."""

    def __init__(self, t):
        self.t, self.here = t, pathlib.Path(f"/tmp/reprise-hunt-{os.getpid()}")
        self.children = {}

    def __enter__(self):
        t = self.t
        where = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"
        self.program = {}
        for name in ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo"):
            self.program[name] = shutil.which(name, path=where)
            if not self.program[name]:
                t.skip(f"there is no {name} here (Debian: slurm-wlm, munge)")
        if os.geteuid():
            t.skip("a cluster of its own takes root")
        self.here.mkdir(mode=0o755)
        for name in ("ctld", "n1", "n2"):
            (self.here / name).mkdir()
        (self.here / "munge.key").write_bytes(os.urandom(1024))
        (self.here / "munge.key").chmod(0o400)
        conf = self.here / "slurm.conf"
        host = os.uname().nodename.split(".")[0]
        conf.write_text(CLUSTER.format(host=host, here=self.here, ports=free_ports(3), user="root"))
        t.env["SLURM_CONF"] = str(conf)
        self.begin("munged", "--foreground", "--force", *(f"--{what}={self.here}/munge.{end}" for what, end in (
            ("socket", "sock"), ("key-file", "key"), ("log-file", "log"), ("pid-file", "pid"), ("seed-file", "seed"))))
        until(t, "munged", (self.here / "munge.sock").exists, 20)
        self.begin("slurmctld", "-D", "-c", "-f", conf)
        for node in ("n1", "n2"):
            self.begin("slurmd", "-D", "-N", node, "-f", conf, name=node)
        until(t, "two idle nodes", lambda: self.t.run(self.program["sinfo"], "-h", "-o", "%D %t", code=None).text.strip() == "2 idle", 60)
        return self

    def begin(self, program, *argv, name=None):
        self.children[name or program] = self.t.start([self.program[program], *argv], stdout=subprocess.DEVNULL,
                                                      stderr=subprocess.DEVNULL)

    def kill_node(self, node):
        """Its daemon, and all that it has started: as if the machine were gone."""
        below = {}
        for p in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                below.setdefault(int((p / "stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(p.name))
                command = (p / "cmdline").read_bytes()
            except OSError:
                continue
            # slurmstepd is nobody's child; its name says of which job.
            if command.startswith(b"slurmstepd") and str(self.here).encode() in (p / "environ").read_bytes() and \
                    f"SLURMD_NODENAME={node}".encode() in (p / "environ").read_bytes():
                below.setdefault(self.children[node].pid, []).append(int(p.name))
        todo, killed = [self.children[node].pid], 0
        while todo:
            pid = todo.pop()
            todo += below.get(pid, [])
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
        return killed

    def __exit__(self, *why):
        for child in reversed(list(self.children.values())):
            if child.poll() is None:
                child.terminate()
        for child in self.children.values():
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()
        shutil.rmtree(self.here, ignore_errors=True)


def table(r):
    return [(k["runs"], k["seed"], k["found"], k["outcome"]) for k in r["kinds"]]


@test("hunt/slurm", cost=60)
def slurm(t):
    """A hunt on a cluster whose node is killed in the middle: the same table as on this host. A cluster that is not
    there is said."""
    image(t, "run")
    runs = int(os.environ.get("HUNT_RUNS", "16"))
    options, behind = ("--runs", runs, "--stop-on", "exit=3"), (PLANTED, "counter", DRAWN)
    with Cluster(t) as cluster:
        here = told(hunt(t, "-o", "here", *options, behind=behind, timeout=3000))
        child = t.start([t.reprise, "hunt", "--json", "-o", "there", "--on", "slurm", "--batch", 2, *options, "--", *behind])
        until(t, "a run of the cluster", lambda: (t.dir / "there/state").exists() and state(t, "there")[0] > 1)
        cluster.kill_node("n2")
        out, err = child.communicate(timeout=3000 * t.slow)
        t.show(child.returncode, out, err)
        there = json.loads(out)
        t.equal(child.returncode, FINE, "exit code")
        t.equal(table(there), table(here), "the cluster's table")
        t.equal(t.info(next(k["recording"] for k in there["kinds"] if k["found"]))["state"], "complete", "what was kept")
    r = hunt(t, "-o", "gone", "--on", "slurm", *options, behind=behind, code=ERROR, timeout=600)
    t.has(r.error, "sbatch: ")
