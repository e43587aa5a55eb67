"""A node as status observes it: from the output of node/survey/node_survey.py to services on all nodes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
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
from sparkops.operator.status.picture import Health, Source
from sparkops.redact import redacted
from sparkops.serving import service_state
from sparkops.serving.service_state import ServiceState
from sparkops.serving.watch.finding import EngineFinding, read_findings
from sparkops.swap import wire
from sparkops.swap.fleet_state import EngineReport, EngineState
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, RankSpec
from sparkops.swap.orders import traffic
from sparkops.swap.wire import OtherFormat


@dataclass(frozen=True)
class RankReport:
    """One container as observed. `listed`: Docker did not inspect it, so only its labels, state and health are known.
    One whose node was not read is as the guard that leads reports it, or unknown: `source`.

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
    source: Source = Source.SEEN


@dataclass(frozen=True)
class Event:
    """A lasting event of a service in a line. `age_s`: seconds since then by the clock of its node."""

    text: str
    age_s: float


@dataclass(frozen=True)
class NodeReport:
    """One reachable node as observed. `gateway` is known on its own node, `states` where a guard leads.

    `name` is that of the inventory. Containers, findings and journals have that of the fleet: `place`.
    """

    name: str
    host: HostFacts
    ranks: tuple[RankReport, ...] = ()
    gateway: GatewayFacts | None = None
    states: tuple[ServiceState, ...] = ()
    events: Mapping[str, Sequence[Event]] = field(default_factory=dict)
    """By service that its guard leads: the last events, oldest first."""
    gpus: tuple[Gpu, ...] = ()
    findings: tuple[EngineFinding, ...] = ()
    """What its guard has found in the engines of the node."""
    cordon: Cordon = field(default_factory=Cordon)
    cordon_error: SparkopsError | None = None
    """Why its cordon is unknown, although its guard replies."""
    guard_error: SparkopsError | None = None
    """Why the services that its guard leads are unknown: NotReady for a guard that is stopped."""
    copies: tuple[Journal, ...] = ()
    """Its guard's copies of the journals that other guards lead by."""
    fleet_name: str = ""
    """How the fleet's guards call it; empty without a guard."""

    @property
    def place(self) -> str:
        """Return the name of the node in the journals."""
        return self.fleet_name or self.name


