"""One service on this node, in the memory of the guard's process: order, containers, and the results of tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkops.docker.facts import Container
from sparkops.guard.engines import ENDED, FRESH_S
from sparkops.guard.tasks import Job, MeasuredRoom, WatchedStart
from sparkops.guard_client import engine_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Local, Record, expendable, shown, worker_loaded
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, RankSpec
from sparkops.swap.orders import Order, Want

REFUSED_S, REFUSED_MOST_S = 5.0, 60.0
"""Seconds from a refused start to the next one: twice as long each time, up to the second figure."""
SETTLE_S = 3.0
"""Docker lists a kill after it has sent the signal: a container that has just ended may lack it for a moment."""


@dataclass
class LocalService:
    """One service on one node. Everything here is lost with the process, `record` and `by_hand` excepted."""

    name: str
    node: str
    record: Record
    by_hand: frozenset[str]
    restarted_s: float
    """BOOTTIME of the last start from the boot record in seconds; 0.0 for one of an earlier boot."""
    order: Order | None = None
    containers: Mapping[str, Container] = field(default_factory=dict)
    """Every container of sparkops on the node, as last read."""
    unread: Mapping[str, Container] = field(default_factory=dict)
    """Those that Docker lists and does not inspect: their state is unknown, so they are neither created nor started."""
    read_s: float = -math.inf
    changed_s: float = -math.inf
    """The end of the last job: an earlier read is out of date. Monotonic seconds, like `read_s`."""
    retry_s: float = -math.inf
    pending: str = ""
    restarting: bool = False
    """Whether the pending start is one from the boot record."""
    started: bool = False
    """Whether the pending start has been executed."""
    answered: dict[str, float] = field(default_factory=dict)
    """By container: the time of the start for which /health has answered."""
    unanswered: dict[str, float] = field(default_factory=dict)
    """By container: the time of the start for which /health has not answered yet."""
    began: dict[str, float] = field(default_factory=dict)
    """By container: the time of the start that began while this process read the containers."""
    watched: dict[str, WatchedStart] = field(default_factory=dict)
    job: Job | None = None
    proofs: dict[str, tuple[str, Answer]] = field(default_factory=dict)
    unproven: dict[tuple[str, str], int] = field(default_factory=dict)
    """By container and start: the proofs that could not be carried out."""
    problems: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """By container: why its start has not happened. It is retried."""
    refusals: dict[str, int] = field(default_factory=dict)
    """By container: the starts in a row that Docker refused."""
    due_s: dict[str, float] = field(default_factory=dict)
    """By container: when its next start is due after one that failed, in monotonic seconds."""
    rooms: dict[str, MeasuredRoom] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    """By container: the start for which page cache was dropped."""
    progress: dict[str, str] = field(default_factory=dict)
    stop_checks: dict[str, float] = field(default_factory=dict)
    """By container that ended: the start whose end was compared with the stops that Docker lists."""
    checking: set[str] = field(default_factory=set)
    """Containers that ended and whose stop Docker is asked for."""
    lacking: dict[str, float] = field(default_factory=dict)
    """By container that waits for memory: since when, in monotonic seconds."""
    exits: dict[str, tuple[float, float]] = field(default_factory=dict)
    """By container that ended: the time of its start, and of the first read after its end (monotonic seconds)."""
    killed: dict[str, str] = field(default_factory=dict)
    """By container: why this guard has killed it."""

    def adopt(self, order: Order) -> None:
        """Follow an order. Results that it does not need and problems of another swap are forgotten."""
        proving = {rank.rank.container for rank in order.ranks if rank.prove}
        self.proofs = {name: proof for name, proof in self.proofs.items() if name in proving}
        if self._key(order) != self._key(self.order):
            for known in (self.problems, self.refused, self.refusals, self.due_s, self.lacking):
                known.clear()
        self.order = order

    @staticmethod
    def _key(order: Order | None) -> str:
        swap = order.journal.swap if order else None
        return swap.key if swap else ""

    def begin(self, container: str, *, restarting: bool = False) -> None:
        """Note that a start was marked on disk. `restarting`: from the boot record."""
        self.pending, self.restarting, self.started = container, restarting, False
        self.problems.pop(container, None)
        self.refused.pop(container, None)
        self.proofs.pop(container, None)
        self.unproven = {proof: count for proof, count in self.unproven.items() if proof[0] != container}
        self.killed.pop(container, None)
        self.rooms.pop(container, None)
        self.lacking.pop(container, None)
        self.progress.pop(container, None)

    def refuse(self, container: str, why: str, now_s: float) -> int:
        """Note that Docker refused a start, and when the next one is due. Returns the refusals in a row."""
        count = self.refusals[container] = self.refusals.get(container, 0) + 1
        self.refused[container] = why
        self.due_s[container] = now_s + min(REFUSED_S * 2 ** (count - 1), REFUSED_MOST_S)
        return count

    def start(self, container: str) -> None:
        """Note that Docker has started a container."""
        self.refused.pop(container, None)
        self.refusals.pop(container, None)

    def cancel(self) -> None:
        """Cancel what runs in threads."""
        for start in self.watched.values():
            start.cancel.set()
        if self.job:
            self.job.cancel.set()

    def update(
        self, containers: Mapping[str, Container], began_s: float, unread: Mapping[str, Container] | None = None
    ) -> None:
        """Replace the containers by a read that began after the last change; ignore an earlier one."""
        if began_s <= self.changed_s:
            return
        if began_s - self.read_s < FRESH_S:
            old = {**self.unread, **self.containers}
            started = (item for name, item in containers.items() if item.running and _differs(item, old.get(name)))
            self.began |= {item.name: item.started_at for item in started}
        self.containers, self.unread, self.read_s = containers, unread or {}, began_s
        if self.started:
            self.pending, self.started = "", False

    @property
    def fresh(self) -> bool:
        """Whether the last read began after the last change."""
        return self.read_s > self.changed_s

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
        """Return whether the leader has ordered its stop in this boot."""
        return self.record.boot == boot and container in self.record.down

    def local(self, boot: str, free_gib: float = 0.0, now_s: float = math.inf) -> Local:
        """Return the input of the machine's decisions. `now_s`: monotonic seconds, for starts that are not due yet."""
        others = self._mismatched()
        running = {name for name in others if self.containers[name].running}
        engines = {name: self._state(self.containers[name]) for name in self.ranks if name in self.containers}
        known = {name: state for name, state in engines.items() if name not in others or name in running}
        return Local(
            boot=boot,
            record=self.record,
            engines={**known, **{name: EngineState.LOADING for name in self.ranks if name in self.unread}},
            starts={name: str(self.containers[name].started_at) for name in engines},
            by_hand=self.by_hand | self._unchecked(boot),
            free_gib=free_gib,
            pending=self.pending,
            proofs=dict(self.proofs),
            problems={**self.problems, **{name: f"{name} runs with another spec" for name in running}},
            refused=dict(self.refused),
            paused=frozenset(name for name, due_s in self.due_s.items() if due_s > now_s),
        )

    def _mismatched(self) -> set[str]:
        """Return containers of an ordered or armed name that were created from another spec."""
        compared = {self.record.armed.container: self.record.armed} if self.record.armed else {}
        for rank in self.order.ranks if self.order else ():
            compared.pop(rank.rank.container, None)
            if rank.want in (Want.CREATED, Want.RUNNING):
                compared[rank.rank.container] = rank.rank
        existing = {name: self.containers[name] for name in compared if name in self.containers}
        return {name for name, container in existing.items() if container.spec != engine_spec.digest(compared[name])}

    def matches(self, container: Container) -> bool:
        """Return whether a container was created from the ordered spec."""
        return container.spec == engine_spec.digest(self.ranks[container.name])

    def _state(self, container: Container) -> EngineState:
        """Return the state of a container. An exit is reported once its watch has explained it."""
        watched = self.watched.get(container.name)
        if not container.running:
            explained = watched is None or watched.started_at != container.started_at
            return EngineState.STOPPED if explained else EngineState.LOADING
        return shown(self.loaded(container))

    def loaded(self, container: Container) -> Answer:
        """Return whether a running engine has loaded: /health answered; of a rank above 0, that rank 0 is verified.

        UNKNOWN until this process has asked. Meanwhile nothing else starts to load here, since it may load, and it is
        neither killed nor cut short, since it may serve.
        """
        if container.rank:
            return worker_loaded(self.node, container.name, self.journal)
        if self.answered.get(container.name) == container.started_at:
            return Answer.YES
        return Answer.NO if self.unanswered.get(container.name) == container.started_at else Answer.UNKNOWN

    def note_health(self, container: Container, health: Answer) -> None:
        """Note an answer of /health. No answer in time shows that an engine loads only if this process saw it start."""
        began = self.began.get(container.name) == container.started_at
        if health is Answer.YES:
            self.answered[container.name] = container.started_at
            self.problems.pop(container.name, None)  # a start that had stalled
            self.progress.pop(container.name, None)
        elif health is Answer.NO or began:
            self.unanswered[container.name] = container.started_at

    def lose_port(self, container: Container, problem: str) -> None:
        """Note that another program answers in place of an engine that has answered."""
        self.answered.pop(container.name, None)
        self.unanswered[container.name] = container.started_at
        self.problems[container.name] = problem

    def loading(self, container: str) -> bool:
        """Return whether an engine is known not to have loaded yet; False where that is unknown."""
        existing = self.containers.get(container)
        return existing is not None and self.loaded(existing) is Answer.NO

    @property
    def journal(self) -> Journal | None:
        """The newest known journal: an order is newer than the copy on disk."""
        return self.order.journal if self.order else self.record.copy

    def ended(self, boot: str) -> Container | None:
        """Return the engine of the boot record if it has ended, by no order, and its end is not checked yet."""
        armed = self.record.armed
        container = self.containers.get(armed.container) if armed else None
        if container is None or container.state not in ENDED or self.down(container.name, boot):
            return None
        explained = self.stop_checks.get(container.name) == container.started_at or container.name in self.killed
        return None if explained else container

    def settled(self, container: Container) -> bool:
        """Return whether an end was read SETTLE_S ago, so that Docker has listed a stop that caused it."""
        started_at, read_s = self.exits.get(container.name, (0.0, 0.0))
        if started_at != container.started_at:
            self.exits[container.name] = (container.started_at, self.read_s)
            return False
        return self.read_s - read_s >= SETTLE_S

    def _unchecked(self, boot: str) -> frozenset[str]:
        """Return the ended engine while its end is not checked: unknown is not no, so it counts as stopped by hand."""
        container = self.ended(boot)
        return frozenset({container.name} if container else ())

    def calm(self, boot: str) -> bool:
        """Return whether nothing of it changes or is due, so that its containers may be read less often."""
        journal = self.journal
        changing = journal is not None and (journal.swap is not None or journal.stopping)
        waiting = self.job or self.pending or self.watched or self.lacking or self.ended(boot)
        return not changing and not waiting

    @property
    def loads(self) -> bool:
        """Whether an engine of this service loads or is about to start, as far as Docker shows."""
        existing = [self.containers[name] for name in self.ranks if name in self.containers]
        unread = any(self.unread[name].running for name in self.ranks if name in self.unread)
        loading = any(self._state(container) is EngineState.LOADING for container in existing)
        return bool(self.pending) or unread or loading

    def expendable(self) -> Iterator[str]:
        """Yield running engines that may be killed before memory runs out, the first to go first."""
        alive = self.running
        loaded = {name: self.loaded(self.containers[name]) for name in self.ranks if name in alive}
        return expendable(self.node, loaded, self.journal)


def _differs(started: Container, before: Container | None) -> bool:
    """Return whether a running container was not read running under this start before."""
    return before is None or not before.running or before.started_at != started.started_at
