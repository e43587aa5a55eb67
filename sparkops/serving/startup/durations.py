"""Format durations as text, and parse them. Pure."""

from __future__ import annotations

import re

LEFT = re.compile(r"about (?=\d)((?P<min>\d+) min ?)?((?P<s>\d+) s )?left")


def spell(seconds: float) -> str:
    """Return a duration as text: 40 s, 6 min 10 s, 25 min."""
    if round(seconds) < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds / 10) * 10, 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def left_s(text: str) -> float | None:
    """Return the rounded seconds in a text of Forecast.remaining; None for other text, or if late."""
    match = LEFT.search(text)
    return int(match["min"] or 0) * 60.0 + int(match["s"] or 0) if match else None
