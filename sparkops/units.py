"""Sizes and times as people type and read them: one parser, and one system of units."""

from __future__ import annotations

import re
from collections.abc import Mapping

KIB, MIB, GIB = 2**10, 2**20, 2**30
BYTES: Mapping[str, int] = {
    **{f"{prefix}b": 1000**power for power, prefix in enumerate(("", "k", "m", "g", "t"))},
    **{f"{prefix}ib": 1024**power for power, prefix in enumerate(("k", "m", "g", "t"), 1)},
}
"""Bytes of each unit of a size, in lower case."""
SPAN = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d+(?:\.\d+)?)s)?")
SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt]?i?b)", re.IGNORECASE)
EXPECTED: Mapping[str, str] = {
    "s": "seconds, or a time span such as 90s, 10m or 1h30m",
    "mib": "a number of MiB, or a size such as 1536MiB or 2GiB",
    "gib": "a number of GiB, or a size such as 3.5GiB or 128GB",
    "gb": "a number of GB, or a size such as 72GB or 67GiB",
}
"""What a value may be, by the unit that ends the name of its key."""
RATES = frozenset({"tok_s"})
"""Keys whose names end like a time, and mean another unit."""


def seconds(text: str) -> float:
    """Return a time span in seconds: a number of them, or such as 90s, 10m or 1h30m. Raises ValueError."""
    try:
        return float(text)
    except ValueError:
        return span(text)


def span(text: str) -> float:
    """Return a time span with its units in seconds, such as 90s, 10m or 1h30m. Raises ValueError."""
    parts = SPAN.fullmatch(text.replace(" ", ""))
    if not parts or not any(parts.groups()):
        raise ValueError(f"expected {EXPECTED['s']}; got {text!r}")
    hours, minutes, rest = (float(part or 0) for part in parts.groups())
    return 3600 * hours + 60 * minutes + rest


def size(text: str) -> float:
    """Return a size with its unit in bytes, such as 128GB or 3.5 GiB. Raises ValueError."""
    match = SIZE.fullmatch(text.strip())
    if not match:
        raise ValueError(f"expected a size such as 3.5GiB or 128GB; got {text!r}")
    return float(match[1]) * BYTES[match[2].lower()]


def unit(key: str) -> str:
    """Return the unit that the name of a key states, as in drain_s or claim_gib; empty without one."""
    last = key.rpartition("_")[2]
    return last if last in EXPECTED and last != key and key not in RATES else ""


def number(key: str, value: object) -> object:
    """Return text with a unit as the number that its key takes; any other value, and other text, as it is."""
    named = unit(key)
    if not named or not isinstance(value, str):
        return value
    try:
        amount = span(value) if named == "s" else size(value) / BYTES[named]
    except ValueError:
        return value
    return int(amount) if amount.is_integer() else amount


def shown_size(count: float) -> str:
    """Return bytes as people read them: 2.4 GiB, 12.0 MiB, 300 B."""
    if count < MIB / 10:
        return f"{count:.0f} B"
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / MIB:.1f} MiB"
