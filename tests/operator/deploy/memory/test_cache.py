"""Pages, groups and blocks as vLLM 0.23.0 makes them. Whole logs are compared in test_table.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.engines.vllm.memory.cache import Serving, layout, state_bytes, token_bytes
from sparkops.engines.vllm.memory.shape import Attention, Recurrent, parse
from tests.operator.deploy.memory.configs import GPT_OSS, MID, QWEN_35B, QWEN_122B, TINY
from tests.operator.deploy.memory.test_shape import GEMMA, MLA, NEMOTRON

SERVING = Serving(window=131072, batched_tokens=8192)
SHAPE = parse(MID)


@pytest.mark.parametrize(
    ("dtype", "per_head"),
    [
        ("auto", 512),
        ("bfloat16", 512),
        ("fp8", 256),
        ("fp8_e4m3", 256),
        ("nvfp4", 144),
        ("fp8_per_token_head", 264),
        ("turboquant_k3v4_nc", 118),
        ("turboquant_k8v4", 196),
    ],
)
def test_bytes_of_a_token_by_dtype(dtype: str, per_head: int) -> None:
    assert token_bytes(Attention(8, 256), SHAPE, replace(SERVING, dtype=dtype)) == 8 * per_head


def test_the_checkpoint_may_choose_the_dtype() -> None:
    fp8 = replace(SHAPE, cache_dtype="fp8")

    assert token_bytes(Attention(8, 256), fp8, SERVING) == 2048
    assert token_bytes(Attention(8, 256), fp8, replace(SERVING, dtype="bfloat16")) == 4096


@pytest.mark.parametrize("dtype", ["int3", "turboquant_x"])
def test_an_unknown_dtype_is_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match=r"kv-cache-dtype: .* unknown, expected one of"):
        token_bytes(Attention(8, 256), SHAPE, replace(SERVING, dtype=dtype))


@pytest.mark.parametrize(("ranks", "heads"), [(1, 2), (2, 1), (4, 1)])
def test_ranks_share_kv_heads_and_repeat_the_last_one(ranks: int, heads: int) -> None:
    assert token_bytes(Attention(2, 512), SHAPE, replace(SERVING, ranks=ranks)) == heads * 1024


def test_every_rank_holds_a_latent_vector_whole() -> None:
    kv_layout = layout(parse(MLA), replace(SERVING, ranks=2))

    assert (kv_layout.page_bytes, kv_layout.layers, kv_layout.groups) == (16 * 576 * 2, 28, 1)


def test_a_state_has_a_convolution_that_draft_tokens_widen() -> None:
    state = Recurrent(channels=12288, kernel=4, elements=1048576, dtype="float32")

    assert state_bytes(state, SERVING) == 12288 * 3 * 2 + 1048576 * 4
    assert state_bytes(state, replace(SERVING, draft_tokens=2)) == 12288 * 5 * 2 + 1048576 * 4
    assert state_bytes(state, replace(SERVING, ranks=2)) == (12288 * 3 * 2 + 1048576 * 4) // 2
    assert state_bytes(state, replace(SERVING, state_dtype="bfloat16")) == 12288 * 3 * 2 + 1048576 * 2


def test_blocks_grow_until_a_page_holds_a_state() -> None:
    """A log of vLLM 0.24.0 with Qwen3.6-35B: noonghunna/club-3090#612."""
    kv_layout = layout(parse(QWEN_35B), replace(SERVING, dtype="fp8", prefix_caching=True))

    assert (kv_layout.block, kv_layout.page_bytes, kv_layout.groups, kv_layout.layers) == (2096, 2146304, 4, 10)
    assert kv_layout.requests(5.98) == pytest.approx(4.33, abs=0.005)
    assert kv_layout.tokens(5.98) == 567978


@pytest.mark.parametrize(("caching", "drafts", "states"), [(False, 0, 1), (True, 0, 2), (False, 2, 3), (True, 2, 4)])
def test_a_request_holds_few_states_whatever_its_length(caching: bool, drafts: int, states: int) -> None:
    kv_layout = layout(parse(QWEN_122B), replace(SERVING, prefix_caching=caching, draft_tokens=drafts))

    assert kv_layout.request_blocks == -(-131072 // kv_layout.block) + 3 * states
    assert kv_layout.layers == (13 if drafts else 12)


def test_windows_keep_what_they_see_and_one_batch() -> None:
    kv_layout = layout(parse(GPT_OSS), SERVING)
    whole = layout(parse(GPT_OSS), replace(SERVING, slides=False))

    assert (kv_layout.layers, kv_layout.groups) == (18, 2)
    assert kv_layout.request_blocks == 131072 // 16 + (-(-(127 + 8192) // 16) + 1)
    assert (whole.layers, whole.groups, whole.request_blocks) == (36, 1, 131072 // 16)


def test_a_short_context_bounds_a_window() -> None:
    assert layout(parse(GPT_OSS), replace(SERVING, window=64)).request_blocks == 4 + 5


def test_pages_of_layers_that_differ_are_made_equal() -> None:
    kv_layout = layout(parse({**GEMMA, "num_global_key_value_heads": 2}), SERVING)

    assert (kv_layout.page_bytes, kv_layout.groups, kv_layout.layers) == (16 * 8 * 512 * 2, 2, 1)
    assert kv_layout.request_blocks == 131072 // 32 + (-(-(1023 + 8192) // 16) + 1)


def test_pages_that_cannot_be_made_equal_are_refused() -> None:
    odd = {**GEMMA, "global_head_dim": 384}

    with pytest.raises(ValueError, match="cannot make the pages of these layers equal"):
        layout(parse(odd), SERVING)


def test_mamba_caches_a_state_for_every_block_of_a_prefix() -> None:
    kv_layout = layout(parse(NEMOTRON), replace(SERVING, prefix_caching=True))

    assert kv_layout.block % 128 == 0
    assert kv_layout.request_blocks == 2 * -(-131072 // kv_layout.block)


def test_a_cpu_has_larger_blocks() -> None:
    kv_layout = layout(parse(TINY), Serving(1024, 2048, block=128))

    assert (kv_layout.page_bytes, kv_layout.blocks(1.0), kv_layout.requests(1.0)) == (128 * 256, 16384, 2048.0)


def test_no_memory_is_no_block() -> None:
    assert layout(SHAPE, SERVING).blocks(-1.02) == 0
