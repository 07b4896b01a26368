# What `reprise gdb` teaches gdb, in gdb's Python: part of the commands that gdb reads first (gdb.c).
# Packets: replay/gdb/README.md.
import os
import re

import gdb.unwinder
from gdb.FrameDecorator import FrameDecorator


def reprise_packet(text):
    """What the server answers; '' without one."""
    try:
        said = gdb.execute("maintenance packet " + text, to_string=True)
    except gdb.error:
        return ""
    found = re.search(r'received: "(.*)"', said)
    return found.group(1) if found else ""


# `monitor goto` moves the machine behind gdb's back. What it knows is thrown away only then: the
# frame that is selected goes with it.


def reprise_flush():
    shows = reprise_packet("qreprise.Shows")
    if shows in ("1", "2"):
        reprise_again(shows == "2")
        return
    if reprise_packet("qreprise.Moved") == "0":
        return
    for what in ("dcache", "register-cache"):
        gdb.execute("maintenance flush " + what, to_string=True)
    reprise_follow()


# gdb learns once what CPU it debugs, and again when it is told to. A file that it runs, which is of one
# kind, would have a say: once it is attached, it keeps the symbols only (gdb.c).


def reprise_follow():
    """Where code of another width runs than gdb was shown, it is shown that."""
    if reprise_packet("qreprise.Changed") != "1":
        return False
    gdb.execute("unset tdesc filename", to_string=True)
    said = gdb.execute("show architecture", to_string=True)
    print("The CPU executes other code here: gdb shows %s." % said.rstrip('\n.)').split()[-1].strip('"'))
    return True


# One process: its libraries are this machine's files of those names.


def reprise_program():
    global reprise_shows_process
    reprise_shows_process = True
    if gdb.parameter("sysroot") == "target:":
        gdb.execute("set sysroot /")


def note_of(read, at):
    """The build ID of an ELF file whose beginning `read` has at `at`; None: not to be read, or none."""
    head = read(at, 64)
    if head is None or head[:4] != b"\x7fELF":
        return None
    wide = head[4] == 2
    number = lambda data, i, n: int.from_bytes(data[i:i + n], "little")
    phoff = number(head, 32, 8) if wide else number(head, 28, 4)
    size, count = (56, number(head, 56, 2)) if wide else (32, number(head, 44, 2))
    for i in range(min(count, 64)):
        row = read(at + phoff + i * size, size)
        if row is None or number(row, 0, 4) != 4:
            continue
        where, length = (number(row, 16, 8), number(row, 32, 8)) if wide else (number(row, 8, 4), number(row, 16, 4))
        notes = read(at + where, min(length, 1024)) or b""
        while len(notes) >= 12:
            names, bytes_ = number(notes, 0, 4), number(notes, 4, 4)
            data = 12 + (names + 3 & ~3)
            if number(notes, 8, 4) == 3 and notes[12:16] == b"GNU\0":
                return notes[data:data + bytes_].hex()
            notes = notes[data + (bytes_ + 3 & ~3):]
    return None


def reprise_guest(at, size):
    """From the guest, not from a file that gdb takes for the same."""
    said = reprise_packet("m%x,%x" % (at, size))
    return bytes.fromhex(said) if re.fullmatch("([0-9a-f][0-9a-f]){%d}" % size, said) else None


reprise_others = []  # libraries of another build


def reprise_quoted(path):
    return re.sub(r"([^\w./+-])", r"\\\1", path)


def reprise_from_guest():
    """From here on gdb reads files of the guest. What they say is to be executed is not, and where they
    have holes memory knows better."""
    gdb.execute("set auto-load no", to_string=True)
    gdb.execute("set trust-readonly-sections off")


def reprise_exe():
    """The file that the process runs, as the guest says."""
    name = "/proc/%d/exe" % gdb.selected_inferior().pid
    found = re.match("F[0-9a-f]+;(/[ -~]*)$", reprise_packet("vFile:readlink:" + name.encode().hex()))
    return found.group(1) if found else None


