"""reprise doctor: what it says of this host is so, and it says something on every host."""
import ctypes
import errno
import fcntl
import json
import os
import pathlib
import re
import shutil
import stat
import tempfile

from suite.harness import ROOT, test

GET_API_VERSION, CHECK_EXTENSION = 0xAE00, 0xAE03
# Numbers of <linux/kvm.h>, to ask without our own code.
CAPS = {"user_memory": 3, "readonly_mem": 81, "set_tss_addr": 4, "ext_cpuid": 7,
        "immediate_exit": 136, "set_guest_debug": 23, "user_space_msr": 188, "msr_filter": 189,
        "xsave": 55, "xcrs": 56, "vcpu_events": 41, "debugregs": 50, "user_nmi": 22,
        "emulation_failure": 204, "sregs2": 200, "dirty_log": 168, "dirty_ring": 192,
        "sync_regs": 74, "pmu_capability": 212, "tsc_control": 60, "vm_tsc_control": 214}


def doctor(t, *options, argv=None, code=0, **more):
    return t.run(*(argv or [t.reprise]), "doctor", *options, code=code, timeout=200, **more)


def report(t, **more):
    r = json.loads(doctor(t, "--json", **more).out)
    t.equal(sorted(r), ["advice", "engines", "facts", "hardware", "version"], "the report's keys")
    for key, fact in r["facts"].items():
        t.check(fact["state"] in ("yes", "no", "info", "untested"), f"{key}: {fact['state']}")
        t.check(fact["value"], f"{key} has no value")
        t.check(set(fact) <= {"state", "value", "number", "note"}, f"{key}: {sorted(fact)}")
    t.equal([(e["engine"], e["counter"]) for e in r["engines"]],
            [("dbt", None), ("kvm", "step"), ("kvm", "pmu")], "the engines")
    t.check(r["advice"], "no advice")
    t.equal(len(r["hardware"]), 5, "what only hardware proves")
    for proof in r["hardware"]:
        t.check(proof["state"] in ("yes", "no", "untested") and proof["what"] and proof["text"],
                f"{proof}")
    return r


def need_root(t):
    if os.geteuid() != 0:
        t.skip("not root: devices cannot be hidden")


def try_kvm():
    """A descriptor, or the reason why not."""
    try:
        return os.open("/dev/kvm", os.O_RDWR), None
    except OSError as why:
        return None, why


@test("doctor/facts", cost=3)
def facts(t):
    """Against what Python finds by itself."""
    f = report(t)["facts"]
    cpu = pathlib.Path("/proc/cpuinfo").read_text()
    field = lambda name: re.search(rf"^{name}\s*: (.*)$", cpu, re.M).group(1).strip()  # noqa: E731
    t.equal(f["host.cpu"]["value"], field("model name"), "the CPU's name")
    t.has(f["host.cpu"]["note"],
          f"^{field('vendor_id')}, family {field('cpu family')}, model {field('model')}, "
          f"stepping {field('stepping')}")
    t.equal(f["host.cpus"]["number"], os.sysconf("SC_NPROCESSORS_ONLN"), "the number of CPUs")
    t.equal(f["host.kernel"]["value"], f"{os.uname().sysname} {os.uname().release}", "the kernel")
    t.equal(f["host.hypervisor"]["value"][:2] == "no", "hypervisor" not in field("flags").split(),
            "whether there is a hypervisor")
    faulting = "cpuid_fault" in field("flags").split()
    t.equal(f["host.cpuid_faulting"]["value"], "yes" if faulting else "no", "CPUID faulting")
    paranoid = pathlib.Path("/proc/sys/kernel/perf_event_paranoid")
    if paranoid.exists():
        t.equal(f["perf.paranoid"]["number"], int(paranoid.read_text()), "perf_event_paranoid")
    t.equal(f["dbt.engine"]["state"], "yes", "dbt")
    t.equal(f["net.user"]["state"], "yes", "reprise-net")
    t.has(f["net.user"]["value"], r"libslirp \d")
    t.has(f["net.user"]["note"], "sandbox: holds")
    t.equal(f["share"]["state"], "yes", "reprise-fs")
    t.has(f["share"]["note"], "sandbox: holds")
    t.equal(f["net.tap"]["state"] == "yes", os.access("/dev/net/tun", os.R_OK | os.W_OK),
            "/dev/net/tun")
    for key, name in (("disk.qemu_nbd", "qemu-nbd"), ("debug.gdb", "gdb")):
        t.equal(f[key]["state"] == "yes", bool(shutil.which(name)), name)
    fd, why = try_kvm()
    t.equal(f["kvm.device"]["state"] == "yes", fd is not None, f"/dev/kvm ({why})")
    if fd is None:
        return f"without KVM: {why}"
    t.equal(f["kvm.api"]["number"], fcntl.ioctl(fd, GET_API_VERSION), "the API version")
    for name, number in CAPS.items():
        t.equal(f["cap." + name]["number"], fcntl.ioctl(fd, CHECK_EXTENSION, number), name)
    t.equal(len([k for k in f if k.startswith("cap.")]), len(CAPS), "the number of capabilities")
    os.close(fd)
    return f"{len(f)} facts"


