"""Streams of a command: bytes for its stdin, its outputs as text, and requests to one process, a line each."""

from __future__ import annotations

import codecs
import errno
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import IO, Any

from sparkops import foreign
from sparkops.command import Command
from sparkops.node.node import Node, OnLine, Stream

KEEP = 4 * 1024 * 1024  # characters kept of one output; a build log or a long line must not fill memory
BOTH_WAYS = 2  # socket.SHUT_RDWR, as of paramiko's channels
PIECES = 1024  # joined when there are more: a string of one character takes 50 bytes


@dataclass
class Feed:
    """Feeder of `chunks` in a thread, until `write` raises one of `closed`: the program may close its stdin early."""

    chunks: Iterable[bytes]
    write: Callable[[bytes], object]
    close: Callable[[], object]
    closed: tuple[type[Exception], ...]
    error: Exception | None = None

    def check(self) -> None:
        """Raise the error of the chunks: the program has received only a part of them."""
        if self.error is not None:
            raise self.error

    def run(self) -> None:
        """Write all chunks, then end the stdin."""
        try:
            for chunk in self.chunks:
                try:
                    self.write(chunk)
                except self.closed:
                    break
        except Exception as error:  # noqa: BLE001 - raised by check() in the waiting thread
            self.error = error
        with suppress(*self.closed):
            self.close()


def feed(
    first: bytes,
    rest: Iterable[bytes],
    write: Callable[[bytes], object],
    close: Callable[[], object],
    closed: tuple[type[Exception], ...] = (OSError,),
) -> Feed:
    """Start to write `first` and then `rest`. Raises OSError where no thread can be started."""
    feeding = Feed(chain((first,) if first else (), rest), write, close, closed)
    run_in_thread(feeding.run)
    return feeding


def run_in_thread(run: Callable[..., object], *args: object) -> None:
    """Run a function in a thread. Raises OSError where none can be started, as for a program."""
    try:
        threading.Thread(target=run, args=args, daemon=True).start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error


class TooLong(Exception):
    """An answer of more than KEEP characters."""


@dataclass
class Output:
    """The last KEEP characters of one output; invalid bytes are U+FFFD. For a longer `answer`, feed raises TooLong."""

    on_line: OnLine | None = None
    answer: bool = False
    parts: deque[str] = field(default_factory=deque)
    size: int = 0
    pending: str = ""
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    @property
    def text(self) -> str:
        return "".join(self.parts)[-KEEP:]

    def feed(self, data: bytes, *, final: bool = False) -> None:
        """Take the next bytes; `final` ends the last line."""
        new = self.decoder.decode(data, final)
        self._keep(new)
        if self.on_line is None:
            return
        *lines, self.pending = (self.pending + new).split("\n")
        self.pending = self.pending[-KEEP:]
        if final and self.pending:
            lines.append(self.pending)
        for line in lines:
            self.on_line(line.rstrip("\r"))

    def _keep(self, new: str) -> None:
        self.parts.append(new)
        self.size += len(new)
        if self.answer and self.size > KEEP:
            raise TooLong(f"printed more than {KEEP} characters; stopped")
        while self.size - len(self.parts[0]) >= KEEP:
            self.size -= len(self.parts.popleft())
        if len(self.parts) > PIECES:
            self.parts = deque(["".join(self.parts)])


@dataclass
class LineStream:
    """A stream to a command, opened by the first request and again after it was closed."""

    node: Node
    command: Command
    stream: Stream = None
    lines: IO[str] | None = None

    def open(self) -> bool:
        """Start the command unless it runs. Returns whether it ran before. Raises OSError."""
        if self.lines is not None:
            return True
        self.stream = self.node.pipe(self.command)
        self.lines = self.stream.makefile("r")
        return False

    def request(self, line: str, timeout_s: float, limit: int = -1) -> str:
        """Send a line and return the next one, empty where the stream has ended. Raises OSError."""
        return self.requests([line], timeout_s, limit)[0]

    def requests(self, lines: Sequence[str], timeout_s: float, limit: int = -1) -> list[str]:
        """Send lines at once and return as many, in one round trip; empty ones where the stream has ended.

        Raises OSError.
        """
        self.open()
        self.stream.settimeout(timeout_s)
        with suppress(OSError):  # an ended process may still have printed a last line
            self.stream.sendall("".join(f"{line}\n" for line in lines).encode())
        return [self.lines.readline(limit) if self.lines else "" for _ in lines]

    def close(self) -> None:
        """End the stream, if one is open. Its reader ends with it: closing paramiko's reader would fail."""
        if self.lines is not None:
            self.lines = None
            with suppress(OSError):  # it may have ended
                self.stream.close()


@dataclass
class SharedStream:
    """A stream to a command for requests of several threads at once: a line of JSON each, with an `id`.

    The command replies in any order, each reply with the `id` of its request. It is started by the first request, and
    again by the next one after it has ended.
    """

    node: Node
    command: Command
    lock: threading.Lock = field(default_factory=threading.Lock)
    stream: Stream = None
    pending: dict[int, Future[Mapping[str, Any]]] = field(default_factory=dict)
    """The requests of the open stream that have no reply, by id."""
    number: int = 0
    replies: int = 0

    def request(self, values: Mapping[str, object], timeout_s: float) -> Mapping[str, Any]:
        """Send a request and return its reply. Raises OSError if the stream ends first, or after `timeout_s`."""
        future: Future[Mapping[str, Any]] = Future()
        with self.lock:
            stream = self._open()
            self.number += 1
            number, replies = self.number, self.replies
            self.pending[number] = future
            try:
                stream.sendall(json.dumps({**values, "id": number}).encode() + b"\n")
            except OSError:
                self._end(stream)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            with self.lock:
                self.pending.pop(number, None)
                if self.replies == replies:  # the command hangs
                    self._end(stream)
            raise

    def close(self) -> None:
        """End the stream, if one is open."""
        with self.lock:
            self._end(self.stream)

    def _open(self) -> Stream:
        if self.stream is None:
            stream = self.node.pipe(self.command)
            stream.settimeout(None)
            try:
                run_in_thread(self._read, stream)
            except OSError:
                stream.close()
                raise
            self.stream = stream
        return self.stream

    def _read(self, stream: Stream) -> None:
        """Hand each reply to its request, until the stream ends or is no stream of replies."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            for line in stream.makefile("r"):
                reply = foreign.loads(line)
                with self.lock:
                    if self.stream is not stream:
                        return
                    self.replies += 1
                    if future := self.pending.pop(reply["id"], None):
                        future.set_result(reply)
        with self.lock:
            self._end(stream)

    def _end(self, stream: Stream) -> None:
        """Close the open stream and fail its requests; an earlier one has been closed already."""
        if stream is None or self.stream is not stream:
            return
        self.stream = None
        with suppress(OSError):  # wakes its reader
            stream.shutdown(BOTH_WAYS)
        stream.close()
        for future in self.pending.values():
            future.set_exception(ConnectionResetError(f"`{self.command}` has ended"))
        self.pending.clear()
