"""What a held lock keeps: the journal on every node, each with its own clock, and the lease."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from sparkops.errors import (
    Busy,
)
from sparkops.plan.journal import Journal, Mode, Phase, Retirement, Swap
from sparkops.plan.lock import LEASE_S
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import ANN, BOTH, CUT, hold, left, wait_until
from tests.plan.places import GATEWAY, placed

SWAP = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green", "n2"), phase=Phase.LOAD)


def test_a_journal_that_one_node_refuses_is_an_error(make: Make) -> None:
    world = make(2)

    with hold(world) as held:
        world.stores["n2"].change("chat", lambda journal, _: journal.model_copy(update={"generation": 9}))
        with pytest.raises(Busy, match=r"^n2: another deploy has taken over chat$"):
            held.put(Journal(service="chat", swap=SWAP), time.monotonic())


def test_a_deadline_is_written_on_each_node_s_own_clock_with_its_boot(make: Make) -> None:
    world = make(2)

    with hold(world) as held:
        held.put(Journal(service="chat", swap=SWAP), time.monotonic() + 60)
        swaps = {name: world.journal(name).swap for name in BOTH}

    ahead = {name: swap.deadline_s - world.clocks[name]().now_s for name, swap in swaps.items() if swap}
    assert ahead == pytest.approx({"n1": 60, "n2": 60}, abs=2)
    assert [swap.boot for swap in swaps.values() if swap] == ["boot-1", "boot-1"]
    assert world.clocks["n2"]().now_s - world.clocks["n1"]().now_s == 1e5


def test_a_retirement_is_due_on_each_node_s_own_clock(make: Make) -> None:
    world = make(2)
    retirement = Retirement(placed=placed("old", "blue"), gateway=GATEWAY)

    with hold(world) as held:
        held.put(Journal(service="chat", retirement=retirement), time.monotonic() + 600)

    for name in BOTH:
        found = world.journal(name).retirement
        assert found is not None
        assert found.due_s - world.clocks[name]().now_s == pytest.approx(600, abs=2)
        assert found.boot == "boot-1"


def test_after_a_laptop_has_slept_the_next_deadline_is_right_again(make: Make) -> None:
    world = make(1)

    with hold(world, nodes=("n1",)) as held:
        world.pass_by(3600)  # on the node; the laptop's own clock stood still
        for _ in range(2):
            held.put(Journal(service="chat", swap=SWAP), time.monotonic() + 60)
        swap = world.journal().swap

    assert swap is not None
    assert swap.deadline_s - world.clocks["n1"]().now_s == pytest.approx(60, abs=2)


def test_the_lock_is_kept_while_the_block_lives(make: Make) -> None:
    world = make(2)

    with hold(world, replace(ANN, renew_s=0.01)):
        for _ in range(3):
            world.pass_by(LEASE_S - 1)
            wait_until(lambda: left(world) == {"n1": LEASE_S, "n2": LEASE_S})


def test_a_node_whose_guard_answers_late_does_not_cost_the_others_their_lease(make: Make) -> None:
    world, stopping, go_on = make(2), threading.Event(), threading.Event()

    def slow(line: str) -> int:
        if line == str(CUT):
            stopping.set()
            go_on.wait(5)
        return 0

    world.machines["n1"].fails = slow
    with hold(world, replace(ANN, renew_s=0.01)) as held:
        running = threading.Thread(target=held.run, args=("n1", CUT))
        running.start()
        assert stopping.wait(5)
        world.pass_by(LEASE_S - 1)
        wait_until(lambda: left(world)["n2"] == LEASE_S)
        go_on.set()
        running.join(5)
        wait_until(lambda: left(world)["n1"] == LEASE_S)
