"""Every scenario, exploration and random walk of a second or so, as functions that raise where a law is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from types import ModuleType

from tests.swap import test_ended_ranks
from tests.swap.simulation import (
    test_decisions,
    test_direct,
    test_guard_rules,
    test_intents,
    test_journals,
    test_plan,
    test_recovery,
    test_replica_decisions,
    test_reports,
    test_reproductions,
    test_rolling,
    test_rules,
    test_shapes,
    test_unread_gateway,
    test_waiting,
)
from tests.swap.simulation.levels import LEVELS
from tests.swap.simulation.scenarios import MODES
from tests.swap.simulation.walks import walk

SCENARIOS = (
    test_reproductions, test_rules, test_rolling, test_shapes, test_plan, test_direct, test_intents, test_journals,
    test_guard_rules, test_unread_gateway, test_reports, test_waiting, test_recovery, test_decisions,
    test_replica_decisions, test_ended_ranks,
)  # fmt: skip
SEEDS = 100
MOST_STATES = 60_000
"""The largest of these explorations visits 48,000 states; one that visits this many does not end."""


@dataclass(frozen=True)
class Check:
    """A scenario, an exploration or random walks. `quick`: it takes less than half a second."""

    name: str
    run: Callable[[], object]
    quick: bool = False


def checks() -> Iterator[Check]:
    """Return every check."""
    for level in LEVELS:
        yield Check(str(level), partial(level.run, MOST_STATES), quick=level.faults == 0)
    for module in SCENARIOS:
        yield from _scenarios(module)
    for mode in MODES:
        yield Check(f"random walks: {mode}", partial(_walks, mode))


def _walks(mode: str) -> None:
    for seed in range(SEEDS):
        walk(mode, seed)


def _scenarios(module: ModuleType) -> Iterator[Check]:
    """Return each test of a module with each set of its parameters."""
    for name, function in vars(module).items():
        if name.startswith("test_"):
            for values in _parameters(function):
                label = f"{name}[{'-'.join(map(str, values.values()))}]" if values else name
                yield Check(label, partial(function, **values), quick=True)


def _parameters(function: Callable[..., object]) -> Iterator[dict[str, object]]:
    marks = [mark for mark in getattr(function, "pytestmark", ()) if mark.name == "parametrize"]
    for chosen in product(*(mark.args[1] for mark in marks)):
        values: dict[str, object] = {}
        for mark, value in zip(marks, chosen, strict=True):
            names = mark.args[0].split(",") if isinstance(mark.args[0], str) else mark.args[0]
            values |= dict(zip(names, value if len(names) > 1 else (value,), strict=True))
        yield values
