"""A deploy is killed at every word that it says to a guard. What it leaves, guards bring to a good end."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkops.fleet import blue_green
from sparkops.plan.journal import Journal, Mode
from sparkops.plan.lock import LEASE_S, lease_left
from sparkops.plan.option import Wish
from sparkops.release import Release
from tests.fleet_unit import world as worlds
from tests.fleet_unit.gate import Gate
from tests.fleet_unit.machine import GARBAGE
from tests.fleet_unit.nodes import Dead, Life
from tests.fleet_unit.world import World

DEADLINE_S = 303.0 + 1.0


@dataclass(frozen=True)
class Scene:
    """One release serves on the nodes `blue`, and the next one comes up on `green` in a mode; two names are a pair."""

    mode: Mode
    nodes: int
    blue: str
    green: str
    claim_gib: float = 60.0
    bake_s: float = 0.0

    def wish(self) -> Wish:
        return Wish(nodes=tuple(self.green.split()), mode=self.mode, allow_downtime=True)


IN_PLACE = Scene(Mode.IN_PLACE, 1, "n1", "n1")
BESIDE = Scene(Mode.BESIDE, 1, "n1", "n1", 30.0)


@dataclass
class Begun:
    """A world as it was while the first release served; it can be had again and again."""

    scene: Scene
    home: Path
    base: int = 0
    gate: Gate | None = None
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)
    journals: dict[str, Journal] = field(default_factory=dict)
    count: int = 0

    def first(self) -> Begun:
        with closing(worlds.build(self.home / "first", self.scene.nodes)) as world, world.order() as order:
            blue_green.deploy(order, self.release(world, "1"), Wish(nodes=tuple(self.scene.blue.split())))
            self.base, self.gate = world.base, world.gate
            self.containers = {name: copy.deepcopy(machine.containers) for name, machine in world.machines.items()}
            self.journals = {name: world.journal(name) for name in world.machines}
        return self

    def again(self) -> World:
        self.count += 1
        world = worlds.build(self.home / str(self.count), self.scene.nodes)
        world.base = self.base
        world.machines["n1"].gate = copy.deepcopy(self.gate)
        for name, machine in world.machines.items():
            machine.containers = copy.deepcopy(self.containers[name])
            machine.go_on()
            if self.journals[name].generation:
                world.stores[name].change("chat", lambda _, __, journal=self.journals[name]: journal)  # type: ignore[misc]
        return world

    def release(self, world: World, version: str) -> Release:
        nodes = self.scene.blue if version == "1" else self.scene.green
        return world.release(
            version, claim_gib=self.scene.claim_gib, swap={"bake_s": self.scene.bake_s}, pair=" " in nodes
        )

    def die(self, world: World, life: Life) -> bool:
        """Deploy the second release. Whether the deploy has died of it."""
        with world.order(life) as order, suppress(Dead):
            blue_green.deploy(order, self.release(world, "2"), self.scene.wish())
            return False
        return True


def good_end(world: World) -> list[str]:
    """What is wrong, once every guard has done its duty."""
    serving = world.serving()
    wrong = [serving] if " " in serving else []
    for name, store in world.stores.items():
        journal = store.read("chat")
        wrong += [f"{name}: a swap is left in phase {journal.swap.phase}"] if journal.swap else []
        wrong += [f"{name}: the lock is held"] if lease_left(journal, world.clocks[name]()) else []
    return [*wrong, *not_whole(world, serving)]


def not_whole(world: World, serving: str) -> list[str]:
    """What is wrong, unless every rank of what serves runs, of one attempt, and starts by itself; and nothing else."""
    engines = [each for machine in world.machines.values() for each in machine.running()]
    labels = [each["Config"]["Labels"] for each in engines if each["Config"]["Labels"]]
    running = [each["sparkops.release"] for each in labels]
    attempts = {each.get("sparkops.generation") for each in labels}
    armed = [release for machine in world.machines.values() for release in machine.armed()]
    wanted = [serving] * int(labels[0].get("sparkops.ranks", "1") if labels else 0)
    wrong = [] if armed == wanted else [f"{armed} start by themselves, and {serving} serves"]
    whole = running == wanted and len(attempts) == 1
    return wrong if whole else [*wrong, f"{running} run, of attempts {sorted(map(str, attempts))}"]


def hours_pass(_: Begun, world: World) -> None:
    """The lease ends, and later the deadline; the guards look all the time."""
    for seconds in (LEASE_S, DEADLINE_S):
        world.pass_by(seconds)
        world.settle()


def the_node_reboots(_: Begun, world: World) -> None:
    """The guard looks as soon as it is up again."""
    for name, machine in world.machines.items():
        machine.reboot()
        world.clocks[name].boot, world.clocks[name].now_s = "boot-2", 5.0
    world.settle()


def it_is_run_again(begun: Begun, world: World) -> None:
    """By the next operator, once the lease has ended and before the guard looks."""
    world.pass_by(LEASE_S)
    with world.order() as order:
        blue_green.deploy(order, begun.release(world, "2"), begun.scene.wish())
    assert world.serving() == begun.release(world, "2").id
    world.settle()


Then = Callable[[Begun, World], None]
THEN: tuple[Then, ...] = (hours_pass, the_node_reboots, it_is_run_again)


def killed_at_any_word(begun: Begun, thens: Sequence[Then] = THEN) -> tuple[int, dict[int, list[str]]]:
    """Kill the deploy at each word that it says to guards, then by turns. How often, and after which what is wrong."""
    wrong: dict[int, list[str]] = {}
    left = 0
    while True:
        with closing(begun.again()) as world:
            if not begun.die(world, Life(left)):
                return left, wrong
            thens[left % len(thens)](begun, world)
            if found := good_end(world):
                wrong[left] = found
        left += 1


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("scene", "thens"),
    [*((IN_PLACE, (then,)) for then in THEN), (BESIDE, THEN)],
    ids=["in-place, hours pass", "in-place, the node reboots", "in-place, it is run again", "beside, by turns"],
)
def test_killed_at_any_word_something_good_serves_in_the_end(
    scene: Scene, thens: tuple[Then, ...], tmp_path: Path
) -> None:
    times, wrong = killed_at_any_word(Begun(scene, tmp_path).first(), thens)

    assert wrong == {}
    assert times > 20, "it was killed many times"


SPREAD = {
    "across, blue by the gateway": Scene(Mode.ACROSS, 2, "n1", "n2"),
    "across, green by the gateway": Scene(Mode.ACROSS, 2, "n2", "n1"),
    "across, both elsewhere": Scene(Mode.ACROSS, 3, "n2", "n3"),
    "in-place elsewhere": Scene(Mode.IN_PLACE, 2, "n2", "n2"),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("scene", SPREAD.values(), ids=SPREAD)
def test_killed_at_any_word_guards_of_several_nodes_agree(scene: Scene, tmp_path: Path) -> None:
    times, wrong = killed_at_any_word(Begun(scene, tmp_path).first())

    assert wrong == {}
    assert times > 30, "it was killed many times"


@pytest.mark.parametrize("words", range(3))
@pytest.mark.parametrize("about", ['"phase": "switch"', '"phase": "promote"', '"swap": null'])
def test_killed_while_a_phase_is_written_down_guards_of_several_nodes_agree(
    words: int, about: str, tmp_path: Path
) -> None:
    begun = Begun(SPREAD["across, both elsewhere"], tmp_path).first()
    with closing(begun.again()) as world:
        assert begun.die(world, Life(words, about=about))
        hours_pass(begun, world)

        assert good_end(world) == []


def test_while_the_gateway_s_guard_is_silent_those_of_other_nodes_do_nothing(tmp_path: Path) -> None:
    begun = Begun(SPREAD["across, both elsewhere"], tmp_path).first()
    with closing(begun.again()) as world:
        assert begun.die(world, Life(0, about='"phase": "bake"'))
        ran = {name: len(world.machines[name].ran) for name in ("n2", "n3")}
        world.silent.add("n1")
        hours_pass(begun, world)

        assert {name: len(world.machines[name].ran) for name in ("n2", "n3")} == {
            name: ran[name] for name in ("n2", "n3")
        }
        world.silent.clear()
        world.settle()
        assert good_end(world) == []


def test_a_green_that_answers_nonsense_when_the_deploy_is_gone_loses_the_traffic(tmp_path: Path) -> None:
    begun = Begun(IN_PLACE, tmp_path).first()
    with closing(begun.again()) as world:
        assert begun.die(world, Life(0, about='"phase": "bake"'))
        world.machines["n1"].moods[begun.release(world, "2").id] = GARBAGE
        hours_pass(begun, world)

        assert (world.serving(), good_end(world)) == (begun.release(world, "1").id, [])
