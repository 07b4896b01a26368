"""What `make install` puts down works without the tree; manual pages, completion, packages' names."""
import os
import re
import shutil
import subprocess

from suite.harness import ERROR, IMAGES, ROOT, USAGE, test

COMPANIONS = ("reprise-net", "reprise-fs", "reprise-gpu", "reprise-display")


def commands(t):
    """Of the command table: ["record", ..., "gpu list", ...]."""
    rows = re.findall(r'^COMMAND\("([\w-]+)"', (ROOT / "vmm/cmd/commands.def").read_text(), re.M)
    gpu = re.findall(r'^    \{"(\w+)", gpu_', (ROOT / "vmm/cmd/gpu.c").read_text(), re.M)
    cpus = re.findall(r'^    \{"(\w+)", cmd_', (ROOT / "vmm/cmd/cpu.c").read_text(), re.M)
    t.check(len(rows) > 25 and len(gpu) == 7 and len(cpus) == 2, f"{rows}, {gpu}, {cpus}")
    return rows + [f"gpu {verb}" for verb in gpu] + [f"cpu {verb}" for verb in cpus]


def options(t, command):
    """Of a command, as its --usage has them."""
    text = t.run(t.reprise, *command.split(), "--usage").text
    return set(re.findall(r"\[--([a-z-]+)", text)) - {"usage", "version"}


def files(place):
    return sorted(str(p.relative_to(place)) for p in place.rglob("*"))


def installed(t):
    """`make install` into a directory of the test's; the program there."""
    if t.mode != "rel":
        t.skip("what a plain make builds is installed")
    t.run("make", "-s", "install", f"DESTDIR={t.dir}/d", "PREFIX=/usr", cwd=ROOT, timeout=600)
    return t.dir / "d" / "usr"


@test("install/tree", cost=15)
def tree(t):
    """Installed it runs from there: helpers, the demo with an image in the cache, recipes; removed, nothing is left
    but what is somebody else's."""
    prefix = installed(t)
    program = prefix / "bin" / "reprise"
    cache = t.dir / "cache"
    images = cache / "reprise" / "images"
    images.mkdir(parents=True)
    for name in ("linux", "generic"):
        os.symlink(IMAGES / name, images / name)
    env = {"XDG_CACHE_HOME": cache, "PATH": f"{program.parent}:/usr/bin:/bin"}
    t.env = env
    r = t.run("reprise", "doctor", "--json", code=None)
    for name in ("gpu.renderer", "net.user", "share", "display.viewer"):
        t.lacks(r.text, rf'"{re.escape(name)}"[^}}]*is missing')
    r = t.run("reprise", "demo", timeout=600)
    t.has(r.text, r"final registers, memory and device state are equal")
    t.has(r.text, rf"^  reprise info {re.escape(str(cache))}/reprise/demo/boot ")
    # One recipe that needs no network, made of another image that is there.
    t.has(t.run("reprise", "run", "true", code=125).error, r"'run' is not there .*`reprise image run` makes it")
    t.run("reprise", "image", "run", timeout=600)
    t.check((images / "run" / "initrd").stat().st_size > 100000, "the image was not made")
    t.has(t.run("reprise", "image", "run").error, "is there .--remake")
    t.equal(t.run("reprise", "run", "echo", "hello", timeout=600).text, "hello\n", "what a program said")
    # Nothing of the tree was touched, and nothing of it is named.
    named = t.run("grep", "-rlF", str(ROOT), prefix / "share", code=(0, 1)).text
    t.equal(named, "", "files that name the tree")
    # Half an installation.
    (prefix / "libexec/reprise/reprise-net").unlink()
    r = t.run("reprise", "record", "-o", t.dir / "rec", "--kernel", IMAGES / "tiny" / "paging.elf", "--net", "user",
              code=ERROR)
    t.has(r.error, r"reprise-net is missing.* neither .*/usr/bin/reprise-net nor .*libexec/reprise/reprise-net\. "
                   r"Install reprise anew, or build it: make")
    shutil.rmtree(prefix / "share/reprise/images")
    t.has(t.run("reprise", "image", "linux", code=ERROR).error,
          r"images/image\.sh is missing.* not in .*share/reprise/.* Install reprise anew")
    # A file of somebody else's stays, with its directory.
    other = prefix / "share/man/man1/other.1"
    other.write_text("")
    r = t.run("make", "-s", "uninstall", f"DESTDIR={t.dir}/d", "PREFIX=/usr", cwd=ROOT)
    t.equal(files(prefix), ["share", "share/man", "share/man/man1", "share/man/man1/other.1"], "what stays")
    t.has(r.error, "man1/ stays: it is not empty")
    r = t.run("make", "-s", "uninstall", f"DESTDIR={t.dir}/d", "PREFIX=/usr", cwd=ROOT, code=2)
    t.has(r.error, "nothing of reprise's is installed in")


