"""The journal of a service: who may change it, what serves, and which swap is under way. Pure.

It lies on the nodes that take part, kept by the guard there. What it says was *intended*; what is true, Docker's
labels and the gateway's map say. Every time in it is the keeping node's own clock, seconds since its boot, together
with that boot's id: a laptop's clock has no part in it, and after a reboot every lease has ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict

SCHEMA = 1
LEASE_S = 90.0
RENEW_S = 15.0


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


@dataclass(frozen=True)
class Clock:
    """A node's clock at one moment: seconds since its boot, and the boot's id."""

    now_s: float
    boot: str


@dataclass(frozen=True)
class Refusal:
    """Why a journal was not changed."""

    why: str


def lease_left(journal: Journal, clock: Clock) -> float:
    """Seconds until the holder's lease ends; 0 where nobody holds it, or the node was rebooted."""
    holder = journal.holder
    if holder is None or holder.boot != clock.boot:
        return 0.0
    return max(0.0, holder.renewed_s + LEASE_S - clock.now_s)


def acquire(journal: Journal, owner: str, deploy: str, clock: Clock, *, loads: bool = False) -> Journal | Refusal:
    """Take the lock. The generation grows, so that whoever held it before can change nothing any more."""
    if journal.hold:
        return Refusal(f"{journal.service} is on hold: {journal.hold}")
    left = lease_left(journal, clock)
    if left and journal.holder and journal.holder.deploy != deploy:
        phase = f" in phase {journal.swap.phase.value}" if journal.swap else ""
        return Refusal(f"{journal.holder.owner} holds {journal.service}{phase}; its lease ends in {left:.0f} s")
    holder = Holder(owner=owner, deploy=deploy, renewed_s=clock.now_s, boot=clock.boot, loads=loads)
    return journal.model_copy(update={"generation": journal.generation + 1, "holder": holder})


def loading(journal: Journal, clock: Clock, node: str) -> bool:
    """Whether an engine of this service is loading on `node`, so that nobody knows yet what memory it will take."""
    swap = journal.swap
    if lease_left(journal, clock):
        loaded = swap is not None and swap.phase.order >= Phase.SWITCH.order
        return journal.holder is not None and journal.holder.loads and not loaded
    if swap is None or swap.verdict or swap.green.node != node or swap.boot != clock.boot:
        return False
    return Phase.START.order <= swap.phase.order < Phase.SWITCH.order


def freeze(journal: Journal, reason: str | None, clock: Clock) -> Journal | Refusal:
    """Put the service on hold, unless somebody is changing it just now; None ends a hold."""
    if reason and journal.holder and lease_left(journal, clock):
        phase = f" (phase {journal.swap.phase})" if journal.swap else ""
        return Refusal(f"{journal.holder.owner} is changing {journal.service} just now{phase}")
    return journal.model_copy(update={"hold": reason})


def holder_of(journal: Journal, generation: int) -> Holder | Refusal:
    """Who took the lock with this generation, even if the lease has ended; or why it has the lock no more."""
    if generation != journal.generation:
        return Refusal(f"another deploy has taken over {journal.service}")
    return journal.holder or Refusal(f"the lock of {journal.service} was given back")


def renew(journal: Journal, generation: int, clock: Clock) -> Journal | Refusal:
    """Keep the lock. Refused when somebody else has taken it since."""
    holder = holder_of(journal, generation)
    if isinstance(holder, Refusal):
        return holder
    renewed = holder.model_copy(update={"renewed_s": clock.now_s, "boot": clock.boot})
    return journal.model_copy(update={"holder": renewed})


def release(journal: Journal, generation: int) -> Journal | Refusal:
    """Give the lock back. A second time changes nothing."""
    if generation != journal.generation:
        return Refusal(f"another deploy has taken over {journal.service}")
    return journal.model_copy(update={"holder": None})


def put(journal: Journal, new: Journal, generation: int) -> Journal | Refusal:
    """Replace what is intended, by the holder only; lock and generation stay the keeper's own."""
    holder = holder_of(journal, generation)
    if isinstance(holder, Refusal):
        return holder
    return new.model_copy(update={"generation": journal.generation, "holder": holder, "hold": journal.hold})
