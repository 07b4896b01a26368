"""A Debian server on a disk: booted, used over the network, recorded under load, replayed."""
import functools
import hashlib
import http.client
import json
import math
import operator
import os
import re
import shutil
import socket
import sqlite3
import subprocess
import time

from suite import libvirt
from suite.disk import tool
from suite.harness import IMAGES, PANIC, ROOT, Failure, rnd, test

DEBIAN = IMAGES / "debian"
PROGRAM = r"""
#include <math.h>
#include <stdio.h>
int main(void)
{
    double sum = 0;
    for (int i = 1; i <= 100000; i++)
        sum += sqrt(i) / i;
    printf("%.12f\n", sum);
    return 0;
}
"""
COMPILE = f"""cat >/root/p.c <<'END'
{PROGRAM}
END
gcc -O2 -Wall -o /root/p /root/p.c -lm && /root/p"""
# One after the other, as C does: sum() has a more exact way since Python 3.12.
SUM = f"{functools.reduce(operator.add, (math.sqrt(i) / i for i in range(1, 100001))):.12f}"
FILL = ("sqlite3 /root/t.db \"create table t (n integer primary key, v text, w real); "
        "with recursive c(n) as (select 1 union all select n+1 from c where n<20000) "
        "insert into t select n, hex(n*n), n/7.0 from c; "
        "create index i on t(v); select count(*), sum(length(v)) from t; "
        "select n from t where v = hex(144); pragma integrity_check;\"")
CLASSES = ["cpu", "vm", "io", "fork", "futex", "sigsegv", "sigfpe", "sigq", "sigrt", "sigpending"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def need_image(t):
    if not (DEBIAN / "disk.img").exists():
        t.skip("build/images/debian is not built: make image-debian")


class Server:
    """A Debian guest while it is recorded."""

    def __init__(self, t, name, *options, disk=None):
        need_image(t)
        if not shutil.which("ssh"):
            t.skip("ssh is not installed")
        self.t, self.name = t, name
        self.ssh_port, self.http_port = free_port(), free_port()
        self.key = t.dir / "key"
        shutil.copy(DEBIAN / "id_ed25519", self.key)
        self.key.chmod(0o600)
        self.log = t.dir / (name + ".console")
        self.out = open(self.log, "wb")
        self.child = t.start(
            [t.reprise, "record", "-o", t.dir / name, "--memory", "1G",
             "--kernel", DEBIAN / "vmlinuz", "--initrd", DEBIAN / "initrd",
             "--append", "root=/dev/vda1 ro quiet", "--disk", disk or DEBIAN / "disk.img",
             "--net", f"user,hostfwd=tcp::{self.ssh_port}-:22,hostfwd=tcp::{self.http_port}-:80",
             *options], stdout=self.out)

    def ssh(self, command, timeout=120, code=0, **more):
        """Runs a command in the guest; its output."""
        return self.t.run("ssh", "-i", self.key, "-p", str(self.ssh_port), "-o", "BatchMode=yes",
                          "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                          "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=20",
                          "-o", "ServerAliveInterval=30", "root@127.0.0.1", command,
                          timeout=timeout, code=code, **more).text

    def ready(self, seconds=120):
        """Waits until somebody can log in."""
        end = time.monotonic() + seconds * self.t.slow
        while time.monotonic() < end:
            if self.child.poll() is not None:
                self.finish()
                raise Failure("the recorder ended before the guest was ready")
            r = self.t.run("ssh", "-i", self.key, "-p", str(self.ssh_port), "-o", "BatchMode=yes",
                           "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
                           "-o", "LogLevel=ERROR", "-o", "ConnectTimeout=5", "root@127.0.0.1",
                           "systemctl is-system-running --wait", timeout=90, code=None)
            if r.text.strip() in ("running", "degraded"):
                return r.text.strip()
            time.sleep(0.5)
        raise Failure(f"nobody can log in after {seconds} s")

    def get(self, connection, path="/"):
        connection.request("GET", path)
        return connection.getresponse().read()

    def requests(self, n, each=50):
        """n pages of nginx, so many on one connection; the bytes of all."""
        total = 0
        for first in range(0, n, each):
            c = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=30)
            for _ in range(min(each, n - first)):
                page = self.get(c)
                self.t.check(b"Welcome to nginx" in page, f"a page is {page[:60]!r}")
                total += len(page)
            c.close()
        return total

    def finish(self, timeout=300):
        try:
            _, err = self.child.communicate(timeout=timeout * self.t.slow)
        except subprocess.TimeoutExpired:
            self.child.kill()
            _, err = self.child.communicate()
            raise Failure(f"the recorder did not end within {timeout} s")
        finally:
            self.out.close()
            self.t.show(self.child.returncode, self.log.read_bytes(), err)
        return self.child.returncode

    def off(self):
        self.ssh("systemctl poweroff", code=None)
        self.t.equal(self.finish(), 0, "the recorder's exit code")

    def verify(self, timeout=600):
        r = self.t.replay(self.name, timeout=timeout)
        self.t.equal(r.out, self.log.read_bytes(), "the console of the replay")
        return r


