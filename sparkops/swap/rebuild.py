"""The journal of a new leader, made from the copies that guards keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkops.swap.journal import Journal
from sparkops.swap.model import RankSpec


def rebuilt(copies: Sequence[Journal], node: str, lost: frozenset[str], above: int = 0) -> Journal:
    """Return the journal of a new leader on `node`: the newest copy, one term later. `lost` nodes are given up.

    `above`: the highest term of an earlier rebuild, whose leader may have been lost before any guard had its journal.
    Raises ValueError without a copy.
    """
    newest = max(copies, key=lambda copy: copy.position)
    swap, active = newest.swap, newest.active
    dead = [item for item in newest.deployments if any(rank.node in lost for rank in item.ranks)]
    if swap and swap.target in dead:
        active, swap = swap.source, None
    places = {rank.place for rank in newest.stopped}
    given_up = dict.fromkeys(rank for item in dead for rank in item.ranks if rank.place not in places)
    return newest.changed(
        term=max(newest.term, above) + 1,
        leader=node,
        peers=tuple(peer for peer in (newest.leader, *newest.peers) if peer != node),
        without=newest.without | lost,
        active=None if active in dead else active,
        swap=swap,
        stopped=(*newest.stopped, *given_up),
    )


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