@dataclass(frozen=True)
class ServiceReport:
    """One service as observed on all nodes.

    A container is seen on its node, or reported by the leader where this client could not read the node, or unknown.
    Unknown is never taken for stopped.
    """

    name: str
    ranks: tuple[RankReport, ...]
    front: ServiceFacts | None
    states: tuple[ServiceState, ...] = ()
    """State of its leader; none if no guard leads it. Two only while two guards lead it."""
    events: tuple[Event, ...] = ()
    """Its last events, oldest first."""
    copies: Mapping[str, Journal] = field(default_factory=dict)
    """By node: the copy that its guard keeps of the leader's journal."""
    whole: bool = True
    """Whether every node that may have a container of it was read, and every guard that may lead it."""

    @property
    def led(self) -> bool:
        """Whether it is known who leads it."""
        return self.whole or bool(self.states)

    @property
    def ended(self) -> bool:
        """Whether it was stopped on request, and nothing was deployed since: how its containers ended is history."""
        return bool(self.journals) and all(map(_ended, self.journals))

    @property
    def journals(self) -> tuple[Journal, ...]:
        """Journals of its leaders: the intended state."""
        return tuple(state.journal for state in self.states)

    @property
    def intended(self) -> tuple[Journal, ...]:
        """The same; where its leader was not read, the newest copy, which may be old."""
        newest = max(self.copies.values(), key=lambda journal: journal.position, default=None)
        return self.journals or ((newest,) if newest and not self.whole else ())

    @property
    def active(self) -> tuple[str, str] | None:
        """Release and slot that get the requests, as the gateway has it; where it was not read, the journal."""
        if self.front is not None:
            return (self.front.active.release, self.front.active.slot.value) if self.front.active else None
        promoted = (journal.active for journal in self.intended if journal.active and not self.whole)
        return next(((active.release, active.slot.value) for active in promoted), None)

    @property
    def answer(self) -> Answer:
        """Whether the active release answers requests through the gateway, as its leader reports."""
        views = (state.gateway for state in self.states if state.gateway and state.gateway.active)
        return next((view.answers.get(view.active, Answer.UNKNOWN) for view in views if view.active), Answer.UNKNOWN)

    @property
    def live(self) -> RankReport | None:
        """Rank 0 of the active release, if it runs; without the gateway's state, of one that answers."""
        place, heads = self.active, [rank for rank in self.ranks if rank.container.running and not rank.container.rank]
        if self.front is None:
            heads = [rank for rank in heads if rank.health is Health.OK]
        if place is None:
            return next(iter(heads), None) if self.front is None else None
        return next((head for head in heads if _place(head.container) == place), None)

    @property
    def live_changes(self) -> tuple[str, ...] | None:
        """The `--set` with which the release of `live` was deployed, as its journal has it; None if unknown."""
        place = _place(self.live.container) if self.live else None
        known = (deployment for deployment in self._deployments if _place_of(deployment) == place)
        return next(map(_changes, known), None)

    @property
    def live_ranks(self) -> Sequence[RankReport]:
        """All ranks of the replica of `live`."""
        return next((ranks for ranks in replicas(self.ranks) if self.live in ranks), ())

    @property
    def deciding(self) -> Sequence[RankReport]:
        """The containers that decide the state: those of the active release, if they run or are unknown; else all."""
        if self.active is None:
            return self.ranks
        if sharing := self.sharing:
            return [rank for rank in self.ranks if rank_place(rank) in sharing]
        active = [rank for rank in self.ranks if _place(rank.container) == self.active]
        return self.live_ranks or (active if any(rank.source is Source.UNKNOWN for rank in active) else self.ranks)

    @property
    def shared(self) -> Deployment | None:
        """What has the traffic, where that is several replicas, or those that serve while others are replaced."""
        for journal in self.intended:
            serving, swap = traffic(journal), journal.swap
            if serving and (len(serving.replicas) > 1 or (swap and swap.kept)):
                return serving
        return None

    @property
    def sharing(self) -> frozenset[tuple[str, str]]:
        """The places of the ranks of `shared`; empty without it."""
        return frozenset(rank.place for rank in self.shared.ranks) if self.shared else frozenset()

    @property
    def down(self) -> tuple[RankReport, ...]:
        """The ranks of `shared` that do not answer."""
        sharing = self.sharing
        return tuple(rank for rank in self.ranks if rank_place(rank) in sharing and rank.health is not Health.OK)

    def serves(self, rank: RankReport) -> bool:
        """Return whether requests go to the replica of a rank."""
        if sharing := self.sharing:
            return rank_place(rank) in sharing
        live = self.live.container if self.live else None
        return live is not None and _place(rank.container) == _place(live)

    @property
    def hidden(self) -> bool:
        """Whether a container of the active release may run where this client could not look."""
        active = [rank for rank in self.ranks if _place(rank.container) == self.active]
        return any(rank.source is not Source.SEEN for rank in active) or not self._knows(self.active)

    def _knows(self, place: tuple[str, str] | None) -> bool:
        """Return whether the nodes of a release are known, by its journal or since all nodes were read."""
        return self.whole or any(_place_of(deployment) == place for deployment in self._deployments)

    def missing(self, ranks: Sequence[RankReport]) -> tuple[int, ...]:
        """Return the numbers of the ranks that do not run; none for a replica of which no rank runs.

        One that may run on a node that was not read is not missing.
        """
        first = ranks[0].container
        if not self._knows(_place(first)) or not any(rank.container.running for rank in ranks):
            return ()
        may_run = {rank.container.rank for rank in ranks if rank.container.running or rank.source is Source.UNKNOWN}
        return tuple(number for number in range(first.ranks) if number not in may_run)

    @property
    def _deployments(self) -> Iterator[Deployment]:
        return (deployment for journal in self.intended for deployment in journal.deployments)

    def with_unread(self, read: Collection[str]) -> ServiceReport:
        """Return the report with the containers that the journals have on nodes other than `read`."""
        places, found = {*map(rank_place, self.ranks)}, list[RankReport]()
        for deployment in self._deployments:
            for replica in deployment.replicas:
                for index, rank in enumerate(replica.ranks):
                    if rank.node not in read and rank.place not in places:
                        places.add(rank.place)
                        found.append(self._unread(deployment, rank, index, len(replica.ranks)))
        return replace(self, ranks=(*self.ranks, *found))

    def _unread(self, deployment: Deployment, rank: RankSpec, index: int, ranks: int) -> RankReport:
        """Return a container whose node was not read, as the leader reports it."""
        reports = (state.reports[rank.node] for state in self.states if rank.node in state.reports)
        engine = next((report.engine(rank.container) for report in reports), None)
        health, state = _reported_engine(engine)
        container = Container(
            name=rank.container,
            node=rank.node,
            service=self.name,
            release=deployment.release,
            slot=deployment.slot.value,
            rank=index,
            ranks=ranks,
            port=0,
            inputs="",
            image="",
            state=state,
            exit_code=0,
            oom_killed=False,
            restarts=0,
            restart_policy="no",
            started_at=0.0,
            grace_s=0,
        )
        return RankReport(container, health, source=Source.REPORTED if engine else Source.UNKNOWN)


def _reported_engine(engine: EngineReport | None) -> tuple[Health, str]:
    """Return health and state of a container that the leader reports; both unknown for None."""
    match engine.state if engine else None:
        case None:
            return Health.UNKNOWN, "unknown"
        case EngineState.HEALTHY:
            return Health.OK, "running"
        case EngineState.LOADING:
            return Health.STARTING, "running"
        case EngineState.STOPPED:
            return Health.NONE, "exited"
        case _:
            return Health.NONE, "absent"


def _place(container: Container) -> tuple[str, str]:
    return container.release, container.slot


def _place_of(deployment: Deployment) -> tuple[str, str]:
    return deployment.release, deployment.slot.value


