"""Blue-green for one service: the verbs deploy, promote and rollback."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import Any

from sparkops.commands import docker
from sparkops.config.recipe import Recipe
from sparkops.errors import BeingEnded, Busy, NodeError, PlanRefused, SparkopsError, UsageError
from sparkops.facts import docker as docker_facts
from sparkops.fleet import hands, observe, pair, traffic
from sparkops.fleet.hands import Hand
from sparkops.fleet.held import Held, hold, patiently
from sparkops.fleet.planning import Order, free_journal, make_plan, nodes_of, resumed
from sparkops.fleet.revert import HandOf, revert
from sparkops.fleet.swap import Saga
from sparkops.fleet.waiting import Waiting
from sparkops.plan.journal import Mode, Phase, Placed, Retirement, Swap
from sparkops.plan.option import Wish
from sparkops.plan.swap import SwapPlan
from sparkops.release import Release


def deploy(order: Order, release: Release, wish: Wish, *, promote: bool = True) -> dict[str, Any] | None:
    """Swap to `release`. Returns what was done, or None if it serves already.

    Where guards are just bringing an earlier deploy to its end, it waits for them as long as for the lock.
    """
    waiting = Waiting(order.connected, order.tell, release.service)

    def report(busy: Busy) -> None:
        waiting.say(order.gateway, f"waiting: {busy}", str(busy))

    end_s = time.monotonic() + order.wait_s
    attempt = partial(_deploy, order, release, wish, end_s, promote=promote)
    return patiently(attempt, BeingEnded, end_s, order.connected.cancel, report)


def _deploy(order: Order, release: Release, wish: Wish, end_s: float, *, promote: bool) -> dict[str, Any] | None:
    """What was planned is planned again under the lock: somebody may have been quicker."""
    first = make_plan(order, release, wish, free_journal(order.until(end_s), release.service))
    if first.plan is None:
        return None
    claim = order.until(end_s).claim(release.service, *(rank.node for rank in first.plan.ranks))
    with hold(order.connected, nodes_of(order, first.plan), claim) as held:
        made = make_plan(order, release, _the_same(first.plan, wish), held.journals[order.gateway])
        if made.plan is None:
            return None
        if nodes_of(order, made.plan) != nodes_of(order, first.plan):
            raise PlanRefused("what runs has changed while the lock was taken", next_step="Run it again.")
        pair.try_network(order.connected, made.plan, made.observed, order.tell)
        saga = Saga(
            plan=made.plan,
            observed=made.observed,
            front=order.front,
            connected=order.connected,
            held=held,
            keep=order.keep,
            tell=order.tell,
            promote=promote,
        )
        saga.run(made.begin)
        return saga.summary()


def _the_same(made: SwapPlan, wish: Wish) -> Wish:
    """Memory moves a little all the time: under the lock the same way is looked at again, and no other."""
    return replace(
        wish, nodes=tuple(rank.node for rank in made.ranks), mode=None if made.mode is Mode.FIRST else made.mode
    )


def promote(order: Order, service: str) -> dict[str, Any]:
    """Go on with a green that has waited with the traffic. Raises UsageError where none waits."""
    end_s = time.monotonic() + order.wait_s
    swap = free_journal(order, service).swap
    if swap is None or not swap.waiting:
        raise UsageError(f"no release of {service} waits for promotion", next_step="sparkops status")
    release = _release(order, swap.green)
    observed = observe.before_deploy(order.connected, release)
    made = resumed(release, swap, observed, order.connected.fleet.fabric)
    with hold(order.connected, nodes_of(order, made), order.until(end_s).claim(service)) as held:
        saga = Saga(made, observed, order.front, order.connected, held, order.keep, order.tell)
        saga.run(Phase.PROMOTE)
        return saga.summary()


def _release(order: Order, placed: Placed) -> Release:
    """A release as its container remembers it."""
    member = order.connected.member(placed.node)
    inspect = member.engine.container(placed.container)
    if inspect is None:
        raise NodeError(placed.node, f"{placed.container} is not there any more")
    return Release(Recipe.model_validate(placed.recipe), docker_facts.parse(placed.node, inspect).inputs)


def rollback(order: Order, service: str, wish: Wish) -> dict[str, Any]:
    """Back to blue: out of a swap that was left, by one switch while blue is warm, else by a whole swap."""
    end_s = time.monotonic() + order.wait_s
    journal = free_journal(order, service)
    order = order.until(end_s)
    if journal.swap:
        return _out_of(order, service, journal.swap)
    if journal.previous is None or journal.active is None:
        raise UsageError(f"{service} has no previous release", next_step=f"sparkops history {service}")
    if _warm(order, journal.previous):
        return _flip(order, service, journal.active, journal.previous)
    done = deploy(order, _release(order, journal.previous), wish)
    return done or {"release": journal.previous.release, "mode": "nothing to do"}


def _warm(order: Order, placed: Placed) -> bool:
    member = order.connected.member(placed.node)
    return hands.answers(Hand(member, member.node.run, order.tell), placed)


def _out_of(order: Order, service: str, swap: Swap) -> dict[str, Any]:
    nodes = sorted({swap.gateway.node, *swap.green.nodes, *(swap.blue.nodes if swap.blue else ())})
    with hold(order.connected, nodes, order.claim(service)) as held:
        error = SparkopsError("rolled back by the operator")
        revert(held, held.journals[swap.gateway.node], swap, _hands(order, held), order.keep, error)
        why = {"phase": swap.phase, "why": str(error), "evidence": order.keep.saved}
        held.remember(swap.gateway.node, {"event": "rolled back", "release": swap.green.release, **why})
    return {"release": swap.blue.release if swap.blue else None, "mode": "out of a swap"}


def _hands(order: Order, held: Held) -> HandOf:
    def hand(node: str) -> Hand:
        return Hand(order.connected.members[node], lambda command: held.run(node, command), order.tell)

    return hand


def _flip(order: Order, service: str, active: Placed, warm: Placed) -> dict[str, Any]:
    """One switch, then the policies: at no time may both start by themselves."""
    nodes = sorted({order.gateway, *active.nodes, *warm.nodes})
    with hold(order.connected, nodes, order.claim(service)) as held:
        hand_of = _hands(order, held)
        traffic.point(hand_of(order.gateway), service, warm)
        traffic.give_traffic(hand_of(order.gateway), service, warm)
        for place in active.ranks:
            hand_of(place.node).run(docker.stay_stopped(place.container))
        for place in warm.ranks:
            hand_of(place.node).run(docker.keep_running(place.container))
        retirement = Retirement(placed=active, gateway=order.front)
        changes = {"active": warm, "previous": active, "retirement": retirement}
        keep_s = Recipe.model_validate(active.recipe).swap.keep_blue_s
        held.put(held.journals[order.gateway].model_copy(update=changes), time.monotonic() + keep_s)
        held.remember(order.gateway, {"event": "rolled back", "release": active.release})
    return {"release": warm.release, "mode": "one switch"}
