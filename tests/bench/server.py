"""`bench.py --part server`: a Debian server on a disk and a network, recorded, beside QEMU.

One run each of this program and of QEMU, on the same image: to the login prompt (QEMU's record and
replay), then disk and network figures (QEMU's TCG without recording). Host CPU time is that of the
one process, from /proc.
"""
import http.client
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPRISE = str(ROOT / "build" / "rel" / "reprise")
DEBIAN = ROOT / "build" / "images" / "debian"
TICK = os.sysconf("SC_CLK_TCK")
APPEND = "root=/dev/vda1 ro"
REQUESTS = 2000
READ = "dd if=/dev/vda of=/dev/null bs=1M count=300 iflag=direct 2>&1 | tail -n 1"
WRITE = "dd if=/dev/zero of=/root/big bs=1M count=200 conv=fsync 2>&1 | tail -n 1; rm /root/big"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Guest:
    def __init__(self, place, name, argv, ssh_port, http_port, **more):
        self.place, self.name = pathlib.Path(place), name
        self.ssh_port, self.http_port = ssh_port, http_port
        self.console = self.place / (name + ".console")
        with open(self.console, "wb") as out:
            self.child = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL,
                                          stdout=out, stderr=subprocess.STDOUT, **more)
        self.key = self.place / "key"
        if not self.key.exists():
            shutil.copy(DEBIAN / "id_ed25519", self.key)
            self.key.chmod(0o600)

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def wait_text(self, text, seconds):
        end = time.monotonic() + seconds
        while text not in self.console.read_bytes():
            if time.monotonic() > end or self.child.poll() is not None:
                return False
            time.sleep(0.05)
        return True

    def ssh(self, command, timeout=600):
        r = subprocess.run(
            ["ssh", "-i", self.key, "-p", str(self.ssh_port), "-o", "BatchMode=yes",
             "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
             "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20", "root@127.0.0.1", command],
            capture_output=True, text=True, timeout=timeout)
        return r.stdout.strip() if r.returncode == 0 else None

    def ready(self, seconds=300):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.ssh("systemctl is-system-running --wait", 120) is not None:
                return True
            if self.ssh("true", 60) is not None:
                return True
            time.sleep(0.5)
        return False

    def measure(self, function):
        """What it returns, host CPU seconds of the process and wall seconds while it ran."""
        cpu, wall = self.cpu(), time.monotonic()
        value = function()
        return value, self.cpu() - cpu, time.monotonic() - wall

    def requests(self):
        c = None
        for i in range(REQUESTS):
            if i % 100 == 0:
                c = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=60)
            c.request("GET", "/")
            assert b"nginx" in c.getresponse().read()

    def stop(self):
        self.child.send_signal(signal.SIGTERM)
        self.child.wait()


def reprise(place, name, *options):
    ssh, web = free_port(), free_port()
    return Guest(place, name, [
        REPRISE, "record", "--force", "-o", pathlib.Path(place) / name, "--memory", "1G",
        "--kernel", DEBIAN / "vmlinuz", "--initrd", DEBIAN / "initrd", "--append", APPEND,
        "--disk", DEBIAN / "disk.img",
        "--net", f"user,hostfwd=tcp::{ssh}-:22,hostfwd=tcp::{web}-:80", *options], ssh, web)


def qemu(place, name, rr):
    ssh, web = free_port(), free_port()
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-m", "1G", "-nographic", "-no-reboot",
            "-kernel", DEBIAN / "vmlinuz", "-initrd", DEBIAN / "initrd", "-append",
            f"console=ttyS0 panic=-1 {APPEND}", "-drive",
            f"file={DEBIAN}/disk.img,format=raw,if=none,snapshot=on,id=d0"]
    if rr:
        argv += ["-icount", f"shift=auto,rr=record,rrfile={place}/{name}.rr", "-drive",
                 "driver=blkreplay,if=none,image=d0,id=d1", "-device",
                 "virtio-blk-pci,drive=d1", "-net", "none"]
    else:
        argv += ["-device", "virtio-blk-pci,drive=d0", "-nic",
                 f"user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{ssh}-:22,"
                 f"hostfwd=tcp:127.0.0.1:{web}-:80"]
    return Guest(place, name, argv, ssh, web)


