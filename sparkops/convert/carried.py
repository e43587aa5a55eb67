"""A recipe of sparkops made from a recipe of another tool, and the parts of it that are left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from sparkops.config.source import Location, Source
from sparkops.convert.command_lines import SHORT

Kind = Literal["note", "loss", "refusal"]
"""note: sparkops does the same in another way. loss: it may matter, so the new recipe states it. refusal: without it
the engine would not start."""


DEFAULTS = {"tensor-parallel-size": "tensor_parallel", "pipeline-parallel-size": "pipeline_parallel"}
"""Flags with another name in `defaults`."""


@dataclass(frozen=True)
class Left:
    """A part that is not carried over: the line in the file (1 is the first), the key, and why."""

    line: int
    key: str
    why: str
    kind: Kind = "note"
    section: str = "serve"
    """The key of the new recipe that the part would belong to."""
    final: bool = False
    """Whether `without` cannot help: another number of nodes is another recipe."""


@dataclass
class Carried:
    """A recipe of sparkops in the making.

    `text` is the file, `without` are keys that may be left out although the engine needs them. `guessed` has a comment
    for each key that their recipe does not state. `lines` are lines in their file by place in `data`.
    """

    source: Source
    text: str
    without: Collection[str] = ()
    data: dict[str, Any] = field(default_factory=dict)
    left: list[Left] = field(default_factory=list)
    guessed: dict[str, str] = field(default_factory=dict)
    lines: dict[Location, int] = field(default_factory=dict)
    mods: Mapping[str, str] = field(default_factory=dict)
    """The mods of their recipe by name, each with what it provides; empty where that is not known."""

    @cached_property
    def written(self) -> list[str]:
        """The lines of the file."""
        return self.text.splitlines()

    @property
    def refusals(self) -> list[Left]:
        """The parts without which the engine would not start, by line."""
        return sorted((left for left in self.left if left.kind == "refusal"), key=lambda left: left.line)

    @property
    def losses(self) -> list[Left]:
        """The parts that the new recipe states as missing."""
        return [left for left in self.left if left.kind == "loss"]

    def leave(self, line: int, key: str, why: str, kind: Kind = "note", section: str = "serve") -> None:
        """Add a part that is not carried over. A refusal whose key is in `without` is a loss."""
        kind = "loss" if kind == "refusal" and key in self.without else kind
        self.left.append(Left(line, key, why, kind, section))

    def refuse(self, line: int, key: str, why: str) -> None:
        """Add a part that no recipe can have, and that cannot be left out."""
        self.left.append(Left(line, key, why, "refusal", final=True))

    def line(self, where: Location, *words: str) -> int:
        """Return the first line from `where` on that has one of the words, or the line of `where`."""
        first = self.source.lines.get(self.source.nearest(where), 1)
        numbers = range(first, len(self.written) + 1)
        return next((n for word in words if word for n in numbers if word in self.written[n - 1]), first)

    def flag_line(self, flag: str) -> int:
        """Return the line of a flag: in the command, or in `defaults`."""
        key = flag.replace("-", "_")
        default = self.source.lines.get(("defaults", key)) or self.source.lines.get(
            ("defaults", DEFAULTS.get(flag, ""))
        )
        first = self.source.lines.get(("command",))
        if first is None:
            return default or self.line(("defaults",))
        first_key, dot, rest = flag.partition(".")
        shorts = (f"-{short}" for short, name in SHORT.items() if name == first_key)
        forms = [form + dot + rest for form in (f"--{first_key}", f"--{first_key.replace('-', '_')}", *shorts)]
        written = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, forms))})(?![\w-])")
        numbers = range(first, len(self.written) + 1)
        return next((n for n in numbers if written.search(self.written[n - 1])), default or first)
