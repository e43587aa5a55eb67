"""Arguments of a recipe, with the defaults of vLLM."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.engines.sizes import WrongValue
from sparkops.engines.vllm.memory.arguments import LONGER, cpu_space_gib, read
from sparkops.engines.vllm.memory.shape import parse
from sparkops.operator.deploy.memory.fit import served
from tests.examples import CUDA, recipe
from tests.operator.deploy.memory.configs import MID, QWEN_122B

SHAPE = parse(QWEN_122B)


def of(vllm: str = "vllm==0.23.0", **args: Any) -> Recipe:
    flags = {name.replace("_", "-"): value for name, value in args.items()}
    return recipe(image={"torch": CUDA, "vllm": vllm}, serve={"args": flags})


@pytest.mark.parametrize(("total_gib", "requests", "tokens"), [(121.7, 1024, 8192), (64.0, 256, 2048)])
def test_defaults_depend_on_the_memory(total_gib: float, requests: int, tokens: int) -> None:
    got = read(served(of()), SHAPE, total_gib)

    assert (got.requests, got.serving.batched_tokens, got.serving.window) == (requests, tokens, 262144)
    assert (got.serving.block, got.serving.dtype, got.graphs, got.loader) == (16, "auto", 512, "auto")


def test_a_cpu_has_other_defaults_and_no_graphs() -> None:
    got = read(served(recipe()), SHAPE, 121.7)

    assert (got.requests, got.serving.batched_tokens, got.serving.block, got.graphs) == (128, 2048, 128, 0)


def test_arguments_of_the_recipe_count() -> None:
    args: dict[str, Any] = {
        "max_model_len": "128k",
        "max_num_seqs": 4,
        "kv_cache_dtype": "fp8",
        "enable_prefix_caching": True,
    }
    got = read(served(of(**args, speculative_config={"method": "mtp", "num_speculative_tokens": 2})), SHAPE, 121.7)

    assert (got.serving.window, got.requests, got.serving.dtype) == (128_000, 4, "fp8")
    assert (got.serving.prefix_caching, got.serving.draft_tokens, got.graphs) == (True, 2, 24)


def test_no_graphs_when_eager() -> None:
    assert read(served(of(enforce_eager=True)), SHAPE, 121.7).graphs == 0


@pytest.mark.parametrize(
    ("vllm", "counted"),
    [("vllm==0.20.2", False), ("vllm==0.21.0", True), ("vllm==0.19.2rc1.dev154", False), ("vllm==1.0.0", True)],
)
def test_graphs_are_in_the_share_from_0_21_on(vllm: str, counted: bool) -> None:
    assert read(served(of(vllm)), SHAPE, 121.7).graphs_counted is counted


@pytest.mark.parametrize(
    ("dtype", "config", "computed"),
    [("auto", "float32", "float16"), ("auto", "bfloat16", "bfloat16"), ("float32", "bfloat16", "float32")],
)
def test_a_checkpoint_of_float32_is_computed_in_16_bits(dtype: str, config: str, computed: str) -> None:
    assert read(served(of(dtype=dtype)), parse({**MID, "dtype": config}), 121.7).serving.model_dtype == computed


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"max_model_len": "auto"}, "serve.args.max-model-len: expected a number above 0, got 'auto'"),
        ({"max_num_seqs": 0}, "serve.args.max-num-seqs: expected a number above 0, got 0"),
        (
            {"speculative_config": {"method": "eagle3", "model": "org/draft", "num_speculative_tokens": 3}},
            "serve.args.speculative-config: org/draft: not supported: the memory of a draft model is not computed",
        ),
        ({"speculative_config": {"method": "dflash"}}, "serve.args.speculative-config: dflash: not supported"),
    ],
)
def test_what_cannot_be_predicted_is_refused_with_its_field(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(served(of(**args)), SHAPE, 121.7)


def test_a_longer_context_than_the_model_s_is_refused_unless_something_extends_it() -> None:
    """vLLM ends at its start; where RoPE is scaled, each release counts in another way."""
    plain, longer = parse({**MID, "max_position_embeddings": 2048}), of(max_model_len="4k")
    with pytest.raises(WrongValue, match=r"serve.args.max-model-len: expected at most the model's 2048 .*; got 4000"):
        read(served(longer), plain, 121.7)

    allowed = longer.model_copy(update={"serve": longer.serve.model_copy(update={"env": {LONGER: "1"}})})
    assert read(served(allowed), plain, 121.7).serving.window == 4000
    assert read(served(of(max_model_len="4k", hf_overrides={"a": 1})), plain, 121.7).serving.window == 4000
    for rope in ({"rope_type": "yarn", "factor": 4.0}, {"full_attention": {"factor": 4.0}}):
        scaled = parse({**MID, "max_position_embeddings": 2048, "rope_scaling": rope})
        assert read(served(longer), scaled, 121.7).serving.window == 4000


@pytest.mark.parametrize("space", ["", "0", "much"])
def test_a_cpu_needs_the_size_of_its_cache(space: str) -> None:
    env = {"VLLM_CPU_KVCACHE_SPACE": space} if space else {}
    with pytest.raises(ValueError, match=r"serve\.env\.VLLM_CPU_KVCACHE_SPACE: expected GiB of KV cache such as 4"):
        cpu_space_gib(served(recipe(serve={"env": env})))
