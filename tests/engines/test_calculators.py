"""The memory calculators of engines, and that a guard carries none."""

from __future__ import annotations

from sparkops.engines import ENGINES
from sparkops.engines.calculators import CALCULATORS
from tests.test_architecture import module_graph


def test_an_engine_is_computed_where_it_has_a_calculator() -> None:
    assert {name for name, engine in ENGINES.items() if engine.computed} == set(CALCULATORS)


def test_the_guard_imports_no_calculator_and_no_gate() -> None:
    needs = module_graph()
    carried, left = set[str](), {"sparkops.guard.__main__"}
    while left:
        carried |= left
        left = {name for module in left for name in needs[module]} - carried

    operators = {name for name in carried if ".engines." in name and ("memory" in name or name.endswith("calculators"))}
    assert "sparkops.engines.vllm.start_log" in carried
    assert operators == set()
    assert "sparkops.engines.gates" not in carried
