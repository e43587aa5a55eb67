"""A plan is the machine run on a copy: it prints every effect in the order in which the simulation sees them happen."""

from __future__ import annotations

import pytest

from sparkops.swap.plan import plan
from tests.swap.simulation.diagram import PAGE, page
from tests.swap.simulation.scenarios import MODES, deploying
from tests.swap.simulation.story import Story
from tests.swap.simulation.world import World


def planned(world: World) -> str:
    """The phases, each with its effects."""
    view = world.view(world.leader)
    assert view is not None
    effects = plan(world.leader.journal, {machine.name: machine.local() for machine in world.machines}, view).effects
    phases = dict.fromkeys(effect.phase for effect in effects)
    return "\n".join(
        line
        for phase in phases
        for line in (phase, *(f"  {item.node}: {item.effect}" for item in effects if item.phase == phase))
    )


def test_an_in_place_swap_in_full() -> None:
    assert planned(deploying("in-place")).splitlines() == [
        "prepare",
        "  n2: docker create --name=b-r0",
        "stop traffic",
        "  n1: gateway hold for about 7 s",
        "stop old release",
        "  n2: docker stop a-r0",
        "start",
        "  n2: docker start b-r0",
        "  n1: gateway hold for about 1 s",
        "verify",
        "  n2: verify b-r0",
        "  n1: gateway point green b",
        "switch",
        "  n1: gateway switch green b",
        "promote",
        "  n2: after a boot, start b-r0",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_plan_ends_as_the_run_does(mode: str) -> None:
    world = deploying(mode)
    view = world.view(world.leader)
    assert view is not None

    ended = plan(world.leader.journal, {machine.name: machine.local() for machine in world.machines}, view)

    ran = Story(world).settle().journal
    assert (ended.journal.active, ended.journal.previous, ended.journal.swap) == (ran.active, ran.previous, None)


def test_a_plan_changes_nothing() -> None:
    world = deploying("across")
    before = world.leader.journal

    assert "docker stop a-r0" in planned(world)
    assert world.leader.journal is before


def test_the_diagrams_of_the_page_are_the_machine_s() -> None:
    text = PAGE.read_text()

    assert page(text) == text