def speed(line):
    found = re.search(r"([\d.,]+) ([kMG]B)/s", line or "")
    return f"{found.group(1)} {found.group(2)}/s" if found else "failed"


def workload(g):
    rows = []
    read, cpu, _ = g.measure(lambda: g.ssh(READ))
    rows.append(("dd, 300 MB read, direct", speed(read), cpu))
    write, cpu, _ = g.measure(lambda: g.ssh(WRITE))
    rows.append(("dd, 200 MB written, fsync", speed(write), cpu))
    _, cpu, wall = g.measure(g.requests)
    rows.append((f"nginx, {REQUESTS} requests", f"{REQUESTS / wall:.0f} a second", cpu))
    return rows


def login(place, table, notes):
    g = reprise(place, "login", "--stop-at", "login:")
    cpu = 0.0
    while g.child.poll() is None:
        try:
            cpu = g.cpu()
        except (OSError, IndexError):
            break
        time.sleep(0.02)
    table("server: to the login prompt, recorded", cpu, f"{cpu:.1f} s CPU")
    if not shutil.which("qemu-system-x86_64"):
        notes.append("qemu-system-x86_64 is not installed: nothing is compared with it")
        return
    q = qemu(place, "login-rr", True)
    seen = q.wait_text(b"login:", 900)
    qcpu = q.cpu() if q.child.poll() is None else 0
    q.stop()
    if not seen:
        notes.append("server: QEMU's record/replay did not reach the login prompt in 900 s")
        return
    table("server: to login, record / QEMU rr, CPU", cpu / qcpu, f"{cpu / qcpu:.2f}", 1)


def idle(place, g, table):
    log = pathlib.Path(place) / "load" / "log"
    time.sleep(5)
    up, before, cpu = float(g.ssh("cut -d' ' -f1 /proc/uptime")), log.stat().st_size, g.cpu()
    time.sleep(60)
    grown, cpu = log.stat().st_size - before, g.cpu() - cpu
    seconds = float(g.ssh("cut -d' ' -f1 /proc/uptime")) - up
    table("server: idle, growth of the log", grown / seconds, f"{grown / seconds:.0f} B/s", 2048)
    table("server: idle, host CPU", cpu / seconds, f"{100 * cpu / seconds:.1f} %")


def measure(place):
    rows, notes = [], []

    def table(what, number, text, bound=None):
        rows.append({"what": what, "number": number, "value": text,
                     "good": bound is None or number <= bound,
                     "bound": "" if bound is None else f"<= {bound}"})

    if not (DEBIAN / "disk.img").exists():
        return {"rows": [], "notes": ["server: skipped: build/images/debian is not built "
                                      "(make image-debian)"]}
    login(place, table, notes)
    kinds = {"recorded": lambda: reprise(place, "load")}
    if shutil.which("qemu-system-x86_64"):
        kinds["QEMU TCG, not recorded"] = lambda: qemu(place, "load-tcg", False)
    for name, start in kinds.items():
        g = start()
        if not g.ready():
            notes.append(f"server, {name}: nobody can log in")
            g.stop()
            continue
        for what, value, cpu in workload(g):
            table(f"server: {what}, {name}", cpu, f"{value}, {cpu:.1f} s CPU")
        cpu = rows[-1]["number"]
        table(f"server: nginx, requests per CPU second, {name}", -REQUESTS / cpu,
              f"{REQUESTS / cpu:.0f}")
        if name == "recorded":
            idle(place, g, table)
        g.stop()
    return {"rows": rows, "notes": notes}
