"""Estimate how long a start takes, from the past starts that its node stores. Pure.

Two starts are alike if both are of one release, or else of one image, one recipe's name and one model: then only
arguments differ, and the weights have the same size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sparkops.config.recipe import Recipe
from sparkops.release import SHORT
from sparkops.startup.durations import spell
from sparkops.startup.verdict import Watch
from sparkops.startup.vllm_log import Stage

NEWEST = 9  # starts that the figures are made of: a node changes, and old starts become less typical


def kind(recipe: Recipe, inputs: str) -> str:
    """Return what starts of releases that differ in arguments alone have in common."""
    return f"{recipe.name} {inputs[:SHORT]} {recipe.model.id} {recipe.model.revision or recipe.model.path}"


class Started(BaseModel):
    """A start that ended with an answering server. `stages`: seconds from the container's start to each stage."""

    model_config = ConfigDict(frozen=True)

    release: str
    kind: str
    stages: dict[Stage, float]

    @property
    def took_s(self) -> float:
        """Seconds until it answered."""
        return max(self.stages.values())


def started(release: str, like: str, watch: Watch) -> Started:
    """Return the record of a start."""
    return Started(release=release, kind=like, stages={stage: round(at_s, 2) for stage, at_s in watch.reached})


@dataclass(frozen=True)
class Forecast:
    """Seconds that a start takes, seconds that remain from each stage on, and the source of the figures."""

    took_s: float
    source: str
    left_from_s: Mapping[Stage, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"about {spell(self.took_s)}, {self.source}"

    def left_s(self, watch: Watch, at_s: float) -> float:
        """Return the seconds that remain; below zero it is late. A long stage makes the next one no shorter."""
        stage, reached_s = watch.reached[-1]
        if stage not in self.left_from_s:
            return self.took_s - at_s
        return self.left_from_s[stage] - (at_s - reached_s)

    def remaining(self, watch: Watch, at_s: float) -> str:
        """Return the same in words."""
        left_s = self.left_s(watch, at_s)
        if round(left_s) >= 0:
            return f"about {spell(abs(left_s))} left, {self.source}"
        return f"{spell(-left_s)} later than usual, {self.source}"


def remembered(records: Iterable[Mapping[str, Any]]) -> Iterator[Started]:
    """Yield the starts that a guard has stored, without those in the format of another version of sparkops."""
    for record in records:
        with suppress(ValidationError):
            yield Started.model_validate(record)


def forecast(
    release: str, like: str, expected_s: float | None, past: Iterable[Started], node: str = ""
) -> Forecast | None:
    """Return the median of past starts, oldest first; without similar ones, the recipe's own figure, or else the median
    of the service's other releases; None without any.

    `node` stores them; it is named in the source of the figure.
    """
    known, on = tuple(past), f" on {node}" if node else ""
    same = [start for start in known if start.release == release]
    if similar := same or [start for start in known if start.kind == like]:
        return _learnt(similar[-NEWEST:], ("" if same else " of other settings") + on)
    if expected_s:
        return Forecast(expected_s, "by the recipe's figure")
    return _learnt(list(known[-NEWEST:]), f" of other releases{on}") if known else None


def _learnt(past: list[Started], of: str) -> Forecast:
    count = f"{len(past)} start{'s' if len(past) > 1 else ''}"
    left_s = {stage: [start.took_s - start.stages[stage] for start in past if stage in start.stages] for stage in Stage}
    left_from_s = {stage: median(seconds) for stage, seconds in left_s.items() if seconds}
    return Forecast(median(start.took_s for start in past), f"learnt from {count}{of}", left_from_s)
