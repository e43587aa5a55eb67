"""Reports of containers, nodes and services, before they are joined to a status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkops.docker.facts import Container
from sparkops.engines.load import UNKNOWN, Load, Rates
from sparkops.errors import SparkopsError
from sparkops.gateway.facts import GatewayFacts, ServiceFacts
from sparkops.guard_client.cordon import Cordon
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.host import GpuState, HostFacts
from sparkops.status.picture import Health
from sparkops.swap.journal import Journal
from sparkops.watch.finding import EngineFinding


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
    gpus: tuple[GpuState, ...] = ()
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
    """State of its leader, and of those of an earlier version; none if no guard leads it."""
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
        """Rank 0 of the active release, if it runs; of an earlier version's without a gateway, if it answers."""
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


def _runs(ranks: Sequence[RankReport]) -> bool:
    return any(rank.container.running for rank in ranks)


def services(reports: Sequence[NodeReport], *, complete: bool = True) -> Iterator[ServiceReport]:
    """Yield every service of these nodes by name. `complete`: all nodes and their guards could be read."""
    ranks = [rank for report in reports for rank in report.ranks]
    fronts = {name: facts for report in reports if report.gateway for name, facts in report.gateway.services.items()}
    states = [state for report in reports for state in report.states]
    led = {state.journal.service for state in states}
    for name in sorted({rank.container.service for rank in ranks} | fronts.keys() | led):
        own_ranks = tuple(rank for rank in ranks if rank.container.service == name)
        own_states = tuple(state for state in states if state.journal.service == name)
        if own_states and all(state.journal.forgotten for state in own_states) and not _runs(own_ranks):
            continue
        front = None if any(state.direct for state in own_states) else fronts.get(name)
        events = tuple(event for report in reports for event in report.events.get(name, ()))
        yield ServiceReport(name, own_ranks, front, own_states, events, led=complete or bool(own_states))
