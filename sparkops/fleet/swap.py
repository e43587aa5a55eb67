"""The swap: each phase is written down before it is done, and looks before it acts, so it may be done again."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from sparkops.errors import Busy, InPlaceFailed, ProbeFailed, SparkopsError, StartFailed
from sparkops.fleet import hands, pair, traffic
from sparkops.fleet.connected import Connected
from sparkops.fleet.hands import Hand
from sparkops.fleet.held import Held
from sparkops.fleet.keep import Keep
from sparkops.fleet.phases import ACTS, Round
from sparkops.fleet.progress import Event, Tell
from sparkops.fleet.revert import revert
from sparkops.plan.deploy import Observed
from sparkops.plan.journal import Front, Journal, Mode, Phase, Place, Placed, Retirement, Swap, Verdict
from sparkops.plan.swap import SwapPlan
from sparkops.plan.takeover import no_traffic

GUARD_MARGIN_S = 300.0  # after the longest start a recipe allows, the guard takes over where the deploy has gone
INTERRUPTED = 130


@dataclass
class Saga:
    """One swap under way. `front` is where the gateway is, `promote` False stops after the switch."""

    plan: SwapPlan
    observed: Mapping[str, Observed]
    front: Front
    connected: Connected
    held: Held
    keep: Keep
    tell: Tell
    promote: bool = True
    journal: Journal = field(init=False)
    times: list[tuple[str, float]] = field(default_factory=list)
    cut: int = 0
    unfinished: str | None = None

    def __post_init__(self) -> None:
        self.journal = self.held.journals[self.front.node]
        self.round = Round(
            plan=self.plan,
            green=placed(self.plan, self.connected),
            observed=self.observed,
            hand_of=self.hand,
            gateway=self.hand(self.front.node),
            keep=self.keep,
            generation=str(self.journal.generation),
        )

    def hand(self, node: str) -> Hand:
        """A hand on a node, fenced by the lock."""
        return Hand(self.connected.members[node], lambda command: self.held.run(node, command), self.tell)

    def run(self, begin: Phase = Phase.ARM) -> None:
        """All phases from `begin` on. A failure brings blue back; Ctrl-C leaves what the next deploy adopts."""
        try:
            for phase in self.plan.phases:
                if phase.order < begin.order:
                    continue
                waiting = phase is Phase.BAKE and not self.promote
                self.enter(phase, waiting=waiting)
                if waiting:
                    return
                self.cut += ACTS[phase](self.round)
            self.commit()
        except SparkopsError as error:
            if error.exit_code in (INTERRUPTED, Busy.exit_code):  # busy: who has taken over ends it
                raise
            pair.explain(self.plan, self.round.green, self.hand, error)
            promoted = self.journal.swap and self.journal.swap.phase.order >= Phase.PROMOTE.order
            if self.journal.swap and promoted and not self.green_is_lost(error):
                self.leave(self.journal.swap, error)
            else:
                self.revert(error)

    def enter(self, phase: Phase, *, waiting: bool = False) -> None:
        """Write down what is about to be done, on every node that takes part. That is what arms the guards."""
        self.times.append((phase.value, time.monotonic()))
        swap = Swap(
            deploy=self.held.claim.deploy,
            mode=self.plan.mode,
            gateway=self.front,
            green=self.round.green,
            blue=self.plan.blue,
            phase=phase,
            waiting=waiting,
        )
        patience_s = self.plan.release.recipe.probe.startup.ceiling_s + GUARD_MARGIN_S
        self.write(self.journal.model_copy(update={"swap": swap, "retirement": None, "trouble": None}), patience_s)
        self.tell(Event(self.plan.rank.node, f"phase {phase}", lasting=False))

    def write(self, journal: Journal, patience_s: float) -> None:
        """Write the journal everywhere."""
        self.held.put(journal, time.monotonic() + patience_s)
        self.journal = journal

    def commit(self) -> None:
        """Green is the release of the service. A warm blue waits for its retirement."""
        keep_s = self.plan.release.recipe.swap.keep_blue_s
        blue = self.plan.blue
        warm = blue and keep_s and self.plan.mode in (Mode.BESIDE, Mode.ACROSS)
        retirement = Retirement(placed=blue, gateway=self.front) if blue and warm else None
        changes = {"swap": None, "active": self.round.green, "previous": blue, "retirement": retirement}
        self.write(self.journal.model_copy(update=changes), keep_s)
        self.held.remember(self.front.node, {"event": "deployed", **self.summary()})

    def summary(self) -> dict[str, Any]:
        """What is remembered, and printed with --json."""
        moments = [*self.times, ("end", time.monotonic())]
        return {
            "release": self.round.green.release,
            "mode": self.plan.mode.value,
            "green": hands.as_json(self.round.green),
            "blue": hands.as_json(self.plan.blue),
            "cut": self.cut,
            "unfinished": self.unfinished,
            "seconds": {phase: round(later - at, 2) for (phase, at), (_, later) in pairwise(moments)},
        }

    def green_is_lost(self, error: SparkopsError) -> bool:
        """Whether a promoted green has failed while blue, which is still there, answers: then blue is right again.

        What counts is what clients get. That green cannot be reached from here says nothing.
        """
        round_, blue = self.round, self.plan.blue
        if blue is None or not traffic.reaches(round_.gateway, round_.service, blue):
            return False
        if isinstance(error, ProbeFailed) or not traffic.reaches(round_.gateway, round_.service, round_.green):
            return True
        return isinstance(error, StartFailed) and not hands.is_right(round_.here, round_.green)

    def leave(self, swap: Swap, error: SparkopsError) -> None:
        """Green was promoted, and stays: the guards do what is left as soon as the lock is free."""
        self.unfinished = f"{swap.phase} failed: {error}"
        decided = swap.model_copy(update={"verdict": Verdict.FINISH})
        self.held.put_where_possible(self.journal.model_copy(update={"swap": decided}))
        self.tell(Event(self.plan.rank.node, f"green has the traffic and stays, but {self.unfinished}"))

    def revert(self, error: SparkopsError) -> None:
        """Bring blue back, then raise: with blue serving, or with what a person must do."""
        swap = self.journal.swap
        if swap is None:
            raise error
        self.tell(Event(self.plan.rank.node, f"{swap.phase} failed, going back: {error}"))
        revert(self.held, self.journal, swap, self.hand, self.keep, error)
        why = {"phase": swap.phase, "why": str(error)[:500], "evidence": self.keep.saved}
        self.held.remember(self.front.node, {"event": "reverted", "release": self.round.green.release, **why})
        if no_traffic(swap) and swap.blue:
            raise InPlaceFailed(f"{error}\n{swap.blue.release} serves again", next_step=error.next_step) from error
        raise error


def placed(plan: SwapPlan, connected: Connected) -> Placed:
    """Green, as the journal names it."""
    return Placed(
        release=plan.release.id,
        slot=plan.rank.slot.value,
        node=plan.rank.node,
        address=connected.fleet.engine_address(plan.rank.node),
        port=plan.rank.port,
        container=plan.rank.container,
        workers=tuple(Place(node=rank.node, container=rank.container) for rank in plan.ranks[1:]),
        recipe=plan.release.recipe.model_dump(mode="json", exclude_none=True),
    )
