"""Import of recipes in the format of vllm-project/recipes: the variant for a DGX Spark, layer by layer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.errors import ConfigError
from sparkops.operator.convert.conversion import IMPORTED, Choices, Conversion
from tests.operator.convert import originals

RECIPE = """meta:
  title: Model
  description: A model
  tasks: [text]
  hardware: {dgx_spark_gb10: verified, h200: verified}
model:
  model_id: a/Model
  min_vllm_version: "0.24.0"
  docker_image: vllm/vllm-openai:v0.24.0
  base_args: ["--max-num-seqs", "4", "--kv-cache-dtype", "auto"]
  base_env: {NCCL_DEBUG: INFO}
dependencies:
  - command: pip install extra
  - command: hf download a/Model
    install_modes: [pip, docker]
features:
  tools:
    args: ["--enable-auto-tool-choice", "--tool-call-parser", "hermes"]
  draft:
    default_mode: mtp
    modes:
      mtp: {args: ["--speculative-config", '{"method":"mtp","num_speculative_tokens":1}'], variants: [default]}
      ngram:
        args: ["--speculative-config", '{"method":"ngram","num_speculative_tokens":2}']
        hardware_overrides:
          dgx_spark_gb10:
            args: ["--speculative-config", '{"method":"ngram","num_speculative_tokens":3}']
opt_in_features: [draft]
variants:
  default: {precision: bf16, vram_minimum_gb: 200}
  small:
    model_id: a/Model-NVFP4
    precision: nvfp4
    vram_minimum_gb: 20
    default_modes: {draft: ngram}
    extra_args: ["--kv-cache-dtype", "fp8"]
    hardware_overrides:
      dgx_spark_gb10:
        docker_image: theirs/spark:latest
        extra_args: ["--gpu-memory-utilization", "0.8"]
        extra_env: {NCCL_DEBUG: WARN, NCCL_SOCKET_IFNAME: $IFACE_NAME}
      b200:
        extra_args: ["--max-num-seqs", "512"]
  huge: {precision: bf16, vram_minimum_gb: 2100}
  other: {precision: fp8, vram_minimum_gb: 20, supported_hardware: [h200]}
  hopper: {precision: fp8, vram_minimum_gb: 20, precision_hardware: {generation: hopper}}
compatible_strategies: [single_node_tp, multi_node_tp, multi_node_dep]
hardware_overrides:
  blackwell: {extra_args: ["--max-num-batched-tokens", "8192"]}
  hopper: {extra_args: ["--max-num-batched-tokens", "1"]}
strategy_overrides:
  multi_node_tp:
    hardware_overrides:
      blackwell: {extra_args: ["--max-num-batched-tokens", "2048"]}
