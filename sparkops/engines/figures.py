"""What an engine counts on /metrics: its own names by their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figures:
    """The name of each figure, as /metrics prints it; None where the engine has none."""

    running: str
    """Requests in the batch."""
    waiting: str | None = None
    """Requests in the queue."""
    generated: str | None = None
    """Tokens generated since the start."""
    kv_use: str | None = None
    """Share of the KV cache in use, 0 to 1."""
    ttft_s: str | None = None
    """Sum of the seconds to the first token, over `ttft_count` requests."""
    ttft_count: str | None = None
    prefix_hits: str | None = None
    """Tokens of prompts that were in the prefix cache, of `prefix_queries` tokens."""
    prefix_queries: str | None = None
    draft_accepted: str | None = None
    """Drafted tokens that were accepted, of `drafted` tokens."""
    drafted: str | None = None
    steps: tuple[str, ...] = ()
    """Figures of which some change with each step; a step may only read a piece of a long prompt."""

    @property
    def by_meaning(self) -> Mapping[str, str]:
        """The names of the figures that the engine has, by field."""
        return {field: name for field, name in asdict(self).items() if isinstance(name, str)}

    @property
    def names(self) -> tuple[str, ...]:
        """All names, each once."""
        return tuple(dict.fromkeys((*self.by_meaning.values(), *self.steps)))
