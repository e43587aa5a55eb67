"""The guard of a node: what it does about what a deploy has left, and what it leaves alone."""

from __future__ import annotations

import pytest

from sparkops.errors import Busy
from sparkops.fleet import blue_green
from sparkops.fleet import held as locks
from sparkops.guard.daemon import PAUSES_S, SILENCE_S, watch
from sparkops.plan.journal import Mode
from sparkops.plan.lock import LEASE_S, lease_left
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import ANN
from tests.fleet_unit.machine import GARBAGE
from tests.fleet_unit.nodes import Dead, Life, MachineNode
from tests.fleet_unit.verbs import DOWN, deploy, free, id_of, problem
from tests.fleet_unit.world import World

DEADLINE_S = 304.0


def die(world: World, life: Life, version: str = "2") -> None:
    with world.order(life) as order, pytest.raises(Dead):
        blue_green.deploy(order, world.release(version), DOWN)


def left_in_load(world: World) -> None:
    """In place: blue is stopped and green loads, and the deploy is gone."""
    deploy(world, "1")
    die(world, Life(0, about='"phase": "verify"'))


def ran_since(world: World, count: int) -> list[str]:
    return world.machines["n1"].ran[count:]


def test_until_the_deadline_the_same_deploy_may_go_on_and_the_guard_waits(make: Make) -> None:
    world = make(1)
    left_in_load(world)
    ran = len(world.machines["n1"].ran)

    world.pass_by(LEASE_S + 1)
    world.tend()

    assert (ran_since(world, ran), world.serving()) == ([], "nobody has the traffic")
    deploy(world, "2")
    assert world.serving() == id_of(world, "2")
    assert f"docker create {id_of(world, '2')}" not in " ".join(ran_since(world, ran)), "green was adopted"


def test_after_the_deadline_blue_comes_back_and_green_s_log_is_kept(make: Make) -> None:
    world = make(1)
    left_in_load(world)

    world.pass_by(DEADLINE_S)
    world.tend()

    assert (world.serving(), list(world.machines["n1"].up)) == (id_of(world, "1"), [f"{id_of(world, '1')}-blue-r0"])
    [kept] = (world.stores["n1"].directory / "failures" / "chat").iterdir()
    assert kept.name.endswith(id_of(world, "2"))
    assert (kept / "inspect.json").exists()
    [*_, event] = world.stores["n1"].history("chat")
    assert {key: event[key] for key in ("event", "release", "phase", "evidence")} == {
        "event": "guard: revert",
        "release": id_of(world, "2"),
        "phase": "load",
        "evidence": [f"n1: docker cp sparkops-guard:{kept} ."],
    }
    assert str(event["why"]).startswith("the deploy of ")
    assert str(event["why"]).endswith(" ended without finishing the swap")
    assert free(world)


def test_while_a_deploy_lives_the_guard_leaves_it_alone_however_late_it_is(make: Make) -> None:
    world = make(1)
    left_in_load(world)

    world.pass_by(DEADLINE_S)
    with world.order() as order, locks.hold(order.connected, ["n1"], ANN):
        ran = len(world.machines["n1"].ran)
        world.tend()
        assert ran_since(world, ran) == []


def test_on_hold_the_guard_does_nothing_and_afterwards_what_is_due(make: Make) -> None:
    world = make(1)
    left_in_load(world)
    world.pass_by(DEADLINE_S)

    for reason in ("a new fan", None):
        world.stores["n1"].change("chat", lambda j, _, reason=reason: j.model_copy(update={"hold": reason}))  # type: ignore[misc]
        world.tend()
        assert (world.serving() == id_of(world, "1")) is (reason is None)


def test_a_deploy_that_was_taken_over_is_refused_and_changes_nothing_more(make: Make) -> None:
    world = make(1)
    deploy(world, "1")
    after: list[int] = []

    def asleep() -> None:
        world.pass_by(LEASE_S + DEADLINE_S)
        world.tend()
        assert world.serving() == id_of(world, "1")
        after.append(len(world.machines["n1"].ran))

    world.listeners["phase verify"] = asleep
    error = problem(world, "2")

    assert (type(error), error.exit_code) == (Busy, 4)
    assert str(error) == "n1: another deploy has taken over chat"
    assert ran_since(world, after[0]) == []
    assert (world.serving(), free(world)) == (id_of(world, "1"), True)


@pytest.mark.parametrize("mode", [Mode.IN_PLACE, Mode.BESIDE])
@pytest.mark.parametrize("good", [True, False])
def test_with_the_traffic_green_is_judged_as_soon_as_the_lease_has_ended(make: Make, mode: Mode, *, good: bool) -> None:
    world = make(1)
    gib = 60.0 if mode is Mode.IN_PLACE else 30.0
    deploy(world, "1", claim_gib=gib)
    with world.order(Life(0, about='"phase": "bake"')) as order, pytest.raises(Dead):
        blue_green.deploy(order, world.release("2", claim_gib=gib), DOWN)
    if not good:
        world.machines["n1"].moods[id_of(world, "2")] = GARBAGE

    world.pass_by(LEASE_S)
    world.tend()

    assert world.serving() == id_of(world, "2" if good else "1")
    assert len(world.machines["n1"].up) == 1
    assert free(world)


