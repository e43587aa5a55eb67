"""What the guard of a node must do about a service when no deploy holds it any more. Pure.

Only the guard beside the gateway decides: it moves the traffic and writes down its verdict. The guards of other
nodes ask it, and do nothing without its word; each starts and stops the engines of its own node only.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from sparkops.plan.journal import Journal, Mode, Phase, Swap, Verdict
from sparkops.plan.lock import Clock, lease_left


class Duty(StrEnum):
    """What is due."""

    NOTHING = "nothing"
    REVERT = "revert"
    """Blue is right: green has not had the traffic yet."""
    JUDGE = "judge"
    """Green may have the traffic: it stays if it answers rightly, otherwise blue comes back."""
    FINISH = "finish"
    """Green was promoted: only the end is missing."""
    RETIRE = "retire"
    """A warm blue has waited long enough."""
    LOOK_AT_BLUE = "look at blue"
    """Nobody has the traffic and green may still load. But where blue answers, it gets the traffic back at once."""
    LOOK_AT_GREEN = "look at green"
    """Green waits for promotion, with the traffic. It stays while it answers."""
    ASK = "ask"
    """The gateway is on another node, whose guard decides."""


class Word(BaseModel):
    """What the guard beside the gateway tells the others about a service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    deploy: str | None = None
    """Whose swap is under way."""
    verdict: Verdict | None = None
    traffic_moved: bool = False
    active: str | None = None
    """Where the release is that the last swap ended with: node/container."""
    held: bool = False
    """Whether somebody holds the lock there."""
    warm: str | None = None
    """The warm release that the guard beside the gateway has not retired yet: node/container."""


class Part(StrEnum):
    """What the guard of another node does of a takeover."""

    WAIT = "wait"
    KEEP_GREEN = "keep green"
    """Green starts where it is down, and blue will not start by itself; both may still have requests."""
    FINISH = "finish"
    REVERT = "revert"


def duty(journal: Journal, clock: Clock, node: str) -> Duty:
    """What is due now for the guard of `node`."""
    if journal.hold or lease_left(journal, clock):
        return Duty.NOTHING
    if journal.swap:
        return _of_swap(journal.swap, clock, node)
    retirement = journal.retirement
    if retirement and (retirement.boot != clock.boot or clock.now_s >= retirement.due_s):
        return Duty.RETIRE if retirement.gateway.node == node else Duty.ASK
    return Duty.NOTHING


def _of_swap(swap: Swap, clock: Clock, node: str) -> Duty:
    rebooted = swap.boot != clock.boot
    before = swap.phase.order < Phase.SWITCH.order
    if swap.gateway.node != node:
        # Its engines have ended with the node. Green starts by itself only after PROMOTE, and blue was stopped:
        # whatever the gateway's guard decides, here it can only be blue.
        return Duty.REVERT if rebooted and before and blue_was_stopped(swap) else Duty.ASK
    if swap.verdict:
        return Duty.REVERT if swap.verdict is Verdict.REVERT else Duty.FINISH
    if swap.waiting:
        return Duty.LOOK_AT_GREEN
    if not before:
        return Duty.JUDGE if swap.phase.order < Phase.PROMOTE.order else Duty.FINISH
    if rebooted or clock.now_s >= swap.deadline_s:
        return Duty.REVERT
    return Duty.LOOK_AT_BLUE if no_traffic(swap) else Duty.NOTHING  # the same deploy again adopts a loading green


def cause(journal: Journal) -> dict[str, str]:
    """Return release, phase and reason of a takeover for the history; empty without a swap."""
    swap, holder = journal.swap, journal.holder
    if swap is None:
        return {}
    owner = f" of {holder.owner}" if holder else ""
    why = f"the deploy{owner} ended without finishing the swap"
    if swap.waiting:
        why = f"{swap.green.release} did not answer while it waited for promotion"
    if swap.verdict:
        why = f"{why}; recorded verdict: {swap.verdict}"
    return {"release": swap.green.release, "phase": swap.phase.value, "why": why}


def word(journal: Journal, clock: Clock) -> Word:
    """What is told about a service."""
    swap, active, retirement = journal.swap, journal.active, journal.retirement
    return Word(
        deploy=swap.deploy if swap else None,
        verdict=swap.verdict if swap else None,
        traffic_moved=bool(swap and swap.traffic_moved),
        active=active.where if active else None,
        held=lease_left(journal, clock) > 0,
        warm=retirement.placed.where if retirement else None,
    )


def part(swap: Swap, told: Word) -> Part:
    """What another node's guard does with what it was told."""
    if told.deploy == swap.deploy:
        if told.verdict is Verdict.FINISH:
            return Part.FINISH if told.traffic_moved else Part.KEEP_GREEN
        return Part.REVERT if told.verdict and told.traffic_moved else Part.WAIT
    if told.held:
        return Part.WAIT
    return Part.FINISH if told.active == swap.green.where else Part.REVERT  # it has ended, and this node missed it


def may_retire(journal: Journal, told: Word) -> bool | None:
    """Return whether another node's guard may stop the warm release; None while that is open.

    The guard beside the gateway retires first: only it reaches every engine, so only it knows that the active one
    answers.
    """
    warm = journal.retirement.placed.where if journal.retirement else None
    if told.held or told.deploy or (warm and told.warm == warm):
        return None
    return warm is not None and told.active != warm


def blue_was_stopped(swap: Swap) -> bool:
    """Whether the swap has come so far that blue may have been stopped."""
    return swap.mode is Mode.IN_PLACE and swap.phase.order >= Phase.FREE.order


def no_traffic(swap: Swap) -> bool:
    """Whether the swap has come so far that nobody may have the traffic."""
    return swap.mode is Mode.IN_PLACE and swap.phase.order >= Phase.QUIESCE.order
