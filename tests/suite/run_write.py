"""`reprise run --write`: what comes back of what a program wrote."""
import os
import shutil
import stat
import subprocess

from suite.harness import test
from suite.room import Small
from suite.run_program import OURS, last, own, replayed, run


def listing(place):
    """Of all that is in a directory: kind and permissions, time, contents."""
    out = {}
    for root, directories, files in os.walk(place):
        for name in directories + files:
            path = os.path.join(root, name)
            st = os.lstat(path)
            what = os.readlink(path) if stat.S_ISLNK(st.st_mode) else \
                open(path, "rb").read(100) if stat.S_ISREG(st.st_mode) else None
            out[os.path.relpath(path, place)] = (stat.filemode(st.st_mode), st.st_mtime_ns, what)
    return out


def tree(t, name="d"):
    """A directory with a little of everything."""
    d = t.dir / "here" / name
    for sub in ("sub/deep", "gone/deep", "old", "closed"):
        (d / sub).mkdir(parents=True)
    for path in ("a", "b", "gone/c", "gone/deep/d", "old/o", "sub/s", "sub/deep/same", "closed/x"):
        (d / path).write_text(f"{path} of the host\n")
        os.utime(d / path, (1_000_000_000, 1_000_000_000))
    os.link(d / "a", d / "a2")
    (d / "l").symlink_to("a")
    (t.dir / "here/outside").write_text("outside\n")
    (d / "out").symlink_to("../outside")
    (d / "closed").chmod(0o555)
    return d


CHANGES = """set -e; cd d; umask 022; echo new >n; echo changed >>a; echo too >>a2; rm b; rm -r gone; rm -r old; mkdir old
echo fresh >old/f; touch -d @1100000000 sub/s; chmod 640 sub/s; ln -sf /etc/passwd l; mkdir -p x/y/z; echo z >x/y/z/z
truncate -s 10G x/sparse; printf end >>x/sparse; chmod 4755 n; chmod 700 sub; rm out; mkdir out; echo in >out/in; mkfifo fifo
chmod u+w closed; rm closed/x; echo y >closed/y; chmod 555 closed; touch -d @1200000000 x/y; ln n n2; echo not >../beside
touch -d @1300000000 .; (sleep 1000; echo late >late) & exit 3"""


@test("run/write", cost=6)
def write(t):
    """New files, changed ones, deletions, modes, times, links, directories; nothing else, and nothing at a replay."""
    own(t)
    d = tree(t)
    r = run(t, "sh", "-c", CHANGES, options=("--write", "d", "--write", "./d", "-v"), code=3)
    t.has(r.error, "/d/fifo: is no file, directory or link, and is not written$")
    t.has(r.error, "/d/n: is written without its set-user-ID or set-group-ID bit$")
    is_ = listing(d)
    t.equal(sorted(is_), ["a", "a2", "closed", "closed/y", "l", "n", "n2", "old", "old/f", "out", "out/in", "sub", "sub/deep",
                          "sub/deep/same", "sub/s", "x", "x/sparse", "x/y", "x/y/z", "x/y/z/z"], "what is there")
    for name, mode, text in (("a", "-rw-r--r--", b"a of the host\nchanged\n"), ("a2", "-rw-r--r--", b"a of the host\ntoo\n"),
                             ("n", "-rwxr-xr-x", b"new\n"), ("n2", "-rwxr-xr-x", b"new\n"), ("l", "lrwxrwxrwx", "/etc/passwd"),
                             ("sub", "drwx------", None), ("sub/s", "-rw-r-----", b"sub/s of the host\n"), ("out", "drwxr-xr-x", None),
                             ("out/in", "-rw-r--r--", b"in\n"), ("closed", "dr-xr-xr-x", None)):
        t.equal(is_[name][::2], (mode, text), name)
    for name, time in (("sub/s", 11), ("sub/deep/same", 10), ("x/y", 12)):
        t.equal(is_[name][1], time * 10 ** 17, f"when {name} was changed")
    t.equal(d.stat().st_mtime_ns, 13 * 10 ** 17, "when the directory itself was changed")
    t.equal((d / "x/sparse").stat().st_size, (10 << 30) + 3, "a file with a hole")
    t.check((d / "x/sparse").stat().st_blocks < 1000, "the hole is written")
    t.equal(((t.dir / "here/outside").read_text(), (t.dir / "here/beside").exists()), ("outside\n", False), "what is outside")
    (d / "a").write_text("later\n")
    before = listing(t.dir / "here")
    replayed(t, r)
    t.equal(listing(t.dir / "here"), before, "the host's files after a replay")
    # The directory itself, and one of two that lie in each other.
    (d / "closed").chmod(0o755)
    run(t, "sh", "-c", "echo 1 >d/1; echo 2 >d/sub/2; echo 3 >d/x/3", options=("--write", "d/sub", "--write", "d/x"))
    t.equal([(d / n).exists() for n in ("1", "sub/2", "x/3")], [False, True, True], "what of two directories is there")
    run(t, "sh", "-c", "rm -r d", options=("--write", "d"))
    t.equal(list(d.iterdir()), [], "what is left of a directory that was removed")


