"""The nftables rules that close ports of engines to all but the gateway. Nothing here runs anything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address

from sparkops.command import Command

TABLE = "inet sparkops"
CLEARED = f"table {TABLE} {{}}\ndelete table {TABLE}\n"
"""Removes the table, and succeeds without one."""


def apply(callers: Mapping[int, Iterable[str]]) -> Command:
    """Replace all rules of sparkops in one transaction. `callers` are the addresses that may connect to each port.

    Raises ValueError for text that is no IP address.
    """
    return Command(("nft", "-f", "-"), stdin=rules(callers).encode(), timeout_s=15.0, changes=True)


def rules(callers: Mapping[int, Iterable[str]]) -> str:
    """Return the text for `nft -f`. Loopback stays open: guard, SSH and a gateway on the same node use it.

    The chain runs before those of Docker and ufw, and `accept` in it leaves their verdict to them.
    """
    if not callers:
        return CLEARED
    lines = [line for port in sorted(callers) for line in _port(port, callers[port])]
    hook = "type filter hook input priority filter - 10; policy accept;"
    body = "\n".join(f"    {line}" for line in (hook, 'iifname "lo" accept', *lines))
    return f"{CLEARED}table {TABLE} {{\n  chain input {{\n{body}\n  }}\n}}\n"


def _port(port: int, callers: Iterable[str]) -> Iterator[str]:
    addresses = sorted({ip_address(caller) for caller in callers}, key=lambda address: (address.version, address))
    for version, family in ((4, "ip"), (6, "ip6")):
        if sources := [str(address) for address in addresses if address.version == version]:
            yield f"tcp dport {port} {family} saddr {{ {', '.join(sources)} }} accept"
    yield f"tcp dport {port} reject with tcp reset"
