"""What a guard does when it takes over: its part of a revert or of an end, on its own node and at its gateway."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from sparkops.command import Command, Completed
from sparkops.config.inventory import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.errors import SparkopsError
from sparkops.fleet import hands, room, traffic
from sparkops.fleet.connected import Member
from sparkops.fleet.hands import Hand
from sparkops.fleet.keep import Keep, on_node, put_away
from sparkops.fleet.progress import Event, Tell
from sparkops.guard.store import Store
from sparkops.nodes.engine import Engine
from sparkops.nodes.node import Node
from sparkops.plan.journal import Journal, Phase, Place, Placed, Swap, Verdict
from sparkops.plan.lock import put, renew
from sparkops.plan.takeover import Duty, Part, blue_was_stopped, no_traffic

POLL_S = 1.0


@dataclass(frozen=True)
class Post:
    """Where a guard stands: its node's journals and its node. `log` takes one line."""

    store: Store
    node: Node
    log: Tell

    def hand(self, service: str, generation: int | None = None) -> Hand:
        """A hand on this node; it changes something only under the lock of `generation`."""
        member = Member(self.node.name, NodeConfig(transport="local"), self.node, Engine(self.node))

        def run(command: Command) -> Completed:
            if generation is None:
                raise SparkopsError(f"`{command}` without the lock of {service}")
            return self.store.guarded(service, generation, lambda: self.node.run(command))

        def told(event: Event) -> None:
            """Every sign of life keeps the lock: a start may take longer than a lease."""
            if generation is not None:
                self.store.change(service, lambda j, c: renew(j, generation, c))
            if event.lasting:
                self.log(event)

        return Hand(member, run, told)