"""


def of(tmp_path: Path, variant: str, text: str = RECIPE, use: str = "") -> Conversion:
    return originals.of(tmp_path, text, Choices(variant=variant, use=use))


def line(of_text: str) -> int:
    return next(number for number, one in enumerate(RECIPE.splitlines(), 1) if of_text in one)


def test_a_variant_is_imported_with_all_layers_for_a_spark(tmp_path: Path) -> None:
    conversion = of(tmp_path, "small")

    assert conversion.refusals == []
    assert conversion.data["image"] == {"use": "theirs/spark:latest"}
    assert conversion.data["model"] == {"id": "a/Model-NVFP4", "path": "Model-NVFP4"}
    assert conversion.data["serve"] == {
        "args": {
            "max-num-seqs": 4,
            "kv-cache-dtype": "fp8",
            "gpu-memory-utilization": 0.8,
            "max-num-batched-tokens": 8192,
            "enable-auto-tool-choice": True,
            "tool-call-parser": "hermes",
            "speculative-config": {"method": "ngram", "num_speculative_tokens": 3},
        },
        "env": {"NCCL_DEBUG": "WARN"},
    }
    assert conversion.lines["serve", "args", "gpu-memory-utilization"] == line('"0.8"')
    assert conversion.lines["serve", "env", "NCCL_DEBUG"] == line("WARN")


def test_what_a_variant_cannot_have_is_listed_by_line(tmp_path: Path) -> None:
    listed = {part.key: (part.line, part.kind) for part in of(tmp_path, "small").omissions}

    assert listed == {
        "env.NCCL_SOCKET_IFNAME": (line("$IFACE_NAME"), "note"),
        "dependencies[1]": (line("hf download"), "loss"),
        "min_vllm_version": (line("0.24.0"), "note"),
    }


def test_a_variant_for_two_nodes_has_two_ranks_and_the_flags_of_its_strategy(tmp_path: Path) -> None:
    conversion = of(tmp_path, "default")

    assert conversion.data["image"] == {"use": "vllm/vllm-openai:v0.24.0"}
    assert (conversion.data["serve"]["tensor_parallel"], conversion.data["serve"]["executor"]) == (2, "mp")
    assert conversion.data["serve"]["args"]["max-num-batched-tokens"] == 2048
    assert "speculative-config" not in conversion.data["serve"]["args"]
    assert "features.draft" in [part.key for part in conversion.omissions]


def test_a_larger_variant_has_the_fewest_nodes_that_hold_it(tmp_path: Path) -> None:
    conversion = of(tmp_path, "default", RECIPE.replace("vram_minimum_gb: 200", "vram_minimum_gb: 700"))

    assert (conversion.data["serve"]["tensor_parallel"], conversion.data["serve"]["executor"]) == (8, "mp")


def test_another_image_takes_the_place_of_the_original_s(tmp_path: Path) -> None:
    assert of(tmp_path, "small", use="b/c:1").data["image"] == {"use": "b/c:1"}


@pytest.mark.parametrize(("variant", "problem"), [("", "several variants"), ("huge", "no variant huge")])
def test_without_a_known_variant_the_error_lists_those_that_fit(tmp_path: Path, variant: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        of(tmp_path, variant)

    names = "default (bf16, 200 GB, 2 nodes), small (nvfp4, 20 GB, 1 node)"
    assert (
        str(caught.value)
        == f"{tmp_path}/a.yaml:{RECIPE.splitlines().index('variants:') + 1}: variants: {problem}: {names}"
    )
    assert caught.value.next_step.endswith("a.yaml --variant default")


def test_the_only_variant_needs_no_choice(tmp_path: Path) -> None:
    text = RECIPE.replace("vram_minimum_gb: 200", "vram_minimum_gb: 4000")

    assert originals.of(tmp_path, text, IMPORTED).data["model"]["id"] == "a/Model-NVFP4"


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("dgx_spark_gb10: verified, ", "", "meta.hardware: not for a DGX Spark"),
        ("dgx_spark_gb10: verified", "dgx_spark_gb10: unsupported", "meta.hardware: not for a DGX Spark"),
        ("tasks: [text]", "tasks: [omni]", "expected a vLLM runtime: a recipe of vLLM-Omni"),
        ("[single_node_tp, multi_node_tp, multi_node_dep]", "[pd_cluster]", "variants: no variant fits"),
        ('["--kv-cache-dtype", "fp8"]', "fp8", "expected a list of words, got 'fp8'"),
        ("hardware_overrides:\n  blackwell", "features: 5\nignored:\n  blackwell", "expected a mapping"),
    ],
)
def test_what_is_not_for_a_spark_is_refused(tmp_path: Path, before: str, after: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        of(tmp_path, "small", RECIPE.replace(before, after, 1))


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("docker_image: {amd: x/y, nvidia: {cu130: b/c:130}}", "b/c:130"),
        ("docker_image: {amd: x/y}", "vllm/vllm-openai:latest"),
        ("nightly_required: true", "vllm/vllm-openai:nightly"),
    ],
)
def test_the_image_is_that_of_the_builder(tmp_path: Path, image: str, expected: str) -> None:
    text = RECIPE.replace("docker_image: vllm/vllm-openai:v0.24.0", image)

    assert of(tmp_path, "default", text).data["image"] == {"use": expected}


def test_a_template_of_vllm_s_examples_is_a_file_of_the_image(tmp_path: Path) -> None:
    text = RECIPE.replace('"--kv-cache-dtype", "auto"', '"--chat-template", "examples/tools.jinja"')
    serve = of(tmp_path, "small", text).data["serve"]

    assert (serve["args"]["chat-template"], serve["allow"]) == ("examples/tools.jinja", ["chat-template"])


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("compatible_strategies", "1", "compatible_strategies: expected a list of names, got '?1"),
        ("opt_in_features", "{a: b}", "opt_in_features: expected a list of names, got {'a': 'b'}"),
        ("opt_in_features", "[[a]]", "opt_in_features: expected a list of names"),
    ],
)
def test_a_list_of_names_that_is_none_is_refused(tmp_path: Path, key: str, value: str, problem: str) -> None:
    lines = [line for line in RECIPE.splitlines() if not line.startswith(f"{key}:")]

    with pytest.raises(ConfigError, match=problem):
        of(tmp_path, "default", "\n".join([*lines, f"{key}: {value}"]))
