"""`record --kernel auto`: kernel, initrd and command line from the boot entry on a disk's image."""
import os
import shutil
import subprocess
import time

from suite.harness import ERROR, IMAGES, USAGE, Failure, rnd, test

LINUX = IMAGES / "linux"
UUID = "3d1b1d2e-6f0a-4a43-9d55-0c1f6f2a7b10"
MIB = 1 << 20

GRUB = """
if [ -s $prefix/grubenv ]; then
  load_env
fi
if [ "${next_entry}" ]; then set default="${next_entry}"; else set default="0"; fi
menuentry 'Small Linux' --class gnu-linux --id small {
	insmod gzio
	search --no-floppy --fs-uuid --set=root UUID
	linux	BOOT/vmlinuz-1 reprise.entry=first quiet
	initrd	BOOT/initrd-1 BOOT/initrd-2
}
submenu 'Advanced options' {
	menuentry 'Small Linux, verbose' --id verbose {
		search --no-floppy --fs-uuid --set=root UUID
		linux	BOOT/vmlinuz-1 reprise.entry=second console=tty0
		initrd	BOOT/initrd-1
	}
	menuentry 'Gone' { linux BOOT/vmlinuz-0 quiet }
}
menuentry 'Something else' { chainloader /EFI/else.efi }
"""


def tool(t, name):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/sbin:/usr/sbin")
    if not found:
        t.skip(f"{name} is not installed")
    return found


def cpio(name, data):
    """A newc archive of one file."""
    out = b""
    for file, content in ((name, data), ("TRAILER!!!", b"")):
        fields = [1, 0o100644, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(file) + 1, 0]
        out += b"070701" + "".join(f"{f:08x}" for f in fields).encode() + file.encode() + b"\0"
        out += bytes(-len(out) % 4) + content
        out += bytes(-len(out) % 4)
    return out


def tree(t, boot="/boot", files=None, kernel=True):
    """A root file system with a kernel and two initrds (the second has /second), and `files`."""
    root = t.dir / "root"
    shutil.rmtree(root, ignore_errors=True)
    where = root / boot.lstrip("/")
    where.mkdir(parents=True)
    if kernel:
        shutil.copy(LINUX / "vmlinuz", where / "vmlinuz-1")
        shutil.copy(LINUX / "initrd", where / "initrd-1")
        (where / "initrd-2").write_bytes(cpio("second", b"the second initrd\n"))
    for name, text in (files or {}).items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def blank(path, size):
    with open(path, "wb") as f:
        f.truncate(size)
    return path


