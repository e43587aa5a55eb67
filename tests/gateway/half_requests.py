"""Half requests without a key, sent to a node as text. They stay open until stdin is closed.

Prints how many connections were made. They come from so many addresses from 127.0.0.2 on, which no client of the tests
has.
"""

from __future__ import annotations

import resource
import selectors
import socket
import sys
import time
from contextlib import ExitStack, suppress

PORT, COUNT, ADDRESSES = map(int, sys.argv[1:])
HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"
CONNECT_S = 2.0  # for all of them: a gateway that is full lets some wait


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
        sys.stdout.write(f"{send(connecting)}\n")
        sys.stdout.flush()
        sys.stdin.read()


def send(connecting: selectors.BaseSelector) -> int:
    """Send half a request over each connection as it is made. Returns how many took it."""
    made, end = 0, time.monotonic() + CONNECT_S
    while connecting.get_map() and (left := end - time.monotonic()) > 0:
        for key, _ in connecting.select(left):
            connecting.unregister(key.fileobj)
            with suppress(OSError):  # such as a gateway that closes at once
                made += bool(key.fileobj.send(HALF))  # type: ignore[union-attr]  # each is a socket
    return made


if __name__ == "__main__":
    main()
