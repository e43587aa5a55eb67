"""Which checks a recipe calls for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.config.recipe_file import load
from sparkops.config.smoke import Smoke
from sparkops.serving.smoke import coverage
from tests.examples import recipe
from tests.places import ROOT

ALWAYS = {
    "health",
    "version",
    "models",
    "warm_up",
    "questions",
    "text",
    "repeat",
    "concurrent",
    "streaming",
    "negatives",
    "metrics",
    "restarts",
}


def runs(of: Recipe) -> set[str]:
    return {check.name for check in coverage.planned(of) if check.runs}


def why(of: Recipe, name: str) -> str:
    return next(check.why for check in coverage.planned(of) if check.name == name)


def test_every_check_can_be_tuned_and_run_in_one_order() -> None:
    tunable = [name for name, field in Smoke.model_fields.items() if hasattr(field.get_default(), "enabled")]

    assert list(coverage.CHECKS) == tunable


def test_a_plain_recipe_calls_for_what_every_chat_model_does() -> None:
    assert runs(recipe()) == ALWAYS | {"needle"}


@pytest.mark.parametrize(
    ("change", "added", "reason"),
    [
        (
            {"serve": {"args": {"enable-auto-tool-choice": True, "tool-call-parser": "qwen3_xml"}}},
            "tools",
            "tool-call-parser qwen3_xml",
        ),
        (
            {"serve": {"args": {"structured-outputs-config.backend": "xgrammar"}}},
            "structured",
            "structured-outputs-config.backend",
        ),
        ({"serve": {"args": {"reasoning-parser": "qwen3"}}}, "reasoning", "reasoning-parser qwen3"),
        ({"expected": {"tok_s": 51.0, "source": "a test"}}, "speed", "at least 25.5 tok/s, 50% of 51"),
    ],
)
def test_a_claim_of_the_recipe_calls_for_its_check(change: dict[str, Any], added: str, reason: str) -> None:
    assert runs(recipe(**change)) == ALWAYS | {"needle", added}
    assert why(recipe(**change), added) == reason


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        ({}, "about 8192 tokens"),
        ({"max-model-len": 262144}, "about 8192 tokens"),
        ({"max-model-len": "128k"}, "about 8192 tokens"),
        ({"max-model-len": "8K"}, "about 4096 tokens"),
        ({"max-model-len": "auto"}, "about 8192 tokens"),
        ({"max-model-len": 2048}, "about 1024 tokens"),
        ({"max-model-len": 1024}, "max-model-len 1024 is below 2048"),
    ],
)
def test_the_long_prompt_fits_the_window(args: dict[str, Any], reason: str) -> None:
    assert why(recipe(serve={"args": args}), "needle") == reason


def test_a_check_is_switched_off_and_on_in_the_recipe() -> None:
    changed = recipe(probe={"smoke": {"text": {"enabled": False}, "tools": {"enabled": True}}})

    assert runs(changed) == (ALWAYS | {"needle", "tools"}) - {"text"}
    assert why(changed, "text") == "probe.smoke.text.enabled: false"
    assert why(changed, "tools") == "probe.smoke.tools.enabled: true"


@pytest.mark.parametrize(
    ("probe", "problem"),
    [
        ({"smoke": {"needel": {}}}, "unknown key, did you mean 'needle'?"),
        ({"smoke": {"questions": {"max_wrong": 5}}}, "max_wrong below 5, the number of questions"),
        ({"smoke": {"concurrent": {"words": [0] * 8}}}, "at most 7 items"),
        ({"passes": 0}, "greater than or equal to 1"),
    ],
)
def test_a_mistake_in_the_tuning_is_refused(probe: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match="validation error") as caught:
        recipe(probe=probe)

    assert problem in str(caught.value)


TINY = [ROOT / "recipes/tiny-qwen3-cpu.yaml", ROOT / "tests/lab/gpu/recipes/gpu-tiny.yaml"]


@pytest.mark.parametrize("file", TINY, ids=lambda file: file.stem)
@pytest.mark.parametrize("disabled", [(), ("questions",), ("questions", "health")])
def test_the_bake_runs_no_check_that_the_gate_did_not(file: Path, disabled: tuple[str, ...]) -> None:
    gate = load(file, None, [f"probe.smoke.{name}.enabled=false" for name in disabled])

    assert runs(coverage.light(gate)) == {"health", "questions"} - set(disabled)
    assert runs(coverage.light(gate)) <= runs(gate)


def test_the_bake_runs_no_slow_check_even_if_the_recipe_enables_it() -> None:
    enabled = {name: {"enabled": True} for name in Smoke.model_fields if name in coverage.CHECKS}

    assert runs(coverage.light(recipe(probe={"smoke": enabled}))) == {
        name for name, check in coverage.CHECKS.items() if check.light
    }


def test_a_check_that_the_engine_cannot_pass_runs_only_where_the_recipe_enables_it() -> None:
    image = {"torch": None, "vllm": None}
    enabled = recipe(engine="atlas", image=image, probe={"smoke": {"version": {"enabled": True}}})

    assert ALWAYS - runs(recipe(engine="atlas", image=image)) == {"version", "metrics", "negatives"}
    assert why(recipe(engine="atlas", image=image), "version") == "Atlas has no /version"
    assert "version" in runs(enabled)
