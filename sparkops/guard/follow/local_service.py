"""One service on this node, in the memory of the guard's process: order, containers, and the results of tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from sparkops.guard.follow.engines import ENDED, FRESH_S
from sparkops.guard.follow.start import Run, Start
from sparkops.guard.follow.tasks import Job
from sparkops.node.docker.facts import Container
from sparkops.serving import engine_spec
from sparkops.swap.fleet_state import EngineState
from sparkops.swap.follower import Local, Record, expendable, shown, worker_loaded
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, RankSpec
from sparkops.swap.orders import Order, Want
from sparkops.swap.trouble import stopped_by_hand

SETTLE_S = 3.0
"""Docker lists a kill after it has sent the signal: a container that has just ended may lack it for a moment."""


@dataclass(frozen=True)
class PromotedRank:
    """One container of the active release on this node, while no swap, stop or operator is about to change it."""

    service: str
    release: str
    rank: RankSpec
    head: bool
    """Whether it is rank 0, which answers for all ranks of its replica."""
    container: Container | None
    """As last read; None if it does not exist, or Docker does not inspect it."""
    starting: bool
    """Whether it starts, or is about to."""
    hindered: str
    """Why its start, which is retried, does not happen; empty where it may, or none is due."""
    unknown: bool
    """Whether it is not known to have loaded, or Docker was not read."""
    restarts: int
    """Restarts within an hour, by this guard and, of rank 0, by the leader."""
    alone: bool
    """Whether its release has this one rank, and no other engine of sparkops runs on the node."""


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
    starts: dict[str, Start] = field(default_factory=dict)
    """By container: its last start."""
    job: Job | None = None

    def adopt(self, order: Order) -> None:
        """Follow an order. Results that it does not need and problems of another swap are forgotten."""
        proving = {rank.rank.container for rank in order.ranks if rank.prove}
        stopped = {rank.rank.container for rank in order.ranks if rank.want is Want.STOPPED}
        another = self._key(order) != self._key(self.order)
        for name, start in self.starts.items():
            if name not in proving:
                start.proof = None
            if name in stopped:
                start.progress = ""
            if another:
                start.forget()
        self.order = order

    @staticmethod
    def _key(order: Order | None) -> str:
        swap = order.journal.swap if order else None
        return swap.key if swap else ""

    def start(self, container: str) -> Start:
        """Return the last start of a container; an empty one before its first."""
        return self.starts.setdefault(container, Start())

    def run(self, container: Container) -> Run:
        """Return the run that a container shows; an empty one where a later read shows another."""
        run = self.start(container.name).run
        return run if run.at == container.started_at else Run(container.started_at)

    def begin(self, container: str, *, restarting: bool = False) -> None:
        """Note that a start was marked on disk. `restarting`: from the boot record."""
        self.pending, self.restarting, self.started = container, restarting, False
        self.starts[container] = self.start(container).again()

    def cancel(self) -> None:
        """Cancel what runs in threads."""
        for start in self.starts.values():
            start.run.unwatch()
        if self.job:
            self.job.cancel.set()

    def update(
        self, containers: Mapping[str, Container], began_s: float, unread: Mapping[str, Container] | None = None
    ) -> None:
        """Replace the containers by a read that began after the last change; ignore an earlier one."""
        if began_s <= self.changed_s:
            return
        old, reads_on = {**self.unread, **self.containers}, began_s - self.read_s < FRESH_S
        for name, container in containers.items():
            start = self.start(name)
            if start.run.at != container.started_at:
                start.run.unwatch()
                start.run = Run(container.started_at)
            if reads_on and container.running and _differs(container, old.get(name)):
                start.run.witnessed = True
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
            proofs={name: start.proof for name, start in self.starts.items() if start.proof},
            problems={
                **{name: start.problem for name, start in self.starts.items() if start.problem},
                **{name: f"{name} runs with another spec" for name in running},
            },
            refused={name: start.refused for name, start in self.starts.items() if start.refused},
            paused=frozenset(name for name, start in self.starts.items() if start.due_s > now_s),
            dead={name: why for name in known if (why := self._dead(self.containers[name]))},
            garbled={name: why for name in known if (why := self.run(self.containers[name]).garbled)},
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
        if not container.running:
            return EngineState.LOADING if self.run(container).watch else EngineState.STOPPED
        return shown(self.loaded(container))

    def loaded(self, container: Container) -> Answer:
        """Return whether a running engine has loaded: /health answered; of a rank above 0, that rank 0 is verified.

        UNKNOWN until this process has asked. Meanwhile nothing else starts to load here, since it may load, and it is
        neither killed nor cut short, since it may serve.
        """
        if container.rank:
            return worker_loaded(self.node, container.name, self.journal)
        return self.run(container).loaded

    def _dead(self, container: Container) -> str:
        """Return why an engine is dead; empty if it is not known to be.

        One that has neither answered this process nor refused to may have served before it. Where it also makes no
        progress, it hangs: else nothing would load beside it, and no leader would restart it.
        """
        run, start = self.run(container), self.start(container.name)
        hangs = container.running and not container.rank and run.loaded is Answer.UNKNOWN and start.run is run
        return run.dead or (start.problem if hangs else "")

    def lose_port(self, container: Container, problem: str) -> None:
        """Note that another program answers in place of an engine that has answered."""
        self.run(container).loaded = Answer.NO
        self.start(container.name).problem = problem

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
        run = self.run(container)
        return None if run.checked or run.killed else container

    def settled(self, container: Container) -> bool:
        """Return whether an end was read SETTLE_S ago, so that Docker has listed a stop that caused it."""
        run = self.run(container)
        if run.ended_s is None:
            run.ended_s = self.read_s
        return self.read_s - run.ended_s >= SETTLE_S

    def _unchecked(self, boot: str) -> frozenset[str]:
        """Return the ended engine while its end is not checked: unknown is not no, so it counts as stopped by hand."""
        container = self.ended(boot)
        return frozenset({container.name} if container else ())

    def calm(self, boot: str) -> bool:
        """Return whether nothing of it changes or is due, so that its containers may be read less often."""
        journal = self.journal
        changing = journal is not None and (journal.swap is not None or journal.stopping)
        waiting = any(start.run.watch or start.lacking_s is not None for start in self.starts.values())
        return not (changing or waiting or self.job or self.pending or self.ended(boot))

    @property
    def loads(self) -> bool:
        """Whether an engine of this service loads or is about to start, as far as Docker shows."""
        existing = [self.containers[name] for name in self.ranks if name in self.containers]
        unread = any(self.unread[name].running for name in self.ranks if name in self.unread)
        loading = any(self._state(container) is EngineState.LOADING for container in existing)
        return bool(self.pending) or unread or loading

    @property
    def reserved_gib(self) -> float:
        """Memory that its boot record claims in GiB, while that engine does not run and no operator stopped it."""
        armed = self.record.armed
        waits = armed is not None and armed.container not in self.running | self.by_hand
        return armed.claim_gib if armed and waits else 0.0

    def promoted(self, boot: str) -> Iterator[PromotedRank]:
        """Yield the containers of the active release on this node; none during a swap or stop, or without orders.

        A replica of which an operator stopped a rank on any node is no failure: the others cannot serve without it. Its
        leader says so as the reason why the service needs an operator.

        A leader that is lost may have ordered something else by now, but what this guard has is in its order.
        """
        journal = self.order.journal if self.order else None
        if journal is None or journal.active is None or journal.unfinished or journal.stopping:
            return
        heads = {rank.place for rank in journal.active.heads}
        others = [item for item in (*self.containers.values(), *self.unread.values()) if item.service]
        halved = _halved(journal.active, self.by_hand | {stopped_by_hand(journal.trouble)})
        for rank in journal.active.on(self.node):
            name, head = rank.container, rank.place in heads
            if self.down(name, boot) or rank in halved:
                continue
            container, start = self.containers.get(name), self.starts.get(name)
            running = container is not None and container.running
            hindered = start.hindered if start else ""
            own = self.record.restarts if self.record.armed and self.record.armed.container == name else 0
            yield PromotedRank(
                service=self.name,
                release=journal.active.release,
                rank=rank,
                head=head,
                container=container,
                starting=not hindered and (self.pending == name or self.job is not None),
                hindered=hindered,
                unknown=not self.fresh
                or name in self.unread
                or (running and container is not None and self.loaded(container) is not Answer.YES),
                restarts=own + (journal.restarts if head else 0),
                alone=journal.active.alone and not any(item.running for item in others if item.name != name),
            )

    def expendable(self) -> Iterator[str]:
        """Yield running engines that may be killed before memory runs out, in kill order."""
        alive = self.running
        loaded = {name: self.loaded(self.containers[name]) for name in self.ranks if name in alive}
        return expendable(self.node, loaded, self.journal)


def _halved(active: Deployment, by_hand: frozenset[str]) -> frozenset[RankSpec]:
    """Return the ranks of each replica of which one of these containers is a rank."""
    halved = (item for item in active.replicas if any(rank.container in by_hand for rank in item.ranks))
    return frozenset(rank for replica in halved for rank in replica.ranks)


def _differs(started: Container, before: Container | None) -> bool:
    """Return whether a running container was not read running under this start before."""
    return before is None or not before.running or before.started_at != started.started_at
