"""What waits is promoted or taken back; what is warm comes back by one switch."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.errors import (
    NeedsPerson,
    NotReachable,
    PlanRefused,
    UsageError,
)
from sparkops.fleet import blue_green
from sparkops.plan.journal import Phase
from sparkops.plan.option import Wish
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import DIES, GARBAGE
from tests.fleet_unit.verbs import DOWN, deploy, free, id_of, problem


def test_in_place_where_blue_does_not_come_back_a_person_is_needed(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    machine = world.machines["n1"]
    machine.moods[id_of(world, "2")] = DIES
    machine.fails = lambda line: int(line == f"docker start {id_of(world, '1')}-blue-r0")

    error = problem(world, "2")

    assert (type(error), error.exit_code) == (NeedsPerson, 7)
    assert "and going back failed: n1: `docker start" in str(error)
    assert error.next_step == "sparkops status; and if it stays so: sparkops rollback chat"


def test_a_green_that_waits_is_promoted_by_its_verb(make: Make) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=30.0)

    deploy(world, "2", claim_gib=30.0, promote=False)
    waits = world.journal().swap
    assert waits is not None
    assert (waits.phase, waits.waiting) == (Phase.BAKE, True)
    assert sorted(world.machines["n1"].up) == sorted(
        [waits.green.container, waits.blue.container if waits.blue else ""]
    )
    with world.order() as order:
        blue_green.promote(order, "chat")

    assert world.serving() == world.release("2", claim_gib=30.0).id
    assert list(world.machines["n1"].up) == [waits.green.container]
    assert free(world)
    with world.order() as order, pytest.raises(UsageError, match="no release of chat waits for promotion"):
        blue_green.promote(order, "chat")


@pytest.mark.parametrize("claim_gib", [30.0, 60.0], ids=["beside", "in-place"])
def test_a_green_that_waits_is_taken_back_by_rollback(make: Make, claim_gib: float) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=claim_gib)
    deploy(world, "2", claim_gib=claim_gib, promote=False)

    with world.order() as order:
        done = blue_green.rollback(order, "chat", Wish())

    assert done["release"] == world.serving() == id_of(world, "1")
    assert world.machines["n1"].armed() == [id_of(world, "1")]
    assert free(world)


WARM: dict[str, Any] = {"claim_gib": 30.0, "swap": {"keep_blue_s": 600}}


def test_while_blue_is_warm_a_rollback_is_one_switch_there_and_back(make: Make) -> None:
    world = make(1)
    deploy(world, "1", **WARM)
    deploy(world, "2", **WARM)
    machine = world.machines["n1"]
    started = [line for line in machine.ran if line.startswith("docker start")]

    for version in ("1", "2"):
        with world.order() as order:
            assert blue_green.rollback(order, "chat", Wish()) == {
                "release": id_of(world, version),
                "mode": "one switch",
            }
        assert (world.serving(), machine.armed()) == (id_of(world, version), [id_of(world, version)])
        assert free(world)
    assert [line for line in machine.ran if line.startswith("docker start")] == started


def test_a_warm_blue_is_stopped_by_the_guard_when_its_time_has_come(make: Make) -> None:
    world = make(1)
    deploy(world, "1", **WARM)
    deploy(world, "2", **WARM)

    world.pass_by(599)
    world.tend()
    assert len(world.machines["n1"].up) == 2
    world.pass_by(2)
    world.tend()

    assert list(world.machines["n1"].up) == [f"{id_of(world, '2')}-green-r0"]
    assert world.journal().retirement is None


@pytest.mark.parametrize("to", ["n1", "n2"])
def test_a_warm_blue_stays_as_long_as_it_alone_answers(make: Make, to: str) -> None:
    """On the gateway's node and on another, whose guard sees for itself."""
    world = make(2)
    blue, other = world.machines[to], world.machines["n1" if to == "n2" else "n2"]
    deploy(world, "1", Wish(nodes=(blue.name,)), **WARM)
    deploy(world, "2", Wish(nodes=(other.name,)), **WARM)
    (green,) = other.up
    other.crash(green)

    world.pass_by(601)
    world.settle()
    assert len(blue.up) == 1
    other.start(green)
    other.moods[world.release("2", **WARM).id] = GARBAGE
    world.settle()
    assert len(blue.up) == 1
    other.moods.clear()
    world.settle()

    assert list(blue.up) == []
    assert [world.journal(name).retirement for name in world.machines] == [None, None]


def test_a_warm_blue_that_was_stopped_by_hand_is_no_reason_to_wait(make: Make) -> None:
    world = make(1)
    deploy(world, "1", **WARM)
    deploy(world, "2", **WARM)
    for name in list(world.machines["n1"].up):
        world.machines["n1"].stop(name)

    world.pass_by(601)
    world.tend()

    assert world.journal().retirement is None


def test_a_warm_release_makes_room_for_the_next_one(make: Make) -> None:
    world = make(1)
    for version in ("1", "2", "3"):
        deploy(world, version, Wish(), **{**WARM, "claim_gib": 45.0})

    assert world.serving() == world.release("3").id
    assert [name.rsplit("-", 2)[0] for name in world.machines["n1"].up] == [id_of(world, "2"), id_of(world, "3")]


def test_once_blue_is_cold_a_rollback_is_a_whole_swap(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    deploy(world, "2")

    with world.order() as order:
        done = blue_green.rollback(order, "chat", DOWN)

    assert (done["mode"], world.serving()) == ("in-place", id_of(world, "1"))


def test_there_is_nothing_to_go_back_to_before_the_second_release(make: Make) -> None:
    world = make(1)
    deploy(world, "1")

    with world.order() as order, pytest.raises(UsageError, match="chat has no previous release"):
        blue_green.rollback(order, "chat", Wish())


def test_a_new_deploy_does_not_forget_a_swap_that_was_left(make: Make) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=30.0)
    deploy(world, "2", claim_gib=30.0, promote=False)

    error = problem(world, "3", claim_gib=30.0)

    assert isinstance(error, PlanRefused)
    assert str(error) == f"a swap to {id_of(world, '2')} stopped in phase bake"
    assert error.next_step == f"sparkops rollback chat, or deploy {id_of(world, '2')} again to finish it"


def test_a_previous_release_whose_node_cannot_be_reached_is_not_a_bug_of_ours(make: Make) -> None:
    world = make(3)
    deploy(world, "1", Wish(nodes=("n2",)))
    deploy(world, "2", Wish(nodes=("n3",)))

    with world.order(without="n2") as order, pytest.raises(NotReachable, match="n2: no answer"):
        blue_green.rollback(order, "chat", DOWN)

    assert world.serving() == id_of(world, "2")
    assert free(world)
