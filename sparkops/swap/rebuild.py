"""The journal of a new leader, made from the copies that guards keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkops.swap.journal import Journal
from sparkops.swap.model import Phase, RankSpec
from sparkops.swap.orders import traffic

WHY = "gateway rebuild"
"""Why a swap ends that was in progress."""


def rebuilt(copies: Sequence[Journal], node: str, lost: frozenset[str], above: int = 0) -> Journal:
    """Return the journal of a new leader on `node`: the newest copy, one term later. `lost` nodes are given up.

    A swap ends. The old release serves on, and is restarted and verified if the swap has stopped it; the new one if it
    has the traffic alone, or was promoted. Where the old one is lost, the new one goes on as a first deploy.

    `above`: the highest term of an earlier rebuild, whose leader may have been lost before any guard had its journal.
    Raises ValueError without a copy.
    """
    newest = max(copies, key=lambda copy: copy.position)
    journal = newest.changed(
        term=max(newest.term, above) + 1,
        leader=node,
        peers=tuple(peer for peer in (newest.leader, *newest.peers) if peer != node),
        without=newest.without | lost,
    )
    alive = [item for item in newest.deployments if not item.nodes & lost]
    swap = newest.swap
    if swap is None:
        return journal.kept(newest.active if newest.active in alive else None, WHY)
    old, new = (swap.target, None) if swap.reverting else (swap.source, swap.target)
    if new in alive and new == traffic(newest) and (swap.stops_source or swap.reached(Phase.PROMOTE)):
        return journal.kept(new, WHY)
    if old in alive:
        stopped = swap.stops_source and (not swap.reached(Phase.SWITCH) if swap.reverting else swap.reached(Phase.FREE))
        idle = journal.kept(old, WHY)
        return idle.restarted(WHY) if stopped else idle
    return journal.without_source() if new in alive else journal.kept(None, WHY)


def given_up(journal: Journal) -> tuple[str, ...]:
    """Return the containers of a release that served on lost nodes; none if the service was stopped before.

    The release of a stopped service is its previous one.
    """
    previous = set(journal.previous.ranks) if journal.previous else set[RankSpec]()
    lost = (rank for rank in journal.stopped if rank.node in journal.without and rank not in previous)
    return () if journal.active else tuple(rank.container for rank in lost)


def taken(service: str, copies: Sequence[Journal], node: str, peers: tuple[str, ...]) -> Journal:
    """Return the journal with which `node` leads a stopped service, with other guards than before."""
    if not copies:
        return Journal(service, node, peers)
    newer = rebuilt(copies, node, frozenset())
    stopped = tuple(rank for rank in newer.stopped if rank.node in {node, *peers})
    return replace(newer, peers=peers, without=newer.without & {*peers}, stopped=stopped)
