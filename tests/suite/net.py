"""Networks: a guest that is talked to while it is recorded, its replay, and what was on the wire."""
import hashlib
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

from suite.boot import image
from suite.harness import DIVERGED, ERROR, HALTED, IMAGES, USAGE, Failure, Session, rnd, test

LEASE = """[ "$1" = bound ] || exit 0
ip addr add $ip/$mask dev $interface
[ -z "$router" ] || ip route add default via $router
echo "LEASE $ip router=$router dns=$dns name=$hostname"
"""
UP = """ip link set lo up
for d in /sys/class/net/eth*; do
    d=${d##*/}
    ip link set $d up
    udhcpc -i $d -q -n -s /lease 2>/dev/null
done
"""
ECHO = UP + "/echod\n"


def guest_files(t, name, script):
    for path, text in ((name + ".sh", script), ("lease", LEASE)):
        (t.dir / path).write_text(text)
        (t.dir / path).chmod(0o755)
    files = ["--add", f"{t.dir}/{name}.sh:/script.sh", "--add", f"{t.dir}/lease:/lease"]
    for program in ("echod", "frames"):
        if "/" + program in script:
            path = IMAGES / "guest" / program
            t.check(path.exists(), f"{path} is missing: make test-build")
            files += ["--add", f"{path}:/{program}"]
    return files


def batch(t, name, script, *options, **more):
    """Records a script, /dev/null as its console's input."""
    append = "quiet reprise.script=/script.sh"
    return t.linux(name, *guest_files(t, name, script), *options, append=append, **more)


class Guest(Session):
    """A guest that runs `script` until it says READY; its forwarded ports are in .port."""

    def __init__(self, t, name, script, *options, ready="^READY", env=None):
        super().__init__(t, name, *guest_files(t, name, script), *options,
                         append="quiet reprise.script=/script.sh", env=env)
        self.wait(ready)
        self.port = {}
        said = rb"network (\d): (\w+) port (\d+) of \S+ leads to port (\d+)"
        for unit, kind, host, guest in re.findall(said, self.err):
            self.port[int(unit), kind.decode(), int(guest)] = int(host)

    def tcp(self, port, seconds=20):
        s = socket.create_connection(("127.0.0.1", self.port[0, "tcp", port]), seconds)
        s.settimeout(seconds)
        return s


def exactly(s, n):
    data = b""
    while len(data) < n:
        more = s.recv(min(65536, n - len(data)))
        if not more:
            raise Failure(f"the connection ended after {len(data)} of {n} bytes")
        data += more
    return data


def echo(s, data):
    s.sendall(data)
    return exactly(s, len(data))


# pcapng, as far as `reprise pcap` writes it


def pcapng(data):
    """Interfaces (options by number) and packets (interface, ns, options, frame)."""
    interfaces, packets, at = [], [], 0

    def options(body):
        found, i = {}, 0
        while i + 4 <= len(body):
            code, size = struct.unpack_from("<HH", body, i)
            if not code:
                break
            found[code] = body[i + 4:i + 4 + size]
            i += 4 + (size + 3) // 4 * 4
        return found

    while at < len(data):
        kind, size = struct.unpack_from("<II", data, at)
        body, last = data[at + 8:at + size - 4], struct.unpack_from("<I", data, at + size - 4)[0]
        if size % 4 or last != size:
            raise Failure(f"the block at {at} has lengths {size} and {last}")
        if kind == 0x0a0d0d0a:
            assert struct.unpack_from("<IHH", body) == (0x1a2b3c4d, 1, 0)
        elif kind == 1:
            assert struct.unpack_from("<H", body)[0] == 1
            interfaces.append(options(body[8:]))
        elif kind == 6:
            number, high, low, size_here, size_there = struct.unpack_from("<IIIII", body)
            assert size_here == size_there
            padded = (size_here + 3) // 4 * 4
            packets.append((number, high << 32 | low, options(body[20 + padded:]),
                            body[20:20 + size_here]))
        else:
            raise Failure(f"a block of type {kind:#x}")
        at += size
    return interfaces, packets


