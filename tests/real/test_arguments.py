"""The arguments of recipes with the vLLM of the tests' image, as that image's parser reads them.

`make arguments` gives those of every recipe to the version that it pins.
"""

from __future__ import annotations

import json

import pytest

from tests.arguments.command_lines import SCRIPT, WRONG, Judgement, to_judge, vllm_recipes
from tests.fleet.fleet import Fleet as RealFleet

TINY = "tiny-qwen3-cpu"
PIN = next(shipped.image.vllm for shipped in vllm_recipes() if shipped.name == TINY)
PINNED = [shipped for shipped in vllm_recipes() if shipped.image.vllm == PIN]


@pytest.fixture(scope="module")
def problems(nodes: RealFleet, built: str) -> dict[str, str]:
    """The problem of each recipe and wrong example with the parser; empty if it accepts them."""
    options = ("--rm", "--interactive", "--network=none", "--entrypoint=python")
    script = ("-", "cpu", json.dumps(to_judge(PINNED)))
    output = nodes.node("node-1").exec("docker", "run", *options, built, *script, stdin=SCRIPT)
    judgement: Judgement = json.loads(output.strip().splitlines()[-1])
    return judgement["problems"]


@pytest.mark.matrix
@pytest.mark.vllm
def test_the_image_accepts_the_arguments_of_every_recipe_that_pins_its_vllm(problems: dict[str, str]) -> None:
    assert {name: problem for name, problem in problems.items() if name not in WRONG} == {
        pinned.name: "" for pinned in PINNED
    }


@pytest.mark.matrix
@pytest.mark.vllm
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_refused(problems: dict[str, str], name: str) -> None:
    """Otherwise the test above could not fail."""
    assert problems[name]
