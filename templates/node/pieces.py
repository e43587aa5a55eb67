"""Numbered pieces of bytes, each with its HMAC, from one end of a transfer to one or several others."""

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
"""Pieces that one of several receiving ends may be behind the one that is read."""
DATA, FILE, END, ERROR = b"D", b"F", b"E", b"X"


class Failed(Exception):
    """This end cannot go on, and says why."""


class Broken(Exception):
    """The other end is gone, or is not who it should be."""


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
            raise Broken(f"the receiving end is gone: {error.strerror}") from None

    def close(self):
        """Send what is still held back."""
        try:
            self.file.close()
        except OSError as error:
            raise Broken(f"the receiving end is gone: {error.strerror}") from None

    def get(self):
        """The next piece: its kind and its bytes."""
        head = self.exactly(HEAD.size)
        kind, size = HEAD.unpack(head)
        if size > CHUNK:
            raise Broken("a piece was changed on the way")
        body = self.exactly(size)
        if not hmac.compare_digest(self.exactly(MAC), self.mac(head, body)):
            raise Broken("a piece was changed on the way")
        return kind, body

    def exactly(self, size):
        try:
            content = self.file.read(size)
        except OSError as error:
            raise Broken(f"the sending end is gone: {error.strerror}") from None
        if len(content) < size:
            raise Broken("the sending end is gone")
        return content


class Line:
    """A wire with a thread of its own."""

    def __init__(self, wire):
        self.wire, self.coming, self.broken = wire, Queue(AHEAD), None
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (piece := self.coming.get()) is not None:
            self.attempt(self.wire.put, *piece)
        self.attempt(self.wire.close)

    def attempt(self, act, *words):
        """Nothing more goes to an end that is gone."""
        try:
            if self.broken is None:
                act(*words)
        except Broken as error:
            self.broken = error


class Lines:
    """The same pieces to several receiving ends. One that is gone stops the others no more; without any it ends."""

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
    """A key for one purpose and one meeting."""
    return hmac.new(token, b"sparkops " + what + b"".join(nonces), hashlib.sha256).digest()