def reprise_file():
    """The program's file, which this machine does not have: what of it the guest had in memory."""
    if gdb.current_progspace().filename or gdb.objfiles() and gdb.objfiles()[0].filename.startswith("/"):
        return  # the user named one
    name = reprise_exe()
    if name is None or gdb.selected_inferior().pid <= 0:
        return
    reprise_from_guest()
    try:
        gdb.execute("file target:" + reprise_quoted(name), to_string=True)
    except gdb.error as e:
        print("Nor is it in the guest's memory (%s): `file` gives gdb its symbols." % e)
        return
    print("gdb has of it what was in the guest's memory.")
    gdb.execute("frame")
    reprise_libraries()


def reprise_here(name):
    """Has this machine the file that the process runs?"""
    try:
        if not os.path.isfile(name):
            return False
        with open(name, "rb") as file:
            def read(at, size):
                file.seek(at)
                data = file.read(size)
                return data if len(data) == size else None
            own = note_of(read, 0)
    except OSError:
        return False
    return own is not None and own == reprise_build_id(name)


def reprise_any_file():
    """The program's, from here or from the guest."""
    name = reprise_exe()
    if name is not None and reprise_here(name):
        gdb.execute("file " + reprise_quoted(name), to_string=True)
        gdb.execute("set trust-readonly-sections on")
        reprise_libraries()
    else:
        reprise_file()


reprise_ran = None  # the last program


def reprise_executed():
    """After an exec gdb has taken the file of that name here, of whatever build."""
    global reprise_ran
    name = reprise_exe()
    if name == reprise_ran or name is None:
        return
    first, reprise_ran = reprise_ran is None, name
    if not first and not (gdb.current_progspace().filename and reprise_here(name)):
        gdb.execute("file", to_string=True)
        reprise_file()


reprise_kernel = None  # a file with its symbols
reprise_shows_process = False


def reprise_again(process):
    """gdb learns what it debugs where it attaches."""
    global reprise_shows_process, reprise_ran
    address = gdb.selected_inferior().connection.details
    gdb.execute("disconnect", to_string=True)
    for command in ("file", "unset tdesc filename", "set trust-readonly-sections off"):
        gdb.execute(command, to_string=True)
    reprise_shows_process, reprise_ran = process, None
    if process:
        gdb.execute("set sysroot /", to_string=True)
        reprise_program()
    elif reprise_kernel:
        gdb.execute("set remoteaddresssize 64")
        gdb.execute("file " + reprise_quoted(reprise_kernel), to_string=True)
    gdb.execute("target remote " + address, to_string=True)
    if process:
        reprise_any_file()
    else:
        gdb.execute("exec-file", to_string=True)
    if gdb.selected_thread():
        gdb.execute("frame")


def reprise_libraries():
    """Libraries that are not here are the guest's."""
    if gdb.parameter("sysroot") == "/" and \
            re.search(r"(?m)^(?:0x\S+ +0x\S+)? +No +(?:\(\*\) +)?/", gdb.execute("info sharedlibrary", to_string=True)):
        reprise_from_guest()
        gdb.execute("set sysroot target:", to_string=True)
        print("Libraries that are not here: gdb has of all what was in the guest's memory.")


def reprise_drop():
    """Where the process stands: while it runs gdb does not change its libraries."""
    if not reprise_others:
        return
    try:
        reprise_from_guest()
        gdb.execute("set sysroot target:", to_string=True)
    except gdb.error:
        return
    reprise_others.clear()


def reprise_build_id(name):
    """Of a file that the guest has mapped."""
    packet = reprise_packet("vFile:open:%s,0,0" % name.encode().hex())
    if not re.fullmatch("F[0-9a-f]+", packet):
        return None
    try:
        return note_of(lambda at, size: reprise_bytes(packet[1:], at, size), 0)
    finally:
        reprise_packet("vFile:close:" + packet[1:])


def reprise_bytes(file, at, size):
    """As gdb prints an answer: octal and C's escapes of what is not to be printed."""
    said = reprise_packet("vFile:pread:%s,%x,%x" % (file, size, at))
    found = re.match("F([0-9a-f]+);(.*)$", said, re.S)
    if not found:
        return None
    data, text = bytearray(), found.group(2)
    for part in re.findall(r"\\x[0-9a-f]{2}|\\[0-7]{3}|\\.|.", text, re.S):
        data.append(int(part[2:], 16) if part[:2] == "\\x" else ord(part[-1]))
    return bytes(data) if len(data) == int(found.group(1), 16) else None


