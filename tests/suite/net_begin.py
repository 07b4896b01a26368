"""Networks of machines that begin in a recording: the cable goes out and in, or stays out; `reprise run --net`."""
import http.server
import re
import shutil
import socket
import subprocess
import threading

from suite.begin import begun
from suite.boot import image
from suite.harness import ERROR, USAGE, Session, test
from suite.net import UP, Guest, echo
from suite.net_user import links
from suite.run_program import OURS, own, replayed, run

# Says what the link does, and asks for an address again once it is there.
WATCH = UP + """/echod &
last=$(cat /sys/class/net/eth0/carrier) n=0
while [ $n -lt 30 ]; do
    now=$(cat /sys/class/net/eth0/carrier)
    if [ $now = $last ]; then [ $now = 1 ] || n=$((n + 1)); sleep 0.1; continue; fi
    echo "LINK $now"
    last=$now n=0
    [ $now = 0 ] || { udhcpc -i eth0 -q -n -s /lease 2>/dev/null; break; }
done
echo "ENDS $last"
[ $last = 0 ] || wait
"""


@test("begin/network", cost=12)
def network(t):
    """A new network instead of the other's: the link is down for a second, then up, a new lease, a port leads in; without
    one it stays down; `unplugged` is down from the beginning, and may have one later."""
    image(t)
    g = Guest(t, "rec", WATCH, "--net", "user,hostfwd=tcp::0-:7", "--checkpoint-end")
    c = g.tcp(7)
    t.equal(echo(c, b"before"), b"before", "an echo")
    g.send("\x01x")
    g.finish()

    def begins(name, *options, source="rec"):
        return Session(t, name, argv=[t.reprise, "record", "-o", t.dir / name, "--from", t.dir / source, *options])
    s = begins("other", "--net", "user,net=10.9.0.0/16,hostfwd=tcp::0-:7")
    s.wait("^ENDS 1")
    t.has(s.out.decode(), r"^LINK 0\s+LINK 1\s+LEASE 10\.9\.0\.15 router=10\.9\.0\.2 ")
    port = int(re.search(rb"network 0: tcp port (\d+)", s.err).group(1))
    with socket.create_connection(("127.0.0.1", port), 20) as c:
        c.settimeout(20)
        t.equal(echo(c, b"after"), b"after", "an echo of the other one")
        c.sendall(b"bye\n")
        s.finish()
    t.equal(links(t, "other"), [False, True], "what the guest was told of its link")
    down, up = (e["time"] for e in t.events("other") if e["type"] == "link")
    t.check(10 ** 9 <= up - down < 3 * 10 ** 9, f"the cable was out for {up - down} ns")
    alone = begins("alone")
    alone.finish()
    t.has(alone.out.decode(), r"^LINK 0\s+ENDS 0")
    t.equal(links(t, "alone"), [False], "without a network")
    shutil.rmtree(t.dir / "rec")
    for name, session in (("other", s), ("alone", alone)):
        t.has(t.replay(name).out.decode(), re.escape(session.out.decode()[-60:]))
    t.verify_checkpoints("other")
    for options, why, code in ((("--net", "user", "--net", "user"), "the machine has 1 network card, not 2", ERROR),
                               (("--net", "user,mac=52:54:00:00:00:01"), "has this card already, with its mac", ERROR),
                               (("--net", "unplugged,mtu=1000"), "has this card already, with its mtu", ERROR),
                               (("--net", "user,x=1"), "there is no option", ERROR),
                               (("--memory", "64M"), "--memory cannot be said again", USAGE)):
        t.has(begun(t, "x", "alone", "--at", "insn:1000", *options, code=code).error, why)
        t.check(not (t.dir / "x").exists(), "a recording is left")


@test("run/net", cost=8)
def run_net(t):
    """A program with a network: what listens here, names, git over http; without --net, or restricted, nothing."""
    own(t)
    (t.dir / "here").mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **more):
            super().__init__(*args, directory=str(t.dir / "served"), **more)

        def log_message(self, *_):
            pass
    made = t.dir / "served/made"
    made.mkdir(parents=True)
    (made / "file").write_text("of a repository\n")
    git = ["git", "-C", made, "-c", "user.name=n", "-c", "user.email=e"]
    if not shutil.which("git"):
        t.skip("git is not there")
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"], ["update-server-info"]):
        t.run(*git, *command)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://10.0.2.2:{server.server_address[1]}/made"
        r = run(t, "sh", "-c", f"git clone -q {url}/.git d && cat d/file; cat /etc/resolv.conf; uname -n", options=("--net", "--write", "."))
        t.equal(r.text, f"of a repository\nnameserver 10.0.2.3\n{socket.gethostname()}\n", "what it saw")
        t.equal((t.dir / "here/d/file").read_text(), "of a repository\n", "what it wrote")
        get = f"import urllib.request; print(urllib.request.urlopen('{url}/file', timeout=3).read())"
        for options in ((), ("--net=user,restrict=on",)):
            again = run(t, "python3", "-c", get, options=options, code=1)
            t.has(again.error, "URLError|timed out")
        r = run(t, "python3", "-c", get.replace("10.0.2.2", "10.7.0.2"), options=("--net=user,net=10.7.0.0/16",))
        t.equal(r.text, "b'of a repository\\n'\n", "in a network of other addresses")
        server.shutdown()
    replayed(t, r)
    for option, why in (("--net=tap,ifname=x", "only `user` is there"), ("--net=user,hostfwd=tcp::0-:1", "hostfwd from which port"),
                        ("--net=user,hostname=x", "hostname= is told by DHCP"), ("--net=x", "neither user, tap"),
                        ("--net=user,mtu=1000", "has this card already")):
        t.has(run(t, "true", options=(option,), code=OURS).error, why)
    t.has(t.run(t.reprise, "run", "--net", "user", "true", code=USAGE).error, "--net=user, with a =")


@test("run/net-port", cost=3)
def run_port(t):
    """A server that runs so is reached at a port of this host."""
    own(t)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    serve = "import socket; s = socket.create_server(('', 80)); print('ready', flush=True); c, _ = s.accept(); c.sendall(c.recv(9))"
    child = t.start([t.reprise, "run", f"--net=user,hostfwd=tcp::{port}-:80", "--", "python3", "-c", serve],
                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = child.stdout.readline()
    t.check(line == b"ready\n" or child.wait(), f"no server: {child.stderr.read() if line != b'ready' + bytes([10]) else ''}")
    with socket.create_connection(("127.0.0.1", port), 20) as c:
        c.sendall(b"hello")
        t.equal(c.recv(9), b"hello", "what came back")
    t.equal(child.wait(60 * t.slow), 0, "its exit status")
