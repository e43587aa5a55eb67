"""A node as status observes it: from the output of node/survey/node_survey.py to services on all nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from sparkops import foreign
from sparkops.engines import load
from sparkops.engines.load import UNKNOWN, Load, Rates
from sparkops.errors import ConnectionLost, NodeError, NotReady, SparkopsError
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, parse_gateway
from sparkops.node import host
from sparkops.node.cordon import Cordon
from sparkops.node.docker.facts import Container, parse_container, parse_listed
from sparkops.node.docker.places import CONTAINER, GATEWAY
from sparkops.node.host import Gpu, HostFacts
from sparkops.node.survey.commands import EVENTS
from sparkops.operator.fleet.guards import replies
from sparkops.operator.fleet.guards.replies import refusal, unfit
from sparkops.operator.status.picture import Health
from sparkops.serving import service_state
from sparkops.serving.service_state import ServiceState
from sparkops.serving.watch.finding import EngineFinding, read_findings
from sparkops.swap import wire
from sparkops.swap.journal import Journal
from sparkops.swap.wire import OtherFormat


@dataclass(frozen=True)
class RankReport:
    """One container as observed. `listed`: Docker did not inspect it, so only its labels, state and health are known.

    `age_s` and `up_s` are seconds since it was created and started, by its node's clock;
    None if unknown, and `up_s` unless it runs. `sampled_s`: how many seconds ago health and figures were read."""

    container: Container
    health: Health = Health.NONE
    stage: str = ""
    load: Load | None = None
    rates: Rates = UNKNOWN
    age_s: float | None = None
    up_s: float | None = None
    sampled_s: float = 0.0
    listed: bool = False


@dataclass(frozen=True)
class NodeReport:
    """One reachable node as observed. `gateway` is known on its own node, `states` where a guard leads."""

    name: str
    host: HostFacts
    ranks: tuple[RankReport, ...] = ()
    gateway: GatewayFacts | None = None
    states: tuple[ServiceState, ...] = ()
    events: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By service that its guard leads: the last events, oldest first."""
    gpus: tuple[Gpu, ...] = ()
    findings: tuple[EngineFinding, ...] = ()
    """What its guard has found in the engines of the node."""
    cordon: Cordon = field(default_factory=Cordon)
    cordon_error: SparkopsError | None = None
    """Why its cordon is unknown, although its guard replies."""
    guard_error: SparkopsError | None = None
    """Why the services that its guard leads are unknown: NotReady for a guard that is stopped."""


@dataclass(frozen=True)
class ServiceReport:
    """One service as observed on all nodes."""

    name: str
    ranks: tuple[RankReport, ...]
    front: ServiceFacts | None
    states: tuple[ServiceState, ...] = ()
    """State of its leader; none if no guard leads it. Two only while two guards lead it."""
    events: tuple[str, ...] = ()
    """Its last events, oldest first."""
    led: bool = True
    """Whether it is known who leads it; False: without a state, and a node or its guard could not be read."""

    @property
    def ended(self) -> bool:
        """Whether it was stopped on request, and nothing was deployed since: how its containers ended is history."""
        return bool(self.journals) and all(map(_ended, self.journals))

    @property
    def journals(self) -> tuple[Journal, ...]:
        """Journals of its leaders: the intended state."""
        return tuple(state.journal for state in self.states)

    @property
    def live(self) -> RankReport | None:
        """Rank 0 of the active release, if it runs; without the gateway's state, of one that answers."""
        if self.front is None:
            return next((rank for rank in self.ranks if rank.health is Health.OK), None)
        active = self.front.active
        place = (active.release, active.slot.value) if active else None
        heads = (rank for rank in self.ranks if rank.container.running and not rank.container.rank)
        return next((head for head in heads if (head.container.release, head.container.slot) == place), None)

    @property
    def live_ranks(self) -> Sequence[RankReport]:
        """All ranks of the replica of `live`."""
        return next((ranks for ranks in replicas(self.ranks) if self.live in ranks), ())


def _ended(journal: Journal) -> bool:
    outcome = journal.outcomes[-1].result if journal.outcomes else ""
    return not (journal.deployments or journal.stopping) and outcome not in ("", "reverted")