def reprise_library(event):
    """A library of another build names every address wrongly: all go then, and it is said."""
    if not reprise_shows_process:
        return
    name = event.new_objfile.filename
    if not event.new_objfile.is_valid() or not event.new_objfile.build_id:
        return
    for line in gdb.execute("info sharedlibrary", to_string=True).splitlines():
        found = re.match(r"0x([0-9a-f]+) .*?(/.*)$", line)
        if not found or found.group(2) != name:
            continue
        at = int(found.group(1), 16) & ~0xfff
        for _ in range(4096):  # pages; .text may lie far from the file's beginning
            head = reprise_guest(at, 4)
            if head == b"\x7fELF":
                break
            at -= 0x1000
        own = note_of(reprise_guest, at)
        if own and own != event.new_objfile.build_id:
            print("%s here is another build than the guest's (build ID %s; in the guest: %s): gdb shows "
                  "what of libraries is in the guest's memory; `set sysroot` names where others are" %
                  (name, event.new_objfile.build_id, own))
            reprise_others.append(name)


gdb.events.new_objfile.connect(reprise_library)


# Entries of the kernel by their names, not as signal handlers. Shown x86-64, gdb does not understand
# the stack of a 32-bit program that entered the kernel: it is the last.

USER32_CS = 0x23  # of Linux


def is_narrow(frame):
    try:
        return frame.pc() >> 32 == 0 and frame.read_register("cs") == USER32_CS and \
            frame.architecture().name() == "i386:x86-64"
    except (RuntimeError, ValueError):
        return False


class Entry(FrameDecorator):
    def function(self):
        return self.inferior_frame().name() or 2 * "?"


class Entries:
    name, priority, enabled = "reprise", 100, True

    def filter(self, frames):
        for frame in frames:
            yield Entry(frame)
            if is_narrow(frame.inferior_frame()):
                return


gdb.frame_filters["reprise"] = Entries()


# What the kernel gives 32-bit programs on a page of its own, of which there is no file.
# __kernel_vsyscall, by which they enter it, has pushed ecx, edx and ebp and goes on with POPs of them;
# a signal's handler returns to __kernel_sigreturn or __kernel_rt_sigreturn (or a program's own of the
# same bytes), above which lies struct sigcontext.


class FrameId:
    def __init__(self, sp, pc):
        self.sp, self.pc = sp, pc


class KernelPage(gdb.unwinder.Unwinder):
    VSYSCALL = b"\x5d\x5a\x59\xc3"
    SIGRETURN, RT_SIGRETURN = b"\x58\xb8\x77\0\0\0\xcd\x80", b"\xb8\xad\0\0\0\xcd\x80"
    CONTEXT = ("edi", "esi", "ebp", "esp", "ebx", "edx", "ecx", "eax", None, None, "eip")

    def __init__(self):
        super().__init__("reprise-kernel-page")

    def words(self, at, count):
        data = gdb.selected_inferior().read_memory(at, 4 * count).tobytes()
        return [int.from_bytes(data[i:i + 4], "little") for i in range(0, 4 * count, 4)]

    def registers(self, pc, sp):
        code = gdb.selected_inferior().read_memory(pc, 8).tobytes()
        if code.startswith(self.VSYSCALL):
            return dict(zip(("ebp", "edx", "ecx", "eip", "esp"), self.words(sp, 4) + [sp + 16]))
        if code.startswith(self.SIGRETURN):
            context = sp + 4
        elif code.startswith(self.RT_SIGRETURN):
            context = self.words(sp + 8, 1)[0] + 20
        else:
            return {}
        return dict(zip(self.CONTEXT, self.words(context + 16, len(self.CONTEXT))))

    def __call__(self, pending):
        if pending.architecture().name() != "i386":
            return None
        try:
            pc, sp = pending.read_register("eip"), pending.read_register("esp")
            found = self.registers(int(pc) & 0xffffffff, int(sp) & 0xffffffff)
        except (RuntimeError, ValueError):
            return None
        if not found:
            return None
        info = pending.create_unwind_info(FrameId(sp, pc))
        for name in filter(None, found):
            kind = pending.read_register(name).type
            info.add_saved_register(name, gdb.Value(found[name]).cast(kind))
        return info


gdb.unwinder.register_unwinder(None, KernelPage())


