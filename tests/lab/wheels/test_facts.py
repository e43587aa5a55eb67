"""The recipes against the facts of the wheels that they pin: what gate, mods and template will meet."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace

import pytest

from sparkops.config import recipe_file, shipped
from sparkops.config.recipe import Recipe
from sparkops.engines.vllm.gate import NO_KERNELS
from sparkops.operator.convert.releases import RELEASES
from tests.examples import recipe as example
from tests.lab.wheels import facts, table
from tests.lab.wheels.facts import FACTS, MODS, WheelFacts

READ = json.loads(FACTS.read_text())
RECIPES = [recipe_file.load(file) for file in shipped.recipes().values()]
ON_WHEELS = [one for one in RECIPES if facts.on_wheels(one)]
IMPORTED = [example(name=f"imported-{release.version}", image=dict(release.image)) for release in RELEASES]
"""What `sparkops import` writes as the image."""
EACH = pytest.mark.parametrize("shipped_recipe", [*ON_WHEELS, *IMPORTED], ids=lambda one: one.name)


def wheels(of: Recipe) -> dict[str, WheelFacts]:
    """Return the facts of the wheel of vLLM that a recipe pins, by machine."""
    return {machine: WheelFacts(**read) for machine, read in READ["wheels"][of.image.vllm].items()}


def test_every_version_that_something_names_was_read() -> None:
    """After a change of a version: `make wheel-facts`."""
    assert sorted(READ["wheels"]) == facts.requirements(RECIPES)


@EACH
def test_a_recipe_has_a_wheel_for_its_machine(shipped_recipe: Recipe) -> None:
    assert "aarch64" in wheels(shipped_recipe)


@EACH
def test_the_gate_would_pass_the_wheel(shipped_recipe: Recipe) -> None:
    for machine, wheel in wheels(shipped_recipe).items():
        refused = [verdict for verdict in table.predicted(shipped_recipe, wheel, machine) if not verdict.ok]

        assert not refused, f"{machine}: {refused}"


@EACH
def test_the_wheel_requires_the_torch_of_the_recipe(shipped_recipe: Recipe) -> None:
    """Its kernels are built for exactly that torch. A recipe may override the requirement with a reason of its own."""
    torch = shipped_recipe.image.torch
    required = [one for one in wheels(shipped_recipe)["aarch64"].requires if one.startswith("torch==")]

    assert torch
    assert any(re.match(rf"torch=={re.escape(torch.version)}(\+cpu)?(;|$)", one) for one in required), required


@EACH
def test_the_wheel_is_for_the_cuda_of_the_recipe(shipped_recipe: Recipe) -> None:
    torch = shipped_recipe.image.torch
    runtimes = {name for name in wheels(shipped_recipe)["aarch64"].libraries if name.startswith("libcudart")}

    assert torch
    assert runtimes == ({f"libcudart.so.{torch.cuda.partition('.')[0]}"} if torch.cuda else set())


@EACH
def test_every_mod_applies_to_the_files_of_the_wheels(shipped_recipe: Recipe) -> None:
    outcomes = READ["mods"].get(shipped_recipe.name, {})

    assert {name: one["outcome"] in ("applied", "already there") for name, one in outcomes.items()} == dict.fromkeys(
        shipped_recipe.image.mods, True
    )
    for name, one in outcomes.items():
        current = hashlib.sha256((MODS / f"{name}.py").read_bytes()).hexdigest()
        assert one["sha256"] == current, f"{name} has changed: run `make wheel-facts`"


def test_a_wheel_without_the_kernels_of_its_platform_is_refused() -> None:
    """CUDA wheels since 0.24 as the gate of an earlier version saw them; otherwise the prediction could not fail."""
    of = next(one for one in ON_WHEELS if one.name == "qwen3.6-35b-nvfp4")
    wheel = wheels(of)["aarch64"]
    renamed = replace(wheel, modules=[name.replace("_C_stable_libtorch", "_C") for name in wheel.modules])
    causes = {verdict.cause for verdict in table.predicted(of, renamed, "aarch64") if not verdict.ok}

    assert NO_KERNELS in causes


def test_every_recipe_has_a_row() -> None:
    """After a change: `make wheel-facts`."""
    assert table.PAGE.read_text() == table.page(RECIPES, READ)
