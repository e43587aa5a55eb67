"""What a swap does at the gateway: who has the traffic, who may be asked through it, and what is still under way.

Every hand here is on the gateway's node.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from sparkops.commands import gateway
from sparkops.errors import CommandFailed, NodeError
from sparkops.facts import gateway as gateway_facts
from sparkops.facts.gateway import ServiceFacts
from sparkops.fleet.hands import POLL_S, Hand
from sparkops.fleet.progress import Event
from sparkops.plan.journal import Placed
from sparkops.release import Slot


def of(hand: Hand, service: str) -> ServiceFacts:
    """What the gateway says of a service. Raises NodeError where it does not know it."""
    facts = gateway_facts.parse(hand.member.node.run(gateway.SHOW).stdout)
    if service not in facts.services:
        raise NodeError(hand.member.name, f"the gateway does not know {service}")
    return facts.services[service]


def point(hand: Hand, service: str, placed: Placed) -> None:
    """Let the gateway's slot mean this release."""
    hand.run(gateway.point(service, Slot(placed.slot), placed.release, [(placed.address, placed.port)]))


def preview(hand: Hand, service: str, placed: Placed) -> None:
    """Send one request through the gateway to a release without traffic. Raises NodeError if it does not get there."""
    try:
        answered = hand.member.node.run(gateway.preview(service, Slot(placed.slot))).stdout.strip()
    except CommandFailed as failed:
        problem = f"the gateway does not reach {placed.release} at {placed.address}:{placed.port}"
        step = f"Let {hand.member.name} connect to port {placed.port} of {placed.node}: a firewall, or a wrong address."
        raise NodeError(hand.member.name, f"{problem}: {failed.completed.stderr.strip()}", next_step=step) from failed
    if answered != placed.release:
        raise NodeError(hand.member.name, f"through the gateway {answered} answers, and not {placed.release}")


def reaches(hand: Hand, service: str, placed: Placed) -> bool:
    """Whether a request through the gateway gets to a release, with or without traffic."""
    try:
        preview(hand, service, placed)
    except NodeError:
        return False
    return True


def give_traffic(hand: Hand, service: str, placed: Placed | None) -> None:
    """The switch: one value of one map. None gives the traffic to nobody."""
    if placed is None:
        hand.run(gateway.switch_down(service))
        hand.say(f"{service}: nobody has the traffic; requests get 503 with Retry-After")
    else:
        hand.run(gateway.switch(service, Slot(placed.slot), placed.release))
        hand.say(f"{service}: {placed.release} ({placed.slot}) has the traffic")


def drained(
    hand: Hand, service: str, placed: Placed, patience_s: float, meanwhile: Callable[[], None] = lambda: None
) -> int:
    """Wait until nothing is under way in a slot; cut what is after `patience_s`, and return how much that was.

    Raises what `meanwhile` raises, which is called at every look.
    """
    end = time.monotonic() + patience_s
    slot = Slot(placed.slot)
    while left := of(hand, service).slots[slot].sessions:
        hand.tell(Event(hand.member.name, f"draining {placed.slot}: {left} under way", lasting=False))
        meanwhile()
        if time.monotonic() > end:
            said = hand.run(gateway.cut(service, slot)).stdout.strip()
            hand.say(f"cut {said} requests that were still under way in {placed.slot} after {patience_s:.0f} s")
            return int(said or 0)
        hand.pause(POLL_S)
    return 0
