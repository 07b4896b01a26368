"""--perf-map and --jitdump: names of translated code for perf, by the guest's symbols."""
import os
import pathlib
import re
import shutil
import stat
import struct
import xml.etree.ElementTree

from suite.boot import image
from suite.harness import ERROR, FINE, IMAGES, ROOT, USAGE, test


def read_map(t, text):
    """The map that a run says it wrote: (address, size, name), ascending; the file goes."""
    t.has(text, r"/tmp/perf-\d+\.map names \d+ pieces of code")
    path = pathlib.Path(re.search(r"/tmp/perf-\d+\.map", text).group(0))
    try:
        mode = path.lstat()
        t.check(stat.S_ISREG(mode.st_mode) and stat.S_IMODE(mode.st_mode) == 0o600, "a private file")
        lines = path.read_text().splitlines()
    finally:
        path.unlink()
    found = [re.fullmatch(r"([0-9a-f]+) ([0-9a-f]+) (\S.*)", line) for line in lines]
    t.check(all(found), "lines as perf reads them")
    pieces = sorted((int(f.group(1), 16), int(f.group(2), 16), f.group(3)) for f in found)
    for (a, size, name), (b, _, other) in zip(pieces, pieces[1:]):
        t.check(size and a + size <= b, f"{name} at {a:x} and {other} at {b:x}")
    return pieces


def read_jitdump(t, where):
    """Records of a jitdump: (name, address, code, time)."""
    files = list(where.glob("jit-*.dump"))
    t.equal(len(files), 1, "the number of files")
    t.equal(stat.S_IMODE(files[0].stat().st_mode), 0o600, "its mode")
    data = files[0].read_bytes()
    magic, version, size, machine, _, pid, _, flags = struct.unpack_from("<6I2Q", data)
    t.equal((magic, version, size, machine, flags), (0x4a695444, 1, 40, 62, 0), "the header")
    t.equal(files[0].name, f"jit-{pid}.dump", "the name that perf looks for")
    at, records, last = size, [], -1
    while at < len(data):
        kind, size, time = struct.unpack_from("<2IQ", data, at)
        last = kind
        if kind == 0:
            who, thread, vma, address, length, index = struct.unpack_from("<2I4Q", data, at + 16)
            name, _, rest = data[at + 56:at + size].partition(b"\0")
            t.equal((who, thread, vma, index, len(rest)), (pid, pid, address, len(records), length), "a record")
            records.append((name.decode(), address, rest, time))
        at += size
    t.equal((at, last), (len(data), 3), "the end")
    return records


@test("perf/map", cost=3)
def tiny(t):
    """Pieces of code apart from each other, named by address where there are no symbols."""
    r = t.tiny("rec", "syscalls", "--perf-map")
    names = [name for _, _, name in read_map(t, r.error)]
    t.has(r.error, "by addresses: ")
    for name in ("reprise:enter", "reprise:leave", "reprise:slow load or store"):
        t.equal(names.count(name), 1, name)
    for pattern in (r"kernel:0x[0-9a-f]+", r"user:0x[0-9a-f]+", r"reprise:one \w+"):
        t.check(any(re.fullmatch(pattern, n) for n in names), pattern)
    t.same("rec", r)
    again = t.replay("rec", "--perf-map")
    t.check({n for n in names if n.startswith("user:")} <= {n for _, _, n in read_map(t, again.error)},
            "the names of a replay")
    t.run(t.reprise, "replay", "--perf-map", "--to", "end", t.dir / "rec", code=USAGE)
    r = t.run(t.reprise, "replay", "--perf-map", "--engine", "kvm", t.dir / "rec", code=ERROR)
    t.has(r.error, "the engine kvm translates none of the guest's: add --engine=dbt")
    r = t.run(t.reprise, "replay", "--jitdump", t.dir / "none", t.dir / "rec", code=ERROR)
    t.has(r.error, "--jitdump .*/none: No such file")


@test("perf/private")
def private(t):
    """What somebody put in the map's place is not written to."""
    t.tiny("rec", "echo", "--max-insns", "1000")
    aim = t.dir / "aim"
    aim.write_text("precious")
    r = t.run("sh", "-c", f"ln -s {aim} /tmp/perf-$$.map; umask 0; exec {t.reprise} replay --perf-map {t.dir}/rec")
    read_map(t, r.error)
    t.equal(aim.read_text(), "precious", "what the link led to")
    # Of a run that does not begin nothing stays.
    (t.dir / "dump").mkdir()
    r = t.run("sh", "-c", f"echo $$; exec {t.reprise} record -o {t.dir}/rec --kernel {IMAGES}/tiny/echo.elf --perf-map "
              f"--engine dbt --jitdump {t.dir}/dump", code=ERROR)
    t.check(not os.path.lexists(f"/tmp/perf-{r.text.strip()}.map"), "the map of no run")
    t.equal(os.listdir(t.dir / "dump"), [], "the jitdump of no run")


