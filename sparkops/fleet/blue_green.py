"""Blue-green for one service: what is there, what is planned, and the verbs deploy, promote and rollback."""

from __future__ import annotations

import getpass
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from sparkops.commands import docker, gateway, guard
from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, PlanRefused, SparkopsError, UsageError
from sparkops.facts import docker as docker_facts
from sparkops.facts import gateway as gateway_facts
from sparkops.facts.docker import Container
from sparkops.fleet import hands, observe
from sparkops.fleet.connected import Connected
from sparkops.fleet.guarded import Link
from sparkops.fleet.hands import Hand
from sparkops.fleet.held import Claim, Held, hold
from sparkops.fleet.keep import Keep
from sparkops.fleet.progress import Tell
from sparkops.fleet.revert import go_back
from sparkops.fleet.swap import Saga
from sparkops.plan.deploy import Observed
from sparkops.plan.journal import Journal, Mode, Phase, Placed, Retirement, Swap
from sparkops.plan.swap import Current, SwapPlan, Wish, plan
from sparkops.release import Rank, Release, Slot


@dataclass(frozen=True)
class Order:
    """What one run of a verb works with."""

    connected: Connected
    keep: Keep
    tell: Tell
    wait_s: float = 0.0

    @property
    def gateway(self) -> str:
        """The gateway's node. Raises UsageError without a gateway."""
        named = self.connected.fleet.gateway
        if named is None:
            step = "Add `gateway: {node: ...}` to the inventory: a swap needs something to switch."
            raise UsageError(f"{self.connected.fleet.file}: there is no gateway", next_step=step)
        return named.node

    def claim(self, service: str) -> Claim:
        """The lock that this run wants."""
        owner = f"{getpass.getuser()}@{socket.gethostname()}"
        return Claim(service, owner, uuid.uuid4().hex, self.wait_s)


def read_journal(order: Order, service: str) -> Journal:
    """What the gateway's guard has written down; an empty journal where there is no guard yet."""
    if order.connected.members[order.gateway].engine.container(guard.CONTAINER) is None:
        return Journal(service=service)
    with closing(Link(order.connected.members[order.gateway].node)) as link:
        return Journal.model_validate(link.ask("read", service)["journal"])


def current(order: Order, release: Release, journal: Journal) -> Current:
    """Who has the traffic: the gateway's map says so, and Docker whether it runs."""
    if order.connected.members[order.gateway].engine.container(gateway.CONTAINER) is None:
        return Current()
    warm = journal.retirement.placed if journal.retirement else None
    facts = gateway_facts.parse(order.connected.members[order.gateway].node.run(gateway.SHOW).stdout)
    service = facts.services.get(release.service)
    if service is None or service.active is None:
        return Current(warm=warm)
    slot = service.active
    for name, member in order.connected.members.items():
        for inspect in member.engine.containers(service=release.service, release=slot.release, slot=slot.slot.value):
            found = docker_facts.parse(name, inspect)
            if found.running:
                return Current(_placed(order, found, release.recipe, journal), slot.slot, warm)
    if order.connected.unreachable:
        missing = ", ".join(order.connected.unreachable)
        problem = f"{slot.release} has the traffic, and is not on any node that answers; it may be on {missing}"
        raise PlanRefused(problem, next_step=f"Bring {missing} back, or take it out of the inventory.")
    return Current(None, slot.slot, warm)


def _placed(order: Order, found: Container, recipe: Recipe, journal: Journal) -> Placed:
    """Its own recipe, where the journal has it; the new one of the same service is near enough to stop it."""
    known = [each for each in (journal.active, journal.previous) if each and each.release == found.release]
    return Placed(
        release=found.release,
        slot=found.slot,
        node=found.node,
        address=order.connected.fleet.node(found.node).address,
        port=found.port,
        container=found.name,
        recipe=known[0].recipe if known else recipe.model_dump(mode="json", exclude_none=True),
    )


@dataclass(frozen=True)
class Planned:
    """A swap that may be run. Without a plan there is nothing to do."""

    plan: SwapPlan | None
    observed: Mapping[str, Observed]
    begin: Phase = Phase.ARM


def make_plan(order: Order, release: Release, wish: Wish, journal: Journal) -> Planned:
    """Plan the swap to `release`, or go on with the one that was left. Raises PlanRefused."""
    observed = observe.before_deploy(order.connected, release)
    if journal.swap:
        return Planned(_resumed(release, journal.swap), observed, journal.swap.phase)
    now = current(order, release, journal)
    if now.blue and now.blue.release == release.id:
        return Planned(None, observed)
    return Planned(plan(release, observed, now, wish), observed)


def _resumed(release: Release, swap: Swap) -> SwapPlan:
    if swap.green.release != release.id:
        step = f"sparkops rollback {release.service}, or deploy {swap.green.release} again to finish it"
        raise PlanRefused(f"a swap to {swap.green.release} stopped in phase {swap.phase}", next_step=step)
    rank = Rank(release, Slot(swap.green.slot), swap.green.node)
    return SwapPlan(release, swap.mode, rank, swap.blue, f"goes on in phase {swap.phase}, where it was left")


