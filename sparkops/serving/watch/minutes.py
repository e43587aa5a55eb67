"""The last hour of a service, a sample a minute: what one guard counts, and what all of them count together. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite

KEPT = 60
"""Samples of a service."""
MOST_SERVICES = 64
"""Services of which a guard keeps samples."""


@dataclass(frozen=True, kw_only=True)
class Minute:
    """One minute of a service. None: not known, or nothing was counted."""

    minute: int
    """Unix time of its end, in minutes."""
    tok_s: float | None = None
    """Tokens generated per second."""
    ttft_s: float | None = None
    """Mean seconds to the first token, of `first_tokens` requests."""
    first_tokens: int = 0
    waiting: int | None = None
    """Requests in the queues of engines and gateway at its end."""
    errors: int | None = None
    """Responses of the gateway with a status of 500 or more."""


@dataclass(frozen=True)
class Count:
    """What an engine has counted since its start, by meaning (engines/figures.py), at `at_s` in monotonic seconds."""

    at_s: float
    figures: Mapping[str, float]


def counted(
    minute: int, pairs: Collection[tuple[Count | None, Count]], errors: int | None = None, held: int = 0
) -> Minute:
    """Return the minute of a service from two counts of each engine; the first is None for an engine new to the guard.

    `held`: requests that wait in the gateway.
    """
    known = [(earlier, later) for earlier, later in pairs if earlier and later.at_s > earlier.at_s]
    rates = [_growth("generated", *pair) / (pair[1].at_s - pair[0].at_s) for pair in known]
    requests = sum(_growth("ttft_count", *pair) for pair in known)
    waited_s = sum(_growth("ttft_s", *pair) for pair in known)
    queues = [later.figures["waiting"] for _, later in pairs if "waiting" in later.figures]
    return Minute(
        minute=minute,
        tok_s=round(sum(rates), 2) if rates else None,
        ttft_s=round(waited_s / requests, 4) if requests >= 1 else None,
        first_tokens=int(requests),
        waiting=int(sum(queues)) + held if queues or held else None,
        errors=errors,
    )


def _growth(name: str, earlier: Count, later: Count) -> float:
    return max(0.0, later.figures.get(name, 0.0) - earlier.figures.get(name, 0.0))


def more_errors(before: Mapping[str, int] | None, now: Mapping[str, int] | None) -> int | None:
    """Return how many errors were added, by process of HAProxy; a new process counts from 0. None: not known."""
    if not before or now is None:
        return None
    return sum(max(0, count - before.get(process, 0)) for process, count in now.items())


def read_minutes(reported: object) -> Iterator[Minute]:
    """Yield the newest samples in the reply of a guard, without those of another form."""
    for item in reported[-KEPT:] if isinstance(reported, list) else ():
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            minute = _whole(item["minute"])
            if minute is None:
                continue
            yield Minute(
                minute=minute,
                tok_s=_figure(item["tok_s"]),
                ttft_s=_figure(item["ttft_s"]),
                first_tokens=_whole(item["first_tokens"]) or 0,
                waiting=_whole(item["waiting"]),
                errors=_whole(item["errors"]),
            )


def _figure(value: object) -> float | None:
    """Return a number of 0 or more; None for null. Raises ValueError."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < 0:
        raise ValueError(value)
    return value


def _whole(value: object) -> int | None:
    figure = _figure(value)
    return None if figure is None else int(figure)


def together(samples: Iterable[Minute]) -> list[Minute]:
    """Return one sample for each minute from those of several nodes, oldest first, at most KEPT."""
    by_minute: dict[int, list[Minute]] = {}
    for sample in samples:
        by_minute.setdefault(sample.minute, []).append(sample)
    return [_together(minute, by_minute[minute]) for minute in sorted(by_minute)[-KEPT:]]


def _together(minute: int, samples: Collection[Minute]) -> Minute:
    requests = sum(sample.first_tokens for sample in samples if sample.ttft_s is not None)
    waited_s = sum(sample.ttft_s * sample.first_tokens for sample in samples if sample.ttft_s is not None)
    rates = [sample.tok_s for sample in samples if sample.tok_s is not None]
    queues = [sample.waiting for sample in samples if sample.waiting is not None]
    errors = [sample.errors for sample in samples if sample.errors is not None]
    return Minute(
        minute=minute,
        tok_s=round(sum(rates), 2) if rates else None,
        ttft_s=round(waited_s / requests, 4) if requests else None,
        first_tokens=requests,
        waiting=sum(queues) if queues else None,
        errors=sum(errors) if errors else None,
    )
