"""A server of one NBD export for tests: from a thread of the test, with faults on demand. Protocol:
NetworkBlockDevice/nbd doc/proto.md, fixed newstyle, simple replies, reading only."""
import errno
import socket
import struct
import threading

OPTION_REPLY = 0x3E889045565A9
ACK, INFO, UNSUPPORTED = 1, 3, (1 << 31) + 1
EXPORT_NAME, ABORT, GO_INFO, GO = 1, 2, 6, 7
READ, DISCONNECT = 0, 2
HAS_FLAGS, READ_ONLY = 1, 2


class Server:
    def __init__(self, data, path=None):
        """Listens on a Unix socket `path`, or on a port of 127.0.0.1 (self.port)."""
        self.data, self.bad, self.stalled, self.refuse = data, None, False, False
        self.reads, self.connection = 0, None
        self.listener = socket.socket(socket.AF_UNIX if path else socket.AF_INET)
        self.listener.bind(str(path) if path else ("127.0.0.1", 0))
        self.port = None if path else self.listener.getsockname()[1]
        self.listener.listen(4)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                self.connection = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.talk, args=(self.connection,), daemon=True).start()

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)  # accept() ends
        except OSError:
            pass
        self.listener.close()
        self.drop()

    def drop(self):
        """The connection ends in the middle of things."""
        if self.connection:
            try:
                self.connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def get(self, c, n):
        data = b""
        while len(data) < n:
            more = c.recv(n - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def talk(self, c):
        try:
            if self.stalled:
                threading.Event().wait(600)
            if self.negotiate(c):
                self.serve(c)
        except OSError:
            pass
        c.close()

    def negotiate(self, c):
        c.sendall(b"NBDMAGICIHAVEOPT" + struct.pack(">H", 3))
        flags, = struct.unpack(">I", self.get(c, 4))
        transmission = struct.pack(">QH", len(self.data), HAS_FLAGS | READ_ONLY)
        while True:
            _, option, length = struct.unpack(">8sII", self.get(c, 16))
            self.get(c, length)

            def reply(kind, payload=b""):
                c.sendall(struct.pack(">QIII", OPTION_REPLY, option, kind, len(payload)) + payload)

            if option == EXPORT_NAME:
                if self.refuse:
                    return False
                c.sendall(transmission + (b"" if flags & 2 else bytes(124)))
                return True
            if option in (GO, GO_INFO) and not self.refuse:
                reply(INFO, struct.pack(">H", 0) + transmission)
                reply(ACK)
                if option == GO:
                    return True
            elif option == ABORT:
                reply(ACK)
                return False
            else:
                reply(UNSUPPORTED)

    def serve(self, c):
        while True:
            _, _, kind, cookie, offset, length = struct.unpack(">IHHQQI", self.get(c, 28))
            if kind == DISCONNECT:
                return
            while self.stalled:
                threading.Event().wait(0.05)
            self.reads += 1
            bad = self.bad and offset < self.bad[1] and self.bad[0] < offset + length
            code = errno.EINVAL if kind != READ else errno.EIO if bad else 0
            c.sendall(struct.pack(">IIQ", 0x67446698, code, cookie) +
                      (b"" if code else self.data[offset:offset + length]))