def test_a_green_that_waits_for_its_promotion_is_left_alone(make: Make) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=30.0)
    deploy(world, "2", claim_gib=30.0, promote=False)
    ran = len(world.machines["n1"].ran)

    world.pass_by(100 * DEADLINE_S)
    world.tend()

    assert ran_since(world, ran) == []
    assert world.journal().swap is not None


def test_what_fails_is_tried_again_and_the_lock_is_free_between(make: Make) -> None:
    world = make(1)
    left_in_load(world)
    world.pass_by(DEADLINE_S)
    machine = world.machines["n1"]

    machine.fails = lambda line: int(line.startswith("docker start"))
    world.tend()
    assert world.serving() == "nobody has the traffic"
    assert lease_left(world.journal(), world.clocks["n1"]()) == 0
    machine.fails = lambda _: 0
    world.tend()
    assert world.serving() == "nobody has the traffic", "it is not tried again at once"
    world.pass_by(PAUSES_S[0])
    world.tend()

    assert (world.serving(), free(world)) == (id_of(world, "1"), True)
    assert world.journal().trouble is None


def test_what_fails_again_and_again_needs_a_person_and_is_still_tried(make: Make) -> None:
    world = make(1)
    left_in_load(world)
    world.pass_by(DEADLINE_S)
    machine = world.machines["n1"]

    machine.fails = lambda line: int(line.startswith("docker start"))
    for pause_s in (0.0, *PAUSES_S):
        world.pass_by(pause_s)
        world.tend()
    trouble = world.journal().trouble
    machine.fails = lambda _: 0
    world.pass_by(PAUSES_S[-1])
    world.tend()

    assert trouble is not None
    assert "the guard of n1 has tried 4 times: n1: `docker start" in trouble
    assert (world.serving(), world.journal().trouble) == (id_of(world, "1"), None)


def test_a_green_that_waits_for_promotion_and_falls_silent_gives_the_traffic_back(make: Make) -> None:
    world = make(1)
    deploy(world, "1", claim_gib=30.0)
    with world.order() as order:
        blue_green.deploy(order, world.release("2", claim_gib=30.0), DOWN, promote=False)
    first, second = (world.release(version, claim_gib=30.0).id for version in ("1", "2"))
    world.pass_by(1e5)
    world.tend()
    assert world.serving() == second

    world.machines["n1"].stop(f"{second}-green-r0")
    world.tend()
    world.pass_by(SILENCE_S - 1)
    world.tend()
    assert "does not run" in world.serving(), "it may come back"
    world.pass_by(1.0)
    world.tend()

    assert world.serving() == first
    assert world.journal().swap is None


def test_a_service_whose_journal_cannot_be_read_does_not_cost_the_others_their_guard(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    world = make(1)
    left_in_load(world)
    directory = world.stores["n1"].directory
    (directory / "aaa.json").write_text("{")
    broken = world.journal().model_dump(mode="json")
    broken["swap"]["green"]["recipe"] = broken["swap"]["blue"]["recipe"] = {"name": "of another version"}
    changed = type(world.journal()).model_validate(broken)
    world.stores["n1"].change("bbb", lambda _, __: changed)

    world.pass_by(DEADLINE_S)
    world.tend()

    assert world.serving() == id_of(world, "1")
    assert (directory / "aaa.json").read_text() == "{"
    said = capsys.readouterr().err
    assert f"aaa: the journal {directory}/aaa.json cannot be read" in said
    assert "bbb: Traceback" in said


def test_the_guard_looks_again_and_again(make: Make) -> None:
    world, slept = make(1), []

    class Enough(Exception):
        """The test has seen enough."""

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise Enough

    with pytest.raises(Enough):
        watch(world.stores["n1"], MachineNode(world.machines["n1"], world.stores["n1"]), sleep)

    assert slept == [1.0, 1.0, 1.0]


def test_a_long_start_keeps_the_guard_s_own_lock(make: Make) -> None:
    world = make(1)
    left_in_load(world)
    world.pass_by(DEADLINE_S)
    machine, left = world.machines["n1"], []

    def slow(line: str) -> int:
        if line.startswith("docker stop"):
            world.pass_by(LEASE_S + 1)
        if line.startswith("docker start"):
            left.append(lease_left(world.journal(), world.clocks["n1"]()))
        return 0

    machine.fails = slow
    world.tend()

    assert left == [LEASE_S]
