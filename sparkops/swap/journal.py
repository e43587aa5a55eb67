"""The journal of a service: its intended state. A method returns the journal after one change, one revision later."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from sparkops.swap.model import PHASES, Deployment, Mode, Phase, RankSpec, Replica
from sparkops.swap.rolling import next_step

SCHEMA = 2
Present = TypeVar("Present")
ROLLBACK = "rollback"
"""The verb of an intent that returns to an earlier release."""
OUTCOMES = 16  # outcomes kept, so that a repeated intent gets its first result
HOUR_S = 3600.0
RESTARTS = 3
"""Restarts of a release within HOUR_S, so that a broken engine is not restarted forever: by its guard from the boot
record, and by the leader if a replica over several nodes or the release of a return fails."""
PAUSES_S = (20.0, 300.0)
"""Least seconds from the first restart of an hour to the second, and from that to the third, since a driver or a disk
may be late after a boot."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an intent: accepted, done, reverted or stopped, and why; with its verb and its sender."""

    intent: str
    result: str
    why: str = ""
    verb: str = ""
    by: str = ""

    @property
    def sender(self) -> str:
        """Verb and sender, as `rollback by ann@laptop`; empty for an intent of an older client, without a sender."""
        return f"{self.verb} by {self.by}" if self.by else ""


@dataclass(frozen=True, slots=True)
class Swap:
    """A change from `source` to `target`. A revert is a swap with the two exchanged, a restart one to itself."""

    intent: str
    mode: Mode
    target: Deployment
    source: Deployment | None
    key: str
    """The start of the target's ranks: each key starts a container once."""
    phase: Phase
    reverting: bool = False
    automatic: bool = True
    """Whether the target is promoted after its bake, without the intent `promote`."""
    previous: Deployment | None = None
    """The previous release before this swap."""
    why: str = ""
    kept: tuple[Replica, ...] = ()
    """Replicas of source and target that serve on, untouched."""
    goal: Deployment | None = None
    """What the target is a step to; None where this swap is the last step, or the only one."""

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that this swap goes through."""
        skipped = {Phase.WORKERS} if self.coming.alone else set()
        if not self.coming.replicas:
            skipped |= {Phase.PREPARE, Phase.START, Phase.LOAD, Phase.VERIFY, Phase.BAKE}
        if self.retries:
            skipped |= {Phase.PREPARE, Phase.BAKE, *((Phase.PROMOTE,) if self.restarts else ())}
        return tuple(phase for phase in PHASES[self.mode] if phase not in skipped)

    @property
    def following(self) -> Phase | None:
        """Return the next phase; None at the end."""
        return next((phase for phase in self.phases if phase.order > self.phase.order), None)

    @property
    def waits(self) -> bool:
        """Whether its release has the traffic, and an operator decides whether it stays."""
        return not self.automatic and self.phase is Phase.BAKE

    def reached(self, phase: Phase) -> bool:
        """Return whether the swap is in `phase` or after it."""
        return self.phase.order >= phase.order

    @property
    def restarts(self) -> bool:
        """Whether the promoted release starts again, since it is dead or a rank of several has ended."""
        return self.source == self.target

    @property
    def coming(self) -> Deployment:
        """The part of the target that starts."""
        return self.target.less(self.kept) if self.kept else self.target

    @property
    def leaving(self) -> Deployment | None:
        """The part of the source that is replaced."""
        return self.source.less(self.kept) if self.kept and self.source else self.source

    @property
    def rest(self) -> Deployment | None:
        """The part that serves on while the other part is replaced, as its slot has it; None without any.

        A return names it as the swap did: the slot may still have it so.
        """
        whole = self.target if self.reverting else self.source
        return whole.only(self.kept) if self.kept and whole else None

    @property
    def proving(self) -> Deployment:
        """What must answer through the gateway before the switch: in the other slot where replicas serve in its own."""
        return replace(self.coming, slot=self.target.slot.other) if self.kept else self.target

    @property
    def retries(self) -> bool:
        """Whether a start that fails is retried: there is no other release to return to."""
        return self.reverting or self.restarts

    @property
    def way(self) -> str:
        """The mode, as people are told it."""
        return "restart" if self.restarts else self.mode.value

    @property
    def before(self) -> Deployment | None:
        """The previous release once the target is promoted. A move of a release keeps the one that served before it.

        So does a start after a stop, where nothing serves, and a step that changes replicas of one release.
        """
        source, previous = self.source, self.previous
        moved = source is None or source.release == self.target.release
        kept = bool(self.kept) or (previous is not None and previous.release != self.target.release)
        return previous if self.reverting or (moved and kept) else source

    @property
    def stops_source(self) -> bool:
        """Whether the source's containers are stopped before the target starts."""
        return self.mode.stops_source

    @property
    def withdrawn(self) -> bool:
        """Whether what leaves has lost the traffic, by plan, and what comes does not have it yet."""
        return self.stops_source and self.reached(Phase.QUIESCE) and not self.reached(Phase.SWITCH)

    @property
    def keeps_source(self) -> bool:
        """Whether the source, if there is one, has kept the traffic so far: to end the swap is to stop the target."""
        return not self.reached(Phase.QUIESCE if self.stops_source else Phase.SWITCH)

    @property
    def lasts_s(self) -> float:
        """Longest time without progress in a phase that takes long by nature; infinite where an operator ends it."""
        limits, drains = self.target.limits, (self.source or self.target).limits
        match self.phase:
            case Phase.PREPARE | Phase.WORKERS | Phase.START | Phase.LOAD:
                return limits.load_s  # of its own load, or of that of another service's engine
            case Phase.VERIFY:
                return limits.verify_s
            case Phase.QUIESCE | Phase.DRAIN:
                return drains.drain_s + drains.unknown_s
            case _:
                return float("inf")

    @property
    def offline(self) -> bool:
        """Whether no release has the traffic, by plan."""
        return self.withdrawn and not self.kept