def session(t, name="rec", requests=2000, stress=10, *options):
    """The session of the issue: everything a small server does in a day."""
    s = Server(t, name, *options)
    s.ready()
    t.equal(s.ssh(COMPILE).strip(), SUM, "what the compiled program printed")
    got = s.ssh(FILL).split()
    t.equal(got[0].split("|")[0], "20000", "rows in the table")
    t.equal(got[-1], "ok", "sqlite's integrity check")
    s.requests(requests)
    if stress:
        args = " ".join(f"--{c} 1" for c in CLASSES)
        out = s.ssh(f"stress-ng {args} --vm-bytes 64M -t {stress}s --verify --metrics-brief 2>&1",
                    timeout=60 + 20 * stress)
        t.has(out, r"successful run completed", "stress-ng")
    s.off()
    return s


@test("debian/session", cost=150)
def debian_session(t):
    s = session(t, requests=300, stress=3)
    r = s.verify()
    return f"{r.seconds:.0f} s to replay"


MARKER = """#include "reprise-mark.h"
int main(void)
{
    reprise_mark("from C");
    return 0;
}
"""


@test("debian/agent", cost=60)
def debian_agent(t):
    """A domain that virsh defined, Debian with the agent as its service: programs, copies both ways, marks of a C and a
    shell program, a crash and a panic. Its replay has no agent and no libvirt."""
    libvirt.need(t, ("libvirtd", "libvirt-daemon"), ("virsh", "libvirt-clients"))
    need_image(t)
    (t.dir / "server.xml").write_text(libvirt.linux_domain(t, "server", libvirt.disk(DEBIAN / "disk.img"), "test",
                                                           append="root=/dev/vda1 ro quiet panic=-1", image="debian", memory=1024))
    daemon = libvirt.Daemon(t)
    agent = t.dir / "agent"
    try:
        daemon.wait(t)
        daemon.say(t, f"define {t.dir}/server.xml", "defined from")
        child = t.start([t.reprise, "record", "--libvirt", f"{daemon.uri}/server", "-o", t.dir / "rec", f"--agent={agent}"])
        while not agent.is_socket():
            t.check(child.poll() is None, "the recorder ended")
            time.sleep(0.1)
    finally:
        daemon.close()

    def guest(*argv, code=0, **more):
        return t.run(t.reprise, "exec", "--timeout", 240, agent, "--", *argv, code=code, timeout=300, **more)

    # The initramfs' agent answers first; it ends when the disk's system begins.
    for _ in range(100):
        if re.match("running|degraded", guest("systemctl", "is-system-running", "--wait", code=None).text):
            break
        time.sleep(0.5)
    else:
        raise Failure("the system is not up")
    data = rnd.randbytes(20_000_000)
    (t.dir / "data").write_bytes(data)
    (t.dir / "m.c").write_text(MARKER)
    t.run(t.reprise, "cp", t.dir / "data", t.dir / "m.c", ROOT / "guest-agent/reprise-mark.h", f"{agent}:/root/")
    t.equal(guest("md5sum", "/root/data").text.split()[0], hashlib.md5(data).hexdigest(), "what came in")
    guest("gcc", "-O2", "-Wall", "-Werror", "-o", "/root/m", "/root/m.c")
    guest("/root/m")
    guest("sh", "-c", "reprise-agent mark from-a-shell")
    guest("sh", "-c", "kill -SEGV $$", code=128 + 11)
    t.run(t.reprise, "cp", f"{agent}:/root/data", t.dir / "back")
    t.check((t.dir / "back").read_bytes() == data, "what came out is something else")
    guest("sh", "-c", "echo c >/proc/sysrq-trigger", code=None)
    out, err = child.communicate(timeout=120 * t.slow)
    t.show(child.returncode, out, err)
    t.equal(child.returncode, PANIC, "the recorder's exit code")
    (t.dir / "data").unlink()
    t.equal(t.replay("rec", timeout=600).out, out, "the console of the replay")
    lines = [json.loads(x) for x in t.run(t.reprise, "marks", "--json", t.dir / "rec", timeout=600).out.splitlines()]
    t.equal([(x["kind"], x["program"]) for x in lines],
            [("mark", "/root/m"), ("mark", "reprise-agent mark from-a-shell"), ("crash", "sh -c kill -SEGV $$"),
             ("panic", "sh -c echo c >/proc/sysrq-trigger")], "marks")
    return f"{t.info('rec')['position'] / 1e9:.1f} G instructions"


WRITER = """cat >/root/writer.py <<'END'
import hashlib, sqlite3
db = sqlite3.connect("/root/cut.db")
db.execute("create table t (n integer primary key, v text)")
n = 0
while True:
    with db:
        for _ in range(5):
            db.execute("insert into t values (?, ?)",
                       (n, hashlib.md5(str(n).encode()).hexdigest() * 4))
            n += 1
        if n % 20 == 0:
            db.execute("delete from t where n % 7 = 3 and n > ?", (n - 40,))
END
nohup python3 /root/writer.py >/dev/null 2>&1 &
sleep 4"""
ASK = "pragma integrity_check; select count(*), max(n), sum(length(v)) from t;"


