"""A new release with the traffic is judged by its answers: two failed passes in a row, and not one."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from unittest.mock import Mock

import pytest

from sparkops.guard.follow.smoke_runs import PAUSE_S, Baking
from sparkops.names import Slot
from sparkops.swap.model import Deployment, RankSpec, Replica
from tests.executors import AtOnce, NoThreads

pytestmark = pytest.mark.unit
NEW, OTHER = (Deployment(name, Slot.GREEN, (Replica((RankSpec("n1", name),)),)) for name in ("new", "other"))


@dataclass
class Passes:
    """Passes with these results, and a clock that each look moves on past the pause."""

    results: list[str]
    lines: list[str] = field(default_factory=list)
    now_s: float = 0.0

    def __post_init__(self) -> None:
        self.baking = Baking(AtOnce(), self.lines.append, lambda _: self.results.pop(0), lambda: self.now_s)

    def looks(self, number: int, deployment: Deployment | None = NEW) -> list[bool]:
        verdicts = []
        for _ in range(number):
            verdicts.append(self.baking.wrong(deployment))
            self.now_s += PAUSE_S
        return verdicts


def test_right_answers_are_never_wrong() -> None:
    assert Passes([""] * 5).looks(5) == [False] * 5


def test_one_failed_pass_is_repeated_before_a_verdict() -> None:
    passes = Passes(["nonsense", "", "nonsense", ""])

    assert passes.looks(8) == [False] * 8
    assert passes.lines == ["new: a light pass failed: nonsense"] * 2


def test_two_failed_passes_in_a_row_are_wrong() -> None:
    passes = Passes(["a first reason", "questions: only 2 of 3 answers are right", "", ""])

    assert passes.looks(5) == [False] * 4 + [True]
    assert passes.baking.verdict == "questions: only 2 of 3 answers are right"
    assert passes.looks(2)[-1] is False
    assert passes.baking.verdict == ""


def test_a_pass_that_ends_with_an_error_has_failed_and_the_next_one_starts() -> None:
    crashed: Future[str] = Future()
    crashed.set_exception(ZeroDivisionError("division by zero"))
    passes = Passes([])
    passes.baking.executor = Mock(submit=Mock(return_value=crashed))

    assert passes.looks(5) == [False] * 4 + [True]
    assert "ZeroDivisionError" in passes.baking.verdict


def test_a_pass_for_which_no_thread_can_be_started_is_begun_by_a_later_look() -> None:
    """The error would end the lead of the service for good."""
    passes = Passes(["nonsense", "nonsense", "", ""])
    passes.baking.executor = NoThreads()
    assert passes.looks(3) == [False] * 3
    passes.baking.executor = AtOnce()

    assert passes.looks(4) == [False, False, False, True]
    assert passes.lines[0] == "new: light pass not started: can't start new thread"


def test_the_failures_of_another_release_do_not_count() -> None:
    passes = Passes(["nonsense", "nonsense", "", "", ""])
    passes.looks(5)

    assert passes.looks(1, OTHER) == [False]
    assert passes.looks(1, None) == [False]
    assert passes.looks(2) == [False, False]
