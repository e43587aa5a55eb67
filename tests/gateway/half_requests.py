"""Half requests without a key, sent to a node as text. They stay open until stdin is closed.

Prints how many connections were made. They come from 127.0.0.2, an address that no client of the tests has.
"""

from __future__ import annotations

import resource
import socket
import sys
from contextlib import ExitStack, suppress

PORT, COUNT = int(sys.argv[1]), int(sys.argv[2])
HALF = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\n"
CONNECT_S = 2.0


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    made = 0
    with ExitStack() as stack:
        for _ in range(COUNT):
            client = stack.enter_context(socket.socket())
            client.bind(("127.0.0.2", 0))
            client.settimeout(CONNECT_S)
            with suppress(OSError):  # such as a gateway that closes at once, or accepts no more
                client.connect(("127.0.0.1", PORT))
                made += 1
                client.sendall(HALF)
        sys.stdout.write(f"{made}\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main()
