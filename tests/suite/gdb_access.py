"""Who may debug: gdb's port is this user's, and what comes over it writes no files of theirs."""
import os
import stat
import subprocess
import sys
import tempfile

from suite.gdb import Client, Server, connect
from suite.harness import ERROR, IMAGES, test

NOBODY = 65534
# Connects as another user, says what gdb says, and prints what comes back.
STRANGER = """
import os, socket, sys
"".encode("idna")  # loaded while it can be
os.setgid({0}); os.setuid({0})
host, _, port = sys.argv[1].rpartition(":")
try:
    s = socket.create_connection((host.strip("[]"), int(port)))
    s.settimeout(10)
    s.sendall(b"+$qC#b4")
    got = b""
    while b"#" not in got and (data := s.recv(100)):
        got += data
    print(got)
except OSError as e:
    print(type(e).__name__)
""".format(NOBODY)


def closed(s):
    """The server has hung up, without an answer."""
    s.settimeout(10)
    try:
        return s.recv(1000) == b""
    except ConnectionError:
        return True


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@test("gdb/private", cost=2)
def private(t):
    """Without an ENDPOINT gdb's socket is in a directory of its own, both this user's alone; nothing
    is left of it. So it is while recording."""
    t.tiny("rec", "paging")
    argv = ([t.reprise, "replay", "--gdb", t.dir / "rec"],
            [t.reprise, "record", "-o", t.dir / "live", "--memory", "16M", "--gdb", "--gdb-wait",
             "--kernel", IMAGES / "tiny" / "paging.elf"])
    for command in argv:
        with tempfile.TemporaryDirectory() as run:  # short enough for a socket, wherever the clone is
            server = Server(t, "rec", argv=command, env={"XDG_RUNTIME_DIR": run})
            t.check(server.address.startswith(f"{run}/reprise-"), f"it is {server.address}")
            t.equal((mode(server.address), mode(os.path.dirname(server.address))), (0o600, 0o700),
                    "the modes of the socket and its directory")
            c = Client(t, server=server)
            t.equal(c.position(), 0 if "record" in command else c.position(), "the position")
            c.sock.close()
            server.end()
            t.equal(os.listdir(run), [], "what is left")
    # A directory whose name is too long for a socket.
    deep = t.dir / ("x" * 100)
    deep.mkdir()
    server = Server(t, "rec", argv=argv[0], env={"XDG_RUNTIME_DIR": deep, "TMPDIR": deep})
    t.check(server.address.startswith("/tmp/reprise-"), f"it is {server.address}")
    server.end()
    t.check(not os.path.exists(os.path.dirname(server.address)), "its directory is left")


@test("gdb/strangers", cost=4)
def strangers(t):
    """At a TCP port: another user and a web page's request are turned away and named, and the next
    gdb is served; other addresses than this host's are opened only when asked."""
    t.tiny("rec", "paging")
    (t.dir / "mine.png").write_text("mine")
    command = f"screen {t.dir}/mine.png".encode().hex().encode()
    packet = b"$qRcmd,%s#%02x" % (command, sum(b"qRcmd," + command) & 255)
    for endpoint in ("127.0.0.1:0", "[::1]:0"):
        server = Server(t, "rec", "--to", "5000", endpoint=endpoint)
        for request in (b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" + packet,
                        b"$g#67 / HTTP/1.1\r\n\r\n" + packet, b"\x16\x03\x01\x02\x00" + packet):
            s = connect(server.address.replace("[::1]", "::1"))
            s.sendall(request)
            if request.startswith(b"$"):
                s.settimeout(10)
                got = b""
                try:
                    while data := s.recv(65536):
                        got += data
                except ConnectionError:
                    pass
                t.check(b"$O" not in got and got.count(b"#") <= 1, f"answers: {got[-200:]}")
            else:
                t.check(closed(s), f"{request[:20]} was answered")
            s.close()
        server.says("closed: what it sent is not gdb's protocol")
        if os.geteuid() == 0:
            r = t.run(sys.executable, "-c", STRANGER, server.address)
            t.has(r.text, r"^(b''|ConnectionResetError)$", "what another user was told")
            server.says(f"it came from the user with the number {NOBODY}")
        c = Client(t, server=server_of(server))
        t.equal(c.position(), 5000, "the position")
        c.sock.close()
        server.end()
    t.equal((t.dir / "mine.png").read_text(), "mine", "the user's file")
    for endpoint in ("0.0.0.0:0", "[::]:0"):
        r = t.run(t.reprise, "replay", f"--gdb={endpoint}", t.dir / "rec", code=ERROR, timeout=30)
        t.has(r.error, "whoever reaches that address could read and change the guest; put ,open")
    server = Server(t, "rec", "--to", "5000", endpoint="0.0.0.0:0,open")
    server.says("warning: whoever can connect there can read and change the guest")
    if os.geteuid() == 0:
        r = t.run(sys.executable, "-c", STRANGER,
                  "127.0.0.1:" + server.address.rpartition(":")[2])
        t.has(r.text, r"QC1", "what another user was told where anybody may come")
    server.end()


def server_of(server):
    """With the address as Python wants it."""
    return type("Address", (), {"address": server.address.replace("[::1]", "::1")})


@test("gdb/strangers-live", cost=3)
def live(t):
    """A machine that is being recorded does not stop for them, nor for one that says nothing."""
    server = Server(t, "rec", argv=[t.reprise, "record", "-o", t.dir / "rec", "--memory", "16M",
                                    "--gdb=127.0.0.1:0", "--max-insns", "4000000000", "--kernel",
                                    IMAGES / "tiny" / "spin.elf"], stdout=subprocess.DEVNULL)
    silent = connect(server.address)
    server.ended()  # before, the first of them stopped it for ever
    silent.close()
    server = Server(t, "rec", argv=[t.reprise, "record", "-o", t.dir / "rec2", "--memory", "16M",
                                    "--gdb=127.0.0.1:0", "--gdb-wait", "--kernel",
                                    IMAGES / "tiny" / "spin.elf"], stdout=subprocess.DEVNULL)
    s = connect(server.address)
    s.sendall(b"GET / HTTP/1.0\r\n\r\n")
    t.check(closed(s), "a web request was answered")
    s.close()
    c = Client(t, server=server)
    t.equal(c.position(), 0, "the position: it waits for gdb, and that was none")
    c.send("k")
    server.ended()
