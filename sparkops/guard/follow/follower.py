"""The follower of a guard: it executes the effects of the swap machine on its own node, service by service.

`handle` takes orders and reports the last read; it waits for nothing. `poll` reads the containers, decides, writes what
must be on disk before an act, and leaves the act to a thread (guard/follow/jobs.py).
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from sparkops.errors import Busy, SparkopsError
from sparkops.guard.disk.durable import Unreadable
from sparkops.guard.disk.notes import Note, last_restart_s
from sparkops.guard.disk.state import State
from sparkops.guard.follow.engines import FRESH_S, ContainerReader, Engines, reason
from sparkops.guard.follow.jobs import Jobs
from sparkops.guard.follow.local_service import LocalService, PromotedRank
from sparkops.guard.follow.next_task import Moment, load_ahead, next_start, next_task
from sparkops.guard.follow.tasks import Job, Measure, Task
from sparkops.guard.lead.leases import Leases
from sparkops.node.cordon import Cordon
from sparkops.node.local import LocalNode
from sparkops.swap import effects, orders
from sparkops.swap.fleet_state import Report
from sparkops.swap.follower import adopts, report
from sparkops.swap.model import RankSpec
from sparkops.swap.orders import Order

CANCELLED = (Measure, effects.ProveEngine)  # every other task has a bound, and runs to its end


@dataclass
class Follower:
    """The follower of one node."""

    state: State
    node: LocalNode
    log: Callable[[str], None]
    jobs: Jobs = field(init=False)
    engines: Engines = field(init=False)
    leases: Leases = field(default_factory=Leases, init=False)
    """Shared work on this node, such as builds. Meanwhile only the engines of boot records start to load here."""
    _by_name: dict[str, LocalService] = field(default_factory=dict, init=False)
    _reader: ContainerReader = field(init=False)
    _marked_s: float = field(default=-math.inf, init=False)
    """When a start was marked last on this node."""
    _expendable: tuple[tuple[str, RankSpec], ...] = field(default=(), init=False)
    last_started: PromotedRank | None = field(default=None, init=False)
    """The promoted engine that was started last of those that run here, as last read; None without any."""

    def __post_init__(self) -> None:
        self.engines = Engines(self.node, self.state.secret, self.log, self._paths)
        self.jobs = Jobs(self.state, self.node, self.engines, self.log)
        self._reader = ContainerReader(self.node, self.log)

    def handle(self, name: str, order: Order | None) -> Report:
        """Adopt an order unless this guard knows a newer one, and report the service.

        Raises NotReady while the containers of this node are unknown, and what reading the record raises.
        """
        with self.jobs.lock:
            service = self._service(name)
            if order is not None and adopts(order, service.order, service.local(self._boot)):
                if order != service.order:
                    service.adopt(order)
                    self.jobs.wake.set()
                self._keep(service)
            self._note_expendable()
            self._reader.require_recent()
            work = "; ".join(filter(None, (self.leases.text, self._cordon)))
            return report(self.node.name, service.order, service.local(self._boot), work, self._load_beside(service))

    def progress(self, name: str) -> Mapping[str, str]:
        """Return one line for each container of a service that something is in progress for."""
        service = self._by_name.get(name)
        starts = dict(service.starts) if service else {}
        return {name: start.progress for name, start in starts.items() if start.progress}

    def promoted(self) -> list[PromotedRank]:
        """Return the containers of the active releases on this node. While the node has a lease, all are unknown."""
        with self.jobs.lock:
            boot, leased = self._boot, bool(self.leases.text) or not self.reads(FRESH_S)
            ranks = [
                replace(rank, starting=rank.starting or rank.rank.container == queued)
                for service in self._by_name.values()
                for queued in (self._queued(service),)
                for rank in service.promoted(boot)
            ]
        return [replace(rank, unknown=True) for rank in ranks] if leased else ranks

    def _queued(self, service: LocalService) -> str:
        """Return the container whose start waits for another load of the node, and was not refused; empty if none."""
        container = next_start(service, self._moment(service))
        return container if container and not service.start(container).hindered else ""

    def _others(self, service: LocalService) -> list[LocalService]:
        return [other for other in self._by_name.values() if other is not service]

    def _load_beside(self, service: LocalService) -> str:
        """Return the engine of another service that loads, or is promoted and about to; empty if none does."""
        for other in self._others(service):
            armed = other.record.armed
            if other.loads or (armed and self._queued(other) == armed.container):
                return armed.container if armed else f"an engine of {other.name}"
        return ""

    def lease(self, holder: str) -> AbstractContextManager[None]:
        """Let no new release start to load here while the context lasts; what served is restarted.

        Raises Busy while an engine may load, NotReady if unknown.
        """
        with self.jobs.lock:
            self._reader.require_recent()
            for name in self._services():
                with suppress(Unreadable):  # nothing of such a service starts
                    service = self._service(name)
                    if why := load_ahead(service, self._moment(service)):
                        raise Busy(why, next_step=f"`--wait 10m` retries; sparkops status {name} --follow")
            self.leases.add(holder)
        return self.leases.until_end(holder)

    def set_cordon(self, was: Cordon, to: Cordon) -> None:
        """Replace the cordon `was` of this node; the new one is on the disk on return.

        Raises Busy while a swap may still start an engine here, and where another client has changed the cordon
        meanwhile; Unreadable, OSError.

        The leader learns of it with the next report: what it accepts until then waits in its first phase.
        """
        with self.jobs.lock:
            for name in self._services() if to.reason and not was.reason else ():
                with suppress(Unreadable):  # nothing of such a service starts
                    journal = self._service(name).journal
                    if journal and (why := orders.load_ahead(journal, self.node.name)):
                        raise Busy(why, next_step=f"`--wait SECONDS` retries\nsparkops status {name} --follow")
            known = self.state.cordon()
            if known not in (was, to):  # `to`: the reply to the first request was lost
                raise Busy("the cordon was changed by another client", next_step="Check `sparkops status`, then retry.")
            self.state.write_cordon(to)

    def wait(self, timeout_s: float) -> None:
        """Wait until there may be something to do, at most `timeout_s` seconds."""
        self.jobs.wake.wait(timeout_s)
        self.jobs.wake.clear()

    @property
    def calm(self) -> bool:
        """Whether nothing changes on this node and no start or stop is due."""
        with self.jobs.lock:
            return all(service.calm(self._boot) for service in self._by_name.values())

    def reads(self, within_s: float) -> bool:
        """Return whether Docker was read within the last `within_s` seconds."""
        return time.monotonic() - self._reader.began_s < within_s

    def poll(self) -> None:
        """Read the containers once, and begin what is due for each service. An error stops one service only."""
        if not self._reader.read():
            return
        for name in self._services():
            try:
                self._poll(name)
            except (SparkopsError, OSError, ValueError) as error:
                self.log(f"{name}: {reason(error)}")
            except Exception:  # noqa: BLE001 - a bug with one service must not cost the others their guard
                self.log(f"{name}: {traceback.format_exc()}")

    def close(self) -> None:
        """Cancel what runs in threads. What they have begun continues in Docker."""
        with self.jobs.lock:
            for service in self._by_name.values():
                service.cancel()
        self._reader.close()

    def expendable(self) -> tuple[tuple[str, RankSpec], ...]:
        """Return the running engines that may be killed for memory, with their services, in kill order.

        As last read: nothing that needs memory may be waited for, so this and `killed` take no lock.
        """
        return self._expendable

    def killed(self, name: str, container: str, why: str) -> None:
        """Note that this guard is about to kill a container, so that the exit is not taken for an operator's stop."""
        start = self._by_name[name].start(container)
        start.run.killed = start.problem = why

    def note_watch(self, name: str, started_at: float, dead: str, garbled: str) -> None:
        """Note what the watch finds of one run of a container, for the next report. Another run knows nothing of it."""
        with self.jobs.lock:
            for service in self._by_name.values():
                container = service.containers.get(name)
                if name in service.ranks and container and container.started_at == started_at:
                    service.run(container).note_watch(dead, garbled)

    @property
    def _cordon(self) -> str:
        """What a new release must wait for; what serves is restarted as before. Empty for nothing.

        A cordon that cannot be read counts as one.
        """
        try:
            return self.state.cordon().text
        except (Unreadable, OSError) as error:
            return f"cordon, which cannot be read: {error}"

    def _note_expendable(self) -> None:
        self._expendable = tuple(
            (service.name, service.ranks[container])
            for service in self._by_name.values()
            for container in service.expendable()
        )
        ranks = (rank for service in self._by_name.values() for rank in service.promoted(self._boot))
        started = {rank.container.started_at: rank for rank in ranks if rank.container and rank.container.running}
        self.last_started = started[max(started)] if started else None

    def _paths(self) -> frozenset[str] | None:
        """Return what engines may get of this node by orders of another node's leader; None: anything."""
        membership = self.state.membership()
        return membership.paths if membership and membership.leader != self.node.name else None

    @property
    def _boot(self) -> str:
        return self.state.clock().boot

    def _services(self) -> list[str]:
        with self.jobs.lock:
            names = set(self._by_name)
        try:
            names |= set(self.state.services())
        except OSError as error:
            self.log(f"services of this node: {error}")
        return sorted(names)

    def _service(self, name: str) -> LocalService:
        if name not in self._by_name:
            record, by_hand = self.state.record(name), self.state.by_hand(name)
            restarted_s = last_restart_s(self.state, name) if record.restarts else 0.0
            service = LocalService(name, self.node.name, record, by_hand, restarted_s)
            service.update(self._reader.containers, self._reader.began_s, self._reader.unread)
            self._by_name[name] = service
        return self._by_name[name]

    def _poll(self, name: str) -> None:
        with self.jobs.lock:
            service = self._service(name)
            service.update(self._reader.containers, self._reader.began_s, self._reader.unread)
            self.jobs.notes.reset_restarts(service)
            self.jobs.watch_starts(service, self._boot)
            self.jobs.notes.note_stops(service, service.by_hand - service.running)
            ended = service.ended(self._boot)
        if ended and service.settled(ended):
            self.jobs.check_stop(service, ended)
        with self.jobs.lock:
            if service.fresh:
                self._reconcile(service)
            self._note_expendable()

    def _reconcile(self, service: LocalService) -> None:
        """Write the notes that are due, then begin the task that is due; cancel one that is due no longer."""
        if service.job is not None:
            if isinstance(service.job.task, CANCELLED) and self._next_task(service) != service.job.task:
                service.job.cancel.set()
            return
        task = self._next_task(service)
        while isinstance(task, Note):
            self._write(service, task)
            task = self._next_task(service)
        if task is not None and time.monotonic() >= service.retry_s:
            self.jobs.begin(service, Job(task))

    def _next_task(self, service: LocalService) -> Task | None:
        moment = self._moment(service)
        loads = next((f"load of {other.name}" for other in self._others(service) if other.loads), "")
        if (awaited := self._awaited(service) or loads) and (container := next_start(service, moment)):
            service.start(container).progress = f"waiting for the {awaited}"
        return next_task(service, moment)

    def _moment(self, service: LocalService) -> Moment:
        others = self._others(service)
        loads = any(other.loads for other in others)
        reserved_gib = sum(other.reserved_gib for other in others)
        return Moment(self._boot, loads or bool(self._awaited(service)), self._marked_s, time.monotonic(), reserved_gib)

    def _awaited(self, service: LocalService) -> str:
        """Return what the next start of a service waits for; empty for nothing, or only for another load.

        The engine of the boot record waits for no lease: it had its memory when the lease was granted.
        """
        armed, superseded = service.record.armed, self.leases.superseded
        if superseded or not self.leases.text or armed is None:
            return superseded or self.leases.text
        container = next_start(
            service, Moment(self._boot, blocked=False, marked_s=self._marked_s, now_s=time.monotonic())
        )
        return "" if container == armed.container else self.leases.text

    def _write(self, service: LocalService, effect: Note) -> None:
        self.jobs.notes.write(service, effect, self._boot)
        if isinstance(effect, effects.MarkStart | effects.MarkRestart):
            self._marked_s = time.monotonic()

    def _keep(self, service: LocalService) -> None:
        """Write the copy of the journal and the boot record at once: the leader waits for them."""
        try:
            while isinstance(task := self._next_task(service), effects.KeepCopy | effects.ArmBoot):
                self._write(service, task)
        except OSError as error:  # the report shows which revision is on disk
            self.log(f"{service.name}: order not written: {error}")
