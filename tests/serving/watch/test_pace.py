"""The speed of an engine under its own past: what is slow, and what must not be called so."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from sparkops.serving.watch.pace import EVERY_S, FINE_SHARE, LAST, PAST, SLOW_SHARE, Pace

pytestmark = pytest.mark.unit
DAY = int(24 * 3600 / EVERY_S)


def after(speeds: Iterable[float], pace: Pace | None = None) -> tuple[Pace, int]:
    """Return the pace after these samples, and how often it was slow."""
    pace, slow = pace or Pace(), 0
    for tok_s in speeds:
        pace = pace.after(tok_s)
        slow += pace.slow
    return pace, slow


def usual(tok_s: float = 20.0) -> Pace:
    return after([tok_s] * PAST)[0]


def test_the_figures_that_docs_guard_md_names() -> None:
    assert (EVERY_S, PAST, LAST, SLOW_SHARE, FINE_SHARE) == (600.0, 20, 5, 0.6, 0.7)


@pytest.mark.parametrize(("share", "slow"), [(SLOW_SHARE, True), (SLOW_SHARE + 0.01, False), (0.2, True)])
def test_an_engine_at_a_share_of_its_past(share: float, slow: bool) -> None:
    assert after([20.0 * share] * LAST, usual())[0].slow is slow


def test_it_is_found_once_most_of_the_last_samples_are_slow_and_none_lacks() -> None:
    assert after([12.0] * (LAST - 1), usual())[1] == 0
    assert after([20.0, 12.0, 20.0, 12.0, 12.0], usual())[0].slow
    assert not after([12.0, 20.0, 12.0, 20.0, 20.0], usual())[0].slow


def test_both_figures_are_told() -> None:
    pace, _ = after([10.0] * LAST, usual())

    assert pace.detail == (
        "10.0 tokens/s in its last 5 samples while idle, 50% of its own past on this node, "
        "20.0 tokens/s in its first 20"
    )


def test_it_ends_only_when_the_engine_is_clearly_faster_again() -> None:
    slow, _ = after([11.0] * LAST, usual())
    assert after([13.0] * 9 * LAST, slow)[0].slow
    assert not after([20.0 * FINE_SHARE] * LAST, slow)[0].slow


def test_fewer_samples_than_the_past_needs_show_nothing() -> None:
    assert after([20.0] * 5 + [1.0] * (PAST - 5 + LAST - 1))[1] == 0


def test_a_past_that_slides_down_does_not_hide_a_slow_decline() -> None:
    """An engine that loses 1 % a day for 60 days."""
    speeds = (20.0 * 0.99**day for day in range(60) for _ in range(DAY))

    assert after(speeds, usual())[0].slow


@pytest.mark.parametrize("spread", [0.02, 0.1, 0.15], ids=str)
def test_a_year_of_noise_is_not_slow(spread: float) -> None:
    """Speeds that vary by 2 to 15 % (standard deviation) around the same value, independently."""
    noise = Random(7)

    assert after(20.0 * max(0.05, noise.gauss(1.0, spread)) for _ in range(365 * DAY))[1] == 0


def test_a_year_with_an_hour_of_backup_at_half_speed_every_night_is_told_as_slow_only_in_it() -> None:
    """Another program that takes half of the GPU for an hour is found, and ends with it."""
    night = [20.0] * (DAY - 6) + [10.0] * 6
    pace, slow = after(night * 9, usual())

    assert pace.slow
    assert slow == 9 * 4 + 8 * 2  # from the third slow sample to the third fast one
    assert not after([20.0] * 3, pace)[0].slow


def test_short_disturbances_are_not_slow() -> None:
    """Twenty minutes of work on the node, thrice a day."""
    day = ([20.0] * (DAY // 3 - 2) + [6.0] * 2) * 3

    assert after(day * 365, usual())[1] == 0


def test_a_past_with_an_odd_sample_finds_as_well_and_one_that_varies_finds_less() -> None:
    odd, _ = after([20.0] * (PAST - 1) + [2.0])
    assert after([12.0] * LAST, odd)[0].slow

    varies, _ = after([20.0, 8.0] * (PAST // 2))
    assert not after([8.4] * LAST, varies)[0].slow
