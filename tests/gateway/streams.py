"""A client that streams."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress

from tests.gateway.live import Live


class Stream:
    """An open stream, read in a thread."""

    def __init__(self, live: Live, parts: int) -> None:
        self.connection = live.connect()
        self.connection.request("POST", "/v1/completions", json.dumps({"stream": True, "max_tokens": parts}))
        self.response = self.connection.getresponse()
        self.lines: list[bytes] = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with suppress(ConnectionResetError):  # so it ends for one that leaves, and for one that is cut
            while line := self.response.readline():
                self.lines.append(line.strip())

    def leave(self) -> None:
        """Go without waiting for the end."""
        assert self.connection.sock
        self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        self.response.close()
        self.connection.close()

    @property
    def whole(self) -> bool:
        """Whether it came to its end; waits for it."""
        self.thread.join(30)
        self.response.close()
        self.connection.close()
        return b"data: [DONE]" in self.lines
