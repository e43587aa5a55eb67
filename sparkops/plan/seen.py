"""What status has seen of the nodes, before it is joined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkops.facts.docker import Container
from sparkops.facts.gateway import GatewayFacts, ServiceFacts, SlotFacts
from sparkops.facts.host import HostFacts
from sparkops.facts.metrics import Load
from sparkops.plan.journal import Journal
from sparkops.plan.picture import Health


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
    """One reachable node as observed. `gateway` is None on every node but the gateway's."""

    name: str
    host: HostFacts
    ranks: tuple[RankReport, ...] = ()
    gateway: GatewayFacts | None = None
    journals: tuple[Journal, ...] = ()


@dataclass(frozen=True)
class Seen:
    """All that is known of one service."""

    name: str
    ranks: tuple[RankReport, ...]
    front: ServiceFacts | None
    gateway: str = ""
    """Node of the gateway."""
    journals: Mapping[str, Journal] = field(default_factory=dict)
    """What each node's guard has written down."""

    @property
    def journal(self) -> Journal | None:
        """That of the gateway's node, which counts."""
        return self.journals.get(self.gateway)

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


def services(reached: Sequence[NodeReport], gateway: str = "") -> Iterator[Seen]:
    """Everything that is known of each service, by name. `gateway` is the gateway's node."""
    ranks = [rank for report in reached for rank in report.ranks]
    fronts = {name: facts for report in reached if report.gateway for name, facts in report.gateway.services.items()}
    journals: dict[str, dict[str, Journal]] = {}
    for report in reached:
        for each in report.journals:
            journals.setdefault(each.service, {})[report.name] = each
    for name in sorted({rank.container.service for rank in ranks} | fronts.keys()):
        own = tuple(rank for rank in ranks if rank.container.service == name)
        yield Seen(name, own, fronts.get(name), gateway, journals.get(name, {}))
