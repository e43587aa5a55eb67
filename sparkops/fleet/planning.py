"""What there is and what is planned to be: the journal, who has the traffic, and the swap from there to a release."""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from sparkops.commands import gateway
from sparkops.config.fabric import Fabric as Rules
from sparkops.config.recipe import Recipe
from sparkops.errors import BeingEnded, Busy, PlanRefused, UsageError
from sparkops.facts import docker as docker_facts
from sparkops.facts import gateway as gateway_facts
from sparkops.facts import host
from sparkops.facts.docker import Container
from sparkops.fleet import observe
from sparkops.fleet.connected import Connected
from sparkops.fleet.guarded import Link, linked
from sparkops.fleet.held import Claim, patiently
from sparkops.fleet.keep import Keep
from sparkops.fleet.past import announced
from sparkops.fleet.progress import Tell
from sparkops.fleet.waiting import Waiting
from sparkops.plan.deploy import Observed
from sparkops.plan.journal import Front, Journal, Phase, Place, Placed, Swap
from sparkops.plan.lock import NEXT_STEP, Clock, locked
from sparkops.plan.option import Current, Wish, network
from sparkops.plan.swap import SwapPlan, plan
from sparkops.release import Rank, Release, Slot


@dataclass(frozen=True)
class Order:
    """What one run of a verb works with."""

    connected: Connected
    keep: Keep
    tell: Tell
    wait_s: float = 0.0
    verb: str = ""

    @property
    def gateway(self) -> str:
        """The gateway's node. Raises UsageError without a gateway."""
        named = self.connected.fleet.gateway
        if named is None:
            step = "Add `gateway: {node: ...}` to the inventory: a swap needs something to switch."
            raise UsageError(f"{self.connected.fleet.file}: there is no gateway", next_step=step)
        return named.node

    @property
    def front(self) -> Front:
        """Where guards of other nodes find the one beside the gateway."""
        return Front(node=self.gateway, address=self.connected.fleet.node(self.gateway).address)

    def claim(self, service: str, *loads: str) -> Claim:
        """The lock that this run wants; on the nodes `loads` an engine will be loaded."""
        owner = f"{getpass.getuser()}@{socket.gethostname()}"
        run = f"{self.verb}, pid {os.getpid()}" if self.verb else ""
        return Claim(service, owner, uuid.uuid4().hex, self.wait_s, frozenset(loads), run=run, tell=self.tell)

    def until(self, end_s: float) -> Order:
        """Return the same order, with the wait that is left until `end_s` on this machine's monotonic clock."""
        return replace(self, wait_s=max(0.0, end_s - time.monotonic()))


def read_journal(order: Order, service: str) -> Journal:
    """What the gateway's guard has written down; an empty journal where there is no guard yet."""
    with linked(order.connected.members[order.gateway]) as link:
        return link.journal(service) if link else Journal(service=service)


def free_journal(order: Order, service: str) -> Journal:
    """Read the journal once no run holds the lock: a plan made before is void. Raises Busy after `order.wait_s`."""
    with linked(order.connected.members[order.gateway]) as link:
        if link is None:
            return Journal(service=service)
        waiting, end_s = Waiting(order.connected, order.tell, service), time.monotonic() + order.wait_s
        report = partial(waiting.report, link)
        return patiently(partial(_unlocked, link, service), Busy, end_s, order.connected.cancel, report)


def _unlocked(link: Link, service: str) -> Journal:
    said = link.ask("read", service)
    journal = Journal.model_validate(said["journal"])
    if why := locked(journal, Clock(said["now_s"], said["boot"])):
        raise Busy(f"{link.node.name}: {why}", next_step=NEXT_STEP)
    return journal


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
    members = order.connected.members
    found = [
        docker_facts.parse(name, inspect)
        for name, member in members.items()
        for inspect in member.engine.containers(service=release.service, release=slot.release, slot=slot.slot.value)
    ]
    head = next((each for each in found if each.running and each.rank == 0), None)
    # What an earlier attempt has left, also on other nodes, is no rank of this one.
    found = [each for each in found if head and each.generation == head.generation]
    there = {each.rank for each in found}
    lost = [f"rank {number} of it" for number in range(head.ranks) if number not in there] if head else ["it"]
    if lost and order.connected.unreachable:
        missing = ", ".join(order.connected.unreachable)
        where = f"{' and '.join(lost)} is not on any node that answers; it may be on {missing}"
        step = f"Bring {missing} back, or take it out of the inventory."
        raise PlanRefused(f"{slot.release} has the traffic, and {where}", next_step=step)
    if head:
        workers = sorted((each for each in found if each.rank), key=lambda each: each.rank)
        return Current(_placed(order, head, workers, release.recipe, journal), slot.slot, warm)
    return Current(None, slot.slot, warm)


def _placed(order: Order, found: Container, workers: Sequence[Container], recipe: Recipe, journal: Journal) -> Placed:
    """Its own recipe, where the journal has it; the new one of the same service is near enough to stop it."""
    known = [each for each in (journal.active, journal.previous) if each and each.release == found.release]
    return Placed(
        release=found.release,
        slot=found.slot,
        node=found.node,
        address=order.connected.fleet.engine_address(found.node),
        port=found.port,
        container=found.name,
        workers=tuple(Place(node=each.node, container=each.name) for each in workers),
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
    rules = order.connected.fleet.fabric
    if journal.swap:
        left = resumed(release, journal.swap, observed, rules)
        return Planned(_restricted(order, left), observed, journal.swap.phase)
    now = current(order, release, journal)
    if now.blue and now.blue.release == release.id:
        return Planned(None, observed)
    made = announced(order.connected, plan(release, observed, now, wish, rules))
    return Planned(_restricted(order, made), observed)


def _restricted(order: Order, made: SwapPlan) -> SwapPlan:
    """Return the plan with the HTTP port of green open to the gateway only."""
    callers: tuple[str, ...] = ()
    if made.rank.node != order.gateway:
        callers = host.parse_addresses(order.connected.members[order.gateway].node.run(host.ADDRESSES).stdout)
    return replace(made, ranks=(replace(made.rank, callers=callers), *made.ranks[1:]))


def resumed(release: Release, swap: Swap, observed: Mapping[str, Observed], rules: Rules) -> SwapPlan:
    """The plan of a swap that was left. Raises PlanRefused for another release, Busy where it is being ended."""
    if swap.green.release != release.id:
        step = f"sparkops rollback {release.service}, or deploy {swap.green.release} again to finish it"
        raise PlanRefused(f"a swap to {swap.green.release} stopped in phase {swap.phase}", next_step=step)
    if swap.verdict:
        step = f"Run it again when that is done; if that never is: sparkops rollback {release.service}"
        raise BeingEnded(f"the guards bring the swap to {release.id} to its end ({swap.verdict})", next_step=step)
    slot = Slot(swap.green.slot)
    ranks = tuple(Rank(release, slot, node, index) for index, node in enumerate(swap.green.nodes))
    made = SwapPlan(release, swap.mode, ranks, swap.blue, (f"goes on in phase {swap.phase}, where it was left",))
    if swap.phase.order > Phase.START.order:
        return made
    return replace(made, network=network(ranks, [observed[rank.node] for rank in ranks], rules))


def nodes_of(order: Order, made: SwapPlan) -> Sequence[str]:
    """The nodes that take part."""
    others = {node for each in (made.blue, made.warm) if each for node in each.nodes}
    return sorted({order.gateway, *(rank.node for rank in made.ranks), *others})
