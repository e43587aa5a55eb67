"""Join the reports of all nodes to one status: services, why containers fail, and drift from the intentions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from sparkops.errors import NodeError, NotReady, SparkopsError
from sparkops.gateway.facts import HoldFacts
from sparkops.node.docker.facts import Container
from sparkops.node.docker.places import CONTAINER, GATEWAY
from sparkops.node.node import GatewayPlace
from sparkops.operator.fleet.guards import mismatch
from sparkops.operator.status import picture
from sparkops.operator.status.observation import NOT_RUNNING, NodeReport, RankReport, ServiceReport, replicas, services
from sparkops.operator.status.picture import Drift, Health, Memory, NodeRow, Source
from sparkops.serving.service_state import ServiceState
from sparkops.serving.startup import durations
from sparkops.swap import trouble
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer
from sparkops.swap.trouble import NEXT


def join(
    names: Sequence[str], reports: Mapping[str, NodeReport | SparkopsError], gateway: GatewayPlace | None = None
) -> picture.Status:
    """Return the status of all nodes, in the order of the inventory; other gateways than the fleet's are left out."""
    read = [report for report in reports.values() if isinstance(report, NodeReport)]
    mismatches = [*_names(read), *(_gateway_node(gateway, read) if gateway else ())]
    place = _gateway_place(gateway, read) if gateway else ""
    reached = [report if report.name == place else replace(report, gateway=None) for report in read]
    unread = any(isinstance(report, SparkopsError) or report.guard_error for report in reports.values())
    observed = [*services(reached, complete=not unread)]
    renamed = {report.place for report in read if report.place != report.name}
    known = gateway if gateway and gateway.node == place else None
    front = _gateway(place, known, reports) if gateway else None
    return picture.Status(
        nodes=[_node(name, reports[name]) for name in names],
        services=[_service(service, known, front) for service in observed],
        gateway=front,
        findings=[finding for report in reached for finding in report.findings],
        drift=[
            *mismatches,
            *(row for service in observed for row in drift_of(service, renamed)),
            *_unread_guards(reached),
            *_gateway_drift(reached),
        ],
    )


def _names(reports: Sequence[NodeReport]) -> Iterator[Drift]:
    """Yield the nodes that the inventory calls otherwise than the fleet: its next steps would name other nodes."""
    for report in reports:
        if report.place != report.name:
            problem, step = mismatch.node_name(report.name, report.place)
            yield Drift(code=NODE_NAME, node=report.name, detail=problem, next_step=step)


def leaders_of(reports: Sequence[NodeReport]) -> dict[str, str]:
    """Return the node that leads each service with a release, by the newest of its journals and their copies."""
    newest: dict[str, Journal] = {}
    journals = (state.journal for report in reports for state in report.states)
    for journal in (*journals, *(copy for report in reports for copy in report.copies)):
        if journal.service not in newest or journal.position > newest[journal.service].position:
            newest[journal.service] = journal
    return {service: journal.leader for service, journal in newest.items() if journal.deployments}


def _elsewhere(gateway: GatewayPlace, reports: Sequence[NodeReport]) -> dict[str, list[str]]:
    """Return the services that are led on another node than the gateway's of the inventory, by that node's name.

    A node that was not read may be known to the fleet by another name: then nothing is known of it.
    """
    named = {report.place: report.name for report in reports}
    read, elsewhere = gateway.node in named.values(), dict[str, list[str]]()
    for service, leader in leaders_of(reports).items():
        if named.get(leader, leader) != gateway.node and (read or leader in named):
            elsewhere.setdefault(named.get(leader, leader), []).append(service)
    return elsewhere


def _gateway_node(gateway: GatewayPlace, reports: Sequence[NodeReport]) -> Iterator[Drift]:
    for leader, led in _elsewhere(gateway, reports).items():
        problem, step = mismatch.gateway_node(gateway.node, leader, sorted(led))
        yield Drift(code=GATEWAY_NODE, node="", detail=problem, next_step=step)


def _gateway_place(gateway: GatewayPlace, reports: Sequence[NodeReport]) -> str:
    """Return the node of the gateway: the one that leads, if the inventory has another."""
    return next(iter(_elsewhere(gateway, reports)), gateway.node)


