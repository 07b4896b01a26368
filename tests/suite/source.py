"""The sources themselves: layers, headers, the engine's objects, generated documentation."""
import fnmatch
import os
import re
import shutil
import subprocess

from suite import golden
from suite.harness import ROOT, TESTS, host_has_avx2, test

LAID_OUT_BY = 14  # other releases of clang-format have other ideas of some lines

# What a folder may include. A name that ends in / is a folder. Longest prefix first.
CONTRACTS = ["machine/machine.h", "machine/source.h", "dev/input.h"]
LAYERS = {
    "vmm/base": ["base/"],
    "vmm/board": ["base/", "board/", "cpu/features.h", "cpu/model.h", "dsdt.h", "generation.h", "bios_image.h"],
    # What a boot menu says is text; a child reads the disks.
    "vmm/boot": ["base/", "boot/", "host/child.h", "host/disk.h", "host/disk_chain.h"],
    # A device works on a disk of the host; what that is, it does not know.
    # What a device is like is said by the machine's description.
    "vmm/dev": ["base/", "dev/", "board/acpi.h", "board/description.h", "cpu/features.h", "cpu/model.h", "host/disk.h",
                # What an input device says, whoever makes it.
                "host/input_report.h",
                # What a guest's commands are is declared once.
                "virtio-gpu-log/decode.h", "virtio-gpu-log/log.h"],
    # ram.h is the one translator of guest-physical addresses.
    # What an x86 CPU is; both engines stand on it, and neither on the other.
    "vmm/cpu/x86": ["guest-agent/reprise-mark.h", "base/", "cpu/x86/", "cpu/engine_ops.h", "cpu/engine_calls.def", "cpu/features.h", "cpu/model.h",
                    "cpu/vcpu.h", "board/ram.h"],
    "vmm/cpu/dbt": ["base/", "cpu/x86/", "cpu/features.h", "cpu/model.h", "board/ram.h"],
    # KVM's host is KVM, perf and a clock.
    "vmm/cpu/kvm": ["base/", "cpu/x86/", "cpu/kvm/", "cpu/engine_ops.h", "cpu/features.h", "cpu/model.h", "cpu/unit.h", "cpu/vcpu.h",
                    "board/ram.h", "host/clock.h"],
    "vmm/cpu": ["base/", "cpu/features.h", "cpu/model.h", "cpu/model_table.h", "cpu/features.def", "cpu/model_events.def", "cpu/vcpu.h", "cpu/engine.h", "cpu/engine_ops.h",
                "cpu/engine_calls.def", "cpu/stats.def", "cpu/stats.h", "cpu/unit.h",
                "board/ram.h"],
    # What stands below the devices: it knows no machine and no guest.
    "vmm/host": ["base/", "host/"],
    # What gives a machine its input while it is recorded, and looks at it.
    "vmm/live": ["base/", "host/", "live/", "keynames.h", "viewer/protocol.h",
                 "virtio-gpu-log/play/drive.h", "virtio-gpu-log/play/renderer.h",
                 # The renderer's replies on their way into the machine.
                 "dev/device.h", "dev/virtio/gpu_reply.h", "dev/virtio/gpu_store.h",
                 # ... and those of file servers.
                 "dev/virtio/fs_limits.h"] + CONTRACTS,
    # What people see and do: a process of its own, which knows no machine.
    "vmm/viewer": ["base/", "viewer/", "host/clock.h", "host/peer.h", "host/sandbox.h", "host/input_report.h",
                   "host/keymap.h"],
    # The network in user space, likewise: it has libslirp and sockets, and no machine.
    "vmm/netd": ["base/", "netd/", "host/clock.h", "host/landlock.h", "host/net_protocol.h"],
    # The file server of a share: it reads files, and knows no machine.
    "vmm/fsd": ["base/", "fsd/", "host/landlock.h", "host/share_protocol.h"],
    # A domain of libvirt's, read in a process of its own: it knows what options there are, and no machine.
    "vmm/libvirt": ["base/", "libvirt/", "board/description.h", "cpu/features.h", "host/disk_format.h", "host/disk_spec.h",
                    "host/domain_table.h", "host/landlock.h"],
    "vmm/cmd": ["guest-agent/agent/protocol.h", "guest-agent/agent/sync.h", "guest-agent/agent/copy.h", "base/", "board/", "boot/", "host/", "inspect/", "live/", "replay/", "cmd/", "cpu/features.h", "cpu/model.h", "cpu/vcpu.h",
                "virtio-gpu-log/", "cpu/engine.h", "cpu/stats.def", "version.h", "cpu/kvm/probe.h",
                # What gdb is taught, in the program.
                "gdb_session.h"] + CONTRACTS,
    # Commands as functions, for many runs.
    "vmm/cmd/hunt": ["base/", "cmd/", "cpu/engine.h", "cpu/vcpu.h", "live/turns.h", "host/clock.h", "host/outside.h", "host/sandbox.h", "inspect/", "replay/"] + CONTRACTS[:1],
    "vmm/version.h": [],
    "vmm/main.c": ["base/", "cmd/", "version.h"],
    "vmm/machine": ["base/", "board/", "cpu/engine.h", "cpu/stats.h", "cpu/features.h", "cpu/model.h", "cpu/vcpu.h", "dev/",
            "machine/"],
    # Only reads: what a guest's memory says, whoever runs the machine.
    "inspect": ["guest-agent/reprise-mark.h", "base/", "inspect/", "board/ram.h", "cpu/vcpu.h"] + CONTRACTS[:1],
    "replay": ["base/", "board/description.h", "board/kernel.h", "board/ram.h", "dev/device.h", "replay/", "records.def", "dev/inputs.def", "cpu/engine.h",
               "cpu/vcpu.h", "host/clock.h", "host/disk.h", "host/disk_spec.h", "host/sandbox.h", "version.h", "virtio-gpu-log/decode.h",
               "virtio-gpu-log/log.h"] + CONTRACTS,
    "replay/gdb": ["base/", "host/endpoint.h", "replay/gdb/", "cpu/vcpu.h"] + CONTRACTS,
    # Stands alone: devices, commands and replay may use it, it uses none of them.
    "virtio-gpu-log": ["base/", "virtio-gpu-log/"],
    # Drives a renderer, which it starts as a program of its own.
    "virtio-gpu-log/play": ["base/", "virtio-gpu-log/", "host/clock.h", "host/companion.h"],
}
# Mutable data at file scope, each with its reason in the file.
FILE_SCOPE = {
    "vmm/main.o": "argp_program_version is argp's",
    "vmm/base/check.o": "who prints where we are when an invariant breaks",
    "vmm/host/outside.o": "who stays outside of the sandbox; a process has one",
    "vmm/host/sandbox.o": "what this process may; a process locks once",
    "vmm/host/terminal.o": "exit and fatal-signal hooks exist once per process",
    "vmm/netd/resolv.o": "what the fopen of libslirp reads",
    "vmm/cpu/dbt/host.o": "signal handlers exist once per process",
    "vmm/cmd/command_table.o": "which table a process was started to show; it ends with that",
    "vmm/cmd/disk_option.o": "what the command line names, to the program's end",
    "vmm/cmd/interrupt.o": "signal handlers exist once per process",
    "virtio-gpu-log/renderer/host.o": "libvirglrenderer exists once per process",
    "virtio-gpu-log/renderer/shadow.o": "what its signal handler reads",
}


