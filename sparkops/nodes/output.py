"""Bytes from a command, kept as text and handed on line by line."""

from __future__ import annotations

import codecs
from collections import deque
from dataclasses import dataclass, field

from sparkops.nodes.node import OnLine

KEEP = 4 * 1024 * 1024  # characters kept of one output; a build log or a long line must not fill memory
PIECES = 1024  # joined when there are more: a string of one character takes 50 bytes


class TooLong(Exception):
    """An answer of more than KEEP characters."""


@dataclass
class Output:
    """One output of a command. Invalid bytes become U+FFFD.

    Only the last KEEP characters are kept. Of an `answer`, which is parsed as a whole, `feed` raises TooLong for more.
    """

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
        """What is kept of it."""
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