@dataclass(frozen=True, slots=True)
class Journal:
    """The intended state of one service, kept by the leader; every guard keeps a copy."""

    service: str
    leader: str
    peers: tuple[str, ...] = ()
    """Nodes of the other guards, which keep copies."""
    without: frozenset[str] = frozenset()
    """Nodes that the operator gave up. No phase waits for them; they get orders if they return."""
    term: int = 1
    revision: int = 0
    active: Deployment | None = None
    previous: Deployment | None = None
    """The release before the active one; of a stopped service, the one that it has stopped."""
    earlier: Deployment | None = None
    """Of a stopped service: the release before `previous`."""
    withdrawn: str = ""
    """The release that the last rollback has left: another rollback does not go forward to it."""
    swap: Swap | None = None
    stopped: tuple[RankSpec, ...] = ()
    """Containers that must not run, until their guards confirm it. A node that returns gets its own from here."""
    stopping: bool = False
    hold: str = ""
    trouble: str = ""
    """Why the service needs an operator."""
    forgotten: bool = False
    """Whether an operator gave up the stopped service: its names and port are free. The next deploy ends that.

    The journal stays: its position is above that of every copy, which a new one would not be.
    """
    starts: int = 0
    restarts: int = 0
    """Restarts by the leader within an hour: after an intent or a promotion, the release has the whole budget."""
    outcomes: tuple[Outcome, ...] = ()
    schema: int = SCHEMA

    @property
    def position(self) -> tuple[int, int]:
        """Term and revision: of two journals of a service, the newer one has the higher position."""
        return self.term, self.revision

    @property
    def unfinished(self) -> Swap | None:
        """The swap in progress; None also while the old release is only kept warm."""
        swap = self.swap
        return swap if swap and (swap.reverting or swap.phase is not Phase.RETIRE) else None

    @property
    def warm(self) -> Deployment | None:
        """The old release that is kept for a quick return, after the swap; None without one."""
        return self.swap.source if self.swap and not self.unfinished else None

    @property
    def deployments(self) -> tuple[Deployment, ...]:
        """The releases whose engines may run."""
        swap = self.swap
        releases = (self.active, swap.target if swap else None, swap.source if swap else None)
        return tuple(dict.fromkeys(deployment for deployment in releases if deployment))

    @property
    def pointed(self) -> tuple[Deployment, ...]:
        """What a slot of the gateway may point at: the releases, and the parts of them during a rolling update."""
        parts = (self.swap.rest, self.swap.proving) if self.swap else ()
        return tuple(dict.fromkeys((*self.deployments, *(part for part in parts if part and part.replicas))))

    @property
    def halting(self) -> tuple[RankSpec, ...]:
        """The containers of a service without releases that may still run. Nodes that were given up do not count."""
        return () if self.deployments else tuple(rank for rank in self.stopped if rank.node not in self.without)

    def changed(self, **changes: Any) -> Journal:
        """Return the journal with these values, one revision later."""
        return replace(self, revision=self.revision + 1, **changes)

    def outcome(self, intent: str) -> Outcome | None:
        """Return the outcome of an intent; None if it is not kept any more."""
        return next((outcome for outcome in reversed(self.outcomes) if outcome.intent == intent), None)

    def sender(self, intent: str) -> str:
        """Return verb and sender of an intent; empty if they are not known."""
        outcome = self.outcome(intent)
        return outcome.sender if outcome else ""

    def _with(self, intent: str, result: str, why: str = "") -> tuple[Outcome, ...]:
        others = tuple(outcome for outcome in self.outcomes if outcome.intent != intent)
        known = self.outcome(intent) or Outcome(intent, result)
        return (*others, replace(known, result=result, why=why))[-OUTCOMES:]

    def signed(self, intent: str, verb: str, by: str) -> Journal:
        """Return the journal with verb and sender of the intent that it accepts: no revision of its own."""
        signed = (replace(item, verb=verb, by=by) if item.intent == intent else item for item in self.outcomes)
        return replace(self, outcomes=tuple(signed))

    def noted(self, intent: str, result: str, **changes: Any) -> Journal:
        """Return the journal with the outcome of an intent and further changes."""
        return self.changed(outcomes=self._with(intent, result), **changes)

    def _key(self) -> str:
        return f"{self.term}.{self.starts + 1}"

    def _stopped(self, ranks: Iterable[RankSpec]) -> tuple[RankSpec, ...]:
        known = {rank.place for rank in self.stopped}
        fresh = {rank.place: rank for rank in ranks if rank.place not in known}
        return (*self.stopped, *fresh.values())

    def begun(
        self, intent: str, mode: Mode, target: Deployment, *, automatic: bool, retire: Iterable[RankSpec] = ()
    ) -> Journal:
        """Begin a swap to `target`, or the first step to it. `retire`: containers that must not run any more.

        What was to stop before stops, a container of `target` as well: it may be about to end.
        """
        again = self.active is None and self.previous is not None and self.previous.release == target.release
        previous = self.earlier if again else self.previous
        swap = self._begun(intent, mode, target, automatic=automatic, previous=previous)
        started = {rank.place for item in (target, swap.source) if item for rank in item.ranks}
        stopped = self._stopped(rank for rank in retire if rank.place not in started)
        fresh = {"trouble": "", "restarts": 0, "forgotten": False}
        return self.noted(intent, "accepted", swap=swap, stopped=stopped, starts=self.starts + 1, **fresh)

    def _begun(
        self, intent: str, mode: Mode, goal: Deployment, *, automatic: bool, previous: Deployment | None
    ) -> Swap:
        source, target = self.active, goal
        kept: tuple[Replica, ...] = ()
        if mode is Mode.ROLLING and source:
            target = next_step(source, goal)
            kept = tuple(replica for replica in source.replicas if replica in target.replicas)
        swap = Swap(intent, mode, target, source, self._key(), Phase.PREPARE, automatic=automatic, previous=previous)
        swap = replace(swap, kept=kept, goal=goal if target != goal else None)
        return swap if swap.coming.replicas else replace(swap, phase=Phase.QUIESCE)

    def pauses(self, rested_s: float) -> bool:
        """Return whether the next restart within the budget is not due yet. `rested_s`: seconds since the last one."""
        return self.restarts > 0 and rested_s < PAUSES_S[self.restarts - 1]

    def restarted(self, why: str = "", kept: tuple[Replica, ...] = ()) -> Journal:
        """Stop and start every rank of the active release, since one of several ended, or the release is dead.

        `kept`: its replicas that serve on.
        """
        active, key = present(self.active), self._key()
        swap = Swap(f"restart {key}", Mode.IN_PLACE, active, active, key, Phase.QUIESCE, why=why, kept=kept)
        return self.changed(swap=swap, starts=self.starts + 1, restarts=self.restarts + 1, trouble="")

    def advanced(self) -> Journal:
        """Enter the next phase, or end the swap after the last one."""
        swap = present(self.swap)
        phase = swap.following
        if phase is None:
            return self._next_step(swap) if swap.goal else self.settled(swap.why)
        changes: dict[str, Any] = {"swap": replace(swap, phase=phase), "trouble": ""}
        if phase is Phase.PROMOTE:
            changes |= {"active": swap.target, "previous": swap.before, "restarts": 0, "earlier": None}
            changes["withdrawn"] = self.withdrawn if swap.retries else self._left_by(swap)
        if phase is Phase.RETIRE and not swap.reverting:  # the old release is only kept warm
            changes["outcomes"] = self._with(swap.intent, "done", swap.why)
        return self.changed(**changes)

    def _next_step(self, swap: Swap) -> Journal:
        """Begin the step after this one. What has left must not run any more."""
        goal = present(swap.goal)
        following = self._begun(swap.intent, swap.mode, goal, automatic=True, previous=self.previous)
        left = present(swap.leaving)
        return self.changed(swap=following, stopped=self._stopped(left.ranks), starts=self.starts + 1, trouble="")

    def _left_by(self, swap: Swap) -> str:
        """Return what the last rollback has left, once a swap is promoted; to return to it by name ends that."""
        outcome, release, left = self.outcome(swap.intent), swap.target.release, swap.before
        if release == self.withdrawn:
            return ""
        returns = outcome is not None and outcome.verb == ROLLBACK
        return left.release if returns and left and left.release != release else self.withdrawn

    def _over(self, ranks: Iterable[RankSpec], result: str, why: str, **changes: Any) -> Journal:
        """End the swap with a result; these containers stop."""
        outcomes = self._with(present(self.swap).intent, result, why)
        return self.changed(swap=None, stopped=self._stopped(ranks), outcomes=outcomes, trouble="", **changes)

    def reverted(self, why: str, *, ended: bool = False) -> Journal:
        """Return to the source: at once where it has the traffic, otherwise by a swap in reverse.

        A return that starts its release again is retried within the budget. `ended`: whether both releases have ended
        beside each other, so that the one that is returned to starts in place of the other one.
        """
        swap = present(self.swap)
        if ended and swap.reached(Phase.SWITCH) and not swap.stops_source:
            swap = replace(swap, mode=Mode.IN_PLACE)
        if swap.source is None and swap.reached(Phase.SWITCH):
            return self.changed(stopping=True, outcomes=self._with(swap.intent, "reverted", why))
        if swap.keeps_source or (swap.retries and not swap.stops_source):
            return self.settled(why)
        if self.restarts >= RESTARTS:
            if swap.kept:
                return self.settled(swap.why or why)
            return self if self.trouble else self.changed(trouble=why)
        back = swap if swap.retries else replace(swap, target=present(swap.source), source=swap.target, reverting=True)
        back = replace(back, goal=None, phase=_entry(swap), key=self._key(), why=why)
        return self.changed(swap=back, starts=self.starts + 1, restarts=self.restarts + swap.retries, trouble="")

    def left_out(self, replicas: tuple[Replica, ...], why: str) -> Journal:
        """Go on without these replicas, in a start of several with no release to return to.

        The others are a restart from now on. Once they serve, each of these is restarted by itself.
        """
        swap, active = present(self.swap), present(self.active)
        changed = replace(swap, intent=f"restart {swap.key}", target=active, source=active, kept=replicas, why=why)
        return replace(self.settled(swap.why), swap=replace(changed, reverting=False))

    def settled(self, why: str) -> Journal:
        """End the swap: what is promoted stays, the other release stops."""
        swap = present(self.swap)
        promoted = self.active == swap.target
        other = swap.leaving if promoted else swap.coming
        ranks = other.ranks if other and not swap.restarts else ()
        fails = promoted == swap.reverting or swap.goal is not None
        return self._over(ranks, "reverted" if fails else "done", why)

    def ended(self) -> Journal:
        """Give up a service whose last release is lost: the rest of its swap stops."""
        return self._over(self._ranks, "reverted", f"{present(self.swap).target.release} is lost", active=None)

    def cut_short(self, why: str) -> Journal:
        """Return the journal with the end of the swap's intent, which a stop ends: no revision of its own."""
        return replace(self, outcomes=self._with(present(self.swap).intent, "stopped", why))

    def offline(self) -> Journal:
        """End a stop: everything that ran is stopped once the gateway sends no request to it."""
        previous, stopped = self.active or self.previous, self._stopped(self._ranks)
        changes = {"active": None, "previous": previous, "swap": None, "stopping": False, "stopped": stopped}
        earlier = self.previous if self.active else self.earlier
        return self.changed(trouble="", restarts=0, earlier=earlier, **changes)

    @property
    def _ranks(self) -> Iterator[RankSpec]:
        return (rank for deployment in self.deployments for rank in deployment.ranks)

    def confirmed_stopped(self, ranks: Iterable[RankSpec]) -> Journal:
        """Forget containers whose guards reported that they do not run and will not start."""
        places = {rank.place for rank in ranks}
        return self.changed(stopped=tuple(rank for rank in self.stopped if rank.place not in places))


def present(value: Present | None) -> Present:
    """Return a value that this state of a journal always has. Raises ValueError if it is None."""
    if value is None:
        raise ValueError("the journal lacks what its state needs")
    return value


def _entry(swap: Swap) -> Phase:
    """Return the first phase of a revert. In place the source may be about to end from FREE on: it starts again."""
    if swap.stops_source and (swap.retries or swap.reached(Phase.FREE)):
        return Phase.FREE if swap.offline and swap.phase is not Phase.QUIESCE else Phase.QUIESCE
    return Phase.SWITCH
