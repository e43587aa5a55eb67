"""A guard's half of the machine: from the leader's order and its own node to one effect. It needs no leader to boot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sparkops.swap.effects import (
    ArmBoot,
    CreateEngine,
    FollowerEffect,
    KeepCopy,
    MarkRestart,
    MarkStart,
    MarkStop,
    ProveEngine,
    StartEngine,
    StopEngine,
)
from sparkops.swap.fleet_state import EngineReport, EngineState, Report
from sparkops.swap.journal import RESTARTS, Journal
from sparkops.swap.model import Answer, Phase, RankSpec
from sparkops.swap.orders import Order, RankOrder, Want, unpromoted


@dataclass(frozen=True, slots=True)
class Record:
    """State of a service on a guard's disk."""

    term: int = 0
    copy: Journal | None = None
    """The newest journal of the leader."""
    armed: RankSpec | None = None
    """The boot record: the engine that starts after a boot, or after an exit that the leader did not order."""
    alone: bool = True
    started: tuple[tuple[str, str], ...] = ()
    """Containers with the key of their last ordered start."""
    earlier: tuple[tuple[str, str], ...] = ()
    """Containers with the start that Docker showed when that one was marked."""
    down: frozenset[str] = frozenset()
    """Containers that the leader stopped in boot `boot`."""
    boot: str = ""
    restarts: int = 0
    """Starts of `armed` from the boot record within the last hour: another release has the whole budget."""

    def key(self, container: str) -> str:
        """Return the key of the last ordered start of a container."""
        return dict(self.started).get(container, "")

    def after(self, effect: FollowerEffect, boot: str) -> Record:
        """Return the record after an effect; the same record if the effect writes nothing."""
        down = self.down if self.boot == boot else frozenset()
        match effect:
            case KeepCopy(journal=journal):
                return replace(self, copy=journal, term=max(self.term, journal.term))
            case ArmBoot(rank=rank, alone=alone):
                return replace(self, armed=rank, alone=alone, restarts=self.restarts if rank == self.armed else 0)
            case MarkStop(container=container):
                return replace(self, down=down | {container}, boot=boot)
            case MarkRestart():
                return replace(self, restarts=self.restarts + 1)
            case MarkStart(container=container, key=key, last=last):
                started = tuple(sorted({**dict(self.started), container: key}.items()))
                earlier = tuple(sorted({**dict(self.earlier), container: last}.items()))
                return replace(self, started=started, earlier=earlier, down=down - {container}, boot=boot)
            case _:
                return self

    def refused(self) -> Record:
        """Return the record after Docker refused a start from the boot record: it was none."""
        return replace(self, restarts=max(self.restarts - 1, 0))


