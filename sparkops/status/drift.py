"""Disagreements between what runs, who has the traffic, and what was intended. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sparkops.docker.places import CONTAINER, GATEWAY
from sparkops.status.observation import NodeReport, Seen, missing, replicas
from sparkops.status.picture import Drift

NEEDS_PERSON = "NEEDS_PERSON"


def of_service(seen: Seen) -> Iterator[Drift]:
    """Everything that does not fit in one service."""
    running = [rank.container for rank in seen.ranks if rank.container.running]
    for each in running:
        if each.state == "restarting":
            detail = f"{each.name} is in a restart loop"
            yield Drift(code="RESTARTING", node=each.node, detail=detail, next_step=f"sparkops logs {seen.name}")
    for ranks in replicas(seen.ranks):
        for number in missing(ranks):
            head = ranks[0].container
            detail = (
                f"{seen.name}: rank {number} of {head.release} ({head.slot}) does not run, so the replica cannot work"
            )
            yield Drift(code="RANK_MISSING", node=head.node, detail=detail, next_step=f"sparkops history {seen.name}")
    yield from _of_journals(seen)
    yield from _of_traffic(seen)
    yield from _of_releases(seen)
    for container in running if seen.states else ():
        if container.restart_policy != "no":
            detail = f"{container.name} has Docker's restart policy {container.restart_policy}: its guard starts it"
            step = f"docker update --restart=no {container.name}, on {container.node}"
            yield Drift(code="RESTART_POLICY", node=container.node, detail=detail, next_step=step)


def _of_traffic(seen: Seen) -> Iterator[Drift]:
    active = seen.front.active if seen.front else None
    if active and seen.live is None:
        node = next((rank.container.node for rank in seen.ranks if rank.container.release == active.release), "")
        detail = f"{seen.name}: {active.release} has the traffic and does not run"
        steps = f"sparkops history {seen.name}\nsparkops rollback {seen.name}"
        yield Drift(code="LIVE_NOT_RUNNING", node=node, detail=detail, next_step=steps)


def _of_journals(seen: Seen) -> Iterator[Drift]:
    """What the leader cannot do without an operator, and the guards that it does not reach."""
    for state in seen.states:
        if state.needs_operator:
            steps = f"sparkops history {seen.name}\nsparkops rollback {seen.name}"
            detail = f"{seen.name}: {state.needs_operator}"
            yield Drift(code=NEEDS_PERSON, node=state.journal.leader, detail=detail, next_step=steps)
        for node in sorted(set(state.missing) & set(state.why_missing)):  # a guard that has just started asks soon
            why = state.why_missing[node]
            detail = f"{seen.name}: {state.journal.leader} does not reach the guard of {node}: swaps wait for it: {why}"
            step = f"docker logs {CONTAINER}, on {node}"
            yield Drift(code="GUARD_NOT_REACHED", node=node, detail=detail, next_step=step)


def _of_releases(seen: Seen) -> Iterator[Drift]:
    """Two releases are right during a swap, and while the old one stays warm."""
    wanted = [deployment for journal in seen.journals for deployment in journal.deployments]
    placed = {rank.container for deployment in wanted for rank in deployment.ranks}
    for rank in seen.ranks:
        each = rank.container
        if seen.front and each.running and each.name not in placed and rank not in seen.live_ranks:
            detail = f"{each.name} runs, and no release of its service needs it"
            step = f"docker stop {each.name}, on {each.node}"
            yield Drift(code="ORPHAN", node=each.node, detail=detail, next_step=step)
    if seen.front is None:
        yield from _two_releases(seen)


def _two_releases(seen: Seen) -> Iterator[Drift]:
    for node in sorted({rank.container.node for rank in seen.ranks}):
        here = [rank.container for rank in seen.ranks if rank.container.node == node and rank.container.running]
        releases = sorted({each.release for each in here})
        if len(releases) > 1:
            detail = f"{seen.name} runs {' and '.join(releases)}"
            step = f"sparkops stop {seen.name} --node {node}, then deploy it again"
            yield Drift(code="TWO_RELEASES", node=node, detail=detail, next_step=step)


def of_gateway(reached: Sequence[NodeReport]) -> list[Drift]:
    """What does not fit in the gateway itself."""
    return [
        Drift(code=code, node=report.name, detail=detail, next_step=f"docker logs {GATEWAY}, on {report.name}")
        for report in reached
        if report.gateway
        for code, detail in report.gateway.drift
    ]
