"""What the guard's process knows of one service: its order, its containers on this node, and what it remembers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkops.docker.facts import Container
from sparkops.guard.engines import ENDED
from sparkops.guard.tasks import Job, MeasuredRoom, WatchedStart
from sparkops.guard_client import engine_spec
from sparkops.swap.follower import Local, Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Phase, RankSpec
from sparkops.swap.orders import Order, Want, unpromoted
from sparkops.swap.seen import EngineState

SETTLE_S = 3.0
"""Docker lists a kill after it has sent the signal: a container that has just ended may lack it for a moment."""


@dataclass
class Tended:
    """One service on one node. Everything here is lost with the process, `record` and `by_hand` excepted."""

    service: str
    node: str
    record: Record
    by_hand: frozenset[str]
    restarted_s: float
    """BOOTTIME of the last start from the boot record in seconds; 0.0 for one of an earlier boot."""
    order: Order | None = None
    containers: Mapping[str, Container] = field(default_factory=dict)
    """Every container of ours on the node, as last seen."""
    seen_s: float = -math.inf
    changed_s: float = -math.inf
    """When a job has ended last: what was seen before is out of date. Monotonic seconds, like `seen_s`."""
    retry_s: float = -math.inf
    pending: str = ""
    started: bool = False
    """Whether the pending start has been executed."""
    answered: dict[str, float] = field(default_factory=dict)
    """By container: the time of the start for which /health has answered."""
    unanswered: dict[str, float] = field(default_factory=dict)
    """By container: the time of the start for which /health has not answered yet."""
    watched: dict[str, WatchedStart] = field(default_factory=dict)
    job: Job | None = None
    proofs: dict[str, tuple[str, Answer]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    rooms: dict[str, MeasuredRoom] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """By container: the start for which page cache was dropped."""
    progress: dict[str, str] = field(default_factory=dict)
    asked: dict[str, float] = field(default_factory=dict)
    """By container that ended: the start for which Docker was asked who ended it."""
    lacking: dict[str, float] = field(default_factory=dict)
    """By container that waits for memory: since when, in monotonic seconds."""
    exits: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By container that ended: the time of its start, and when its end was seen first (monotonic seconds)."""
    killed: dict[str, str] = field(default_factory=dict)
    """By container: why this guard has killed it."""

    def adopt(self, order: Order) -> None:
        """Follow an order. Results that it does not ask for and problems of another swap are forgotten."""
        proving = {rank.rank.container for rank in order.ranks if rank.prove}
        self.proofs = {name: proof for name, proof in self.proofs.items() if name in proving}
        if self._key(order) != self._key(self.order):
            self.problems.clear()
            self.lacking.clear()
        self.order = order

    @staticmethod
    def _key(order: Order | None) -> str:
        swap = order.journal.swap if order else None
        return swap.key if swap else ""

    def begin(self, container: str) -> None:
        """Note that a start was marked on disk."""
        self.pending, self.started = container, False
        self.problems.pop(container, None)
        self.proofs.pop(container, None)
        self.killed.pop(container, None)
        self.rooms.pop(container, None)
        self.lacking.pop(container, None)
        self.progress.pop(container, None)

    def cancel(self) -> None:
        """Cancel what runs in threads."""
        for start in self.watched.values():
            start.cancel.set()
        if self.job:
            self.job.cancel.set()

    def see(self, containers: Mapping[str, Container], began_s: float) -> None:
        """Take in what Docker showed, if that is newer than the last change."""
        if began_s <= self.changed_s:
            return
        self.containers, self.seen_s = containers, began_s
        if self.started:
            self.pending, self.started = "", False

    @property
    def fresh(self) -> bool:
        """Whether the last change has been seen."""
        return self.seen_s > self.changed_s

    @property
    def running(self) -> frozenset[str]:
        """The known containers that run."""
        return frozenset(name for name in self.ranks if name in self.containers and self.containers[name].running)

    @property
    def ranks(self) -> dict[str, RankSpec]:
        """The known containers of this node. An order is newer than the copy of the journal."""
        return {rank.container: rank for rank in self._ranks() if rank.node == self.node}

    def _ranks(self) -> Iterator[RankSpec]:
        record, order = self.record, self.order
        for journal in (record.copy, order.journal if order else None):
            if journal:
                yield from journal.stopped
                yield from (rank for deployment in journal.deployments for rank in deployment.ranks)
        if record.armed:
            yield record.armed
        yield from (rank.rank for rank in order.ranks) if order else ()

    def down(self, container: str, boot: str) -> bool:
        """Whether the leader has ordered its stop in this boot."""
        return self.record.boot == boot and container in self.record.down

    def local(self, boot: str, free_gib: float = 0.0) -> Local:
        """What the machine decides from."""
        others = self._mismatched()
        running = {name for name in others if self.containers[name].running}
        engines = {name: self._state(self.containers[name]) for name in self.ranks if name in self.containers}
        return Local(
            boot=boot,
            record=self.record,
            engines={name: state for name, state in engines.items() if name not in others or name in running},
            starts={name: str(self.containers[name].started_at) for name in engines},
            by_hand=self.by_hand | self._unasked(boot),
            free_gib=free_gib,
            pending=self.pending,
            proofs=dict(self.proofs),
            problems={**self.problems, **{name: f"{name} runs with another spec" for name in running}},
        )

    def _mismatched(self) -> set[str]:
        """Containers of a name that is to be created, started or restarted, created from another spec."""
        compared = {self.record.armed.container: self.record.armed} if self.record.armed else {}
        for rank in self.order.ranks if self.order else ():
            compared.pop(rank.rank.container, None)
            if rank.want in (Want.CREATED, Want.RUNNING):
                compared[rank.rank.container] = rank.rank
        known = {name: self.containers[name] for name in compared if name in self.containers}
        return {name for name, container in known.items() if container.spec != engine_spec.digest(compared[name])}

    def matches(self, container: Container) -> bool:
        """Whether a container was created from the spec that is ordered."""
        return container.spec == engine_spec.digest(self.ranks[container.name])

    def _state(self, container: Container) -> EngineState:
        """The state of a container. An exit that its watch has not explained yet is reported with the explanation."""
        watched = self.watched.get(container.name)
        if not container.running:
            explained = watched is None or watched.started_at != container.started_at
            return EngineState.STOPPED if explained else EngineState.LOADING
        return EngineState.HEALTHY if self.loaded(container) else EngineState.LOADING

    def loaded(self, container: Container) -> bool:
        """Whether a running engine has loaded: /health has answered; for a rank above 0, rank 0 is to be verified."""
        if container.rank:
            return self.order is not None and not _loads(self.order.journal, container.name)
        return self.answered.get(container.name) == container.started_at

    def loading(self, container: str) -> bool:
        """Return whether an engine is known not to have loaded yet; False where that is unknown."""
        known = self.containers.get(container)
        return known is not None and self.unanswered.get(container) == known.started_at and not self.loaded(known)

    def ended(self, boot: str) -> Container | None:
        """The engine of the boot record if it has ended, by no order, and Docker was not asked yet who ended it."""
        armed = self.record.armed
        container = self.containers.get(armed.container) if armed else None
        if container is None or container.state not in ENDED or self.down(container.name, boot):
            return None
        known = self.asked.get(container.name) == container.started_at or container.name in self.killed
        return None if known else container

    def settled(self, container: Container) -> bool:
        """Whether an end was seen SETTLE_S ago, so that Docker has listed who asked for it."""
        started_at, seen_s = self.exits.get(container.name, (0.0, 0.0))
        if started_at != container.started_at:
            self.exits[container.name] = (container.started_at, self.seen_s)
            return False
        return self.seen_s - seen_s >= SETTLE_S

    def _unasked(self, boot: str) -> frozenset[str]:
        """Unknown is not no: until Docker has answered, it may have been stopped by hand."""
        container = self.ended(boot)
        return frozenset({container.name} if container else ())

    def calm(self, boot: str) -> bool:
        """Whether nothing of it changes or is due, so that its containers may be read less often."""
        journal = self.order.journal if self.order else self.record.copy
        changing = journal is not None and (journal.swap is not None or journal.stopping)
        waiting = self.job or self.pending or self.watched or self.lacking or self.ended(boot)
        return not changing and not waiting

    @property
    def loads(self) -> bool:
        """Whether an engine of this service loads or is about to start."""
        known = [self.containers[name] for name in self.ranks if name in self.containers]
        return bool(self.pending) or any(self._state(container) is EngineState.LOADING for container in known)

    def expendable(self) -> Iterator[str]:
        """Running engines that may be killed before their node runs out of memory: those that load, then a new one."""
        alive = self.running
        running = [name for name in self.ranks if name in alive]
        new = {rank.container for rank in unpromoted(self.order.journal if self.order else self.record.copy)}
        loading = [name for name in running if not self.loaded(self.containers[name])]
        yield from dict.fromkeys([*loading, *(name for name in running if name in new)])


def _loads(journal: Journal, container: str) -> bool:
    swap = journal.swap
    if swap is None or swap.reached(Phase.VERIFY):
        return False
    return container in {rank.container for rank in swap.target.ranks}
