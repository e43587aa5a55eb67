"""A green that fails when it was promoted already: as long as blue is there and answers, it gets the traffic back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from sparkops.plan.journal import Phase
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import GARBAGE
from tests.fleet_unit.nodes import Life
from tests.fleet_unit.test_crash import BESIDE, Begun, good_end, hours_pass
from tests.fleet_unit.verbs import deploy, free, problem
from tests.fleet_unit.world import World


def dies(world: World, *slots: str) -> None:
    """What is in these slots crashes."""
    machine = world.machines["n1"]
    for name in [each for each in machine.up if any(f"-{slot}-" in each for slot in slots)]:
        machine.crash(name)


@pytest.mark.parametrize("keep_blue_s", [0, 600])
@pytest.mark.parametrize(
    ("phase", "sessions"),
    [(Phase.PROMOTE, 0), (Phase.PROMOTE, 3), (Phase.DRAIN, 0), (Phase.DRAIN, 3), (Phase.RETIRE, 0)],
)
def test_while_blue_is_there_a_green_that_dies_after_its_promotion_loses_the_traffic(
    make: Make, phase: Phase, keep_blue_s: int, sessions: int
) -> None:
    world = make(1)
    beside: dict[str, Any] = {"claim_gib": 30.0, "swap": {"keep_blue_s": keep_blue_s}}
    deploy(world, "1", **beside)
    world.gate.sessions["be_chat_blue"], world.gate.leaving = sessions, False
    world.listeners[f"phase {phase}"] = lambda: dies(world, "green")

    error = problem(world, "2", **beside)

    assert (error.exit_code, "died with the traffic" in str(error)) == (1, True)
    assert world.serving() == world.release("1", **beside).id
    assert world.machines["n1"].armed() == [world.release("1", **beside).id]
    assert world.gate.sessions["be_chat_blue"] == sessions, "blue goes on with what it has"
    assert free(world)


def test_a_green_that_answers_nonsense_when_blue_is_to_stop_loses_the_traffic(make: Make) -> None:
    world = make(1)
    beside: dict[str, Any] = {"claim_gib": 30.0, "swap": {"keep_blue_s": 0}}
    deploy(world, "1", **beside)
    green = world.release("2", **beside).id
    world.listeners[f"phase {Phase.DRAIN}"] = lambda: world.machines["n1"].moods.update({green: GARBAGE})

    error = problem(world, "2", **beside)

    assert (error.exit_code, "green answers wrongly with the traffic" in str(error)) == (1, True)
    assert world.serving() == world.release("1", **beside).id
    assert free(world)


@pytest.mark.parametrize("phase", [Phase.PROMOTE, Phase.DRAIN])
def test_so_it_does_where_the_deploy_is_gone(tmp_path: Path, phase: Phase) -> None:
    begun = Begun(BESIDE, tmp_path).first()
    with closing(begun.again()) as world:
        assert begun.die(world, Life(0, about=f'"phase": "{phase}"'))
        dies(world, "green")
        hours_pass(begun, world)

        assert (world.serving(), good_end(world)) == (begun.release(world, "1").id, [])


def test_where_blue_has_died_as_well_a_promoted_green_stays(make: Make) -> None:
    world = make(1)
    beside: dict[str, Any] = {"claim_gib": 30.0}
    deploy(world, "1", **beside)
    world.listeners[f"phase {Phase.DRAIN}"] = lambda: dies(world, "green", "blue")

    done = deploy(world, "2", **beside)

    assert done
    assert "died with the traffic" in done["unfinished"]
    world.pass_by()
    world.settle()
    assert world.serving() == world.release("2", **beside).id
    assert free(world)


def test_a_promoted_green_that_started_again_and_answers_stays(make: Make) -> None:
    world = make(1)
    beside: dict[str, Any] = {"claim_gib": 30.0}
    deploy(world, "1", **beside)

    def starts_again() -> None:
        for name, container in world.machines["n1"].containers.items():
            if "-green-" in name:
                container["RestartCount"] = 1

    world.listeners[f"phase {Phase.RETIRE}"] = starts_again
    done = deploy(world, "2", **beside)

    assert done
    assert "died with the traffic" in done["unfinished"]
    assert world.serving() == world.release("2", **beside).id
