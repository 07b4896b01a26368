"""The sources themselves: layers, headers, the engine's objects, generated documentation."""
import re
import subprocess

from suite.harness import ROOT, test

# DESIGN.md, "Layout": what a folder may include. A name that ends in / is a folder; "machine" is
# vmm/*.[ch]. Longest prefix first.
CONTRACTS = ["machine.h", "input.h"]
LAYERS = {
    "vmm/base": ["base/"],
    "vmm/board": ["base/", "board/", "cpu/model.h", "dsdt.h"],
    # A device works on a disk of the host; what that is, it does not know.
    "vmm/dev": ["base/", "dev/", "board/acpi.h", "cpu/model.h", "host/disk.h",
                # What a guest's commands are is declared once.
                "virtio-gpu-log/decode.h", "virtio-gpu-log/log.h"],
    # ram.h is the one translator of guest-physical addresses.
    "vmm/cpu/dbt": ["base/", "cpu/", "board/ram.h"],
    # KVM runs the instructions; what there is besides them dbt has. Its host is KVM, perf and a clock.
    "vmm/cpu/kvm": ["base/", "cpu/", "board/ram.h", "host/clock.h"],
    "vmm/cpu": ["base/", "cpu/model.h", "cpu/vcpu.h", "cpu/engine.h", "cpu/engine_ops.h",
                "cpu/stats.h", "cpu/unit.h",
                "board/ram.h"],
    # What a boot menu says is text; which disk has one is the host's matter.
    # What the machine and its renderer say to each other is declared once.
    "vmm/host": ["base/", "host/", "keynames.h", "board/bootentry.h",
                 "virtio-gpu-log/renderer/protocol.h", "virtio-gpu-log/play/drive.h",
                 # The renderer's replies on their way into the machine.
                 "dev/device.h", "dev/virtio/gpu_reply.h", "dev/virtio/gpu_store.h",
                 "viewer/protocol.h"] + CONTRACTS,
    # What people see and do: a process of its own, which knows no machine.
    "vmm/viewer": ["base/", "viewer/", "host/clock.h", "host/input_report.h", "host/keymap.h"],
    "vmm/cmd": ["base/", "board/", "host/", "replay/", "cmd/", "cpu/model.h", "cpu/vcpu.h",
                "virtio-gpu-log/", "cpu/engine.h", "version.h", "cpu/kvm/probe.h"] + CONTRACTS,
    "vmm/main.c": ["base/", "cmd/", "version.h"],
    "vmm": ["base/", "board/", "cpu/engine.h", "cpu/stats.h", "cpu/model.h", "cpu/vcpu.h", "dev/",
            "machine_internal.h"] + CONTRACTS,
    "replay": ["base/", "board/description.h", "board/kernel.h", "board/ram.h", "dev/device.h", "replay/", "records.def", "cpu/engine.h",
               "cpu/vcpu.h", "host/clock.h", "host/disk.h", "version.h", "virtio-gpu-log/decode.h",
               "virtio-gpu-log/log.h"] + CONTRACTS,
    "replay/gdb": ["base/", "host/endpoint.h", "replay/gdb/", "cpu/vcpu.h"] + CONTRACTS,
    # Stands alone: devices, commands and replay may use it, it uses none of them.
    "virtio-gpu-log": ["base/", "virtio-gpu-log/"],
    # Drives a renderer, which is the host's.
    "virtio-gpu-log/play": ["base/", "virtio-gpu-log/", "host/renderer.h", "host/clock.h"],
}
# Mutable data at file scope, each with its reason in the file.
FILE_SCOPE = {
    "vmm/main.o": "argp_program_version is argp's",
    "vmm/base/check.o": "who prints where we are when an invariant breaks",
    "vmm/host/terminal.o": "exit and fatal-signal hooks exist once per process",
    "vmm/cpu/dbt/host.o": "signal handlers exist once per process",
    "vmm/cmd/travel.o": "signal handlers exist once per process",
    "vmm/cmd/debug.o": "signal handlers exist once per process",
    "vmm/cmd/attach.o": "signal handlers exist once per process",
    "vmm/cmd/visit.o": "what its signal handler sets",
    "vmm/cmd/gdb.o": "what its signal handler sets",
    "virtio-gpu-log/renderer/host.o": "libvirglrenderer exists once per process",
    "virtio-gpu-log/renderer/shadow.o": "what its signal handler reads",
    "vmm/cmd/checkpoint.o": "what its signal handler sets",
    "vmm/cmd/gpu_extract.o": "what its signal handler sets",
    "vmm/cmd/pcap.o": "what its signal handler sets",
}


