"""Sixteen nodes and twelve services of random sizes, deployed one after another and changed: what every plan keeps."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from sparkops.config.release import Rank, Release
from sparkops.errors import PlanRefused
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.operator.deploy import groups
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.plan import DeployOptions, Plan
from sparkops.operator.deploy.preconditions import Current, Observed
from sparkops.swap.model import Deployment, Limits, Mode, RankSpec, Replica
from sparkops.swap.rolling import next_step
from tests.examples import release
from tests.operator.deploy.pairs import TCP, joined, runs

pytestmark = pytest.mark.local  # a second for each fleet

NODES = tuple(f"n{number}" for number in range(1, 17))
SERVICES = 12
RESERVE_GIB = 15.0
Count = int | Literal["all"]


@dataclass(frozen=True)
class Service:
    """What an owner deploys. `port`: some services share one, which only one of them can have on a node."""

    name: str
    ranks: int
    replicas: Count
    claim_gib: float
    port: int

    def release(self, revision: int, replicas: Count) -> Release:
        serve = {"port": self.port, "replicas": replicas, "tensor_parallel": self.ranks}
        several = {"executor": "mp"} if self.ranks > 1 else {}
        return release(
            service=self.name,
            memory={"claim_gib": self.claim_gib},
            model={"revision": f"r{revision}"},
            serve={**serve, **several},
            swap={"reserve_gib": RESERVE_GIB},
        )


class Looks(dict[str, Observed]):
    """The observed nodes, with the number of times that a plan has read one."""

    count = 0

    def __getitem__(self, name: str) -> Observed:
        self.count += 1
        return super().__getitem__(name)


@dataclass
class Fleet:
    """Nodes with their memory, and what runs there: a second account of what plans compute."""

    capacity_gib: dict[str, float]
    containers: dict[str, list[Container]] = field(default_factory=lambda: {name: [] for name in NODES})
    serving: dict[str, Deployment] = field(default_factory=dict)

    def free_gib(self, node: str) -> float:
        return self.capacity_gib[node] - sum(item.claim_gib for item in self.containers[node] if item.running)

    def observed(self) -> Looks:
        nodes = Looks()
        for number, name in enumerate(NODES, 1):
            here = self.containers[name]
            ports = frozenset(item.port for item in here if item.rank == 0 and item.running)
            nodes[name] = joined(number, self.free_gib(name), *here, listening=ports)
        return nodes

    def fits(self, node: str, of: Release, slot: Slot) -> bool:
        """Whether a first rank 0 of a release fits on a node, beside what starts there again too."""
        others, port = self.containers[node], Rank(of, slot, node).port
        taken = any(item.rank == 0 and item.port == port and item.running for item in others)
        kept_gib = sum(item.claim_gib for item in others if not item.running) + (RESERVE_GIB if others else 0.0)
        return not taken and self.free_gib(node) - kept_gib >= of.recipe.memory.claim_gib

    def deploy_while(self, ended: Service, service: Service, revision: int, replicas: Count) -> None:
        """Deploy while the engines of another service have ended; then their guards start them, where they must fit."""
        places = {rank.place for rank in self.serving[ended.name].ranks} if ended.name in self.serving else set()
        self._become("exited", places)
        self.deploy(service, revision, replicas)
        self._become("running", places)
        for node, here in self.containers.items():
            assert self.free_gib(node) >= (RESERVE_GIB if len(here) > 1 else 0.0), f"{node} is short of memory"

    def _become(self, state: str, places: Collection[tuple[str, str]]) -> None:
        for node, here in self.containers.items():
            here[:] = [replace(item, state=state) if (node, item.name) in places else item for item in here]

    def deploy(self, service: Service, revision: int, replicas: Count) -> None:
        """Plan a release and follow the plan; or check why it is refused."""
        of, source = service.release(revision, replicas), self.serving.get(service.name)
        others = [rank for name, item in self.serving.items() if name != service.name for rank in item.ranks]
        current = Current(source, source.slot if source else None, promoted=tuple(others))
        nodes = self.observed()
        planned: Plan | None = None
        try:
            planned = swap.plan(of, nodes, current, DeployOptions(), TCP)
        except PlanRefused as refused:
            self._refused(service, of, current, str(refused), replicas)
        groups_ = groups.MOST_GROUPS + len(NODES) // service.ranks + 1
        assert nodes.count <= len(Mode) * groups_ * service.ranks * 4, (
            "a plan reads each node of each group a few times"
        )
        if planned:
            self._follow(service, planned, target(planned, service), replicas)

    def _refused(self, service: Service, of: Release, current: Current, why: str, replicas: Count) -> None:
        """It says why, in a bounded number of lines, and a first deploy that fits is not refused."""
        assert 1 < len(why.splitlines()) <= 1 + swap.MOST_REASONS + 1
        if current.source:
            return
        room = [name for name in NODES if self.fits(name, of, Slot.BLUE)]
        assert len(room) // service.ranks < (1 if replicas == "all" else replicas), why
        named = {*re.findall(r"\bn\d+\b", why)}
        assert named >= {*NODES} - {*room} or re.search("and [0-9]+ more$", why), why

    def _follow(self, service: Service, planned: Plan, to: Deployment, replicas: Count) -> None:
        source = self.serving.get(service.name)
        wanted = len(to.replicas) if replicas == "all" else replicas
        assert len(to.replicas) == wanted
        places = [node for replica in to.replicas for node in (rank.node for rank in replica.ranks)]
        assert len(places) == len({*places}), "each replica has nodes of its own"
        assert {*planned.stays} <= {*(source.replicas if source else ())}
        assert not {rank.node for rank in planned.ranks} & {node for item in planned.stays for node in item.nodes}
        if source is None:
            self._start(to.ranks, planned)
        elif planned.mode is Mode.ROLLING:
            self._roll(source, to, planned)
        else:
            assert planned.mode is not Mode.IN_PLACE, "downtime was not allowed"
            self._start(to.ranks, planned)
            self._stop(source.ranks)
        self.serving[service.name] = to

    def _roll(self, source: Deployment, goal: Deployment, planned: Plan) -> None:
        """Take each step."""
        active = source
        while active != goal:
            step = next_step(active, goal)
            leaving, coming = active.less(step.replicas), step.less(active.replicas)
            kept = len(active.replicas) - len(leaving.replicas)
            assert kept >= goal.limits.least(min(len(active.replicas), len(goal.replicas)))
            assert kept, "a replica serves at each step"
            self._stop(leaving.ranks)
            self._start(coming.ranks, planned)
            active = step

    def _start(self, ranks: Iterable[RankSpec], planned: Plan) -> None:
        by_place = {(rank.node, rank.container): rank for rank in planned.ranks}
        for spec in ranks:
            rank, here = by_place[spec.place], self.containers[spec.node]
            kept_gib = RESERVE_GIB if here else 0.0
            assert self.free_gib(spec.node) - kept_gib >= spec.claim_gib, f"{spec.node} is short of memory"
            assert rank.index or rank.port not in {item.port for item in here if item.rank == 0}, (
                "a port is taken twice"
            )
            here.append(runs(rank, claim_gib=spec.claim_gib))

    def _stop(self, ranks: Iterable[RankSpec]) -> None:
        for spec in ranks:
            here = self.containers[spec.node]
            here.remove(next(item for item in here if item.name == spec.container))


def target(planned: Plan, service: Service) -> Deployment:
    """The deployment of a plan, with ranks that have no spec."""
    starts = [
        Replica(tuple(RankSpec(rank.node, rank.container, service.claim_gib) for rank in ranks))
        for ranks in planned.replicas
    ]
    return Deployment(planned.release.id, planned.slot, (*planned.stays, *starts), Limits())


ALL: tuple[Count, ...] = ("all",)
COUNTS: st.SearchStrategy[Count] = st.one_of(st.integers(1, 3), st.integers(1, 16), st.sampled_from(ALL))
SIZES = st.sampled_from((1, 1, 2, 4))
CLAIMS = st.sampled_from((5.0, 10.0, 20.0, 40.0))


@st.composite
def services(draw: st.DrawFn) -> list[Service]:
    return [
        Service(
            f"s{number}",
            size := draw(SIZES),
            draw(COUNTS),
            draw(CLAIMS),
            _port(number, size, shares=draw(st.booleans())),
        )
        for number in range(SERVICES)
    ]


def _port(number: int, size: int, *, shares: bool) -> int:
    """A port of its own, or one that several services of single ranks have."""
    return 9000 if shares and size == 1 else 9100 + 10 * number


CHANGES = st.tuples(st.integers(0, SERVICES - 1), st.integers(0, SERVICES - 1), st.booleans(), COUNTS)
"""The service that is deployed again, one that has ended meanwhile, whether the release is new, and its replicas."""


@settings(phases=(Phase.explicit, Phase.generate))  # a fleet of twelve services takes minutes to shrink
@given(
    capacities=st.lists(st.sampled_from((30.0, 60.0, 110.0)), min_size=len(NODES), max_size=len(NODES)),
    deployed=services(),
    changes=st.lists(CHANGES, max_size=8),
)
def test_plans_of_a_whole_fleet_keep_its_memory_its_ports_and_what_serves(
    capacities: list[float], deployed: list[Service], changes: list[tuple[int, int, bool, Count]]
) -> None:
    fleet = Fleet(dict(zip(NODES, capacities, strict=True)))
    for service in deployed:
        fleet.deploy(service, 0, service.replicas)
    for revision, (number, ended, new, count) in enumerate(changes, 1):
        service, other = deployed[number], deployed[ended]
        if other.port == service.port:
            fleet.deploy(service, revision if new else 0, count)
        else:
            fleet.deploy_while(other, service, revision if new else 0, count)