TOPS = ("vmm", "inspect", "replay", "virtio-gpu-log")


def sources(pattern):
    for top in TOPS:
        yield from sorted((ROOT / top).rglob(pattern))


@test("source/layers")
def layers(t):
    """Includes follow LAYERS, which is what ARCHITECTURE.md draws."""
    wrong = []
    for path in [*sources("*.c"), *sources("*.h")]:
        name = str(path.relative_to(ROOT))
        layer = max((k for k in LAYERS if name == k or name.startswith(k + "/")), key=len)
        for line, text in enumerate(path.read_text().splitlines(), 1):
            found = re.match(r'\s*#\s*include\s+"([^"]+)"', text)
            if not found:
                continue
            what = found.group(1)
            if "/" not in what and (path.parent / what).exists() and path.parent.name == "dbt":
                continue  # private to the translator
            if not any(what == a or (a.endswith("/") and what.startswith(a))
                       for a in LAYERS[layer]):
                wrong.append(f"{name}:{line} includes {what}")
    t.log.write("\n".join(wrong))
    t.check(not wrong, f"{len(wrong)} include(s) against the layers: {', '.join(wrong[:3])}")


# Files that choose among what stands above them.
CHOOSERS = {"vmm/cpu/engine.c": "which engine there is"}
# What its program has in the place of libc's functions.
STANDS_FOR_LIBC = {"vmm/netd/resolv.c"}


