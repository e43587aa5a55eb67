"""A program on a pseudo-terminal, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.places import ROOT

ROWS = 50
PATIENCE_S = 60.0


@dataclass
class Terminal:
    """A pseudo-terminal with a running program."""

    process: subprocess.Popen[bytes]
    end: int
    shown: str = ""

    def until(self, text: str, count: int = 1) -> None:
        """Read until `text` was shown `count` times. Raises AssertionError after PATIENCE_S."""
        end_s = time.monotonic() + PATIENCE_S
        while self.shown.count(text) < count:
            assert time.monotonic() < end_s, self.shown
            self.shown += os.read(self.end, 65_536).decode()

    def until_end(self) -> int:
        """Read until the program ends, and return its exit code."""
        with suppress(OSError):  # the other end is closed
            while part := os.read(self.end, 65_536):
                self.shown += part.decode()
        return self.process.wait(PATIENCE_S)

    def interrupt(self) -> int:
        """Send Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(PATIENCE_S)


@contextmanager
def terminal(directory: Path, columns: int, options: tuple[str, ...], added: Mapping[str, str]) -> Iterator[Terminal]:
    """Run sparkops in a directory on a terminal that is `columns` wide; `added` is its further environment."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
    env = {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **added}
    command = [sys.executable, "-m", "sparkops", *options]
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=directory,
        env=env,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(process, ours)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
