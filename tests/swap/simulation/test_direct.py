"""A service without a gateway: its leader is on the engine's node and has no other guard. One fault at every phase."""

from __future__ import annotations

import pytest

from sparkops.names import Slot
from sparkops.swap.intents import Deploy
from sparkops.swap.journal import Journal
from sparkops.swap.model import PHASES, Deployment, Mode, Phase
from tests.swap.simulation.faults import faults
from tests.swap.simulation.scenarios import deployment
from tests.swap.simulation.story import Story
from tests.swap.simulation.world import NODES, Gateway, Leader, Machine, World

FIRST, NEXT = deployment("a", Slot.BLUE, "n2"), deployment("b", Slot.GREEN, "n2")


def begun(target: Deployment, mode: Mode, story: Story | None = None) -> Story:
    if story is None:
        story = Story(World(tuple(map(Machine, NODES)), (Leader(Journal("chat", "n2")),), Gateway("n2"))).settle()
    assert story.ask(lambda name, revision: Deploy(name, revision, target, mode))
    return story


def deploying(mode: Mode) -> Story:
    """The intent of a deploy in this mode is accepted."""
    first = begun(FIRST, Mode.FIRST)
    return first if mode is Mode.FIRST else begun(NEXT, mode, first.settle())


CASES = [(mode, phase) for mode in (Mode.FIRST, Mode.IN_PLACE) for phase in PHASES[mode] if phase is not Phase.WORKERS]


@pytest.mark.parametrize(("mode", "phase"), CASES, ids=[f"{mode} {phase}" for mode, phase in CASES])
def test_every_run_with_a_fault_settles_as_the_laws_demand(mode: Mode, phase: Phase) -> None:
    here = deploying(mode).until(phase)
    labels = [label for label, _ in faults(here.world)]

    assert labels
    for label in labels:
        Story(here.world).fault(label).settle()


def test_without_a_fault_the_next_release_serves_alone() -> None:
    story = deploying(Mode.IN_PLACE).settle()

    assert (story.running, story.armed) == (["b-r0"], ["b-r0"])
    assert story.world.gateway.traffic == "b"
