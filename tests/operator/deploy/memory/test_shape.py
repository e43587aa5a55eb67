"""config.json becomes layers; what has no rule is refused with its field."""

from __future__ import annotations

from typing import Any

import pytest

from sparkops.engines.vllm.memory.shape import Attention, Recurrent, parse
from sparkops.operator.build.weights.description import short
from tests.operator.deploy.memory.configs import GPT_OSS, MID, QWEN_122B

MLA = {**MID, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_nextn_predict_layers": 1}
GEMMA = {
    **MID,
    "num_hidden_layers": 4,
    "sliding_window_pattern": 2,
    "sliding_window": 1024,
    "head_dim": 256,
    "global_head_dim": 512,
    "num_global_key_value_heads": 4,
    "num_kv_shared_layers": 2,
}
NEMOTRON = {
    **MID,
    "num_hidden_layers": 4,
    "hybrid_override_pattern": "ME*-",
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "chunk_size": 128,
}


def test_a_hybrid_of_attention_and_gdn() -> None:
    shape = parse(QWEN_122B)

    state = Recurrent(channels=12288, kernel=4, elements=1048576, dtype="float32")
    assert shape.layers == (state, state, state, Attention(2, 512)) * 12
    assert shape.drafts == (Attention(2, 512),)
    assert (shape.hidden, shape.intermediate, shape.experts_per_token, shape.vision) == (3072, 1024, 8, True)


def test_sliding_windows_alternate() -> None:
    assert parse(GPT_OSS).layers == (Attention(8, 128, 128), Attention(8, 128)) * 18


def test_mla_keeps_one_latent_vector() -> None:
    shape = parse(MLA)

    assert set(shape.layers) == {Attention(1, 576, latent=True)}
    assert shape.drafts == (Attention(1, 576, latent=True),)


def test_layers_without_a_window_may_have_other_heads_and_the_last_ones_share_a_cache() -> None:
    assert parse(GEMMA).layers == (Attention(8, 512, 1024), Attention(4, 1024))


def test_mamba_layers_stand_in_a_pattern() -> None:
    state = Recurrent(channels=4096 + 2 * 8 * 128, kernel=4, elements=4096 * 128, dtype="float32", chunk=128)

    assert parse(NEMOTRON).layers == (state, Attention(8, 256))


@pytest.mark.parametrize(
    ("quantization", "dtype"),
    [
        ({}, "auto"),
        ({"quant_method": "modelopt", "quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8"),
        ({"quant_method": "compressed-tensors", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"),
        ({"kv_cache_scheme": None}, "auto"),
    ],
)
def test_a_quantization_may_name_the_dtype_of_the_cache(quantization: dict[str, Any], dtype: str) -> None:
    assert parse({**MID, "quantization_config": quantization}).cache_dtype == dtype


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"num_hidden_layers": None}, "config.json: num_hidden_layers: missing, expected a whole number"),
        ({"hidden_size": "2048"}, "config.json: hidden_size: expected a whole number, got '2048'"),
        ({"layer_types": ["full_attention"]}, "config.json: layer_types: 1 layers, expected num_hidden_layers 28"),
        ({"layer_types": ["conv"] * 28}, "config.json: layer_types: 'conv' is not supported"),
        ({"compress_ratios": [4]}, "config.json: compress_ratios: not supported"),
        ({"layer_types": ["sliding_attention"] * 28}, "config.json: sliding_window: missing, expected a whole number"),
    ],
)
def test_what_has_no_rule_is_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("(", r"\(")):
        parse({**MID, **change})


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match="no attention layer"):
        parse({**NEMOTRON, "hybrid_override_pattern": "MMMM"})


GEMMA_3_4B = {
    "num_hidden_layers": 34,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
}
LINEAR = {"rope_type": "linear", "factor": 8.0}


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_scaling": LINEAR, "rope_local_base_freq": 10000.0},
        {"rope_parameters": {"full_attention": LINEAR, "sliding_attention": {"rope_type": "default"}}},
    ],
    ids=["Transformers 4", "Transformers 5"],
)
def test_gemma_3_has_a_rope_table_for_each_kind_of_attention(rope: dict[str, Any]) -> None:
    """0.56 GiB that no checkpoint has: 7 % of the 4B model's weights."""
    assert parse({**GEMMA_3_4B, **rope}).rope_elements == 256 * 131072 * (8 + 1)


@pytest.mark.parametrize(
    ("rope", "rows"),
    [
        ({}, 4096),
        ({"rope_scaling": None}, 4096),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 4 * 4096),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 4096),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 1024}}, 32 * 1024),
        ({"rope_parameters": {"rope_type": "default", "mrope_section": [11, 11, 10]}}, 4 * 4096),
        ({"partial_rotary_factor": 0.25}, 1024),
    ],
)
def test_a_rope_table_has_a_row_for_each_position_of_the_scaled_context(rope: dict[str, Any], rows: int) -> None:
    assert parse({**PLAIN, **rope}).rope_elements == rows * 64


def test_a_lock_keeps_what_decides_about_rope_tables_and_the_model_runner() -> None:
    config = {**GEMMA_3_4B, "rope_scaling": LINEAR, "rope_local_base_freq": 1e4, "architectures": ["Gemma3ForCausalLM"]}

    assert parse(short(config)) == parse(config)
    assert parse(short({**PLAIN, "partial_rotary_factor": 0.25})).rope_elements == 1024 * 64


PLAIN = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 64,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "vocab_size": 100,
    "max_position_embeddings": 4096,
}