@test("doctor/guest", cost=2)
def guest(t):
    """The facts of the tiny guests hang together."""
    r = report(t)
    f = r["facts"]
    if f.get("kvm.guest", {}).get("state") != "yes":
        t.skip("no guest starts under KVM here")
    for ring in (0, 3):
        t.check(f[f"speed.ring{ring}"]["number"] > 1e4, f"ring {ring} does not run")
        t.check(1e-7 < f[f"exit.ring{ring}"]["number"] < 0.1, f"exits of ring {ring}")
        for what in ("step", "breakpoint", "cpuid"):
            t.check(f[f"{what}.ring{ring}"]["state"] in ("yes", "no"), f"{what}, ring {ring}")
    bad = [k[5:] for k, v in f.items() if k.startswith("insn.") and v["state"] != "yes"]
    t.equal(f["kvm.linux"]["state"], "no" if bad else "yes", "kvm.linux")
    for name in bad:
        t.has(f["kvm.linux"]["note"], rf"\b{name}\b")
    step, pmu = r["engines"][1:]
    t.equal(step["tiny"], any(f[f"step.ring{n}"]["state"] == "yes" for n in (0, 3)),
            "whether step records tiny guests")
    if "step.speed" in f:
        t.equal(step["linux"], f["step.speed"]["number"] > 1e9 / 3600,
                "whether step is fast enough")
    if f["pmu.counter"]["state"] != "yes":
        t.equal((pmu["linux"], pmu["tiny"]), (False, False), "what pmu can do")
    t.equal(f["tsc.scaling"]["state"] == "yes", f["cap.tsc_control"]["number"] > 0, "TSC scaling")


@test("doctor/text", cost=3)
def text(t):
    """The page says what the JSON says, lined up, in a page's width."""
    f = report(t)["facts"]
    page = doctor(t).text
    for line in page.splitlines():
        t.check(len(line) <= 100, f"a line of {len(line)} columns: {line}")
        t.has(line, r"^([A-Z].*|| [-+? ] .{26} \S.*| {30}\S.*| {13}\S.*)$", "the layout")
    t.check(len(page.splitlines()) <= 84, "more than a page")
    flat = re.sub(r"\s+", " ", page)
    for key in ("host.cpu", "host.kernel", "gpu.renderer", "kvm.device"):
        t.check(re.sub(r"\s+", " ", f[key]["value"]) in flat, f"{key} is not on the page")
    for what in ("dbt ", "kvm, counter step ", "kvm, counter pmu "):
        t.has(page, rf"^ [-+] {what}")
    t.has(page, "^To get more: .")
    t.has(page, "^Only hardware proves it.*make check-hardware")
    everything = doctor(t, "--all").text
    if f["kvm.device"]["state"] == "yes":
        for name in CAPS:
            t.has(everything, rf"^ [-+] capability {name} +(yes|no); \w")
        t.has(everything, r"^ [-+] instruction cmpxchg16b +(yes|no)")


