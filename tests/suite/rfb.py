"""A VNC client (RFC 6143), as small as the tests of displays need it: Raw, DesktopSize, keys."""
import ctypes
import select
import socket
import struct
import time

RAW, DESKTOP_SIZE = 0, -223
SPECIAL = {"\n": 0xff0d, "\t": 0xff09, "shift": 0xffe1, "ctrl": 0xffe3, "alt": 0xffe9}
SHIFTED = "ABCDEFGHIJKLMNOPQRSTUVWXYZ!@#$%^&*()_+{}:\"~|<>?"


class Closed(Exception):
    pass


def des_answer(password, challenge):
    """What the password makes of the server's challenge (7.2.2): DES with its bits reversed."""
    gcrypt = ctypes.CDLL("libgcrypt.so.20")
    key = bytes(int(f"{b:08b}"[::-1], 2) for b in password.encode().ljust(8, b"\0")[:8])
    handle, out = ctypes.c_void_p(), ctypes.create_string_buffer(16)
    gcrypt.gcry_check_version(None)
    if gcrypt.gcry_cipher_open(ctypes.byref(handle), 302, 1, 0):  # DES, ECB
        return None
    gcrypt.gcry_cipher_setkey(handle, key, 8)
    gcrypt.gcry_cipher_encrypt(handle, out, 16, challenge, 16)
    gcrypt.gcry_cipher_close(handle)
    return out.raw


class Client:
    def __init__(self, address, password=None, seconds=30):
        self.limit = time.monotonic() + seconds
        if address.startswith("unix:"):
            self.s = socket.socket(socket.AF_UNIX)
            self.s.connect(address[5:])
        else:
            host, port = address.rsplit(":", 1)
            self.s = socket.create_connection((host.strip("[]"), int(port)))
        self.width = self.height = 0
        self.picture = None  # R, G, B, X
        self.updates = 0
        self.handshake(password)

    def read(self, n):
        data = b""
        while len(data) < n:
            left = self.limit - time.monotonic()
            if left <= 0 or not select.select([self.s], [], [], left)[0]:
                raise TimeoutError(f"the VNC server did not send {n} bytes")
            try:
                part = self.s.recv(n - len(data))
            except ConnectionError:
                part = b""
            if not part:
                raise Closed()
            data += part
        return data

    def handshake(self, password):
        assert self.read(12)[:4] == b"RFB "
        self.s.sendall(b"RFB 003.008\n")
        kinds = self.read(self.read(1)[0])
        kind = 2 if password is not None else 1
        if kind not in kinds:
            raise PermissionError(f"the server offers {list(kinds)}")
        self.s.sendall(bytes([kind]))
        if kind == 2:
            self.s.sendall(des_answer(password, self.read(16)))
        if struct.unpack(">I", self.read(4))[0]:
            raise PermissionError("refused")
        self.s.sendall(b"\1")  # shared
        self.width, self.height = struct.unpack(">HH", self.read(4))
        self.read(16)
        self.title = self.read(struct.unpack(">I", self.read(4))[0]).decode()
        # 32 bits, little endian: bytes R, G, B, nothing.
        self.s.sendall(struct.pack(">B3x4B3H3B3x", 0, 32, 24, 0, 1, 255, 255, 255, 0, 8, 16))
        self.s.sendall(struct.pack(">BxHii", 2, 2, RAW, DESKTOP_SIZE))
        self.picture = bytearray(self.width * self.height * 4)

    # The screen

    def ask(self, incremental=True):
        self.s.sendall(struct.pack(">BBHHHH", 3, incremental, 0, 0, self.width, self.height))

    def rectangle(self):
        x, y, w, h, encoding = struct.unpack(">HHHHi", self.read(12))
        if encoding == DESKTOP_SIZE:
            self.width, self.height = w, h
            self.picture = bytearray(w * h * 4)
            return True
        assert encoding == RAW, encoding
        for row in range(y, y + h):
            at = (row * self.width + x) * 4
            self.picture[at:at + 4 * w] = self.read(4 * w)
        return False

    def update(self, incremental=True):
        """Asks for an update and takes it."""
        self.ask(incremental)
        while True:
            kind = self.read(1)[0]
            if kind == 0:
                break
            if kind == 3:
                self.read(struct.unpack(">3xI", self.read(7))[0])
        count, resized = struct.unpack(">xH", self.read(3))[0], False
        for _ in range(count):
            resized |= self.rectangle()
        self.updates += 1
        if resized:  # the rest of the picture
            self.update(False)

    def rows(self):
        """Rows of R, G, B bytes."""
        out = []
        for y in range(self.height):
            line = self.picture[y * self.width * 4:(y + 1) * self.width * 4]
            del line[3::4]
            out.append(bytes(line))
        return out

    def until(self, good):
        """Updates until the picture is as wanted."""
        self.update(False)
        while not good(self):
            self.update()

    # Input

    def key(self, keysym, down):
        self.s.sendall(struct.pack(">BBxxI", 4, down, keysym))

    def tap(self, what):
        keysym = SPECIAL.get(what) or ord(what)
        self.key(keysym, True)
        self.key(keysym, False)

    def type(self, text, pause=0):
        for c in text:
            shift = c in SHIFTED
            if shift:
                self.key(SPECIAL["shift"], True)
            self.tap(c)
            if shift:
                self.key(SPECIAL["shift"], False)
            time.sleep(pause)

    def pointer(self, x, y, buttons=0):
        self.s.sendall(struct.pack(">BBHH", 5, buttons, x, y))

    def close(self):
        self.s.close()