def _gateway(
    place: str, gateway: GatewayPlace | None, reports: Mapping[str, NodeReport | SparkopsError]
) -> picture.GatewayRow:
    """Return the gateway on its node. `gateway`: the inventory's; None where it names another node."""
    report = reports.get(place)
    if not isinstance(report, NodeReport):
        state: picture.GatewayState = "unreachable"
    elif report.gateway is None:
        state = "absent"
    else:
        state = "down" if report.gateway.problem else "up"
    url = gateway.url(gateway.port) if gateway and gateway.port else None
    return picture.GatewayRow(node=place, address=(gateway and gateway.address) or "", url=url, state=state)


def _node(name: str, report: NodeReport | SparkopsError) -> NodeRow:
    if isinstance(report, SparkopsError):
        problem = without_node(report)
        return NodeRow(name=name, reachable=False, error=problem, memory=None, next_step=report.next_step or None)
    host = report.host
    memory = Memory(total_gib=round(host.memory_total_gib, 1), available_gib=round(host.memory_available_gib, 1))
    gpus = [
        replace(
            gpu,
            memory_used_gib=_rounded(gpu.memory_used_gib, 1),
            memory_total_gib=_rounded(gpu.memory_total_gib, 1),
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


def _service(
    service: ServiceReport, gateway: GatewayPlace | None, front: picture.GatewayRow | None
) -> picture.ServiceRow:
    state = _state(service)
    if front and front.state == "down" and state in ("healthy", "degraded"):
        state = "failed"  # its engines answer, and no client reaches them
    return picture.ServiceRow(
        name=service.name,
        url=gateway.url(service.front.port) if gateway and service.front else None,
        state=state,
        live=_live(service),
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
                active=service.serves(ranks[0]),
            )
            for ranks in replicas(service.ranks)
        ],
        events=[event.text for event in service.events],
        event_age_s=min((event.age_s for event in service.events), default=None),
        unread=_unread(service) or None,
        next_step=_start(service, state) or None,
    )


def _live(service: ServiceReport) -> picture.Live | None:
    if service.live is None:
        return None
    head, changes = service.live.container, service.live_changes
    known = None if changes is None else [*changes]
    return picture.Live(slot=head.slot, release=head.release, image=head.image, changes=known)


def _start(service: ServiceReport, state: picture.State) -> str:
    """Return how a stopped service starts; empty for any other."""
    if state != "stopped":
        return ""
    if not any(journal.previous for journal in service.journals):
        return "sparkops up RECIPE"
    held = any(journal.hold for journal in service.journals)
    return "\n".join([*([f"sparkops hold {service.name} --off"] if held else []), f"sparkops restart {service.name}"])


def _unread(service: ServiceReport) -> str:
    """Return which nodes of a service were not read, and what the fleet reports of them; empty if all were."""
    hidden = [rank for rank in service.ranks if rank.source is not Source.SEEN]
    nodes = [*dict.fromkeys(rank.container.node for rank in hidden)]
    if not nodes:
        return "" if service.led else "not every node could be read from here; it may run on another one"
    text = f"{' and '.join(nodes)} cannot be read from here"
    leaders = " and ".join(dict.fromkeys(journal.leader for journal in service.journals))
    if not leaders:
        return text
    answers = {Answer.YES: "it answers through the gateway", Answer.NO: "it does not answer through the gateway"}
    unknown = [rank.container.node for rank in hidden if rank.source is Source.UNKNOWN]
    reported = [answers[service.answer]] if service.answer in answers else []
    reported += [f"no report from {' and '.join(dict.fromkeys(unknown))}"] if unknown else []
    return f"{text}; {leaders} reports: {', '.join(reported)}" if reported else f"{text}; {leaders} reports its engines"


def _waiting(hold: HoldFacts) -> picture.WaitingRow:
    return picture.WaitingRow(
        requests=hold.waiting, most=hold.most, longest_s=hold.wait_s, limit_s=hold.longest_s, left_s=hold.left_s
    )


def _warm(state: ServiceState) -> picture.WarmRow | None:
    warm = state.journal.warm
    if warm is None:
        return None
    left = warm.release == state.journal.withdrawn
    return picture.WarmRow(release=warm.release, until=state.warm_until, by_name=left)


def _swap(journal: Journal) -> picture.SwapRow | None:
    swap = journal.unfinished
    if swap is None:
        return None
    return picture.SwapRow(
        release=swap.target.release,
        mode=swap.way,
        phase=swap.phase.value,
        reverting=swap.reverting,
        waits_for_promote=swap.waits,
        why=swap.why,
    )


