"""Which checkpoints are believed: those that this user's own programs wrote or checked."""
import json
import re
import shutil

from suite.boot import image
from suite.gdb import Client
from suite.harness import DIVERGED, ERROR, IMAGES, ROOT, USAGE, killed_typed, test

TINY = IMAGES / "tiny"
NOT_USED = "^reprise: checkpoints of .* that are not used, as this user neither made nor checked them: (\\d+) of (\\d+)"
FORGERIES = ("instant", "both", "state", "page", "missing", "text", "past")


def forge(t, n, how, name="rec"):
    """A copy of it as "bad"; false: there is nothing to be forged so."""
    shutil.rmtree(t.dir / "bad", ignore_errors=True)
    shutil.copytree(t.dir / name, t.dir / "bad")
    return not t.run(t.build / "tests/tools/checkpoint_forge", t.dir / "bad", n, how, code=(0, 1)).code


def look(t, name, position, *options, env=None):
    """Registers there, and what was said."""
    r = t.run(t.reprise, "replay", "--to", position, "--regs", "--json", *options, t.dir / name, env=env)
    return json.loads(r.out), r.error


def each_file(t, name, env=None, code=0):
    """Goes to each place after each file, and fails where one was not used."""
    return t.run(t.build / "tests/tools/walk", "--seed", 1, "--each-file", t.dir / name, env=env, code=code, timeout=300)


def unused(t, error):
    """(left out, all), once."""
    found = re.findall(NOT_USED, error, re.M)
    t.equal(len(found), 1, "the sentences about checkpoints that are not used")
    t.has(error, "`reprise verify .*` checks and notes them.*`reprise checkpoint .*`.*--trust-checkpoints")
    return tuple(map(int, found[0]))


@test("checkpoints/forged", cost=12)
def forged(t):
    """Every file changed in every way, checksums right: no command starts from it, verify names it."""
    for _ in range(20):  # how many there are is the host's time's
        t.tiny("rec", "stretch", "--force", "--checkpoint-every", "0.001", "--seed", 1)
        info = t.info("rec")
        count, end = info["checkpoints"], info["position"]
        if count >= 2:
            break
    t.check(count >= 2, "too few checkpoints")
    right, said = look(t, "rec", end - 10)
    t.equal(said, "", "stderr, of own ones")
    core = t.dir / "core"
    t.run(t.reprise, "core", "--at", end - 10, "-o", core, t.dir / "rec")
    forgeries = 0
    for n in range(count):
        for how in FORGERIES:
            if not forge(t, n, how):
                continue
            forgeries += 1
            what = f"a file {n} forged by \"{how}\""
            seen, said = look(t, "bad", end - 10)
            t.equal(seen, right, f"the place with {what}")
            t.has(said, f"{NOT_USED}|of no use", what)
            r = t.run(t.reprise, "verify", t.dir / "bad", code=(ERROR, DIVERGED))
            t.has(r.error, f"bad/checkpoints/{n:06}", f"what verify says of {what}")
            if how in ("state", "page", "missing", "text"):
                t.equal(r.code, DIVERGED, f"verify's exit code of {what}")
            if how == "page":
                t.has(r.error, "page of memory at physical address [0-9a-f]+ has other contents", what)
                t.equal(unused(t, said), (count - n, count), f"those left out with {what}")
            if how == "missing":
                t.has(r.error, "has changed since the one before, and is missing", what)
            if how == "state":
                t.has(r.error, "of the component cpu0, gpr\\[4\\] is", what)
    # The others have the same timeline. One forgery that was believed once, for each.
    forge(t, 0, "both")
    t.run(t.reprise, "core", "--at", end - 10, "-o", t.dir / "core2", t.dir / "bad")
    t.check(core.read_bytes() == (t.dir / "core2").read_bytes(), "the core differs")
    with Client(t, "bad", "--to", str(end - 10)) as c:
        registers = c.command("g")
    with Client(t, "rec", "--to", str(end - 10)) as c:
        t.equal(registers, c.command("g"), "gdb's registers")
    r = t.run(t.reprise, "symbols", "--at", end - 10, t.dir / "bad", code=None)
    t.equal(unused(t, r.error), (count, count), "those that `symbols` leaves out")
    for argv in (["trace", "--from", end - 9, "--to", "time:0.0005s"], ["events", "--from", "time:0.0001s", "--to", "time:0.0005s"]):
        unused(t, t.run(t.reprise, *argv, t.dir / "bad", code=None).error)
    # Who wants to be deceived, is.
    forge(t, count - 1, "state")
    r = t.run(t.reprise, "replay", "--to", end - 10, "--regs", "--json", "--trust-checkpoints", t.dir / "bad", code=None)
    t.lacks(r.error, NOT_USED)
    t.check(r.code or json.loads(r.out) != right, "--trust-checkpoints uses none")
    # Signed or not: a signature says nothing of them, verify's replay does.
    key = t.dir / "key"
    t.run("openssl", "genpkey", "-algorithm", "ed25519", "-out", key)
    t.run(t.reprise, "sign", "--key", key, t.dir / "bad")
    t.run(t.reprise, "verify", "--key", key, t.dir / "bad", code=DIVERGED)
    t.has(t.run(t.reprise, "verify", "--key", key, "--no-replay", t.dir / "bad").text, "not compared with a replay")
    t.has(t.run(t.reprise, "diff", t.dir / "rec", t.dir / "bad").text, "equal; their checkpoints were not looked at")
    result = t.run(t.reprise, "verify", "--json", t.dir / "bad", code=DIVERGED).text.splitlines()[-1]
    checked = json.loads(result)["checkpoints"]
    t.equal((checked["files"], checked["same"], checked["noted"]), (count, count - 1, True), "verify --json")
    return f"{forgeries} forgeries of {count} files"


