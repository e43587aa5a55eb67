"""What a recipe may ask of a GPU beyond plain weights. Each is reported, also where it fails."""

from __future__ import annotations

import re

import pytest

from sparkops.config import inventory
from sparkops.node.docker.commands import gpu as gpu_options
from tests.lab.gpu import models
from tests.lab.gpu.lab import Lab

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def vllm(lab: Lab) -> None:
    """Skip for another engine."""
    if lab.engine != "vllm":
        pytest.skip("these are arguments and verbs of vLLM")


PRELOAD = "`vllm preload` needs vLLM 0.31, which requires torch 2.13.0 and FlashInfer 0.7.0"


@pytest.mark.parametrize(("kind", "says"), [("int4", "AutoGPTQLinearMethod"), ("fp8", "Fp8LinearMethod")])
def test_a_quantized_checkpoint_is_served_probed_and_swapped_in(serving: Lab, built: str, kind: str, says: str) -> None:
    name = f"tiny-{kind}"
    with serving.evidence.step(f"quantize the tiny model: {kind}") as step:
        fleet = inventory.load(serving.cli.inventory)
        output = models.make(fleet, "here", built, "quantize.py", kind, "/out/tiny-qwen3", f"/out/{name}")
        step.figures.append(output.strip())
    serving.settle()
    with serving.loaded(f"swap to {kind}"):
        ran = serving.deploy(f"swap to {kind}", "--mode", "beside", change={"model.path": name})
    assert serving.check_answer(f"ask the {kind} release") == ran.json["release"]
    _notes(serving, kind, says)


def test_weights_are_loaded_by_fastsafetensors(serving: Lab) -> None:
    serving.settle()
    with serving.loaded("swap to fastsafetensors"):
        ran = serving.deploy(
            "swap to fastsafetensors", "--mode", "beside", change={"args.load-format": "fastsafetensors"}
        )
    assert serving.check_answer("ask, loaded by fastsafetensors") == ran.json["release"]
    _notes(serving, "fastsafetensors", "Fastsafetensor loader|Loading fastsafetensors")


def test_two_engines_share_one_copy_of_the_weights(serving: Lab, built: str) -> None:
    """`vllm preload`; where the image's vLLM lacks it, the report says what it would need."""
    with serving.evidence.step("vllm preload") as step:
        reached = gpu_options(inventory.load(serving.cli.inventory).node("here"))  # without a GPU vLLM shows no help
        words = ("run", "--rm", "--network=none", *reached, "--entrypoint=vllm", built, "--help")
        verbs = serving.nodes["here"](*words, both=True)
        has = "preload" in verbs
        step.result = "found" if has else "not in this vLLM"
        step.figures.append("" if has else PRELOAD)


def _notes(lab: Lab, title: str, says: str) -> None:
    """Note the lines of the newest engine's log that match what it used. Raises AssertionError without any."""
    node, container = next(lab.containers())
    lines = lab.nodes[node]("logs", container, both=True).splitlines()
    naming = [line for line in lines if re.search(says, line)]
    with lab.evidence.step(f"the log names {title}") as step:
        step.figures += [line[-160:] for line in naming[:2]]
        assert naming, f"{says} is not in the log of {container}"
