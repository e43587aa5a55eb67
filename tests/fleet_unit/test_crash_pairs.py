"""The deploy of a pair is killed at every word, and its ranks and nodes fail in every phase: it ends as one."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import SparkopsError
from sparkops.fleet import blue_green
from sparkops.plan.journal import Mode, Phase
from sparkops.plan.swap import PHASES
from tests.fleet_unit.test_crash import Begun, Scene, good_end, hours_pass, killed_at_any_word
from tests.fleet_unit.world import World

HERE = Scene(Mode.IN_PLACE, 2, "n1 n2", "n1 n2")
AWAY = Scene(Mode.ACROSS, 4, "n1 n2", "n3 n4")
SCENES = {
    "in-place, rank 0 by the gateway": HERE,
    "in-place, rank 1 by the gateway": Scene(Mode.IN_PLACE, 2, "n2 n1", "n2 n1"),
    "in-place, ranks change places": Scene(Mode.IN_PLACE, 2, "n1 n2", "n2 n1"),
    "in-place, one node of two": Scene(Mode.IN_PLACE, 3, "n1 n2", "n2 n3"),
    "in-place, from one node to a pair": Scene(Mode.IN_PLACE, 2, "n1", "n1 n2"),
    "in-place, from a pair to one node": Scene(Mode.IN_PLACE, 2, "n1 n2", "n2"),
    "across": AWAY,
    "across, to the gateway": Scene(Mode.ACROSS, 4, "n3 n4", "n1 n2"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", SCENES.values(), ids=SCENES)
def test_killed_at_any_word_both_ranks_of_one_release_run_in_the_end(scene: Scene, tmp_path: Path) -> None:
    """By turns hours pass, all nodes reboot, or it is run again."""
    times, wrong = killed_at_any_word(Begun(scene, tmp_path).first())

    assert wrong == {}
    assert times > 30, "it was killed many times"


def befalls(world: World, phase: Phase, blow: str, node: str) -> None:
    """As soon as a phase has begun: a rank on a node dies there, or the node is gone with all that ran on it."""

    def happens() -> None:
        machine = world.machines[node]
        newest = world.journal().swap
        assert newest is not None
        place = newest.green.on(node)
        if blow == "node":
            machine.go_dark()
        elif place and place.container in machine.up:
            machine.crash(place.container)

    world.listeners[f"phase {phase}"] = happens


def deploy(begun: Begun, world: World) -> SparkopsError | None:
    try:
        with world.order() as order:
            blue_green.deploy(order, begun.release(world, "2"), begun.scene.wish())
    except SparkopsError as error:
        return error
    return None


BAKED = (Phase.LOAD, Phase.VERIFY, Phase.BAKE)
PROMOTED = (Phase.PROMOTE, Phase.DRAIN, Phase.RETIRE)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(("scene", "phases"), [(HERE, BAKED), (AWAY, BAKED + PROMOTED)], ids=["in-place", "across"])
def test_a_rank_that_dies_in_any_phase_takes_the_replica_with_it_and_blue_serves(
    scene: Scene, phases: tuple[Phase, ...], number: int, tmp_path: Path
) -> None:
    """Also a green that was promoted already, as long as blue runs."""
    begun, wrong = Begun(replace(scene, bake_s=0.2), tmp_path).first(), {}
    node = scene.green.split()[number]
    for phase in phases:
        with closing(begun.again()) as world:
            befalls(world, phase, "rank", node)
            error = deploy(begun, world)
            shown = (error, error and error.__cause__)  # what the command line shows
            told = "\n".join(note for each in shown for note in getattr(each, "__notes__", ()))
            if f"rank {number} on {node}: exited with code 137" not in told:
                wrong[phase, "told"] = [told]
            if world.serving() != begun.release(world, "1").id:
                wrong[phase, "serving"] = [world.serving()]
            if found := good_end(world):
                wrong[phase, "end"] = found

    assert wrong == {}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scene", [HERE, AWAY], ids=["in-place", "across"])
def test_a_node_that_is_gone_in_any_phase_ends_well_when_it_is_back(scene: Scene, tmp_path: Path) -> None:
    """Rank 1's node, which has no gateway. It reboots an hour later."""
    begun, wrong = Begun(scene, tmp_path).first(), {}
    node = scene.green.split()[1]
    for phase in PHASES[scene.mode]:
        with closing(begun.again()) as world:
            befalls(world, phase, "node", node)
            error = deploy(begun, world)
            if scene.mode is Mode.ACROSS and " " in world.serving():
                wrong[phase, "serving"] = [world.serving(), str(error)]
            world.machines[node].reboot()
            world.clocks[node].boot, world.clocks[node].now_s = "boot-2", 5.0
            hours_pass(begun, world)
            if found := good_end(world):
                wrong[phase, "end"] = [*found, str(error)]

    assert wrong == {}
