"""The lock of a service on its nodes: who gets it, who waits, and that it is free in the end."""

from __future__ import annotations

import _thread
import threading
import time
from dataclasses import replace

import pytest

from sparkops.command import Command
from sparkops.errors import (
    Busy,
    Interrupted,
    NodesFailed,
    NotReachable,
    UsageError,
)
from sparkops.fleet import held as locks
from sparkops.fleet.held import Claim
from sparkops.plan.journal import Journal, Mode, Phase, Swap
from sparkops.plan.lock import LEASE_S
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import ANN, BOB, BOTH, CUT, hold, left, problem, wait_until
from tests.plan.places import GATEWAY, placed

SWAP = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green", "n2"), phase=Phase.LOAD)


def test_the_lock_is_held_on_every_node_inside_the_block_and_free_behind_it(make: Make) -> None:
    world = make(2)

    with hold(world, nodes=("n2", "n1", "n2")) as held:
        assert left(world) == {"n1": LEASE_S, "n2": LEASE_S}
        assert held.generations == {"n1": 1, "n2": 1}

    assert left(world) == {"n1": 0, "n2": 0}


@pytest.mark.parametrize("error", [ZeroDivisionError, KeyboardInterrupt, Interrupted("interrupted"), Busy("lost")])
def test_the_lock_is_free_after_every_error(make: Make, error: BaseException) -> None:
    world = make(2)

    with pytest.raises(BaseException) as caught, hold(world):  # noqa: PT011
        raise error

    assert caught.type is (error if isinstance(error, type) else type(error))
    assert left(world) == {"n1": 0, "n2": 0}


def test_ctrl_c_frees_the_lock_while_a_guard_is_waited_for(make: Make) -> None:
    world = make(1)

    def slow(line: str) -> int:
        if line == str(CUT):
            _thread.interrupt_main()
            time.sleep(0.1)
        return 0

    world.machines["n1"].fails = slow
    with pytest.raises(KeyboardInterrupt), hold(world, nodes=("n1",)) as held:
        held.run("n1", CUT)

    wait_until(lambda: left(world) == {"n1": 0})


def test_a_second_operator_is_told_holder_phase_and_lease(make: Make) -> None:
    world = make(2)

    with hold(world) as held:
        held.put(Journal(service="chat", swap=SWAP), time.monotonic())
        world.pass_by(20)
        error = problem(world)

    assert (type(error), error.exit_code) == (Busy, 4)
    assert str(error) == "n1: chat: locked by ann@desk for 20 s, phase load; lease ends in 70 s"
    assert error.next_step == "sparkops status shows it; `--wait` waits for it."


def test_who_comes_second_on_a_later_node_gives_the_first_ones_back(make: Make) -> None:
    world = make(3)

    with hold(world, nodes=("n2",)):
        error = problem(world, nodes=("n3", "n2", "n1"))
        assert left(world) == {"n1": 0, "n2": LEASE_S, "n3": 0}

    assert str(error).startswith("n2: chat: locked by ann@desk for 0 s; ")


def test_nodes_are_locked_in_sorted_order_so_that_two_operators_never_wait_for_each_other(make: Make) -> None:
    world, done = make(2), []

    def work(claim: Claim, nodes: tuple[str, ...]) -> None:
        for _ in range(5):
            with hold(world, claim, nodes):
                done.append(claim.owner)

    claims = [replace(claim, wait_s=20.0) for claim in (ANN, BOB)]
    threads = [threading.Thread(target=work, args=(claims[n], (BOTH, BOTH[::-1])[n])) for n in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert sorted(done) == ["ann@desk"] * 5 + ["bob@lap"] * 5


def test_waiting_takes_the_lock_when_it_is_given_back(make: Make) -> None:
    world, taken = make(1), threading.Event()

    def wait() -> None:
        with hold(world, replace(BOB, wait_s=20.0), ("n1",)):
            taken.set()

    waiting = threading.Thread(target=wait)
    with hold(world, nodes=("n1",)):
        waiting.start()
        assert not taken.wait(0.03)
    assert taken.wait(5)
    waiting.join(5)


def test_waiting_ends_with_the_refusal_when_its_time_is_over(make: Make) -> None:
    world = make(1)

    with hold(world, nodes=("n1",)):
        began = time.monotonic()
        error = problem(world, replace(BOB, wait_s=0.05), ("n1",))

    assert isinstance(error, Busy)
    assert 0.05 <= time.monotonic() - began < 1.0


def test_waiting_ends_with_ctrl_c(make: Make) -> None:
    world = make(1)

    with hold(world, nodes=("n1",)), world.order() as order:
        order.connected.cancel.set()
        with pytest.raises(Interrupted), locks.hold(order.connected, ["n1"], replace(BOB, wait_s=20.0)):
            pytest.fail("the lock was taken")


def test_an_expired_lease_is_taken_over_and_the_old_holder_can_do_nothing_more(make: Make) -> None:
    world = make(2)

    with hold(world) as old:
        world.pass_by(LEASE_S)
        with hold(world, BOB) as new:
            new.put(Journal(service="chat", active=placed("new", "green")), time.monotonic())
            ran = {name: list(machine.ran) for name, machine in world.machines.items()}
            with pytest.raises(Busy, match="n2: another deploy has taken over chat"):
                old.run("n2", Command(("docker", "start", "x")))
            with pytest.raises(NodesFailed, match="another deploy has taken over chat") as caught:
                old.put(Journal(service="chat"), time.monotonic())
            assert caught.value.exit_code == 4
            assert {name: machine.ran for name, machine in world.machines.items()} == ran
            assert world.journal("n2").active == placed("new", "green")

    assert left(world) == {"n1": 0, "n2": 0}


def test_a_service_on_hold_is_refused_with_the_reason(make: Make) -> None:
    world = make(2)
    world.stores["n2"].change("chat", lambda journal, _: journal.model_copy(update={"hold": "a new fan"}))

    error = problem(world)

    assert (str(error), error.exit_code, left(world, "n1")) == ("n2: chat is on hold: a new fan", 4, {"n1": 0})


def test_a_node_that_cannot_be_reached_is_named(make: Make) -> None:
    world = make(2)

    with world.order(without="n2") as order:
        with pytest.raises(NotReachable, match="n2: no answer"), locks.hold(order.connected, BOTH, ANN):
            pytest.fail("the lock was taken")
        with pytest.raises(UsageError, match="there is no node 'n9'"), locks.hold(order.connected, ["n9"], ANN):
            pytest.fail("the lock was taken")