def _state(service: ServiceReport) -> picture.State:
    """Return the state of a service. A stopped container beside a running one is history, not a failure.

    One that its guard is about to start, such as once the node has memory, is no service that was stopped, and none
    whose node could not be read has stopped or failed unless its leader reports that.
    """
    ranks, journals = service.deciding, service.journals
    unknown = any(rank.source is Source.UNKNOWN for rank in ranks)
    healths = {rank.health for rank in ranks if rank.container.running}
    waits = not service.ended and any(awaited(rank.container, service.states) for rank in ranks)
    blind = not service.ended and (unknown or not service.led)
    if not (healths or waits or service.ended or blind) and any(_crashed(rank.container, journals) for rank in ranks):
        return "failed"
    if _stops(journals):
        return "stopping"
    if unknown and healths <= {Health.OK}:
        return "failed" if service.answer is Answer.NO else "unknown"
    if not healths:
        return "starting" if waits else "unknown" if blind else "stopped"
    if service.led and service.journals and not any(journal.deployments for journal in service.journals):
        return "stopped"  # an engine runs that no client gets
    if healths == {Health.OK}:
        return "degraded" if service.down or any(map(service.missing, replicas(ranks))) else "healthy"
    if Health.OK in healths:
        return "degraded"
    return "failed" if Health.FAILING in healths else "starting"


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
    return container.oom_killed or container.exit_code not in ENDED_WELL


def _rank(rank: RankReport, service: ServiceReport) -> picture.RankRow:
    container, load, rates = rank.container, rank.load, rank.rates
    progress = awaited(container, service.states)
    problem, next_step = why_failing(rank, service)
    return picture.RankRow(
        node=container.node,
        rank=container.rank,
        container=container.name,
        image=container.image,
        state=container.state,
        stage=rank.stage or None,
        health=rank.health,
        port=container.port,
        exit_code=None if container.running or rank.source is not Source.SEEN else container.exit_code,
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
        source=rank.source,
    )


def _rounded(figure: float | None, digits: int = 3) -> float | None:
    return None if figure is None else round(figure, digits)


ENDED_WELL = {0, 137, 143}
"""Exit codes of a program that ended by itself, or by the SIGKILL or SIGTERM of `docker stop`."""


def awaited(container: Container, states: Sequence[ServiceState]) -> str | None:
    """Return what the guard of a container waits for, as its leader reports it; None for nothing."""
    texts = (state.progress.get(container.node, {}).get(container.name) for state in states)
    return next((text for text in texts if text), None)


def why_failing(rank: RankReport, service: ServiceReport) -> tuple[str, str]:
    """Return the problem of a container and the next command; both empty if it works or was stopped."""
    if service.ended and not rank.container.running:
        return "", ""
    reported = _reported(rank.container, service.states)
    waits = not rank.container.running and awaited(rank.container, service.states)
    problem = reported.partition(NEXT)[0] or ("" if waits or _replaced(rank, service) else _observed(rank))
    if not problem:
        return "", ""
    step = reported.partition(NEXT)[2]
    verb = "history" if service.states else "logs"
    return problem, step or f"sparkops {verb} {service.name}"


def _reported(container: Container, states: Sequence[ServiceState]) -> str:
    """Return why its last start failed, as its guard reports it; empty if it did not."""
    reports = (state.reports.get(container.node) for state in states)
    return next((text for report in reports if report and (text := report.engine(container.name).problem)), "")


def _replaced(rank: RankReport, service: ServiceReport) -> bool:
    """Return whether a container has ended while another release of its service works: its end is history.

    The gateway alone shows that too, while no guard can be asked.
    """
    if service.live is None or (service.led and not service.states):
        return False
    return rank not in service.live_ranks and not rank.container.running


def _observed(rank: RankReport) -> str:
    container = rank.container
    if container.oom_killed:
        return f"{container.name} was OOM-killed"
    if container.state == "restarting":
        return f"{container.name} is in a restart loop: {container.restarts} restarts, exit code {container.exit_code}"
    if not container.running:
        code = container.exit_code
        return "" if code in ENDED_WELL else f"{container.name} exited with code {code}"
    failing = rank.health is Health.FAILING
    return f"{container.name} runs, but /health does not answer" if failing else ""