def nodes_of(order: Order, made: SwapPlan) -> Sequence[str]:
    """The nodes that take part."""
    others = {each.node for each in (made.blue, made.warm) if each}
    return sorted({order.gateway, made.rank.node, *others})


def deploy(order: Order, release: Release, wish: Wish, *, promote: bool = True) -> dict[str, Any] | None:
    """Swap to `release`. Returns what was done, or None if it serves already. What was planned is planned again
    under the lock: somebody may have been quicker."""
    first = make_plan(order, release, wish, read_journal(order, release.service))
    if first.plan is None:
        return None
    with hold(order.connected, nodes_of(order, first.plan), order.claim(release.service)) as held:
        made = make_plan(order, release, _the_same(first.plan, wish), held.journals[order.gateway])
        if made.plan is None:
            return None
        if nodes_of(order, made.plan) != nodes_of(order, first.plan):
            raise PlanRefused("what runs has changed while the lock was taken", next_step="Run it again.")
        saga = Saga(
            plan=made.plan,
            observed=made.observed[made.plan.rank.node],
            gateway=order.gateway,
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
    return replace(wish, nodes=(made.rank.node,), mode=None if made.mode is Mode.FIRST else made.mode)


def promote(order: Order, service: str) -> dict[str, Any]:
    """Go on with a green that has waited with the traffic. Raises UsageError where none waits."""
    journal = read_journal(order, service)
    swap = journal.swap
    if swap is None or not swap.waiting:
        raise UsageError(f"no release of {service} waits for promotion", next_step="sparkops status")
    made = _resumed(_release(order, swap.green), swap)
    with hold(order.connected, nodes_of(order, made), order.claim(service)) as held:
        observed = observe.before_deploy(order.connected, made.release)[made.rank.node]
        saga = Saga(made, observed, order.gateway, order.connected, held, order.keep, order.tell)
        saga.run(Phase.PROMOTE)
        return saga.summary()


def _release(order: Order, placed: Placed) -> Release:
    """A release as its container remembers it."""
    member = order.connected.members[placed.node]
    inspect = member.engine.container(placed.container)
    if inspect is None:
        raise NodeError(placed.node, f"{placed.container} is not there any more")
    return Release(Recipe.model_validate(placed.recipe), docker_facts.parse(placed.node, inspect).inputs)


def rollback(order: Order, service: str, wish: Wish) -> dict[str, Any]:
    """Back to blue: out of a swap that was left, by one switch while blue is warm, else by a whole swap."""
    journal = read_journal(order, service)
    if journal.swap:
        return _out_of(order, service, journal.swap)
    if journal.previous is None or journal.active is None:
        raise UsageError(f"{service} has no previous release", next_step=f"sparkops history {service}")
    if _warm(order, journal.previous):
        return _flip(order, service, journal.active, journal.previous)
    done = deploy(order, _release(order, journal.previous), wish)
    return done or {"release": journal.previous.release, "mode": "nothing to do"}


def _warm(order: Order, placed: Placed) -> bool:
    member = order.connected.members[placed.node]
    return hands.answers(Hand(member, member.node.run, order.tell), placed)


def _out_of(order: Order, service: str, swap: Swap) -> dict[str, Any]:
    nodes = sorted({swap.gateway, swap.green.node, *({swap.blue.node} if swap.blue else ())})
    with hold(order.connected, nodes, order.claim(service)) as held:
        error = SparkopsError("rolled back by the operator")
        go_back(swap, service, _hands(order, held), order.keep, error)
        held.put(held.journals[swap.gateway].model_copy(update={"swap": None}), 0.0)
        held.remember(swap.gateway, {"event": "rolled back", "release": swap.green.release})
    return {"release": swap.blue.release if swap.blue else None, "mode": "out of a swap"}


def _hands(order: Order, held: Held) -> Any:
    def hand(node: str) -> Hand:
        return Hand(order.connected.members[node], lambda command: held.run(node, command), order.tell)

    return hand


def _flip(order: Order, service: str, active: Placed, warm: Placed) -> dict[str, Any]:
    """One switch, then the policies: at no time may both start by themselves."""
    nodes = sorted({order.gateway, active.node, warm.node})
    with hold(order.connected, nodes, order.claim(service)) as held:
        hand_of = _hands(order, held)
        hands.point(hand_of(order.gateway), service, warm)
        hands.give_traffic(hand_of(order.gateway), service, warm)
        hand_of(active.node).run(docker.stay_stopped(active.container))
        hand_of(warm.node).run(docker.keep_running(warm.container))
        retirement = Retirement(placed=active, due_s=0.0, boot="")
        changes = {"active": warm, "previous": active, "retirement": retirement}
        keep_s = Recipe.model_validate(active.recipe).swap.keep_blue_s
        held.put(held.journals[order.gateway].model_copy(update=changes), time.monotonic() + keep_s)
        held.remember(order.gateway, {"event": "rolled back", "release": active.release})
    return {"release": warm.release, "mode": "one switch"}
