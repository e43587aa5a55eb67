"""Commands as values, which a node runs, and the one quoting function."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Command:
    """One program with its arguments. Printed, it is exactly the line that runs.

    `timeout_s` bounds the run in seconds. `stdin` is never printed, because it may hold secrets. `changes`: the command
    changes the node, so it is not repeated blindly when its reply is lost.
    """

    argv: tuple[str, ...]
    stdin: bytes = field(default=b"", repr=False)
    timeout_s: float = 60.0
    changes: bool = False

    def __str__(self) -> str:
        return quote(*self.argv)


@dataclass(frozen=True)
class Completed:
    """The result of a command on a node: its exit code and both outputs as text."""

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
    """Return the words quoted for a shell. Every string that a remote shell reads comes from here."""
    return shlex.join(argv)


def unquote(line: str) -> list[str]:
    """Return the words of a line as a shell reads them, unexpanded. Raises ValueError for an open quote."""
    return shlex.split(line)
