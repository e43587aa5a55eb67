"""The leader's orders to one guard: a wanted state, derived from the journal, so that sending it again is safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sparkops.swap.effects import RequestHold
from sparkops.swap.journal import Journal, Swap, present
from sparkops.swap.model import Deployment, Phase, RankSpec

DRAIN_S = 15.0
"""First prediction of a drain in seconds: a choice, as nothing is known of its requests. It is corrected in time."""
STOP_S = 5.0
"""Predicted seconds of the stop of engines without requests: 2.2 s measured (docs/evidence/gpu-h100-x2.md), and the
check that their memory is free."""


class Want(StrEnum):
    """The wanted state of a container."""

    AS_IS = "as it is"
    CREATED = "created"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class RankOrder:
    """One container. For RUNNING: `key` starts it once, after every container that the order stops is gone."""

    rank: RankSpec
    want: Want
    key: str = ""
    prove: bool = False
    """Whether the guard verifies it: the smoke suite on rank 0, the network of every rank."""


@dataclass(frozen=True, slots=True)
class Armed:
    """The wanted boot record; None: no engine. `alone`: the guard restarts it by itself."""

    rank: RankSpec | None = None
    alone: bool = True


@dataclass(frozen=True, slots=True)
class Order:
    """What one guard must do for a service. Valid for one boot of its node."""

    journal: Journal
    boot: str
    ranks: tuple[RankOrder, ...]
    armed: Armed | None
    """None: the boot record stays as it is."""


def order(journal: Journal, node: str, boot: str) -> Order:
    """Return the order for the guard of `node` in this boot."""
    return Order(journal, boot, tuple(_ranks(journal, node)), _armed(journal, node))


def _ranks(journal: Journal, node: str) -> Iterator[RankOrder]:
    swap = journal.swap
    if swap:
        for rank in swap.coming.on(node):
            yield _target(swap, rank)
        for rank in swap.leaving.on(node) if swap.leaving and not swap.restarts else ():
            frees = swap.stops_source and swap.reached(Phase.FREE)
            yield RankOrder(rank, Want.STOPPED if frees else Want.AS_IS)
    for rank in journal.stopped:
        if rank.node == node:
            yield RankOrder(rank, Want.STOPPED)


def _target(swap: Swap, rank: RankSpec) -> RankOrder:
    """Return the wanted state of the target's rank: workers start first, rank 0 last."""
    if swap.phase is Phase.FREE:
        return RankOrder(rank, Want.STOPPED)
    if swap.reached(Phase.SWITCH):
        return RankOrder(rank, Want.AS_IS)
    begins = Phase.WORKERS if rank in tuple(swap.coming.workers) else Phase.START
    if not swap.reached(begins):
        return RankOrder(rank, Want.CREATED)
    return RankOrder(rank, Want.RUNNING, swap.key, prove=swap.phase is Phase.VERIFY)


def _armed(journal: Journal, node: str) -> Armed | None:
    """Return the boot record: the promoted release. A node without it keeps its record while it moves or returns.

    So it does while the release is on a node that this leader does not know: that may be this very node, renamed.
    """
    active = journal.active
    if active is not None and (rank := next(active.on(node), None)):
        return Armed(rank, any(replica.ranks == (rank,) for replica in active.replicas))
    known = {journal.leader, *journal.peers, *journal.without}
    if active is not None and any(rank.node not in known for rank in active.ranks):
        return None
    swap = journal.swap
    moving = swap is not None and (swap.reverting or swap.phase is Phase.PROMOTE)
    return None if moving else Armed()


def slots(journal: Journal) -> Iterator[Deployment]:
    """Return what the gateway's slots must point at during a swap."""
    swap = journal.swap
    if swap is None:
        return iter(())
    source = _serving(swap) if swap.kept else swap.source
    comes = swap.reached(Phase.VERIFY) and bool(swap.coming.replicas)
    return (item for item in (source, swap.proving if comes else None) if item)


def traffic(journal: Journal) -> Deployment | None:
    """Return the release that must have the traffic."""
    swap = journal.swap
    if journal.stopping:
        return None
    return _serving(swap) if swap else journal.active


def _serving(swap: Swap) -> Deployment | None:
    if swap.reached(Phase.SWITCH):
        return swap.target
    return swap.rest if swap.withdrawn else swap.source


def unpromoted(journal: Journal | None) -> Iterator[RankSpec]:
    """Return the containers of the release that a swap starts or removes, until it is promoted."""
    if journal is None or journal.swap is None:
        return iter(())
    swap = journal.swap
    new = present(swap.source) if swap.reverting else swap.target
    return iter(()) if new == journal.active else iter(new.less(swap.kept).ranks)


def load_ahead(journal: Journal, node: str) -> str:
    """Return why work that takes a node's memory must wait for this service; empty if no swap loads there soon."""
    swap = journal.swap if not journal.trouble else None
    if swap is None or swap.reached(Phase.PROMOTE if swap.stops_source else Phase.SWITCH):
        return ""
    on_node = any(node in release.nodes for release in (swap.target, swap.source) if release)
    return f"the swap of {journal.service} to {swap.target.release} is in phase '{swap.phase}'" if on_node else ""


def hold(journal: Journal, drained_s: float = 0.0) -> RequestHold | None:
    """Return the hold of requests while a release starts in place of another one; None: they get 503.

    The prediction is that of the release that starts, or else of the one that it replaces. Before the start, the time
    comes first until the engines have stopped, and before that a drain; each of them begins a new prediction.
    `drained_s`: seconds of the drain so far.
    """
    swap = journal.swap
    if swap is None or not swap.stops_source or journal.stopping or journal.trouble:
        return None
    limits = swap.target.limits
    start_s = limits.start_s or present(swap.source).limits.start_s
    mark, first_s = swap.key, STOP_S
    if swap.reached(Phase.START):
        mark, first_s = f"{swap.key}+", 0.0
    elif swap.phase is Phase.QUIESCE:
        looks, drain_s = _drain(present(swap.source).limits.drain_s, drained_s)
        mark, first_s = f"{swap.key}.{looks}" if looks else swap.key, drain_s + STOP_S
    return RequestHold(mark, first_s + start_s, limits.hold_s, limits.hold_max) if start_s else None


def _drain(longest_s: float, drained_s: float) -> tuple[int, float]:
    """Return the number of the present prediction of a drain, and the seconds that it predicts.

    A request may take as long as its client likes: a drain is expected to last as long again as it has lasted, within
    its bound. It is predicted again when it has lasted twice as long, and anew from the first time on.
    """
    looks, from_s, left_s = 0, 0.0, DRAIN_S
    while min(drained_s, longest_s) >= from_s + left_s:
        looks, from_s = looks + 1, from_s + left_s
        left_s = from_s
    return looks, min(left_s, max(longest_s - from_s, 0.0))
