"""Domains of libvirt's as machines: what becomes of their XML, and recordings of those that libvirt's tools defined."""
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import time

from suite.boot import image
from suite.harness import ERROR, IMAGES, ROOT, USAGE, test

HEAD = "<domain type='kvm'><name>d</name><memory unit='MiB'>512</memory><vcpu>1</vcpu>"
OS = "<os><type arch='x86_64'>hvm</type><kernel>/k</kernel></os>"
NONE = "option-that-is-not-there"


def need(t, *programs):
    if not (t.build / "reprise-libvirt").exists():
        t.skip("reprise-libvirt is not built: Debian's libvirt-dev and libxml2-dev are missing")
    for program, package in programs:
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            t.skip(f"{program} is missing: Debian's package {package}")


def domain(devices="", rest="", os_=OS, head=HEAD):
    return f"{head}{os_}{rest}<devices>{devices}</devices></domain>"


def become(t, xml, *options, code=0):
    """The words of the command line, and what was said."""
    r = t.run(t.reprise, "import-libvirt", "-", *(("--", *options) if options else ()), input=xml.encode(), code=code)
    return shlex.split(r.text), r.error


# XML, what is in the command line (a text, or words), what is said; the rest is a machine that is taken over whole.
WHOLE = None
CASES = (
    (domain(), "record -o d --memory 512M --kernel /k", WHOLE),
    (domain(head=HEAD.replace("512", "511")), "--memory 512M", WHOLE),
    (domain(head=HEAD.replace("<vcpu>1", "<vcpu>4")), "--cpus 4,cores=1", WHOLE),
    (domain(rest="<cpu><topology sockets='1' cores='2' threads='2'/></cpu>", head=HEAD.replace("<vcpu>1", "<vcpu>4")),
     "--cpus 4,cores=2,threads=2", WHOLE),
    (domain(rest="<cpu><topology sockets='1' cores='3' threads='1'/></cpu>", head=HEAD.replace("<vcpu>1", "<vcpu>3")),
     "--cpus 3,cores=3,threads=1", WHOLE),
    (domain(rest="<cpu><topology sockets='1' cores='3' threads='1'/></cpu>", head=HEAD.replace("<vcpu>1", "<vcpu>4")),
     "--cpus 4", "all CPUs are cores of one package"),
    (domain(rest="<cpu mode='custom'><model>Haswell-noTSX-IBRS</model><feature policy='require' name='avx2'/></cpu>"),
     "--cpu haswell", WHOLE),
    (domain(rest="<cpu><model>Haswell-noTSX</model><feature policy='require' name='rdrand'/><feature policy='disable' name='avx2'/></cpu>"),
     "--cpu haswell,+rdrand,-avx2", WHOLE),
    (domain(rest="<cpu><model>Nehalem</model><feature policy='require' name='vmx'/></cpu>"), "--cpu nehalem",
     "<feature name='vmx'>: no CPU model here has it"),
    (domain(rest="<cpu mode='host-passthrough'/>"), "--cpu x86-64-v", "so that the recording replays on other hosts"),
    (domain(rest="<clock offset='absolute' start='1700000000'/>"), "--wall-clock @1700000000", WHOLE),
    (domain(rest="<clock offset='localtime'/>"), NONE, "hardware clock shows UTC"),
    (domain(rest="<genid/>"), NONE, "generation ID"),
    (domain(os_="<os><type>hvm</type><kernel>auto</kernel><initrd>/a b</initrd><cmdline>x 'y'</cmdline></os>"),
     "--kernel ./auto --initrd '/a b' " + shlex.join(["--append", "x 'y'"]), WHOLE),
    (domain("<disk type='file'><source file='/i'/><target dev='vda'/></disk>", os_="<os><type>hvm</type></os>"),
     "--disk /i,format=raw --kernel auto", "no firmware runs"),
    (domain("<disk type='file'><driver type='qcow2'/><source file='/a,b'/><target dev='vda'/><readonly/><serial>S1</serial></disk>"),
     "--disk /a,,b,format=qcow2,serial=S1,readonly", WHOLE),
    (domain("<disk type='file'><driver type='qcow2'/><source file='/i'/><target dev='vda'/><backingStore type='file'>"
            "<format type='raw'/><source file='/b'/></backingStore></disk>"), "--disk /i,format=qcow2,backing=on", WHOLE),
    (domain("<disk type='file' device='cdrom'><source file='/i'/><target dev='sda' bus='sata'/></disk>"),
     "--disk /i,format=raw,readonly", "a read-only disk, /dev/vda, and no drive"),
    (domain("<disk type='network'><source protocol='nbd' name='e x'><host name='h' port='1'/></source><target dev='vda'/></disk>"),
     "--disk nbd://h:1/e%20x", WHOLE),
    (domain("<disk type='network'><source protocol='rbd' name='p/i'/><target dev='vda'/></disk>"), NONE,
     "NBD is the only protocol\n *to do: serve it by NBD"),
    (domain("<disk type='file'><source file='/i'/><target dev='vda'/></disk>" * 5), NONE, "a machine has 4 disks"),
    (domain("<disk type='file'><source file='/i&#10;x'/><target dev='vda'/></disk>"), NONE, "control characters"),
    (domain(f"<disk type='file'><source file='/{'x' * 5000}'/><target dev='vda'/></disk>"), NONE, "it has no file"),
    (domain("<interface type='user'><mac address='52:54:00:00:00:01'/><model type='virtio'/><mtu size='9000'/>"
            "<portForward proto='tcp'><range start='2022' to='22'/></portForward></interface>"),
     "--net user,hostfwd=tcp::2022-:22,mac=52:54:00:00:00:01,mtu=9000", WHOLE),
    (domain("<interface type='bridge'><source bridge='br0'/><model type='e1000'/></interface>"), "--net user",
     "instead of the host's \\(bridge\\)(.|\n)*a virtio card, and no e1000"),
    (domain("<interface type='user'><link state='down'/></interface>"), "--net unplugged", WHOLE),
    (domain("<interface type='ethernet'><target dev='tap7' managed='no'/></interface>"), "--net tap,ifname=tap7", WHOLE),
    (domain("<serial type='pty'/><console type='pty'><target type='serial'/></console>"), NONE, WHOLE),
    (domain("<console type='pty'><target type='virtio'/></console>"), "--console hvc0", WHOLE),
    (domain("<serial type='pty'/><serial type='pty'><target port='1'/></serial>"), NONE, "one serial port"),
    (domain("<channel type='unix'><source mode='bind' path='/s,1'/><target type='virtio' name='a.b'/></channel>"),
     "--port a.b=unix:/s,,1", WHOLE),
    (domain("<channel type='unix'><target type='virtio' name='a'/></channel>"), "--port a=none", "nobody is at the other end"),
    (domain("<rng model='virtio'><backend model='random'>/dev/random</backend></rng><memballoon model='virtio'/>"), NONE, WHOLE),
    (domain("<video><model type='virtio'><acceleration accel3d='yes'/><resolution x='800' y='600'/></model></video>"
            "<graphics type='vnc' port='-1' autoport='yes'/><input type='tablet' bus='virtio'/>"),
     "--gpu virgl,xres=800,yres=600 --display vnc=127.0.0.1:0", WHOLE),
    (domain("<video><model type='qxl'/></video>"), "--gpu 2d", "a virtio-gpu, and no qxl"),
    (domain("<input type='tablet' bus='virtio'/>"), "--input none", WHOLE),
    (domain("<filesystem type='mount'><driver type='virtiofs'/><source dir='/d'/><target dir='t'/><readonly/></filesystem>"),
     "--share /d,tag=t", WHOLE),
    (domain("<filesystem type='mount'><source dir='/d'/><target dir='t'/></filesystem>"), "--share /d,tag=t",
     "virtiofs, and not by 9p(.|\n)*cannot write there"),
    (domain("<sound model='ich9'/>" * 3), NONE, r"<sound model='ich9'> \(3 times\): there is no sound"),
    (domain("<strange/>", "<odd x='1'/>"), NONE, "<odd>: this version does not know it(.|\n)*<strange>: this version"),
    (domain(rest="<devices><sound/></devices><memory>1</memory>"), "--memory 512M",
     "<memory>: it is there a second time(.|\n)*<devices>: it is there a second time"),
    (domain("<disk type='file' odd='1'><source file='/i'/><target dev='vda'/></disk>"), NONE, "<disk odd='1'> of|<disk odd='1'>"),
)


