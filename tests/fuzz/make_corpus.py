#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/{kernel,boot,description,keys,virtio-gpu} anew (the seeds; inputs of fixed bugs are
added by hand). Needs lz4 and zstd, and build/reprise with the tiny guests for a description."""
import gzip
import lzma
import pathlib
import struct
import random
import subprocess
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def write(target, name, data):
    path = HERE / "corpus" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def elf(segments, entry=0x200000, kind=2):
    """An ELF64 with segments of (p_paddr, bytes, memory size)."""
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack(
        "<HHIQQQIHHHHHH", kind, 62, 1, entry, 64, 0, 0, 64, 56, len(segments), 0, 0, 0)
    at = 64 + 56 * len(segments)
    table = body = b""
    for paddr, data, memory in segments:
        table += struct.pack("<IIQQQQQQ", 1, 5, at + len(body), paddr, paddr, len(data), memory,
                             4096)
        body += data
    return header + table + body


def pipe(data, *command):
    return subprocess.run(command, input=data, stdout=subprocess.PIPE, check=True).stdout


def bzimage(payload):
    image = bytearray(1024)
    image[0x1F1] = 1
    image[0x1FE:0x208] = b"\x55\xaa\xeb\x6aHdrS\x0f\x02"
    image[0x248:0x250] = struct.pack("<II", 0x20, len(payload))
    return bytes(image) + bytes(32) + payload


def cpio(files):
    out = b""
    for name, data in [*files, ("TRAILER!!!", b"")]:
        fields = [1, 0o100644, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out += b"070701" + "".join(f"{f:08x}" for f in fields).encode() + name.encode() + b"\0"
        out += bytes(-len(out) % 4) + data
        out += bytes(-len(out) % 4)
    return out


class Gpu:
    """A program of fuzz_virtio_gpu.c, in the order in which gpu_commands.c takes its bytes."""
    NUMBERS = range(48)

    def __init__(self):
        self.bytes = b""
        self.add(10, 0x3b, 0, 3)  # set up with both features

    def add(self, kind, *numbers, flags=0, room=None):
        if room is not None:  # for the answer
            numbers, flags = (bytes([room // 2]), *numbers), flags | 0x20
        self.bytes += bytes([0x0a, kind | flags]) + b"".join(
            n if isinstance(n, bytes) else self.number(n) if kind < 10 else bytes([n])
            for n in numbers)

    def number(self, n):
        return bytes([n]) if n in self.NUMBERS else b"\xff" + struct.pack("<I", n)

    def wait(self, ns=0xffffff):
        self.bytes += b"\x03" + struct.pack("<I", ns)[:3]

    def create_2d(self, i, width, height, form=0):
        self.add(2, 0, i, bytes([form]), width // 4, height // 4)

    def create_3d(self, i, target, form, bind, width, height, depth=1, layers=1):
        self.add(3, 0, i, target, bytes([form, bind]), width // 4, height // 4, depth, layers, 0,
                 0)

    def attach(self, i, *pages):  # pieces of 512 to 8192 bytes
        self.add(4, 0, i, bytes([len(pages)]), bytes(pages))

    def attach_much(self, i, memories):  # all of memory so often, 2048 entries each
        self.bytes += bytes([0x0a, 4 | 0x40, memories, 0, i, 90 + memories])

    def transfer(self, which, i, x, y, w, h, offset=0, fence=0):
        self.add(5, bytes([which]), i, bytes([fence]), x, y, w, h, bytes([offset]),
                 *((0, 0) if which else ()))

    def context(self, what, ctx, i=0):
        self.add(7, bytes([what, ctx, 0]), i)

    def submit(self, ctx, *commands, fence=1, **more):
        self.add(1, bytes([ctx - 1, fence, 0, len(commands) - 1]), *commands, **more)

    def virgl(self, which, *numbers, obj=b""):
        return bytes([which]) + obj + b"".join(self.number(n) for n in numbers) + b"\0"

    def transfer3d(self, i, w, h, offset, to_host=True):
        return self.virgl(0, i, 0, 0, 0, 0, 0, 0, 0, w, h, 1, offset, 1 if to_host else 2)

    def query(self, handle, i):
        return self.virgl(2, handle, 0, 0, i, obj=b"\1")

    def result(self, handle):
        return self.virgl(3, handle, 1)


def gpu_flow(size):
    """The size decides what device it is: % 8 == 0: 2D; % 4 == 3: forged replies; else the host's."""
    p = Gpu()
    p.create_2d(1, 16, 16)
    p.attach(1, 1, 20)
    p.transfer(0, 1, 0, 0, 16, 16)
    p.add(6, b"\0", 1, 0, 0, 4, 4, b"\0")  # shown, flushed
    p.add(6, b"\1", 1, 0, 0, 4, 4)
    p.add(13)
    for i, pages in ((2, (5, 30, 6)), (3, (9,)), (4, (11, 12))):
        p.create_3d(i, 0 if i == 3 else 2, 0, 1, 16, 16 if i != 3 else 4)
        p.attach(i, *pages)
    p.create_3d(5, 2, 0, 1, 16384, 16384)
    p.context(0, 1)
    for i in (2, 3, 4):
        p.context(2, 1, i)
    p.submit(1, p.transfer3d(2, 16, 16, 0), p.query(1, 3), p.virgl(0x80 + 19, 1),
             p.virgl(0x80 + 8, 0, 3, 4, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1), p.virgl(0x80 + 20, 1),
             p.result(1), flags=0x10)
    p.submit(1, p.virgl(4, 4), p.transfer3d(4, 16, 16, 0, False), p.virgl(4, 2))
    p.transfer(2, 2, 0, 0, 8, 8, 4, 1)
    p.wait()
    p.add(12)
    p.wait()
    p.add(12)
    p.transfer(1, 4, 2, 2, 5, 5, 0, 1)
    p.transfer(2, 5, 0, 0, 1, 1, 0, 1)
    p.add(8, b"\0\0", 5, 6, 1, 2, 3)
    p.add(13)
    p.add(11, size & 255, 1, 9, 40)  # a renderer that is late, and dies
    for _ in range(4):
        p.submit(1, p.transfer3d(2, 16, 16, 0), p.result(1), fence=1)
        p.transfer(2, 2, 0, 0, 16, 16, 0, 1)
        p.wait()
    p.add(9, b"\0\1", 2)  # ended while under way
    p.submit(1, p.virgl(4, 4), room=0)  # a broken rule
    p.submit(1, p.virgl(4, 4))
    p.wait()
    p.add(15)
    p.add(10, 0x3b, 0, 3)
    p.context(0, 1)
    p.submit(1, p.transfer3d(2, 4, 4, 0))
    p.wait()
    p.add(14, 1, 20, 2)
    p.add(15)  # the driver resets it
    p.add(10, 0x3b, 0, 3)
    p.create_2d(1, 16, 16)
    p.attach_much(1, 2)
    p.transfer(0, 1, 0, 0, 16, 16)
    p.add(12)
    p.wait()
    return p.bytes + b"\x03" + bytes(-(len(p.bytes) + 1 - size) % 8)


