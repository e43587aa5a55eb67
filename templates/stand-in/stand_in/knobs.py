"""The knobs: STAND_IN_ variables of the environment. Unknown ones and invalid values are errors."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

PREFIX = "STAND_IN_"
ANSWERS = ("true", "nonsense", "bangs", "noise", "empty", "wrong_name", "raw_tools", "think_leak")


class BadKnob(Exception):
    """An unknown knob, or an invalid value."""


def _number(low: float, high: float, words: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not low <= value <= high:
            raise ValueError(words)
        return value

    return read


def _whole(low: int, high: int, words: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or not low <= int(text) <= high:
            raise ValueError(words)
        return int(text)

    return read


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("0 or 1")
    return text == "1"


def _answers(text: str) -> str:
    if text not in ANSWERS:
        raise ValueError(f"one of {', '.join(ANSWERS)}")
    return text


def _line(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("one line of printable text")
    return text


def _header(text: str) -> str:
    if not text or not text.isascii() or not text.isprintable():
        raise ValueError("one line of ASCII text")
    return text


SECONDS = _number(0, 86400, "seconds, from 0 to 86400")
SPEED = _number(0.01, 100_000, "tokens per second, from 0.01 to 100000")
PERCENT = _whole(0, 100, "a whole percentage from 0 to 100")


def _knob(read: Callable[[str], Any], default: Any = None) -> Any:
    return field(default=default, metadata={"read": read})


@dataclass(frozen=True)
class Knobs:
    """The values of all knobs, which the package's docstring describes."""

    start_s: float = _knob(SECONDS, 0.0)
    silent_s: float = _knob(SECONDS, 0.0)
    silent_cpu: bool = _knob(_switch, default=True)
    hang_at: int | None = _knob(PERCENT)
    crash_at: int | None = _knob(PERCENT)
    fatal: str | None = _knob(_line)
    memory_mib: int = _knob(_whole(0, 1_000_000, "MiB, a whole number from 0"), 0)
    ttft_s: float = _knob(SECONDS, 0.02)
    tok_s: float = _knob(SPEED, 50.0)
    slow_after_s: float | None = _knob(SECONDS)
    slow_tok_s: float = _knob(SPEED, 25.0)
    stream_s: float = _knob(SECONDS, 4.0)
    answers: str = _knob(_answers, "true")
    answers_after_s: float = _knob(SECONDS, 0.0)
    health_only: bool = _knob(_switch, default=False)
    hang_after_s: float | None = _knob(SECONDS)
    error_rate: float = _knob(_number(0, 1, "a share from 0 to 1"), 0.0)
    core_dies_after_s: float | None = _knob(SECONDS)
    die_after_s: float | None = _knob(SECONDS)
    die_after_requests: int | None = _knob(_whole(1, 1_000_000_000, "a whole number from 1"))
    ignore_term: bool = _knob(_switch, default=False)
    keep_memory_s: float = _knob(SECONDS, 0.0)
    release_name: str | None = _knob(_header)


NAMES = {PREFIX + each.name.upper(): each for each in fields(Knobs)}


def read(environment: Mapping[str, str]) -> Knobs:
    """Read the knobs of an environment. Raises BadKnob."""
    given = {name: value for name, value in environment.items() if name.startswith(PREFIX)}
    knobs = Knobs(**{_known(name): _value(name, value) for name, value in given.items()})
    if knobs.silent_s > knobs.start_s:
        raise BadKnob(f"STAND_IN_SILENT_S={knobs.silent_s:g}: expected at most STAND_IN_START_S, {knobs.start_s:g}")
    return knobs


def _known(name: str) -> str:
    if name in NAMES:
        return NAMES[name].name
    near = difflib.get_close_matches(name, NAMES, n=1)
    raise BadKnob(f"{name}: unknown variable" + (f", did you mean {near[0]}?" if near else ""))


def _value(name: str, text: str) -> Any:
    try:
        return NAMES[name].metadata["read"](text)
    except ValueError as error:
        raise BadKnob(f"{name}={text!r}: expected {error}") from None