@test("libvirt/options", cost=3)
def options(t):
    """What becomes of parts of a domain, and what is said of the rest; options of the user's have the last word."""
    need(t)
    for xml, words, said in CASES:
        line, error = become(t, xml)
        text = shlex.join(line)
        if words is not NONE:
            t.check(words in text, f"{words} is not in: {text}")
        t.equal("taken over whole" in error, said is WHOLE, f"'taken over whole' of {xml}")
        if said is not WHOLE:
            t.has(error, said)
            t.equal(len(re.findall(r"^ {4}<", error, re.M)), len(re.findall("^ {8}to do: ", error, re.M)), "what to do")
    line, _ = become(t, domain(), "--memory", "1G", "-o", "x y", "--add", "a")
    t.equal(line[-6:], ["--memory", "1G", "-o", "x y", "--add", "a"], "the user's options")
    t.equal(line[:2], ["reprise", "record"], "the command")
    # A name that is none for a directory.
    line, _ = become(t, domain(head=HEAD.replace(">d<", ">../d<")))
    t.equal(line[2:4], ["-o", "recording"], "the directory")
    return f"{len(CASES)} domains"


def laughs():
    entities = "".join(f"<!ENTITY e{i} \"{'&e%d;' % (i - 1) * 10}\">" for i in range(1, 10))
    return f"<!DOCTYPE d [<!ENTITY e0 'ha'>{entities}]>" + HEAD + "<title>&e9;</title></domain>"


