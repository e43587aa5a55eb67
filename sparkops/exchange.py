"""A request to a server and its reply, as values."""

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
    after_s: float = 0.0

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"


@dataclass(frozen=True)
class Reply:
    """A reply: the parts of its body, each with the seconds after which it came.

    `status` is 0 without a reply. `problem` is the reason in words if the reply is missing or incomplete.
    """

    status: int
    parts: tuple[tuple[float, str], ...] = ()
    took_s: float = 0.0
    problem: str = ""
    tries: int = 1

    @cached_property
    def body(self) -> str:
        return "".join(text for _, text in self.parts)