def sources(pattern):
    for top in ("vmm", "replay", "virtio-gpu-log"):
        yield from sorted((ROOT / top).rglob(pattern))


@test("source/layers")
def layers(t):
    """Includes follow the layers of DESIGN.md."""
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
                continue  # private to the engine
            if not any(what == a or (a.endswith("/") and what.startswith(a))
                       for a in LAYERS[layer]):
                wrong.append(f"{name}:{line} includes {what}")
    t.log.write("\n".join(wrong))
    t.check(not wrong, f"{len(wrong)} include(s) against the layers: {', '.join(wrong[:3])}")


@test("source/headers", cost=6)
def headers(t):
    """Each header compiles alone."""
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-Ivmm", "-I.",
             "-Ivmm/cpu/dbt", f"-Ibuild/{t.mode}/gen"]
    count = 0
    for path in [*sources("*.h"), *sorted((ROOT / "tests").rglob("*.h"))]:
        t.run("gcc", *flags, "-fsyntax-only", "-x", "c", "-include", path, "/dev/null", cwd=ROOT)
        count += 1
    return f"{count} headers"


def gpr_objects(t):
    """The Makefile's list of code that runs between two pieces of translated code."""
    names = re.search(r"^GPR_SRC := (.*)$", (ROOT / "Makefile").read_text(), re.M).group(1).split()
    t.check(names, "no GPR_SRC in the Makefile")
    return [t.build / "vmm" / "cpu" / "dbt" / (n + ".o") for n in names]


@test("source/engine-registers", cost=2)
def engine_registers(t):
    """Helpers between pieces of translated code touch no vector, mask or x87 register."""
    for path in gpr_objects(t):
        code = t.run("objdump", "-d", "--no-show-raw-insn", path).text
        t.lacks(code, r"%[xyz]mm[0-9]|%mm[0-7]|%st\b|%k[0-7]\b", path.name)


@test("source/engine-libc")
def engine_libc(t):
    """... and call no libc function that may use them (SIMD versions of memcpy and the like)."""
    known = subprocess.run(["nm", "-D", "--defined-only", "/lib/x86_64-linux-gnu/libc.so.6"],
                           stdout=subprocess.PIPE, check=True, text=True).stdout
    libc = {line.split()[-1].split("@")[0] for line in known.splitlines()}
    # Called at creation, never while translated code is live.
    libc -= {"mmap", "munmap", "memfd_create", "ftruncate", "close"}
    for path in gpr_objects(t):
        for line in t.run("nm", "-u", path).text.splitlines():
            name = line.split()[-1]
            t.check(name not in libc, f"{path.name} calls {name}")


@test("source/file-scope")
def file_scope(t):
    """No mutable state at file scope: two machines fit in one process."""
    if t.mode != "rel":
        t.skip("sanitizers add data of their own")
    for path in [p for top in ("vmm", "replay", "virtio-gpu-log")
                 for p in sorted((t.build / top).rglob("*.o"))]:
        name = str(path.relative_to(t.build))
        for line in t.run("objdump", "-t", path).text.splitlines():
            found = re.search(r" O (\.data|\.bss|\*COM\*)\S*\s+\S+\s+(\S+)$", line)
            if found and found.group(1) and ".data.rel.ro" not in line and name not in FILE_SCOPE:
                t.check(False, f"{name} has {found.group(2)} in a writable section")


@test("source/format-doc")
def format_doc(t):
    t.run("tests/tools/format_doc.sh", t.build / "tests" / "tools" / "format_records",
          "docs/format.md", "--check", cwd=ROOT)
    t.run("tests/tools/format_doc.sh", t.build / "tests" / "tools" / "gpu_records",
          "docs/gpu-log.md", "--check", cwd=ROOT)


@test("source/portable")
def portable(t):
    """No absolute home or work directories in what is kept."""
    files = t.run("git", "ls-files", cwd=ROOT, code=None).text.split()
    if not files:
        t.skip("not a git repository")
    for name in files:
        path = ROOT / name
        if path.is_file() and not path.suffix in (".bin", "") and "corpus" not in name:
            text = path.read_bytes().decode("utf-8", "replace")
            t.lacks(text, r"/(home|root|work)/[a-z]+/[a-z]", name)
