"""The cordon of a node: why nothing new starts there, and what a drain has taken from it. Pure.

Its guard keeps it, on the disk of the node: every client sees the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sparkops.swap.journal import SCHEMA
from sparkops.swap.model import Deployment


@dataclass(frozen=True, slots=True)
class Displaced:
    """A service that a drain has taken from a node. `deployment`: the release on the nodes where it served."""

    deployment: Deployment
    stopped: bool = False
    """Whether the drain has stopped it, as no other node had room; otherwise it has moved it."""
    any_speed: bool = False
    """Whether it returns however slow it has become there; its speed is then the one that later starts must reach."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """The cordon of one node; an open one without a reason."""

    reason: str = ""
    """Why nothing new starts, and by whom, such as `driver update, by ann@laptop`; empty: the node is open."""
    displaced: Mapping[str, Displaced] = field(default_factory=dict)
    """By service: what `return` brings back. It stays after the node is open, until the service is back."""
    schema: int = SCHEMA

    @property
    def text(self) -> str:
        """What a new release on the node must wait for; empty for nothing."""
        return f"cordon ({self.reason})" if self.reason else ""

    def closed(self, reason: str) -> Cordon:
        """Return the cordon with this reason, unless the node is cordoned already."""
        return self if self.reason else replace(self, reason=reason)

    def opened(self, *, any_speed: bool = False) -> Cordon:
        """Return the cordon of a node on which releases may start, and to which services return at `any_speed`."""
        taken = {name: replace(displaced, any_speed=any_speed) for name, displaced in self.displaced.items()}
        return replace(self, reason="", displaced=taken)

    def taken(self, service: str, displaced: Displaced) -> Cordon:
        """Return the cordon once a drain takes a service from the node."""
        return replace(self, displaced={**self.displaced, service: displaced})

    def restored(self, service: str) -> Cordon:
        """Return the cordon once a service is back, or stays where it is."""
        kept = {name: displaced for name, displaced in self.displaced.items() if name != service}
        return replace(self, displaced=kept)
