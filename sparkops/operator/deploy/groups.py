"""Nodes that may run one replica together: the groups that a plan tries, and their order as ranks. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations, islice
from math import comb

from sparkops.config.release import Rank, Release
from sparkops.names import Slot
from sparkops.operator.deploy.preconditions import Observed
from sparkops.operator.fleet.network import topology

MOST_GROUPS = 500
"""Groups of nodes that a plan tries, at 2 to 4 ms each: 12 nodes have 495 groups of four, 16 nodes 12,870 of eight."""


def groups(free_gib: Mapping[str, float], size: int, own: Collection[str] = ()) -> list[tuple[str, ...]]:
    """Return the groups of `size` nodes, each in the order of `free_gib`: the memory that is available on a node.

    Of more than MOST_GROUPS, those whose least node has most memory, groups that share no node, the freest nodes first,
    for as many replicas as possible, and the nodes `own` of the release that serves.
    """
    if comb(len(free_gib), size) <= MOST_GROUPS:
        return [*combinations(free_gib, size)]
    freest = sorted(free_gib, key=lambda name: -free_gib[name])
    ways = (
        {*others, freest[last]}
        for last in range(size - 1, len(freest))
        for others in combinations(freest[:last], size - 1)
    )
    kept = [{*freest[first : first + size]} for first in range(0, len(freest) - size + 1, size)]
    kept += [{*own}] if len({*own}) == size and {*own} <= {*free_gib} else []
    chosen = (tuple(name for name in free_gib if name in group) for group in (*islice(ways, MOST_GROUPS), *kept))
    return [*dict.fromkeys(chosen)]


def placed(release: Release, slot: Slot, nodes: Mapping[str, Observed]) -> tuple[Rank, ...]:
    """Return the ranks of a release, one on each node, in the order of the cables between them."""
    fabrics = {name: node.fabric for name, node in nodes.items() if node.fabric}
    names = topology.ordered(fabrics, {name: node.config for name, node in nodes.items()}, [*nodes])
    return tuple(Rank(release, slot, name, index) for index, name in enumerate(names))
