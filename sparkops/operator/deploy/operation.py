"""One run of a verb that changes a service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sparkops.node.progress import OnEvent
from sparkops.node.waiting import until_free
from sparkops.operator.fleet.connected import Connected

R = TypeVar("R")


@dataclass(frozen=True)
class Operation:
    """One run of a verb: connections to the nodes that answer, and where progress goes."""

    connected: Connected
    report: OnEvent
    wait_s: float = 0.0
    """Seconds in which a refusal with exit code 4 is tried again."""

    @property
    def node(self) -> str:
        """The node whose guard leads: the gateway's. Raises UsageError for an inventory without one."""
        return self.connected.fleet.require_gateway().node

    def until_free(self, attempt: Callable[[], R]) -> R:
        """Try again while another change is in progress, for `wait_s`. Raises Busy after that, or Interrupted."""
        return until_free(attempt, self.wait_s, self.node, self.report, self.connected.cancel)