def capture(t, name, *options):
    out = t.dir / (name + ".pcapng")
    r = t.run(t.reprise, "pcap", t.dir / name, "-o", out, "--force", "--json", *options)
    interfaces, packets = pcapng(out.read_bytes())
    said = json.loads(r.out)
    t.equal(said["frames_in"] + said["frames_out"], len(packets), "frames said to be written")
    return interfaces, packets


def inbound(packet):
    return {1: True, 2: False}[struct.unpack("<I", packet[2][2])[0] & 3]


def payload(packets, port, to_guest):
    """Bytes of the TCP connections to the guest's `port` in one direction, by the client's port:
    segments by sequence number, so that what was sent twice counts once."""
    streams = {}
    for p in packets:
        frame = p[3]
        if inbound(p) != to_guest or frame[12:14] != b"\x08\x00" or frame[23] != 6:
            continue
        ip = frame[14:14 + struct.unpack(">H", frame[16:18])[0]]
        tcp = ip[(ip[0] & 15) * 4:]
        source, there, seq = struct.unpack(">HHI", tcp[:8])
        if (there if to_guest else source) != port:
            continue
        stream = streams.setdefault(source if to_guest else there, {})
        if tcp[13] & 2:
            stream["start"] = seq + 1
        elif tcp[(tcp[12] >> 4) * 4:]:
            stream[seq] = tcp[(tcp[12] >> 4) * 4:]
    result = {}
    for client, stream in streams.items():
        start, data = stream.pop("start"), bytearray()
        for seq in sorted(stream, key=lambda s: (s - start) % 2 ** 32):
            offset = (seq - start) % 2 ** 32
            data[offset:offset + len(stream[seq])] = stream[seq]
        result[client] = bytes(data)
    return result


# The whole