def gpu_random(rnd, size):
    p = Gpu()
    small = lambda: rnd.randrange(20)  # noqa: E731
    for i in range(1, 6):
        if rnd.random() < .5:
            p.create_2d(i, 4 * small(), 4 * small(), rnd.randrange(8))
        else:
            p.create_3d(i, rnd.randrange(9), rnd.randrange(12), rnd.randrange(20), 4 * small(),
                        4 * small(), rnd.randrange(4), rnd.randrange(4))
        p.attach(i, *(rnd.randrange(64) for _ in range(rnd.randrange(1, 5))))
    for c in (1, 2):
        p.context(0, c)
    p.add(11, rnd.randrange(256), 0, rnd.choice((0, 5, 30)), rnd.choice((0, 0, 50)))
    for _ in range(rnd.randrange(10, 30)):
        what, i, ctx = rnd.randrange(9), rnd.randrange(7), rnd.randrange(1, 3)
        if what < 3:
            commands = [rnd.choice((
                lambda: p.transfer3d(rnd.randrange(6), small(), small(), small(), rnd.random() < .6),
                lambda: p.query(rnd.randrange(4), rnd.randrange(6)),
                lambda: p.result(rnd.randrange(4)), lambda: p.virgl(4, rnd.randrange(6)),
                lambda: p.virgl(1, *(small() for _ in range(14))),
                lambda: p.virgl(0x80 + rnd.randrange(62), *(small() for _ in range(12)))))()
                for _ in range(rnd.randrange(1, 8))]
            p.submit(ctx, *commands, fence=rnd.randrange(2), flags=rnd.choice((0, 0x10)),
                     room=rnd.choice((None, None, None, 24, 8)))
        elif what == 3:
            p.transfer(rnd.randrange(3), i, small() // 4, small() // 4, small(), small(),
                       rnd.randrange(8), rnd.randrange(2))
        elif what == 4:
            p.wait(rnd.choice((1000, 200000, 0xffffff)))
        elif what == 5:
            p.add(rnd.choice((12, 12, 13)))
        elif what == 6:
            p.add(6, bytes([rnd.randrange(2)]), i, 0, 0, 4, 4, b"\0")
        elif what == 7:
            p.add(0, bytes([rnd.randrange(256), 1]), *(small() for _ in range(12)))
        else:
            p.add(9, bytes([rnd.randrange(6), 0]), i)
    p.wait()
    return p.bytes + b"\x03" + bytes(-(len(p.bytes) + 1 - size) % 8)