@test("perf/linux", cost=8)
def linux(t):
    """A boot by the kernel's own symbols; in the jitdump also what was dropped from the code cache."""
    image(t)
    r = t.linux("rec", "--perf-map", append="quiet -- echo hello")
    pieces = read_map(t, r.error)
    names = {name.partition("+")[0] for _, _, name in pieces}
    # Linux 6.10 gave the allocators' functions another name.
    for name in ("start_kernel", "entry_SYSCALL_64", "vfs_read", "kmem_cache_alloc(_noprof)?"):
        t.check(any(re.fullmatch(name, n) for n in names), f"no {name} among {len(names)} functions")
    t.check(any(re.fullmatch(r"user:0x[0-9a-f]+", n) for n in names), "no program's code")
    t.check(any(re.fullmatch(r"\w+\+0x[0-9a-f]+", n) for _, _, n in pieces), "no offsets")
    info = t.info("rec")
    made = {}
    for size in ("", "16M"):
        where = t.dir / ("dump" + size)
        where.mkdir()
        again = t.replay("rec", "--stats", "--perf-map", "--jitdump", where,
                         *(["--code-cache", size] if size else []))
        t.equal(again.out, r.out, "the console of the replay")
        emptied = int(re.search(r"regions of the code cache emptied for new code +(\d+)", again.error).group(1))
        t.equal(bool(emptied), bool(size), "regions that were emptied")
        t.equal("code was dropped from the code cache" in again.error, bool(size), "what is said of it")
        last = read_map(t, again.error)
        made[size] = read_jitdump(t, where)
        where.joinpath(next(where.iterdir()).name).unlink()
        t.check((len(last) < 0.9 * len(pieces)) == bool(size), "what the map has at the end")
    plain, early = made[""], made["16M"]
    t.check(not any("+0x" in n for n, _, _, _ in plain), "functions, in the jitdump")
    kernel = {n for n, _, _, _ in plain if ":" not in n}
    t.check({"start_kernel", "vfs_read"} <= kernel <= names, "functions of the map")
    ends = sorted((a, a + len(c)) for _, a, c, _ in plain)
    t.check(all(b <= c for (_, b), (c, _) in zip(ends, ends[1:])), "records apart from each other")
    t.check(len(early) > len(plain), "records of what was dropped")
    t.check({"start_kernel", "vfs_read"} <= {n for n, _, _, _ in early}, "names of what was dropped")
    return f"{len(pieces)} pieces, {len(names)} names, {info['position'] / 1e9:.2f} G instructions"


@test("perf/tool", cost=10)
def tool(t):
    """perf itself reads both; flame.py draws it."""
    if not shutil.which("perf"):
        t.skip("perf is not installed (linux-perf)")
    image(t)
    t.linux("rec", append="quiet -- echo hello")
    record = ("perf", "record", "-q", "-F", "999", "-e", "cpu-clock:u")
    run = ("replay", "--quiet", t.dir / "rec")
    r = t.run(*record, "--call-graph", "dwarf,4096", "-o", "map.data", t.reprise, *run, "--perf-map", code=None)
    if r.code != FINE and "replayed" not in r.error:
        t.skip("perf may not record here: " + (r.error.strip().splitlines() or ["?"])[0])
    path = re.search(r"/tmp/perf-\d+\.map", r.error).group(0)
    try:
        flame = t.run("python3", ROOT / "tests/bench/flame.py", "map.data").text
        folded = t.run("python3", ROOT / "tests/bench/flame.py", "--fold", "map.data").text
    finally:
        os.unlink(path)
    texts = [e.text for e in xml.etree.ElementTree.fromstring(flame).iter() if e.tag.endswith("text")]
    t.check(any(x.startswith("guest: kernel") for x in texts), "the guest's kernel in the picture")
    t.has(folded, r"^translated code;guest: kernel;[a-z_0-9.]+ \d+$")
    t.has(folded, r"^reprise;translation;make_block.* \d+$")
    (t.dir / "jit").mkdir()
    t.run(*record, "-k", "mono", "-o", "jit.data", t.reprise, *run, "--jitdump", "jit")
    t.run("perf", "inject", "--jit", "-i", "jit.data", "-o", "named.data", timeout=300)
    text = t.run("perf", "script", "-i", "named.data", "-F", "ip,sym,dso").text
    samples = re.findall(r" ([\w.]+) \(\S*/jitted-\d+-\d+\.so\)$", text, re.M)
    shutil.rmtree(t.dir / "jit")
    t.check(len(samples) > 50, f"{len(samples)} samples in code that perf has names of")
    return f"{len(samples)} samples named"
