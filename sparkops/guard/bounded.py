"""A connection with one deadline and a bound on the bytes it receives, so that a slow sender keeps no thread."""

from __future__ import annotations

import io
import socket
import time
from typing import Any


class Bounded:
    """A socket, as far as HTTP uses one. Raises TimeoutError once `seconds` have passed, whatever was received.

    After `size` received bytes the stream has ended.
    """

    def __init__(self, connection: socket.socket, seconds: float, size: int) -> None:
        self.connection = connection
        self.deadline_s = time.monotonic() + seconds
        self.size = size

    def arm(self) -> None:
        """Limit the next call to the time before the deadline. Raises TimeoutError."""
        remaining_s = self.deadline_s - time.monotonic()
        if remaining_s <= 0:
            raise TimeoutError("deadline passed")
        self.connection.settimeout(remaining_s)

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(_Incoming(self))

    def sendall(self, data: bytes) -> None:
        """Send all data within the deadline. Raises OSError."""
        self.arm()
        self.connection.sendall(data)

    def close(self) -> None:
        self.connection.close()


class _Incoming(io.RawIOBase):
    def __init__(self, bounded: Bounded) -> None:
        self.bounded = bounded
        self.raw = bounded.connection.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Read within the deadline; 0 at the end or the bound."""
        self.bounded.arm()
        received = self.raw.readinto(memoryview(buffer)[: self.bounded.size])
        self.bounded.size -= received or 0
        return received

    def close(self) -> None:
        self.raw.close()
        super().close()