def replicas(ranks: Sequence[RankReport]) -> list[tuple[RankReport, ...]]:
    """Return the ranks of each replica, rank 0 first. Without labels of several ranks, each container is a replica."""
    groups: dict[tuple[str, ...], list[RankReport]] = {}
    for rank in ranks:
        container = rank.container
        alone = (container.node, container.name) if container.ranks == 1 else ()
        groups.setdefault((container.release, container.slot, *alone), []).append(rank)
    return [tuple(sorted(group, key=lambda rank: rank.container.rank)) for group in groups.values()]


def missing(ranks: Sequence[RankReport]) -> tuple[int, ...]:
    """Return the numbers of the ranks that do not run; none for a replica of which no rank runs."""
    running = {rank.container.rank for rank in ranks if rank.container.running}
    return tuple(number for number in range(ranks[0].container.ranks) if number not in running) if running else ()


def services(reports: Sequence[NodeReport], *, complete: bool = True) -> Iterator[ServiceReport]:
    """Yield every service of these nodes by name. `complete`: all nodes and their guards could be read."""
    ranks = [rank for report in reports for rank in report.ranks]
    fronts = {name: facts for report in reports if report.gateway for name, facts in report.gateway.services.items()}
    states = [state for report in reports for state in report.states]
    led = {state.journal.service for state in states}
    for name in sorted({rank.container.service for rank in ranks} | fronts.keys() | led):
        own_ranks = tuple(rank for rank in ranks if rank.container.service == name)
        own_states = tuple(state for state in states if state.journal.service == name)
        runs = any(rank.container.running for rank in own_ranks)
        if own_states and all(state.journal.forgotten for state in own_states) and not runs:
            continue
        front = fronts.get(name)
        events = tuple(event for report in reports for event in report.events.get(name, ()))
        yield ServiceReport(name, own_ranks, front, own_states, events, led=complete or bool(own_states))


REPLY_LIMIT = 4 * 2**20
"""Characters of a guard's reply."""
NOT_RUNNING = "is not running"
"""Of the words with which Docker refuses `docker exec` in a stopped container (errNotRunning of daemon/errors.go)."""
Facts = Mapping[str, Any]


def reported(node: str, outcome: str | SparkopsError) -> NodeReport | SparkopsError:
    """Return what the program printed on a node as a report, or why there is none."""
    try:
        return outcome if isinstance(outcome, SparkopsError) else read(node, outcome)
    except SparkopsError as error:
        return error


def read(node: str, text: str) -> NodeReport:
    """Return what the program printed on a node.

    Raises NotReady where Docker does not answer, and NodeError for a failed query and for another text: one node must
    not hide the others. A guard that does not run, does not reply or replies an error hides nothing else: the report
    has the error.
    """
    try:
        return _read(node, text)
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, ArithmeticError) as error:
        raise NodeError(node, f"unexpected report: {type(error).__name__}: {str(error)[:200]}") from None


def _read(node: str, text: str) -> NodeReport:
    line, _, gpus = text.partition("\n")
    survey = foreign.loads(line)
    if survey["docker"]["code"]:
        raise NotReady.without_docker(node, _words(survey["docker"]))
    if survey["host"]["code"]:
        raise NodeError(node, f"memory cannot be read: {_words(survey['host'])}")
    states, events, guard_error = _guard(node, survey["guard"])
    cordon, cordon_error = _cordon(node, survey["guard"])
    return NodeReport(
        name=node,
        host=(facts := host.parse(survey["host"]["out"])),
        gpus=host.parse_gpu_states(gpus),
        ranks=tuple(
            _rank(node, container, engine, facts.now_s)
            for container, engine in zip(survey["containers"], survey["engines"], strict=True)
        ),
        gateway=_gateway(survey["gateway"]) if survey["gateway"] else None,
        states=states,
        events=events,
        findings=_findings(node, survey["guard"]),
        cordon=cordon,
        cordon_error=None if guard_error else cordon_error,
        guard_error=guard_error,
    )


def _rank(node: str, facts: Facts, engine: Facts, now_s: float) -> RankReport:
    """Read a container by its inspect, or by its item of Docker's list: then its start is unknown, and its log."""
    listed = "Config" not in facts
    container = parse_listed(node, facts) if listed else parse_container(node, facts)
    report, created_at = _engine(container, engine), container.created_at
    if listed and report.health is Health.STARTING:
        report = replace(report, health=Health.UNKNOWN, stage="")
    return replace(
        report,
        listed=listed,
        age_s=None if created_at is None else max(0.0, now_s - created_at),
        up_s=max(0.0, now_s - container.started_at) if container.running and not listed else None,
        sampled_s=engine.get("sampled_s", 0.0),
    )