NEEDS_PERSON = "NEEDS_PERSON"
FORMER_LEADER = "FORMER_LEADER"
GUARD_DOWN = "GUARD_DOWN"
GATEWAY_DOWN = "GATEWAY_DOWN"
GUARD_SILENT = "GUARD_SILENT"
CORDON_UNREAD = "CORDON_UNREAD"
NODE_NAME = "NODE_NAME"
GATEWAY_NODE = "GATEWAY_NODE"
INVENTORY = (GATEWAY_NODE, NODE_NAME)
"""Codes of an inventory that contradicts the fleet: until it is corrected, other next steps may be wrong."""
URGENCY = (
    *INVENTORY,
    NEEDS_PERSON,
    GUARD_DOWN,
    GATEWAY_DOWN,
    "LIVE_NOT_RUNNING",
    "RESTARTING",
    "RANK_MISSING",
    "REPLICA_DOWN",
    GUARD_SILENT,
)
"""Codes that are shown before the others, the most urgent first."""


def drift_of(service: ServiceReport, renamed: Collection[str] = ()) -> Iterator[Drift]:
    """Yield every difference in one service. `renamed`: nodes that the inventory calls otherwise than the fleet."""
    rows = chain(
        _of_containers(service),
        _of_journals(service),
        _of_traffic(service),
        _of_releases(service, renamed),
        _of_policies(service),
        _of_replicas(service),
    )
    return (replace(row, service=service.name) for row in rows)


def _of_containers(service: ServiceReport) -> Iterator[Drift]:
    name, seen = service.name, [rank for rank in service.ranks if rank.source is Source.SEEN]
    for container in (rank.container for rank in seen if rank.container.state == "restarting"):
        detail = f"{container.name} is in a restart loop"
        yield Drift(code="RESTARTING", node=container.node, detail=detail, next_step=f"sparkops logs {name}")
    for container in (rank.container for rank in seen if rank.listed):
        detail = f"{container.name}: Docker does not answer `docker inspect`, only its list is known"
        step = f"docker inspect {container.name}, on {container.node}; a restart of Docker may be needed"
        yield Drift(code="NOT_INSPECTED", node=container.node, detail=detail, next_step=step)
    for ranks in replicas(service.ranks):
        reported = {rank.container.rank for rank in ranks if rank.source is not Source.SEEN}
        for number in service.missing(ranks):
            if number in reported:  # its guard ends or starts it; the leader tells if it cannot
                continue
            head = ranks[0].container
            detail = f"{name}: rank {number} of {head.release} ({head.slot}) is not running, so the replica cannot work"
            yield Drift(code="RANK_MISSING", node=head.node, detail=detail, next_step=f"sparkops history {name}")


def _of_replicas(service: ServiceReport) -> Iterator[Drift]:
    """Yield a replica that does not answer while others do, and no swap is about to change that."""
    if any(journal.unfinished for journal in service.journals) or not service.led:
        return
    down = [rank for rank in service.down if rank.source is Source.SEEN and not rank.container.rank]
    total = len(service.shared.replicas) if service.shared else 0
    for rank in down if len(down) < total else ():
        detail = f"{service.name}: {len(down)} of {total} replicas do not answer: {rank.container.name}"
        step = f"sparkops logs {service.name} --node {rank.container.node}"
        yield Drift(code="REPLICA_DOWN", node=rank.container.node, detail=detail, next_step=step)


def _of_policies(service: ServiceReport) -> Iterator[Drift]:
    for rank in service.ranks if service.states else ():
        container = rank.container
        if container.running and container.restart_policy != "no":
            detail = f"{container.name} has Docker's restart policy {container.restart_policy}: its guard starts it"
            step = f"docker update --restart=no {container.name}, on {container.node}"
            yield Drift(code="RESTART_POLICY", node=container.node, detail=detail, next_step=step)


def _of_traffic(service: ServiceReport) -> Iterator[Drift]:
    """Yield an active release that does not run: only if it was looked for on each node that may have it."""
    active = service.front.active if service.front else None
    if active and service.live is None and not service.hidden:
        containers = (rank.container for rank in service.ranks)
        node = next((container.node for container in containers if container.release == active.release), "")
        detail = f"{service.name}: {active.release} is active but not running"
        journal = next(iter(service.journals), Journal(service.name, ""))
        missing = [name for state in service.states for name in state.missing]
        step = trouble.next_step(journal, f"{active.release} does not answer", missing)
        yield Drift(code="LIVE_NOT_RUNNING", node=node, detail=detail, next_step=step)


