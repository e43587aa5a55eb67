"""`--wait`: whose lock is waited for, how far that run is, and that the wait ends with the lock."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sparkops.errors import Busy, UsageError
from sparkops.fleet import blue_green
from sparkops.fleet import held as locks
from sparkops.fleet.held import Claim
from sparkops.fleet.planning import Order
from sparkops.plan.journal import Journal, Mode, Phase, Swap
from sparkops.plan.lock import LEASE_S
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import ANN, BOB, hold, problem
from tests.fleet_unit.nodes import Dead, Life
from tests.fleet_unit.test_starts import FIGURE, LOADING, told
from tests.fleet_unit.verbs import DOWN, deploy, id_of
from tests.fleet_unit.world import World
from tests.plan.places import GATEWAY, placed

HELD = "waiting for the lock of chat: held by ann@desk for 0 s"
SWAP = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green", "n2"), phase=Phase.VERIFY)
LEFT = "(about 13 min 20 s left, by the recipe's figure)"


@contextmanager
def patient(world: World) -> Iterator[Order]:
    with world.order() as order:
        yield replace(order, wait_s=30.0)


def waits(world: World) -> list[str]:
    """The reports that a plain log keeps, without the owner."""
    return [re.sub(r"held by \S+@\S+", "held by ME", text) for text in told(world) if text.startswith("waiting")]


def test_another_release_waits_until_the_lock_is_free_and_is_planned_then(make: Make) -> None:
    world = make(2)
    deploy(world, "1")

    with hold(world, ANN) as held:
        before = held.journals["n1"]
        held.put(before.model_copy(update={"swap": SWAP}), 1e9)

        def finish() -> None:
            held.put(before, 1e9)
            held.give_back()

        world.listeners[f"{HELD}, phase verify"] = finish
        with patient(world) as order:
            assert blue_green.deploy(order, world.release("2"), DOWN) is not None

    assert world.serving() == id_of(world, "2")
    assert waits(world) == ["waiting for the lock of chat: held by ME for 0 s, phase verify"]


def test_phase_stage_and_time_left_are_reported_when_they_change(make: Make) -> None:
    world = make(1)
    release = world.release("1", expected=FIGURE)
    with world.order(Life(0, about='"phase": "verify"')) as order, pytest.raises(Dead):
        blue_green.deploy(replace(order, verb="deploy"), release, DOWN)
    machine = world.machines["n1"]
    owner = world.journal().holder
    assert owner
    held = f"waiting for the lock of chat: held by {owner.owner} ({owner.run}) for 0 s, phase load"
    world.listeners[f"{held}: starting {LEFT}"] = lambda: machine.logs.update({release.id: LOADING})
    world.listeners[f"{held}: loading weights {LEFT}"] = lambda: world.pass_by(LEASE_S)

    with patient(world) as order:
        assert blue_green.deploy(order, release, DOWN) is not None

    assert re.fullmatch(r"deploy, pid \d+", owner.run)
    assert [text.split(": ", 2)[2] for text in waits(world)] == [f"starting {LEFT}", f"loading weights {LEFT}"]
    assert world.serving() == release.id


def test_without_a_wait_the_lock_is_refused_before_anything_is_planned(make: Make) -> None:
    world = make(2)

    with hold(world, ANN) as held:
        held.put(Journal(service="chat", swap=SWAP), 1e9)
        with pytest.raises(Busy) as caught:
            deploy(world, "2")

    assert str(caught.value) == "n1: chat: locked by ann@desk for 0 s, phase verify; lease ends in 90 s"
    assert (caught.value.exit_code, waits(world)) == (4, [])


def roll_back(order: Order, service: str) -> object:
    return blue_green.rollback(order, service, DOWN)


@pytest.mark.parametrize("verb", [blue_green.promote, roll_back])
def test_promote_and_rollback_look_again_when_the_lock_is_free(
    make: Make, verb: Callable[[Order, str], object]
) -> None:
    """What was true before the wait is not acted on: the swap that was in progress has ended."""
    world = make(2)
    deploy(world, "1")

    with hold(world, ANN) as held:
        before = held.journals["n1"]
        held.put(before.model_copy(update={"swap": SWAP}), 1e9)

        def finish() -> None:
            held.put(before, 1e9)
            held.give_back()

        world.listeners[f"{HELD}, phase verify"] = finish
        with patient(world) as order, pytest.raises(UsageError):
            verb(order, "chat")

    assert (world.serving(), len(waits(world))) == (id_of(world, "1"), 1)


def wait_in_vain(world: World, claim: Claim = BOB) -> list[str]:
    assert isinstance(problem(world, replace(claim, wait_s=0.05, tell=world.told)), Busy)
    return waits(world)


def test_an_engine_of_another_service_that_loads_is_reported_with_its_holder(make: Make) -> None:
    world = make(2)

    with hold(world, Claim("other", "eve@desk", "d3", loads=frozenset({"n2"}), run="deploy, pid 5"), ("n2",)):
        reports = wait_in_vain(world, replace(BOB, loads=frozenset({"n2"})))

    assert reports == ["waiting for the lock of other: held by ME (deploy, pid 5) for 0 s"]


def test_a_hold_is_reported_once_with_its_reason(make: Make) -> None:
    world = make(2)
    world.stores["n1"].change("chat", lambda journal, _: journal.model_copy(update={"hold": "a new fan"}))

    assert wait_in_vain(world) == ["waiting: n1: chat is on hold: a new fan"]


def test_a_start_that_cannot_be_read_leaves_holder_and_phase(make: Make) -> None:
    world = make(2)
    deploy(world, "1")
    swap = SWAP.model_copy(update={"phase": Phase.LOAD, "green": world.journal().active})

    with hold(world, ANN, ("n1",)) as held:
        held.put(held.journals["n1"].model_copy(update={"swap": swap}), 1e9)
        with world.order() as order:
            world.machines[swap.green.node].fails = lambda line: int(line.startswith("sh "))
            claim = replace(BOB, wait_s=0.05, tell=world.told)
            with pytest.raises(Busy), locks.hold(order.connected, ["n1"], claim):
                pytest.fail("the lock was taken")

    [report] = waits(world)
    assert report.startswith("waiting for the lock of chat: held by ME for 0 s, phase load; stage unknown: ")
    assert report.endswith(" failed")
