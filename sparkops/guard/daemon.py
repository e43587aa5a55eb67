"""The guard: on its own node, it brings to an end what a deploy has left.

It acts when the lock's lease has run out and plan/takeover.py says what is due: after the deadline, or at once
after a reboot. While it acts it holds the lock, so a laptop that wakes up is refused.
"""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from sparkops.commands import guard as commands
from sparkops.errors import Busy, CommandFailed, ConnectionLost, SparkopsError
from sparkops.fleet import hands
from sparkops.guard import word
from sparkops.guard.filter import Filter
from sparkops.guard.relief import Relief
from sparkops.guard.store import Store
from sparkops.guard.work import Post, Work
from sparkops.nodes.node import Node
from sparkops.plan.journal import Front, Journal, Placed, Retirement, Swap
from sparkops.plan.lock import Clock, Refusal, acquire, release
from sparkops.plan.takeover import Duty, Part, Word, cause, duty, may_retire, part
from sparkops.redact import redacted

LOOK_S = 1.0
SILENCE_S = 30.0  # a green that waits for promotion may be silent for so long
TRIES = 3  # in vain, before it is said that a person is needed; the guard goes on trying
PAUSES_S = (5.0, 15.0, 60.0)
DOCKER_LOOKS, DOCKER_MISSES = 15, 2  # every so many looks Docker is asked for its version; so often it may miss
Ask = Callable[[Front, str], Word | None]


@dataclass
class Attempts:
    """What has gone wrong with a service: how often in a row, and when it is tried again."""

    failed: int = 0
    again_s: float = 0.0
    silent_since_s: float | None = None


