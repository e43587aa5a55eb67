"""The leader's orders to one guard: a wanted state, derived from the journal, so that sending it again is safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from sparkops.swap.journal import Journal, Swap
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec


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
    """Whether the guard runs the smoke suite on it."""


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
    """The order for the guard of `node` in this boot."""
    return Order(journal, boot, tuple(_ranks(journal, node)), _armed(journal, node))


def _ranks(journal: Journal, node: str) -> Iterator[RankOrder]:
    swap = journal.swap
    if swap:
        for rank in swap.target.on(node):
            yield _target(swap, rank)
        for rank in swap.source.on(node) if swap.source and swap.mode is not Mode.RESTART else ():
            yield RankOrder(rank, Want.STOPPED if _frees(swap) else Want.AS_IS)
    for rank in journal.stopped:
        if rank.node == node:
            yield RankOrder(rank, Want.STOPPED)


def _frees(swap: Swap) -> bool:
    return swap.stops_source and swap.reached(Phase.FREE)


def _target(swap: Swap, rank: RankSpec) -> RankOrder:
    """The target's rank: workers start first, rank 0 last."""
    if swap.phase is Phase.FREE:
        return RankOrder(rank, Want.STOPPED)
    if swap.reached(Phase.SWITCH):
        return RankOrder(rank, Want.AS_IS)
    begins = Phase.WORKERS if rank in tuple(swap.target.workers) else Phase.START
    if not swap.reached(begins):
        return RankOrder(rank, Want.AS_IS if swap.mode is Mode.RESTART else Want.CREATED)
    prove = swap.phase is Phase.VERIFY and rank in tuple(swap.target.heads)
    return RankOrder(rank, Want.RUNNING, swap.key, prove)


def _armed(journal: Journal, node: str) -> Armed | None:
    """The boot record names the promoted release. A node that the release leaves keeps its record while it moves."""
    active = journal.active
    if active is not None and (rank := next(active.on(node), None)):
        return Armed(rank, active.alone)
    promoting = journal.swap is not None and journal.swap.phase is Phase.PROMOTE
    return None if promoting else Armed()


def slots(journal: Journal) -> Iterator[Deployment]:
    """The releases that the gateway's slots must mean."""
    swap = journal.swap
    known = (swap.source, swap.target if swap.reached(Phase.VERIFY) else None) if swap else (journal.active,)
    return (deployment for deployment in known if deployment)


def traffic(journal: Journal) -> Deployment | None:
    """The release that is to have the traffic."""
    swap = journal.swap
    if journal.stopping:
        return None
    if swap is None:
        return journal.active
    if swap.offline:
        return None
    return swap.target if swap.reached(Phase.SWITCH) else swap.source
