"""Whether the program that listens on an engine's port is the engine: what answers may be any user's program."""

from __future__ import annotations

from dataclasses import dataclass

from requests import Session

from sparkops.engines import endpoints, runtime
from sparkops.node.local import LocalNode
from sparkops.swap.model import Answer

LISTEN, ESTABLISHED = "0A", "01"
"""States of a socket in /proc/net/tcp (include/net/tcp_states.h)."""
ANY, LOOPBACK = "00000000", ("0100007F", "7F000001")
"""Addresses as the kernel prints them: words in the byte order of the machine."""
MAPPED = ("0000000000000000FFFF0000", "00000000000000000000FFFF")
"""The start of an IPv4 address in /proc/net/tcp6, little and big endian."""


def users(tables: str, port: int, state: str = LISTEN) -> frozenset[int]:
    """Return the user IDs of the programs that take connections to 127.0.0.1 on a port, or have taken one.

    `tables`: the text of /proc/net/tcp and tcp6. The kernel notes the user that created a socket. Two of them cannot
    listen for one address: a socket for all addresses excludes those of other users for each one. Without a socket of
    IPv4, one for all addresses of IPv6 takes its connections.
    """
    ipv4, ipv6 = set[int](), set[int]()
    for line in tables.splitlines():
        fields = line.split()
        if len(fields) < 8 or fields[3] != state:
            continue
        address, _, number = fields[1].partition(":")
        if int(number, 16) != port:
            continue
        if address == ANY * 4:
            ipv6.add(int(fields[7]))
        elif address.removeprefix(MAPPED[0]).removeprefix(MAPPED[1]) in (ANY, *LOOPBACK):
            ipv4.add(int(fields[7]))
    return frozenset(ipv4 or ipv6)


@dataclass
class EnginePort:
    """The port of one engine. `user`: the ID that engines alone run as. `taken`: why the last look was NO."""

    node: LocalNode
    port: int
    user: int = runtime.USER
    taken: str = ""

    def owned(self) -> Answer:
        """Return whether the engine listens; UNKNOWN if nothing does. Raises OSError where the kernel shows no sockets.

        A user of the node cannot create a socket of another user. It is no proof against root, nor against the code of
        another engine of this node, which is the same user.
        """
        tables = self.node.sockets()
        known = users(tables, self.port)
        # Without the rules of the firewall a user's connection may be older than the listener of the engine. Until a
        # program accepts a connection, the kernel shows it as one of root.
        connected = users(tables, self.port, ESTABLISHED) - {0}
        others = sorted((known | connected) - {self.user})
        self.taken = ""
        if not others:
            return Answer.YES if known else Answer.UNKNOWN
        self.taken = (
            f"port {self.port} is taken: "
            f"a program of user ID {others[0]} has it, expected the engine, user {self.user}"
            f"\nnext: find it on {self.node.name} (ss -atnpe 'sport = :{self.port}'), stop it, then deploy again"
        )
        return Answer.NO

    def health(self, asking: Session) -> Answer:
        """Return whether the engine itself answers /health. Raises OSError."""
        answer = endpoints.health(asking)
        return self.owned() if answer is Answer.YES else answer
