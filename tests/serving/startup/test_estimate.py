"""What past starts say about the next one."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from sparkops.config.startup import Startup
from sparkops.engines.start_log import ReportedMemory, Stage
from sparkops.engines.vllm.start_log import LOG
from sparkops.serving.startup import durations, estimate
from sparkops.serving.startup.durations import spell
from sparkops.serving.startup.estimate import Forecast, Started, forecast, kind, settings
from sparkops.serving.startup.verdict import Line, Sample, Watch, advance
from tests.examples import CUDA, INPUTS, recipe

KIND = "q 0123456789ab org/q c0ffee"
LEARNT = Forecast(600.0, "from 3 past starts", {Stage.STARTING: 600.0, Stage.WEIGHTS: 590.0, Stage.COMPILING: 90.0})


def past(took_s: float, release: str = "q-1", **stages: float) -> Started:
    names = {Stage[name.upper()]: at_s for name, at_s in stages.items()}
    return Started(release=release, kind=KIND, stages={Stage.STARTING: 0.0, **names, Stage.SERVING: took_s})


ANOTHER = Started(release="q-2", kind="of another model", stages={Stage.SERVING: 500.0})


def loading(since_s: float, percent: int = 43) -> Watch:
    shards = f"Loading safetensors checkpoint shards: {percent:3}% Completed"
    return advance(
        Watch(Startup(), LOG), Sample(since_s, (Line(since_s, "Starting to load model x"), Line(since_s, shards)))
    )


def test_a_start_is_remembered_with_the_seconds_of_its_stages() -> None:
    watch = advance(loading(12.346), Sample(600.0, healthy=True))

    remembered = estimate.started("q-1", KIND, watch, recipe())

    assert remembered.stages == past(600.0, weights=12.35).stages
    assert (remembered.release, remembered.kind, remembered.settings) == ("q-1", KIND, settings(recipe()))
    assert Started.model_validate(remembered.model_dump(mode="json")) == remembered


def test_figures_are_medians_of_the_same_release() -> None:
    starts = [past(500.0, weights=10.0), past(700.0, weights=20.0), past(600.0, weights=30.0), past(9.0, "q-2")]

    known = forecast("q-1", KIND, 800.0, starts)

    assert known is not None
    assert (known.took_s, known.source) == (600.0, "from 3 past starts")
    assert known.left_from_s == {Stage.STARTING: 600.0, Stage.WEIGHTS: 570.0, Stage.SERVING: 0.0}


def test_the_node_that_remembers_is_named_and_records_of_another_version_are_left_out() -> None:
    records = [past(500.0).model_dump(mode="json"), {"seconds": 7}]

    known = forecast("q-1", KIND, 800.0, estimate.remembered(records), "n2")
    recipe_s = forecast("q-1", KIND, 800.0, (), "n2")

    assert (str(known), str(recipe_s)) == (
        "about 8 min 20 s, from 1 past start on n2",
        "about 13 min 20 s, from the recipe",
    )


def test_a_stage_that_some_starts_skip_counts_where_it_was() -> None:
    known = forecast("q-1", KIND, None, [past(500.0), past(700.0, graphs=600.0)])

    assert known is not None
    assert (known.took_s, known.left_from_s[Stage.GRAPHS]) == (600.0, 100.0)


@pytest.mark.parametrize(
    ("starts", "expected_s", "text"),
    [
        ([past(500.0)], 800.0, "about 8 min 20 s, from 1 past start"),
        ([past(500.0, "q-2")], 800.0, "about 8 min 20 s, from 1 past start of other settings"),
        (
            [past(500.0, "q-2").model_copy(update={"kind": "another"})],
            800.0,
            "about 13 min 20 s, from the recipe",
        ),
        (
            [past(500.0, "q-2").model_copy(update={"kind": "another"})],
            None,
            "about 8 min 20 s, from 1 past start of other releases",
        ),
        ([], 800.0, "about 13 min 20 s, from the recipe"),
        ([], None, "None"),
        ([past(900.0), *[past(100.0)] * 5, *[past(200.0)] * 4], None, "about 1 min 40 s, from 9 past starts"),
        ([*[past(100.0)] * 9, *[past(200.0)] * 6], None, "about 3 min 20 s, from 9 past starts"),
    ],
    ids=["release", "kind", "another model", "another model alone", "recipe", "nothing", "newest", "newer ones win"],
)
def test_the_source_of_the_figure_is_told(starts: list[Started], expected_s: float | None, text: str) -> None:
    assert str(forecast("q-1", KIND, expected_s, starts)) == text


def test_of_one_kind_are_starts_of_the_same_image_and_model() -> None:
    model = {"revision": "c0ffee"}

    assert kind(recipe(model=model), INPUTS) == KIND
    assert kind(recipe(model=model, serve={"args": {"max-model-len": 9}}), INPUTS) == KIND
    different = [
        kind(recipe(model={"revision": "b"}), INPUTS),
        kind(recipe(), INPUTS),
        kind(recipe(model=model), "1" * 64),
    ]
    assert len({KIND, *different}) == 4


@pytest.mark.parametrize(
    ("watch", "at_s", "left"),
    [
        (Watch(Startup(), LOG), 0.0, "about 10 min left, from 3 past starts"),
        (loading(10.0), 230.0, "about 6 min 10 s left, from 3 past starts"),
        (loading(200.0), 420.0, "about 6 min 10 s left, from 3 past starts"),  # began late; loads as long
        (loading(10.0), 600.4, "about 0 s left, from 3 past starts"),
        (loading(10.0), 645.0, "45 s over the estimate from 3 past starts"),
    ],
)
def test_what_is_left_is_counted_from_the_last_stage(watch: Watch, at_s: float, left: str) -> None:
    assert LEARNT.remaining(watch, at_s) == left


@pytest.mark.parametrize("seconds", [0.0, 45.0, 180.0, 370.0, 7200.0])
def test_the_seconds_left_are_read_back_from_the_words(seconds: float) -> None:
    words = f"loading weights 40 %, {Forecast(seconds, 'from 3 past starts').remaining(Watch(Startup(), LOG), 0.0)}"

    assert durations.left_s(words) == seconds


@pytest.mark.parametrize(
    "words", ["loading weights 40 %, 120 s", "waiting for Docker", "serving, 45 s over the estimate"]
)
def test_words_without_the_time_left_have_no_seconds(words: str) -> None:
    assert durations.left_s(words) is None


def test_without_stages_the_whole_start_is_counted() -> None:
    figure = Forecast(600.0, "from the recipe")

    assert figure.remaining(loading(10.0), 230.0) == "about 6 min 10 s left, from the recipe"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (64.0, "1 min"),
        (66.0, "1 min 10 s"),
        (370.0, "6 min 10 s"),
        (719.6, "12 min"),
    ],
)
def test_durations_are_told_as_people_say_them(seconds: float, text: str) -> None:
    assert spell(seconds) == text


def watched(log: str) -> Watch:
    lines = tuple(Line(float(second), text) for second, text in enumerate(log.splitlines()))
    return advance(Watch(Startup(), LOG), Sample(60.0, lines, healthy=True))


@pytest.mark.parametrize(
    ("log", "memory"),
    [
        ("vllm-0.23.0-cuda-h100-start-1.4B-8-shards.log", ReportedMemory(2.72, 36.19, 0.52)),
        ("vllm-0.23.0-cuda-h100-start-warm.log", ReportedMemory(0.0, 23.48, 0.11)),
        ("vllm-0.23.0-cuda-h100-start-fp8.log", ReportedMemory(0.0, 11.47, 0.05)),
        ("vllm-0.23.0-cuda-tp2-mp-rank1.log", ReportedMemory(0.0, 23.58, 0.22)),
        ("vllm-0.23.0-cuda-tp2-ray-rank0.log", ReportedMemory(0.0, 23.58, 0.22)),
        ("vllm-0.23.0-cuda-out-of-memory.log", ReportedMemory(0.0, None, None)),
        ("vllm-0.33.0-cuda-h200-start-cold.log", ReportedMemory(0.0, 20.66, 0.07)),
    ],
)
def test_a_start_is_remembered_with_the_memory_that_vllm_logged(
    captured: Callable[[str], str], log: str, memory: ReportedMemory
) -> None:
    half = recipe(image={"torch": CUDA, "vllm": "vllm==0.23.0"}, serve={"args": {"gpu-memory-utilization": 0.5}})

    remembered = estimate.started("q-1", KIND, watched(captured(log)), half)

    assert (remembered.memory, remembered.share) == (memory, 0.5)
    assert Started.model_validate(json.loads(remembered.model_dump_json())) == remembered


def test_a_start_that_an_older_guard_stored_has_no_memory() -> None:
    [old] = estimate.remembered([{"release": "q-1", "kind": KIND, "stages": {"serving": 5.0}}])

    assert (old.memory, old.settings, old.share) == (ReportedMemory(), "", None)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"serve": {"args": {"gpu-memory-utilization": 0.4}}}, True),
        ({"serve": {"args": {"gpu-memory-utilization": 0.4, "max-num-seqs": 8}}}, False),
        ({"serve": {"env": {"VLLM_USE_V2_MODEL_RUNNER": "0"}}}, False),
        ({"serve": {"tensor_parallel": 2}}, False),
        ({"image": {"torch": CUDA, "vllm": "vllm==0.24.0"}}, False),
    ],
)
def test_only_the_utilization_may_differ_between_starts_of_the_same_settings(
    change: dict[str, Any], same: bool
) -> None:
    image = {"image": {"torch": CUDA, "vllm": "vllm==0.23.0"}}

    assert (settings(recipe(**{**image, **change})) == settings(recipe(**image))) is same