BAD = (
    ("", "it is empty"),
    ("no XML at all", "line 1 is no XML"),
    (laughs(), "document type"),
    ("<!DOCTYPE d SYSTEM 'file:///etc/passwd'>" + domain(), "document type"),
    (HEAD + "<title>&unknown;</title></domain>", "no XML: Entity"),
    (domain()[:-20], "no XML: "),
    ("<?xml version='1.0' encoding='EUC-KR'?>" + domain("<x y='\xff'/>"), "no XML: |<name>"),
    ("<a>" * 60 + "</a>" * 60, "deep|no XML"),
    ("<domain>" + "<a/>" * 60000 + "</domain>", "more than 50000 elements"),
    ("<domain>" + "x" * (5 << 20) + "</domain>", "more than 4 MiB"),
    ("<network/>", "a <network>, and no <domain>"),
    ("<domain/>", "has no type"),
    ("<domain type='kvm'/>", "does not say what it runs"),
    (domain(head=HEAD.replace("kvm", "xen")), "a domain of type 'xen'"),
    ("<domain type='lxc'><os><type>exe</type></os></domain>", "a domain of type 'lxc'"),
    (domain(os_="<os><type arch='aarch64'>hvm</type></os>"), "the architecture 'aarch64'"),
    (domain(os_="<os><type>xen</type></os>"), "it runs 'xen'"),
)


@test("libvirt/bad", cost=4)
def bad(t):
    """XML that is none, has entities, is another machine's; files and domains that are not there; libvirt that is not."""
    need(t)
    for xml, said in BAD:
        r = t.run(t.reprise, "import-libvirt", "-", input=xml.encode("latin1"), code=(0, ERROR) if "|" in said else ERROR)
        t.has(r.error, said)
        t.check(r.seconds < 10, f"{said}: {r.seconds:.0f} s")
        t.check(len(r.error) < 2000, f"{said}: {len(r.error)} bytes are said")
    # Values that are none: said, and what is needed is asked for.
    for xml, said in ((domain(head=HEAD.replace("512", "9" * 30)), "no number of bytes"),
                      (domain(head=HEAD.replace("<vcpu>1", "<vcpu>-1")), "no number from 1 on"),
                      (domain(head=HEAD.replace("<vcpu>1", "<vcpu>99999")), "32 CPUs at most"),
                      (domain(head="<domain type='kvm'>"), "does not say how much")):
        t.has(become(t, xml)[1], said)
    r = t.run(t.reprise, "import-libvirt", "-", input=domain(os_="<os><type>hvm</type></os>").encode(), code=USAGE)
    t.has(r.error, "no kernel, and no disk with one\n *to do: --kernel FILE(.|\n)*--kernel FILE is missing")
    t.has(t.run(t.reprise, "import-libvirt", t.dir / "none.xml", code=ERROR).error, "none.xml: it cannot be opened: No such file")
    t.has(t.run(t.reprise, "import-libvirt", t.dir, code=ERROR).error, "cannot be read: Is a directory")
    for words, said in ((("import-libvirt",), "FILE is missing"), (("import-libvirt", "a", "b"), "one FILE"),
                        (("record", "--dry-run"), "--dry-run goes with"),
                        (("record", "--libvirt", "a", "--libvirt", "b"), "one domain"),
                        (("record", "--libvirt", ""), "it has no name"),
                        (("record", "--libvirt", "a", "--from", "b", "-o", "c"), "--from: the machine is")):
        t.has(t.run(t.reprise, *words, code=USAGE).error, said)
    t.has(t.run(t.build / "reprise-libvirt", "--check").text, "sandbox: holds")
    # libvirt's library cannot be loaded.
    (t.dir / "libvirt.so.0").write_text("")
    r = t.run(t.reprise, "record", "--libvirt", "test:///default/test", "--dry-run", env={"LD_LIBRARY_PATH": t.dir}, code=ERROR)
    t.has(r.error, "libvirt is not installed here .*the Debian package libvirt0 has it")


