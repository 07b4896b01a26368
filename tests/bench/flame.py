#!/usr/bin/env python3
"""A flame graph of what perf recorded of reprise, as one SVG file without scripts or links.

    perf record -F 999 -e cpu-clock --call-graph dwarf,4096 -o perf.data build/rel/reprise replay --perf-map --quiet DIR
    tests/bench/flame.py perf.data >flame.svg

Needs nothing but perf. Translated code has no stack that perf could walk (the stack is the guest's), so its
samples have one function, the guest's; `--call-graph` is for everything else, and may be left out. docs/performance.md
says more."""
import argparse
import collections
import html
import re
import subprocess
import sys

ROW, MARGIN, LETTER = 18, 10, 6.7  # pixels: of a row, around all, of a letter
SMALLEST = 0.4                     # what is narrower is left out
TRANSLATED = r"\[JIT\]|perf-\d+\.map|jitted-\d+-\d+\.so"
GUEST_KERNEL, GUEST_USER = "guest: kernel", "guest: programs"
STUBS, OURS, LIBRARIES, HOST = "translated: ways in and out", "reprise", "libraries", "host's kernel"
COLOURS = {GUEST_KERNEL: "#f4a259", GUEST_USER: "#f2d16b", STUBS: "#e58c8a", OURS: "#8cb4e8", LIBRARIES: "#b7a6e0",
           HOST: "#b8c4bb"}
# What C code does, by the innermost of these functions on its stack.
JOBS = {"make_block": "translation", "translate_snippet": "translation", "mmu_fill": "page walks", "mmu_walk": "page walks",
        "core_step": "instructions one at a time", "lookup": "finding blocks", "dbt_run_insns": "run loop",
        "machine_run": "machine, log, devices", "recorder_finish": "digests at the end",
        "player_finish": "digests at the end", "build_machine": "starting", "session_start": "starting",
        "guest_load": "starting", "perf_finish": "naming code", "machine_destroy": "ending", "_start": "starting"}
LIST = 20  # functions of each kind that are listed


def samples(data, *options):
    """Each sample's frames from the innermost outwards, as (function, file)."""
    out = subprocess.run(["perf", "script", "-i", data, "--no-inline", "-F", "pid,ip,sym,dso", *options],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, text=True).stdout
    found = []
    for line in out.splitlines():
        # The process begins a sample; its frames are in lines of their own after a tab, or follow in the same.
        if line and not line.startswith("\t"):
            found.append([])
        frame = re.match(r"(?:\t| *-?\d+ ) *[0-9a-f]+ (.+) \((.*)\)$", line)
        if frame:
            found[-1].append((re.sub(r"\+0x[0-9a-f]+$", "", frame.group(1)), frame.group(2)))
    return found


def kind(function, file):
    if re.search(TRANSLATED, file):
        return (STUBS if function.startswith("reprise:") else GUEST_USER if function.startswith("user:")
                else GUEST_KERNEL)
    return HOST if file.startswith("[") else OURS if re.search(r"/reprise$", file) else LIBRARIES


def stack(chain, leaf):
    """From the root outwards: (text, kind)."""
    if not chain:
        chain = leaf
    known = []
    for function, file in chain:
        if known and re.search(TRANSLATED, file):
            break  # what is below is the guest's stack
        if function != "[unknown]":
            known.append((function, kind(function, file)))
        elif not known:
            known.append(("in " + file.split("/")[-1], kind(function, file)))
    inner = known[0][1]
    if inner in (GUEST_KERNEL, GUEST_USER, STUBS):
        name = known[0][0].removeprefix("reprise:")
        # Programs have no symbols: by page.
        return [("translated code", inner), (inner, inner), (re.sub(r"^(user:0x\w+)\w{3}$", r"\1000", name), inner)]
    at = next((i for i, (f, _) in enumerate(known) if f in JOBS), len(known))
    job = JOBS[known[at][0]] if at < len(known) else "everything else"
    return [("reprise", OURS), (job, OURS)] + known[:at + 1][::-1]


