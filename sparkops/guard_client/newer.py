"""Versions of a fleet that are newer than this client. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sparkops.command import Command
from sparkops.docker.places import CONTAINER

PRINTED = "import sparkops; print(sparkops.__version__)"
VERSION = Command(("docker", "exec", CONTAINER, "python3", "-c", PRINTED), timeout_s=2.0)
"""Prints the version of the package in a guard's image, also of guards that do not report one."""
WRITTEN = "# Written by sparkops "
"""Start of the first line of an inventory of `init`; its version and a period follow."""
STATED = re.compile(rf"^{WRITTEN}(\d[\w.+-]*)\.\n")
NUMBERS = re.compile(r"\d+(?:\.\d+)*")


def newer(client: str, inventory: str, guards: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for an inventory and for the guards that are newer than `client`.

    `inventory` is its text, `guards` what VERSION printed by node. Text that is no version is left out.
    """
    stated = STATED.match(inventory)
    if stated and _numbers(stated[1]) > _numbers(client):
        yield f"the inventory was written by sparkops {stated[1]}"
    nodes: dict[str, list[str]] = {}
    for node, printed in guards.items():
        if _numbers(version := printed.strip()) > _numbers(client):
            nodes.setdefault(version, []).append(node)
    for version, names in sorted(nodes.items(), key=lambda item: _numbers(item[0])):
        yield f"the guard of {', '.join(names)} is of sparkops {version}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version in front of any suffix; none for other text."""
    match = NUMBERS.match(version)
    return tuple(map(int, match[0].split("."))) if match else ()
