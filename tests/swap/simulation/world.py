"""A small world that the swap machine runs in: three nodes, their guards and engines, one gateway, the links between.

Everything is a value. `transitions.py` says what happens by itself, `faults.py` what goes wrong, `laws.py` what must
hold. Time has no length here: what takes long is a transition that comes after everything quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from sparkops.names import Slot
from sparkops.swap.effects import FrontEffect
from sparkops.swap.fleet_state import EngineState, FleetState, GatewayView, Report
from sparkops.swap.follower import Local, Record, expendable, shown, worker_loaded
from sparkops.swap.follower import report as report_of
from sparkops.swap.journal import HOUR_S, Journal
from sparkops.swap.model import Answer, Deployment
from sparkops.swap.orders import Order
from tests.swap.simulation.sharing import by_identity, replace, shared
from tests.swap.simulation.views import Answers, Exposed, Health, Places, Site, answering

NODES = ("n1", "n2", "n3")
ENDED = (Health.STOPPED, Health.TAKEN)
CAPACITY = 2.0  # tokens of memory of a node
LONG = 1e9
BOOT, EARLIER = "this boot", "an earlier boot"
DEAD, GARBLED = "dead", "garbled"
WORK, CORDON = "work", "cordon"
"""What a report calls a lease."""
ROOM = "room"
"""What an old worker's requests wait for: the waiting room, which sends them to the current worker."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A container. `turns` is what it becomes once it is loaded; `key` the start that it runs under."""

    container: str
    release: str
    slot: str
    claim: float
    health: Health = Health.STOPPED
    turns: Health = Health.GOOD
    key: str = ""
    by_hand: bool = False
    ending: bool = False
    """Whether `docker stop` has sent its signal: it still answers, and ends."""
    broken: bool = False
    """Whether a fault has made it useless for good: a restart does not help, or none is due."""

    @property
    def running(self) -> bool:
        return self.health not in ENDED


@dataclass(frozen=True, slots=True)
class Machine:
    """A node: what survives its reboot, and what its guard's process remembers."""

    name: str
    lost: bool = False
    full: bool = False
    """Whether its disk is full: journals are overwritten in place, a container cannot be created."""
    refusing: bool = False
    """Whether Docker refuses every start: a device is missing."""
    mute: bool = False
    """Whether Docker replies to nothing: its guard keeps journals, and neither reports nor changes a container."""
    leased: bool = False
    """Whether a build or the like has a lease, during which no engine starts."""
    cordoned: bool = False
    """Whether an operator keeps new releases from it. What serves is restarted; the guard's disk keeps the cordon."""
    engines: tuple[Engine, ...] = ()
    other: Engine | None = None
    """The promoted engine of another service. Its guard starts it whenever it is down."""
    record: Record = field(default_factory=Record)
    order: Order | None = None
    late: Order | None = None
    """An earlier order, which a link may deliver again."""
    joined: int = 0
    """The term of the rebuild whose leader an operator made this guard follow; it follows no former one."""
    halted: frozenset[str] = frozenset()
    """Containers that orders have stopped in this boot."""
    pending: str = ""
    restarting: bool = False
    """Whether the pending start is one from the boot record."""
    stopping: str = ""
    """The container that `docker stop` is running for. Meanwhile the guard does nothing else to containers."""
    refused: frozenset[str] = frozenset()
    """Containers whose last start Docker refused."""
    unasked: frozenset[str] = frozenset()
    """Running containers whose /health this guard's process has not asked yet: they ran when it began."""
    found: tuple[tuple[str, str], ...] = ()
    """Containers that the watch has found `dead` or `garbled`, in this run of them."""
    proofs: tuple[tuple[str, str, Answer], ...] = ()
    problems: tuple[tuple[str, str], ...] = ()

    def engine(self, container: str) -> Engine | None:
        return next((engine for engine in self.engines if engine.container == container), None)

    def existing(self, container: str) -> Engine:
        """A container that exists."""
        return next(engine for engine in self.engines if engine.container == container)

    def holding(self, engine: Engine) -> Machine:
        others = tuple(other for other in self.engines if other.container != engine.container)
        return replace(self, engines=tuple(sorted((*others, engine), key=lambda item: item.container)))

    @property
    def free(self) -> float:
        """Memory that no engine takes, in tokens."""
        others = self.other.claim if self.other and self.other.running else 0.0
        return CAPACITY - others - sum(engine.claim for engine in self.engines if engine.running)

    @property
    def other_loads(self) -> bool:
        return self.other is not None and self.other.health is Health.LOADING

    @property
    def journal(self) -> Journal | None:
        """The newest journal that the guard knows."""
        return self.order.journal if self.order else self.record.copy

    def loaded(self, engine: Engine) -> Answer:
        """Whether a running engine has loaded, as far as the guard knows."""
        if not engine.container.endswith("-r0"):
            return worker_loaded(self.name, engine.container, self.journal)
        if engine.container in self.unasked:
            return Answer.UNKNOWN
        return Answer.NO if engine.health is Health.LOADING else Answer.YES

    def expendable(self) -> Iterator[str]:
        """The engines that the guard kills before memory runs out."""
        loaded = {engine.container: self.loaded(engine) for engine in self.engines if engine.running}
        return expendable(self.name, loaded, self.journal)

    def local(self) -> Local:
        """What the guard sees."""
        return Local(
            boot=BOOT,
            record=self.record,
            engines={
                engine.container: shown(self.loaded(engine)) if engine.running else EngineState.STOPPED
                for engine in self.engines
            },
            starts={engine.container: engine.key for engine in self.engines},
            by_hand=frozenset(engine.container for engine in self.engines if engine.by_hand),
            free_gib=-1.0 if self.leased or self.other_loads else self.free,
            pending=self.pending,
            proofs={container: (key, answer) for container, key, answer in self.proofs},
            problems=dict(self.problems),
            refused=dict.fromkeys(self.refused, "refused"),
            reserved_gib=self.other.claim if self.other and not self.other.running else 0.0,
            paused=self.refused if self.refusing or self.mute or self.full else frozenset(),
            dead={container: what for container, what in self.found if what == DEAD},
            garbled={container: what for container, what in self.found if what == GARBLED},
        )


