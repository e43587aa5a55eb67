"""No clock of a start advances while nobody looks at it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from sparkops.config.startup import Startup
from sparkops.engines import runtime
from sparkops.engines.vllm.start_log import LOG
from sparkops.guard.follow.engine_port import EnginePort
from sparkops.guard.follow.loading import Loading, limits, resumed
from sparkops.node.local import LocalNode
from sparkops.serving.startup.verdict import Sample, Watch, advance
from tests import examples

LIMITS = Startup(stall_s=10, compile_stall_s=10, max_s=100)


def test_a_guard_that_was_away_for_hours_ends_no_start() -> None:
    age_s = 7200.0
    watch = advance(resumed(Watch(LIMITS, LOG), age_s), Sample(age_s + 1))
    assert watch.failure == ""
    assert advance(watch, Sample(age_s + 12)).failure == "no progress for 10 s (stage: starting)"
    assert advance(Watch(LIMITS, LOG), Sample(age_s)).failure != ""


@pytest.mark.parametrize(("ahead_s", "age_s"), [(3600.0, 0.0), (-60.0, 60.0)], ids=["set back since", "right"])
def test_an_engine_is_as_old_as_the_clock_says_and_no_younger_than_new(ahead_s: float, age_s: float) -> None:
    """Else a stall of its start would be found later, by the step of the clock."""
    container = replace(examples.container(examples.rank()), started_at=time.time() + ahead_s)
    node, cancel = LocalNode("n1"), threading.Event()
    port = EnginePort(node, container.port, runtime.USER)
    loading = Loading(node, container, examples.recipe(), None, print, cancel, print, port)

    assert time.monotonic() - loading.born_s == pytest.approx(age_s, abs=30.0)


def test_a_rank_above_0_is_silent_and_not_hung() -> None:
    recipe = examples.recipe()
    assert advance(Watch(limits(recipe, 1), LOG), Sample(1e6)).failure == ""
    assert limits(recipe, 0) == recipe.probe.startup