def _changes(deployment: Deployment) -> tuple[str, ...] | None:
    """Return the `--set` of a deployment; None where another version wrote its spec.

    Reads this key alone: the class of a spec imports those of recipes, which take longer than the nodes' replies.
    """
    try:
        return tuple(redacted(str(change)) for change in foreign.loads(next(deployment.heads).spec)["changes"])
    except (ValueError, LookupError, TypeError):
        return None


def _ended(journal: Journal) -> bool:
    outcome = journal.outcomes[-1].result if journal.outcomes else ""
    return not (journal.deployments or journal.stopping) and outcome not in ("", "reverted")


def rank_place(rank: RankReport) -> tuple[str, str]:
    """Return the node and the name of the container of a rank."""
    return rank.container.node, rank.container.name


def replicas(ranks: Sequence[RankReport]) -> list[tuple[RankReport, ...]]:
    """Return the ranks of each replica, rank 0 first. Without labels of several ranks, each container is a replica."""
    groups: dict[tuple[str, ...], list[RankReport]] = {}
    for rank in ranks:
        container = rank.container
        alone = (container.node, container.name) if container.ranks == 1 else ()
        groups.setdefault((container.release, container.slot, *alone), []).append(rank)
    return [tuple(sorted(group, key=lambda rank: rank.container.rank)) for group in groups.values()]


def services(reports: Sequence[NodeReport], *, complete: bool = True) -> Iterator[ServiceReport]:
    """Yield every service of these nodes by name. `complete`: all nodes and their guards could be read."""
    ranks = [rank for report in reports for rank in report.ranks]
    fronts = {name: facts for report in reports if report.gateway for name, facts in report.gateway.services.items()}
    states = [state for report in reports for state in report.states]
    read = {report.place for report in reports}
    members = {node for state in states for node in (*state.journal.peers, state.journal.leader)}
    given_up = {node for state in states for node in state.journal.without}
    whole = complete and members - given_up <= read  # the inventory may name fewer nodes than the fleet has
    copied = {copy.service for report in reports for copy in report.copies if not (whole or copy.forgotten)}
    led = {state.journal.service for state in states}
    for name in sorted({rank.container.service for rank in ranks} | fronts.keys() | led | copied):
        own_ranks = tuple(rank for rank in ranks if rank.container.service == name)
        own_states = tuple(state for state in states if state.journal.service == name)
        runs = any(rank.container.running for rank in own_ranks)
        if own_states and all(state.journal.forgotten for state in own_states) and not runs:
            continue
        events = tuple(event for report in reports for event in report.events.get(name, ()))
        copies = {report.place: copy for report in reports for copy in report.copies if copy.service == name}
        service = ServiceReport(name, own_ranks, fronts.get(name), own_states, events, copies, whole)
        yield service.with_unread(read)


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
    facts, place = host.parse(survey["host"]["out"]), survey["node"] or node
    states, events, guard_error = _guard(node, place, survey["guard"], facts.now_s)
    own = tuple(state for state in states if state.journal.leader == place)
    cordon, cordon_error = _cordon(node, survey["guard"])
    return NodeReport(
        name=node,
        host=facts,
        fleet_name=survey["node"],
        gpus=host.parse_gpu_states(gpus),
        ranks=tuple(
            _rank(place, container, engine, facts.now_s)
            for container, engine in zip(survey["containers"], survey["engines"], strict=True)
        ),
        gateway=_gateway(survey["gateway"]),
        states=own,
        copies=tuple(state.journal for state in states if state not in own and state.journal.revision),
        events=events,
        findings=_findings(place, survey["guard"]),
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


def _guard(
    node: str, place: str, guard: Facts, now_s: float
) -> tuple[tuple[ServiceState, ...], Mapping[str, list[Event]], SparkopsError | None]:
    """Return the services that the guard leads or keeps a copy of, their last events, and why they are unknown."""
    try:
        states = tuple(_states(node, place, guard))
        led = [state.journal.service for state in states if state.journal.leader == place]
        return states, {service: _events(node, service, guard, now_s) for service in led}, None
    except SparkopsError as error:
        return (), {}, error


def _states(node: str, place: str, guard: Facts) -> Iterator[ServiceState]:
    """Yield the guard's state of every service that it knows; none before a deploy has created the guard."""
    if not guard["services"] and f"No such container: {CONTAINER}" in guard["errors"]:
        return
    _reply(node, "services", guard["services"], guard["errors"])
    for service, line in guard["states"].items():
        yield service_state.read(service, place, _reply(node, "state", line, guard["errors"]))


def _events(node: str, service: str, guard: Facts, now_s: float) -> list[Event]:
    """Return the last lasting events of a service. `now_s`: Unix time of the node."""
    records = replies.merge(_reply(node, "events", guard["events"][service], guard["errors"]))
    ages_s = (now_s - datetime.fromisoformat(record["at"]).timestamp() for record in records)
    lines = (next(replies.lines(record)) for record in records)
    return [Event(line, max(0.0, age_s)) for line, age_s in zip(lines, ages_s, strict=True)][-EVENTS:]


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
