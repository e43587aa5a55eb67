"""Which ports the guard has closed to all but the gateway: a query and the parser of its output, side by side."""

from __future__ import annotations

import re

from sparkops.command import Command
from sparkops.commands import places

QUERY = Command(("docker", "exec", places.CONTAINER, "nft", "list", "ruleset", "inet"), timeout_s=30.0)
"""Lists every table, so that a missing one is no error."""
TABLE = re.compile(r"^table inet sparkops \{$.*?^\}$", re.MULTILINE | re.DOTALL)
CLOSED = re.compile(r"^\s*tcp dport (\d+) reject\b", re.MULTILINE)


def parse(text: str) -> frozenset[int]:
    """Return the ports that the table of sparkops closes; none without that table."""
    table = TABLE.search(text)
    return frozenset(int(port) for port in CLOSED.findall(table[0])) if table else frozenset()