def _of_journals(service: ServiceReport) -> Iterator[Drift]:
    """Yield what the leader cannot continue without an operator, and the guards that it does not reach."""
    name = service.name
    for state in service.states:
        leader = state.journal.leader
        if (leads := _newer(state.journal, service.states)) and state.needs_operator:
            detail = f"{name}: {leader} led it before {leads} does, and has not heard of that"
            yield Drift(code=FORMER_LEADER, node=leader, detail=detail, next_step=f"{trouble.MOVE} {leads}")
        elif state.needs_operator:
            detail = f"{name}: {trouble.reason(state.needs_operator)}"
            step = trouble.next_step(state.journal, state.needs_operator, state.missing)
            yield Drift(code=NEEDS_PERSON, node=leader, detail=detail, next_step=step)
        for node in sorted(set(state.missing) & set(state.why_missing)):  # a guard that has just started asks soon
            why = state.why_missing[node]
            detail = f"{name}: {leader} cannot reach the guard of {node}, swaps wait: {why}"
            step = f"docker logs {CONTAINER}, on {node}"
            yield Drift(code="GUARD_NOT_REACHED", node=node, detail=detail, next_step=step)


def _newer(journal: Journal, states: Sequence[ServiceState]) -> str:
    """Return the node that leads by a newer term than a journal's, as after a rebuild; empty without one."""
    newest = max((state.journal for state in states), key=lambda other: other.position)
    return newest.leader if newest.term > journal.term and newest.leader != journal.leader else ""


def _of_releases(service: ServiceReport, renamed: Collection[str]) -> Iterator[Drift]:
    """Yield containers that no release needs. Two releases are right during a swap, and while the old one is warm.

    Nodes are read one after the other: what the guard beside a container, or its leader, stops is not unneeded yet.
    """
    if not service.led or service.front is None:
        return  # which releases it needs is unknown
    needed = {place for journal in service.journals for place in _places(journal)}
    for rank in service.ranks:
        container, copy = rank.container, service.copies.get(rank.container.node)
        place = container.node, container.name
        expected = place in needed or (copy is not None and place in _places(copy)) or rank in service.live_ranks
        if container.running and rank.source is Source.SEEN and not expected and container.node not in renamed:
            detail = f"{container.name} runs, but no release of its service needs it"
            step = f"docker stop {container.name}, on {container.node}"
            yield Drift(code="ORPHAN", node=container.node, detail=detail, next_step=step)


def _places(journal: Journal) -> Iterator[tuple[str, str]]:
    """Yield node and container of each rank that a journal starts or stops."""
    yield from (rank.place for deployment in journal.deployments for rank in deployment.ranks)
    yield from (rank.place for rank in journal.stopped)


def _unread_guards(reports: Sequence[NodeReport]) -> Iterator[Drift]:
    """Yield the guards whose journals or cordon could not be read."""
    for report in reports:
        if error := report.guard_error:
            detail = f"{without_node(error)}; what it leads is shown from containers and gateway"
            code = GUARD_DOWN if isinstance(error, NotReady) else GUARD_SILENT
            yield Drift(code=code, node=report.name, detail=detail, next_step=error.next_step)
        if error := report.cordon_error:
            detail = f"{without_node(error)}; nothing new starts there until it can be read"
            yield Drift(code=CORDON_UNREAD, node=report.name, detail=detail, next_step=error.next_step)


def without_node(error: SparkopsError) -> str:
    """Return the text of an error without the name of its node, which is shown beside it."""
    return error.problem if isinstance(error, NodeError) else str(error)


def _gateway_drift(reports: Sequence[NodeReport]) -> list[Drift]:
    """Return the differences in the gateway itself."""
    return [
        Drift(code=code, node=report.name, detail=detail, next_step=_gateway_step(report.name, detail))
        for report in reports
        if report.gateway
        for code, detail in report.gateway.drift
    ]


def _gateway_step(node: str, detail: str) -> str:
    return f"docker {'start' if NOT_RUNNING in detail else 'logs'} {GATEWAY}, on {node}"
