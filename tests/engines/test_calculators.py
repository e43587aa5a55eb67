"""The memory calculators of engines."""

from __future__ import annotations

from sparkops.engines import ENGINES
from sparkops.engines.calculators import CALCULATORS


def test_each_calculator_is_of_an_engine() -> None:
    assert set(CALCULATORS) <= set(ENGINES)