@test("doctor/no-kvm", cost=4)
def no_kvm(t):
    """Without /dev/kvm, and with something else in its place."""
    need_root(t)
    script = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && " \
             "mknod -m 666 /dev/urandom c 1 9 && exec "
    if t.run("unshare", "-m", "sh", "-c", script + "true", code=None).code:
        t.skip("no mount namespaces here")
    line = script + f"{t.reprise} \"$@\""
    r = report(t, argv=["unshare", "-m", "sh", "-c", line, "sh"])
    t.equal(r["facts"]["kvm.device"]["value"], "absent", "/dev/kvm")
    t.has(r["facts"]["kvm.device"]["note"], "modprobe")
    t.check("kvm.guest" not in r["facts"] and "cap.xsave" not in r["facts"], "facts of no KVM")
    t.equal([e["linux"] for e in r["engines"]], [True, False, False], "the verdicts")
    t.has(r["advice"], "modprobe")
    t.equal(r["facts"]["net.tap"]["state"], "no", "/dev/net/tun")
    page = doctor(t, argv=["unshare", "-m", "sh", "-c", line, "sh"]).text
    t.has(page, r"^ - /dev/kvm +absent; ")
    t.lacks(page, "^ . starts")
    if not os.path.exists("/dev/kvm"):
        return
    line = f"mount --bind /dev/null /dev/kvm && exec {t.reprise} \"$@\""
    r = report(t, argv=["unshare", "-m", "sh", "-c", line, "sh"])
    t.equal(r["facts"]["kvm.device"]["value"], "not KVM's", "/dev/null as /dev/kvm")


@test("doctor/permission", cost=4)
def permission(t):
    """As a user who may not open /dev/kvm, from a directory without the other programs."""
    need_root(t)
    if not shutil.which("setpriv") or not os.path.exists("/dev/kvm"):
        t.skip("needs setpriv and /dev/kvm")
    if os.stat("/dev/kvm").st_mode & stat.S_IWOTH:
        t.skip("everybody may open /dev/kvm here")
    with tempfile.TemporaryDirectory() as place:
        os.chmod(place, 0o755)
        shutil.copy(t.reprise, place)
        r = report(t, cwd="/", argv=["setpriv", "--reuid=65534", "--regid=65534",
                                     "--clear-groups", place + "/reprise"])
    f = r["facts"]
    t.equal(f["kvm.device"]["value"], "not permitted", "/dev/kvm")
    t.has(f["kvm.device"]["note"], "usermod -aG kvm")
    t.has(r["advice"], "usermod -aG kvm")
    t.equal(r["engines"][0]["linux"], True, "dbt without privileges")
    for key in ("gpu.renderer", "display.viewer", "net.user", "share"):
        t.equal(f[key]["state"], "no", key)
        t.has(f[key]["note"], r"^reprise-\w+ is missing, a program of reprise.s own")


def forbid_perf(error):
    """In the child: perf_event_open fails so, as in many containers."""
    class Insn(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8),
                    ("k", ctypes.c_uint32)]

    class Program(ctypes.Structure):
        _fields_ = [("len", ctypes.c_uint16), ("filter", ctypes.POINTER(Insn))]
    code = (Insn * 4)(Insn(0x20, 0, 0, 0), Insn(0x15, 0, 1, 298), Insn(0x06, 0, 0, 0x50000 | error),
                      Insn(0x06, 0, 0, 0x7fff0000))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, ctypes.byref(Program(4, code))):
        os._exit(99)


@test("doctor/seccomp", cost=3)
def seccomp(t):
    """perf_event_open forbidden: said, and everything else is as before."""
    free = report(t)
    if free["facts"].get("kvm.guest", {}).get("state") != "yes":
        t.skip("no guest starts under KVM here: the counter is not tried")
    if "pmu.event" not in free["facts"]:
        t.skip("no event is known for this CPU")
    for error, says in ((errno.EPERM, "perf_event_paranoid=1, or a seccomp filter"),
                        (errno.ENOSYS, "there is no perf_event_open here")):
        bound = report(t, preexec_fn=lambda: forbid_perf(error))  # noqa: B023
        t.equal(bound["facts"]["pmu.counter"]["state"], "no", "the counter")
        t.has(bound["facts"]["pmu.counter"]["note"], says)
        for key in ("kvm.device", "step.ring0", "dbt.engine", "gpu.renderer"):
            t.equal(bound["facts"][key]["state"], free["facts"][key]["state"], key)


