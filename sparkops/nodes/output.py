"""Bytes from a command, kept as text and handed on line by line."""

from __future__ import annotations

import codecs
from collections import deque
from dataclasses import dataclass, field

from sparkops.nodes.node import OnLine

KEEP = 4 * 1024 * 1024  # characters kept of one output; a build log or a long line must not fill memory


@dataclass
class Output:
    """One output of a command. Invalid bytes become U+FFFD; only the last 4 Mi characters are kept."""

    on_line: OnLine | None = None
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
        while self.size - len(self.parts[0]) >= KEEP:
            self.size -= len(self.parts.popleft())
