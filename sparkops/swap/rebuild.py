"""The journal of a new leader, made from the copies that guards keep."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sparkops.swap.journal import Journal, Swap, present
from sparkops.swap.model import Deployment, Mode, Phase, RankSpec, Replica


def rebuilt(copies: Sequence[Journal], node: str, lost: frozenset[str], above: int = 0) -> Journal:
    """Return the journal of a new leader on `node`: the newest copy, one term later. `lost` nodes are given up.

    The old release of a swap returns, started and verified where it was stopped. The new one stays where it is promoted
    or alone has the traffic, or where the old one is lost. Nothing stays of a service whose only release is lost; of
    several replicas those stay that are not.
    `above`: the highest term of an earlier rebuild, whose leader may have been lost before any guard had its journal.
    Raises ValueError without a copy.
    """
    newest = max(copies, key=lambda copy: copy.position)
    swap, active = newest.swap, newest.active
    replicas = {replica for item in newest.deployments for replica in item.replicas}
    gone = {replica for replica in replicas if replica.nodes & lost}
    dead = [item for item in newest.deployments if gone.issuperset(item.replicas)]
    places = {rank.place for rank in newest.stopped}
    ranks = dict.fromkeys(rank for item in newest.deployments for rank in item.only(gone).ranks)
    journal = newest.changed(
        term=max(newest.term, above) + 1,
        leader=node,
        peers=tuple(peer for peer in (newest.leader, *newest.peers) if peer != node),
        without=newest.without | lost,
        active=None if active is None or active in dead else _left(active, gone),
        stopped=(*newest.stopped, *(rank for rank in ranks if rank.place not in places)),
    )
    if swap is None:
        return journal
    journal = replace(journal, swap=_without(swap, journal.active, gone) if gone else swap)
    if not swap.retries and swap.source not in (None, *dead):
        stays = swap.reached(Phase.PROMOTE if swap.kept or not swap.stops_source else Phase.SWITCH)
        return journal if stays and swap.target not in dead else journal.reverted("gateway rebuild")
    return journal.ended() if swap.target in dead else journal


def _without(swap: Swap, active: Deployment | None, gone: Collection[Replica]) -> Swap:
    """Return the swap without lost replicas; no further step follows. `active`: the promoted release without them."""
    kept = tuple(replica for replica in swap.kept if replica not in gone)
    source, target = swap.source and _left(swap.source, gone), _left(swap.target, gone)
    left = replace(swap, target=target, source=source, kept=kept, goal=None)
    if source == target or kept or not swap.kept:
        return left
    other = target.slot.other  # nothing serves on: each has a slot of its own, as in place
    if target == active:
        return replace(left, mode=Mode.IN_PLACE, source=replace(present(source), slot=other))
    return replace(left, mode=Mode.IN_PLACE, target=replace(target, slot=other))


def _left(release: Deployment, gone: Collection[Replica]) -> Deployment:
    """Return the replicas of a release that are left; the release as it is where none are."""
    left = release.less(gone).replicas
    return replace(release, replicas=left) if left else release


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
