"""Merge what was found on several nodes: one line for each text, with all its nodes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

OPTION = "--node "
BEFORE = r"(--node |\bon |\bOn |guard of |` for )"
"""What precedes the name of its own node in a problem or a step."""
NAMED = re.compile(rf"{BEFORE}\0")


@dataclass(frozen=True)
class Notice:
    """What was found on one node: a finding of doctor or a drift of status."""

    kind: str
    """First word of its line: problem, warning or drift."""
    code: str
    node: str
    problem: str
    next_step: str = ""


@dataclass(frozen=True)
class Merged:
    """A text, and the nodes that it is true of."""

    nodes: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Block:
    """Problems of one code that share their next step."""

    kind: str
    code: str
    problems: tuple[Merged, ...]
    step: Merged

    @property
    def heads(self) -> list[str]:
        """A line for each problem."""
        return [f"{self.kind} {self.code}{_places(item.nodes)}: {item.text}" for item in self.problems]


def merge(notices: Iterable[Notice]) -> list[Block]:
    """Return the notices as blocks, in the order of the first of each code.

    Two texts are the same if they differ only in the name of their own node where BEFORE precedes it.
    """
    codes: dict[tuple[str, str], dict[str, dict[str, list[str]]]] = {}
    for notice in notices:
        steps = codes.setdefault((notice.kind, notice.code), {})
        problems = steps.setdefault(_unnamed(notice.next_step, notice.node), {})
        nodes = problems.setdefault(_unnamed(notice.problem, notice.node), [])
        if notice.node not in nodes:
            nodes.append(notice.node)
    return [
        Block(
            kind,
            code,
            tuple(_named(text, nodes) for text, nodes in problems.items()),
            _named(step, [*dict.fromkeys(node for nodes in problems.values() for node in nodes)]),
        )
        for (kind, code), steps in codes.items()
        for step, problems in steps.items()
    ]


def _places(nodes: tuple[str, ...]) -> str:
    """Return where a problem is; nothing for one whose node is unknown."""
    names = ", ".join(filter(None, nodes))
    return f" on {names}" if names else ""


def _unnamed(text: str, node: str) -> str:
    """Return a text with `\\0` in place of the name of its node."""
    return re.sub(rf"{BEFORE}{re.escape(node)}(?![\w-]|\.\w)", "\\1\0", text) if node else text


def _named(text: str, nodes: list[str]) -> Merged:
    def names(match: re.Match[str]) -> str:
        before = match[1]
        return before + (f" {before}" if before == OPTION else ", ").join(nodes)

    return Merged(tuple(nodes), NAMED.sub(names, text))
