"""What `vllm serve` of 0.32.0 accepts beside what vllm_023.py has, and what it no longer accepts.

Read from its wheel: vllm/engine/arg_utils.py, entrypoints/launchers/cli_args.py, config/, model_executor/,
tool_parsers/, reasoning/ and v1/attention/backends/registry.py.
"""

from __future__ import annotations

# ruff: noqa: SIM905 - lists of words read better as text
from collections.abc import Mapping

from sparkops.operator.convert import vllm_023

RELEASE = "0.32.0"
ADDED = frozenset(
    """
    anthropic-disabled-thinking-effort aux-output-config cohere-format cohere-is-reasoning-model
    custom-histogram-buckets dcp-q-replicate device-ids device-memory-utilization diffusion-config dp-sync-interval
    ec-manager-config elastic-ep-max-dp-size enable-batch-sharded-sampling enable-fault-tolerance enable-hc-sp
    enable-mamba-shared-prefix-checkpoint enable-moe-shared-loras enable-nccl-comm-suspend
    enable-per-request-metrics enable-scale-out enable-shm-tensor-arena enable-trace-replay engram-config
    fault-tolerance-config grpc-port jit-monitor-mode jit-monitor-verbose kda-decode-backend kda-prefill-backend
    log-level logging-config long-prefill-token-threshold-adaptive mamba-ssu-algorithm max-lora-cls-labels
    max-num-active-seqs max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens mm-device-do-normalize
    mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-device model-class-overrides
    per-request-spec-decode-metrics prefill-schedule-interval prefix-cache-retention-interval prefix-match-unit
    replayssm-buffer-len return-sampling-mask sleep-mode-offload-cudagraph sleep-preserve-parameter-names
    sparse-indexer-topk-backend sse-keep-alive-interval swa-bounded-replay tool-strict-level trust-request-mm-kwargs
    use-replayssm video-pruning-method watermark watermark-config
    """.split()
)
REMOVED = frozenset(
    "calculate-kv-scales max-long-partial-prefills max-num-partial-prefills override-attention-dtype".split()
)
FLAGS = (vllm_023.FLAGS | ADDED) - REMOVED
ADDED_VALUES = {
    "attention-backend": """
        AMX_MLA B12X CPU_MLA CUTLASS_MSA FLASHINFER_MLA_SPARSE_DSV41 FLASHINFER_MLA_SPARSE_SM120
        FLASHINFER_MLA_SPARSE_SM90 FLASHMLA_MEGA_ATTN_DSV41 FLASHMLA_SPARSE_DSV41 FLASH_ATTN_MLA_SPARSE HPC_ATTN
        MINIMAX_M3_SPARSE ROCM_SEGMENTED_ATTN TRITON_ATTN_DIFFKV TRITON_FLASHINFER TRITON_FLASH_ATTN TRITON_MSA
        ULTRAQUANT
    """,
    "kv-cache-dtype": "int4_per_token_head nvfp4_4over6 nvfp4_ds_mla ultraquant_4bit",
    "linear-backend": "b12x flashinfer_b12x flashinfer_cutedsl humming xpu xpu_woq",
    "load-format": "ipc_cache",
    "moe-backend": """
        aiter_mega_moe aiter_triton_mxfp4_bf16 b12x batched_triton flashinfer_moe_ep_cutedsl
        flashinfer_moe_ep_mega_deep_gemm flydsl hpc rdna3
    """,
    "quantization": "auto_awq fp8_per_channel nvfp4_per_token",
    "reasoning-parser": """
        deepseek_v41 glm47 granite_thinking_parser hf hy_v4 inkling k2_horizon kimi_k3 ling3 minicpmv minimax_m3
        muse_glimmer plamo3
    """,
    "spec-method": """
        bailing_hybrid_mtp bailing_hybrid_v3_mtp dots3_note_mtp dspark glm5_next_mtp hy_v4_mtp inkling_mtp
        kimi_k3_mtp minimax_m3_mtp qwen4_exp_mtp
    """,
    "tokenizer-mode": "cohere inkling kimi_k3",
    "tool-call-parser": """
        deepseek_v41 dots hf hy_v4 inkling k2_horizon kimi_k3 ling3 minimax_m3 muse_glimmer plamo3 qwen3_json
    """,
}
REMOVED_VALUES = {
    "load-format": "bitsandbytes gguf",
    "quantization": "bitsandbytes gguf",
    "tokenizer-mode": "slow",
    "tool-call-parser": "minimax",
}
CHOICES: Mapping[str, frozenset[str]] = {
    flag: frozenset((*values, *ADDED_VALUES.get(flag, "").split())) - {*REMOVED_VALUES.get(flag, "").split()}
    for flag, values in vllm_023.CHOICES.items()
}
