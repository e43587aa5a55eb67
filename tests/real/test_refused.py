"""What a start would fail at is found before the old release stops: the real vLLM refuses its own configuration."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fleet.fleet import Fleet as RealFleet
from tests.real.program import RECIPE, Cli, Ran
from tests.real.service import Service
from tests.real.test_swap_vllm import LOAD, SETTINGS

pytestmark = [pytest.mark.vllm, pytest.mark.matrix]

MODELS = "/srv/models"
CHANGED = """\
import json, shutil, sys
from pathlib import Path
source, target = Path(sys.argv[1]), Path(sys.argv[2])
shutil.rmtree(target, ignore_errors=True)
shutil.copytree(source, target)
exec(sys.argv[3])
"""
TYPE = "f = target / 'config.json'; f.write_text(json.dumps({**json.loads(f.read_text()), 'model_type': 'gemma9'}))"
CUT = "f = target / 'model.safetensors'; f.write_bytes(f.read_bytes()[:-1000])"
TOKENIZER = "(target / 'tokenizer.json').write_text('{')"


@pytest.fixture(scope="module")
def tiny(front: Cli, nodes: RealFleet, model: str) -> Iterator[Service]:
    """The tiny model on node-2 behind the gateway."""
    service = Service(front, nodes, str(RECIPE), "tiny", 8000, {**SETTINGS, "model.path": model})
    service.sweep()
    first = service.deploy("--node", "node-2")
    assert first.code == 0, first.err
    yield service
    service.sweep()
    nodes.node("node-2").exec("rm", "-rf", f"{MODELS}/tiny-changed")


def refused(tiny: Service, change: str) -> Ran:
    """Deploy a changed copy of the model in place, where a start would take the service down; it must be refused."""
    source, target = f"{MODELS}/tiny-qwen3", f"{MODELS}/tiny-changed"
    tiny.nodes.node("node-2").exec("python3", "-c", CHANGED, source, target, change)
    with tiny.untouched(**LOAD):
        ran = tiny.deploy("--node", "node-2", "--mode", "in-place", "--allow-downtime", model__path="tiny-changed")
    assert ran.code == 5, ran.err
    return ran


def test_a_model_type_that_the_image_does_not_know(tiny: Service) -> None:
    ran = refused(tiny, TYPE)

    assert "the engine refuses its configuration, and would end at its start" in ran.err
    assert "model type `gemma9`" in ran.err
    assert "image.vllm" in ran.err


def test_a_tokenizer_that_is_no_json(tiny: Service) -> None:
    ran = refused(tiny, TOKENIZER)

    assert "Expecting property name" in ran.err
    assert "sparkops models verify" in ran.err


def test_a_truncated_shard(tiny: Service) -> None:
    ran = refused(tiny, CUT)

    assert "model.safetensors" in ran.err
    assert "sparkops up" in ran.err


def test_a_plan_says_the_same_and_what_was_checked(tiny: Service, model: str) -> None:
    assert model != "tiny-changed"
    tiny.nodes.node("node-2").exec("python3", "-c", CHANGED, f"{MODELS}/tiny-qwen3", f"{MODELS}/tiny-changed", TYPE)
    argv = ["--node", "node-2", "--mode", "in-place", "--allow-downtime"]
    settings = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]

    wrong = tiny.cli("plan", tiny.recipe, *argv, *settings, "--set", "model.path=tiny-changed")
    right = tiny.cli(
        "plan", tiny.recipe, *argv, *settings, "--set", "model.path=tiny-qwen3", "--set", "serve.args.seed=3"
    )

    assert (wrong.code, "gemma9" in wrong.err) == (5, True), wrong.err
    assert right.code == 0, right.err
    assert "node-2: configuration: accepted by the engine: config.json, number of ranks" in right.out
