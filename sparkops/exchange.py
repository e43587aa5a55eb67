"""A request to a server and what came back: the contract between what decides and what asks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True)
class Request:
    """A GET, or a POST if there is a body. `after_s` seconds pass before it is sent."""

    path: str
    body: Mapping[str, Any] | None = None
    timeout_s: float = 60.0
    keyless: bool = False
    after_s: float = 0.0

    @property
    def method(self) -> str:
        """The HTTP method."""
        return "GET" if self.body is None else "POST"


@dataclass(frozen=True)
class Reply:
    """What came back: the parts of the body with the seconds after which each came.

    `status` is 0 when nothing came. `problem` says in words why an answer is missing or not whole.
    """

    status: int
    parts: tuple[tuple[float, str], ...] = ()
    took_s: float = 0.0
    problem: str = ""
    tries: int = 1

    @cached_property
    def body(self) -> str:
        """The whole body."""
        return "".join(text for _, text in self.parts)