# Conditions of watchpoints are evaluated by the server, which gdb tells of those of breakpoints
# only. Here they are compiled as gdb compiles the latter. gdb evaluates them too where it stops, so
# the server may leave out only what gdb would: whatever is not certain stays with gdb alone.


class Watched:
    """What is known of a watchpoint. Names are looked up where it is set, as gdb does."""

    def __init__(self, point):
        self.expression, self.condition = point.expression, point.condition
        self.once = self.expression.startswith("-location ")
        self.text = self.expression[len("-location "):] if self.once else self.expression
        self.framed = not self.once and is_framed(self.text)
        self.hidden = bool(self.condition) and is_framed(self.condition)
        self.where = self.code = None
        self.fresh = False

    def look(self):
        self.fresh = True
        if not (self.once and self.where):
            self.where = None if self.framed else self.place()
        names_code = None if not self.where or not self.condition or self.hidden else \
            compiled("(%s) != 0" % self.condition)
        self.code = names_code and names_code[1]

    def place(self):
        """(address, length), if that is one place for ever."""
        # Of a place that never changes no memory and no register is read.
        fixed = {"add", "sub", "mul", "ext", "zero_ext", "const8", "const16", "const32", "const64",
                 "end"}
        if re.search(r"\bmask\b", self.text):
            return None
        try:
            size = gdb.parse_and_eval(self.text).type.sizeof
            code = None if self.once else compiled("&(%s)" % self.text)
            if not self.once and (not code or set(code[0]) - fixed):
                return None
            return int(gdb.parse_and_eval("&(%s)" % self.text)) & (1 << 64) - 1, size
        except (gdb.error, gdb.MemoryError):
            return None


# Bytecodes by gdb's names, with the bytes of their operand.
CODES = {
    "add": (0x02, 0), "sub": (0x03, 0), "mul": (0x04, 0), "div_signed": (0x05, 0),
    "div_unsigned": (0x06, 0), "rem_signed": (0x07, 0), "rem_unsigned": (0x08, 0), "lsh": (0x09, 0),
    "rsh_signed": (0x0a, 0), "rsh_unsigned": (0x0b, 0), "log_not": (0x0e, 0), "bit_and": (0x0f, 0),
    "bit_or": (0x10, 0), "bit_xor": (0x11, 0), "bit_not": (0x12, 0), "equal": (0x13, 0),
    "less_signed": (0x14, 0), "less_unsigned": (0x15, 0), "ext": (0x16, 1), "ref8": (0x17, 0),
    "ref16": (0x18, 0), "ref32": (0x19, 0), "ref64": (0x1a, 0), "if_goto": (0x20, 2),
    "goto": (0x21, 2), "const8": (0x22, 1), "const16": (0x23, 2), "const32": (0x24, 4),
    "const64": (0x25, 8), "reg": (0x26, 2), "end": (0x27, 0), "dup": (0x28, 0), "pop": (0x29, 0),
    "zero_ext": (0x2a, 1), "swap": (0x2b, 0), "pick": (0x32, 1), "rot": (0x33, 0)}


def is_fatal(text):
    """Would `maintenance agent-eval` end gdb? Since gdb 14 it does where a register's remote number,
    taken for gdb's own, is that of one that the machine has not."""
    names, version = set(re.findall(r"\$(\w+)", text)), re.match(r"\d+", gdb.VERSION)
    if not names or (version and int(version.group(0)) < 14):
        return False
    rows = gdb.execute("maintenance print remote-registers", to_string=True)
    # Name, number, number again, offset, size, type, remote number.
    known = {int(own): (name, int(remote)) for name, own, remote in
             re.findall(r"^ *(\w+) +(\d+) +\d+ +\d+ +\d+ +\S+ +(\d+) ", rows, re.M)}
    return any(name in names and remote not in known for name, remote in known.values())


def compiled(text):
    """Names of bytecodes, and the bytes in hexadecimal; None: gdb cannot."""
    names, out = [], ""
    if is_fatal(text):
        return None
    try:
        rows = gdb.execute("maintenance agent-eval " + text, to_string=True)
    except (gdb.error, gdb.MemoryError):
        return None
    for at, name, operand in re.findall(r"^ *(\d+)  (\w+)(?: (-?\d+))?$", rows, re.M):
        number, size = CODES.get(name, (None, 0))
        if number is None or len(out) != 2 * int(at) or bool(operand) != bool(size):
            return None
        out += "%02x" % number
        if size:
            out += "%0*x" % (2 * size, int(operand) & (1 << 8 * size) - 1)
        names.append(name)
    return (names, out) if names and names[-1] == "end" else None


