"""A node that records its commands and answers from a script."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sparkops.command import Command, Completed
from sparkops.errors import CommandFailed
from sparkops.node.node import OnLine, Stream

T = TypeVar("T")


@dataclass(frozen=True)
class RecordingNode:
    """`answers` maps the beginning of a command line to what it prints; `exit_codes` to how it ends."""

    name: str
    answers: Mapping[str, str] = field(default_factory=dict)
    exit_codes: Mapping[str, int] = field(default_factory=dict)
    ran: list[Command] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=threading.Event)

    def run(self, command: Command, *, stdin: Iterable[bytes] = (), on_line: OnLine | None = None) -> Completed:
        """See Node.run."""
        self.ran.append(command)
        for _ in stdin:
            pass
        printed = self._find(self.answers, command, "")
        for line in printed.splitlines() if on_line else ():
            on_line(line)  # type: ignore[misc]
        completed = Completed(self.name, command, self._find(self.exit_codes, command, 0), printed, "")
        if completed.exit_code:
            raise CommandFailed(completed)
        return completed

    def _find(self, table: Mapping[str, T], command: Command, default: T) -> T:
        return next((value for start, value in table.items() if str(command).startswith(start)), default)

    def dial(self, port: int | str) -> Stream:
        """A recording node listens on no port."""
        raise ConnectionRefusedError(f"{self.name}:{port}")

    def pipe(self, command: Command) -> Stream:
        """A recording node has no programs."""
        raise FileNotFoundError(str(command))

    def close(self) -> None:
        """Nothing is held."""
