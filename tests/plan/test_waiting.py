"""What a run reports about the lock that it waits for, and how often."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkops.config.recipe import Startup
from sparkops.plan.journal import Holder, Phase
from sparkops.plan.startup import Line, Sample, Watch, advance
from sparkops.plan.waiting import REPEAT_S, LockReport, Repeats

ANN = Holder(owner="ann@desk", deploy="d1", renewed_s=0.0, boot="b", run="deploy, pid 4711")
LOADING = advance(Watch(Startup()), Sample(9.0, (Line(5.0, "Starting to load model /models/q..."),)))
WHOLE = LockReport("chat", ANN, 200.0, Phase.LOAD, replace(LOADING, percent=40), "about 6 min left")


def test_a_report_names_holder_age_phase_stage_and_time_left() -> None:
    held = "waiting for the lock of chat: held by ann@desk (deploy, pid 4711) for 3 min 20 s"

    assert str(WHOLE) == f"{held}, phase load: loading weights 40 % (about 6 min left)"
    assert str(replace(WHOLE, left="")) == f"{held}, phase load: loading weights 40 %"
    assert str(LockReport("chat", ANN, 200.0, Phase.BAKE)) == f"{held}, phase bake"
    assert str(LockReport("chat", ANN, 200.0)) == held


def test_what_is_unknown_is_left_out_or_named() -> None:
    holder = ANN.model_copy(update={"run": ""})

    assert str(LockReport("chat", holder)) == "waiting for the lock of chat: held by ann@desk"
    shown = str(LockReport("chat", holder, None, Phase.LOAD, problem="n2: no answer"))
    assert shown == "waiting for the lock of chat: held by ann@desk, phase load; stage unknown: n2: no answer"


def test_another_run_phase_stage_or_problem_is_a_change_and_a_percent_is_none() -> None:
    other = ANN.model_copy(update={"deploy": "d2"})
    changes: tuple[dict[str, Any], ...] = (
        {"holder": other},
        {"phase": Phase.VERIFY},
        {"start": Watch(Startup())},
        {"start": None},
        {"problem": "no answer"},
    )

    assert [replace(WHOLE, **each).key == WHOLE.key for each in changes] == [False] * 5
    same = replace(WHOLE, held_s=300.0, left="about 5 min left", start=replace(LOADING, percent=50))
    assert same.key == WHOLE.key


def test_a_plain_log_keeps_changes_and_one_report_a_minute() -> None:
    repeats, kept = Repeats(), []
    for at_s, key in ((0.0, "a"), (2.0, "a"), (4.0, "b"), (6.0, "b"), (4.0 + REPEAT_S, "b"), (6.0 + REPEAT_S, "b")):
        if repeats.keeps(key, at_s):
            kept.append(at_s)

    assert kept == [0.0, 4.0, 64.0]