@test("checkpoints/memory", cost=10)
def memory(t):
    """One byte of a Linux guest's memory, in the last checkpoint: not in a core, and verify finds where."""
    image(t)
    t.linux("rec", "--memory", "256M", "--checkpoint-every", "0.3", append="quiet", script="echo alpha; sleep 1; echo beta\n")
    count, end = t.info("rec")["checkpoints"], t.info("rec")["position"]
    forge(t, count - 1, "page")
    for name in ("rec", "bad"):
        t.run(t.reprise, "core", "--at", end - 1000, "-o", t.dir / f"{name}.core", t.dir / name)
    t.check((t.dir / "rec.core").read_bytes() == (t.dir / "bad.core").read_bytes(), "the core differs")
    r = t.run(t.reprise, "verify", t.dir / "bad", code=DIVERGED, timeout=300)
    t.has(r.error, f"checkpoints/{count - 1:06} is not .*: the page of memory at physical address")
    t.has(t.run(t.reprise, "verify", t.dir / "rec", timeout=300).error, f"came to: {count} of {count}, noted")


@test("checkpoints/notes", cost=10)
def notes(t):
    """Noted by record, checkpoint and verify; for the recording wherever it is, and with its log only."""
    (t.dir / "typed").write_bytes(b"some text\nmore\nexit\n")
    with open(t.dir / "typed", "rb") as f:
        t.tiny("echo", "echo", "--checkpoint-every", "0.0001", stdin=f)
    t.tiny("rec", "spin", "--max-insns", 50000000, "--checkpoint-every", "0.001")
    count = t.info("rec")["checkpoints"]
    shutil.copytree(t.dir / "rec", t.dir / "copy")
    for name in ("rec", "copy"):
        t.lacks(each_file(t, name).error, "not used")
    # Another user, who has it from somebody.
    other = {"XDG_STATE_HOME": t.dir / "other"}
    t.equal(unused(t, look(t, "copy", "end-5", env=other)[1]), (count, count), "those left out")
    each_file(t, "copy", env=other, code=1)
    t.equal(unused(t, t.run(t.reprise, "verify", "--no-replay", t.dir / "copy", env=other).error or
                   look(t, "copy", "end-5", env=other)[1]), (count, count), "those left out after --no-replay")
    r = t.run(t.reprise, "verify", t.dir / "copy", env=other)
    t.has(r.error, f"came to: {count} of {count}, noted as checked")
    t.lacks(each_file(t, "copy", env=other).error, "not used")
    files = list((t.dir / "other/reprise/checkpoints").iterdir())
    t.equal((len(files), files[0].stat().st_mode & 0o777), (1, 0o600), "notes and their mode")
    size = files[0].stat().st_size
    t.run(t.reprise, "verify", t.dir / "copy", env=other)
    t.equal(files[0].stat().st_size, size, "the notes' size when they are checked again")
    # One's own, in the place of another's.
    third = {"XDG_STATE_HOME": t.dir / "third"}
    r = t.run(t.reprise, "checkpoint", "--every", "0.005", t.dir / "copy", env=third)
    t.lacks(r.error, "cannot be noted|not used")
    t.lacks(each_file(t, "copy", env=third).error, "not used")
    t.equal(unused(t, look(t, "copy", "end-5")[1])[0], t.info("copy")["checkpoints"], "those left out of another's")
    # What a killed program leaves is passed over; a note of the last is one of all before it.
    note = t.state / "reprise/checkpoints" / files[0].name
    whole = note.read_bytes()
    own = [line for line in whole.splitlines() if line in files[0].read_bytes().splitlines()]
    t.equal(len(own), count, "notes of the recording")
    files[0].write_bytes(b"junk\n" + own[-1][:20] + b"\n\n" + own[-1] + b"\n" + own[0][:30])
    t.lacks(each_file(t, "rec", env=other).error, "not used")
    # Its notes do not grow for ever.
    files[0].write_bytes(b"".join(b"%064x\n" % i for i in range(70000)))
    t.run(t.reprise, "checkpoint", "--every", "0.005", t.dir / "copy", env=other)
    t.check(files[0].stat().st_size < 3 << 20, "the notes' size")
    t.lacks(each_file(t, "copy", env=other).error, "not used")
    # The same files, with a log that has another input before them.
    if t.info("echo")["checkpoints"]:
        shutil.copytree(t.dir / "echo", t.dir / "bad")
        t.run(t.build / "tests/tools/log_forge", t.dir / "echo/log", t.dir / "bad/log", 0, "console")
        t.lacks(look(t, "echo", "end-1")[1], "not used")
        t.has(t.run(t.reprise, "replay", "--to", "end-1", t.dir / "bad", code=None).error, f"{NOT_USED}|of no use|diverged")


