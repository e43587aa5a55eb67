"""Variants of recipes of spark-vllm-docker and sparkrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.errors import ConfigError
from sparkops.operator.convert.conversion import Choices, Conversion
from tests.operator.convert import originals

BOTH = """recipe_version: '1'
model: a/b
defaults: {tensor_parallel: 2}
command: vllm serve a/b -tp {tensor_parallel}
"""
NAMED = """recipe_version: '2'
model: a/b
defaults: {max_model_len: 100, max_num_seqs: 1}
env: {NCCL_DEBUG: INFO}
command: vllm serve a/b --max-model-len {max_model_len} --max-num-seqs {max_num_seqs}
variants:
  wide:
    description: Many
    max_num_seqs: 8
    env: {NCCL_DEBUG: WARN}
"""


def of(tmp_path: Path, text: str, variant: str) -> Conversion:
    return originals.of(tmp_path, text, Choices(variant=variant))


@pytest.mark.parametrize(("variant", "ranks"), [("", 2), ("cluster", 2), ("solo", 1)])
def test_a_recipe_for_any_number_of_nodes_is_solo_or_a_cluster(tmp_path: Path, variant: str, ranks: int) -> None:
    conversion = of(tmp_path, BOTH, variant)

    assert conversion.refusals == []
    assert conversion.data["serve"].get("tensor_parallel", 1) == ranks


@pytest.mark.parametrize(
    ("text", "variant", "names"),
    [
        (BOTH, "fast", "solo, cluster"),
        (f"{BOTH}cluster_only: true\n", "solo", "cluster"),
        (f"{BOTH}solo_only: true\n", "cluster", "solo"),
        ("model: a/b\n", "cluster", "solo"),
        (NAMED, "", "default, wide"),
        (NAMED, "solo", "default, wide"),
    ],
)
def test_an_unknown_variant_is_an_error_with_the_known_ones(
    tmp_path: Path, text: str, variant: str, names: str
) -> None:
    with pytest.raises(ConfigError, match=f"expected one of: {names}$") as caught:
        of(tmp_path, text, variant)

    assert caught.value.next_step.endswith(f"a.yaml --variant {names.partition(',')[0]}")


def test_a_named_variant_replaces_values_and_variables(tmp_path: Path) -> None:
    conversion = of(tmp_path, NAMED, "wide")

    assert conversion.data["description"] == "Many"
    assert conversion.data["serve"]["args"] == {"max-model-len": 100, "max-num-seqs": 8}
    assert conversion.data["serve"]["env"] == {"NCCL_DEBUG": "WARN"}
    assert of(tmp_path, NAMED, "default").data["serve"]["args"]["max-num-seqs"] == 1


def test_a_variant_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"8: variants\.wide: expected a mapping, got 'x'"):
        of(tmp_path, "model: a/b\n\n\n\n\n\nvariants:\n  wide: x\n", "wide")


@pytest.mark.parametrize("key", ["defaults", "env"])
def test_a_value_of_another_type_is_refused_before_a_variant_is_chosen(tmp_path: Path, key: str) -> None:
    text = f"recipe_version: '2'\nmodel: a/b\nvariants: {{wide: {{x: 1}}}}\n{key}: [a]\n"

    with pytest.raises(ConfigError, match=rf"4: {key}: expected a mapping of names to values, got \['a'\]"):
        of(tmp_path, text, "wide")