@test("doctor/poor", cost=14)
def poor(t):
    """No tools, a renderer that hangs, one that crashes, no room for output, wrong usage."""
    place = t.dir / "bin"
    place.mkdir()
    shutil.copy(t.reprise, place)
    for name, script in (("reprise-gpu", "sleep 1000"), ("reprise-display", "kill -SEGV $$")):
        (place / name).write_text(f"#!/bin/sh\n{script}\n")
        (place / name).chmod(0o755)
    f = report(t, argv=[place / "reprise"], env={"PATH": t.dir})["facts"]
    t.has(f["gpu.renderer"]["note"], "took longer than 10 s")
    t.has(f["display.viewer"]["note"], "signal 11")
    for key, package in (("disk.qemu_nbd", "qemu-utils"), ("debug.gdb", "gdb")):
        if not os.path.exists("/usr/sbin/" + key.split(".")[1]):
            t.has(f[key]["note"], f"there is no program .*Debian package {package}")
    t.equal(f["dbt.engine"]["state"], "yes", "dbt")
    tight = t.run("sh", "-c", f"ulimit -n 8; exec {t.reprise} doctor --json", timeout=100)
    t.equal(json.loads(tight.out)["engines"][0]["linux"], True, "dbt with few files")
    full = t.run("sh", "-c", f"{t.reprise} doctor >/dev/full", code=1, timeout=100)
    t.has(full.error, "cannot write to standard output")
    t.has(doctor(t, "me", code=2).error, "unexpected argument 'me'")
    t.has(t.run(t.reprise, "doctor", "--help").text, "exit code is 0 whatever")


@test("doctor/documented", cost=2)
def documented(t):
    """docs/doctor.md has every fact, and no other."""
    keys = {re.sub(r"^(cap|insn|dbt\.model)\..*", r"\1.NAME", re.sub(r"ring[03]$", "ringN", k))
            for k in report(t)["facts"]}
    table = set(re.findall(r"^\| `([a-z_.]+[A-Za-z0-9_]*)`",
                           (ROOT / "docs/doctor.md").read_text(), re.M))
    t.check(keys <= table, f"not in docs/doctor.md: {', '.join(sorted(keys - table))}")
    names = re.compile(r'"([a-z]+\.[a-z_0-9]+)"')
    code = " ".join(p.read_text() for p in [*(ROOT / "vmm/cpu/kvm").glob("probe*.c"),
                                            *(ROOT / "vmm/cmd").glob("doctor*.c")])
    made = set(names.findall(code)) | {"cap.NAME", "insn.NAME", "dbt.model.NAME"}
    for key in table - keys:
        kind = key.removesuffix(".ringN")
        t.check(key in made or (kind != key and kind.split(".")[0] in
                                ("pmu", "speed", "exit", "step", "breakpoint", "cpuid")),
                f"docs/doctor.md has {key}, which nothing finds out")


@test("doctor/hardware", cost=4)
def hardware(t):
    """`make check-hardware` ends well here, and badly where a fact is not as it must be."""
    r = t.run(ROOT / "tests/hardware.py", "--mode", t.mode, timeout=600)
    t.has(r.text, r"^\d+ passed, 0 failed, \d+ skipped$")
    facts = {key: {"state": "yes", "value": "yes", "note": ""} for key in
             ("host.cpu", "host.kernel", "kvm.device", "kvm.guest", "kvm.linux", "step.ring0")}
    facts["pmu.counter"] = {"state": "no", "value": "not exact", "note": ""}
    facts["pmu.exact.ring3"] = {"state": "no", "value": "no", "note": "off by one"}
    facts["step.mov_ss"] = {"state": "info", "value": "directly after it", "note": ""}
    report_file = t.dir / "report.json"
    report_file.write_text(json.dumps({"facts": facts, "engines": [{}]}))
    fake = t.dir / "reprise"
    fake.write_text(f"#!/bin/sh\n[ $1 = doctor ] && cat {report_file}\nexit 0\n")
    fake.chmod(0o755)
    r = t.run(ROOT / "tests/hardware.py", "--mode", t.mode, "--reprise", fake, code=1, timeout=600)
    t.has(r.text, "^FAIL pmu.exact.ring3 .*off by one")
    t.has(r.text, "^FAIL step.mov_ss .*directly after it")
    t.has(r.text, "^ok   step.ring0 ")
    t.has(r.text, "^skip pmu.exact.ring0 .*pmu.counter")
