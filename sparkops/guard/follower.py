"""The follower of a guard: it executes the effects of the swap machine on its own node, service by service.

`handle` takes orders and reports what was last seen; it waits for nothing. `tend` looks at the containers, decides,
writes what must be on disk before an act, and leaves the act to a thread (guard/jobs.py).
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace

from sparkops.errors import Busy, SparkopsError
from sparkops.guard import restarts
from sparkops.guard.by_hand import StopsByHand
from sparkops.guard.deciding import Moment, load_ahead, starting, wanted
from sparkops.guard.durable import Unreadable
from sparkops.guard.engines import SECRET_S, Engines, reason, secrets
from sparkops.guard.jobs import Jobs
from sparkops.guard.last_read import LastRead
from sparkops.guard.leases import Leases
from sparkops.guard.state import State
from sparkops.guard.tasks import Job, Measure, Task
from sparkops.guard.tended import Tended
from sparkops.guard.watching import watch_starts
from sparkops.nodes.local import LocalNode
from sparkops.swap import effects
from sparkops.swap.follower import Record, adopts, report
from sparkops.swap.model import RankSpec
from sparkops.swap.orders import Order
from sparkops.swap.seen import Report

Bookkeeping = effects.KeepCopy | effects.ArmBoot | effects.MarkStart | effects.MarkRestart | effects.MarkStop
CANCELLED = (Measure, effects.ProveEngine)  # every other task has a bound, and is not left half done


@dataclass
class Follower:
    """The follower of one node."""

    state: State
    node: LocalNode
    log: Callable[[str], None]
    jobs: Jobs = field(init=False)
    engines: Engines = field(init=False)
    leases: Leases = field(default_factory=Leases, init=False)
    """Shared work on this node, such as builds. Meanwhile no engine starts to load here."""
    _tended: dict[str, Tended] = field(default_factory=dict, init=False)
    _last: LastRead = field(init=False)
    _by_hand: StopsByHand = field(init=False)
    _marked_s: float = field(default=-math.inf, init=False)
    """When a start was marked last on this node."""
    _expendable: tuple[tuple[str, RankSpec], ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        self.engines = Engines(self.node, self.state.secret, self.log)
        self.jobs = Jobs(self.state, self.node, self.engines, self.log)
        self._last = LastRead(self.engines, self.log)
        self._by_hand = StopsByHand(self.state, self.engines, self.jobs.lock, self.log)

    def handle(self, service: str, order: Order | None) -> Report:
        """Adopt an order unless this guard knows a newer one, and report the service.

        Raises NotReady while the containers of this node are unknown, and what reading the record raises.
        """
        with self.jobs.lock:
            tended = self._service(service)
            if order is not None and adopts(order, tended.order, tended.local(self._boot)):
                if order != tended.order:
                    tended.adopt(order)
                    self.jobs.wake.set()
                self._keep(tended)
            self._note_expendable()
            self._last.require()
            return report(self.node.name, tended.order, tended.local(self._boot), self.leases.text)

    def progress(self, service: str) -> Mapping[str, str]:
        """Return one line for each container of a service that something is in progress for."""
        tended = self._tended.get(service)
        return dict(tended.progress) if tended else {}

    def lease(self, holder: str) -> AbstractContextManager[None]:
        """Let no engine start to load here while the context lasts. Raises Busy while one may, NotReady if unknown."""
        with self.jobs.lock:
            self._last.require()
            for service in self._services():
                with suppress(Unreadable):  # nothing of such a service starts
                    tended = self._service(service)
                    if why := load_ahead(tended, self._moment(tended)):
                        raise Busy(why, next_step=f"`--wait SECONDS` retries; sparkops follow {service}")
            self.leases.add(holder)
        return self.leases.until_end(holder)

    def wait(self, timeout_s: float) -> None:
        """Wait until there may be something to do, at most `timeout_s` seconds."""
        self.jobs.wake.wait(timeout_s)
        self.jobs.wake.clear()

    @property
    def calm(self) -> bool:
        """Whether nothing changes on this node and no start or stop is due."""
        with self.jobs.lock:
            return all(tended.calm(self._boot) for tended in self._tended.values())

    def reads(self, within_s: float) -> bool:
        """Return whether Docker was read within the last `within_s` seconds."""
        return time.monotonic() - self._last.began_s < within_s

    def tend(self) -> None:
        """Look at the containers once, and begin what is due for each service. An error stops one service only."""
        if not self._last.renew():
            return
        for service in self._services():
            try:
                self._tend(service)
            except (SparkopsError, OSError, ValueError) as error:
                self.log(f"{service}: {reason(error)}")
            except Exception:  # noqa: BLE001 - a bug with one service must not cost the others their guard
                self.log(f"{service}: {traceback.format_exc()}")

    def close(self) -> None:
        """Cancel what runs in threads. What they have begun continues in Docker."""
        with self.jobs.lock:
            for tended in self._tended.values():
                tended.cancel()
        self.engines.close()

    def expendable(self) -> tuple[tuple[str, RankSpec], ...]:
        """Return the running engines that may be killed for memory, with their services, the first to go first.

        As last seen: what needs memory to go on must not be waited for, so this and `killed` take no lock.
        """
        return self._expendable

    def killed(self, service: str, container: str, why: str) -> None:
        """Note that this guard is about to kill a container, so that the exit is not taken for an operator's stop."""
        tended = self._tended[service]
        tended.killed[container] = tended.problems[container] = why

    def _note_expendable(self) -> None:
        known = self._tended.values()
        self._expendable = tuple((one.service, one.ranks[name]) for one in known for name in one.expendable())

    @property
    def _boot(self) -> str:
        return self.state.clock().boot

    def _services(self) -> list[str]:
        with self.jobs.lock:
            known = set(self._tended)
        try:
            known |= set(self.state.services())
        except OSError as error:
            self.log(f"services of this node: {error}")
        return sorted(known)

    def _service(self, service: str) -> Tended:
        if service not in self._tended:
            record, by_hand = self.state.record(service), self.state.by_hand(service)
            restarted_s = restarts.last_s(self.state, service) if record.restarts else 0.0
            tended = Tended(service, self.node.name, record, by_hand, restarted_s)
            tended.see(self._last.containers, self._last.began_s)
            self._tended[service] = tended
        return self._tended[service]

    def _tend(self, service: str) -> None:
        with self.jobs.lock:
            tended = self._service(service)
            tended.see(self._last.containers, self._last.began_s)
            self._reset_restarts(tended)
            watch_starts(tended, self.jobs, self._boot)
            self._by_hand.note(tended, tended.by_hand - tended.running)
            ended = tended.ended(self._boot)
        if ended and tended.settled(ended):
            self._by_hand.ask(tended, ended)
        with self.jobs.lock:
            if tended.fresh:
                self._reconcile(tended)
            self._note_expendable()

    def _reset_restarts(self, tended: Tended) -> None:
        """The budget of starts from the boot record is whole again after an hour without one."""
        if tended.record.restarts and self.state.clock().now_s - tended.restarted_s >= restarts.HOUR_S:
            self._write(tended, replace(tended.record, restarts=0))

    def _reconcile(self, tended: Tended) -> None:
        """Write what belongs on disk, then begin the task that is due; cancel one that is not due any more."""
        if tended.job is not None:
            if isinstance(tended.job.task, CANCELLED) and self._wanted(tended) != tended.job.task:
                tended.job.cancel.set()
            return
        task = self._wanted(tended)
        while isinstance(task, Bookkeeping):
            self._book(tended, task)
            task = self._wanted(tended)
        if task is not None and time.monotonic() >= tended.retry_s:
            self.jobs.begin(tended, Job(task))

    def _wanted(self, tended: Tended) -> Task | None:
        moment = self._moment(tended)
        if (awaited := self.leases.awaited) and (container := starting(tended, moment)):
            tended.progress[container] = f"waiting for the {awaited}"
        return wanted(tended, moment)

    def _moment(self, tended: Tended) -> Moment:
        loads = any(other.loads for other in self._tended.values() if other is not tended)
        return Moment(self._boot, loads or bool(self.leases.awaited), self._marked_s, time.monotonic())

    def _keep(self, tended: Tended) -> None:
        """Write the copy of the journal and the boot record at once: the leader waits for them."""
        try:
            while isinstance(task := self._wanted(tended), effects.KeepCopy | effects.ArmBoot):
                self._book(tended, task)
        except OSError as error:  # the report shows which revision is on disk
            self.log(f"{tended.service}: order not written: {error}")

    def _book(self, tended: Tended, effect: Bookkeeping) -> None:
        """Write an effect that is a note on disk. Raises OSError, and then nothing follows from it."""
        if isinstance(effect, effects.MarkRestart):
            tended.restarted_s = restarts.note(self.state, tended.service, effect.container, self.log)
        self._write(tended, tended.record.after(effect, self._boot))
        if isinstance(effect, effects.KeepCopy):
            self.state.forget_secrets(tended.service, secrets(effect.journal), SECRET_S)
        if isinstance(effect, effects.MarkStart | effects.MarkRestart):
            tended.begin(effect.container)
            self._marked_s = time.monotonic()
            self._by_hand.note(tended, tended.by_hand - {effect.container})

    def _write(self, tended: Tended, record: Record) -> None:
        self.state.write_record(tended.service, record)
        tended.record = record