@dataclass(frozen=True)
class Guard:
    """The guard of one node. `ask` asks the guard beside the gateway."""

    store: Store
    node: Node
    ask: Ask = word.ask
    attempts: dict[str, Attempts] = field(default_factory=dict)

    def tend(self) -> None:
        """Look at every service once."""
        for service in self.store.services():
            self.look(service)

    def look(self, service: str) -> None:
        """Look at one service, and do what is due. What fails is tried again, later and later."""
        tried = self.attempts.setdefault(service, Attempts())
        if self.store.clock().now_s < tried.again_s:
            return
        try:
            self._tend(service)
            tried.failed = 0
        except Busy:
            return  # somebody was quicker
        except (SparkopsError, OSError) as error:
            self._failed(service, tried, str(error))
        except Exception:  # noqa: BLE001 - a bug with one service must not cost the others their guard
            self._failed(service, tried, traceback.format_exc())

    def _failed(self, service: str, tried: Attempts, why: str) -> None:
        log(f"{service}: {why}")
        tried.failed += 1
        tried.again_s = self.store.clock().now_s + PAUSES_S[min(tried.failed, len(PAUSES_S)) - 1]
        if tried.failed >= TRIES:
            trouble = f"the guard of {self.node.name} has tried {tried.failed} times: {why.splitlines()[-1]}"
            with suppress(SparkopsError, OSError):  # it could not even read the journal, and has logged that
                self.store.change(service, lambda j, _: j.model_copy(update={"trouble": trouble}))

    def _tend(self, service: str) -> None:
        journal = self.store.read(service)
        due = duty(journal, self.store.clock(), self.node.name)
        to_do = self._to_do(service, journal, due)
        if to_do is None:
            return
        with self._holding(service, due) as generation:
            log(f"{service}: {to_do}")
            work = Work(self._post(), service, generation)
            work.do(to_do)
        why = {**cause(journal), "evidence": work.evidence} if journal.swap else {}
        self.store.remember(service, {"event": f"guard: {to_do}", "node": self.node.name, **why})

    def _to_do(self, service: str, journal: Journal, due: Duty) -> Duty | Part | None:
        """What is left of a duty after a look at what is true."""
        swap = journal.swap
        if due is Duty.ASK:
            return self._told(service, journal)
        if due is Duty.RETIRE:
            return due if self._is_spare(service, journal) else None
        if due is Duty.LOOK_AT_BLUE and swap and swap.blue:
            return Duty.REVERT if self._answers(service, swap.blue) else None
        if due is Duty.LOOK_AT_GREEN and swap:
            return Duty.REVERT if self._silent(service, swap.green) else None
        return None if due is Duty.NOTHING else due

    def _told(self, service: str, journal: Journal) -> Duty | Part | None:
        """What the guard beside the gateway wants done here."""
        of = journal.swap or journal.retirement
        told = self.ask(of.gateway, service) if of else None
        if told is None:
            return None
        if isinstance(of, Retirement):
            return self._retires(service, journal, told)
        wanted = part(of, told) if of else Part.WAIT
        kept = wanted is Part.KEEP_GREEN and isinstance(of, Swap) and self._keeps(service, of)
        return None if kept or wanted is Part.WAIT else wanted

    def _retires(self, service: str, journal: Journal, told: Word) -> Duty | None:
        """A warm release that has the traffic again is not to be stopped: this node has not heard of it."""
        may = may_retire(journal, told)
        if may is False:
            self.store.change(service, lambda j, _: j.model_copy(update={"retirement": None}))
        return Duty.RETIRE if may else None

    def _is_spare(self, service: str, journal: Journal) -> bool:
        """Whether a warm release may stop: not while it answers, and the one that has the traffic does not rightly."""
        active, retirement = journal.active, journal.retirement
        if active is None or retirement is None:
            return True
        if self._answers(service, active) and hands.is_right(self._post().hand(service), active):
            return True
        return not self._answers(service, retirement.placed)

    def _keeps(self, service: str, swap: Swap) -> bool:
        """Whether green runs and blue will not start by itself, as far as they are here."""
        hand = self._post().hand(service)
        green, blue = (each.on(self.node.name) if each else None for each in (swap.green, swap.blue))
        runs = hand.container(green.container) if green else None
        stays = hand.container(blue.container) if blue else None
        green_keeps = runs is None or (runs.running and runs.restart_policy != "no")
        return green_keeps and (stays is None or stays.restart_policy == "no")

    def _answers(self, service: str, placed: Placed) -> bool:
        return hands.answers(self._post().hand(service), placed)

    def _silent(self, service: str, green: Placed) -> bool:
        """Whether a green that waits for promotion has not answered for too long."""
        tried, now_s = self.attempts.setdefault(service, Attempts()), self.store.clock().now_s
        if self._answers(service, green):
            tried.silent_since_s = None
            return False
        tried.silent_since_s = now_s if tried.silent_since_s is None else tried.silent_since_s
        return now_s - tried.silent_since_s >= SILENCE_S

    def _post(self) -> Post:
        return Post(self.store, self.node, lambda event: log(f"{event.node}: {event.text}"))

    @contextmanager
    def _holding(self, service: str, due: Duty) -> Iterator[int]:
        """Hold the lock, unless a deploy has come between and what was due is due no more."""
        owner = f"the guard of {self.node.name}"

        def take(journal: Journal, clock: Clock) -> Journal | Refusal:
            still = duty(journal, clock, self.node.name) is due
            return acquire(journal, owner, owner, clock) if still else Refusal("somebody was quicker")

        taken = self.store.change(service, take)
        try:
            yield taken.generation
        finally:
            with suppress(Busy):
                self.store.change(service, lambda j, _: release(j, taken.generation))


def log(text: str) -> None:
    """One line in the container's log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {redacted(text)}\n")
    sys.stderr.flush()


def watch(store: Store, node: Node, sleep: Callable[[float], object] = time.sleep) -> None:
    """Look for as long as Docker answers, at each service in a thread of its own: a start takes many minutes.

    When it returns, Docker starts the container again, with a socket that leads to the Docker that runs now.
    Raises OSError where the port that other guards ask on is taken.
    """
    log(f"guarding {node.name}")
    guard, relief, looking, misses = Guard(store, node), Relief(store, node, log), dict[str, threading.Thread](), 0
    ports = Filter(node, log)
    with word.tell(store):
        while misses < DOCKER_MISSES:
            ports.look()
            for _ in range(DOCKER_LOOKS):
                _look_at_all(guard, looking)
                relief.look()
                sleep(LOOK_S)
            misses = 0 if _docker_answers(node) else misses + 1
    log("Docker does not answer any more")


def _look_at_all(guard: Guard, looking: dict[str, threading.Thread]) -> None:
    for service in guard.store.services():
        if service not in looking or not looking[service].is_alive():
            looking[service] = threading.Thread(target=guard.look, args=(service,), daemon=True)
            looking[service].start()


def _docker_answers(node: Node) -> bool:
    try:
        node.run(commands.DOCKER)
    except (CommandFailed, ConnectionLost):
        return False
    return True
