"""A client that streams."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import ExitStack, closing, suppress
from typing import Self

from tests.gateway.live import PATIENCE_S, Live


class Stream:
    """An open stream, read in a thread. It goes on until `finish`, or until its client leaves at the end of `with`."""

    def __init__(self, live: Live) -> None:
        self.live = live
        with ExitStack() as unless_open:
            self.connection = unless_open.enter_context(closing(live.connect()))
            self.connection.request("POST", "/v1/completions", json.dumps({"stream": True}))
            self.response = self.connection.getresponse()
            unless_open.pop_all()
        self.lines: list[bytes] = []
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with suppress(ConnectionResetError):  # so it ends for one that leaves, and for one that is cut
            while line := self.response.readline():
                self.lines.append(line.strip())

    def finish(self) -> None:
        """Let its engine end it, with all that the engine streams."""
        self.live.finish_streams(self.response.headers["x-stand-in"])

    @property
    def whole(self) -> bool:
        """Whether it came to its end; waits for it. Raises TimeoutError if it goes on."""
        self.thread.join(PATIENCE_S)
        if self.thread.is_alive():
            raise TimeoutError("the stream goes on")
        self.close()  # kept, its connection would hold its worker
        return b"data: [DONE]" in self.lines

    def close(self) -> None:
        self.response.close()
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.connection.sock:
            with suppress(OSError):  # a stream that was cut is not connected any more
                self.connection.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(PATIENCE_S)
        self.close()
