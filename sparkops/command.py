"""The contract between deciding and doing: a Command is a value, and a Node runs it."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """One program with its arguments. Printing it gives exactly the line that runs.

    `timeout_s` bounds the whole run in seconds. `stdin` is sent to the program and is never printed,
    because it may hold what must not be seen. `changes` says that the command changes the node: such a
    command is never repeated blindly when its reply is lost.
    """

    argv: tuple[str, ...]
    stdin: bytes = field(default=b"", repr=False)
    timeout_s: float = 60.0
    changes: bool = False

    def __str__(self) -> str:
        return quote(*self.argv)


@dataclass(frozen=True)
class Completed:
    """What a command did on a node: its exit code and both outputs as text."""

    node: str
    command: Command
    exit_code: int
    stdout: str
    stderr: str

    @property
    def last_lines(self) -> str:
        """The last ten lines of stderr, or of stdout where stderr is empty."""
        text = self.stderr.strip() or self.stdout.strip()
        return "\n".join(text.splitlines()[-10:])


def quote(*argv: str) -> str:
    """The one quoting function: every string that a remote shell reads comes from here."""
    return shlex.join(argv)


def unquote(line: str) -> list[str]:
    """The words of a line as a shell reads them; nothing is expanded. Raises ValueError for an open quote."""
    return shlex.split(line)
