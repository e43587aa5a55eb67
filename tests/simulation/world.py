"""A small world that the swap machine runs in: three nodes, their guards and engines, one gateway, the links between.

Everything is a value. `transitions.py` says what happens by itself, `faults.py` what goes wrong, `laws.py` what must
hold. Time has no length here: what takes long is a transition that comes after everything quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import wraps
from typing import Any, TypeVar

from sparkops.release import Slot
from sparkops.swap.follower import Local, Record
from sparkops.swap.follower import report as report_of
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer
from sparkops.swap.orders import Order
from sparkops.swap.seen import EngineState, GatewayView, Report, Seen

NODES = ("n1", "n2", "n3")
CAPACITY = 2.0  # tokens of memory of a node
LONG = 1e9
BOOT, EARLIER = "this boot", "an earlier boot"


class Health(StrEnum):
    """The truth about an engine."""

    STOPPED = "stopped"
    LOADING = "loading"
    GOOD = "good"
    HUNG = "hung"
    """It runs and answers nothing, /health apart."""
    BUSY = "busy"
    """It computes, and answers later than a question waits."""
    WRONG = "wrong"
    """It answers nonsense."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A container. `turns` is what it becomes once it is loaded; `key` the start that it runs under."""

    container: str
    release: str
    claim: float
    health: Health = Health.STOPPED
    turns: Health = Health.GOOD
    key: str = ""
    by_hand: bool = False

    @property
    def running(self) -> bool:
        return self.health is not Health.STOPPED


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: what survives its reboot, and what its guard's process remembers."""

    name: str
    lost: bool = False
    full: bool = False
    """Whether its disk is full: journals are overwritten in place, a container cannot be created."""
    engines: tuple[Engine, ...] = ()
    record: Record = field(default_factory=Record)
    order: Order | None = None
    late: Order | None = None
    """An earlier order, which a link may deliver again."""
    halted: frozenset[str] = frozenset()
    """Containers that orders have stopped in this boot."""
    pending: str = ""
    proofs: tuple[tuple[str, str, Answer], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()

    def engine(self, container: str) -> Engine | None:
        return next((engine for engine in self.engines if engine.container == container), None)

    def there(self, container: str) -> Engine:
        """A container that exists."""
        return next(engine for engine in self.engines if engine.container == container)

    def holding(self, engine: Engine) -> Machine:
        others = tuple(other for other in self.engines if other.container != engine.container)
        return replace(self, engines=tuple(sorted((*others, engine), key=lambda each: each.container)))

    @property
    def free(self) -> float:
        return CAPACITY - sum(engine.claim for engine in self.engines if engine.running)

    def local(self) -> Local:
        """What the guard sees."""
        return Local(
            boot=BOOT,
            record=self.record,
            engines={engine.container: _shown(engine) for engine in self.engines},
            by_hand=frozenset(engine.container for engine in self.engines if engine.by_hand),
            free_gib=self.free,
            pending=self.pending,
            proofs={container: (key, answer) for container, key, answer in self.proofs},
            problems=dict(self.problems),
        )


def _shown(engine: Engine) -> EngineState:
    if engine.health is Health.STOPPED:
        return EngineState.STOPPED
    return EngineState.LOADING if engine.health is Health.LOADING else EngineState.HEALTHY


Given = TypeVar("Given")
Result = TypeVar("Result")


_REMEMBERED: list[dict[int, Any]] = []


def forget() -> None:
    """Drop every remembered value: millions of them slow down what else runs in this process."""
    for known in (*_REMEMBERED, _CANONICAL):
        known.clear()
    _KNOWN.clear()


def by_identity(function: Callable[[Given], Result]) -> Callable[[Given], Result]:
    """Remember results by the identity of a value: equal machines and journals are one object, see `canonical`."""
    known: dict[int, tuple[Given, Result]] = {}
    _REMEMBERED.append(known)

    @wraps(function)
    def remembered(value: Given) -> Result:
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = (value, function(value))
        return found[1]

    return remembered


@by_identity
def reported(machine: Machine) -> Report:
    return report_of(machine.name, machine.order, machine.local())


@dataclass(frozen=True, slots=True)
class Leader:
    """The leading guard: the journal is on disk, the rest in its process."""

    journal: Journal
    reports: tuple[Report, ...] = ()
    met: frozenset[str] = frozenset()
    sampled: bool = False
    """Whether the clocks of this phase have run out."""
    waited: bool = False


@dataclass(frozen=True, slots=True)
class Gateway:
    """Map and servers survive everything but the loss of the node."""

    node: str
    traffic: str = ""
    slots: tuple[tuple[Slot, str], ...] = ()
    open: tuple[str, ...] = ()
    """Releases that finish requests from before a switch."""
    agents: str = ""
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class World:
    """One state. `touched`: a fault has hit what requests go through."""

    machines: tuple[Machine, ...]
    leaders: tuple[Leader, ...]
    gateway: Gateway
    cut: frozenset[str] = frozenset()
    """Nodes that the gateway's node cannot reach."""
    touched: bool = False
    asked: tuple[tuple[str, int], ...] = ()
    """Intents that wait for another guard's copy, with the revision that accepted them."""
    acknowledged: tuple[str, ...] = ()
    """Intents whose operators were told that they count."""
    starts: frozenset[tuple[str, str]] = frozenset()
    """Ordered starts that have happened."""
    wrongs: tuple[str, ...] = field(default=())
    """Laws that the last transition has broken."""

    def machine(self, name: str) -> Machine:
        for machine in self.machines:  # the loop that every other one runs
            if machine.name == name:
                return machine
        raise KeyError(name)

    def with_machine(self, machine: Machine) -> World:
        machines = tuple([machine if other.name == machine.name else other for other in self.machines])
        return replace(self, machines=machines)

    @property
    def leader(self) -> Leader:
        """The leader of the highest term."""
        return max(self.leaders, key=lambda leader: leader.journal.term)

    def with_leader(self, leader: Leader) -> World:
        name = leader.journal.leader
        leaders = tuple(leader if other.journal.leader == name else other for other in self.leaders)
        return replace(self, leaders=leaders)

    def reaches(self, leader: str, node: str) -> bool:
        """Whether a leader and a guard can talk."""
        if self.machine(node).lost or self.machine(leader).lost:
            return False
        return leader == node or (node not in self.cut and leader not in self.cut)

    def engines(self) -> Iterator[tuple[Machine, Engine]]:
        return ((machine, engine) for machine in self.machines for engine in machine.engines)

    def serves(self, release: str) -> Answer:
        """Whether a release answers through the gateway: every rank runs, and rank 0 answers well."""
        ranks = [(machine, engine) for machine, engine in self.engines() if engine.release == release]
        reached = all(self.reaches(self.gateway.node, machine.name) for machine, _ in ranks)
        good = bool(ranks) and all(engine.health is Health.GOOD for _, engine in ranks)
        return Answer.YES if reached and good else Answer.NO

    def answers(self, release: str) -> Answer:
        """What a short question through the gateway finds out: an engine that answers nonsense answers."""
        ranks = [engine for _, engine in self.engines() if engine.release == release]
        running = all(engine.running for engine in ranks)
        if running and any(engine.health is Health.BUSY for engine in ranks):
            return Answer.UNKNOWN
        wrong = running and any(engine.health is Health.WRONG for engine in ranks)
        return Answer.YES if wrong else self.serves(release)

    def view(self, leader: Leader) -> GatewayView | None:
        """What the leader sees of the gateway beside it."""
        gateway = self.gateway
        if gateway.stalled or gateway.node != leader.journal.leader:
            return None
        releases = {engine.release for _, engine in self.engines()}
        releases |= {deployment.release for deployment in leader.journal.deployments}
        return GatewayView(
            traffic=gateway.traffic,
            slots=dict(gateway.slots),
            answers={release: self.answers(release) for release in releases},
            open={release: int(release in gateway.open) for release in releases | {gateway.traffic}},
            agents=gateway.agents,
        )

    def seen(self, leader: Leader) -> Seen:
        return Seen(
            reports={report.node: report for report in leader.reports},
            gateway=self.view(leader),
            met=leader.met,
            sampled_s=LONG if leader.sampled else 0.0,
            waited_s=LONG if leader.waited else 0.0,
        )


_CANONICAL: dict[Any, Any] = {}
_KNOWN: set[int] = set()


def canonical(world: World) -> World:
    """The same state of values that are one object where they are equal, so that states compare by identity."""
    if all(id(value) in _KNOWN for value in (*world.machines, *world.leaders)):
        return world
    machines = tuple([_one(machine, _machine_key) for machine in world.machines])
    leaders = tuple([_one(leader, _leader_key) for leader in world.leaders])
    return replace(world, machines=machines, leaders=leaders)


def identity(world: World) -> int:
    """A hash that equal states share. `world` is canonical."""
    values = (
        world.gateway,
        world.cut,
        world.touched,
        world.asked,
        world.acknowledged,
        world.starts,
        world.wrongs,
    )
    return hash((*map(id, world.machines), *map(id, world.leaders), values))


def _one(value: Given, key: Callable[[Given], Any]) -> Given:
    if id(value) in _KNOWN:
        return value
    one: Given = _CANONICAL.setdefault(key(value), value)
    _KNOWN.add(id(one))
    return one


def _journal(journal: Journal | None) -> int:
    return id(_one(journal, lambda value: value)) if journal is not None else 0


def _order(order: Order | None) -> tuple[int, str]:
    return (_journal(order.journal), order.boot) if order else (0, "")


def _machine_key(machine: Machine) -> Any:
    record = machine.record
    return (
        "machine", machine.name, machine.lost, machine.full, machine.engines, machine.halted,
        machine.pending, machine.proofs, machine.problems, _order(machine.order), _order(machine.late), record.term,
        _journal(record.copy), record.armed, record.alone, record.started, record.down, record.boot, record.restarts,
    )  # fmt: skip


def _leader_key(leader: Leader) -> Any:
    return ("leader", _journal(leader.journal), leader.reports, leader.met, leader.sampled, leader.waited)
