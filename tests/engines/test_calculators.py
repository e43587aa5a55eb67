"""The memory calculators of engines."""

from __future__ import annotations

from sparkops.engines import ENGINES
from sparkops.engines.calculators import CALCULATORS


def test_an_engine_is_computed_where_it_has_a_calculator() -> None:
    assert {name for name, engine in ENGINES.items() if engine.computed} == set(CALCULATORS)