STAND_INS = (
    ("echo nonsense", "no table: an unknown row"),
    ("printf 'reprise-libvirt\\t1\\n'", "no table: no end"),
    ("printf 'reprise-libvirt\\t9\\nend\\n'", "another version"),
    ("printf 'reprise-libvirt\\t1\\noption\\tgdb\\t1234\\nend\\n'", "an option that no domain becomes"),
    ("printf 'reprise-libvirt\\t1\\noption\\tmemory\\t\\033[2J\\nend\\n'", "control characters"),
    ("printf 'reprise-libvirt\\t1\\noption\\tmemory\\t1G\\noption\\tmemory\\t2G\\nend\\n'", "too many of --memory"),
    ("yes", "says too much|an unknown row"),
    ("kill -SEGV $$", "ended with status 139"),
    ("exit 7", "ended with status 7"),
)


@test("libvirt/helper", cost=2)
def helper(t):
    """A reprise-libvirt that is not there, dies, or says what it must not."""
    place = t.dir / "bin"
    place.mkdir()
    shutil.copy(t.reprise, place)
    r = t.run(place / "reprise", "record", "--libvirt", "a", "--dry-run", code=ERROR)
    t.has(r.error, "reprise-libvirt is not there.*Debian packages libvirt-dev and libxml2-dev")
    program = place / "reprise-libvirt"
    for script, said in STAND_INS:
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        r = t.run(place / "reprise", "record", "--libvirt", "a", "-o", t.dir / "rec", code=ERROR)
        t.has(r.error, said)
        t.check(not (t.dir / "rec").exists(), "a recording was left")


def linux_domain(t, name, devices, kind="kvm", cpus=1, append="", image="linux", memory=256):
    where = IMAGES / image
    return (f"<domain type='{kind}'><name>{name}</name><memory unit='MiB'>{memory}</memory><vcpu>{cpus}</vcpu>"
            f"<os><type arch='x86_64'>hvm</type><kernel>{where}/vmlinuz</kernel><initrd>{where}/initrd</initrd>"
            f"<cmdline>{append}</cmdline></os><devices>{devices}<serial type='pty'/></devices></domain>")


def disk(path, more=""):
    return f"<disk type='file'><driver type='raw'/><source file='{path}'/><target dev='vda' bus='virtio'/>{more}</disk>"