def _words(ended: Facts) -> str:
    return f"{ended['out']}\n{ended['err']}".strip()


def _engine(container: Container, engine: Facts) -> RankReport:
    """Return one container with its stage, health and load."""
    if not container.running:
        return RankReport(container)
    if container.rank:  # no one asks it; rank 0 shows whether they work together
        return RankReport(container, Health.OK, f"rank {container.rank} of {container.ranks}")
    if engine["healthy"]:
        return RankReport(container, Health.OK, "serving", *_load(engine))
    log = engine["log"]
    if log["code"]:
        raise NotReady(container.node, f"the log of {container.name} cannot be read: {_words(log)}")
    served, stage = import_module("sparkops.operator.status.starting").stage(log["out"])
    return RankReport(container, Health.FAILING if served else Health.STARTING, stage)


def _load(engine: Facts) -> tuple[Load | None, Rates]:
    """Return the requests now, and the speed between two samples if there are two. None: metrics of no engine."""
    first = engine["first"]
    second = engine.get("second", first)
    try:
        return load.read(second), load.rates(first, second, engine.get("took_s", 1.0))
    except ValueError:
        return None, UNKNOWN


def _gateway(shown: Facts) -> GatewayFacts | None:
    """Return the gateway's facts; None before a deploy has created it."""
    if f"No such container: {GATEWAY}" in shown["err"]:
        return None
    try:
        if shown["code"]:
            raise ValueError(_words(shown))
        return parse_gateway(shown["out"])
    except (OtherFormat, ValueError) as error:
        step = f"; next: {error.next_step}" if isinstance(error, OtherFormat) else ""
        return GatewayFacts(services={}, files={}, loaded=False, problem=f"{error}{step}")


def _guard(node: str, guard: Facts) -> tuple[tuple[ServiceState, ...], Mapping[str, list[str]], SparkopsError | None]:
    """Return the services that the guard leads, their last events, and why they are unknown."""
    try:
        states = tuple(state for state in _states(node, guard) if state.journal.leader == node)
        return states, {state.journal.service: _events(node, state.journal.service, guard) for state in states}, None
    except SparkopsError as error:
        return (), {}, error


def _states(node: str, guard: Facts) -> Iterator[ServiceState]:
    """Yield the guard's state of every service that it knows; none before a deploy has created the guard."""
    if not guard["services"] and f"No such container: {CONTAINER}" in guard["errors"]:
        return
    _reply(node, "services", guard["services"], guard["errors"])
    for service, line in guard["states"].items():
        yield service_state.read(service, node, _reply(node, "state", line, guard["errors"]))


def _events(node: str, service: str, guard: Facts) -> list[str]:
    """Return the last lasting events of a service in a line each."""
    records = _reply(node, "events", guard["events"][service], guard["errors"])
    return [next(replies.lines(record)) for record in replies.merge(records, ())][-EVENTS:]


def _findings(node: str, guard: Facts) -> tuple[EngineFinding, ...]:
    """Return what the guard's watch has found; nothing of a guard that cannot be read."""
    line = guard["findings"]
    reply = foreign.loads(line) if line.startswith("{") and not unfit("findings", line, REPLY_LIMIT) else {}
    return tuple(read_findings(node, reply.get("ok")))


def _cordon(node: str, guard: Facts) -> tuple[Cordon, SparkopsError | None]:
    """Return the cordon of the node, and why it is unknown; an open one without a guard."""
    line = guard["cordon"]
    if not line:  # no guard, or one whose error `_guard` returns
        return Cordon(), None
    try:
        return wire.load_value(Cordon, _reply(node, "cordon", line, guard["errors"])), None
    except SparkopsError as error:
        return Cordon(), error


def _reply(node: str, op: str, line: str, errors: str) -> Any:
    if problem := unfit(op, line, REPLY_LIMIT):
        if NOT_RUNNING in errors:
            raise NotReady(node, "the guard is stopped", next_step=f"docker start {CONTAINER}, on {node}")
        why = f"{problem}: {errors.strip()}" if errors.strip() else problem
        raise ConnectionLost(node, why, next_step=f"docker logs {CONTAINER}, on {node}")
    reply = foreign.loads(line)
    if "error" in reply:
        raise refusal(node, reply)
    return reply["ok"]
