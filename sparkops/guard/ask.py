"""`python -m sparkops.guard.ask`: passes lines from stdin to this guard's socket, and its replies to stdout.

A process for each connection of the operator's machine, so it imports nothing beyond the standard library.
"""

from __future__ import annotations

import os
import socket
import sys
import time

SOCKET = os.environ.get("SPARKOPS_GUARD_SOCKET", "/tmp/sparkops-guard.sock")  # noqa: S108 - in the container's own memory
OPEN_S, POLL_S = 10.0, 0.1


def main() -> None:
    """Pass lines on until stdin ends."""
    with _connected() as connection:
        answers = connection.makefile("rb")
        for line in sys.stdin.buffer:
            connection.sendall(line)
            answered = answers.readline()
            if not answered:
                sys.exit("the guard exited before it replied")
            sys.stdout.buffer.write(answered)
            sys.stdout.buffer.flush()


def _connected() -> socket.socket:
    """Connect to the guard's socket, which a guard that has just started opens within seconds."""
    end_s = time.monotonic() + OPEN_S
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(SOCKET)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            connection.close()
            if time.monotonic() >= end_s:
                sys.exit(f"no reply from the guard: {error}")
            time.sleep(POLL_S)
        else:
            return connection


if __name__ == "__main__":
    main()
