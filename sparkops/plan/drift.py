"""Disagreements between what runs, who has the traffic, and what was intended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkops.plan.picture import Drift
from sparkops.plan.seen import NodeReport, Seen, missing, replicas

NEEDS_PERSON = "NEEDS_PERSON"


def of_service(seen: Seen) -> Iterator[Drift]:
    """Everything that does not fit in one service."""
    running = [rank.container for rank in seen.ranks if rank.container.running]
    for each in running:
        if each.state == "restarting":
            yield Drift(code="RESTARTING", node=each.node, detail=f"{each.name} starts again and again")
    for ranks in replicas(seen.ranks):
        for number in missing(ranks):
            head = ranks[0].container
            detail = (
                f"{seen.name}: rank {number} of {head.release} ({head.slot}) does not run, so the replica cannot work"
            )
            yield Drift(code="RANK_MISSING", node=head.node, detail=detail)
    yield from _of_journals(seen)
    yield from _of_traffic(seen)
    yield from _of_releases(seen)
    for node in sorted({each.node for each in running}):
        armed = sorted(each.name for each in running if each.node == node and each.restart_policy != "no")
        if len(armed) > 1:
            detail = f"{' and '.join(armed)} would both start by themselves"
            yield Drift(code="TWO_RESTART_POLICIES", node=node, detail=detail)


def _of_traffic(seen: Seen) -> Iterator[Drift]:
    active = seen.front.active if seen.front else None
    if active and seen.live is None:
        node = next((rank.container.node for rank in seen.ranks if rank.container.release == active.release), "")
        detail = f"{seen.name}: {active.release} has the traffic and does not run"
        yield Drift(code="LIVE_NOT_RUNNING", node=node, detail=detail)


def _of_journals(seen: Seen) -> Iterator[Drift]:
    """What was begun and not ended, and what a guard could not end."""
    swap, holder = (seen.journal.swap, seen.journal.holder) if seen.journal else (None, None)
    if swap and not holder and not swap.waiting:
        does = f"the guards {swap.verdict} it" if swap.verdict else "deploy it again"
        detail = f"{seen.name}: the swap to {swap.green.release} was left in phase {swap.phase}; {does}"
        yield Drift(code="UNFINISHED_SWAP", node=swap.green.node, detail=detail)
    for node, each in seen.journals.items():
        if node != seen.gateway and each.swap and not each.holder and swap is None:
            detail = f"{seen.name}: {node} has not heard how the swap to {each.swap.green.release} ended"
            yield Drift(code="UNFINISHED_SWAP", node=node, detail=f"{detail}; its guard asks the gateway's")
        if each.trouble:
            detail = f"{seen.name}: {each.trouble}; next: sparkops logs {seen.name}, sparkops rollback {seen.name}"
            yield Drift(code=NEEDS_PERSON, node=node, detail=detail)


def _of_releases(seen: Seen) -> Iterator[Drift]:
    """Two releases are right during a swap, and while the old one stays warm."""
    journal = seen.journal
    placed = []
    if journal:
        retired = journal.retirement.placed if journal.retirement else None
        swapped = (journal.swap.green, journal.swap.blue) if journal.swap else ()
        placed = [place.container for each in (journal.active, retired, *swapped) if each for place in each.ranks]
    for rank in seen.ranks:
        each = rank.container
        if seen.front and each.running and each.name not in placed and rank not in seen.live_ranks:
            detail = f"{each.name} runs, and nobody has asked for it: docker stop {each.name}"
            yield Drift(code="ORPHAN", node=each.node, detail=detail)
    if seen.front is None:
        yield from _two_releases(seen)


def _two_releases(seen: Seen) -> Iterator[Drift]:
    for node in sorted({rank.container.node for rank in seen.ranks}):
        here = [rank.container for rank in seen.ranks if rank.container.node == node and rank.container.running]
        releases = sorted({each.release for each in here})
        if len(releases) > 1:
            detail = f"{seen.name} runs {' and '.join(releases)}"
            yield Drift(code="TWO_RELEASES", node=node, detail=detail)


def of_gateway(reached: Sequence[NodeReport]) -> list[Drift]:
    """What does not fit in the gateway itself."""
    return [
        Drift(code=code, node=report.name, detail=detail)
        for report in reached
        if report.gateway
        for code, detail in report.gateway.drift
    ]
