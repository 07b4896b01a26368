"""`reprise verify` and `reprise sign`: what was changed is found, and named."""
import json
import os
import shutil

from suite.harness import DAMAGE, ERROR, IMAGES, USAGE, killed_typed, test

TINY = IMAGES / "tiny"


def key(t, name, algorithm="ed25519"):
    t.run("openssl", "genpkey", "-algorithm", algorithm, "-out", t.dir / f"{name}.pem")
    t.run("openssl", "pkey", "-in", t.dir / f"{name}.pem", "-pubout", "-out", t.dir / f"{name}.pub")


def verify(t, name, *options, code=0):
    return t.run(t.reprise, "verify", *options, t.dir / name, code=code, timeout=300)


def copy(t, name="bad"):
    shutil.rmtree(t.dir / name, ignore_errors=True)
    shutil.copytree(t.dir / "rec", t.dir / name)
    return t.dir / name


@test("verify/signed", cost=3)
def signed(t):
    """A signature covers all that a replay comes from; a part that was changed is named."""
    key(t, "mine")
    key(t, "other")
    t.tiny("rec", "paging", "--seed", "1")
    t.tiny("rec2", "paging", "--seed", "2")
    r = verify(t, "rec")
    t.has(r.text, "^signature +none$")
    t.has(r.error, "replayed without a difference")
    identity = json.loads(verify(t, "rec", "--json", "--no-replay").text)["identity"]
    t.run(t.reprise, "sign", t.dir / "rec", code=USAGE)
    t.run(t.reprise, "sign", "--key", t.dir / "mine.pub", t.dir / "rec", code=ERROR)
    said = t.run(t.reprise, "sign", "--key", t.dir / "mine.pem", t.dir / "rec").text
    t.has(said, f"^signed {identity} by the key [0-9a-f]{{64}}$")
    t.equal((t.dir / "rec/signature").stat().st_mode & 0o777, 0o600, "the signature's mode")
    t.has(verify(t, "rec").text, "^signature +right, by the key [0-9a-f]{64} \\(not checked")
    for name in ("mine.pub", "mine.pem"):
        t.has(verify(t, "rec", "--key", t.dir / name, "--no-replay").text,
              "^signature +right, by the key [0-9a-f]{64}$")
    t.has(verify(t, "rec", "--key", t.dir / "other.pub", code=ERROR).error, "by another key")
    t.has(verify(t, "rec2", "--key", t.dir / "mine.pub", code=ERROR).error, "is not signed")
    # Whole parts of another recording, each right in itself.
    for parts, what in ((["log", "machine.dtb"], "machine.dtb"), (["signature"], "machine.dtb")):
        bad = copy(t)
        for part in parts:
            if part == "signature":
                t.run(t.reprise, "sign", "--key", t.dir / "mine.pem", t.dir / "rec2")
            shutil.copy(t.dir / "rec2" / part, bad / part)
        r = verify(t, "bad", "--key", t.dir / "mine.pub", code=ERROR)
        t.has(r.error, f"another recording: {what} is not what was signed")
    # Something more that a replay never asked for.
    (copy(t) / "gpu.log").write_bytes(b"x")
    t.has(verify(t, "bad", "--key", t.dir / "mine.pub", code=ERROR).error, "gpu.log|something")
    # What is made from the recording is not part of it.
    t.run(t.reprise, "checkpoint", "--every", "0.001", t.dir / "rec")
    verify(t, "rec", "--key", t.dir / "mine.pub", "--no-replay")


@test("verify/forged", cost=3)
def forged(t):
    """A log with all checksums and seals right, but with another input, is not what was signed."""
    key(t, "mine")
    (t.dir / "typed").write_bytes(b"some text\nmore\nexit\n")
    with open(t.dir / "typed", "rb") as f:
        t.tiny("rec", "echo", stdin=f)
    t.run(t.reprise, "sign", "--key", t.dir / "mine.pem", t.dir / "rec")
    bad = copy(t)
    t.run(t.build / "tests/tools/log_forge", t.dir / "rec/log", bad / "log", 1, "console")
    r = verify(t, "bad", "--no-replay", "--key", t.dir / "mine.pub", code=ERROR)
    t.has(r.error, "another recording: log is not what was signed")
    (bad / "signature").unlink()
    t.has(verify(t, "bad", "--no-replay").text, "^seals +right$")
    verify(t, "bad", code=3)


@test("verify/hostile", cost=3)
def hostile(t):
    """Signatures that are none, keys that are none, checkpoints of another recording."""
    key(t, "mine")
    key(t, "rsa", "RSA")
    t.tiny("rec", "paging")
    t.run(t.reprise, "sign", "--key", t.dir / "rsa.pem", t.dir / "rec", code=ERROR)
    t.run(t.reprise, "sign", "--key", t.dir / "mine.pem", t.dir / "rec")
    whole = (t.dir / "rec/signature").read_bytes()
    junk = [b"", b"junk", whole[:-1], whole + b"x", whole.replace(b"key ", b"kex "), whole[:40],
            whole + bytes(5000), whole.upper(), whole.replace(b"\nsignature ", b"\nsignature 0"),
            bytes(2000), b"\nkey " * 500, whole.replace(b"paging", b"\x1b[31m")[::-1]]
    for data in junk:
        (copy(t) / "signature").write_bytes(data)
        r = verify(t, "bad", "--no-replay", code=ERROR)
        t.has(r.error, "^reprise: .*sign")
        t.lacks(r.error, "\x1b")
    changed = bytearray(whole)
    changed[-3] = ord("0") + (changed[-3] == ord("0"))
    (t.dir / "bad/signature").write_bytes(changed)
    t.has(verify(t, "bad", "--no-replay", code=ERROR).error, "not that of the key")
    (t.dir / "bad/signature").unlink()
    os.mkfifo(t.dir / "bad/signature")
    t.has(verify(t, "bad", "--no-replay", code=ERROR).error, "not a regular file")
    for name in ("other", "rec"):
        t.tiny(name, "spin", "--max-insns", 50000000, "--force")
        t.run(t.reprise, "checkpoint", "--every", "0.001", t.dir / name)
    t.has(verify(t, "rec", "--no-replay").text, "^checkpoints +[1-9][0-9]*, of this recording")
    shutil.rmtree(copy(t) / "checkpoints")
    shutil.copytree(t.dir / "other/checkpoints", t.dir / "bad/checkpoints")
    t.has(verify(t, "bad", "--no-replay", code=ERROR).error, "belongs to another recording")
    for part in ("machine.dtb", next((t.dir / "rec/files").iterdir()).relative_to(t.dir / "rec")):
        path = copy(t) / part
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
        verify(t, "bad", "--no-replay", code=ERROR)


@test("verify/killed", cost=5)
def killed(t):
    """What a killed recorder left is verified and signed as far as it goes, its tail included."""
    key(t, "mine")
    killed_typed(t, "rec", ("one", "two"))
    r = verify(t, "rec", code=DAMAGE)
    t.has(r.text, "^tail +right$")
    t.has(r.error, "replayed up to the damage")
    t.has(verify(t, "rec", "--no-replay", code=DAMAGE).error, "right up to position")
    t.run(t.reprise, "sign", "--key", t.dir / "mine.pem", t.dir / "rec")
    verify(t, "rec", "--no-replay", "--key", t.dir / "mine.pub", code=DAMAGE)
    (copy(t) / "tail").unlink()
    r = verify(t, "bad", "--no-replay", "--key", t.dir / "mine.pub", code=ERROR)
    t.has(r.error, "no whole chunk|tail is not what was signed")
