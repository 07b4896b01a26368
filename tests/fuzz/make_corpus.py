#!/usr/bin/env python3
"""Makes tests/fuzz/corpus/{kernel,boot,description,keys} anew (the seeds; inputs of fixed bugs are
added by hand). Needs lz4 and zstd, and build/reprise with the tiny guests for a description."""
import gzip
import lzma
import pathlib
import struct
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
    write("kernel", "cpio", cpio([("init", b"#!/bin/sh\n"), ("etc/x", b"y" * 33)]))
    write("kernel", "cpio-packed", cpio([("a", b"b")]) + gzip.compress(b"more", mtime=0))

    for name, first in (("plain", b"\0\0\0\0"), ("initrd", b"\x08\x01\x02\0"),
                        ("header", b"\x04\x02\x03\xff")):
        write("boot", name, first + small)
    write("boot", "high", b"\x0f\x01\0\0" + elf([(0x1000000, b"\x90" * 200, 1 << 20)], 0x1000000))
    write("boot", "overlap", bytes(4) + elf([(0x200000, b"a" * 100, 4096)] * 2))
    write("boot", "relative", bytes(4) + elf([(0x200000, b"a" * 100, 4096)], kind=3))

    with tempfile.TemporaryDirectory() as place:
        for name, options in (("tiny", []), ("long", ["--append", "x" * 3000])):
            subprocess.run([ROOT / "build/reprise", "record", "-o", f"{place}/{name}", "--memory",
                            "16M", "--max-insns", "1", "--kernel",
                            ROOT / "build/images/tiny/paging.elf", *options], check=True,
                           stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            write("description", name, pathlib.Path(place, name, "machine.dtb").read_bytes())

    write("keys", "text", b"\x04hello, world, this is typed\n\x0f")
    write("keys", "keys", b"\x02ab\x01b\x01n\x01p\x01\x01c\x01h\x10\x01\x01x\x03")
    write("keys", "many", b"\xff" + b"0123456789" * 60 + b"\x10" + b"\x01b" * 300)


main()