def ext4(t, path, root, offset=0, size=64 * MIB, uuid=UUID):
    t.run(tool(t, "mke2fs"), "-q", "-F", "-t", "ext4", "-b", "4096", "-U", uuid, "-d", root,
          *(["-E", f"offset={offset}"] if offset else []), path, str(size // 4096))


def partitioned(t, name, label, *partitions):
    """Partitions of 64 MiB from 1 MiB on, of these types."""
    path = blank(t.dir / name, (2 + 64 * len(partitions)) * MIB)
    t.run(tool(t, "sfdisk"), "-q", path, stdin=subprocess.PIPE, input="\n".join(
        [f"label: {label}"] + [f"start={2048 + 131072 * i}, size=131072, type={kind}"
                               for i, kind in enumerate(partitions)]).encode() + b"\n")
    return path


def grub(boot="/boot", uuid=UUID, **files):
    folder = (boot + "/grub") if boot else "/grub2"
    return {folder + "/grub.cfg": GRUB.replace("BOOT", boot).replace("UUID", uuid),
            **{folder + "/" + name: text for name, text in files.items()}}


def need(t):
    tool(t, "grub-fstest")


def boot(t, name, disk, *options, code=0, append="-- cat /proc/cmdline /second", **more):
    """Boots to the init of the image; what `append` printed is in the result."""
    return t.record(name, "--disk", disk, "--append", append, *options, kernel="auto", code=code,
                    timeout=60, **more)


def entries(t, disk, code=0):
    return t.run(t.reprise, "record", "--kernel", "auto", "--disk", disk, "--boot-entry", "list",
                 code=code)


@test("bootdisk/grub", cost=15)
def bootdisk_grub(t):
    """GPT, ext4, grub.cfg: the default entry, another one, one's own initrd; recorded and replayed."""
    need(t)
    disk = partitioned(t, "disk.img", "gpt", "C12A7328-F81F-11D2-BA4B-00C04FC93EC9",
                       "0FC63DAF-8483-4772-8E79-3D69D8477DE4")
    ext4(t, disk, tree(t, files=grub()), 65 * MIB)
    before = disk.read_bytes()
    r = boot(t, "first", disk)
    t.has(r.error, r"^reprise: booting 'Small Linux' from disk 0 partition 2: /boot/vmlinuz-1$")
    t.has(r.text, "^console=ttyS0 panic=-1 reprise.entry=first quiet -- cat")
    t.has(r.text, "^the second initrd")
    t.equal(t.info("first")["kernel"], "vmlinuz-1", "the kernel's name")
    t.same("first", r)
    t.equal(entries(t, disk).text, "0\tSmall Linux\n1>0\tSmall Linux, verbose\n1>1\tGone\n",
            "the list of entries")
    # By place and by title. Its console=tty0 is not one that anybody sees.
    for which in ("1>0", "Small Linux, verbose"):
        r = boot(t, "second-" + which.replace(">", "-"), disk, "--boot-entry", which,
                 append="reprise.mine -- cat /proc/cmdline; ls /", code=0)
        t.has(r.text, "^panic=-1 reprise.entry=second console=tty0 console=ttyS0 reprise.mine --")
        t.lacks(r.text, "^second")
    # The user's console and panic count; the user's initrd does instead of the entry's.
    (t.dir / "own.cpio").write_bytes((LINUX / "initrd").read_bytes() + cpio("own", b"my initrd\n"))
    r = boot(t, "own", disk, "--boot-entry", "verbose", "--initrd", t.dir / "own.cpio",
             append="panic=5 console=ttyS0,115200 -- cat /own /proc/cmdline")
    t.has(r.text, "^my initrd")
    t.has(r.text, "^reprise.entry=second console=tty0 panic=5 console=ttyS0,115200 --")
    t.equal(disk.read_bytes(), before, "the image")


@test("bootdisk/places", cost=15)
def bootdisk_places(t):
    """No partition table; MBR with /boot on a partition of its own; a subvolume; several disks; the
    environment that grub-reboot writes."""
    need(t)
    plain = blank(t.dir / "plain.img", 64 * MIB)
    ext4(t, plain, tree(t, files=grub(grubenv="# GRUB Environment Block\nnext_entry=1>0\n####")))
    r = boot(t, "plain", plain)
    t.has(r.error, r"booting 'Small Linux, verbose' from disk 0: /boot/vmlinuz-1$")
    other = "1f0a8a5e-0000-4f0e-8d1b-6a3e1f6a2b11"
    split = partitioned(t, "split.img", "dos", "83", "83")
    ext4(t, split, tree(t, kernel=False, files={"/etc/fstab": "", "/boot/nothing": ""}), 1 * MIB,
         uuid=UUID)
    ext4(t, split, tree(t, "/", files=grub("", other)), 65 * MIB, uuid=other)
    r = boot(t, "split", split)
    t.has(r.error, r"booting 'Small Linux' from disk 0 partition 2: /vmlinuz-1$")
    t.has(r.text, "reprise.entry=first")
    # The second disk has what is to be booted; the first has data.
    data = blank(t.dir / "data.img", 4 * MIB)
    data.write_bytes(os.urandom(65536) + bytes(4 * MIB - 65536))
    r = boot(t, "two", data, "--disk", split)
    t.has(r.error, r"booting 'Small Linux' from disk 1 partition 2: /vmlinuz-1$")
    # What a system without subvolumes calls /boot.
    sub = blank(t.dir / "sub.img", 64 * MIB)
    files = grub()
    files = {"/@rootfs" + name: text for name, text in files.items()}
    ext4(t, sub, tree(t, "/@rootfs/boot", files=files))
    r = boot(t, "sub", sub)
    t.has(r.text, "reprise.entry=first")


@test("bootdisk/formats", cost=8)
def bootdisk_formats(t):
    """Images in other formats, with a backing file, with a name that looks like a protocol."""
    need(t)
    convert = [tool(t, "qemu-img"), "convert", "-O"]
    raw = blank(t.dir / "raw.img", 64 * MIB)
    ext4(t, raw, tree(t, files=grub()))
    t.run(*convert, "vmdk", raw, t.dir / "disk.vmdk")
    t.equal(entries(t, t.dir / "disk.vmdk").text, entries(t, raw).text, "the list of entries")
    t.run(*convert, "qcow2", raw, t.dir / "base.qcow2")
    t.run(convert[0], "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", "base.qcow2",
          t.dir / "ssh:disk.qcow2")
    kept = t.dir / "tmp"
    kept.mkdir()
    r = boot(t, "rec", "ssh:disk.qcow2,backing=on", env={"TMPDIR": kept})
    t.has(r.error, r"booting 'Small Linux' from disk 0: /boot/vmlinuz-1$")
    t.has(r.text, "^the second initrd")
    t.equal(list(kept.iterdir()), [], "what is left in TMPDIR")
    t.same("rec", r)


@test("bootdisk/bls", cost=8)
def bootdisk_bls(t):
    """Entries of the Boot Loader Specification: with GRUB's blscfg, and on an EFI system partition."""
    need(t)
    entry = "title {}\nversion {}\nlinux {}/vmlinuz-1\ninitrd {}/initrd-1\noptions reprise.entry={} $more\n"
    disk = blank(t.dir / "fedora.img", 64 * MIB)
    files = {
        "/boot/grub2/grub.cfg": 'load_env\nset default="${saved_entry}"\nset more=more\nblscfg\n',
        "/boot/grub2/grubenv": "# GRUB Environment Block\nsaved_entry=id-1.9\n###",
        "/boot/loader/entries/id-1.9.conf": entry.format("Nine", "1.9", "/boot", "/boot", "nine"),
        "/boot/loader/entries/id-1.10.conf": entry.format("Ten", "1.10", "/boot", "/boot", "ten")}
    ext4(t, disk, tree(t, files=files))
    r = boot(t, "saved", disk, append="-- cat /proc/cmdline")
    t.has(r.error, "booting 'Nine' from disk 0: /boot/vmlinuz-1$")
    t.has(r.text, "reprise.entry=nine more --")
    t.equal(entries(t, disk).text, "0\tTen\n1\tNine\n", "the list of entries")
    # vfat, a default with a pattern.
    tool(t, "mcopy")
    esp = partitioned(t, "esp.img", "gpt", "C12A7328-F81F-11D2-BA4B-00C04FC93EC9")
    root = tree(t, "/", files={
        "/loader/loader.conf": "timeout 3\ndefault b*\n",
        "/loader/entries/a.conf": entry.format("A", "2", "", "", "a"),
        "/loader/entries/b.conf": entry.format("B", "1", "", "", "b")})
    at = f"{esp}@@1M"
    t.run(tool(t, "mformat"), "-i", at, "-T", "131072", "-h", "64", "-s", "32", "::")
    t.run(tool(t, "mcopy"), "-s", "-i", at, *root.iterdir(), "::/")
    r = boot(t, "esp", esp, append="-- cat /proc/cmdline")
    t.has(r.error, "booting 'B' from disk 0 partition 1: /vmlinuz-1$")
    t.has(r.text, "reprise.entry=b --")


@test("bootdisk/btrfs", cost=5)
def bootdisk_btrfs(t):
    """btrfs, on a disk without partitions."""
    need(t)
    disk = blank(t.dir / "disk.img", 160 * MIB)
    t.run(tool(t, "mkfs.btrfs"), "-q", "-U", UUID, "--rootdir", tree(t, files=grub()), disk)
    t.has(boot(t, "rec", disk).text, "^the second initrd")


@test("bootdisk/xfs", cost=5)
def bootdisk_xfs(t):
    """xfs, in the second partition of an MBR."""
    need(t)
    mkfs = tool(t, "mkfs.xfs")
    root = tree(t, files=grub())
    files = {p.name: p for p in (root / "boot").iterdir() if p.is_file()}
    proto = ["/", "0 0", "d--755 0 0", "boot d--755 0 0",
             *(f"{name} ---644 0 0 {path}" for name, path in files.items()),
             "grub d--755 0 0", f"grub.cfg ---644 0 0 {root}/boot/grub/grub.cfg", "$", "$", "$", ""]
    (t.dir / "proto").write_text("\n".join(proto))
    made = blank(t.dir / "xfs.img", 320 * MIB)
    t.run(mkfs, "-q", "-m", f"uuid={UUID}", "-p", t.dir / "proto", made)
    disk = blank(t.dir / "disk.img", 325 * MIB)
    t.run(tool(t, "sfdisk"), "-q", disk,
          input=b"label: dos\nstart=2048, size=2048, type=83\nstart=4096, type=83\n")
    t.run("dd", f"if={made}", f"of={disk}", "bs=1M", "seek=2", "conv=sparse,notrunc", "status=none")
    r = boot(t, "rec", disk)
    t.has(r.error, "from disk 0 partition 2: /boot/vmlinuz-1$")
    t.has(r.text, "^the second initrd")


@test("bootdisk/errors", cost=6)
def bootdisk_errors(t):
    """What is not there is named, and nothing is left behind."""
    need(t)
    disk = blank(t.dir / "disk.img", 64 * MIB)
    ext4(t, disk, tree(t, files=grub()))

    def refused(pattern, *options, code=ERROR, env=None, image=disk):
        argv = [t.reprise, "record", "-o", t.dir / "none", "--kernel", "auto", *options]
        r = t.run(*argv, *(["--disk", image] if image else []), code=code, env=env)
        t.has(r.error, pattern)
        t.check(not (t.dir / "none").exists(), "a recording was made")
        return r

    r = refused("there is no boot entry 'other'; there are:", "--boot-entry", "other")
    t.has(r.error, "^  1>0 Small Linux, verbose$")
    refused("'Something else' starts no Linux kernel", "--boot-entry", "2")
    refused(r"'Gone' names the kernel .*/boot/vmlinuz-0 \(disk 0\): .*not found", "--boot-entry",
            "1>1")
    refused("--disk FILE is missing", code=USAGE, image=None)
    refused("cannot open the initrd", "--initrd", t.dir / "no-initrd")
    t.has(t.run(t.reprise, "record", "-o", t.dir / "none", "--kernel", LINUX / "vmlinuz", "--disk",
                disk, "--boot-entry", "1", code=USAGE).error, "--boot-entry goes with --kernel=auto")
    # No program.
    empty = t.dir / "bin"
    empty.mkdir()
    refused("takes the program grub-fstest .Debian's package grub-common", env={"PATH": empty})
    # Nothing on the disk; no entry; an entry on a file system that is not there; a bad script.
    zeros = blank(t.dir / "zeros.img", 4 * MIB)
    refused(r"no boot entry for Linux was found: disk 0 \(no file system that GRUB knows\)",
            image=zeros)
    for files, pattern in (({"/boot/x": ""}, r"no boot entry .* disk 0 \(ext\*\)"),
                           ({"/boot/grub/grub.cfg": "menuentry x {\n linux"},
                            r"grub.cfg: line 1: a \{ is not closed"),
                           (grub(uuid="1234"), r"a disk that is not there: uuid:1234"),
                           ({"/boot/grub/grub.cfg": "menuentry x { linux (host)/etc/passwd; }"},
                            r"a disk that is not there: host"),
                           ({"/boot/grub/grub.cfg": "menuentry x { linux /boot/grub/grub.cfg; }"},
                            "the kernel /boot/grub/grub.cfg ")):
        image = blank(t.dir / "case.img", 64 * MIB)
        ext4(t, image, tree(t, files=files, kernel="Small" in str(files)))
        refused(pattern, image=image)
    # A title that would control the terminal.
    image = blank(t.dir / "case.img", 64 * MIB)
    ext4(t, image, tree(t, files={"/boot/grub/grub.cfg": "menuentry 'a\x1b[31mb' { linux /nothing; }"}))
    t.equal(entries(t, image).text, "0\ta?[31mb\n", "the list of entries")
    t.check("\x1b" not in refused("names the kernel", image=image).error, "a control character")


@test("bootdisk/damage", cost=10)
def bootdisk_damage(t):
    """Damaged file systems: a menu or an error, in bounded time, never a crash of ours."""
    need(t)
    disk = blank(t.dir / "disk.img", 6 * MIB)
    t.run(tool(t, "sfdisk"), "-q", disk, input=b"label: gpt\nstart=2048, size=8192\n")
    ext4(t, disk, tree(t, files=grub(), kernel=False), 1 * MIB, size=4 * MIB)
    good = disk.read_bytes()
    used = [at for at in range(0, len(good), 512) if any(good[at:at + 512])]
    verdicts = {0: 0, 1: 0}
    for i in range(60):
        bad = bytearray(good)
        for _ in range(rnd.choice((1, 4, 64))):
            bad[rnd.choice(used) + rnd.randrange(512)] = rnd.randrange(256)
        disk.write_bytes(bad)
        began = time.monotonic()
        r = entries(t, disk, code=None)
        if r.code not in verdicts or time.monotonic() - began > 60 * t.slow:
            raise Failure(f"case {i}: exit code {r.code}")
        verdicts[r.code] += 1
        t.check(r.code == 0 or r.error.startswith("reprise: "), "an error without a text")
    return f"{verdicts[0]} menus, {verdicts[1]} errors"
