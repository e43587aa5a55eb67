"""Join what every node said into one picture. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparkops.errors import NodeError, SparkopsError
from sparkops.facts.docker import Container
from sparkops.facts.host import HostFacts
from sparkops.facts.metrics import Load
from sparkops.plan.picture import Drift, Health, Live, Memory, NodeRow, RankRow, ReplicaRow, ServiceRow, State, Status


@dataclass(frozen=True)
class RankReport:
    """One container as observed. `tok_s` is tokens per second over the last second."""

    container: Container
    health: Health = Health.NONE
    stage: str = ""
    load: Load | None = None
    tok_s: float = 0.0


@dataclass(frozen=True)
class NodeReport:
    """One reachable node as observed."""

    name: str
    host: HostFacts
    ranks: tuple[RankReport, ...] = ()


def join(names: Sequence[str], reports: Mapping[str, NodeReport | SparkopsError]) -> Status:
    """One picture of all nodes, in the order of the inventory."""
    seen = [report for report in reports.values() if isinstance(report, NodeReport)]
    ranks = [rank for report in seen for rank in report.ranks]
    services = sorted({rank.container.service for rank in ranks})
    return Status(
        nodes=[_node(name, reports[name]) for name in names],
        services=[_service(name, [rank for rank in ranks if rank.container.service == name]) for name in services],
        drift=_drift(ranks),
    )


def _node(name: str, report: NodeReport | SparkopsError) -> NodeRow:
    if isinstance(report, SparkopsError):
        problem = report.problem if isinstance(report, NodeError) else str(report)
        return NodeRow(name=name, reachable=False, error=problem, memory=None)
    host = report.host
    memory = Memory(total_gib=round(host.memory_total_gib, 1), available_gib=round(host.memory_available_gib, 1))
    return NodeRow(name=name, reachable=True, error=None, memory=memory)


def _service(name: str, ranks: Sequence[RankReport]) -> ServiceRow:
    live = next((rank.container for rank in ranks if rank.health is Health.OK), None)
    return ServiceRow(
        name=name,
        url=None,
        state=_state(ranks),
        live=Live(slot=live.slot, release=live.release, image=live.image) if live else None,
        replicas=[
            ReplicaRow(release=rank.container.release, slot=rank.container.slot, ranks=[_rank(rank)]) for rank in ranks
        ],
    )


def _state(ranks: Sequence[RankReport]) -> State:
    """A stopped container beside a running one is history, not trouble."""
    healths = {rank.health for rank in ranks if rank.container.running}
    if not healths:
        return "failed" if any(_crashed(rank.container) for rank in ranks) else "stopped"
    if healths == {Health.OK}:
        return "healthy"
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


def _drift(ranks: Sequence[RankReport]) -> list[Drift]:
    found = []
    running = [rank.container for rank in ranks if rank.container.running]
    for each in running:
        releases = sorted({o.release for o in running if (o.node, o.service) == (each.node, each.service)})
        if each.state == "restarting":
            found.append(Drift(code="RESTARTING", node=each.node, detail=f"{each.name} starts again and again"))
        if len(releases) > 1 and each.release == releases[0]:
            detail = f"{each.service} runs {' and '.join(releases)}"
            found.append(Drift(code="TWO_RELEASES", node=each.node, detail=detail))
    return found
