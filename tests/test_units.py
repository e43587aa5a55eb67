"""Sizes and times as people type them, wherever one is typed."""

from __future__ import annotations

import pytest

from sparkops import units


@pytest.mark.parametrize(
    ("key", "typed", "number"),
    [
        ("claim_gib", "3.5 GiB", 3.5),
        ("claim_gib", "128GB", pytest.approx(119.2, abs=0.1)),
        ("memory_mib", "2GiB", 2048),
        ("size_gb", "67GiB", pytest.approx(71.9, abs=0.1)),
        ("drain_s", "1m", 60),
        ("drain_s", "1 min", 60),
        ("drain_s", "1h30m", 5400),
        ("drain_s", 90, 90),
        ("drain_s", "90", "90"),
        ("drain_s", "soon", "soon"),
        ("claim_gib", "3.5", "3.5"),
        ("claim_gib", "10m", "10m"),
        ("tok_s", "10m", "10m"),
        ("port", "1m", "1m"),
    ],
)
def test_a_value_with_a_unit_is_the_number_of_its_key(key: str, typed: object, number: object) -> None:
    assert units.number(key, typed) == number


@pytest.mark.parametrize(
    ("count", "shown"), [(300, "300 B"), (5 * 2**20, "5.0 MiB"), (2.44 * 2**30, "2.4 GiB"), (2**40, "1024.0 GiB")]
)
def test_a_size_is_shown_in_one_system(count: float, shown: str) -> None:
    assert units.shown_size(count) == shown