@by_identity
def local(machine: Machine) -> Local:
    return machine.local()


@by_identity
def reported(machine: Machine) -> Report:
    work = WORK if machine.leased else CORDON if machine.cordoned else ""
    load = "other" if machine.other and machine.other.health in (Health.STOPPED, Health.LOADING) else ""
    return shared(report_of(machine.name, machine.order, local(machine), work, load))


@by_identity
def exposed(machine: Machine) -> Exposed:
    """What requests find on a node."""
    engines = () if machine.lost else tuple((engine.container, engine.health) for engine in machine.engines)
    return shared((machine.name, engines))


def site_of(deployment: Deployment) -> Site:
    return deployment.mark, tuple(tuple(rank.place for rank in replica.ranks) for replica in deployment.replicas)


@dataclass(frozen=True, slots=True)
class Leader:
    """The leading guard: the journal is on disk, the rest in its process."""

    journal: Journal
    reports: tuple[Report, ...] = ()
    met: frozenset[str] = frozenset()
    away: bool = False
    """Whether it cannot read its journal: damaged, or written by a newer version. Its guard still follows orders."""
    sampled: bool = False
    """Whether the clocks of this phase have run out."""
    waited: bool = False
    rested: bool = False
    """Whether an hour has passed since the last restart, which no exploration waits for. A shorter pause always has."""
    tried: FrontEffect | None = None
    """The effect on the gateway that has failed."""
    failing: bool = False
    """Whether it has failed for long."""


@dataclass(frozen=True, slots=True)
class Gateway:
    """HAProxy's current worker. Map and servers survive everything but the loss of the node."""

    node: str
    active: Slot | None = None
    held: str = ""
    """The start that requests wait for; empty: without an active slot they get 503."""
    slots: tuple[tuple[Slot, Site], ...] = ()
    open: tuple[Slot, ...] = ()
    """Slots that finish requests from before a switch."""
    left: tuple[tuple[Slot, Places], ...] = ()
    """Replicas that finish requests from before their slot has lost them."""
    stalled: bool = False
    refusing: bool = False
    """Whether every change of it fails, such as on a full disk."""
    old: Gateway | None = None
    """The worker from before a reload, while it has connections: it has a row of the map, servers and requests of its
    own. One stands for several, since a change treats them alike (`each_worker` in program/haproxy.py)."""

    @property
    def workers(self) -> tuple[Gateway, ...]:
        return (self, self.old) if self.old else (self,)

    def each(self, change: Callable[[Gateway], Gateway]) -> Gateway:
        """This gateway with a change of each worker."""
        return replace(change(self), old=change(self.old)) if self.old else change(self)

    @property
    def counted(self) -> frozenset[Slot]:
        """Slots with requests in progress, by the sum over all workers (`SlotFacts.sessions` in gateway/facts.py)."""
        return frozenset(slot for worker in self.workers for slot in worker.open)

    @property
    def counted_left(self) -> frozenset[Slot]:
        """Slots with requests in progress in replicas that they have lost."""
        return frozenset(slot for worker in self.workers for slot, _ in worker.left)

    @property
    def traffic(self) -> str:
        """The release that gets the requests; empty without one."""
        return self.site(self.active)[0]

    def site(self, slot: Slot | None) -> Site:
        """What a slot points at: no release and no rank before the first one."""
        return next((site for name, site in self.slots if name is slot), ("", ()))

    def leads_to(self, node: str, container: str) -> list[Slot]:
        """The slots whose requests go to a container."""
        return [slot for slot, (_, sites) in self.slots if any((node, container) in places for places in sites)]