@dataclass
class Work:
    """One takeover of one service under the lock."""

    post: Post
    service: str
    generation: int
    hand: Hand = field(init=False)
    journal: Journal = field(init=False)
    evidence: list[str] = field(default_factory=list)
    """Where the evidence of a reverted swap is."""

    def __post_init__(self) -> None:
        self.hand = self.post.hand(self.service, self.generation)
        self.journal = self.post.store.read(self.service)

    def do(self, due: Duty | Part) -> None:
        """Do what is due on this node, and write down that it is done."""
        swap = self.journal.swap
        if due is Duty.RETIRE:
            self._retire()
        elif swap is None:
            return
        elif due is Part.KEEP_GREEN:
            self._keep_green(swap)
        elif due is Part.FINISH:
            self._keep_green(swap)
            self._end_blue(swap)
        elif due is Part.REVERT or swap.gateway.node != self.post.node.name:
            self._revert_here(swap)
            self._write(swap=None)
        else:
            self._decide(swap, due)

    def _decide(self, swap: Swap, due: Duty | Part) -> None:
        """The gateway is here: what is decided is written down before it is done, and the other guards hear of it."""
        finish, judge = due is Duty.FINISH, due is Duty.JUDGE
        stays = (finish and not self._green_is_lost(swap)) or (judge and hands.is_right(self.hand, swap.green))
        verdict = Verdict.FINISH if stays else Verdict.REVERT
        swap = self._note(swap, verdict=verdict)
        if stays:
            self._finish(swap)
        else:
            self._revert(swap)

    def _green_is_lost(self, swap: Swap) -> bool:
        """Whether clients would get answers of blue only, although green was promoted. What is decided stays so."""
        if swap.verdict or swap.blue is None:
            return False
        return [traffic.reaches(self.hand, self.service, each) for each in (swap.blue, swap.green)] == [True, False]

    def _note(self, swap: Swap, **changes: Any) -> Swap:
        noted = swap.model_copy(update=changes)
        self._write(swap=noted)
        return noted

    def _write(self, **changes: Any) -> None:
        new = self.journal.model_copy(update={"trouble": None, **changes})
        self.journal = self.post.store.change(self.service, lambda j, _: put(j, new, self.generation))

    def _here(self, placed: Placed | None) -> Place | None:
        return placed.on(self.post.node.name) if placed else None

    def _revert(self, swap: Swap) -> None:
        """Traffic first, then engines: green must not stop while it still has requests."""
        blue = swap.blue
        switched = swap.phase.order >= Phase.SWITCH.order
        if switched and not swap.traffic_moved:
            up = blue if blue and not no_traffic(swap) and hands.answers(self.hand, blue) else None
            traffic.give_traffic(self.hand, self.service, up)
        swap = self._note(swap, traffic_moved=True)
        self._revert_here(swap)
        if blue and (switched or no_traffic(swap)):
            self._wait_for(blue)
            traffic.give_traffic(self.hand, self.service, blue)
        self._write(swap=None)

    def _revert_here(self, swap: Swap) -> None:
        """Green ends here, and blue runs: it starts where the swap has stopped it, or a reboot."""
        green, blue = self._here(swap.green), self._here(swap.blue)
        if green:
            keep = Keep(
                lambda _: self.post.store.failure(self.service, swap.green.release),
                shown=lambda path: on_node(self.post.node.name, path),
                saved=self.evidence,
            )
            put_away(self.hand.member, green.container, keep, SparkopsError("taken over"), self.hand.run)
        if swap.blue is None or blue is None:
            return
        if blue_was_stopped(swap):
            self._run_again(swap.blue)
        elif swap.phase.order >= Phase.SWITCH.order:
            container = self.hand.container(blue.container)
            if container and container.running:
                hands.arm(self.hand, blue.container)
            else:
                self._run_again(swap.blue)

    def _run_again(self, placed: Placed) -> None:
        """This node's rank runs, and starts by itself after a reboot; where rank 0 is, the release must answer."""
        room.start_rank(self.hand, placed)
        if placed.node == self.post.node.name:
            hands.believe(self.hand, placed)
        hands.arm(self.hand, hands.rank_here(self.hand, placed).container)

    def _finish(self, swap: Swap) -> None:
        """Green stays, and blue ends once nothing is under way in it.

        The deploy may have gone between writing down the switch and doing it, and after a reboot green may be down.
        """
        self._keep_green(swap)
        self._wait_for(swap.green)
        traffic.give_traffic(self.hand, self.service, swap.green)
        if swap.blue:
            traffic.drained(self.hand, self.service, swap.blue, Recipe.model_validate(swap.blue.recipe).swap.drain_s)
        self._end_blue(self._note(swap, traffic_moved=True))

    def _keep_green(self, swap: Swap) -> None:
        """At no time may both start by themselves: blue loses its restart policy before green gets it."""
        if blue := self._here(swap.blue):
            hands.disarm(self.hand, blue.container)
        if self._here(swap.green):
            self._run_again(swap.green)

    def _end_blue(self, swap: Swap) -> None:
        if swap.blue:
            self._stop(swap.blue)
        self._write(swap=None, active=swap.green, previous=swap.blue)

    def _retire(self) -> None:
        """The warm release stops, unless it has the traffic again."""
        retirement, active = self.journal.retirement, self.journal.active
        if retirement and not (active and active.where == retirement.placed.where):
            self._stop(retirement.placed)
        self._write(retirement=None)

    def _stop(self, placed: Placed) -> None:
        if self._here(placed):
            hands.stop_rank(self.hand, placed)

    def _wait_for(self, placed: Placed) -> None:
        """A release may run on another node, whose guard starts it again."""
        end = time.monotonic() + Recipe.model_validate(placed.recipe).probe.startup.ceiling_s
        while not hands.answers(self.hand, placed):
            if time.monotonic() > end:
                problem = f"{placed.release} on {placed.node} does not answer, so it cannot get the traffic"
                raise SparkopsError(f"{problem} of {self.service}")
            self.hand.tell(Event(self.post.node.name, f"waiting for {placed.release}", lasting=False))
            self.hand.pause(POLL_S)
