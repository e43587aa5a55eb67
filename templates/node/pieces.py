"""Numbered pieces of bytes, each with its HMAC, from the sending end of a transfer to one or more receiving ends."""

from __future__ import annotations

import hashlib
import hmac
import struct
import threading
from queue import Queue

CHUNK = 4 * 1024 * 1024
HEAD = struct.Struct("<cI")
NUMBER = struct.Struct("<Q")
MAC = hashlib.sha256().digest_size
AHEAD = 4
"""Pieces that a receiving end may be behind the piece that is read."""
DATA, FILE, END, ERROR = b"D", b"F", b"E", b"X"


class Failed(Exception):
    """This end failed; the message is the reason."""


class Broken(Exception):
    """The connection to the other end is lost, or the other end is not the expected one."""


class Wire:
    """Numbered pieces, each with its HMAC, in one direction."""

    def __init__(self, file, key):
        self.file, self.number = file, 0
        self.keyed = hmac.new(key, digestmod=hashlib.sha256)

    def mac(self, head, body):
        code = self.keyed.copy()
        code.update(NUMBER.pack(self.number) + head)
        code.update(body)
        self.number += 1
        return code.digest()

    def put(self, kind, body=b""):
        """Send one piece."""
        head = HEAD.pack(kind, len(body))
        try:
            for part in (head, body, self.mac(head, body)):
                self.file.write(part)
            self.file.flush()
        except OSError as error:
            raise Broken(f"connection to the receiving end lost: {error.strerror}") from None

    def close(self):
        """Send buffered bytes and close."""
        try:
            self.file.close()
        except OSError as error:
            raise Broken(f"connection to the receiving end lost: {error.strerror}") from None

    def get(self):
        """Return kind and bytes of the next piece."""
        head = self.exactly(HEAD.size)
        kind, size = HEAD.unpack(head)
        if size > CHUNK:
            raise Broken("a piece changed in transit: its size is invalid")
        body = self.exactly(size)
        if not hmac.compare_digest(self.exactly(MAC), self.mac(head, body)):
            raise Broken("a piece changed in transit: its HMAC is invalid")
        return kind, body

    def exactly(self, size):
        try:
            content = self.file.read(size)
        except OSError as error:
            raise Broken(f"connection to the sending end lost: {error.strerror}") from None
        if len(content) < size:
            raise Broken("connection to the sending end lost")
        return content


class Line:
    """A wire with its own thread."""

    def __init__(self, wire):
        self.wire, self.coming, self.broken = wire, Queue(AHEAD), None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (piece := self.coming.get()) is not None:
            self.attempt(self.wire.put, *piece)
        self.attempt(self.wire.close)

    def attempt(self, act, *words):
        """Send, unless the connection is lost."""
        try:
            if self.broken is None:
                act(*words)
        except Broken as error:
            self.broken = error


class Lines:
    """Wires to several receiving ends for the same pieces. Lost ends are skipped; losing the last one is an error."""

    def __init__(self, wires):
        self.lines = [Line(wire) for wire in wires]

    def put(self, kind, body=b""):
        for line in self.lines:
            line.coming.put((kind, body))
        self.check()

    def close(self):
        for line in self.lines:
            line.coming.put(None)
        for line in self.lines:
            line.thread.join()
        self.check()

    def check(self):
        if all(line.broken for line in self.lines):
            raise self.lines[0].broken


def key_for(token, what, *nonces):
    """Return a key for one purpose and one connection."""
    return hmac.new(token, b"sparkops " + what + b"".join(nonces), hashlib.sha256).digest()
