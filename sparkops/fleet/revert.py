"""Going back: the same whether a deploy does it, an operator asks for it, or a guard does its part of it."""

from __future__ import annotations

from collections.abc import Callable

from sparkops.errors import Busy, Interrupted, NeedsPerson, SparkopsError
from sparkops.fleet import hands, room, traffic
from sparkops.fleet.hands import Hand
from sparkops.fleet.held import Held
from sparkops.fleet.keep import Keep, put_away
from sparkops.plan.journal import Journal, Phase, Placed, Swap, Verdict
from sparkops.plan.takeover import blue_was_stopped, no_traffic

HandOf = Callable[[str], Hand]


def revert(held: Held, journal: Journal, swap: Swap, hand_of: HandOf, keep: Keep, error: SparkopsError) -> None:
    """Go back and write it down. The verdict is written first, so that guards go on where this ends too early.

    Raises Busy where somebody has taken over, who ends it; NeedsPerson where going back failed. `error` is the cause.
    """
    decided = swap.model_copy(update={"verdict": Verdict.REVERT})
    missed = held.put_where_possible(journal.model_copy(update={"swap": decided, "trouble": None}))
    if taken_over := next((each for each in missed if isinstance(each, Busy)), None):
        raise taken_over from error
    try:
        go_back(swap, journal.service, hand_of, keep, error)
    except Interrupted:
        raise
    except SparkopsError as second:
        problem = f"{error}\nand going back failed: {second}\nThe guards of the nodes go on trying."
        step = f"sparkops status; and if it stays so: sparkops rollback {journal.service}"
        raise NeedsPerson(problem, next_step=step) from error
    missed += held.put_where_possible(journal.model_copy(update={"swap": None, "trouble": None}))
    for each in dict.fromkeys(map(str, missed)):
        error.add_note(f"{each}: its guard does its part once it is back")


def go_back(swap: Swap, service: str, hand_of: HandOf, keep: Keep, error: SparkopsError) -> None:
    """Traffic first, then engines: green must not stop while it still has requests, nor blue get them while it is down.

    In the end blue starts by itself after a reboot, and green does not.
    """
    gateway, blue = hand_of(swap.gateway.node), swap.blue
    switched = swap.phase.order >= Phase.SWITCH.order
    if switched and blue and not no_traffic(swap) and not hands.answers(hand_of(blue.node), blue):
        restore(hand_of, blue)
    if switched:
        traffic.give_traffic(gateway, service, None if no_traffic(swap) else blue)
    for place in swap.green.ranks:
        green = hand_of(place.node)
        put_away(green.member, place.container, keep, error, green.run)
    if blue and no_traffic(swap):
        if blue_was_stopped(swap):
            restore(hand_of, blue)
        traffic.give_traffic(gateway, service, blue)
    elif blue and switched:
        arm(hand_of, blue)


def restore(hand_of: HandOf, placed: Placed) -> None:
    """Start a release again on all its nodes, and believe it when it answers."""
    for node in placed.nodes:
        room.start_rank(hand_of(node), placed)
    hands.believe(hand_of(placed.node), placed)
    arm(hand_of, placed)


def arm(hand_of: HandOf, placed: Placed) -> None:
    """Let every rank start by itself after a reboot."""
    for place in placed.ranks:
        hands.arm(hand_of(place.node), place.container)
