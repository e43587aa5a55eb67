"""What an operator does who reads why a service needs one: the printed next steps, which must bring a release up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from sparkops.names import Slot
from sparkops.swap.intents import Cancel, Deploy, Hold
from sparkops.swap.journal import Journal
from sparkops.swap.leader import needs_operator
from sparkops.swap.model import Answer, Deployment, Mode
from sparkops.swap.trouble import next_step
from tests.swap.simulation.scenarios import ask, deployment, rebuild, settle
from tests.swap.simulation.world import World

LOOKS = ("sparkops doctor", "sparkops logs", "docker ", "df ")
"""Steps that change nothing by themselves."""


def helped(world: World) -> list[str]:
    """Return what is wrong where an operator is needed: none of the printed steps brings a release up.

    A step that only helps after another one, or on a node that is lost, helps no more than none. Beyond the loss of one
    node nothing is promised.
    """
    journal = world.leader.journal
    why = needs_operator(journal, world.fleet(world.leader))
    lost = sum(machine.lost for machine in world.machines) > 1  # of three nodes: what the leader may do is unconfirmed
    blind = world.gateway.stalled or world.machine(world.gateway.node).lost
    if not why or lost or blind or world.serves(world.gateway.active) is Answer.YES:
        return []
    missing = [machine.name for machine in world.machines if machine.name not in _reporting(world)]
    steps = next_step(journal, why, missing).splitlines()
    for step in steps:
        if step.endswith("--off"):  # the others are refused without it
            world = ask(world, _unhold) or world
        elif any(_serves(settle(after)) for after in _typed(world, step)):
            return []
    return [f"21: no printed step brings a release up: {why}: {' | '.join(steps)}"]


def _reporting(world: World) -> set[str]:
    return {report.node for report in world.leader.reports}


def _serves(world: World) -> bool:
    return world.serves(world.gateway.active) is Answer.YES and not world.wrongs


def _typed(world: World, step: str) -> Iterator[World]:
    """Yield the world after a step, for each way in which an operator may take it."""
    if step.startswith(LOOKS):
        return
    without = frozenset(re.findall(r"--without (\S+)", step))
    if "sparkops gateway rebuild" in step:
        if after := rebuild(world):
            yield after[1]
    elif "sparkops rollback" in step:
        if cancelled := ask(world, Cancel) if world.leader.journal.swap else None:
            yield cancelled
        elif previous := world.leader.journal.previous:
            yield from _deployed(world, previous, without)
    elif "sparkops deploy" in step:
        for node in sorted(_reporting(world) - without):
            yield from _deployed(world, deployment("c", _slot(world, world.leader.journal), node), without)
    else:
        raise ValueError(f"a step that no operator can take: {step}")


def _slot(world: World, journal: Journal) -> Slot:
    """The slot that a plan takes: not that of the traffic."""
    active = journal.active.slot if journal.active else None
    taken = world.gateway.active or active
    return taken.other if taken else Slot.BLUE


def _deployed(world: World, target: Deployment, without: frozenset[str]) -> Iterator[World]:
    """Yield the world after a deploy, in each mode that the leader accepts: the plan chooses one that fits."""
    for mode in (Mode.FIRST, Mode.ACROSS, Mode.IN_PLACE):
        if after := ask(world, partial(_deploy, target, mode, without)):
            yield after


def _unhold(name: str, revision: int) -> Hold:
    return Hold(name, revision, "")


def _deploy(target: Deployment, mode: Mode, without: frozenset[str], name: str, revision: int) -> Deploy:
    return Deploy(name, revision, target, mode, without=without)
