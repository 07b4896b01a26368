"""What reprise makes is its owner's alone: modes of recordings and of all that commands write."""
import os
import stat

from suite.boot import image
from suite.harness import ERROR, test


def wrong_modes(top):
    """All beneath that others could read or write, with its mode."""
    found = []
    for where, directories, files in os.walk(top):
        for name in [*directories, *files]:
            path = os.path.join(where, name)
            mode = stat.S_IMODE(os.lstat(path).st_mode)
            if mode & 0o077 or not mode & 0o400:
                found.append(f"{os.path.relpath(path, top)} {mode:03o}")
    return found


@test("privacy/modes", cost=8)
def modes(t):
    """With a umask that forbids nothing: recordings, checkpoints, marks, cores, pictures, captures."""
    image(t, "generic")
    made = t.dir / "made"
    made.mkdir(mode=0o700)
    disk = t.dir / "disk.img"
    disk.write_bytes(bytes(1 << 20))
    open_mask = {"umask": 0}
    script = t.dir / "script"
    script.write_text("echo hello >/dev/tty0; sleep 0.2; echo hello\n")
    t.linux("made/rec", "--memory", "256M", "--gpu", "2d", "--checkpoint-every", "0.1",
            "--add", f"{script}:/script.sh", "--disk", disk, "--port", f"agent=out:{made}/agent", "--display", f"png-every=1,{made}/live",
            image="generic", append="quiet reprise.script=/script.sh", **open_mask)
    rec = made / "rec"
    t.equal(stat.S_IMODE(rec.stat().st_mode), 0o700, "the recording's mode")
    run = lambda *argv: t.run(t.reprise, *argv, **open_mask)  # noqa: E731
    run("replay", "--to", "console:hello", "--screenshot", made / "screen.png", rec)
    run("core", rec, "-o", made / "vmcore")
    run("symbols", rec, "-o", made / "guest.elf")
    run("disk", rec, "export", "-o", made / "disk.img")
    tiny = made / "tiny"
    t.tiny("made/tiny", "echo", code=None, **open_mask)
    run("checkpoint", "--every", "0.1", tiny)
    run("replay", "-o", made / "again", "--quiet", tiny)
    names = {p.name for p in made.rglob("*")}
    t.check({"log", "machine.dtb", "gpu.log", "files", "checkpoints", "000000", "screen.png",
             "vmcore", "guest.elf", "disk.img", "agent"} <= names, f"not made: {names}")
    t.check(any(n.startswith("time-") for n in names), "no pictures")
    wrong = wrong_modes(made)
    t.check(not wrong, f"others can read {', '.join(wrong[:6])}")
    t.check(not [n for n in names if n.endswith(".tmp")], "temporary files were left")
    return f"{len(names)} names"


@test("privacy/links")
def links(t):
    """A link that lies in wait under a temporary name is not followed, and an output's name that is
    a link to something is not written through."""
    t.tiny("rec", "echo", code=None)
    prey = t.dir / "prey"
    prey.write_text("mine")
    (t.dir / "to").mkdir()
    (t.dir / "to" / "core").symlink_to(prey)
    t.run(t.reprise, "core", t.dir / "rec", "-o", t.dir / "to" / "core", code=ERROR)
    t.run(t.reprise, "core", "--force", t.dir / "rec", "-o", t.dir / "to" / "core")
    t.equal(prey.read_text(), "mine", "the file behind the link")
    t.check(not (t.dir / "to" / "core").is_symlink(), "the link is still there")
    # The names that a recording is written under, taken by links before.
    rec = t.dir / "rec"
    for name in ("checkpoints", "checkpoints.new"):
        (rec / name).mkdir(exist_ok=True)
        (rec / name / "incomplete").symlink_to(prey)
    t.run(t.reprise, "checkpoint", "--every", "0.1", rec)
    t.equal(prey.read_text(), "mine", "the file behind the links")
