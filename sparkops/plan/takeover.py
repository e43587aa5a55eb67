"""What the guard of a node must do about a service when no deploy holds it any more. Pure.

Each guard acts on its own node only: the one beside the gateway moves traffic, the one beside an engine starts and
stops it. They need not speak to each other, because each rule looks at what is true before it acts.
"""

from __future__ import annotations

from enum import StrEnum

from sparkops.plan.journal import Clock, Journal, Mode, Phase, Swap, lease_left


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


def duty(journal: Journal, clock: Clock) -> Duty:
    """What is due now."""
    if journal.hold or lease_left(journal, clock):
        return Duty.NOTHING
    if journal.swap is None:
        retirement = journal.retirement
        due = retirement and (retirement.boot != clock.boot or clock.now_s >= retirement.due_s)
        return Duty.RETIRE if due else Duty.NOTHING
    return _of_swap(journal.swap, clock)


def _of_swap(swap: Swap, clock: Clock) -> Duty:
    if swap.waiting:
        return Duty.NOTHING
    if swap.phase.order < Phase.SWITCH.order:
        due = swap.boot != clock.boot or clock.now_s >= swap.deadline_s
        return Duty.REVERT if due else Duty.NOTHING  # green may still load: the same deploy again adopts it
    return Duty.JUDGE if swap.phase.order < Phase.PROMOTE.order else Duty.FINISH


def blue_was_stopped(swap: Swap) -> bool:
    """Whether the swap has come so far that blue may have been stopped."""
    return swap.mode is Mode.IN_PLACE and swap.phase.order >= Phase.FREE.order


def no_traffic(swap: Swap) -> bool:
    """Whether the swap has come so far that nobody may have the traffic."""
    return swap.mode is Mode.IN_PLACE and swap.phase.order >= Phase.QUIESCE.order