def partition(path, out):
    """The first partition of a disk, by sfdisk, as a file of its own with holes."""
    sfdisk = shutil.which("sfdisk", path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    table = json.loads(subprocess.run([sfdisk, "--json", path], check=True,
                                      capture_output=True).stdout)["partitiontable"]
    size = table.get("sectorsize", 512)
    first = table["partitions"][0]
    with open(path, "rb") as f, open(out, "wb") as g:
        f.seek(first["start"] * size)
        left = first["size"] * size
        while left:
            piece = f.read(min(left, 1 << 20))
            if piece.count(0) == len(piece):
                g.seek(len(piece), 1)
            else:
                g.write(piece)
            left -= len(piece)
        g.truncate(first["size"] * size)


def ask_on_host(t, image):
    """What fsck and sqlite say of a disk, here."""
    part = t.dir / "part.img"
    partition(image, part)
    fsck = t.run(tool("e2fsck"), "-fy", part, code=(0, 1)).text
    for name in ("cut.db", "cut.db-journal", "cut.db-wal"):
        target = t.dir / name
        target.unlink(missing_ok=True)
        t.run(tool("debugfs"), "-R", f"dump /root/{name} {target}", part)
        if target.exists() and target.stat().st_size == 0:
            target.unlink()
    part.unlink()
    db = sqlite3.connect(t.dir / "cut.db")
    said = [row[0] for row in db.execute("pragma integrity_check")]
    said.append("|".join(str(v) for v in
                         db.execute("select count(*), max(n), sum(length(v)) from t").fetchone()))
    db.close()
    return fsck, said


def ask_in_guest(t, image):
    """The same of a guest that boots from it."""
    s = Server(t, "after", disk=image)
    s.ready()
    fsck = s.ssh("journalctl -b -o cat -u systemd-fsck-root; dmesg | grep -i 'EXT4-fs'", code=None)
    said = s.ssh(f"sqlite3 /root/cut.db '{ASK}'").split()
    s.off()
    return fsck, said


def cut(t, position):
    image = t.dir / "cut.img"
    image.unlink(missing_ok=True)
    t.run(t.reprise, "disk", t.dir / "rec", "export", "--at", f"insn:{position}", "-o", image,
          timeout=300)
    fsck, here = ask_on_host(t, image)
    t.equal(here[0], "ok", f"sqlite's integrity check of the disk at {position}")
    t.lacks(fsck, "Multiply-claimed|Corrupt|lost\\+found", "e2fsck")
    booted, there = ask_in_guest(t, image)
    t.equal(there, here, f"what sqlite says inside a guest booted from the disk at {position}")
    t.has(booted, "recovery complete|clean", "the guest's fsck and journal")
    image.unlink()
    return here[1]


@test("debian/powercut", cost=120)
def powercut(t):
    """A database whose machine lost power at a random position, as this host and a guest see it."""
    for name in ("sfdisk", "e2fsck", "debugfs"):
        if not tool(name):
            t.skip(f"{name} is not installed")
    s = Server(t, "rec")
    s.ready()
    s.ssh(WRITER)
    s.child.terminate()
    s.finish()
    end = t.info("rec")["position"]
    # The last seconds: the writer was at work from about there on.
    position = rnd.randrange(end - end // 20, end)
    rows = cut(t, position)
    return f"position {position}: {rows}"


def http_exchanges(t, name):
    """What tshark finds in the capture: requests, answers, and whatever is not whole."""
    t.run(t.reprise, "pcap", t.dir / name, "-o", "traffic.pcapng", timeout=600)
    shown = t.run("tshark", "-r", "traffic.pcapng", "-Y", "http", "-T", "fields", "-e",
                  "http.request.method", "-e", "http.response.code", "-e",
                  "http.content_length", "-e", "http.file_data", timeout=600).text
    rows = [line.split("\t") for line in shown.splitlines()]
    asked = sum(row[0] == "GET" for row in rows)
    answered = [row for row in rows if row[1] == "200"]
    whole = sum("Welcome to nginx" in bytes.fromhex(row[3].replace(":", "")).decode("latin-1")
                if all(c in "0123456789abcdef:" for c in row[3]) else "Welcome to nginx" in row[3]
                for row in answered if len(row) > 3)
    bad = t.run("tshark", "-r", "traffic.pcapng", "-Y",
                "tcp.analysis.lost_segment or tcp.analysis.ack_lost_segment or _ws.malformed",
                timeout=600).text
    return asked, len(answered), whole, bad


@test("debian/day", cost=1200)
def day(t):
    """The whole session: 2,000 requests, ten seconds of stress-ng, ten replays, its capture."""
    s = session(t, requests=2000, stress=10)
    for _ in range(10):
        s.verify()
    counts = "no tshark"
    if shutil.which("tshark"):
        asked, answered, whole, bad = http_exchanges(t, "rec")
        t.equal((asked, answered, whole), (2000, 2000, 2000), "requests, answers, whole pages")
        t.equal(bad, "", "what tshark finds wrong with the capture")
        counts = f"{whole} exchanges whole in tshark"
    return f"ten replays the same; {counts}"
