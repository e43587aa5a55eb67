"""The program that describes a checkpoint for the memory planner, and what a lock keeps of its answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sparkops.config.lock import Described
from sparkops.errors import NodeError
from sparkops.operator.build.weights import description
from sparkops.operator.build.weights.description import Description, of_lock, short, to_lock
from sparkops.operator.build.weights.models import describe
from tests import safetensors
from tests.operator.build.weights.places import member
from tests.safetensors import tensor

CONFIG: dict[str, Any] = {"text_config": {"num_hidden_layers": 2, "rope_theta": 1e6, "layer_types": ["a", "b"]}}


def checkpoint(root: Path, config: dict[str, Any] = CONFIG) -> Path:
    return safetensors.checkpoint(
        root / "q",
        {
            "model-1.safetensors": {
                "model.layers.0.mlp.experts.0.up_proj.weight": tensor("BF16", [4, 8]),
                "model.layers.1.mlp.experts.7.up_proj.weight": tensor("F8_E4M3", [4, 8]),
                "model.layers.2.mlp.experts.7.up_proj.weight": tensor("BF16", [2]),
            },
            "model-2.safetensors": {"lm_head.weight": tensor("BF16", [4, 4]), "mtp.layers.0.norm": tensor("F32", [1])},
        },
        config,
    )


def look(root: Path) -> Description | None:
    return describe(member("n1", root), "q")


def test_tensors_are_summed_by_name_without_the_numbers(tmp_path: Path) -> None:
    directory = checkpoint(tmp_path)
    description = look(tmp_path)

    assert description is not None
    assert description.tensors == {
        "model.layers.*.mlp.experts.*.up_proj.weight": 4 * 8 * 2 + 4 * 8,
        "model.layers.+.mlp.experts.*.up_proj.weight": 4,
        "lm_head.weight": 32,
        "mtp.layers.*.norm": 4,
    }
    assert description.config == CONFIG
    assert description.largest_bytes == (directory / "model-1.safetensors").stat().st_size
    assert description.origin == f"n1: {tmp_path}/q"


def test_a_file_that_the_index_does_not_name_is_not_read(tmp_path: Path) -> None:
    safetensors.shard(checkpoint(tmp_path) / "consolidated.safetensors", {"x": tensor("BF16", [64, 64])})
    description = look(tmp_path)

    assert description is not None
    assert "x" not in description.tensors


def test_quantization_may_stand_in_a_file_of_its_own(tmp_path: Path) -> None:
    inner = {"quantization": {"kv_cache_quant_algo": "FP8"}}
    (checkpoint(tmp_path) / "hf_quant_config.json").write_text(json.dumps(inner))
    description = look(tmp_path)

    assert description is not None
    assert description.config["quantization_config"] == {"quant_method": "modelopt", **inner}


def test_no_checkpoint_is_no_description(tmp_path: Path) -> None:
    assert look(tmp_path) is None


@pytest.mark.parametrize(
    ("file", "content", "problem"),
    [
        ("config.json", "[]", "config.json: expected a JSON object"),
        ("config.json", "{", "config.json: expected a JSON object"),
        ("model-1.safetensors", "x", "safetensors header missing"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "b.safetensors"}}', "b.safetensors is missing"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_is_an_error(tmp_path: Path, file: str, content: str, problem: str) -> None:
    (checkpoint(tmp_path) / file).write_text(content)

    with pytest.raises(NodeError, match=problem) as refused:
        look(tmp_path)

    assert refused.value.next_step.startswith("sparkops models list")


def test_a_directory_without_safetensors_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "q").mkdir()
    (tmp_path / "q/config.json").write_text("{}")

    with pytest.raises(NodeError, match="safetensors files not found"):
        look(tmp_path)


def test_a_lock_keeps_it_in_short(tmp_path: Path) -> None:
    checkpoint(tmp_path, {**CONFIG, "vision_config": {"depth": 27}, "quantization_config": {"ignore": ["x"] * 999}})
    description = look(tmp_path)
    assert description is not None

    locked = to_lock(description, "org/q", "c0ffee")
    shortened = of_lock(locked, "org/q", None, "q.lock")

    assert locked.config == {
        "text_config": {"num_hidden_layers": 2, "layer_types": ["a", "b"]},
        "vision_config": {},
        "quantization_config": {},
    }
    assert shortened == Description(locked.config, description.tensors, description.largest_bytes, "q.lock")


def test_what_a_quantization_says_about_the_cache_is_kept() -> None:
    config = {"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8", "exclude_modules": ["x"]}}

    kept_part = {"quantization": {"kv_cache_quant_algo": "FP8"}}
    assert short({"quantization_config": config}) == {"quantization_config": kept_part}


@pytest.mark.parametrize(
    ("model", "revision", "counts"),
    [("org/q", None, True), ("org/q", "c0ffee", True), ("org/q", "decade", False), ("org/other", None, False)],
)
def test_a_lock_of_another_model_or_revision_counts_for_nothing(model: str, revision: str | None, counts: bool) -> None:
    locked = Described(model="org/q", commit="c0ffee", config={}, tensors={}, largest_bytes=0)

    assert (of_lock(locked, model, revision, "q.lock") is not None) is counts
    assert of_lock(None, model, revision, "q.lock") is None


def test_anything_else_is_no_answer() -> None:
    with pytest.raises(ValueError, match="Expecting value"):
        description.parse("", "n1")