@dataclass(frozen=True, slots=True)
class Local:
    """State of a node as its guard reads it, and the guard process's own memory."""

    boot: str
    record: Record = Record()
    engines: Mapping[str, EngineState] = field(default_factory=dict)
    starts: Mapping[str, str] = field(default_factory=dict)
    """By container: its last start, as Docker shows it; another text for each."""
    by_hand: frozenset[str] = frozenset()
    """Containers that an operator stopped with Docker."""
    free_gib: float = 0.0
    """Memory that was free in two samples, in GiB."""
    pending: str = ""
    """The container whose start is marked and not executed yet."""
    proofs: Mapping[str, tuple[str, Answer]] = field(default_factory=dict)
    """By container: the start that the smoke suite ran for, and its result."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """By container: why it could not be created, or why its last start failed. A new key forgets it."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """By container: why its start has not happened: memory lacks, or Docker refused it. It is retried."""
    reserved_gib: float = 0.0
    """Memory of the promoted engines of other services that do not run, in GiB: only they may take it."""
    paused: frozenset[str] = frozenset()
    """Containers whose next start is not due yet: the last one has failed just now."""
    dead: Mapping[str, str] = field(default_factory=dict)
    """By container: why the watch takes this run for dead."""
    garbled: Mapping[str, str] = field(default_factory=dict)
    """By container: what is no text in the answers of this run."""

    def state(self, container: str) -> EngineState:
        """Return the state of a container."""
        return self.engines.get(container, EngineState.ABSENT)

    def key(self, container: str) -> str:
        """Return the key of the last ordered start; empty if its guard ended between the mark and the start."""
        happened = dict(self.record.earlier).get(container) != self.starts.get(container, "")
        return self.record.key(container) if happened else ""

    @property
    def loading(self) -> bool:
        """Whether an engine loads: its final memory is not known yet."""
        return EngineState.LOADING in self.engines.values()


def shown(loaded: Answer) -> EngineState:
    """Return the state of a running engine. While it is unknown whether it has loaded, nothing else loads beside it."""
    return EngineState.HEALTHY if loaded is Answer.YES else EngineState.LOADING


def worker_loaded(node: str, container: str, journal: Journal | None) -> Answer:
    """Return whether a running rank above 0 has loaded: no request of its guard can ask it, but rank 0 is verified."""
    if journal is None:
        return Answer.UNKNOWN
    swap = journal.swap
    starts = swap and not swap.reached(Phase.VERIFY) and (node, container) in {rank.place for rank in swap.coming.ranks}
    return Answer.NO if starts else Answer.YES


def expendable(node: str, loaded: Mapping[str, Answer], journal: Journal | None) -> Iterator[str]:
    """Yield a node's engines that may be killed before memory runs out: those that load, then the ones not promoted.

    `loaded`: whether each running engine has loaded. One that is not known to load may be the one that serves.
    """
    new = {rank.container for rank in unpromoted(journal) if rank.node == node}
    loading = [name for name, answer in loaded.items() if answer is Answer.NO]
    yield from dict.fromkeys([*loading, *(name for name in loaded if name in new)])


def adopts(order: Order, adopted: Order | None, local: Local) -> bool:
    """Return whether to follow an order: one of this boot, and not older than what this guard keeps and follows."""
    journals = (local.record.copy, adopted and adopted.journal)
    newest = max((journal.position for journal in journals if journal), default=(0, 0))
    return order.boot == local.boot and order.journal.position >= newest


def reconcile(order: Order | None, local: Local) -> FollowerEffect | None:
    """Return the next effect. Without an order only the boot record counts."""
    if local.pending:
        return StartEngine(local.pending)
    return next(_effects(order, local), None)


def _effects(order: Order | None, local: Local) -> Iterator[FollowerEffect]:
    if order is not None:
        copy, armed = local.record.copy, order.armed
        if copy is None or copy.position != order.journal.position:
            yield KeepCopy(order.journal)
        if armed and (armed.rank, armed.alone) != (local.record.armed, local.record.alone):
            yield ArmBoot(armed.rank, armed.alone)
        for rank in order.ranks:
            yield from _stop(rank, local)
        for rank in order.ranks:  # nothing starts before the containers that it replaces are gone
            yield from _start(rank, local)
        for rank in order.ranks:
            yield from _prove(rank, local)
    yield from _boot(order, local)


def _stop(rank: RankOrder, local: Local) -> Iterator[FollowerEffect]:
    container = rank.rank.container
    if rank.want is not Want.STOPPED or not local.state(container).running:
        return
    if local.record.boot != local.boot or container not in local.record.down:
        yield MarkStop(container)
    else:
        yield StopEngine(container)


def _start(rank: RankOrder, local: Local) -> Iterator[FollowerEffect]:
    container = rank.rank.container
    state = local.state(container)
    if rank.want in (Want.CREATED, Want.RUNNING) and state is EngineState.ABSENT:
        if container not in local.problems and container not in local.paused:
            yield CreateEngine(rank.rank)
    elif rank.want is Want.RUNNING and not state.running and container not in local.paused and _may_start(rank, local):
        yield MarkStart(container, rank.key, local.starts.get(container, ""))


def _may_start(rank: RankOrder, local: Local) -> bool:
    """Return whether a container starts: once for each key, and only if it fits."""
    container = rank.rank.container
    key = local.record.key(container) if container in local.problems else local.key(container)
    return key != rank.key and _fits(rank.rank, local)


def _prove(rank: RankOrder, local: Local) -> Iterator[FollowerEffect]:
    container = rank.rank.container
    proven, _ = local.proofs.get(container, ("", Answer.UNKNOWN))
    if rank.prove and local.state(container) is EngineState.HEALTHY and proven != rank.key:
        yield ProveEngine(container, rank.key)


def _fits(rank: RankSpec, local: Local) -> bool:
    """Return whether no other engine loads and the needed memory is free."""
    return not local.loading and local.free_gib >= rank.claim_gib + reserved_gib(rank, local)


def reserved_gib(rank: RankSpec, local: Local) -> float:
    """Return the memory in GiB that a start leaves beside its claim: what boot records name comes first."""
    return 0.0 if rank == local.record.armed else local.reserved_gib


def _boot(order: Order | None, local: Local) -> Iterator[FollowerEffect]:
    """Start the engine of the boot record, within its budget, and create it if it is absent.

    Ranks of several nodes wait for the leader.
    """
    record = local.record
    armed = record.armed
    if armed is None or not record.alone or record.restarts >= RESTARTS:
        return
    container, state = armed.container, local.state(armed.container)
    down = record.down if record.boot == local.boot else frozenset()
    if state.running or container in down | local.paused | local.by_hand:
        return
    if order and any(rank.rank == armed and rank.want is Want.STOPPED for rank in order.ranks):
        return
    if state is EngineState.ABSENT:
        yield CreateEngine(armed)
    elif _fits(armed, local):
        yield MarkRestart(container)


def report(node: str, order: Order | None, local: Local, lease: str = "", load: str = "") -> Report:
    """Return the report to the leader. `lease`: the work during which no engine loads on this node.

    `load`: the engine of another service that loads here, or is about to.
    """
    copy, known = local.record.copy, {*local.engines, *local.problems, *local.refused}
    return Report(
        node=node,
        boot=local.boot,
        term=local.record.term,
        revision=copy.revision if copy else -1,
        adopted=order.journal.revision if order else -1,
        engines=tuple(_engine(container, order, local) for container in sorted(known)),
        armed=local.record.armed.container if local.record.armed else "",
        lease=lease,
        load=load,
    )


def _engine(container: str, order: Order | None, local: Local) -> EngineReport:
    """Return the report on a container. A marked start counts as running, so that it is not taken for stopped.

    A problem is about the start that is ordered: one that never began, for lack of memory, has failed as well.
    """
    proven_key, proven = local.proofs.get(container, ("", Answer.UNKNOWN))
    refusal = local.refused.get(container, "")
    problem = refusal or local.problems.get(container, "")
    state = EngineState.LOADING if local.pending == container else local.state(container)
    ordered = next((rank.key for rank in order.ranks if rank.rank.container == container), "") if order else ""
    key = ordered if problem else local.key(container)
    return EngineReport(
        container,
        state,
        key,
        proven,
        proven_key,
        problem,
        refused=bool(refusal),
        by_hand=container in local.by_hand and not state.running,
        dead=local.dead.get(container, ""),
        garbled=local.garbled.get(container, ""),
    )
