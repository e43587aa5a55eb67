"""Join the reports of all nodes to one status. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

from sparkops.docker.facts import Container
from sparkops.errors import NodeError, SparkopsError
from sparkops.gateway.facts import HoldFacts
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.node import GatewayPlace
from sparkops.startup import durations
from sparkops.status import drift, failures, picture
from sparkops.status.node_row import Gpu, Memory, NodeRow
from sparkops.status.observation import NodeReport, RankReport, ServiceReport, missing, replicas, services
from sparkops.swap.journal import Journal
from sparkops.swap.model import Phase


def join(
    names: Sequence[str], reports: Mapping[str, NodeReport | SparkopsError], gateway: GatewayPlace | None = None
) -> picture.Status:
    """Return the status of all nodes, in the order of the inventory; other gateways than its own are left out."""
    reached = [
        report if gateway and report.name == gateway.node else replace(report, gateway=None)
        for report in reports.values()
        if isinstance(report, NodeReport)
    ]
    unread = any(isinstance(report, SparkopsError) or report.guard_error for report in reports.values())
    observed = [*services(reached, complete=not unread)]
    return picture.Status(
        nodes=[_node(name, reports[name]) for name in names],
        services=[_service(service, gateway) for service in observed],
        gateway=_gateway(gateway, reports) if gateway else None,
        findings=[finding for report in reached for finding in report.findings],
        drift=[
            *(row for service in observed for row in drift.of_service(service)),
            *drift.of_guards(reached),
            *drift.of_gateway(reached),
        ],
    )


def _gateway(gateway: GatewayPlace, reports: Mapping[str, NodeReport | SparkopsError]) -> picture.GatewayRow:
    report = reports.get(gateway.node)
    if not isinstance(report, NodeReport):
        state: picture.GatewayState = "unreachable"
    elif report.gateway is None:
        state = "absent"
    else:
        state = "down" if report.gateway.problem else "up"
    url = gateway.url(gateway.port) if gateway.port else None
    return picture.GatewayRow(node=gateway.node, address=gateway.address or "", url=url, state=state)


def _node(name: str, report: NodeReport | SparkopsError) -> NodeRow:
    if isinstance(report, SparkopsError):
        problem = report.problem if isinstance(report, NodeError) else str(report)
        return NodeRow(name=name, reachable=False, error=problem, memory=None, next_step=report.next_step or None)
    host = report.host
    memory = Memory(total_gib=round(host.memory_total_gib, 1), available_gib=round(host.memory_available_gib, 1))
    gpus = [
        Gpu(
            **{
                **asdict(gpu),
                "memory_used_gib": _rounded(gpu.memory_used_gib, 1),
                "memory_total_gib": _rounded(gpu.memory_total_gib, 1),
            }
        )
        for gpu in report.gpus
    ]
    disk = _rounded(host.disk_free_gib, 1)
    return NodeRow(
        name=name,
        reachable=True,
        error=None,
        memory=memory,
        disk_free_gib=disk,
        gpus=gpus,
        cordon=report.cordon.reason or None,
        cordon_unknown=bool(report.guard_error or report.cordon_error),
        displaced=sorted(report.cordon.displaced),
    )


def _service(service: ServiceReport, gateway: GatewayPlace | None) -> picture.ServiceRow:
    live = service.live.container if service.live else None
    return picture.ServiceRow(
        name=service.name,
        url=gateway.url(service.front.port) if gateway and service.front else None,
        state=_state(service),
        live=picture.Live(slot=live.slot, release=live.release, image=live.image) if live else None,
        swap=next((swap for journal in service.journals if (swap := _swap(journal))), None),
        warm=next((warm for state in service.states if (warm := _warm(state))), None),
        waiting=_waiting(service.front.hold) if service.front and service.front.hold else None,
        hold=next((journal.hold for journal in service.journals if journal.hold), None),
        replicas=[
            picture.ReplicaRow(
                release=ranks[0].container.release,
                slot=ranks[0].container.slot,
                ranks=[_rank(rank, service) for rank in ranks],
                age_s=max((rank.age_s for rank in ranks if rank.age_s is not None), default=None),
            )
            for ranks in replicas(service.ranks)
        ],
        events=list(service.events),
    )


def _waiting(hold: HoldFacts) -> picture.WaitingRow:
    return picture.WaitingRow(
        requests=hold.waiting, most=hold.most, longest_s=hold.wait_s, limit_s=hold.longest_s, left_s=hold.left_s
    )


def _warm(state: ServiceState) -> picture.WarmRow | None:
    warm = state.journal.warm
    return picture.WarmRow(release=warm.release, until=state.warm_until) if warm else None


def _swap(journal: Journal) -> picture.SwapRow | None:
    swap = journal.unfinished
    if swap is None:
        return None
    return picture.SwapRow(
        release=swap.target.release,
        mode=swap.mode.value,
        phase=swap.phase.value,
        reverting=swap.reverting,
        waits_for_promote=not swap.automatic and swap.phase is Phase.BAKE,
        why=swap.why,
    )


def _state(service: ServiceReport) -> picture.State:
    """Return the state of a service. A stopped container beside a running one is history, not a failure."""
    ranks, journals = service.live_ranks if service.front and service.live else service.ranks, service.journals
    healths = {rank.health for rank in ranks if rank.container.running}
    if not healths and not service.ended and any(_crashed(rank.container, journals) for rank in ranks):
        return "failed"
    if _stops(journals):
        return "stopping"
    if not healths:
        return "stopped"
    if healths == {picture.Health.OK}:
        return "degraded" if any(map(missing, replicas(ranks))) else "healthy"
    if picture.Health.OK in healths:
        return "degraded"
    return "failed" if picture.Health.FAILING in healths else "starting"


def _stops(journals: Sequence[Journal]) -> bool:
    stops = any(journal.stopping or journal.halting for journal in journals)
    return stops and all(journal.stopping or not journal.deployments for journal in journals)


def _crashed(container: Container, journals: Sequence[Journal]) -> bool:
    """Return whether a container ended by itself, and not by `docker stop`.

    A rank of several that loses the others while all are stopped may end with any code: there the journal decides.
    """
    idle = (journal.previous for journal in journals if not (journal.active or journal.swap))
    if any(stopped and stopped.release == container.release for stopped in idle):
        return False
    return container.oom_killed or container.exit_code not in failures.ENDED_WELL


def _rank(rank: RankReport, service: ServiceReport) -> picture.RankRow:
    container, load, rates = rank.container, rank.load, rank.rates
    progress = failures.progress(container, service.states)
    problem, next_step = failures.of_rank(rank, service)
    return picture.RankRow(
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
        tok_s=round(rates.tok_s, 1) if load else None,
        ttft_s=_rounded(rates.ttft_s),
        kv_use=_rounded(rates.kv_use),
        prefix_hits=_rounded(rates.prefix_hits),
        draft_accepted=_rounded(rates.draft_accepted),
        up_s=_rounded(rank.up_s),
        sampled_s=rank.sampled_s,
        progress=progress,
        left_s=durations.left_s(progress) if progress else None,
        problem=problem or None,
        next_step=next_step or None,
    )


def _rounded(figure: float | None, digits: int = 3) -> float | None:
    return None if figure is None else round(figure, digits)