@test("checkpoints/no-state", cost=5)
def no_state(t):
    """Nowhere to note them, or where others can write: said once, recorded all the same, not believed."""
    (t.dir / "file").touch()
    for i, env in enumerate(({"XDG_STATE_HOME": "", "HOME": ""}, {"XDG_STATE_HOME": str(t.dir / "file")})):
        r = t.tiny(f"rec{i}", "stretch", "--checkpoint-every", "0.001", env=env)
        t.equal(len(re.findall("checkpoints cannot be noted as your own: .*`reprise verify`", r.error)), 1, "warnings")
        unused(t, look(t, f"rec{i}", "end-1", env=env)[1])
        t.has(t.run(t.reprise, "verify", t.dir / f"rec{i}", env=env).error, "came to: .*they cannot be noted as checked: ")
        t.has(t.run(t.reprise, "checkpoint", "--every", "0.0001", t.dir / f"rec{i}", env=env).error, "cannot be noted as your own: ")
    env = {"XDG_STATE_HOME": t.dir / "state"}
    t.lacks(t.tiny("rec", "stretch", "--checkpoint-every", "0.001", env=env).error, "noted")
    t.lacks(look(t, "rec", "end-1", env=env)[1], "not used")
    note, = (t.dir / "state/reprise/checkpoints").iterdir()
    note.chmod(0o622)
    error = look(t, "rec", "end-1", env=env)[1]
    unused(t, error)
    t.has(error, "written by others")
    note.chmod(0o600)
    note.rename(t.dir / "elsewhere")
    note.symlink_to(t.dir / "elsewhere")
    unused(t, look(t, "rec", "end-1", env=env)[1])


@test("checkpoints/large-disk", cost=8)
def large_disk(t):
    """verify compares what a guest wrote to a disk also where it is more than is kept in memory."""
    image(t)
    with open(t.dir / "disk.img", "wb") as f:
        f.truncate(128 << 20)
    t.linux("rec", "--memory", "256M", "--disk", t.dir / "disk.img", "--checkpoint-every", "0.5", append="quiet",
            script="dd if=/dev/urandom of=/dev/vda bs=1M count=100; sync; sleep 1\n"
                   "dd if=/dev/urandom of=/dev/vda bs=1M count=20 seek=50; sync\n")
    r = t.run(t.reprise, "verify", t.dir / "rec", timeout=200)
    t.has(r.error, r"checkpoints that are what the replay came to: (\d+) of \1,")


@test("checkpoints/killed", cost=4)
def killed(t):
    """Those of a recorder that was killed are its user's own, too."""
    killed_typed(t, "rec", ("one", "two", "three"), "--checkpoint-every", "0.01")
    t.lacks(t.run(t.reprise, "replay", "--to", "end-1", t.dir / "rec", code=None).error, "not used|of no use")
    t.run(t.reprise, "verify", t.dir / "rec", code=4)
    return f"{t.info('rec', code=None)['checkpoints']} files"


@test("checkpoints/old", cost=2)
def old(t):
    """Files of an older version hash no pages: said, not used, and no reason to fail."""
    t.env["REPRISE_TEST_MAKER"] = "GenuineIntel"
    shutil.copytree(ROOT / "tests/golden/timers", t.dir / "rec")
    t.has(look(t, "rec", 1000)[1], "checkpoints of .* were written by an older version.*`reprise checkpoint`")
    t.has(t.run(t.reprise, "verify", t.dir / "rec").text, "^checkpoints +of an older version: not used")
    t.run(t.reprise, "checkpoint", "--every", "0.01", t.dir / "rec")
    t.equal(look(t, "rec", 1000)[1], "", "stderr, of new ones")


@test("checkpoints/options", cost=1)
def options(t):
    """--trust-checkpoints where there is nothing to trust is refused."""
    for argv in (["replay", "a"], ["replay", "--verify", "a"], ["events", "a"], ["events", "--from", "5", "a"],
                 ["pcap", "-o", "x", "a"], ["disk", "a"], ["checkpoint", "a"], ["gpu", "extract", "a"]):
        t.run(t.reprise, *argv, "--trust-checkpoints", code=USAGE)
