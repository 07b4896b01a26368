#!/usr/bin/env python3
"""What becomes of many domains: runs reprise-libvirt over directories of XML and counts, for docs/libvirt.md.

    tests/tools/libvirt_examples.py [--unknown] reprise-libvirt DIR...

DIR: libvirt's own examples are in its source (`apt-get source libvirt`), in tests/*. Files that are no domains are
left out. A crash, a table that is cut off, and an answer that takes more than 10 seconds end it with status 1."""
import collections
import pathlib
import re
import subprocess
import sys


def rows(program, path):
    r = subprocess.run([program, "file", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=10)
    lines = r.stdout.decode(errors="replace").splitlines()
    if r.returncode not in (0, 1) or r.stderr or not lines or lines[-1] != "end":
        sys.exit(f"{path}: status {r.returncode}: {r.stderr.decode(errors='replace')}")
    return [line.split("\t") for line in lines]


def kind_of_error(text):
    for pattern, is_ in ((r"architecture '(.*)'", "another architecture"), (r"domain of type", "another hypervisor, or a container"),
                         (r"it runs '", "no whole machine (containers, paravirtualized guests)"),
                         (r"document type", "a document type"), (r"no number|has no type|does not say", "fields that are missing"),
                         (r"no XML", "no XML")):
        if re.search(pattern, text):
            return is_
    return text


# What boots is another question: most examples have no disk, as they are about something else.
BOOTS = ("no firmware runs", "there is no kernel")


def reason(row):
    what = re.sub(r"^<([\w:]+).*?( of <(\w+).*)?$", lambda m: f"`<{m[1]}>`" + (f" of `<{m[3]}>`" if m[3] else ""), row[1])
    why = re.sub(r"'[^']*'", "'...'", row[2])
    why = re.sub(r"/dev/vd.", "/dev/vd...", why)
    return what, why


def main():
    arguments = [a for a in sys.argv[1:] if a != "--unknown"]
    program, *directories = arguments
    verdict, refused, left, otherwise, unknown = (collections.Counter() for _ in range(5))
    for directory in directories:
        for path in sorted(pathlib.Path(directory).rglob("*.xml")):
            table = rows(program, path)
            error = [r for r in table if r[0] == "error"]
            if error and re.search(r"it is a <", error[0][1]):
                continue
            verdict["all"] += 1
            if error:
                verdict["refused"] += 1
                refused[kind_of_error(error[0][1])] += 1
                continue
            notes = {(r[0], *reason(r)) for r in table if r[0] in ("left", "otherwise")}
            for row in table:
                if row[0] == "left" and "does not know it" in row[2]:
                    unknown[row[1]] += 1
            for kind, what, why in notes:
                (left if kind == "left" else otherwise)[(what, why)] += 1
            rest = {n for n in notes if not n[2].startswith(BOOTS)}
            verdict["part" if any(n[0] == "left" for n in rest) else "otherwise" if rest else
                    "boots" if notes else "whole"] += 1
    if "--unknown" in sys.argv:
        for what, n in unknown.most_common():
            print(n, what)
        return
    print("| domains | |\n| --- | --- |")
    for key, text in (("all", "examples"), ("whole", "taken over whole"),
                      ("boots", "taken over whole, but that no firmware runs: a disk's own boot entry is booted, or what `--kernel` says"),
                      ("otherwise", "all of it taken over, some of it as something else"),
                      ("part", "with something that is left out, which is told"), ("refused", "refused")):
        print(f"| {text} | {verdict[key]} |")
    for title, counter in (("refused because", refused), ("left out", left), ("taken over as something else", otherwise)):
        print(f"\n| {title} | domains |\n| --- | --- |")
        seldom = 0
        for key, n in sorted(counter.items(), key=lambda i: (-i[1], i[0])):
            if n < 3 and counter is not refused:
                seldom += 1
                continue
            print(f"| {key if isinstance(key, str) else ': '.join(key)} | {n} |")
        if seldom:
            print(f"| {seldom} others, in one or two domains each | |")


main()
