"""What past starts on a node tell about the next one: its duration, and the memory that the engine reported. Pure.

Starts of the same release are comparable, or else starts with the same image, recipe name and model, which differ only
in arguments.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from sparkops.config.recipe import Recipe
from sparkops.config.release import SHORT
from sparkops.engines import ENGINES
from sparkops.engines.start_log import ReportedMemory, Stage
from sparkops.serving.memory.bound import bound
from sparkops.serving.startup.durations import spell
from sparkops.serving.startup.verdict import Watch

NEWEST = 9  # number of starts in an estimate; older ones may not be typical of the node any more


def kind(recipe: Recipe, inputs: str) -> str:
    """Return the key of comparable starts: the same for releases that differ only in arguments."""
    return f"{recipe.name} {inputs[:SHORT]} {recipe.model.id} {recipe.model.revision or recipe.model.path}"


class Started(BaseModel):
    """A successful start. `stages`: seconds from the container's start to each stage.

    `memory` is what the engine logged of it, with `settings` (see there) and a `share` of the memory.
    """

    model_config = ConfigDict(frozen=True)

    release: str
    kind: str
    stages: dict[Stage, float]
    settings: str = ""
    share: float | None = None
    memory: ReportedMemory = ReportedMemory()

    @property
    def took_s(self) -> float:
        """Seconds until the last stage."""
        return max(self.stages.values())


def settings(recipe: Recipe) -> str:
    """Return the key of starts that take the same memory besides the KV cache: all arguments but the utilization."""
    serve, share_flag = recipe.serve, ENGINES[recipe.engine].share_flag
    args = {name: value for name, value in serve.args.items() if name != share_flag}
    of = (recipe.image.requirement, recipe.model.id, recipe.model.revision, recipe.model.path)
    stages = [serve.pipeline_parallel] if serve.pipeline_parallel > 1 else []
    text = json.dumps([*of, args, serve.env, serve.tensor_parallel, *stages], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:SHORT]


def started(release: str, like: str, watch: Watch, recipe: Recipe) -> Started:
    """Return a successful start as it is stored. Raises ValueError for an invalid utilization."""
    stages = {stage: round(at_s, 2) for stage, at_s in watch.reached}
    budget = bound(recipe, 1.0, 0.0)
    share = budget.share if budget else None
    return Started(
        release=release, kind=like, stages=stages, settings=settings(recipe), share=share, memory=watch.memory
    )


@dataclass(frozen=True)
class Forecast:
    """Duration of a start, remaining seconds from each stage on, and the source of the figures."""

    took_s: float
    source: str
    left_from_s: Mapping[Stage, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"about {spell(self.took_s)}, {self.source}"

    def left_s(self, watch: Watch, at_s: float) -> float:
        """Return the remaining seconds, negative if late. A long stage does not shorten the next one."""
        stage, reached_s = watch.reached[-1]
        if stage not in self.left_from_s:
            return self.took_s - at_s
        return self.left_from_s[stage] - (at_s - reached_s)

    def remaining(self, watch: Watch, at_s: float) -> str:
        """Return the same as text."""
        left_s = self.left_s(watch, at_s)
        if round(left_s) >= 0:
            return f"about {spell(abs(left_s))} left, {self.source}"
        return f"{spell(-left_s)} over the estimate {self.source}"


def remembered(records: Iterable[Mapping[str, Any]]) -> Iterator[Started]:
    """Yield the starts that a guard has stored, without those in another format."""
    for record in records:
        with suppress(ValidationError):
            yield Started.model_validate(record)


def forecast(
    release: str, like: str, expected_s: float | None, past: Iterable[Started], node: str = ""
) -> Forecast | None:
    """Return the median of comparable starts, else the recipe's figure, else the median of the service's releases; None
    without any. `past` begins with the oldest start.

    `node` stores them; the source of the figure contains its name.
    """
    known, on = tuple(past), f" on {node}" if node else ""
    same = [start for start in known if start.release == release]
    if similar := same or [start for start in known if start.kind == like]:
        return _median(similar[-NEWEST:], ("" if same else " of other settings") + on)
    if expected_s:
        return Forecast(expected_s, "from the recipe")
    return _median(list(known[-NEWEST:]), f" of other releases{on}") if known else None


def _median(past: list[Started], of: str) -> Forecast:
    count = f"{len(past)} past start{'s' if len(past) > 1 else ''}"
    left_s = {stage: [start.took_s - start.stages[stage] for start in past if stage in start.stages] for stage in Stage}
    left_from_s = {stage: median(seconds) for stage, seconds in left_s.items() if seconds}
    return Forecast(median(start.took_s for start in past), f"from {count}{of}", left_from_s)