@test("source/links")
def links(t):
    """What a folder calls is of a folder that it may include something of."""
    if t.mode != "rel":
        t.skip("sanitizers add calls of their own")
    objects = [p for top in TOPS for p in sorted((t.build / top).rglob("*.o"))
               if (ROOT / p.relative_to(t.build)).with_suffix(".c").exists()]
    defined, used = {}, set()
    for where, kind, name in symbols(t.build, objects):
        where += ".c"
        if kind == "U":
            used.add((where, name))
        elif kind in "TDRBV" and where not in STANDS_FOR_LIBC:
            defined.setdefault(name, set()).add(where)

    def may(where, what):
        layer = max((k for k in LAYERS if where == k or where.startswith(k + "/")), key=len)
        folder = os.path.dirname(what).removeprefix("vmm/") + "/"
        return os.path.dirname(where) == os.path.dirname(what) or \
            any(folder.startswith(a) if a.endswith("/") else os.path.dirname(a) + "/" == folder
                for a in LAYERS[layer])

    wrong, calls = [], 0
    for where, name in sorted(used):
        places = defined.get(name, ())  # several: of several programs
        calls += bool(places)
        if places and where not in CHOOSERS and not any(may(where, what) for what in places):
            wrong.append(f"{where} needs {name} of {', '.join(places)}")
    t.log.write("\n".join(wrong))
    t.check(not wrong, f"{len(wrong)} call(s) against the layers: {', '.join(wrong[:3])}")
    return f"{calls} calls"


def including():
    """(file, included file) of the tree, as paths below ROOT; what is generated is left out."""
    for path in [*sources("*.c"), *sources("*.h")]:
        for what in re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.M):
            for base in (path.parent, ROOT / "vmm", ROOT):
                if (base / what).exists():
                    yield path.relative_to(ROOT), (base / what).relative_to(ROOT)
                    break


def circles(arrows):
    """Sets of more than one room each of which leads to all others of its set: Tarjan's strongly
    connected components. `arrows`: pairs (from, to)."""
    leads = {}
    for a, b in arrows:
        if a != b:
            leads.setdefault(a, set()).add(b)
            leads.setdefault(b, set())
    number, lowest, path, found = {}, {}, [], []

    def visit(room):
        number[room] = lowest[room] = len(number)
        path.append(room)
        for other in sorted(leads[room]):
            if other not in number:
                visit(other)
            if other in path:
                lowest[room] = min(lowest[room], lowest[other])
        if lowest[room] == number[room]:
            at = path.index(room)
            found.append(sorted(path[at:]))
            del path[at:]

    for room in sorted(leads):
        if room not in number:
            visit(room)
    return [c for c in found if len(c) > 1]


@test("source/circles")
def folder_circles(t):
    """Folders are floors: no include leads from a lower one to a higher one."""
    def folder(path):
        return str(path) if path.name == "main.c" else str(path.parent)

    arrows = list(including())
    wrong = circles((folder(a), folder(b)) for a, b in arrows)
    for circle in wrong:
        t.log.write(f"{', '.join(circle)}:\n")
        for a, b in arrows:
            if folder(a) != folder(b) and {folder(a), folder(b)} <= set(circle):
                t.log.write(f"  {a} includes {b}\n")
    t.check(not wrong, f"{len(wrong)} circle(s) of folders: {'; '.join(map(' '.join, wrong))}")


def symbols(build, objects):
    """(file without its ending, below the build; kind; name), as nm has it."""
    # Not into the log: it is long.
    known = subprocess.run(["nm", "-A", *objects], stdout=subprocess.PIPE, check=True, text=True).stdout
    for line in known.splitlines():
        where, _, symbol = line.partition(":")
        yield (os.path.relpath(where, build).removesuffix(".o"), *symbol.split()[-2:])


def calling(build, objects):
    """(file, file whose functions or data it names), without endings. Tables of insn.def name what they like."""
    known = list(symbols(build, objects))
    defined = {name: where for where, kind, name in known if kind in "TDRB"}
    for where, kind, name in known:
        if kind == "U" and name in defined and not (where == "vmm/cpu/x86/insn" and name.startswith("help_")):
            yield where, defined[name]