@test("libvirt/places", cost=3)
def places(t):
    """Domains by URI: names that are nearly right, URIs that lead nowhere, one that runs; networks as libvirt says they are."""
    need(t)
    (t.dir / "disk").write_bytes(bytes(1 << 20))
    (t.dir / "domain.xml").write_text(linux_domain(t, "web", disk(t.dir / "disk") +
                                                   "<interface type='network'><source network='inner'/></interface>", "test"))
    (t.dir / "off.xml").write_text(linux_domain(t, "mail", disk(t.dir / "disk"), "test").replace(
        "<name>", "<metadata xmlns:t='http://libvirt.org/schemas/domain/test/1.0'/><t:runstate xmlns:t="
                  "'http://libvirt.org/schemas/domain/test/1.0'>5</t:runstate><name>"))
    (t.dir / "net.xml").write_text("<network><name>inner</name><bridge name='b'/></network>")
    (t.dir / "node.xml").write_text("<node><domain file='domain.xml'/><domain file='off.xml'/><network file='net.xml'/></node>")
    uri = f"test://{t.dir}/node.xml"

    def record(where, *more, code=ERROR):
        return t.run(t.reprise, "record", "--libvirt", where, *more, code=code)

    r = record(uri + "/wbe", "--dry-run")
    t.has(r.error, "no domain 'wbe' at test://.*; did you mean 'web'\\? There are '(web', 'mail|mail', 'web)'")
    for where, said in (("nonsense:///x/y", "cannot be asked: .*virsh -r -c nonsense:///x list --all"),
                        (f"test+unix:///default?socket={t.dir}/none/x", "cannot be asked: .*No such file"),
                        ("test:///nowhere.xml/x", "cannot be asked: "), ("test:///default/", "is no .URI/.DOMAIN"),
                        ("/x", "is no .URI/.DOMAIN")):
        t.has(record(where, "--dry-run").error, said)
    r = record(uri + "/web", "-o", t.dir / "rec")
    t.has(r.error, "the domain runs, and writes to <disk> vda(.|\n)*virsh shutdown")
    t.check(not (t.dir / "rec").exists(), "a recording was left")
    r = record(uri + "/web", "--dry-run", code=0)
    t.has(r.text, f"^reprise record -o web --memory 256M --disk {t.dir}/disk,format=raw .*--net user,restrict=on,mac=")
    t.has(r.error, "libvirt's network 'inner' leads nowhere")
    r = record(uri + "/mail", code=USAGE)
    t.has(r.error, "-o DIR is missing")
    # It is off: up to its disk all is well.
    t.run(t.reprise, "record", "--libvirt", uri + "/mail", "-o", t.dir / "rec", "--append", "quiet -- cat /sys/block/vda/size")
    t.equal(t.info("rec")["disks"][0]["size"] if "disks" in t.info("rec") else 1 << 20, 1 << 20, "the disk")


