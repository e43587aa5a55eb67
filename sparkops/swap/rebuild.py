"""The journal of a new leader, made from the copies that guards keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkops.swap.journal import Journal
from sparkops.swap.model import Phase, RankSpec


def rebuilt(copies: Sequence[Journal], node: str, lost: frozenset[str], above: int = 0) -> Journal:
    """Return the journal of a new leader on `node`: the newest copy, one term later. `lost` nodes are given up.

    The old release of a swap returns, started and verified where it was stopped. The new one stays where it is promoted
    or alone has the traffic, or where the old one is lost. Nothing stays of a service whose only release is lost.
    `above`: the highest term of an earlier rebuild, whose leader may have been lost before any guard had its journal.
    Raises ValueError without a copy.
    """
    newest = max(copies, key=lambda copy: copy.position)
    swap, active = newest.swap, newest.active
    dead = [item for item in newest.deployments if item.nodes & lost]
    places = {rank.place for rank in newest.stopped}
    given_up = dict.fromkeys(rank for item in dead for rank in item.ranks if rank.place not in places)
    journal = newest.changed(
        term=max(newest.term, above) + 1,
        leader=node,
        peers=tuple(peer for peer in (newest.leader, *newest.peers) if peer != node),
        without=newest.without | lost,
        active=None if active in dead else active,
        stopped=(*newest.stopped, *given_up),
    )
    if swap is None:
        return journal
    if not swap.retries and swap.source not in (None, *dead):
        stays = swap.reached(Phase.SWITCH if swap.stops_source else Phase.PROMOTE)
        return journal if stays and swap.target not in dead else journal.reverted("gateway rebuild")
    return journal.ended() if swap.target in dead else journal


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
