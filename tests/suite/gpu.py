"""`reprise gpu list` and `show` on a log that tests/tools/gpu_log_sample makes."""
import json
import struct
import zlib

from suite.harness import DAMAGE, ERROR, USAGE, test


def sample(t, frames=5, *more, name="gpu.log"):
    t.run(t.build / "tests" / "tools" / "gpu_log_sample", t.dir / name, frames, *more)
    return t.dir / name


def gpu(t, verb, *args, **more):
    return t.run(t.reprise, "gpu", verb, *args, **more)


def png(path):
    """Width, height and rows of RGB or RGBA tuples of an 8-bit PNG (filter types 0 to 4)."""
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        part = data[at + 8:at + 8 + size]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", part[:10])
        if kind == b"IDAT":
            body += part
        at += 12 + size
    n = 4 if colour == 6 else 3
    raw, rows, above = zlib.decompress(body), [], bytes(width * n)
    for y in range(height):
        line = bytearray(raw[y * (width * n + 1) + 1:(y + 1) * (width * n + 1)])
        kind = raw[y * (width * n + 1)]
        for i in range(width * n):
            left = line[i - n] if i >= n else 0
            corner = above[i - n] if i >= n else 0
            up = above[i]
            p = left + up - corner
            near = min((abs(p - left), 0, left), (abs(p - up), 1, up), (abs(p - corner), 2, corner))
            line[i] = (line[i] + [0, left, up, (left + up) // 2, near[2]][kind]) & 255
        above = bytes(line)
        rows.append([tuple(line[x * n:x * n + n]) for x in range(width)])
    return width, height, rows


@test("gpu/list")
def listing(t):
    log = sample(t)
    lines = gpu(t, "list", log).text.splitlines()
    t.check(len(lines) == 35, f"{len(lines)} lines for 34 commands and a lost renderer")
    t.has(lines[1], r'^ +1 +1002000 +0\.001002000  ctx 1   CTX_CREATE .*debug_name="triangle"$')
    t.has(lines[5], r"TRANSFER_TO_HOST_2D x=0 y=24 .* uploads 6144 B$")
    t.has(lines[7], r"RESOURCE_FLUSH .*  = frame 1$")
    t.has(lines[20], r"SUBMIT_3D size=\d+ 17 commands: 4 DRAW_VBO, 1 CLEAR, 1 TRANSFER3D .*96 B$")
    t.has(lines[31], r"\(dword 2: unknown command\) -> ERR_INVALID_PARAMETER$")
    t.has(lines[32], r"RESOURCE_UNREF .*\(shorter than its fields\) -> ERR_INVALID_PARAMETER$")
    t.has(lines[34], r"the renderer is gone: killed by signal 9$")
    # Ranges: frame 3 is commands 22 and 23; a position.
    part = gpu(t, "list", log, "--from", "frame:3", "--to", "frame:3").text.splitlines()
    t.check([line.split()[0] for line in part] == ["22", "23"], f"frame 3 is {part}")
    part = gpu(t, "list", log, "--from", "1003000", "--to", "insn:1004000").text.splitlines()
    t.check([line.split()[0] for line in part] == ["2", "3"], f"positions are {part}")
    inner = gpu(t, "list", log, "--inner", "--from", "frame:6").text
    t.has(inner, r"(?m)^ +28\.28 +CLEAR buffers=COLOR0 red=1 green=0.5 blue=0.25 alpha=1 ")
    t.has(inner, r"(?m)^ +28\.2 +TRANSFER3D resource=2 .*direction=TO_HOST$")
    # A recording has it under its name.
    t.check(gpu(t, "list", t.dir).text.splitlines() == lines, "DIR and FILE differ")


@test("gpu/json")
def json_lines(t):
    log = sample(t)
    rows = [json.loads(line) for line in gpu(t, "list", log, "--json", "--inner").text.splitlines()]
    t.check([r["number"] for r in rows[:-1]] == list(range(34)), "numbers")
    t.check(rows[-1]["lost"] == "killed by signal 9", f"{rows[-1]}")
    t.check([r["frame"] for r in rows if "frame" in r] == [1, 2, 3, 4, 5, 6], "frames")
    create = rows[8]
    t.check(create["command"] == "RESOURCE_CREATE_3D" and
            create["fields"]["format"] == "B8G8R8X8_UNORM" and create["fields"]["width"] == 64 and
            create["response"] == "OK_NODATA", f"{create}")
    t.check(rows[9]["fields"]["each"] == [{"addr": 0x100000, "length": 4096},
                                          {"addr": 0x200000, "length": 8192}], f"{rows[9]}")
    draw = rows[20]
    t.check(draw["uploads"] == [{"dword": 2, "resource": 2, "offset": 0, "size": 96}], f"{draw}")
    names = [c["command"] for c in draw["commands"]]
    t.check(names.count("DRAW_VBO") == 4 and names[-1] == "END_TRANSFERS", f"{names}")
    t.check(rows[31]["problem"] == "unknown command" and rows[31]["problem_dword"] == 2,
            f"{rows[31]}")

    stats = json.loads(gpu(t, "list", log, "--json", "--stats").text)
    for name, value in {"commands": 34, "frames": 6, "replies": 34, "errors": 2, "lost": 1,
                        "pieces": 5, "width": 64, "capset_size": 308, "readback": 12288,
                        "carried": 2 * 6144 + 256 + 5 * 96 + 12288,
                        "kept": 6144 + 256 + 2 * 96 + 12288}.items():
        t.check(stats[name] == value, f"{name} is {stats[name]}, not {value}")
    context = stats["by_context"][0]
    t.check(context["name"] == "triangle" and context["draws"] == 20, f"{context}")
    inner = {row["command"]: row["count"] for row in stats["by_inner"]}
    t.check(inner["DRAW_VBO"] == 20 and inner["CREATE_OBJECT SHADER"] == 2, f"{inner}")
    text = gpu(t, "list", log, "--stats").text
    t.has(text, r"34 commands, 6 frames")
    t.has(text, r"1 triangle")


@test("gpu/show")
def show(t):
    log = sample(t)
    text = gpu(t, "show", log, "28.68").text
    for pattern in (r"^command 28\.68: DRAW_VBO, in a SUBMIT_3D, position 1029000",
                    r"(?m)^    mode: TRIANGLES$",
                    r"(?m)^    0:  IN\[0\]=-0\.9,-0\.9,0,1  IN\[1\]=0,0,0,1$",
                    r'(?m)^context 1 "triangle", sub-context 1$',
                    r"(?m)^SET_VIEWPORT_STATE \[0\] \(set by 28\.20\)",
                    r"(?m)^    SURFACE 10 \(made by 18\.4\)",
                    r"(?m)^ +1: MOV OUT\[0\], IN\[0\]$",
                    r"(?m)^ +0: TEX OUT\[0\], IN\[0\], SAMP\[0\], 2D$",
                    r"(?m)^ +resource 3: TEXTURE_2D R8G8B8A8_UNORM 8x8, made by command 12, "
                    r"last uploaded by 17$",
                    r"(?m)^answer: OK_NODATA"):
        t.has(text, pattern)
    one = json.loads(gpu(t, "show", log, "28.68", "--json").text)
    t.check(one["fields"]["count"] == 3 and one["command"] == "DRAW_VBO", f"{one['fields']}")
    bound = {(b["command"], b.get("stage"), b["slot"]): b for b in one["state"]}
    shader = bound["BIND_SHADER", "FRAGMENT", 0]["objects"][0]
    t.has(shader["text"], r"(?s)^FRAG\n.*TEX OUT\[0\]")
    target = bound["SET_FRAMEBUFFER_STATE", None, 0]["objects"][0]["resources"][0]
    t.check(target["resource"] == 1 and target["format"] == "B8G8R8X8_UNORM", f"{target}")
    shader = json.loads(gpu(t, "show", log, "18.22", "--json").text)
    t.has(shader["text"], r"^VERT\n")
    # The upload is that of the frame.
    upload = json.loads(gpu(t, "show", log, "22.2", "--json").text)["uploads"][0]
    t.check(upload["size"] == 96 and
            upload["head"].startswith(struct.pack("<4f", -.9, -.9, 0, 1).hex()), f"{upload}")
    reply = json.loads(gpu(t, "show", log, "33", "--json").text)["reply"]
    t.check(reply["readback"][0]["size"] == 12288 and reply["response"] == "OK_NODATA", f"{reply}")
    t.has(gpu(t, "show", log, "31").text, r"\.2 +command 200 .*\(unknown command\)")
    t.lacks(gpu(t, "show", log, "28.0").text, "bound:")
    t.has(gpu(t, "show", log, "28.0", "--state").text, r"(?m)^bound:$")


@test("gpu/png")
def pictures(t):
    log = sample(t)
    gpu(t, "show", log, "17", "--png", t.dir / "a.png")
    width, height, rows = png(t.dir / "a.png")
    t.check((width, height) == (8, 8), f"{width}x{height}")
    want = [[(x * 36, y * 36, 128) for x in range(8)] for y in range(8)]
    t.check(rows == want, "the texture's texels")
    # The console, of which frame 1 is made; a frame as it was read back.
    gpu(t, "show", log, "7", "--png", t.dir / "b.png")
    width, height, rows = png(t.dir / "b.png")
    t.check((width, height) == (64, 48) and all(
        row == [(x * 4,) * 3 for x in range(64)] for row in rows), "the console's pixels")
    gpu(t, "show", log, "33", "--png", t.dir / "c.png")
    t.check(png(t.dir / "c.png")[2][47][63] == (255, 128, 64), "the pixels read back")
    # The texture that a draw uses.
    gpu(t, "show", log, "28.68", "--png", t.dir / "d.png", "--resource", 3)
    t.check(png(t.dir / "d.png")[2] == want, "a resource by its number")
    for args, why in ((("17", "--png", t.dir / "a.png"), "is there already"),
                      (("0", "--png", t.dir / "e.png"), "names no resource"),
                      (("8", "--png", t.dir / "e.png"), "nothing was uploaded"),
                      (("10", "--png", t.dir / "e.png"), "a buffer"),
                      (("20", "--png", t.dir / "e.png", "--resource", 99), "no resource 99")):
        t.has(gpu(t, "show", log, *args, code=ERROR).error, "^reprise: .*" + why)
    t.check(not (t.dir / "e.png").exists(), "a picture was left behind")


@test("gpu/bad-input", cost=2)
def bad_input(t):
    log = sample(t, 200)
    whole = log.read_bytes()
    other = t.dir / "other"

    def refused(data, pattern, verb=("list",)):
        other.write_bytes(data)
        r = gpu(t, *verb, other, code=ERROR)
        lines = r.error.strip().splitlines()
        t.check(len(lines) == 1 and not r.text, f"{lines}")
        t.has(lines[0], "^reprise: .*other: .*" + pattern)

    refused(b"", "0 bytes")
    refused(b"\x89RPG", "cut short")
    refused(b"hello, this is not a log of anything at all\n", "not a GPU log")
    refused(whole[:8] + b"\x02" + whole[9:], "wrong checksum")
    refused(whole[:32], "no start")
    refused(whole[:50], "no start")
    for cut in (len(whole) - 1, len(whole) // 2):
        other.write_bytes(whole[:cut])
        r = gpu(t, "list", other, code=DAMAGE)
        t.has(r.error, "^reprise: the GPU log ends early: chunk \\d+ at file offset \\d+: only ")
    other.write_bytes(whole[:-20] + bytes([whole[-20] ^ 4]) + whole[-19:])
    t.has(gpu(t, "list", "--stats", other, code=DAMAGE).error, "wrong checksum")
    sample(t, 3, "cut", name="killed")
    t.has(gpu(t, "list", t.dir / "killed", code=DAMAGE).error, "killed, or could not write")
    # A recording without one; no such file; what is no command.
    (t.dir / "empty").mkdir()
    t.has(gpu(t, "list", t.dir / "empty", code=ERROR).error, "there is no gpu.log in it")
    t.has(gpu(t, "list", t.dir / "nowhere", code=ERROR).error, "No such file")
    t.has(gpu(t, "show", log, "99999", code=ERROR).error, "no command 99999: the log has 424")
    t.has(gpu(t, "show", log, "20.3", code=ERROR).error, "no command starts at dword 3")
    t.has(gpu(t, "show", log, "0.0", code=ERROR).error, "GET_DISPLAY_INFO: it has no commands")
    t.has(gpu(t, "list", log, "--from", "frame:500", code=ERROR).error, "has 201 frames")
    for args in ((), ("draw",), ("list",), ("show", log), ("show", log, "x"), ("show", log, "1.x"),
                 ("list", log, "--from", "frame:0"), ("list", log, "--from", "frame:x"),
                 ("list", log, "--from", "5", "--to", "4"), ("show", log, "1", "--force"),
                 ("list", log, "--stats", "--inner"), ("show", log, "1", "2"),
                 ("show", log, "1", "--png", "x", "--resource", "0")):
        t.run(t.reprise, "gpu", *args, code=USAGE)
