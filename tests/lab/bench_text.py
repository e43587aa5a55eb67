"""How long the parsers of foreign text take for long lines: four times the text, four times the time."""

from __future__ import annotations

import time
from contextlib import suppress

from tests.fuzz.parsers import PARSERS, UNITS, Parser

SHORT, LONG = 2**15, 2**17
"""Characters of the two lines that are compared."""
SHORTEST_S = 0.01
"""A measurement below it says nothing of a ratio."""
LIMIT = 10.0
"""Linear are 4, quadratic 16."""
MEASURED = 3


def promises() -> dict[str, tuple[float, float]]:
    """Print the slowest line of each parser that takes some time. Return the largest ratio and its limit by name."""
    worst = 0.0
    for name, parser in PARSERS.items():
        taken = {unit: seconds(parser, unit, LONG) for unit in UNITS}
        slowest = max(taken, key=lambda unit: taken[unit])
        if taken[slowest] > SHORTEST_S:
            ratio = taken[slowest] / seconds(parser, slowest, SHORT)
            worst = max(worst, ratio)
            shown = f"{name}: {LONG // 1024} KiB of {slowest!r}"
            print(f"{taken[slowest] * 1000:8.0f} ms  {shown}, {ratio:.1f} times a quarter of it")
    return {f"parsers of text, {LONG // 1024} / {SHORT // 1024} KiB": (worst, LIMIT)}


def seconds(parser: Parser, unit: str, size: int) -> float:
    """Return the shortest time of a parser for a line of this unit."""
    line, times = unit * (size // len(unit)), list[float]()
    for _ in range(MEASURED):
        began = time.process_time()
        with suppress(*parser.refuses):
            parser.read(line)
        times.append(time.process_time() - began)
    return min(times)


if __name__ == "__main__":
    print(promises())
