"""`reprise gdb`: what the gdb that it starts is told, and how the session ends."""
import os
import re
import shutil
import signal
import subprocess
import time

from suite.gdb import addresses, linux, need_gdb
from suite.harness import ERROR, IMAGES, Failure, test


def session(t, *commands, options=(), code=0, **more):
    """What `reprise gdb rec` and its gdb say."""
    ex = [x for c in commands for x in ("-ex", c)]
    return t.run(t.reprise, "gdb", t.dir / "rec", *options, "--", "-nx", "-batch", *ex, code=code,
                 stderr=subprocess.STDOUT, **more)


@test("gdb/session", cost=6)
def session_frames(t):
    """A command that moves nothing leaves the frame that is selected; an exception's entry is named
    where gdb stops on one; slow answers are waited for; no marks are said to be none."""
    need_gdb(t)
    linux(t)
    r = session(t, "show remotetimeout", "frame 1", "echo @", "monitor when", "monitor marks",
                "monitor goto nowhere", "monitor goto 99G", "frame", "echo @", "monitor mark here",
                "monitor marks", "frame", "echo @", "monitor goto 1M", "frame", "echo @",
                "break asm_exc_page_fault", "continue", "bt 2", options=("--to", "console:beta"))
    first, same, still, moved, stop = r.text.split("@")
    t.has(first, "Timeout limit to wait for target to respond is 600")
    one = re.search(r"^#1 .*", first, re.M).group(0)
    t.has(same, r"^there are no marks yet")
    for text in (same, still):
        t.equal(re.findall(r"^#\d .*", text, re.M), [one], "the selected frame")
    t.has(still, r"mark:here$")
    t.has(moved, r"^#0 ")
    t.has(stop, r"^in asm_exc_page_fault \(\)$")
    t.has(stop, r"^#0 .* in asm_exc_page_fault \(\)$")


@test("gdb/session-symbols", cost=5)
def session_symbols(t):
    """--symbols: the guest's own kernel's, by the build ID; another's and a program are refused."""
    need_gdb(t)
    linux(t)
    r = session(t, "info symbol $pc", options=("--symbols", "rec.elf", "--to", "console:beta"))
    t.has(r.text, r"^io_serial_out \+ \d+ in section")
    t.lacks(r.text, "cannot be checked")
    data = bytearray((t.dir / "rec.elf").read_bytes())
    at = data.index(b"GNU\0") + 4
    data[at] ^= 1
    (t.dir / "other.elf").write_bytes(data)
    (t.dir / "text").write_text("no ELF file")
    program = shutil.which("true")
    for path, why in (("other.elf", r"--symbols other.elf is another kernel's: its build ID is "
                                    r"[0-9a-f]{40}, that of the guest's \(Linux [^)]+\) [0-9a-f]{40}"),
                      (program, rf"--symbols {program}: that is no kernel but a program;.*"
                                rf"add-symbol-file {program}"),
                      ("text", "--symbols: text is no ELF file")):
        r = session(t, options=("--symbols", path), code=ERROR)
        t.has(r.text, "^reprise: " + why)
    r = session(t, "print 6*7", options=("--symbols", "other.elf", "--to", "0"))
    t.has(r.text, "cannot be checked .no kernel is to be seen at this position")
    t.has(r.text, "^\\$1 = 42")


@test("gdb/session-end", cost=4)
def session_end(t):
    """SIGTERM at the beginning and in the middle of a long search backwards ends the session, gdb included,
    whatever either waits for. (In the middle translated code runs, with the guest's stack pointer.)"""
    need_gdb(t)
    t.tiny("rec", "spin", "--max-insns", 400000000)
    loop = addresses(t, IMAGES / "tiny" / "spin.elf")["guest_main"]
    for command, seconds in (("reverse-continue", 0), ("reverse-continue", 0.7),
                             ("python import time; time.sleep(1000)", 0)):
        child = t.start([t.reprise, "gdb", t.dir / "rec", "--", "-nx", "-batch", "-ex",
                         "set remotetimeout 1000", "-ex", "set breakpoint always-inserted on", "-ex",
                         "stepi", "-ex", f"break *$pc if $rip == {loop}", "-ex", "echo begun\\n",
                         "-ex", command, "-ex", "monitor when"], stderr=subprocess.STDOUT,
                        env={"TMPDIR": t.dir})
        said = b""
        while b"begun" not in said:
            more = os.read(child.stdout.fileno(), 65536)
            t.check(more, f"it ended: {said[-300:]}")
            said += more
        time.sleep(seconds)
        child.send_signal(signal.SIGTERM)
        try:
            out, _ = child.communicate(timeout=30 * t.slow)
        except subprocess.TimeoutExpired as e:
            raise Failure(f"{command}: SIGTERM did not end it") from e
        t.lacks((said + out).decode(), "^position", "what gdb did after that")
        t.equal([x.name for x in t.dir.glob("reprise-*")], [], "what is left")
