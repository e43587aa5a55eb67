"""The guard: on its own node, it brings to an end what a deploy has left.

It acts when the lock's lease has run out and plan/takeover.py says what is due: after the deadline, or at once
after a reboot. While it acts it holds the lock, so a laptop that wakes up is refused.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sparkops.commands import gateway
from sparkops.config.inventory import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.errors import Busy, SparkopsError
from sparkops.fleet import hands
from sparkops.fleet.connected import Member
from sparkops.fleet.hands import Hand
from sparkops.fleet.keep import Keep, put_away
from sparkops.fleet.progress import Event
from sparkops.fleet.revert import restore
from sparkops.guard.store import Store
from sparkops.nodes.engine import Engine
from sparkops.nodes.node import Node
from sparkops.plan.journal import Clock, Journal, Phase, Placed, Refusal, Swap, acquire, put, release, renew
from sparkops.plan.takeover import Duty, blue_was_stopped, duty, no_traffic

LOOK_S = 1.0


@dataclass(frozen=True)
class Guard:
    """The guard of one node."""

    store: Store
    node: Node

    def tend(self) -> None:
        """Look at every service once."""
        for service in self.store.services():
            try:
                self._tend(service)
            except Busy:
                continue  # somebody was quicker
            except (SparkopsError, OSError) as error:
                log(f"{service}: {error}")
            except Exception:  # noqa: BLE001 - a bug with one service must not cost the others their guard
                log(f"{service}: {traceback.format_exc()}")

    def _tend(self, service: str) -> None:
        due = duty(self.store.read(service), self.store.clock())
        if due is Duty.NOTHING:
            return
        with self._holding(service, due) as generation:
            log(f"{service}: {due}")
            done = Work(self, service, generation).do(due)
            self.store.change(service, lambda j, _: put(j, done, generation))
        self.store.remember(service, {"event": f"guard: {due}", "node": self.node.name})

    @contextmanager
    def _holding(self, service: str, due: Duty) -> Iterator[int]:
        """Hold the lock, unless a deploy has come between and what was due is due no more."""
        owner = f"the guard of {self.node.name}"

        def take(journal: Journal, clock: Clock) -> Journal | Refusal:
            still = duty(journal, clock) is due
            return acquire(journal, owner, owner, clock) if still else Refusal("somebody was quicker")

        taken = self.store.change(service, take)
        try:
            yield taken.generation
        finally:
            with suppress(Busy):
                self.store.change(service, lambda j, _: release(j, taken.generation))


@dataclass
class Work:
    """One takeover."""

    guard: Guard
    service: str
    generation: int

    def do(self, due: Duty) -> Journal:
        """Do what is due on this node. Returns the journal as it is to be written."""
        self.hand = self._hand()
        journal = self.guard.store.read(self.service)
        if due is Duty.RETIRE and journal.retirement:
            self._stop(journal.retirement.placed)
            return journal.model_copy(update={"retirement": None})
        if journal.swap is None:
            return journal
        if due is Duty.REVERT or (due is Duty.JUDGE and not self._green_is_good(journal.swap)):
            self._revert(journal.swap)
            return journal.model_copy(update={"swap": None})
        self._finish(journal.swap)
        return journal.model_copy(update={"swap": None, "active": journal.swap.green, "previous": journal.swap.blue})

    def _hand(self) -> Hand:
        node = self.guard.node
        member = Member(node.name, NodeConfig(transport="local"), node, Engine(node))
        return Hand(member, self._run, self._told)

    def _run(self, command: Any) -> Any:
        return self.guard.store.guarded(self.service, self.generation, lambda: self.guard.node.run(command))

    def _told(self, event: Event) -> None:
        """Every sign of life keeps the lock: a start may take longer than a lease."""
        self.guard.store.change(self.service, lambda j, c: renew(j, self.generation, c))
        if event.lasting:
            log(f"{self.service}: {event.text}")

    def _here(self, placed: Placed | None) -> bool:
        return placed is not None and placed.node == self.guard.node.name

    def _green_is_good(self, swap: Swap) -> bool:
        try:
            if self._here(swap.green):
                return hands.light_pass(self.hand, swap.green).ok
            return hands.answers(self.hand, swap.green)
        except SparkopsError as error:
            log(f"{self.service}: {error}")
            return False

    def _revert(self, swap: Swap) -> None:
        """Traffic first, then engines: green must not stop while it still has requests."""
        at_gateway = swap.gateway == self.guard.node.name
        if at_gateway and swap.phase.order >= Phase.SWITCH.order:
            hands.give_traffic(self.hand, self.service, None if no_traffic(swap) else swap.blue)
        if self._here(swap.green):
            keep = Keep(lambda _: self.guard.store.directory / "failures" / swap.green.release)
            put_away(self.hand.member, swap.green.container, keep, SparkopsError("taken over"), self.hand.run)
        if swap.blue and self._here(swap.blue) and blue_was_stopped(swap):
            restore(self.hand, swap.blue)
        if at_gateway and no_traffic(swap) and swap.blue:
            self._when_it_answers(swap.blue)

    def _when_it_answers(self, placed: Placed) -> None:
        """Blue may run on another node, whose guard starts it again."""
        recipe = Recipe.model_validate(placed.recipe)
        end = time.monotonic() + recipe.probe.startup.ceiling_s
        while not hands.answers(self.hand, placed):
            if time.monotonic() > end:
                raise SparkopsError(f"{placed.release} does not answer: nobody has the traffic of {self.service}")
            self._told(Event(self.guard.node.name, "waiting for blue", lasting=False))
            self.hand.pause(LOOK_S)
        hands.give_traffic(self.hand, self.service, placed)

    def _finish(self, swap: Swap) -> None:
        """Green stays: it has the traffic and its restart policy, and blue ends once nothing is under way in it.

        The deploy may have gone between writing down the switch and doing it, and after a reboot green may be down.
        """
        at_gateway = swap.gateway == self.guard.node.name
        if swap.blue and self._here(swap.blue):
            hands.disarm(self.hand, swap.blue.container)
        if self._here(swap.green):
            hands.start_again(self.hand, swap.green)
        if at_gateway:
            hands.give_traffic(self.hand, self.service, swap.green)
        if swap.blue and self._here(swap.blue):
            if at_gateway:
                hands.drained(self.hand, self.service, swap.blue, Recipe.model_validate(swap.blue.recipe).swap.drain_s)
            self._stop(swap.blue)

    def _stop(self, placed: Placed) -> None:
        if self._here(placed):
            hands.stop_engine(self.hand, placed.container, Recipe.model_validate(placed.recipe).serve.stop_grace_s)


def log(text: str) -> None:
    """One line in the container's log."""
    sys.stderr.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")
    sys.stderr.flush()


def watch(store: Store, node: Node, sleep: Callable[[float], None] = time.sleep) -> None:
    """Look for ever."""
    log(f"guarding {node.name}; gateway container: {gateway.CONTAINER}")
    guard = Guard(store, node)
    while True:
        guard.tend()
        sleep(LOOK_S)
