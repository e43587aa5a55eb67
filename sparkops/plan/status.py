"""Join what every node said into one picture. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkops.config.inventory import Gateway
from sparkops.errors import NodeError, SparkopsError
from sparkops.facts.docker import Container
from sparkops.plan import drift
from sparkops.plan.journal import Journal
from sparkops.plan.picture import (
    GatewayRow,
    GatewayState,
    Health,
    Live,
    Memory,
    NodeRow,
    RankRow,
    ReplicaRow,
    ServiceRow,
    State,
    Status,
    SwapRow,
)
from sparkops.plan.seen import NodeReport, RankReport, Seen, missing, replicas, services


def join(
    names: Sequence[str], reports: Mapping[str, NodeReport | SparkopsError], gateway: Gateway | None = None
) -> Status:
    """One picture of all nodes, in the order of the inventory."""
    reached = [report for report in reports.values() if isinstance(report, NodeReport)]
    seen = [*services(reached, gateway.node if gateway else "")]
    return Status(
        nodes=[_node(name, reports[name]) for name in names],
        services=[_service(each, gateway) for each in seen],
        gateway=_gateway(gateway, reports) if gateway else None,
        drift=[found for each in seen for found in drift.of_service(each)] + drift.of_gateway(reached),
    )


def _gateway(gateway: Gateway, reports: Mapping[str, NodeReport | SparkopsError]) -> GatewayRow:
    report = reports.get(gateway.node)
    if not isinstance(report, NodeReport):
        state: GatewayState = "unreachable"
    elif report.gateway is None:
        state = "absent"
    else:
        state = "down" if report.gateway.problem else "up"
    return GatewayRow(node=gateway.node, address=gateway.address or "", state=state)


def _node(name: str, report: NodeReport | SparkopsError) -> NodeRow:
    if isinstance(report, SparkopsError):
        problem = report.problem if isinstance(report, NodeError) else str(report)
        return NodeRow(name=name, reachable=False, error=problem, memory=None)
    host = report.host
    memory = Memory(total_gib=round(host.memory_total_gib, 1), available_gib=round(host.memory_available_gib, 1))
    return NodeRow(name=name, reachable=True, error=None, memory=memory)


def _service(seen: Seen, gateway: Gateway | None) -> ServiceRow:
    live = seen.live.container if seen.live else None
    return ServiceRow(
        name=seen.name,
        url=gateway.url(seen.front.port) if gateway and seen.front else None,
        state=_state(seen.live_ranks if seen.front and seen.live else seen.ranks),
        live=Live(slot=live.slot, release=live.release, image=live.image) if live else None,
        swap=_swap(seen.journal) if seen.journal else None,
        hold=seen.journal.hold if seen.journal else None,
        replicas=[
            ReplicaRow(release=ranks[0].container.release, slot=ranks[0].container.slot, ranks=[*map(_rank, ranks)])
            for ranks in replicas(seen.ranks)
        ],
    )


def _swap(journal: Journal) -> SwapRow | None:
    swap, holder = journal.swap, journal.holder
    if swap is None:
        return None
    owner = holder.owner if holder else None
    return SwapRow(release=swap.green.release, mode=swap.mode.value, phase=swap.phase.value, holder=owner)


def _state(ranks: Sequence[RankReport]) -> State:
    """A stopped container beside a running one is history, not trouble."""
    healths = {rank.health for rank in ranks if rank.container.running}
    if not healths:
        return "failed" if any(_crashed(rank.container) for rank in ranks) else "stopped"
    if healths == {Health.OK}:
        return "degraded" if any(missing(each) for each in replicas(ranks)) else "healthy"
    if Health.OK in healths:
        return "degraded"
    return "failed" if Health.FAILING in healths else "starting"


def _crashed(container: Container) -> bool:
    """Ended by itself: `docker stop` ends a program with 0, or by SIGTERM (143) or SIGKILL (137)."""
    return container.oom_killed or container.exit_code not in (0, 137, 143)


def _rank(rank: RankReport) -> RankRow:
    container, load = rank.container, rank.load
    return RankRow(
        node=container.node,
        rank=container.rank,
        container=container.name,
        image=container.image,
        state=container.state,
        stage=rank.stage or None,
        health=rank.health,
        port=container.port,
        exit_code=None if container.running else container.exit_code,
        running=load.running if load else None,
        waiting=load.waiting if load else None,
        tok_s=round(rank.tok_s, 1) if load else None,
    )