class Daemon:
    """A libvirtd that has libvirt's test driver, and a session of virsh that keeps its domains."""

    def __init__(self, t):
        self.dir = tempfile.mkdtemp(prefix="reprise-libvirt-")  # its path must fit a socket's
        root = os.getuid() == 0
        if root:  # as root it would be the system's
            os.chmod(self.dir, 0o711)
            os.chown(self.dir, 65534, 65534)
        conf = os.path.join(self.dir, "libvirtd.conf")
        with open(conf, "w") as f:
            f.write(f'unix_sock_dir = "{self.dir}"\nauth_unix_ro = "none"\nauth_unix_rw = "none"\n')
        env = {"PATH": os.environ["PATH"] + ":/usr/sbin:/sbin", "LIBVIRT_DRIVER_DIR": self.dir + "/none"}
        env.update({k: self.dir for k in ("HOME", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")})
        self.log = open(t.dir / "libvirtd.log", "wb")
        self.daemon = subprocess.Popen(["libvirtd", "-f", conf, "-p", self.dir + "/pid", "--timeout", "300"], env=env,
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                       **({"user": 65534, "group": 65534, "extra_groups": []} if root else {}))
        self.uri = f"test+unix:///default?socket={self.dir}/libvirt-sock"
        self.virsh = None
        self.socket = self.dir + "/libvirt-sock"

    def wait(self, t):
        for _ in range(600):
            if os.path.exists(self.socket):
                break
            if self.daemon.poll() is not None:
                t.skip("libvirtd does not run here: " + (t.dir / "libvirtd.log").read_text().strip()[-200:])
            time.sleep(0.1)
        self.virsh = subprocess.Popen(["virsh", "-c", self.uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT)

    def say(self, t, command, pattern):
        self.virsh.stdin.write(command.encode() + b"\n")
        self.virsh.stdin.flush()
        text = b""
        while not re.search(pattern.encode(), text):
            piece = os.read(self.virsh.stdout.fileno(), 4096)
            t.check(piece, f"virsh: {text.decode(errors='replace')}")
            text += piece
        t.log.write(text.decode(errors="replace"))

    def close(self):
        for child in (self.virsh, self.daemon):
            if child:
                child.terminate()
                child.wait()
        self.log.close()
        shutil.rmtree(self.dir, ignore_errors=True)


SCRIPT = ("nproc; dmesg | grep -c Memory:; cat /sys/block/vda/serial; echo; cat /sys/block/vda/ro; cat /sys/class/net/eth0/address;"
          " cat /sys/class/virtio-ports/*/name; mkdir /m; mount -t virtiofs files /m; cat /m/hello;"
          " dd if=/dev/vda bs=5 count=1 2>/dev/null; echo; od -An -N4 /dev/hwrng | wc -c")


@test("libvirt/defined", cost=9)
def defined(t):
    """A domain that virsh defined in libvirtd: recorded by its name; its devices are there; the replay needs none of it. The
    line that --dry-run prints is the same machine."""
    need(t, ("libvirtd", "libvirt-daemon"), ("virsh", "libvirt-clients"))
    image(t)
    (t.dir / "disk").write_bytes(b"first" + bytes((1 << 20) - 5))
    (t.dir / "files").mkdir()
    (t.dir / "files" / "hello").write_text("hello from the host\n")
    devices = (disk(t.dir / "disk", "<readonly/><serial>SERIAL-7</serial>") +
               "<interface type='user'><mac address='52:54:00:aa:bb:cc'/><model type='virtio'/></interface>"
               "<channel type='unix'><target type='virtio' name='org.reprise.test'/></channel>"
               "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng><memballoon model='virtio'/>"
               f"<filesystem type='mount' accessmode='passthrough'><driver type='virtiofs'/><source dir='{t.dir}/files'/>"
               "<target dir='files'/><readonly/></filesystem>")
    xml = linux_domain(t, "server", devices, "test", cpus=2, append=f"quiet -- &quot;{SCRIPT}&quot;")
    xml = xml.replace("<devices>", "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking><devices>")
    (t.dir / "server.xml").write_text(xml)
    daemon = Daemon(t)
    try:
        daemon.wait(t)
        daemon.say(t, f"define {t.dir}/server.xml", "defined from")
        r = t.run(t.reprise, "record", "--libvirt", f"{daemon.uri}/server", "-o", t.dir / "rec", "--seed", "1",
                  "--wall-clock", "1700000000", "--unpaced")
        line = t.run(t.reprise, "record", "--libvirt", f"{daemon.uri}/server", "-o", t.dir / "again", "--seed", "1",
                     "--wall-clock", "1700000000", "--unpaced", "--dry-run").text
    finally:
        daemon.close()
    text = r.text
    for line_, what in (("^2$", "CPUs"), ("SERIAL-7", "the disk's serial number"), ("^1$", "read-only"),
                        ("52:54:00:aa:bb:cc", "the card"), ("^org.reprise.test", "the port"),
                        ("hello from the host", "the share"), ("^first$", "the disk")):
        t.has(text, line_, what)
    t.has(r.error, "the domain 'server' at test(.|\n)*nobody is at the other end of the port")
    shutil.rmtree(t.dir / "files")
    t.same("rec", r)
    # What the recording notes is what was run.
    t.has(line, "^reprise record --memory 256M --cpus 2,cores=1 .*--seed 1 ")
    first = t.info("rec")
    t.equal(shlex.split(line.replace(f"{t.dir}/again", f"{t.dir}/rec")), shlex.split(first["notes"]["command"]),
            "the command line")
    return f"{first['position'] / 1e9:.2f} G instructions"


@test("libvirt/examples", cost=5)
def examples(t):
    """The committed domains: a table for each, whose tool says the same of all."""
    need(t)
    corpus = ROOT / "tests" / "fuzz" / "corpus" / "libvirt_xml"
    r = t.run("python3", ROOT / "tests" / "tools" / "libvirt_examples.py", t.build / "reprise-libvirt", corpus)
    t.has(r.text, "^\\| examples \\| \\d+ \\|$")
    t.has(r.text, "a document type \\| 2")
    if os.path.isdir("/usr/share/doc/libvirt-doc/examples"):
        t.run("python3", ROOT / "tests" / "tools" / "libvirt_examples.py", t.build / "reprise-libvirt",
              "/usr/share/doc/libvirt-doc/examples")
