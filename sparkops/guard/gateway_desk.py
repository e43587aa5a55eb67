"""The gateway's container on this node: read once for all services, changed by commands."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from sparkops.errors import CommandFailed, ConnectionLost
from sparkops.gateway import commands
from sparkops.gateway.facts import GatewayFacts, parse_gateway
from sparkops.nodes.node import Node
from sparkops.nodes.streams import LineStream

SHOWN_S = 0.9  # most age of the gateway's state during a swap
REPLY_S = 5.0


@dataclass
class GatewayDesk:
    """Reads and changes the gateway's container. `read_s`: when it was read last, by `clock`."""

    node: Node
    token: str = ""
    facts: GatewayFacts | None = None
    read_s: float = -inf
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self.stream = LineStream(self.node, commands.SHOW_EACH)

    def show(self, most_s: float = 0.0) -> GatewayFacts | None:
        """Return the gateway's state, less than `most_s` seconds old; None where it cannot be read.

        One that could not be read is read again after SHOWN_S.
        """
        if self.clock() - self.read_s >= (most_s if self.facts else min(most_s, SHOWN_S)):
            self.facts = self._read()
            self.read_s = self.clock()
        return self.facts

    def _read(self) -> GatewayFacts | None:
        """Where the stream has ended, ask by a command: the gateway may have been replaced a moment ago."""
        try:
            facts = parse_gateway(self.printed() or self.node.run(commands.SHOW).stdout)
        except (CommandFailed, ConnectionLost, ValueError):
            return None
        return None if facts.problem else facts

    def printed(self) -> str:
        """Return the reply of one process in the gateway's container; empty where none came: the next call starts one.

        A new `docker exec` takes 0.25 s of a core (two x86-64 cores, Docker 26.1), and a swap reads every second.
        """
        with suppress(OSError):
            if line := self.stream.ask("", REPLY_S):
                return line
        self.stream.close()
        return ""

    def preview_token(self, *, fresh: bool = False) -> str:
        """Return the token of requests to a slot without traffic. Raises CommandFailed."""
        if fresh or not self.token:
            self.token = self.node.run(commands.TOKEN).stdout.strip()
        return self.token
