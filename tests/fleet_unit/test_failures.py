"""Every command of a swap fails once: what served before serves on, alone, and the lock is free."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.errors import BeingEnded, Busy, SparkopsError
from sparkops.fleet import blue_green
from sparkops.plan.journal import Journal, Phase, Verdict
from sparkops.plan.lock import LEASE_S, Clock
from sparkops.plan.swap import PHASES
from tests.fleet_unit.nodes import Life
from tests.fleet_unit.test_crash import BESIDE, IN_PLACE, Begun, Scene, good_end, hours_pass
from tests.fleet_unit.world import World

LEFT = ("promote failed", "retire failed")


class Once:
    """Lets the n-th changing command fail, and only that."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.seen: list[str] = []

    def __call__(self, line: str) -> int:
        if line.startswith("docker") and not line.endswith("show"):
            self.seen.append(line)
            return int(len(self.seen) == self.number)
        return 0


@pytest.mark.parametrize(("scene", "code"), [(IN_PLACE, 6), (BESIDE, 1)], ids=["in-place", "beside"])
def test_whichever_command_fails_a_good_release_serves_in_the_end(scene: Scene, code: int, tmp_path: Path) -> None:
    """Before green is promoted that is blue. Afterwards it is green, and the guards do what is left."""
    begun, outcomes, number = Begun(scene, tmp_path).first(), {}, 1
    while True:
        with closing(begun.again()) as world:
            world.machines["n1"].fails = once = Once(number)
            ended = outcome(begun, world)
            if len(once.seen) < number:
                break
            world.tend()
            served = {begun.release(world, version).id: version for version in ("1", "2")}[world.serving()]
            outcomes[f"{number}: {once.seen[number - 1].split(' --')[0]}"] = (ended, served, good_end(world))
        number += 1

    went_back = {
        each for each, (ended, served, wrong) in outcomes.items() if (ended, served, wrong) == (str(code), "1", [])
    }
    went_on = {
        each for each, (ended, served, wrong) in outcomes.items() if (served, wrong) == ("2", []) and ended in LEFT
    }
    assert went_back | went_on == set(outcomes), outcomes
    assert went_back
    assert went_on
    assert number > 6


def outcome(begun: Begun, world: World) -> str:
    """The exit code, or which phase was left to the guards."""
    try:
        with world.order() as order:
            done = blue_green.deploy(order, begun.release(world, "2"), begun.scene.wish())
    except SparkopsError as caught:
        return str(caught.exit_code)
    return str(done and done["unfinished"]).partition(":")[0]


@pytest.mark.parametrize(
    ("scene", "phase"),
    [
        pytest.param(scene, phase, id=f"{scene.mode}, {phase}")
        for scene in (IN_PLACE, BESIDE)
        for phase in PHASES[scene.mode]
    ],
)
def test_a_laptop_that_slept_is_told_who_has_taken_over(scene: Scene, phase: Phase, tmp_path: Path) -> None:
    """While it sleeps the guards end what it has begun. What it sees then, a green that ends, is not its failure."""
    begun = Begun(scene, tmp_path).first()
    with closing(begun.again()) as world:
        world.listeners[f"phase {phase}"] = lambda: hours_pass(begun, world)
        with pytest.raises(Busy, match="another deploy has taken over chat"), world.order() as order:
            blue_green.deploy(order, begun.release(world, "2"), scene.wish())
        assert good_end(world) == []


@pytest.mark.parametrize("wait_s", [0.0, 60.0])
def test_who_waits_goes_on_when_the_guards_have_ended_it(wait_s: float, tmp_path: Path) -> None:
    """A deploy was killed after the switch, and the guard has decided that green stays."""
    begun = Begun(BESIDE, tmp_path).first()
    with closing(begun.again()) as world:
        assert begun.die(world, Life(0, about='"phase": "bake"'))
        world.stores["n1"].change("chat", decided)
        world.pass_by(LEASE_S)
        release = begun.release(world, "2")
        busy = f"the guards bring the swap to {release.id} to its end (finish)"
        world.listeners[f"waiting: {busy}"] = world.settle
        with world.order() as order:
            waiting = replace(order, wait_s=wait_s)
            if wait_s:
                assert blue_green.deploy(waiting, release, BESIDE.wish()) is None
            else:
                with pytest.raises(BeingEnded, match=re.escape(busy)):
                    blue_green.deploy(waiting, release, BESIDE.wish())
        world.settle()
        assert (world.serving(), good_end(world)) == (release.id, [])


def decided(journal: Journal, _: Clock) -> Journal:
    assert journal.swap
    return journal.model_copy(update={"swap": journal.swap.model_copy(update={"verdict": Verdict.FINISH})})
