"""The cordon of a node: why nothing new starts there, and what a drain has taken from it. Pure.

Its guard keeps it, on the disk of the node: every client sees the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sparkops.swap.journal import SCHEMA
from sparkops.swap.model import Deployment


@dataclass(frozen=True, slots=True)
class Cordon:
    """The cordon of one node; an open one without a reason."""

    reason: str = ""
    """Why nothing new starts, and by whom, such as `driver update, by ann@laptop`; empty: the node is open."""
    displaced: Mapping[str, Deployment] = field(default_factory=dict)
    """By service: the release that a drain took, on its nodes. It stays after the node is open, until it is back."""
    schema: int = SCHEMA

    @property
    def text(self) -> str:
        """What a new release on the node must wait for; empty for nothing."""
        return f"cordon ({self.reason})" if self.reason else ""

    def closed(self, reason: str) -> Cordon:
        """Return the cordon with this reason, unless the node is cordoned already."""
        return self if self.reason else replace(self, reason=reason)

    def opened(self) -> Cordon:
        """Return the cordon of a node on which releases may start, and to which services have not returned yet."""
        return replace(self, reason="")

    def taken(self, service: str, deployment: Deployment) -> Cordon:
        """Return the cordon once a drain takes a service from the node."""
        return replace(self, displaced={**self.displaced, service: deployment})

    def restored(self, service: str) -> Cordon:
        """Return the cordon once a service is back, or stays where it is."""
        kept = {name: deployment for name, deployment in self.displaced.items() if name != service}
        return replace(self, displaced=kept)