def virtio_gpu():
    rnd = random.Random(1)
    for size, name in ((0, "2d"), (3, "forged"), (1, "host")):
        write("virtio-gpu", name, gpu_flow(size))
    for i in range(6):
        write("virtio-gpu", f"random-{i}", gpu_random(rnd, (1, 3, 2, 7, 5, 0)[i]))


def multiboot(code):
    flags = 0x10000
    return struct.pack("<8I", 0x1badb002, flags, -(0x1badb002 + flags) & 0xffffffff, 0x100000, 0x100000,
                       0x100020 + len(code), 0x101000, 0x100020) + code


def multiboot2(code):
    tags = struct.pack("<HHIIIII", 2, 0, 24, 0x100000, 0x100000, 0, 0x101000)
    tags += struct.pack("<HHIII", 3, 0, 12, 0x100000 + 64, 0) + struct.pack("<HHI", 0, 0, 8)
    head = (0xe85250d6, 0, 16 + len(tags))
    return (struct.pack("<4I", *head, -sum(head) & 0xffffffff) + tags).ljust(64, b"\0") + code


def setup_code():
    """A bzImage of protocol 2.09, which has nothing to be unpacked by others: setup code, and what is at 1 MiB."""
    f = bytearray(1024)
    f[0x1f1] = 1
    f[0x1fe:0x200] = b"\x55\xaa"
    f[0x202:0x208] = b"HdrS\x09\x02"
    f[0x211] = 1
    struct.pack_into("<I", f, 0x22c, 0x7fffffff)
    struct.pack_into("<I", f, 0x238, 255)
    return bytes(f) + b"\xf4" * 100


def main():
    small = elf([(0x200000, b"\xf4" * 64, 4096), (0x300000, b"data" * 50, 8192)])
    size = struct.pack("<I", len(small))
    write("kernel", "elf", small)
    write("kernel", "gzip", bzimage(gzip.compress(small, mtime=0)))
    write("kernel", "xz", bzimage(lzma.compress(small, check=lzma.CHECK_CRC32, filters=[
        {"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6}]) + size))
    write("kernel", "lz4", bzimage(pipe(small, "lz4", "-l", "-c") + size))
    write("kernel", "zstd", bzimage(pipe(small, "zstd", "-q", "-c") + size))
    write("kernel", "plain", bzimage(small))
    write("kernel", "multiboot", multiboot(b"\xf4" * 64))
    write("kernel", "multiboot2", multiboot2(b"\xf4" * 64))
    write("kernel", "setup", setup_code())
    write("kernel", "cpio", cpio([("init", b"#!/bin/sh\n"), ("etc/x", b"y" * 33)]))
    write("kernel", "cpio-packed", cpio([("a", b"b")]) + gzip.compress(b"more", mtime=0))

    for name, first in (("plain", b"\0\0\0\0"), ("initrd", b"\x08\x01\x02\0"),
                        ("header", b"\x04\x02\x03\xff")):
        write("boot", name, first + small)
    write("boot", "high", b"\x0f\x01\0\0" + elf([(0x1000000, b"\x90" * 200, 1 << 20)], 0x1000000))
    write("boot", "overlap", bytes(4) + elf([(0x200000, b"a" * 100, 4096)] * 2))
    write("boot", "setup", b"\x01\x02\x12\0" + setup_code())
    write("boot", "relative", bytes(4) + elf([(0x200000, b"a" * 100, 4096)], kind=3))

    with tempfile.TemporaryDirectory() as place:
        for name, options in (("tiny", []), ("long", ["--append", "x" * 3000])):
            subprocess.run([ROOT / "build/reprise", "record", "-o", f"{place}/{name}", "--memory",
                            "16M", "--max-insns", "1", "--kernel",
                            ROOT / "build/images/tiny/paging.elf", *options], check=True,
                           stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            write("description", name, pathlib.Path(place, name, "machine.dtb").read_bytes())

    virtio_gpu()
    write("keys", "text", b"\x04hello, world, this is typed\n\x0f")
    write("keys", "keys", b"\x02ab\x01b\x01n\x01p\x01\x01c\x01h\x10\x01\x01x\x03")
    write("keys", "many", b"\xff" + b"0123456789" * 60 + b"\x10" + b"\x01b" * 300)


main()
