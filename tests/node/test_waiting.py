"""Polls and retries: pauses, bounds, reports and the event that cancels them."""

from __future__ import annotations

import threading

import pytest

from sparkops.errors import Interrupted
from sparkops.node.waiting import Waiting

pytestmark = pytest.mark.unit


class Failing:
    """Fails with `error` a number of times, then returns how often it was called."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls = times, error, 0

    def __call__(self) -> int:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return self.calls


class Pauses(threading.Event):
    """An event that records the pauses for which it is waited on."""

    def __init__(self) -> None:
        super().__init__()
        self.requested_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.requested_s.append(timeout or 0.0)
        return super().wait(timeout)


def is_oserror(error: BaseException) -> bool:
    return isinstance(error, OSError)


def test_a_passing_error_is_retried_and_reported() -> None:
    error, reported = OSError("down"), list[BaseException]()

    assert Waiting(0.0, 5.0).retry(Failing(2, error), is_oserror, reported.append) == 3
    assert reported == [error, error]


def test_another_error_is_raised_at_once() -> None:
    failing = Failing(1, ValueError("wrong"))

    with pytest.raises(ValueError, match="wrong"):
        Waiting(0.0, 5.0).retry(failing, is_oserror)

    assert failing.calls == 1


def test_the_last_error_is_raised_after_the_tries() -> None:
    failing = Failing(9, OSError("down"))

    with pytest.raises(OSError, match="down"):
        Waiting(0.0, tries=3).retry(failing, is_oserror)

    assert failing.calls == 3


def test_the_last_attempt_is_at_the_deadline_though_the_pause_is_longer() -> None:
    failing, pauses = Failing(9, OSError("down")), Pauses()

    with pytest.raises(OSError, match="down"):
        Waiting(60.0, 0.05, pauses).retry(failing, is_oserror)

    assert failing.calls == len(pauses.requested_s) + 1 >= 2
    assert all(pause_s <= 0.05 for pause_s in pauses.requested_s)


def test_without_time_there_is_one_attempt() -> None:
    failing = Failing(9, OSError("down"))

    with pytest.raises(OSError, match="down"):
        Waiting(60.0, 0.0).retry(failing, is_oserror)

    assert failing.calls == 1


def test_a_poll_ends_with_what_is_expected_and_reports_what_is_not() -> None:
    samples, reported = iter([0, 1, 2, 3]), list[int]()

    assert Waiting(0.0, 5.0).poll(lambda: next(samples), lambda sample: sample == 2, reported.append) == 2
    assert reported == [0, 1]


def test_a_poll_returns_its_last_sample_at_the_deadline() -> None:
    samples = iter(range(1000))

    assert Waiting(0.0, tries=3).poll(lambda: next(samples), lambda _: False) == 2


def test_an_error_of_a_sample_ends_the_poll() -> None:
    with pytest.raises(OSError, match="down"):
        Waiting(0.0, 5.0).poll(Failing(1, OSError("down")), bool)


@pytest.mark.parametrize("backoff", [False, True])
def test_a_cancelled_pause_raises_the_given_error(backoff: bool) -> None:
    cancel, stopped = threading.Event(), Interrupted("no longer followed")
    threading.Timer(0.05, cancel.set).start()

    with pytest.raises(Interrupted, match="no longer followed"):
        Waiting(60.0, 600.0, cancel, interrupted=stopped, backoff=backoff).retry(
            Failing(9, OSError("down")), is_oserror
        )
