"""The same work on several nodes at once."""

from __future__ import annotations

import _thread
import threading

import pytest

from sparkops.errors import Interrupted, NodeError, NodesFailed, NotReady, SparkopsError
from sparkops.operator.fleet.parallel import MAX_NODES, all_or_raise, on_each


def test_every_node_gives_its_result() -> None:
    assert on_each(["n1", "n2"], str.upper, threading.Event()) == {"n1": "N1", "n2": "N2"}


def test_nodes_work_at_the_same_time() -> None:
    all_there = threading.Barrier(MAX_NODES)

    names = [f"n{number}" for number in range(MAX_NODES)]
    ran = on_each(names, lambda _: all_there.wait(30) >= 0, threading.Event())

    assert ran == dict.fromkeys(names, True)


def test_more_nodes_than_threads_are_served_in_turn() -> None:
    names = [f"n{number}" for number in range(MAX_NODES * 2)]

    assert list(on_each(names, str.upper, threading.Event())) == names


def test_an_error_that_we_foresee_is_that_node_s_result() -> None:
    error = NotReady("n2", "no image")

    def work(name: str) -> str:
        if name == "n2":
            raise error
        return name

    assert on_each(["n1", "n2"], work, threading.Event()) == {"n1": "n1", "n2": error}


def test_a_bug_ends_everything_after_all_have_ended() -> None:
    ended: list[str] = []

    def work(name: str) -> None:
        ended.append(name)
        if name == "n1":
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        on_each(["n1", "n2"], work, threading.Event())
    assert sorted(ended) == ["n1", "n2"]


def test_ctrl_c_sets_cancel_and_waits_until_the_work_has_stopped() -> None:
    cancel, waiting = threading.Event(), threading.Barrier(2)
    stopped: list[str] = []

    def work(name: str) -> None:
        if waiting.wait(30) == 0:
            threading.Timer(0.1, _thread.interrupt_main).start()  # by then the main thread waits
        assert cancel.wait(30)
        stopped.append(name)

    with pytest.raises(Interrupted, match=r"^interrupted$"):
        on_each(["n1", "n2"], work, cancel)
    assert sorted(stopped) == ["n1", "n2"]


def test_the_result_is_everything_or_an_error() -> None:
    assert all_or_raise({"n1": 1, "n2": 2}) == {"n1": 1, "n2": 2}


def test_one_error_is_raised_as_it_is() -> None:
    error = NodeError("n1", "broken")
    outcomes: dict[str, int | SparkopsError] = {"n1": error, "n2": 2}

    with pytest.raises(NodeError) as caught:
        all_or_raise(outcomes)
    assert caught.value is error


def test_several_errors_come_as_one_that_lists_them() -> None:
    errors = [NodeError("n1", "broken"), NodeError("n3", "gone")]
    outcomes: dict[str, int | SparkopsError] = {"n1": errors[0], "n2": 2, "n3": errors[1]}

    with pytest.raises(NodesFailed, match=r"^n1: broken\nn3: gone$") as caught:
        all_or_raise(outcomes)
    assert caught.value.errors == tuple(errors)
