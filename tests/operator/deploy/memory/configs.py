"""Values of published config.json files that decide about memory, each with its source. Nothing here is a guess.

Only keys that sparkops reads, and the widths that give the size of each tensor.
"""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]

QWEN35: Config = {
    "full_attention_interval": 4,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_value_head_dim": 128,
    "mamba_ssm_dtype": "float32",
    "max_position_embeddings": 262144,
    "mtp_num_hidden_layers": 1,
    "vocab_size": 248320,
    "dtype": "bfloat16",
}
"""What the models of Qwen3.5 and Qwen3.6 share: config.json of Qwen3.6-35B-A3B and Qwen3.6-27B, as quoted in public
converters (dgpp `release_config`; tools/convert/qwen3_6 `_TEXT_CONFIG`)."""

QWEN_122B: Config = {
    "text_config": {
        **QWEN35,
        "hidden_size": 3072,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 64,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1024,
        "shared_expert_intermediate_size": 1024,
    },
    "vision_config": {},
}
"""Qwen3.5-122B-A10B: the dimensions in a public inference test (`run_qwen3_5_moe_122B`); layers, heads, width and
experts also on docs.vultr.com/models/alibaba-qwen-35/qwen3.5-122b-a10b, 36 GDN layers of 48 in the post of albond."""

QWEN_35B: Config = {
    "text_config": {
        **QWEN35,
        "hidden_size": 2048,
        "num_hidden_layers": 40,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "linear_num_value_heads": 32,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
    "vision_config": {},
}
"""Qwen3.6-35B-A3B: THUDM/slime scripts/models/qwen36-35B-A3B.sh, and config.json as quoted by dgpp."""

QWEN_27B: Config = {
    "text_config": {
        **QWEN35,
        "hidden_size": 5120,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "linear_num_value_heads": 48,
        "intermediate_size": 17408,
    },
    "vision_config": {},
}
"""Qwen3.6-27B: `_TEXT_CONFIG` of a public converter for it (tools/convert/qwen3_6)."""

QWEN_235B: Config = {
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "dtype": "bfloat16",
}
"""Qwen3-235B-A22B: scripts/models/qwen3-235B-A22B.sh of slime; 40960 as in Qwen3-30B-A3B."""

QWEN_30B: Config = {
    **QWEN_235B,
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "moe_intermediate_size": 768,
}
"""Qwen3-30B-A3B: scripts/models/qwen3-30B-A3B.sh of slime."""

MINIMAX: Config = {
    "hidden_size": 3072,
    "num_hidden_layers": 62,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts_per_tok": 8,
    "intermediate_size": 1536,
    "vocab_size": 200064,
    "max_position_embeddings": 196608,
    "dtype": "bfloat16",
}
"""MiniMax-M2: MiniMaxM2Config in ModelCloud/GPTQModel gptqmodel/hf_minimax_m2; 196608 from the recipe's own log."""

GPT_OSS: Config = {
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 18,
    "sliding_window": 128,
    "vocab_size": 201088,
    "max_position_embeddings": 131072,
    "dtype": "bfloat16",
}
"""gpt-oss-120b: the defaults of GptOssConfig in Transformers are this model; its layers alternate."""

MID: Config = {
    "architectures": ["Qwen3ForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 64,
    "max_position_embeddings": 262144,
    "dtype": "bfloat16",
}
"""The model of 1.4B parameters that this project trained for its runs on an H100. Its vocabulary was not recorded; it
is some dozens of words."""

TINY: Config = {
    **MID,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
"""The tiny Qwen3 of this project's tests: templates/demo/tiny_model.py."""