@test("run/write-trouble", cost=8)
def trouble(t):
    """What changed here meanwhile stays; a directory that is none, a file system that has no room or is another one."""
    own(t)
    d = tree(t)
    wait = "echo ready; read x; "
    script = wait + "cd d; echo guest >a; rm b; rm -r gone; echo guest >made; echo guest >sub/s; exit 5"
    child = t.start([t.reprise, "run", "--write", "d", "--", "sh", "-c", script], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=t.dir / "here")
    t.equal(child.stdout.readline(), b"ready\n", "its first line")
    for name in ("a", "b", "gone/deep/d", "made"):
        (d / name).write_text("host\n")
    out, err = child.communicate(b"go\n", timeout=60 * t.slow)
    err = err.decode()
    t.equal(child.returncode, OURS, f"the exit code ({err})")
    for name in ("a", "made"):
        t.has(err, f"/d/{name}: was changed here meanwhile, and stays as it is$")
    for name in ("b", "gone/deep/d"):
        t.has(err, f"/d/{name}: was changed here meanwhile, and is not removed$")
    t.has(err, "not all of what the program wrote is there: 4 of [0-9]+ entries are not$")
    t.has(err, "the program itself ended with 5$")
    t.equal([(d / n).read_text() for n in ("a", "b", "gone/deep/d", "made", "sub/s")], ["host\n"] * 4 + ["guest\n"], "contents")
    t.equal((d / "gone/c").exists(), False, "what else was in a directory that was removed")
    for options, why in ((("d/none",), "d/none: No such file"), (("d/a",), "Not a directory"), (("/proc/self",), "has its own /dev")):
        t.has(run(t, "true", options=("--write", *options), code=OURS).error, f"^reprise: --write: .*{why}")
    r = run(t, "sh", "-c", "rm -r d/sub; ln -s /etc d/sub; echo x >d/y", options=("--write", "d/sub"), code=OURS)
    t.has(r.error, "d/sub: is no directory any more in the program's machine; nothing of it is written")
    t.check((d / "sub/s").exists(), "it was removed")
    r = run(t, "sh", "-c", "echo x >d/x; kill -KILL $$", options=("--write", "d"), code=137)
    t.equal((d / "x").read_text(), "x\n", "what a program that was killed wrote")


@test("run/write-room", cost=6)
def room(t):
    """On a file system that is too small nothing is written, in words; one beneath a directory is left alone."""
    own(t)
    (t.dir / "here").mkdir()
    with Small(t, 8) as small:
        (small.path / "old").write_text("old\n")
        r = run(t, "sh", "-c", f"cd {small.path}; head -c 30000000 /dev/zero >big; rm old", options=("--write", small.path), code=OURS)
        t.has(r.error, r"small: no room for 30\.0 MB, as the last .* of the file system stay free: nothing is written$")
        t.equal(listing(small.path).keys(), {"old"}, "what is there")
        r = run(t, "sh", "-c", f"cd {t.dir}; echo x >small/x; rm small/old; echo y >y", options=("--write", t.dir), code=OURS)
        t.has(r.error, "small: cannot be opened: another file system is there, which has to be named itself$")
        t.equal((listing(small.path).keys(), (t.dir / "y").read_text()), ({"old"}, "y\n"), "what is there")
