"""The commands in README.md, run as they stand there."""
import os
import re

from suite.harness import ROOT, Session, test


def interactive(t, line):
    s = Session(t, "", argv=["bash", "-c", line], terminal=True)
    s.prompt()
    s.send("\x01x")
    s.finish(0)


def has_virgl(t):
    return t.run(t.build / "reprise-gpu", "--check", code=None).code == 0


@test("docs/readme", cost=40)
def readme(t):
    """Lines of ```sh blocks that start with build/reprise, truncate, until or echo, in order, in a scratch directory that
    looks like the repository. `make` targets must exist. # and the rest of a line is a comment. What needs an
    image that could not be made, or a renderer, is left out and named."""
    if not (ROOT / "README.md").exists():
        t.skip("there is no README.md yet")
    for entry in os.listdir(ROOT):
        os.symlink(ROOT / entry, t.dir / entry)
    blocks = re.findall(r"^```sh\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    count, absent, background = 0, [], []
    for line in "".join(blocks).replace("\\\n", " ").splitlines():
        line = re.sub(r"\s+#.*$", "", line).strip()
        if re.match(r"(echo '[^']*' \| )?build/reprise |truncate |until |echo '[^']*' >", line):
            count += 1
            name = re.search(r"record .*-o (\S+)", line)
            needs = re.findall(r"build/images/[^\s,]+", line)
            if name and (not all((ROOT / n).exists() for n in needs) or
                         ("virgl" in line and not has_virgl(t))):
                absent.append(name.group(1))
            if any(re.search(rf"\b{n}\b", line) for n in absent):
                continue
            if line.endswith("&"):
                background.append(t.start(["bash", "-c", "exec " + line[:-1]], stdout=t.log, stderr=t.log))
            elif name and "</dev/null" not in line and "|" not in line:
                interactive(t, line)
            else:
                t.run("bash", "-c", line, code=(0, 1, 3) if " diff " in line else 0,
                      timeout=300)
            while line.endswith("wait") and background:
                t.equal(background.pop().wait(300), 0, "how what ran in the background ended")
        for target in re.findall(r"^make ([a-z-]+)", line):
            t.run("make", "-n", "-C", ROOT, target, "T=log")
            count += 1
    t.check(count, "README.md has no commands in ```sh blocks")
    return f"{count} commands" + (f", without {', '.join(absent)}" if absent else "")


@test("docs/walks")
def walks(t):
    """The functions that docs/walks.md names are in the files that it names."""
    text = (ROOT / "docs" / "walks.md").read_text()
    sources = {str(p.relative_to(ROOT)): p.read_text() for top in ("vmm", "replay", "virtio-gpu-log")
               for p in (ROOT / top).rglob("*.[ch]")}
    pairs = re.findall(r"`(\w+)`[^`()]*\(([\w/-]+\.c)\b", text)
    t.check(len(pairs) > 30, f"{len(pairs)} functions with files")
    missing = [f"{name} in {path}" for name, path in pairs
               if not re.search(rf"^[\w* ]*\b{name}\(", sources.get("vmm/" + path, sources.get(path, "")), re.M)]
    names = {n for n in re.findall(r"`(\w+)`", text) if "_" in n}
    everything = "\n".join(sources.values())
    missing += [n for n in sorted(names) if not re.search(rf"\b{n}\(", everything)]
    t.equal(missing, [], "what is not there")
