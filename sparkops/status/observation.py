"""What status has seen of the nodes, before it is joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkops.docker.facts import Container
from sparkops.engine.load import UNKNOWN, Load, Rates
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, SlotFacts
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.host import GpuState, HostFacts
from sparkops.status.picture import Health
from sparkops.swap.journal import Journal


@dataclass(frozen=True)
class RankReport:
    """One container as observed. `age_s` and `up_s` are seconds since it was created and started, by its node's clock;
    None if unknown, and `up_s` unless it runs. `sampled_s`: how many seconds ago health and figures were read."""

    container: Container
    health: Health = Health.NONE
    stage: str = ""
    load: Load | None = None
    rates: Rates = UNKNOWN
    age_s: float | None = None
    up_s: float | None = None
    sampled_s: float = 0.0


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


@dataclass(frozen=True)
class Seen:
    """All that is known of one service."""

    name: str
    ranks: tuple[RankReport, ...]
    front: ServiceFacts | None
    states: tuple[ServiceState, ...] = ()
    """What the leaders say: one behind the gateway, without one that of each replica; none where none leads it."""
    events: tuple[str, ...] = ()
    """Its last events, oldest first."""

    @property
    def journals(self) -> tuple[Journal, ...]:
        """What is intended."""
        return tuple(state.journal for state in self.states)

    @property
    def live(self) -> RankReport | None:
        """What has the traffic, if it runs. Without a gateway: what answers."""
        if self.front is None:
            return next((rank for rank in self.ranks if rank.health is Health.OK), None)
        active = self.front.active
        return next(
            (
                rank
                for rank in self.ranks
                if active and _is(rank.container, active) and _up(rank) and not rank.container.rank
            ),
            None,
        )

    @property
    def live_ranks(self) -> Sequence[RankReport]:
        """All ranks of what has the traffic."""
        return next((ranks for ranks in replicas(self.ranks) if self.live in ranks), ())


def replicas(ranks: Sequence[RankReport]) -> list[tuple[RankReport, ...]]:
    """The ranks of each replica together, rank 0 first. Without labels of several, each container is a replica."""
    found: dict[tuple[str, ...], list[RankReport]] = {}
    for rank in ranks:
        each = rank.container
        alone = (each.node, each.name) if each.ranks == 1 else ()
        found.setdefault((each.release, each.slot, *alone), []).append(rank)
    return [tuple(sorted(group, key=lambda rank: rank.container.rank)) for group in found.values()]


def missing(ranks: Sequence[RankReport]) -> tuple[int, ...]:
    """Numbers of the ranks that do not run, of a replica of which some do."""
    running = {rank.container.rank for rank in ranks if rank.container.running}
    return tuple(number for number in range(ranks[0].container.ranks) if number not in running) if running else ()


def _is(container: Container, slot: SlotFacts) -> bool:
    return (container.release, container.slot) == (slot.release, slot.slot.value)


def _up(rank: RankReport) -> bool:
    return rank.container.running


def services(reached: Sequence[NodeReport]) -> Iterator[Seen]:
    """Everything that is known of each service, by name."""
    ranks = [rank for report in reached for rank in report.ranks]
    fronts = {name: facts for report in reached if report.gateway for name, facts in report.gateway.services.items()}
    states = [state for report in reached for state in report.states]
    led = {state.journal.service for state in states}
    for name in sorted({rank.container.service for rank in ranks} | fronts.keys() | led):
        own = tuple(rank for rank in ranks if rank.container.service == name)
        of_it = tuple(state for state in states if state.journal.service == name)
        front = None if any(state.direct for state in of_it) else fronts.get(name)
        events = tuple(event for report in reached for event in report.events.get(name, ()))
        yield Seen(name, own, front, of_it, events)
