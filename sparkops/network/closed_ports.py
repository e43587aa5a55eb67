"""Which ports the guard has closed to all but the gateway or the ranks: a query and the parser of its output."""

from __future__ import annotations

import re

from sparkops.command import Command
from sparkops.docker import places

QUERY = Command(("docker", "exec", places.CONTAINER, "nft", "list", "ruleset", "inet"), timeout_s=30.0)
"""Lists every table, so that a missing one is no error."""
TABLE = re.compile(r"^table inet sparkops \{$.*?^\}$", re.MULTILINE | re.DOTALL)
CLOSED = re.compile(r"^\s*tcp dport (?:(\d+) reject|\{ (.*) \} tcp flags .* drop)\b", re.MULTILINE)
"""The rule of an engine, and that of ranks: their meeting ports, then the range that the kernel picks from."""


def parse(text: str) -> frozenset[int]:
    """Return the ports that the table of sparkops closes; none without that table."""
    table = TABLE.search(text)
    listed = (port for rule in CLOSED.finditer(table[0]) for port in (rule[1] or rule[2]).split(", ")) if table else ()
    return frozenset(int(port) for port in listed if port.isdecimal())