class Node:
    def __init__(self, kind):
        self.kind, self.count, self.children = kind, 0, {}

    def add(self, frames):
        self.count += 1
        if frames:
            child = self.children.setdefault(frames[0][0], Node(frames[0][1]))
            child.add(frames[1:])


def depth(node, scale):
    return 1 + max((depth(c, scale) for c in node.children.values() if c.count * scale >= SMALLEST), default=0)


def draw(node, name, x, level, scale, total, out):
    width, y = node.count * scale, MARGIN + 30 + level * ROW
    share = f"{100 * node.count / total:.1f}%"
    label = f"{name}  {share}" if len(name) + 7 < width / LETTER else name
    room = int((width - 6) / LETTER)
    text = label if len(label) <= room else label[:room - 2] + ".." if room >= 5 else ""
    out.append(f'<g><title>{html.escape(name)}: {node.count} samples, {share}</title>'
               f'<rect x="{x:.1f}" y="{y}" width="{max(width - 0.4, 0.2):.1f}" height="{ROW - 1}" rx="2" '
               f'fill="{COLOURS.get(node.kind, "#dddddd")}"/>'
               + (f'<text x="{x + 3:.1f}" y="{y + 13}">{html.escape(text)}</text>' if text else "") + "</g>")
    for child, c in sorted(node.children.items(), key=lambda e: -e[1].count):
        if c.count * scale >= SMALLEST:
            draw(c, child, x, level + 1, scale, total, out)
        x += c.count * scale


def lists(stacks, width, y, out):
    """The functions in which most samples are, by kind."""
    kinds = (GUEST_KERNEL, OURS, LIBRARIES, HOST)
    for i, kind in enumerate(kinds):
        x = MARGIN + i * (width - 2 * MARGIN) / len(kinds)
        out.append(f'<text x="{x}" y="{y}" font-weight="bold">{html.escape(kind)}</text>')
        most = collections.Counter(s[-1][0] for s in stacks if s[-1][1] == kind).most_common(LIST)
        for k, (name, n) in enumerate(most):
            out.append(f'<text x="{x}" y="{y + ROW * (k + 1)}" xml:space="preserve">'
                       f'{100 * n / len(stacks):5.1f}%  {html.escape(name[:40])}</text>')


def svg(root, stacks, title, width):
    scale = (width - 2 * MARGIN) / root.count
    graph = MARGIN + 70 + depth(root, scale) * ROW
    height = graph + MARGIN + (LIST + 1) * ROW
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" font-family="DejaVu Sans Mono, monospace" font-size="11">',
           '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{MARGIN}" y="{MARGIN + 14}" font-size="15">{html.escape(title)}</text>']
    draw(root, "all", MARGIN, 0, scale, root.count, out)
    x = MARGIN
    for name, colour in COLOURS.items():
        out.append(f'<rect x="{x}" y="{graph - 34}" width="12" height="12" rx="2" fill="{colour}"/>'
                   f'<text x="{x + 17}" y="{graph - 24}">{html.escape(name)}</text>')
        x += 40 + LETTER * len(name)
    lists(stacks, width, graph + 6, out)
    return "\n".join(out + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="perf's file")
    parser.add_argument("--width", type=int, default=1600)
    parser.add_argument("--title", default="reprise")
    parser.add_argument("--fold", action="store_true", help="print lines `outer;inner COUNT` instead")
    args = parser.parse_args()
    leaves, chains = samples(args.data, "-G"), samples(args.data)
    if len(chains) != len(leaves):  # without --call-graph
        chains = leaves
    stacks = [stack(c, leaf) for c, leaf in zip(chains, leaves) if c or leaf]
    if not stacks:
        sys.exit("flame.py: no samples")
    if args.fold:
        for line, n in sorted(collections.Counter(";".join(n for n, _ in s) for s in stacks).items()):
            print(line, n)
        return
    root = Node("")
    for s in stacks:
        root.add(s)
    sys.stdout.write(svg(root, stacks, f"{args.title}: {len(stacks)} samples", args.width))


if __name__ == "__main__":
    main()
