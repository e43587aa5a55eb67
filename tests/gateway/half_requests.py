"""Half requests without a key, sent to a node as text. They stay open until stdin is closed.

Prints a line once no more connections are made. They come from so many addresses from 127.0.0.2 on, which no client of
the tests has.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
from contextlib import ExitStack, suppress

PORT, COUNT, ADDRESSES = map(int, sys.argv[1:])
HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"
QUIET_S = 2.0  # without one more connection: a gateway that is full lets the others wait


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack, selectors.DefaultSelector() as connecting:
        for number in range(COUNT):
            client = stack.enter_context(socket.socket())
            client.bind((f"127.0.0.{2 + number % ADDRESSES}", 0))
            client.setblocking(False)
            with suppress(BlockingIOError):
                client.connect(("127.0.0.1", PORT))
            connecting.register(client, selectors.EVENT_WRITE)
        send(connecting)
        sys.stdout.write("sent\n")
        sys.stdout.flush()
        sys.stdin.read()


def send(connecting: selectors.BaseSelector) -> None:
    """Send half a request over each connection as it is made."""
    while connecting.get_map() and (ready := connecting.select(QUIET_S)):
        for key, _ in ready:
            connecting.unregister(key.fileobj)
            with suppress(OSError):  # such as a gateway that closes at once
                key.fileobj.send(HALF)  # type: ignore[union-attr]  # each is a socket


if __name__ == "__main__":
    main()
