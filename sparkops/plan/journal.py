"""The journal of a service: who holds it, what serves, and which swap is under way. Pure; plan/lock.py has the rules.

It lies on the nodes that take part, kept by the guard there. What it says was *intended*; what is true, Docker's
labels and the gateway's map say. Every time in it is the keeping node's own clock, seconds since its boot, together
with that boot's id: a laptop's clock has no part in it, and after a reboot every lease has ended.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

SCHEMA = 1


class Phase(StrEnum):
    """The phases of a swap, in order."""

    ARM = "arm the guard"
    QUIESCE = "quiesce"
    FREE = "free memory"
    START = "start"
    LOAD = "load"
    VERIFY = "verify"
    SWITCH = "switch"
    BAKE = "bake"
    PROMOTE = "promote"
    DRAIN = "drain"
    RETIRE = "retire"

    @property
    def order(self) -> int:
        """Position in a swap."""
        return list(Phase).index(self)


class Mode(StrEnum):
    """How green comes up while blue serves."""

    FIRST = "first"
    """Nothing serves yet."""
    BESIDE = "beside"
    """On blue's node, next to it."""
    ACROSS = "across"
    """On another node."""
    IN_PLACE = "in-place"
    """On blue's node, after blue was drained and stopped."""


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Place(_Row):
    """One rank: a container on a node."""

    node: str
    container: str


class Placed(_Row):
    """A release in a slot. Node, address and container are those of rank 0, which answers requests."""

    release: str
    slot: str
    node: str
    address: str
    port: int
    container: str
    workers: tuple[Place, ...] = ()
    """The other ranks of a replica that runs on several nodes, in order."""
    recipe: dict[str, Any] = {}
    """The recipe, so that a guard can start and probe the release without the operator's files."""

    @property
    def ranks(self) -> tuple[Place, ...]:
        """Every rank, in order."""
        return (Place(node=self.node, container=self.container), *self.workers)

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes of its ranks, in order."""
        return tuple(each.node for each in self.ranks)

    def on(self, node: str) -> Place | None:
        """Its rank on a node."""
        return next((each for each in self.ranks if each.node == node), None)

    @property
    def where(self) -> str:
        """What it is in the whole fleet: the place of its rank 0."""
        return f"{self.node}/{self.container}"


class Holder(_Row):
    """Who holds the lock. `renewed_s` is on the keeping node's clock."""

    owner: str
    deploy: str
    renewed_s: float
    boot: str
    loads: bool = False
    """Whether it means to load an engine on this node."""
    run: str = ""
    """Verb and process id of the holder, such as `deploy, pid 4711`; empty if unknown."""
    since_s: float | None = None
    """When it took the lock, on the keeping node's clock; None if unknown."""


class Front(_Row):
    """Where the gateway is."""

    node: str
    address: str


class Verdict(StrEnum):
    """How a swap that a deploy has left ends."""

    REVERT = "revert"
    FINISH = "finish"


class Swap(_Row):
    """A swap under way."""

    deploy: str
    mode: Mode
    gateway: Front
    green: Placed
    blue: Placed | None = None
    phase: Phase = Phase.ARM
    deadline_s: float = 0.0
    """When the guard takes over, if nobody has said anything for a lease."""
    boot: str = ""
    waiting: bool = False
    """Green has the traffic and waits for `promote` or `rollback`."""
    verdict: Verdict | None = None
    """What was decided where the swap does not go on by itself: by the deploy, an operator or the gateway's guard."""
    traffic_moved: bool = False
    """Whether the traffic is where the verdict wants it, so that the engine that goes may be stopped."""


class Retirement(_Row):
    """A warm blue that the guard stops when its time has come."""

    placed: Placed
    gateway: Front
    due_s: float = 0.0
    boot: str = ""


class Journal(_Row):
    """All that is intended for one service."""

    service: str
    version: int = SCHEMA
    generation: int = 0
    holder: Holder | None = None
    active: Placed | None = None
    previous: Placed | None = None
    swap: Swap | None = None
    retirement: Retirement | None = None
    hold: str | None = None
    trouble: str | None = None
    """What the guard has tried in vain, again and again: it needs a person."""