@test("net/session", cost=12)
def session(t):
    """DHCP, TCP and UDP from the host; the replay is exact, from its checkpoints too; the capture holds
    what the client saw."""
    image(t)
    g = Guest(t, "rec", ECHO, "--checkpoint-every", "0.3", "--net",
              "user,hostfwd=tcp::0-:7,hostfwd=udp:127.0.0.1:0-:7,hostname=guest-one,mtu=1400")
    t.has(g.out.decode(), r"LEASE 10\.0\.2\.15 router=10\.0\.2\.2 dns=10\.0\.2\.3 name=guest-one")
    rnd = random.Random(7)
    sent = {}
    clients = [g.tcp(7) for _ in range(3)]
    for round_ in range(4):
        for s in clients:
            data = rnd.randbytes(rnd.randrange(1, 9000))
            t.equal(echo(s, data), data, "what came back")
            sent[s] = sent.get(s, b"") + data
        time.sleep(0.1)
    u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    u.settimeout(10)
    for size in (1, 100, 1372, 4000):  # the last one in fragments
        data = rnd.randbytes(size)
        u.sendto(data, ("127.0.0.1", g.port[0, "udp", 7]))
        t.equal(u.recv(65536), data, f"a datagram of {size} bytes")
    for s in clients[1:]:
        s.close()
    clients[0].sendall(b"bye\n")
    sent[clients[0]] += b"bye\n"
    g.finish()
    replayed = t.replay("rec")
    t.equal(replayed.out, g.out, "the console of the replay")

    interfaces, packets = capture(t, "rec")
    t.equal([(i[2], i[6]) for i in interfaces], [(b"net0", bytes.fromhex("525400123456"))],
            "interfaces")
    want = sorted(sent.values())
    t.equal(sorted(payload(packets, 7, True).values()), want, "what the capture says was sent")
    t.equal(sorted(payload(packets, 7, False).values()), want, "what came back, in the capture")
    info = t.info("rec")
    t.equal(max(len(p[3]) for p in packets) <= 1414, True, "frames fit the MTU")
    events = [e for e in t.events("rec") if e["type"] == "packet"]
    came = [p for p in packets if inbound(p)]
    t.equal([(f"insn:{e['position']}".encode(), e["data"].encode("latin-1"),
              info["wall_clock"] * 10 ** 9 + e["time"]) for e in events],
            [(p[2][1], p[3], p[1]) for p in came], "packets in, in log and capture")
    t.check([p[1] for p in packets] == sorted(p[1] for p in packets), "times go forwards")

    # Part of it, both ends included, and the same bytes.
    middle = [e for e in events if e["position"] != events[0]["position"]]
    a, b = middle[len(middle) // 3], middle[2 * len(middle) // 3]
    _, part = capture(t, "rec", "--from", f"event:{a['index']}", "--to", f"event:{b['index']}")
    base = info["wall_clock"] * 10 ** 9
    t.equal([p for p in part if inbound(p)],
            [p for p in came if base + a["time"] <= p[1] <= base + b["time"]], "packets in of a part")
    t.equal(part, [p for p in packets if base + a["time"] <= p[1] <= base + b["time"]],
            "packets of a part")

    # Anywhere in it.
    for e in rnd.sample(events, 4):
        r = t.run(t.reprise, "replay", "--to", f"event:{e['index']}", "--json", t.dir / "rec")
        there = json.loads(r.out)
        t.equal((there["position"], there["time"]), (e["position"], e["time"]), "a packet's place")
    text = t.run(t.reprise, "events", t.dir / "rec").text
    t.has(text, r"packet .*data=\d+ bytes \S+ > 52:54:00:12:34:56 IPv4 TCP "
          r"10\.0\.2\.2:\d+ > 10\.0\.2\.15:7 \[PA\] seq \d+ ack \d+ len \d+$")
    t.has(text, r"packet .* ARP 10\.0\.2\.2 is at ")
    t.has(text, r"packet .* UDP 10\.0\.2\.2:67 > 255\.255\.255\.255:68 ")
    peers(t, packets)
    return f"{len(packets)} frames"


def peers(t, packets):
    """What others make of the file."""
    tool = shutil.which("tshark")
    if tool:
        out = t.run(tool, "-r", t.dir / "rec.pcapng", "-T", "fields", "-e", "frame.time_epoch",
                    "-e", "frame.comment").text.splitlines()
        t.check(len(out) > 10, "tshark reads the capture")
    elif shutil.which("tcpdump"):
        r = t.run("tcpdump", "-n", "-r", t.dir / "rec.pcapng")
        t.check(len(r.text.splitlines()) > 10, "tcpdump reads the capture")


@test("net/transfer", cost=12)
def transfer(t):
    """Megabytes each way: hashes agree, and the log takes no more than came in."""
    image(t)
    size = 6 << 20
    # A connection that comes before nc listens is refused.
    script = UP + """
listens() { until grep -q ":$1 [0-9A-F]*:0000 0A" /proc/net/tcp*; do sleep 0.05; done; }
nc -l -p 9 >/tmp/up &
listens 0009
echo READY
wait
sha256sum /tmp/up
dd if=/dev/urandom of=/tmp/down bs=64k count=96 2>/dev/null
sha256sum /tmp/down
nc -l -p 10 </tmp/down &
listens 000A
echo SECOND
wait
"""
    g = Guest(t, "rec", script, "--net", "user,hostfwd=tcp::0-:9,hostfwd=tcp::0-:10")
    data = random.Random(3).randbytes(size)
    s = g.tcp(9)
    began = time.monotonic()
    s.sendall(data)
    s.shutdown(socket.SHUT_WR)
    while s.recv(1000):
        pass
    up = time.monotonic() - began
    s.close()
    g.wait("^SECOND")
    s = g.tcp(10)
    down, began = b"", time.monotonic()
    while len(down) < size:
        more = s.recv(1 << 20)
        if not more:
            break
        down += more
    seconds = time.monotonic() - began
    s.close()
    g.finish()
    hashes = re.findall(r"([0-9a-f]{64})  /tmp/(\w+)", g.out.decode())
    t.equal(dict((n, h) for h, n in hashes), {"up": hashlib.sha256(data).hexdigest(),
                                             "down": hashlib.sha256(down).hexdigest()}, "hashes")
    t.replay("rec")
    info = t.info("rec")
    came = sum(len(e["data"]) for e in t.events("rec") if e["type"] == "packet")
    t.check(info["log_bytes"] <= came, f"the log has {info['log_bytes']} bytes for {came} of packets")
    return f"{size / up / 1e6:.0f} MB/s in, {size / seconds / 1e6:.0f} MB/s out"


@test("net/perturbed", cost=6)
def perturbed(t):
    """One bit of one packet changed on replay is found."""
    image(t)
    batch(t, "rec", UP + "ping -c 3 -i 0.2 10.0.2.2\n", "--net", "user")
    inputs = [e for e in t.events("rec") if e["type"] not in ("start", "note", "progress", "ram", "end")]
    number = 1 + max(i for i, e in enumerate(inputs) if e["type"] == "packet" and
                     len(e["data"]) == 98)  # an answer to a ping
    t.replay("rec")
    r = t.replay("rec", code=DIVERGED, env={"REPRISE_TEST_PERTURB": number})
    t.has(r.error, "the replay diverged at position", "the report")
    t.has(r.error, r"packet .* data=98 bytes .* ICMP 10\.0\.2\.2 > 10\.0\.2\.15 type 0", "the report")
    return f"input {number}"


@test("net/two", cost=5)
def two(t):
    """Two networks: names, addresses, MACs; one of them leads nowhere."""
    image(t)
    script = UP + """
for d in eth0 eth1; do cat /sys/class/net/$d/address /sys/class/net/$d/mtu; done
ping -c 1 -W 2 10.0.2.2 | grep -c 'from 10.0.2.2'
ping -c 1 -W 2 192.168.7.2 | grep -c 'from 192.168.7.2'
"""
    r = batch(t, "rec", script, "--net", "user,restrict=on,ipv6=off", "--net",
              "user,net=192.168.7.0/26,mac=02:00:00:ab:cd:ef,mtu=9000,dns=192.168.7.9,"
              "dhcpstart=192.168.7.20")
    t.has(r.text, r"LEASE 10\.0\.2\.15 router= dns= name=")
    t.has(r.text, r"LEASE 192\.168\.7\.20 router=192\.168\.7\.2 dns=192\.168\.7\.9")
    t.has(r.text, "^52:54:00:12:34:56\n1500\n02:00:00:ab:cd:ef\n9000\n1\n1$")
    t.same("rec", r)
    interfaces, packets = capture(t, "rec")
    t.equal([i[2] for i in interfaces], [b"net0", b"net1"], "interfaces")
    t.equal({p[0] for p in packets}, {0, 1}, "interfaces with packets")
    only, few = capture(t, "rec", "--net", "1")
    t.equal([i[6].hex() for i in only], ["020000abcdef"], "the one interface")
    t.equal([p[1:] for p in few], [p[1:] for p in packets if p[0] == 1], "its packets")
    piped = t.run(t.reprise, "pcap", t.dir / "rec", "-o", "-")
    t.equal(piped.out, (t.run(t.reprise, "pcap", t.dir / "rec", "-o", t.dir / "again"),
                        (t.dir / "again").read_bytes())[1], "the capture through a pipe")
    info = t.run(t.reprise, "info", t.dir / "rec").text
    t.has(info, r"^network 0 +user, restricted, 52:54:00:12:34:56, MTU 1500$")
    t.has(info, r"^network 1 +user, 02:00:00:ab:cd:ef, MTU 9000$")
    none = batch(t, "none", "ls /sys/class/net\n", "--net", "user", "--net", "none")
    t.lacks(none.text, "eth0")


@test("net/outside", cost=4)
def outside(t):
    """What listens on the host's loopback is 10.0.2.2 to the guest, unless the network is restricted;
    forwarded ports lead into that one too."""
    image(t)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        script = UP + f"""/echod &
echo secret | nc -w 3 10.0.2.2 {port} && echo OUT || echo HELD
wait
"""
        for options, word in (("", "OUT"), (",restrict=on", "HELD")):
            name = "rec" + word
            g = Guest(t, name, script, "--net", f"user,hostfwd=tcp::0-:7{options}", ready="^READY")
            s.settimeout(10 if word == "OUT" else 1)
            try:
                c, _ = s.accept()
                c.settimeout(10)
                got = c.recv(100)
                c.close()
            except socket.timeout:
                got = None
            t.equal(got, b"secret\n" if word == "OUT" else None, f"what came out with '{options}'")
            g.wait(f"^{word}")
            c = g.tcp(7)
            t.equal(echo(c, b"in"), b"in", "what came back through hostfwd")
            c.sendall(b"bye\n")
            g.finish()
            t.replay(name)


@test("net/hostile", cost=6)
def hostile(t):
    """Malformed frames, thousands of them: recorder and backend live on, the capture has them all."""
    image(t)
    seed = rnd.randrange(10 ** 6)
    count = 20000
    r = batch(t, "rec", UP + f"""/frames {seed} {count}
ip addr flush dev eth0
udhcpc -i eth0 -q -n -s /lease 2>/dev/null
ping -c 1 10.0.2.2 | grep 'bytes from'
""", "--net", "user,restrict=on")
    t.has(r.text, f"FRAMES {count} of {count}", f"seed {seed}")
    t.equal(r.text.count("LEASE 10.0.2.15"), 2, f"leases (seed {seed})")
    t.has(r.text, "bytes from 10.0.2.2", f"seed {seed}")
    t.same("rec", r)
    _, packets = capture(t, "rec")
    t.check(sum(not inbound(p) for p in packets) > count, "the capture has what was sent")
    return f"seed {seed}"


# Time


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@test("net/pacing", cost=14)
def pacing(t):
    """With a network, and nobody at the console: a second is a second for host and guest, and costs
    little; a busy guest still answers; a host that was stopped is no time for the guest."""
    image(t)
    script = UP + """
/echod &
uptime_() { cut -d' ' -f1 /proc/uptime; }
sleep 1  # while it starts it may fall behind the host, and catches up when it waits
echo "T0 $(uptime_)"; sleep 3; echo "T1 $(uptime_)"
(while :; do :; done) &
busy=$!
sleep 1
echo BUSY
sleep 2
kill $busy
echo "CALM $(uptime_)"
sleep 2
echo "STOPPED $(uptime_)"
wait
"""
    g = Guest(t, "rec", script, "--net", "user,hostfwd=tcp::0-:7", ready=r"^T0 [\d.]+\s")
    began, cpu = time.monotonic(), cpu_seconds(g.child.pid)
    g.wait(r"^T1 [\d.]+\s")
    slept, cost = time.monotonic() - began, cpu_seconds(g.child.pid) - cpu
    t0, t1 = (float(re.search(rb"%s ([\d.]+)" % k, g.out).group(1)) for k in (b"T0", b"T1"))
    t.check(2.95 < t1 - t0 < 3.2, f"the guest's clock says {t1 - t0:.2f} s for `sleep 3`")
    t.check(2.7 < slept < 3.5 * t.slow, f"the host's clock says {slept:.2f} s for `sleep 3`")
    t.check(cost < 0.3 * t.slow, f"sleeping took {cost:.2f} s of CPU time")
    s = g.tcp(7)
    g.wait("^BUSY")
    busy = time.monotonic()
    t.equal(echo(s, b"still there?" * 100), b"still there?" * 100, "an answer of a busy guest")
    busy = time.monotonic() - busy
    g.wait(r"^CALM [\d.]+\s")
    os.kill(g.child.pid, signal.SIGSTOP)
    time.sleep(5)
    os.kill(g.child.pid, signal.SIGCONT)
    t.equal(echo(s, b"and now?"), b"and now?", "an answer after the host was stopped")
    g.wait(r"^STOPPED [\d.]+\s")
    calm, stopped = (float(re.search(rb"%s ([\d.]+)" % k, g.out).group(1))
                     for k in (b"CALM", b"STOPPED"))
    t.check(stopped - calm < 2.6, f"`sleep 2` while the host stood still took {stopped - calm:.2f} s")
    s.sendall(b"bye\n")
    g.finish()
    t.replay("rec")
    return f"sleep 3 took {slept:.2f} s, {100 * cost / slept:.1f}% CPU; busy answer {busy * 1e3:.0f} ms"


@test("net/limits", cost=6)
def limits(t):
    """A server waits for ever unless told otherwise; without pacing its time still jumps."""
    image(t)
    r = batch(t, "limit", UP + "echo READY\nsleep 100000\n", "--net", "user", "--idle-limit", "2",
              code=HALTED)
    t.has(r.error, "only waits")
    began = time.monotonic()
    r = batch(t, "jump", UP + "sleep 1200\necho WOKEN\n", "--net", "user", "--no-realtime",
              timeout=60)
    t.has(r.text, "WOKEN")
    t.check(time.monotonic() - began < 40 * t.slow, "time jumps without pacing")
    t.check(t.info("jump")["time"] > 1200e9, "the guest slept for twenty minutes")
    t.same("jump", r)


# A tap device


def run_ip(*args):
    return subprocess.run(["ip", *args], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


@test("net/tap", cost=8)
def tap(t):
    """A tap device: ping and TCP from the host, its state is the guest's link, it is taken away."""
    image(t)
    if os.geteuid():
        t.skip("only root makes tap devices")
    if not os.path.exists("/dev/net/tun"):
        t.skip("there is no /dev/net/tun")
    if not shutil.which("ip"):
        t.skip("the program ip (iproute2) is not installed")
    name = f"rt{os.getpid() % 100000}"
    if run_ip("tuntap", "add", "dev", name, "mode", "tap"):
        t.skip("this host does not let root make a tap device")
    try:
        tap_device(t, name)
    finally:
        run_ip("link", "del", name)


def tap_device(t, name):
    net = f"10.{os.getpid() % 200 + 20}.7"
    run_ip("addr", "add", net + ".1/24", "dev", name)
    run_ip("link", "set", name, "mtu", "2000", "up")
    script = f"""ip link set lo up
ip addr add {net}.2/24 dev eth0
ip link set eth0 up
cat /sys/class/net/eth0/mtu
ping -c 1 -W 5 {net}.1 | grep from
/echod &
echod=$!
(last=1; while kill -0 $echod; do now=$(cat /sys/class/net/eth0/carrier)
    [ $now = $last ] || echo LINK $now; last=$now; sleep 0.05; done) 2>/dev/null &
wait $echod
while sleep 0.1; do :; done
"""
    g = Guest(t, "rec", script, "--net", f"tap,ifname={name},mac=52:54:00:aa:bb:cc")
    t.has(g.out.decode(), "^2000\r$")
    t.has(g.out.decode(), f"from {net}.1")
    data = random.Random(5).randbytes(300000)
    s = socket.create_connection((net + ".2", 7), 20)
    s.settimeout(20)
    for i in range(0, len(data), 5000):
        t.equal(echo(s, data[i:i + 5000]), data[i:i + 5000], "what came back")
    second = t.record("second", "--net", f"tap,ifname={name}", kernel=IMAGES / "linux" / "vmlinuz",
                      code=ERROR)
    t.has(second.error, "another program uses")
    run_ip("link", "set", name, "down")
    g.wait("^LINK 0")
    run_ip("link", "set", name, "up")
    end = g.wait("^LINK 1")
    run_ip("link", "del", name)
    g.wait("^LINK 0", start=end)
    g.send(b"\x01x")
    g.finish()
    t.has(g.err.decode(), f"network 0: the tap device {name} is gone")
    t.equal(g.err.decode().count("is gone"), 1, "times it was said")
    t.replay("rec")
    interfaces, packets = capture(t, "rec")
    t.equal((interfaces[0][3], interfaces[0][6].hex()), (f"tap {name}".encode(), "525400aabbcc"),
            "the interface")
    t.equal(list(payload(packets, 7, True).values()), [data], "what was sent")
    t.equal(list(payload(packets, 7, False).values()), [data], "what came back")


# Bad input


@test("net/options", cost=3)
def options(t):
    """What --net does not take: said clearly, and nothing is left behind."""
    image(t)
    kernel = IMAGES / "linux" / "vmlinuz"

    def refused(spec, *patterns):
        r = t.record("rec", "--net", spec, kernel=kernel, code=ERROR)
        for p in patterns:
            t.has(r.error, p, f"--net {spec}")
        t.equal(len(r.error.splitlines()), 1, f"lines about --net {spec}")
        t.check(not (t.dir / "rec").exists(), "a recording was left")

    for spec in ("", "users", "User", "tap2,ifname=x", "bridge", "=", ","):
        refused(spec, "neither user, tap, unplugged nor none")
    for spec in ("user,", "user,,", "user,foo", "user,foo=1", "user,=,"):
        refused(spec, "there is no option", "hostfwd=.*, restrict=on.off, ")
    for bad in ("tcp", "tcp:", "tcp::", "tcp::22", "tcp::22-", "tcp::22-22", "tcp::22-:", "tcp::-:22",
                "tcp::22-:0", "tcp::65536-:22", "tcp::22-:65536", "tcp::-1-:22", "tcp::2 2-:22",
                "tcp::+22-:22", "tcp::022-:22", "sctp::22-:22", "TCP::22-:22", "tcp:1.2.3:22-:22",
                "tcp:1.2.3.256:22-:22", "tcp:1.2.3.4.5:22-:22", "tcp:localhost:22-:22",
                "tcp::22-:22x", "tcp::22-[::1]:22", "tcp::99999999999999999999-:22", "\u00e4" * 300):
        refused("user,hostfwd=" + bad, "hostfwd is tcp.udp:")
    for bad in ("", "0", "x", "575", "32001", "1500x", "-1500", "0x5dc", "4294968796"):
        refused("user,mtu=" + bad, "mtu is a number from 576 to 32000")
    for bad in ("", "0", "52:54:00:12:34", "52:54:00:12:34:5", "52:54:00:12:34:567",
                "52:54:00:12:34:56:78", "52-54-00-12-34-56", "01:00:5e:00:00:01",
                "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00", "5g:54:00:12:34:56"):
        refused("user,mac=" + bad, "mac is XX:XX")
    for bad in ("10.0.2.1/24", "10.0.2", "10.0.2.0/33", "10.0.2.0/28", "10.0.0.0/3", "10.0.2.0/", "x"):
        refused("user,net=" + bad, "net is ADDRESS")
    for name in ("restrict", "ipv6"):
        for bad in ("", "yes", "1", "onn", "o"):
            refused(f"user,{name}={bad}", f"{name} is on or off")
    for bad in ("", "-a", "a-", "a b", "a.b", "a" * 64, "\u00e4"):
        refused("user,hostname=" + bad, "hostname is a name")
    refused("user,dns=1.2.3.4", "no host's address in the network 10.0.2.0")
    refused("user,dhcpstart=10.0.2.255", "no host's address")
    refused("user,dhcpstart=10.0.2.2", "three addresses")
    refused("user,hostfwd=tcp::0-10.0.3.1:22", "not in the guest's network")
    refused("user,mtu=1400,mtu=1300", "mtu is given twice")
    refused("user" + ",hostfwd=tcp::0-:1" * 33, "at most 32")
    refused("tap", "which tap device", "ip tuntap add")
    refused("tap,foo", "there is no option", "ifname=NAME, mac=.*, mtu=N")
    refused("tap,hostfwd=tcp::0-:1", "hostfwd goes with user")
    refused("user,ifname=x", "ifname goes with tap")
    for bad in ("", "a/b", "x" * 16, "a b"):
        refused("tap,ifname=" + bad, "ifname is the name of a tap device")
    r = t.record("rec", *["--net", "user"] * 5, kernel=kernel, code=USAGE)
    t.has(r.error, "at most 4")


@test("net/taken", cost=2)
def taken(t):
    """Ports and devices that others have or that are not there."""
    image(t)
    kernel = IMAGES / "linux" / "vmlinuz"

    def refused(spec, *patterns):
        r = t.record("rec", "--net", spec, kernel=kernel, code=ERROR)
        for p in patterns:
            t.has(r.error, p, f"--net {spec}")
        t.check(not (t.dir / "rec").exists(), "a recording was left")

    with socket.socket() as s, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as u:
        s.bind(("127.0.0.1", 0))
        s.listen()
        u.bind(("127.0.0.1", 0))
        refused(f"user,hostfwd=tcp::{s.getsockname()[1]}-:22",
                f"cannot listen on tcp port {s.getsockname()[1]} of 127.0.0.1", "in use")
        refused(f"user,hostfwd=tcp::0-:1,hostfwd=udp::{u.getsockname()[1]}-:22",
                f"cannot listen on udp port {u.getsockname()[1]} of 127.0.0.1", "in use")
    refused("user,hostfwd=tcp:203.0.113.9:22345-:22", "port 22345 of 203.0.113.9", "assign")
    refused("tap,ifname=no-such-tap", "no network device no-such-tap", "ip tuntap add dev no-such-tap")
    if os.path.exists("/dev/net/tun") and os.path.exists("/sys/class/net/lo"):
        refused("tap,ifname=lo", "lo is (no tap device|not yours)")


@test("net/pcap-options", cost=4)
def pcap_options(t):
    """`reprise pcap` asked for what is not there."""
    image(t)
    batch(t, "none", "true\n")
    pcap = (t.reprise, "pcap")
    out = t.dir / "out"
    t.has(t.run(*pcap, t.dir / "none", "-o", out, code=ERROR).error, "no network")
    t.check(not out.exists(), "a file was left")
    batch(t, "rec", UP, "--net", "user")
    for args, code, pattern in (
            ((), USAGE, "which recording"), ((t.dir / "rec",), USAGE, "-o FILE is missing"),
            ((t.dir / "rec", "-o", "-", "--json"), USAGE, "both would go"),
            ((t.dir / "rec", "-o", out, "--net", "x"), USAGE, "not a number"),
            ((t.dir / "rec", "-o", out, "--net", "1"), ERROR, "has 1 network, .* there is no 1"),
            ((t.dir / "rec", "-o", out, "--from", "nowhere"), USAGE, "no point"),
            ((t.dir / "rec", "-o", out, "--from", "1000", "--to", "10"), ERROR, "lies before"),
            ((t.dir / "rec", "-o", out, "--to", "insn:9000G"), ERROR, "after the end"),
            ((t.dir / "nothing", "-o", out), ERROR, "nothing"),
            ((t.dir / "rec", "-o", t.dir / "no" / "dir"), ERROR, "cannot create")):
        r = t.run(*pcap, *args, code=code)
        t.has(r.error, pattern)
        t.check(not out.exists(), "a file was left")
    out.write_text("mine")
    t.has(t.run(*pcap, t.dir / "rec", "-o", out, code=ERROR).error, "--force")
    t.equal(out.read_text(), "mine", "the file that was there")
    t.run(*pcap, t.dir / "rec", "-o", out, "--force")
    t.check(len(pcapng(out.read_bytes())[1]) >= 4, "DHCP is in the capture")
    full = os.open("/dev/full", os.O_WRONLY)
    r = t.run(*pcap, t.dir / "rec", "-o", "-", code=ERROR, stdout=full)
    os.close(full)
    t.has(r.error, "cannot write")
