"""No clock of a start advances while nobody looks at it."""

from __future__ import annotations

from sparkops.config.startup import Startup
from sparkops.engines.vllm.start_log import LOG
from sparkops.guard.loading import limits, resumed
from sparkops.startup.verdict import Sample, Watch, advance
from tests import examples

LIMITS = Startup(stall_s=10, compile_stall_s=10, max_s=100)


def test_a_guard_that_was_away_for_hours_ends_no_start() -> None:
    age_s = 7200.0
    watch = advance(resumed(Watch(LIMITS, LOG), age_s), Sample(age_s + 1))
    assert watch.failure == ""
    assert advance(watch, Sample(age_s + 12)).failure == "no progress for 10 s (stage: starting)"
    assert advance(Watch(LIMITS, LOG), Sample(age_s)).failure != ""


def test_a_rank_above_0_is_silent_and_not_hung() -> None:
    recipe = examples.recipe()
    assert advance(Watch(limits(recipe, 1), LOG), Sample(1e6)).failure == ""
    assert limits(recipe, 0) == recipe.probe.startup
