"""The arguments of recipes with the vLLM of the tests' image, as that image's parser reads them.

`make arguments` gives those of every recipe to the version that it pins.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from sparkops.config import shipped
from tests.fleet.fleet import Fleet as RealFleet
from tests.lab.arguments.command_lines import SCRIPT, WRONG, Judgement, to_judge, vllm_recipes
from tests.real.program import Cli

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


@pytest.mark.matrix
@pytest.mark.vllm
@pytest.mark.usefixtures("built")
def test_changed_arguments_of_a_gated_image_are_judged_by_its_parser(sparkops: Cli, tmp_path: Path) -> None:
    recipe = yaml.safe_load(shipped.recipes()[TINY].read_text())
    file = tmp_path / f"{TINY}.yaml"
    recipe["serve"]["args"]["kv-cache-dtype"] = "turboquant35"
    file.write_text(yaml.safe_dump(recipe))

    refused = sparkops("build", file, "--node", "node-1")
    recipe["serve"]["args"]["kv-cache-dtype"] = "auto"
    file.write_text(yaml.safe_dump(recipe))
    accepted = sparkops("build", file, "--node", "node-1")

    assert refused.code == 1
    assert f"{file}:" in refused.err
    assert "serve.args.kv-cache-dtype: " in refused.err
    assert accepted.code == 0, accepted.err
    assert "gate passed: arguments: accepted by the parser of the image" in accepted.err