@test("source/cpu-circles")
def cpu_circles(t):
    """In vmm/cpu no more than three files need each other: by what they include, and by what they call."""
    def stem(path):
        return str(path.with_suffix(""))

    included = circles((stem(a), stem(b)) for a, b in including()
                       if "vmm/cpu" in str(a) and "vmm/cpu" in str(b))
    called = circles(calling(t.build, sorted((t.build / "vmm" / "cpu").rglob("*.o"))))
    t.log.write("\n".join(map(" ".join, included + called)))
    t.check(called, "no circle of calls: is nothing built?")
    large = [c for c in included + called if len(c) > 3]
    t.check(not large, f"{len(large)} circle(s) of more than 3 files: {'; '.join(map(' '.join, large))}")
    return f"{len(included)} small ones of includes, {len(called)} of calls"


@test("source/headers", cost=6)
def headers(t):
    """Each header compiles alone."""
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Ivmm", "-I.",
             f"-Ibuild/{t.mode}/gen"]
    count = 0
    for path in [*sources("*.h"), *sorted((ROOT / "tests").rglob("*.h"))]:
        t.run("gcc", *flags, "-fsyntax-only", "-x", "c", "-include", path, "/dev/null", cwd=ROOT)
        count += 1
    return f"{count} headers"


def gpr_objects(t, build=None):
    """The Makefile's list of code that runs between two pieces of translated code."""
    build = build or t.build
    names = re.search(r"^GPR_SRC := (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    t.check(names, "no GPR_SRC in the Makefile")
    return [build / "vmm" / "cpu" / (n + ".o") for n in names]


@test("source/engine-registers", cost=2)
def engine_registers(t, build=None):
    """Helpers between pieces of translated code touch no vector, mask or x87 register."""
    for path in gpr_objects(t, build):
        code = t.run("objdump", "-d", "--no-show-raw-insn", path).text
        if path.name == "park.o":  # which brings them in and out
            code = "\n".join(x for x in code.splitlines() if not re.search(r"\t(v?movaps|vextractf128|vinsertf128) ", x))
        t.lacks(code, r"%[xyz]mm[0-9]|%mm[0-7]|%st\b|%k[0-7]\b", path.name)


@test("source/engine-libc")
def engine_libc(t, build=None):
    """... and call no libc function that may use them (SIMD versions of memcpy and the like)."""
    known = subprocess.run(["nm", "-D", "--defined-only", "/lib/x86_64-linux-gnu/libc.so.6"],
                           stdout=subprocess.PIPE, check=True, text=True).stdout
    libc = {line.split()[-1].split("@")[0] for line in known.splitlines()}
    # Called at creation, never while translated code is live; madvise by translate(), for which run.c parks.
    libc -= {"mmap", "munmap", "mremap", "mprotect", "madvise"}
    for path in gpr_objects(t, build):
        for line in t.run("nm", "-u", path).text.splitlines():
            name = line.split()[-1]
            t.check(name not in libc, f"{path.name} calls {name}")


@test("source/signal-stack")
def signal_stack(t):
    """The stack pointer in translated code is the guest's: handlers of the process that runs it have their own."""
    number = 0
    for path in sorted((ROOT / "vmm").rglob("*.c")):
        for row in re.findall(r"struct sigaction [^;]*\.sa_(?:handler|sigaction)[^;]*;", path.read_text()):
            t.has(row, r"\bSA_ONSTACK\b", f"{path.name}: {row}")
            number += 1
        t.lacks(path.read_text(), r"\bsignal\((?!\w+, SIG_(IGN|DFL)\))\w+, ", f"{path.name}: signal() has no stack of its own")
    t.check(number >= 5, f"only {number} handlers found")


# What that code calls of other files: with the guest's vector state parked, or without a guest.
PARKED = {
    "check_failed": "does not come back", "cpu_host_lacks_all": "a report", "core_shut_down": "the state is gone",
    "cpu_model_cpuid": "CPUID parks", "cpu_model_event": "pmu.c parks", "err_set": "REPORT parks", "err_errno": "at creation",
    "follow_left": "does not come back", "host_enter": "before the guest's state is there",
    "insn_decode": "icache.c parks", "insn_text": "a report", "note_lacking": "exec_begin() parks",
    "tape_to_ram": "for devices, which are called parked", "translate": "run.c parks",
    "translate_snippet": "run.c parks", "x87_compute": "help_x87_own() parks",
}


@test("source/engine-calls")
def engine_calls(t, build=None):
    """... and no function of ours that may, but those that are known to be called without the guest's."""
    build = build or t.build
    objects = {str(p.relative_to(build).with_suffix("")) for p in gpr_objects(t, build)}
    objects.add("vmm/cpu/dbt/own_mem")  # of clang's; by hand
    ours, defined, used = set(), set(), {}
    for where, kind, name in symbols(build, sorted((build / "vmm").rglob("*.o"))):
        if where not in objects:
            ours |= {name} if kind == "T" else set()
        elif kind == "U":
            used[name] = where
        else:
            defined.add(name)
    called = {name for name in used if name in ours and name not in defined}
    wrong = [f"{used[name]} calls {name}" for name in sorted(called - set(PARKED))]
    t.equal(wrong, [], "calls of what may use vector registers")
    t.equal(sorted(set(PARKED) - called), [], "functions that are not called any more")
    return f"{len(called)} known"


@test("source/file-scope")
def file_scope(t):
    """No mutable state at file scope: two machines fit in one process."""
    if t.mode != "rel":
        t.skip("sanitizers add data of their own")
    for path in [p for top in TOPS
                 for p in sorted((t.build / top).rglob("*.o"))]:
        name = str(path.relative_to(t.build))
        for line in t.run("objdump", "-t", path).text.splitlines():
            found = re.search(r" O (\.data|\.bss|\*COM\*)\S*\s+\S+\s+(\S+)$", line)
            if found and found.group(1) and ".data.rel.ro" not in line and name not in FILE_SCOPE:
                t.check(False, f"{name} has {found.group(2)} in a writable section")


@test("source/format-doc")
def format_doc(t):
    for tool, doc in (("format_records", "docs/format.md"), ("machine_rows", "docs/format.md"),
                      ("gpu_records", "docs/gpu-log.md")):
        t.run("tests/tools/format_doc.sh", t.build / "tests" / "tools" / tool, doc, "--check",
              cwd=ROOT)


@test("source/uncalled")
def uncalled(t):
    """What a file lets others call is called by one; else it is the file's own, or nobody's."""
    objects = [p for p in sorted(t.build.rglob("*.o"))
               if (ROOT / p.relative_to(t.build)).with_suffix(".c").exists()]
    defined, used = {}, set()
    for where, kind, name in symbols(t.build, objects):
        if kind == "U":
            used.add(name)
        elif kind == "T" and not where.startswith("tests/"):
            defined[name] = where
    # Instrumented fuzzers are built for themselves, from whatever they name.
    fuzzers = " ".join(p.read_text() for p in (ROOT / "tests" / "fuzz").glob("*.c"))
    tables = "".join(p.read_text() for p in ROOT.glob("vmm/cpu/**/*.def"))
    left = sorted(f"{name} ({where})" for name, where in defined.items()
                  if name not in used and not re.search(rf"\b{name}\b", fuzzers) and name not in ("main", "fopen64")  # libslirp's
                  and not (name.startswith(("core_", "help_")) and re.search(rf"\b{name[5:]}\b", tables)))
    t.check(not left, f"nobody else calls {', '.join(left[:5])}")
    return f"{len(defined)} functions"


def kept():
    """The tree's files: those that git knows, or in a release's archive all but what was built."""
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split()
    return known or sorted(str(p.relative_to(ROOT)) for p in ROOT.rglob("*")
                           if p.is_file() and p.relative_to(ROOT).parts[0] not in ("build", ".git")
                           and "__pycache__" not in p.parts)


@test("source/portable")
def portable(t):
    """No absolute home or work directories in what is kept."""
    for name in kept():
        path = ROOT / name
        if path.is_file() and not path.suffix in (".bin", "") and "corpus" not in name:
            text = path.read_bytes().decode("utf-8", "replace")
            t.lacks(text, r"/(home|root|work)/[a-z]+/[a-z]", name)


@test("source/merged")
def merged(t):
    """What a merge left to decide was decided, and each line of tests/off names a test."""
    marks = re.compile(rb"^(?:<{7} |>{7} |={7}$)", re.M)
    t.equal([name for name in kept() if (ROOT / name).is_file() and marks.search((ROOT / name).read_bytes())], [],
            "files that have two versions of something")
    names = [test.name for test in TESTS]
    stale = [line for line in (ROOT / "tests" / "off").read_text().splitlines() if line and not line.startswith("#")
             and not (line.partition(" ")[2] and fnmatch.filter(names, line.partition(" ")[0]))]
    t.equal(stale, [], "lines of tests/off without a test or a reason")


# Files of other projects that comments name.
OUTSIDE = {"doc/proto.md", "input-event-codes.h", "kallsyms.c", "lz4_Frame_format.md", "unwind_orc.c",
           "virglrenderer.h", "virtio_gpu.h", "vrend_decode.c"}


# Functions of others that comments name.
OUTSIDE_FUNCTIONS = {"glGetError", "paranoid_entry", "swapcontext"}
COMMENT = {".c": r"/\*.*?\*/", ".py": r'(?m:^\s*#[^\n]*|  # [^\n]*)|""".*?"""'}


def comments(path, text):
    """What a file says of others, and the rest of it; a document is a comment."""
    if path.endswith(".md"):
        return text, ""
    pattern = re.compile(COMMENT[".py" if path.endswith(".py") else ".c"], re.S)
    return "\n".join(pattern.findall(text)), pattern.sub("", text)


def without_braces(text):
    """a_{b,c}.d as a_b.d a_c.d"""
    def each(found):
        head, parts, tail = found.groups()
        return " ".join(head + part + tail for part in parts.split(","))

    return re.sub(r"([\w./-]*)\{([\w,-]*,[\w,-]*)\}([\w./-]*)", each, text)


@test("source/names")
def names(t):
    """Files and functions() that comments and documents name are there. (A word in capitals stands for any.)"""
    files = kept()
    name = re.compile(r"(?<![\w./*<-])((?:[\w-]+/)*[\w-]+\.(?:c|h|py|def|md))\b(?!\w|[(/*])")
    gone, called, words = [], [], set(OUTSIDE_FUNCTIONS)
    for path in files:
        if not path.endswith((".c", ".h", ".def", ".md", ".py", ".S")) or path == "CHANGELOG.md":
            continue
        text, rest = comments(path, (ROOT / path).read_text())
        words.update(re.findall(r"\w+", rest))
        for word in sorted(set(name.findall(without_braces(text)))):
            known = any(f == word or f.endswith("/" + word) for f in files)
            outside = word in OUTSIDE or word.split("/")[-1] in OUTSIDE
            if not known and not outside and not re.search("[A-Z]{4}", word):
                gone.append(f"{path}: {word}")
        if not path.endswith(".py"):
            called += [(path, word) for word in re.findall(r"(?<![\w.>])([a-z_]\w+)\(\)", text)]
    gone += sorted({f"{path}: {word}()" for path, word in called
                    if word not in words and not re.search("[A-Z]{4}", word)})
    t.equal(gone, [], "files and functions that are named and not there")


@test("source/lint", cost=60)
def lint(t):
    if not shutil.which("clang-format"):
        t.skip("clang-format is not installed")
    version = int(re.search(r"version (\d+)", t.run("clang-format", "--version").text).group(1))
    if version != LAID_OUT_BY:
        t.skip(f"clang-format is {version}, and the sources are laid out by {LAID_OUT_BY}")
    t.run("make", "-s", "lint", cwd=ROOT, timeout=400)


@test("source/clang", cost=60)
def clang(t):
    """clang builds the program, which keeps off the guest's registers as gcc's does and replays the same."""
    if t.mode != "rel":
        t.skip("is built and tried with the release build")
    if not shutil.which("clang"):
        t.skip("clang is not installed")
    build = ROOT / "build" / "clang"
    # Nothing of a make that runs the tests but WERROR.
    t.run("make", "-s", f"-j{os.cpu_count()}", "MODE=clang", "CC=clang", "build/clang/reprise", cwd=ROOT,
          env={"MAKEFLAGS": ""}, timeout=900)
    engine_registers(t, build)
    engine_libc(t, build)
    engine_calls(t, build)
    count = 0
    for name, kept in golden.KEPT.items():
        if "images" not in kept and (not kept.get("avx2") or host_has_avx2()):
            golden.replay(t, build / "reprise", name)
            count += 1
    return f"{count} recordings replayed"
