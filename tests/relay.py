"""Connect stdin and stdout to a port of this machine: `python -IS tests/relay.py PORT`, without the packages of a test.

A `docker` program of a test runs it, so that the server behind it is a thread of the test, and not a process for each
connection that imports all of sparkops first.
"""

from __future__ import annotations

import os
import shlex
import socket
import sys
import threading
from contextlib import suppress

AT_ONCE = 65536


def line(port: int) -> str:
    """Return the line of a shell script that becomes a relay."""
    return f"exec {shlex.quote(sys.executable)} -IS {shlex.quote(__file__)} {port}"


def main() -> None:
    """Copy both ways until the server ends the connection."""
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as stream:
        threading.Thread(target=_send, args=(stream,), daemon=True).start()
        while data := stream.recv(AT_ONCE):
            os.write(1, data)


def _send(stream: socket.socket) -> None:
    with suppress(ConnectionError):  # a client that was killed may leave a reply unread
        while data := os.read(0, AT_ONCE):
            stream.sendall(data)
    stream.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    main()
