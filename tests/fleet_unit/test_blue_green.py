"""A deploy on machines without hardware: who has the traffic, what was stopped, what is remembered."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.commands.guard import FILTER
from sparkops.errors import (
    InPlaceFailed,
    NeedsPerson,
    PlanRefused,
    ProbeFailed,
    SparkopsError,
    StartFailed,
    UsageError,
)
from sparkops.fleet import blue_green
from sparkops.plan.journal import Mode
from sparkops.plan.option import Wish
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import DIES, GARBAGE
from tests.fleet_unit.verbs import DOWN, deploy, free, id_of, problem


def test_a_deploy_of_what_serves_sends_no_changing_command(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    ran, journal = list(world.machines["n1"].ran), world.journal()

    assert deploy(world, "1") is None
    assert world.machines["n1"].ran == ran
    assert world.journal() == journal


@pytest.mark.parametrize(
    ("claim_gib", "nodes", "mode", "switches"),
    [
        (30.0, 1, Mode.BESIDE, ["be_chat_blue", "be_chat_green"]),
        (60.0, 1, Mode.IN_PLACE, ["be_chat_blue", "be_down", "be_chat_green"]),
        (60.0, 2, Mode.ACROSS, ["be_chat_blue", "be_chat_green"]),
    ],
)
def test_a_swap_gives_the_traffic_to_green_and_leaves_one_engine(
    make: Make, claim_gib: float, nodes: int, mode: Mode, switches: list[str]
) -> None:
    world = make(nodes)
    deploy(world, "1", claim_gib=claim_gib)

    done = deploy(world, "2", claim_gib=claim_gib)

    assert done is not None
    assert (done["mode"], done["release"], done["cut"]) == (mode.value, id_of(world, "2"), 0)
    assert world.serving() == id_of(world, "2")
    assert world.gate.switches == switches
    assert [name for machine in world.machines.values() for name in machine.up] == [done["green"]["container"]]
    assert [name for machine in world.machines.values() for name in machine.armed()] == [id_of(world, "2")]
    assert free(world)


def test_the_journal_names_what_serves_and_what_served_on_every_node_that_took_part(make: Make) -> None:
    world = make(2)
    deploy(world, "1", Wish(nodes=("n1",)))
    deploy(world, "2", Wish(nodes=("n2",)))

    for name in world.machines:
        journal = world.journal(name)
        assert journal.active is not None
        assert journal.previous is not None
        assert (journal.active.release, journal.previous.release) == (id_of(world, "2"), id_of(world, "1"))
    assert [event["event"] for event in world.stores["n1"].history("chat")] == ["deployed", "deployed"]


@pytest.mark.parametrize(
    ("mood", "kind", "says"),
    [
        (DIES, StartFailed, "did not start: its process ended with code 1"),
        (GARBAGE, ProbeFailed, "the smoke suite failed"),
    ],
)
def test_a_bad_green_never_has_the_traffic_and_blue_serves_on(
    make: Make, mood: str, kind: type[SparkopsError], says: str
) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=30.0)
    world.machines["n1"].moods[world.release("2", claim_gib=30.0).id] = mood

    error = problem(world, "2", claim_gib=30.0)

    assert isinstance(error, kind)
    assert says in str(error)
    assert error.exit_code == 1
    assert world.gate.switches == ["be_chat_blue"]
    assert (world.serving(), list(world.machines["n1"].up)) == (id_of(world, "1"), [f"{id_of(world, '1')}-blue-r0"])
    assert (world.home / "failures" / "n1" / "inspect.json").exists()
    assert free(world)


@pytest.mark.parametrize("mood", [DIES, GARBAGE])
def test_in_place_a_bad_green_ends_with_blue_restored_and_exit_code_6(make: Make, mood: str) -> None:
    world = make(1)
    deploy(world, "1")
    world.machines["n1"].moods[id_of(world, "2")] = mood

    error = problem(world, "2")

    assert (type(error), error.exit_code) == (InPlaceFailed, 6)
    assert str(error).endswith(f"{id_of(world, '1')} serves again")
    assert world.gate.switches == ["be_chat_blue", "be_down", "be_chat_blue"]
    assert (world.serving(), world.machines["n1"].armed()) == (id_of(world, "1"), [id_of(world, "1")])
    assert free(world)


def test_a_refused_plan_changes_nothing(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    ran = list(world.machines["n1"].ran)

    error = problem(world, "2", Wish())

    assert (type(error), error.exit_code) == (PlanRefused, 5)
    assert world.machines["n1"].ran == ran
    assert free(world)


def test_without_a_gateway_there_is_no_swap(make: Make) -> None:
    world = make(1)
    with world.order() as order:
        bare = order.connected.fleet.model_copy(update={"gateway": None})
        object.__setattr__(order.connected, "fleet", bare)
        with pytest.raises(UsageError, match="there is no gateway"):
            blue_green.deploy(order, world.release("1"), DOWN)


def test_requests_under_way_are_waited_for_and_what_is_left_is_cut_and_counted(make: Make) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=30.0, swap={"drain_s": 5})
    world.gate.sessions = {"be_chat_blue": 4}
    drained = deploy(world, "2", claim_gib=30.0, swap={"drain_s": 5})
    world.gate.sessions, world.gate.leaving = {"be_chat_green": 3}, False

    cut = deploy(world, "3", claim_gib=30.0)

    assert drained is not None
    assert cut is not None
    assert (drained["cut"], cut["cut"]) == (0, 3)


def test_memory_that_does_not_come_back_starts_nothing_and_says_what_to_do(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    machine = world.machines["n1"]

    def pinned(line: str) -> int:
        if line.startswith("docker stop"):
            machine.memory_gib -= 60.0
        return 0

    machine.fails = pinned
    error = problem(world, "2")

    assert (type(error), error.exit_code) == (NeedsPerson, 7)
    assert "n1: the memory did not come back: 60 GiB claimed, 40.0 GiB available: 20.0 GiB short" in str(error)
    assert f"docker create {id_of(world, '2')}" not in " ".join(machine.ran)
    assert free(world) is False, "the swap is left for a person to see"


def test_a_green_that_turns_bad_while_it_bakes_is_not_promoted(make: Make) -> None:
    world = make(1)
    baked: dict[str, Any] = {"claim_gib": 30.0, "swap": {"bake_s": 0.3}}
    deploy(world, "1", **baked)
    green = world.release("2", **baked).id

    def turns_bad() -> None:
        world.machines["n1"].moods[green] = GARBAGE

    world.listeners["baking, 0 s left"] = turns_bad
    error = problem(world, "2", **baked)

    assert "green answers wrongly with the traffic" in str(error)
    assert world.serving() == world.release("1", **baked).id
    assert free(world)


def test_a_green_that_dies_between_two_requests_of_the_bake_is_noticed_at_the_next_look(make: Make) -> None:
    world = make(1)
    baked: dict[str, Any] = {"claim_gib": 30.0, "swap": {"bake_s": 0.3}}
    deploy(world, "1", **baked)
    world.events.clear()

    def dies() -> None:
        machine = world.machines["n1"]
        machine.crash(next(name for name in machine.up if "-green-" in name))

    world.listeners["baking, 0 s left"] = dies
    error = problem(world, "2", **baked)

    assert "died with the traffic" in str(error)
    assert [event.text for event in world.events if event.text.startswith("baking")] == ["baking, 0 s left"]
    assert world.serving() == world.release("1", **baked).id


def test_a_first_release_whose_switch_fails_leaves_the_service_offline(make: Make) -> None:
    """There is no old release to go back to."""
    world = make(1)
    machine = world.machines["n1"]
    machine.fails = lambda line: int(" switch chat blue " in line)

    error = problem(world, "1")

    assert error.exit_code == 1
    assert " switch chat blue " in str(error)
    assert (world.serving(), list(machine.up), machine.armed()) == ("nobody has the traffic", [], [])
    assert free(world)


def test_beside_the_gateway_an_engine_is_called_on_loopback_and_elsewhere_its_port_is_closed_first(make: Make) -> None:
    world = make(2)
    deploy(world, "1", Wish(nodes=("n1",)), claim_gib=60.0)
    here = next(line for line in world.machines["n1"].ran if line.startswith("docker create"))
    assert " --host=127.0.0.1 " in here
    assert "--label=sparkops.callers= " in here
    assert world.gate.active
    assert world.gate.active[1][0].startswith("127.0.0.1:")
    assert str(FILTER) not in world.machines["n1"].ran

    deploy(world, "2", Wish(nodes=("n2",)), claim_gib=60.0)
    ran = world.machines["n2"].ran
    there = next(line for line in ran if line.startswith("docker create"))
    assert f"--label=sparkops.callers={world.machines['n1'].address} " in there
    assert " --host=0.0.0.0 " in there
    starts = next(number for number, line in enumerate(ran) if line.startswith("docker start"))
    assert ran.index(there) < ran.index(str(FILTER)) < starts


def test_a_port_that_cannot_be_closed_starts_no_engine(make: Make) -> None:
    world = make(2)
    deploy(world, "1", Wish(nodes=("n1",)), claim_gib=60.0)
    world.machines["n2"].fails = lambda line: int(line == str(FILTER))

    problem(world, "2", Wish(nodes=("n2",)), claim_gib=60.0)

    assert not [line for line in world.machines["n2"].ran if line.startswith("docker start")]
    assert world.serving() == world.release("1", claim_gib=60.0).id