@test("install/again", cost=3)
def again(t):
    """An older version's files go when another one is installed; a note that leads elsewhere is refused."""
    prefix = installed(t)
    before = files(prefix)
    note = prefix / "share/reprise/installed"
    (prefix / "bin/reprise-old").write_text("")
    note.write_text(note.read_text() + "bin/reprise-old\n")
    installed(t)
    t.equal(files(prefix), before, "what is there")
    note.write_text("../../precious\n")
    (t.dir / "precious").write_text("")
    r = t.run("make", "-s", "uninstall", f"DESTDIR={t.dir}/d", "PREFIX=/usr", cwd=ROOT, code=2)
    t.has(r.error, "names '../../precious', which is not below PREFIX")
    t.check((t.dir / "precious").exists(), "it was removed")
    r = t.run("make", "-s", "uninstall", "PREFIX=usr", cwd=ROOT, code=2)
    t.has(r.error, "a path that begins with /")


@test("install/images")
def images(t):
    """The table of recipes has all of them, and what each is made of; what is wrong is said."""
    script = ROOT / "images/image.sh"
    names = t.run(script, "--names").text.split()
    folders = {p.parent.name for p in (ROOT / "images").glob("*/build.sh")}
    t.equal(set(names), folders, "names")
    makefile = (ROOT / "mk/images.mk").read_text()
    for name in names:
        t.check(re.search(rf"images/{name}/|^IMAGES := .*\b{name}\b", makefile, re.M), f"mk/images.mk has no {name}")
        groups = t.run(script, "--groups", name).text.split()
        t.run(ROOT / "images/deps.sh", "--list", *groups)
    for line in t.run(script, "--sources").text.split():
        t.check((ROOT / line).exists(), f"there is no {line}")
    t.equal(len(t.run(t.reprise, "image", "--list").text.splitlines()), len(names), "lines of --list")
    t.has(t.run(t.reprise, "image", "nix", code=USAGE).error, "no image 'nix': linux ")
    t.has(t.run(t.reprise, "image", "--release", "a/b", "linux", code=USAGE).error, "'a/b' is no release's name")
    t.has(t.run(t.reprise, "image", code=USAGE).error, "which image")
    # A program that packages lack: their names, and the command.
    tools = t.dir / "tools"
    tools.mkdir()
    (tools / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    (tools / "dpkg-query").chmod(0o755)
    (tools / "rpm").symlink_to("dpkg-query")
    r = t.run(t.reprise, "image", "-o", t.dir / "i", "linux", code=ERROR, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    t.has(r.error, r"linux needs packages that are not here\. As root: (apt-get|dnf) install .*cpio")
    flat = t.dir / "flat"
    flat.write_text("")
    t.has(t.run(t.reprise, "image", "-o", flat / "i", "linux", code=ERROR).error, "cannot be made")


@test("install/names")
def names(t):
    """Each package has names on all systems that images/deps.sh knows; none stands there that nobody asks for."""
    script = ROOT / "images/deps.sh"
    groups = re.search(r'^groups="(.*)"', script.read_text(), re.M).group(1).split() + ["package"]
    lists = {}
    for system in ("debian", "ubuntu", "fedora"):
        lists[system] = set(t.run(script, "--on", system, "--list", *groups).text.split())
        t.check(len(lists[system]) > 50, f"{system}: {lists[system]}")
    rows = [line.split() for line in (ROOT / "images/packages").read_text().splitlines() if line[0] != "#"]
    t.equal({r[0] for r in rows}, lists["debian"], "the table's packages")
    t.check(all(len(r) == 3 for r in rows), "rows of three columns")
    t.check({"zydis-devel", "glibc-static", "dtc"} <= lists["fedora"], f"{lists['fedora']}")
    t.lacks(" ".join(lists["fedora"]), r"-dev\b")
    t.has(t.run(script, "--on", "fedora", "--command", "x").text, "^dnf install x$")
    t.has(t.run(script, "--on", "beos", "--list", code=2).error, "no names for 'beos'")


@test("install/manpages", cost=3)
def manpages(t):
    """A page for each command, with all of its options, that man and mandoc have nothing to say against."""
    place = t.dir / "man"
    place.mkdir()
    t.run(t.reprise, "manpage", "-o", place)
    every = commands(t)
    t.equal({p.stem for p in place.glob("*.1")}, {"reprise"} | {"reprise-" + c.replace(" ", "-") for c in every},
            "the pages")
    for command in every:
        page = (place / f"reprise-{command.replace(' ', '-')}.1").read_text()
        t.equal(t.run(t.reprise, "manpage", *command.split()).text, page, f"the page of {command}")
        if command not in ("gpu", "cpu"):
            named = re.findall(r"^\.TP\n(?:\\fB\\-.\\fR, )?\\fB\\-\\-(.*?)\\fR", page, re.M)
            there = {x.replace("\\-", "-") for x in named}
            t.equal(there, options(t, command), f"options of {command}")
    t.has(t.run(t.reprise, "manpage", "nix", code=USAGE).error, "no command 'nix'")
    t.has(t.run(t.reprise, "manpage", "gpu", "nix", code=USAGE).error, "no command 'gpu nix'")
    t.has(t.run(t.reprise, "manpage", "-o", t.dir / "none", code=ERROR).error, "cannot write .*none/reprise.1")
    looked = 0
    if shutil.which("mandoc"):
        t.equal(t.run("mandoc", "-Tlint", "-Wwarning", *place.glob("*.1")).text, "", "what mandoc says")
        looked += 1
    if shutil.which("groff"):
        warn = [f"-w{w}" for w in ("mac", "syntax", "escape", "missing", "reg", "font")]
        for page in place.glob("*.1"):
            t.equal(t.run("groff", *warn, "-man", "-Tutf8", "-z", page).error, "",
                    f"what groff says of {page.name}")
        looked += 1
    return f"{len(every) + 1} pages" + ("" if looked else "; neither mandoc nor groff is installed to look at them")


# (what is typed, what a shell makes of it, what fish offers); None: as it was.
LINES = [
    ("reprise simp", "reprise simplify", "simplify"),
    ("reprise gpu li", "reprise gpu list", "list"),
    ("reprise help unp", "reprise help unpack", "unpack"),
    ("reprise record --kerne", "reprise record --kernel", "--kernel"),
    ("reprise record --cpu zen", "reprise record --cpu zen2", "zen2"),
    ("reprise record --cpu=zen", "reprise record --cpu=zen2", "--cpu=zen2"),
    ("reprise record --gpu 2", "reprise record --gpu 2d", "2d"),
    ("reprise record --display sd", "reprise record --display sdl", "sdl"),
    ("reprise record --boot-protocol=pv", "reprise record --boot-protocol=pvh", "--boot-protocol=pvh"),
    ("reprise gpu replay --driver sof", "reprise gpu replay --driver softpipe", "softpipe"),
    ("reprise replay --to cons", "reprise replay --to console:", "console:"),
    ("reprise replay r", "reprise replay rec", "rec/"),
    ("reprise replay --to end p", "reprise replay --to end packed.reprise", "packed.reprise"),
    ("reprise replay no", None, None),
    ("reprise record --initrd nor", "reprise record --initrd normal", "normal"),
    ("reprise completion z", "reprise completion zsh", "zsh"),
    ("reprise image gpu-d", "reprise image gpu-desktop", "gpu-desktop"),
    ("reprise rm job", "reprise rm job-0", "job-0"),
]


def completed(t, shell):
    """What the shell makes of LINES, in a directory with a recording, a packed one, and neither."""
    if not shutil.which(shell):
        t.skip(f"{shell} is not installed")
    script = t.dir / "completion"
    script.write_text(t.run(t.reprise, "completion", shell).text)
    (t.dir / "rec").mkdir()
    (t.dir / "rec/machine.dtb").write_text("")
    (t.dir / "packed.reprise").write_text("")
    (t.dir / "normal").write_text("")
    (t.dir / "data/reprise/job-0").mkdir(parents=True)
    t.env = {"PATH": f"{t.build}:{os.environ['PATH']}", "HOME": t.dir}
    # What a command has not, it is not offered.
    lines = LINES + [("reprise info --kerne", None, None), ("reprise xylophone --", None, None)]
    out = t.run(ROOT / "tests/tools/complete.py", shell, script, *(line for line, _, _ in lines)).text
    out = out.split("==\n")[:-1]
    for (line, made, offered), answer in zip(lines, out, strict=True):
        if shell == "fish":
            t.equal([x.split("\t")[0] for x in answer.splitlines()], [offered] if offered else [], line)
        else:
            t.equal(answer.strip().rstrip("/"), made or line, line)
    return script.read_text()


@test("install/bash", cost=8)
def bash(t):
    """Completion in bash, and all options of all commands in its script."""
    script = completed(t, "bash")
    for command in commands(t):
        function = re.search(rf"^_reprise__{re.sub('[ -]', '_', command)}\(\) \{{\n(.*)$", script, re.M)
        t.check(function, f"no function of {command}")
        if command not in ("gpu", "cpu"):
            t.equal(set(re.findall(r" --([a-z-]+)", function.group(1))), options(t, command), command)
    t.has(t.run(t.reprise, "completion", "tcsh", code=USAGE).error, "none for 'tcsh': bash, zsh, fish")


@test("install/zsh", cost=8)
def zsh(t):
    """Completion in zsh."""
    completed(t, "zsh")


@test("install/fish", cost=8)
def fish(t):
    """Completion in fish."""
    completed(t, "fish")
