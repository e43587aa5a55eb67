"""A pair on machines without hardware: its ranks start, stop, fail and come back as one."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.commands import guard
from sparkops.errors import InPlaceFailed, PlanRefused, SparkopsError, StartFailed
from sparkops.fleet import blue_green
from sparkops.plan.journal import Mode
from sparkops.plan.option import Wish
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import DIES, GARBAGE
from tests.fleet_unit.verbs import deploy, free, problem
from tests.fleet_unit.world import World

ONE = Wish(nodes=("n1", "n2"), allow_downtime=True)
OTHER = Wish(nodes=("n3", "n4"))
TURNED = Wish(nodes=("n2", "n1"), allow_downtime=True)


def id_of(world: World, version: str) -> str:
    return world.release(version, pair=True).id


def up(world: World) -> list[tuple[str, str]]:
    """Node and container of every engine that runs."""
    return [(name, each) for name, machine in world.machines.items() for each in machine.up]


def ran(world: World, word: str) -> list[tuple[str, str]]:
    """Node and container of every `docker WORD`, in the order of each node."""
    lines = ((name, line.split()) for name, machine in world.machines.items() for line in machine.ran)
    return [(name, words[-1]) for name, words in lines if words[1] == word]


def whole(world: World, version: str, slot: str, *nodes: str) -> bool:
    """Whether both ranks of a release run on these nodes, armed, and no other engine does."""
    release = id_of(world, version)
    wanted = sorted((name, f"{release}-{slot}-r{number}") for number, name in enumerate(nodes))
    armed = [release for machine in world.machines.values() for release in machine.armed()]
    return (sorted(up(world)), armed, world.serving()) == (wanted, [release] * 2, release)


def test_a_pair_comes_up_on_both_nodes_and_is_asked_at_rank_0(make: Make) -> None:
    world = make(2)

    done = deploy(world, "1", ONE, pair=True)

    assert done is not None
    assert (done["mode"], done["green"]["node"]) == ("first", "n1")
    assert done["green"]["workers"] == [{"node": "n2", "container": f"{id_of(world, '1')}-blue-r1"}]
    assert whole(world, "1", "blue", "n1", "n2")
    assert free(world)


def test_a_pair_is_refused_when_the_network_of_one_node_cannot_be_read(make: Make) -> None:
    world = make(2)
    world.machines["n2"].fails = lambda line: 127 * ("ip -j addr" in line)

    refused = problem(world, "1", ONE, pair=True)

    assert isinstance(refused, PlanRefused)
    assert "  first on n1 and n2: n2: its network is unknown: the query ended with code 127: " in str(refused)
    assert up(world) == []


def compilers(world: World) -> dict[str, list[str]]:
    """The value of MAX_JOBS in every `docker create`, by node."""
    words = {name: " ".join(machine.ran).split() for name, machine in world.machines.items()}
    return {name: [each[15:] for each in said if each.startswith("--env=MAX_JOBS=")] for name, said in words.items()}


def test_each_rank_may_run_the_compilers_that_fit_on_its_own_node(make: Make) -> None:
    world = make(2)
    world.machines["n2"].memory_gib = 84.0

    deploy(world, "1", ONE, pair=True)  # 60 of 100 GiB are claimed, 60 of 84
    deploy(world, "2", ONE, pair=True)  # in place: what blue has given back is free

    assert compilers(world) == {"n1": ["4", "4"], "n2": ["2", "2"]}


def test_ranks_of_one_start_share_a_token_that_no_command_line_shows(make: Make) -> None:
    world = make(2)

    deploy(world, "1", ONE, pair=True, serve={"executor": "ray"})

    lines = {name: [line for line in machine.ran if "docker cp" in line] for name, machine in world.machines.items()}
    release = f"{world.release('1', pair=True, serve={'executor': 'ray'}).id}-blue"
    assert lines == {f"n{number + 1}": [f"docker cp - {release}-r{number}:/run"] for number in (0, 1)}
    tokens = [machine.token for machine in world.machines.values()]
    assert tokens[0] == tokens[1]
    assert len(tokens[0]) > 1024  # a tar with the token


def test_the_firewall_is_closed_on_each_node_before_its_rank_starts(make: Make) -> None:
    world = make(2)

    deploy(world, "1", ONE, pair=True)

    for machine in world.machines.values():
        order = ["filter" if str(guard.FILTER) == line else "start" for line in machine.ran if is_start_or_filter(line)]
        assert order == ["filter", "start"]
        container = next(each for each in machine.containers.values() if "sparkops.peers" in each["Config"]["Labels"])
        peers = sorted(f"10.0.0.{other.address.rpartition('.')[2]}" for other in world.machines.values())
        assert container["Config"]["Labels"]["sparkops.peers"].split(",") == peers


def is_start_or_filter(line: str) -> bool:
    return line == str(guard.FILTER) or line.startswith("docker start ")


def test_ray_does_not_carry_the_compilers_of_rank_0_to_the_other_node(make: Make) -> None:
    world = make(2)

    deploy(world, "1", ONE, pair=True, serve={"executor": "ray"})

    [head] = [line for line in world.machines["n1"].ran if line.startswith("docker create ")]
    assert '"MAX_JOBS", "TORCHINDUCTOR_COMPILE_THREADS", "TILELANG_AUTO_TUNING_MAX_CPU_COUNT"]' in head


def test_ranks_are_created_before_any_is_started_and_rank_0_starts_last(make: Make) -> None:
    world = make(2)
    order: list[tuple[str, str]] = []

    def note(line: str) -> int:
        verb = line.split()[1]
        if verb in ("create", "start"):
            order.append((verb, "r1" if "-r1" in line else "r0"))
        return 0

    for machine in world.machines.values():
        machine.fails = note
    deploy(world, "1", ONE, pair=True)

    assert order == [("create", "r0"), ("create", "r1"), ("start", "r1"), ("start", "r0")]


@pytest.mark.parametrize(
    ("claim_gib", "nodes", "wish", "mode", "places"),
    [
        (60.0, 2, ONE, Mode.IN_PLACE, ("n1", "n2")),
        (30.0, 2, ONE, Mode.BESIDE, ("n1", "n2")),
        (60.0, 4, OTHER, Mode.ACROSS, ("n3", "n4")),
        (60.0, 2, TURNED, Mode.IN_PLACE, ("n2", "n1")),
    ],
    ids=["in-place", "beside", "across", "in-place, ranks change places"],
)
def test_a_swap_of_a_pair_leaves_one_pair(
    make: Make, claim_gib: float, nodes: int, wish: Wish, mode: Mode, places: tuple[str, ...]
) -> None:
    world = make(nodes)
    deploy(world, "1", ONE, pair=True, claim_gib=claim_gib)

    done = deploy(world, "2", wish, pair=True, claim_gib=claim_gib)

    assert done is not None
    assert done["mode"] == mode.value
    green = world.release("2", pair=True, claim_gib=claim_gib).id
    assert sorted(up(world)) == sorted((name, f"{green}-green-r{index}") for index, name in enumerate(places))
    assert [each for machine in world.machines.values() for each in machine.armed()] == [green, green]
    assert world.serving() == green
    assert free(world)


@pytest.mark.parametrize("mood", [DIES, GARBAGE])
@pytest.mark.parametrize("wish", [ONE, OTHER], ids=["in-place", "across"])
def test_a_bad_green_pair_ends_as_one_and_blue_serves(make: Make, mood: str, wish: Wish) -> None:
    world = make(4)
    deploy(world, "1", ONE, pair=True)
    for machine in world.machines.values():
        machine.moods[id_of(world, "2")] = mood

    error = problem(world, "2", wish, pair=True)

    assert error.exit_code == (6 if wish is ONE else 1)
    assert isinstance(error, InPlaceFailed if wish is ONE else SparkopsError)
    assert whole(world, "1", "blue", "n1", "n2")
    assert free(world)


@pytest.mark.parametrize("number", [0, 1])
def test_one_rank_that_dies_fails_the_replica_and_both_are_told_with_their_last_lines(make: Make, number: int) -> None:
    world = make(4)
    deploy(world, "1", ONE, pair=True)
    for name in ("n3", "n4"):
        world.machines[name].moods[id_of(world, "2")] = DIES
        world.machines[name].dying = frozenset({number})
        world.machines[name].logs[id_of(world, "2")] = f"RuntimeError: said on {name}"

    error = problem(world, "2", OTHER, pair=True)

    node = ("n3", "n4")[number]
    assert isinstance(error, StartFailed)
    assert f"{id_of(world, '2')}-green-r{number}" in str(error)
    assert f"RuntimeError: said on {node}" in str(error)
    notes = "\n".join(error.__notes__)
    assert f"rank {number} on {node}: exited with code 1" in notes
    assert f"rank {1 - number} on {('n4', 'n3')[number]}: runs" in notes
    assert f"last line: RuntimeError: said on {node}" in notes
    assert "n4 was to meet at port" in notes
    assert whole(world, "1", "blue", "n1", "n2")


def test_ranks_of_different_images_are_refused_before_anything_is_stopped(make: Make) -> None:
    world = make(2)
    deploy(world, "1", ONE, pair=True)
    world.machines["n2"].layer = "sha256:2"
    before = {word: ran(world, word) for word in ("create", "stop", "update")}

    error = problem(world, "2", ONE, pair=True)

    assert isinstance(error, PlanRefused)
    assert "the content of sparkops/q:0123456789ab differs" in str(error)
    assert {word: ran(world, word) for word in before} == before
    assert whole(world, "1", "blue", "n1", "n2")
    assert free(world)


def test_a_broken_link_is_refused_before_anything_is_stopped(make: Make) -> None:
    world = make(2)
    deploy(world, "1", ONE, pair=True)
    world.machines["n2"].fails = lambda line: int(line.startswith("ping"))

    error = problem(world, "2", ONE, pair=True)

    assert "the link 10.0.0.0/24 is broken" in str(error)
    assert whole(world, "1", "blue", "n1", "n2")
    assert world.gate.switches == ["be_chat_blue"]


def test_what_an_earlier_attempt_left_is_removed_before_the_next_one(make: Make) -> None:
    world = make(4)
    deploy(world, "1", ONE, pair=True)
    for name in ("n3", "n4"):
        world.machines[name].moods[id_of(world, "2")] = DIES
        world.machines[name].dying = frozenset({1})
    problem(world, "2", OTHER, pair=True)
    for name in ("n3", "n4"):
        world.machines[name].moods.clear()

    deploy(world, "2", OTHER, pair=True)

    assert ran(world, "rm") == [("n3", f"{id_of(world, '2')}-green-r0"), ("n4", f"{id_of(world, '2')}-green-r1")]
    assert whole(world, "2", "green", "n3", "n4")


def test_a_service_goes_from_one_node_to_a_pair_and_back(make: Make) -> None:
    world = make(3)
    deploy(world, "1", Wish(nodes=("n1",)))
    deploy(world, "2", Wish(nodes=("n2", "n3")), pair=True)
    assert whole(world, "2", "green", "n2", "n3")

    done = deploy(world, "3", Wish(nodes=("n2",), allow_downtime=True))

    assert done is not None
    assert (done["mode"], up(world)) == ("in-place", [("n2", f"{world.release('3').id}-blue-r0")])
    assert free(world)


def test_the_same_pair_again_changes_nothing(make: Make) -> None:
    world = make(2)
    deploy(world, "1", ONE, pair=True)
    before = [list(machine.ran) for machine in world.machines.values()]

    assert deploy(world, "1", ONE, pair=True) is None
    assert [list(machine.ran) for machine in world.machines.values()] == before


def test_all_nodes_of_both_pairs_and_of_the_gateway_take_part(make: Make) -> None:
    world = make(4)
    deploy(world, "1", Wish(nodes=("n2", "n3")), pair=True)

    deploy(world, "2", Wish(nodes=("n3", "n4"), allow_downtime=True), pair=True)

    assert whole(world, "2", "green", "n3", "n4")
    for name in world.machines:
        journal = world.journal(name)
        assert journal.active is not None
        assert (journal.active.release, journal.active.nodes) == (id_of(world, "2"), ("n3", "n4"))


def test_a_live_pair_of_which_one_node_cannot_be_reached_is_not_left_half_behind(make: Make) -> None:
    """Its rank there would start by itself when the node is back, and nobody would stop it."""
    world = make(4)
    deploy(world, "1", Wish(nodes=("n1", "n2")), pair=True)
    before = up(world)

    with world.order(without="n2") as order, pytest.raises(PlanRefused) as caught:
        blue_green.deploy(order, world.release("2", pair=True), OTHER)

    assert str(caught.value) == (
        f"{id_of(world, '1')} has the traffic, and rank 1 of it is not on any node that answers; it may be on n2"
    )
    assert caught.value.next_step == "Bring n2 back, or take it out of the inventory."
    assert up(world) == before


def test_a_rank_of_an_earlier_attempt_elsewhere_is_no_rank_of_what_serves(make: Make) -> None:
    world = make(4)
    deploy(world, "1", ONE, pair=True)
    for machine in world.machines.values():
        machine.moods[id_of(world, "2")] = GARBAGE
    problem(world, "2", OTHER, pair=True)
    for machine in world.machines.values():
        machine.moods.clear()
    deploy(world, "2", ONE, pair=True)
    for machine in world.machines.values():
        machine.moods[id_of(world, "3")] = GARBAGE

    error = problem(world, "3", ONE, pair=True)

    assert isinstance(error, InPlaceFailed)
    assert whole(world, "2", "green", "n1", "n2")
    active = world.journal().active
    assert active is not None
    assert active.nodes == ("n1", "n2")


def test_a_warm_pair_comes_back_by_one_switch_and_both_its_ranks_retire_in_time(make: Make) -> None:
    world = make(4)
    warm: dict[str, Any] = {"pair": True, "swap": {"keep_blue_s": 600}}
    deploy(world, "1", ONE, **warm)
    deploy(world, "2", OTHER, **warm)
    assert len(up(world)) == 4

    with world.order() as order:
        assert blue_green.rollback(order, "chat", Wish())["mode"] == "one switch"
    armed = [release for machine in world.machines.values() for release in machine.armed()]
    assert (world.serving(), armed) == (id_of(world, "1"), [id_of(world, "1")] * 2)
    world.pass_by(601)
    world.tend()

    assert whole(world, "1", "blue", "n1", "n2")
    assert all(world.journal(name).retirement is None for name in world.machines)