@dataclass(frozen=True, slots=True)
class World:
    """One state. `touched`: a fault has hit what requests go through."""

    machines: tuple[Machine, ...]
    leaders: tuple[Leader, ...]
    gateway: Gateway
    cut: frozenset[str] = frozenset()
    """Nodes that the gateway's node cannot reach."""
    touched: bool = False
    unacknowledged: tuple[tuple[str, int], ...] = ()
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

    @property
    def leading(self) -> Iterator[Leader]:
        """The leaders that can read their journals."""
        return (leader for leader in self.leaders if not leader.away)

    def with_leader(self, leader: Leader) -> World:
        name = leader.journal.leader
        leaders = tuple(leader if other.journal.leader == name else other for other in self.leaders)
        return replace(self, leaders=leaders)

    def siblings(self, engine: Engine) -> list[Engine]:
        """The other ranks of its replica. Of a release that moves, the other slot has another replica."""
        alike = (other for _, other in self.engines() if (other.release, other.slot) == (engine.release, engine.slot))
        return [other for other in alike if other.container != engine.container]

    def reaches(self, leader: str, node: str) -> bool:
        """Whether a leader and a guard can talk."""
        if self.machine(node).lost or self.machine(leader).lost:
            return False
        return leader == node or (node not in self.cut and leader not in self.cut)

    def engines(self) -> Iterator[tuple[Machine, Engine]]:
        return ((machine, engine) for machine in self.machines for engine in machine.engines)

    def serves(self, slot: Slot | None) -> Answer:
        """Whether the release of a slot answers through the gateway: every rank runs, and rank 0 answers well."""
        return self._answers()[0].get(slot, Answer.NO) if slot else Answer.NO

    def answers(self, slot: Slot) -> Answer:
        """What a short question through the gateway finds out: an engine that answers nonsense answers."""
        return self._answers()[1].get(slot, Answer.NO)

    def runs(self, deployment: Deployment) -> Answer:
        """Whether a release answers through the gateway; a slot that points elsewhere does not lead to it."""
        leads_there = self.gateway.site(deployment.slot) == site_of(deployment)
        return self.serves(deployment.slot) if leads_there else Answer.NO

    def _answers(self) -> tuple[Answers, Answers]:
        node = self.gateway.node
        reached = (self.reaches(node, machine.name) for machine in self.machines)
        return answering(shared(self.gateway.slots), *map(exposed, self.machines), *reached)

    def view(self, leader: Leader) -> GatewayView | None:
        """What the leader sees of the gateway beside it."""
        gateway = self.gateway
        if gateway.stalled or gateway.node != leader.journal.leader:
            return None
        return _view(shared(gateway), self._answers()[1], leader.journal)

    def fleet(self, leader: Leader) -> FleetState:
        return fleet(leader, self.view(leader))


@by_identity
def _view(gateway: Gateway, answers: Answers, journal: Journal) -> GatewayView:
    """Only a release in a slot can be asked, and its requests counted."""
    known = {(item.slot, site_of(item)) for item in journal.pointed}
    slots = {slot: site[0] for slot, site in gateway.slots if (slot, site) in known}
    return GatewayView(
        active=gateway.active,
        held=gateway.held,
        slots=slots,
        answers={slot: answers.get(slot, Answer.NO) for slot in slots},
        open={slot: int(slot in gateway.counted) for slot in slots},
        left={slot: int(slot in gateway.counted_left) for slot in slots},
    )


@by_identity
def fleet(leader: Leader, view: GatewayView | None) -> FleetState:
    return FleetState(
        reports={report.node: report for report in leader.reports},
        gateway=view,
        contacts=leader.met,
        sampled_s=LONG if leader.sampled else 0.0,
        waited_s=LONG if leader.waited else 0.0,
        rested_s=HOUR_S if leader.rested else HOUR_S - 1,
        tried=leader.tried,
        tried_s=LONG if leader.failing else 0.0,
    )


Transition = tuple[str, World]
"""What happens, and the world after it."""