def is_framed(text):
    """Is anything in it a frame's? Where that is depends on where the machine stands."""
    for name in re.findall(r"(?<![\w$.])[A-Za-z_]\w*", text):
        try:
            found = gdb.lookup_symbol(name)[0]
        except gdb.error:
            found = gdb.lookup_global_symbol(name)
        if found is not None and found.needs_frame:
            return True
    return False


class Conditions:
    KINDS = {gdb.BP_HARDWARE_WATCHPOINT: 2, gdb.BP_READ_WATCHPOINT: 3, gdb.BP_ACCESS_WATCHPOINT: 4}
    ROOM = 12000  # characters of a packet

    def __init__(self):
        self.known = {}  # by number
        self.sent = ""
        gdb.events.breakpoint_created.connect(self.tell)
        gdb.events.breakpoint_modified.connect(self.tell)
        gdb.events.breakpoint_deleted.connect(lambda point: self.tell(point, point.number))
        gdb.events.new_objfile.connect(self.forget)

    def forget(self, event):
        """What was looked up by name is looked up again."""
        for watched in self.known.values():
            watched.fresh = False

    def look(self, point):
        watched = self.known.get(point.number)
        if not watched or (watched.expression, watched.condition) != (point.expression, point.condition):
            watched = self.known[point.number] = Watched(point)
        if not watched.fresh:
            watched.look()
        return watched

    def packet(self, gone):
        """All that the server is to know. A place where any watchpoint wants each hit is not in it:
        gdb inserts one for all of the same place."""
        places = {}
        for point in gdb.breakpoints():
            if point.type not in self.KINDS or point.number == gone or not point.enabled:
                continue
            watched = self.look(point)
            if not watched.where:
                return ""
            places.setdefault((self.KINDS[point.type], *watched.where), []).append(watched.code)
        rows = ["%x,%x,%x" % key + "".join(";X%x,%s" % (len(c) // 2, c) for c in codes)
                for key, codes in sorted(places.items()) if all(codes)]
        return "/".join(rows) if len("/".join(rows)) < self.ROOM else ""

    def tell(self, point, gone=None):
        if point.type not in self.KINDS:
            return
        text = self.packet(gone)
        self.known.pop(gone, None)
        if text != self.sent:
            self.sent = text if reprise_packet("Qreprise.Conditions:" + text) == "OK" else None

    def see(self):
        """gdb reads anew what it watches: what the server left out up to here, it has seen then."""
        if not self.sent:
            return
        for point in gdb.breakpoints():
            if point.type in self.KINDS and point.enabled and point.condition:
                point.enabled = True
        reprise_packet("Qreprise.Seen")


reprise_conditions = Conditions()


# Steps back. gdb asks for them one by one, millions out of a long loop. The server takes many at
# once where it knows that gdb would stop at none: it is told which instructions of the function
# belong together. What gdb does at each (gdb: process_event_stop_test):
# - In an inlined function that is called, at whatever depth, by the one it steps through, it goes
#   on, except at its first instruction, where it may show the call; not in reverse-step.
# - In a row of the line table it goes on, except at its beginning.


def function_of(block):
    while block is not None and block.function is None:
        block = block.superblock
    return block


def name_of(block):
    return block.start, block.end, str(block.function)


class Back:
    ROOM = 14000  # characters of a packet
    LARGEST = 64 << 10  # bytes of a function

    def __init__(self):
        self.told = False

    def begin(self, command):
        self.end()
        try:
            text = self.packet(command)
        except RuntimeError:  # a gdb.error, or there is no block
            return
        if text and len(text) < self.ROOM:
            self.told = reprise_packet("Qreprise.Back:" + text) == "OK"

    def end(self):
        if self.told:
            reprise_packet("Qreprise.Back:")
        self.told = False

    def chains(self):
        """By address: the functions around it, the innermost first."""
        known = {}

        def chain(pc):
            block = gdb.block_for_pc(pc)
            if block is None:
                return ()
            key = name_of(block)
            if key not in known:
                names, at = [], function_of(block)
                while at is not None:
                    names.append(name_of(at))
                    at = function_of(at.superblock) if at.superblock else None
                known[key] = tuple(names)
            return known[key]
        return chain

    def packet(self, command):
        finish = command == "finish"
        frame = gdb.selected_frame() if finish else gdb.newest_frame()
        if finish and frame.type() != gdb.INLINE_FRAME:
            return None
        inner = function_of(frame.block())
        through = function_of(inner.superblock) if finish else inner
        whole = inner
        while whole is not None and function_of(whole.superblock) is not None:
            whole = function_of(whole.superblock)
        if whole is None or through is None or whole.end - whole.start > self.LARGEST:
            return None
        code = frame.architecture().disassemble(whole.start, whole.end - 1)
        return self.rows(code, name_of(through), name_of(whole), command != "step")

    def rows(self, code, through, whole, over):
        """The packet; `over`: calls are stepped over."""
        chain, keys, before = self.chains(), [], None
        calls = set()
        for insn in code:
            at = insn["addr"]
            around, line = chain(at), gdb.find_pc_line(at)
            depth = around.index(through) if through in around else 0
            if not around or around[-1] != whole:
                key = None
            elif over and depth:
                child = around[depth - 1:]
                key = child if before is not None and before[-len(child):] == child else 0
            else:
                key = (line.pc, around) if before == around and line.pc < at and line.line else 0
                if insn["asm"].startswith("call"):
                    calls.add((line.pc, around))
            keys.append(key)
            before = around
        if not over:
            keys = [0 if key in calls else key for key in keys]
        if not over:
            keys = [0 if key in calls else key for key in keys]
        groups, parts, last = {}, [], object()
        for insn, key in zip(code, keys):
            if key != last:
                number = groups.setdefault(key, len(groups) + 1) if key else 0
                parts.append(["-" if key is None else "%x" % number, []])
            parts[-1][1].append(insn["length"])
            last = key
        base = code[0]["addr"]
        return "%x" % base + "".join(
            ";%s,%s" % (group, "%x" % sum(sizes) if group == "-" else
                        "".join("%x" % size for size in sizes)) for group, sizes in parts) + \
            "/" + ";".join("%x,%x" % (groups[key] if key else 0, at - base)
                           for at, key in self.entries(code, keys))

    def entries(self, code, keys):
        """(address, key): from where which group may be entered; None: any."""
        by_address = {insn["addr"]: key for insn, key in zip(code, keys)}
        for insn, key in zip(code, keys):
            at = insn["addr"]
            jump = re.match(r"(?:bnd |notrack )?(?:j|loop|xbegin)\w*\s+(\S+)", insn["asm"])
            if jump and not jump.group(1).startswith("0x"):
                yield at, None
                continue
            to = {by_address.get(at + insn["length"])}
            if jump:
                to.add(by_address.get(int(jump.group(1), 16)))
            yield from ((at, other) for other in to if other and other != key)


reprise_back = Back()


# Backwards a process that was made is told only to who catches that: gdb would follow it to before it
# was there.


def reprise_forks(point, gone=None):
    kind = getattr(gdb, "BP_CATCHPOINT", None)
    if point.type != kind:
        return
    rows = gdb.execute("info breakpoints", to_string=True)
    caught = [n for n in re.findall(r"(?m)^(\d+) +catchpoint +\w+ +y +v?fork\b", rows) if int(n) != gone]
    reprise_packet("Qreprise.Forks:%d" % bool(caught))


gdb.events.breakpoint_created.connect(reprise_forks)
gdb.events.breakpoint_modified.connect(reprise_forks)
gdb.events.breakpoint_deleted.connect(lambda point: reprise_forks(point, point.number))


def reprise_stop(event):
    if reprise_shows_process:
        reprise_executed()
    reprise_drop()
    if reprise_follow():
        gdb.execute("frame")
    frame = gdb.newest_frame()
    if frame.type() == gdb.SIGTRAMP_FRAME and frame.name():
        print("in %s ()" % frame.name())
    reprise_conditions.see()
    reprise_back.end()


gdb.events.stop.connect(reprise_stop)
