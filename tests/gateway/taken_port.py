"""A gateway whose engine is down, in a network of its own with the rules of stdin, while a user answers in its place.

Prints whether the attacker has tried, and the status and the body that a client of the gateway gets.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.gateway.attacked import attacked
from tests.operator.fleet.network import simultaneous

BODY = b'{"model":"chat","prompt":"secret"}'
REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: g\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (
    len(BODY),
    BODY,
)


def main() -> None:
    """Switch the gateway to the engine that is down, and send it a request."""
    simultaneous.apply(sys.stdin.read())
    with tempfile.TemporaryDirectory() as directory, attacked(Path(directory)) as gateway:
        engine = f"127.0.0.1:{simultaneous.PORT}"
        assert gateway.program.call("point", "chat", "green", "chat-2", engine).returncode == 0
        assert gateway.program.call("switch", "chat", "green", "chat-2").returncode == 0
        with simultaneous.attacked() as tried:
            reply = gateway.send(REQUEST, gateway.ports["one"])
            print(
                "tried" if tried() else "ended", reply.split()[1].decode(), "taken" if b"taken" in reply else "refused"
            )


if __name__ == "__main__":
    main()
