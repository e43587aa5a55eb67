"""The steps from one set of replicas to another one, a few at a time, so that the others serve meanwhile. Pure."""

from __future__ import annotations

from dataclasses import replace

from sparkops.swap.model import Deployment, Replica


def next_step(active: Deployment, goal: Deployment) -> Deployment:
    """Return the deployment after the next step from `active` to `goal`, which has the same slot.

    A step brings as many new replicas as may be missing at once, or one, and takes away those on their nodes. First are
    those on nodes of their own, and replicas whose nodes nothing else needs go last, so that no step has fewer than it
    must. The result has the order of `goal`.
    """
    going = [replica for replica in active.replicas if replica not in goal.replicas]
    coming = [replica for replica in goal.replicas if replica not in active.replicas]
    at_once = len(active.replicas) - goal.limits.least(len(active.replicas))
    left = {node for replica in going for node in replica.nodes}
    coming.sort(key=lambda replica: bool(left & replica.nodes))
    added, gone = list[Replica](), going if not coming else []
    for replica in coming:
        displaced = [old for old in going if old not in gone and replica.nodes & old.nodes]
        if added and (len(added) >= at_once or len(gone) + len(displaced) > at_once):
            break
        added, gone = [*added, replica], [*gone, *displaced]
    stays = [replica for replica in active.replicas if replica not in gone]
    first = [replica for replica in goal.replicas if replica in stays or replica in added]
    return replace(goal, replicas=(*first, *(replica for replica in stays if replica not in first)))
