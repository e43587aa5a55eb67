"""The flags of `vllm serve`, and the values of those that take one of a list, in vLLM 0.23.0.

Read from its wheel: vllm/engine/arg_utils.py, entrypoints/openai/cli_args.py, entrypoints/cli/, config/,
model_executor/, tool_parsers/, reasoning/ and v1/attention/backends/registry.py. The parser of its build for CPUs has
the same flags.
"""

from __future__ import annotations

# ruff: noqa: SIM905 - lists of 262 words read better as text
from collections.abc import Mapping

RELEASE = "0.23.0"
FLAGS = frozenset(
    """
    additional-config aggregate-engine-logging all2all-backend allow-credentials allow-deprecated-quantization
    allowed-headers allowed-local-media-path allowed-media-domains allowed-methods allowed-origins api-key
    api-server-count async-scheduling attention-backend attention-config block-size calculate-kv-scales
    chat-template chat-template-content-format code-revision collect-detailed-traces compilation-config config
    config-format convert cp-kv-cache-interleave-size cpu-distributed-timeout-seconds cpu-offload-gb
    cpu-offload-params cudagraph-capture-sizes cudagraph-metrics data-parallel-address data-parallel-backend
    data-parallel-external-lb data-parallel-hybrid-lb data-parallel-multi-port-external-lb data-parallel-rank
    data-parallel-rpc-port data-parallel-size data-parallel-size-local data-parallel-start-rank
    data-parallel-supervisor-port dbo-decode-token-threshold dbo-prefill-token-threshold dcp-comm-backend
    dcp-kv-cache-interleave-size decode-context-parallel-size default-chat-template-kwargs default-mm-loras
    disable-access-log-for-endpoints disable-cascade-attn disable-chunked-mm-input disable-custom-all-reduce
    disable-fastapi-docs disable-hybrid-kv-cache-manager disable-log-stats disable-nccl-for-dp-synchronization
    disable-sliding-window disable-uvicorn-access-log distributed-executor-backend distributed-timeout-seconds
    download-dir dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s dtype ec-transfer-config enable-auto-tool-choice enable-chunked-prefill
    enable-cumem-allocator enable-dbo enable-elastic-ep enable-ep-weight-filter enable-eplb
    enable-expert-parallel enable-flash-late-interaction enable-flashinfer-autotune enable-force-include-usage
    enable-layerwise-nvtx-tracing enable-log-deltas enable-log-outputs enable-log-requests
    enable-logging-iteration-details enable-lora enable-mamba-cache-stochastic-rounding enable-mfu-metrics
    enable-mixed-moe-lora-format enable-mm-embeds enable-offline-docs enable-prefix-caching enable-prompt-embeds
    enable-prompt-tokens-details enable-request-id-headers enable-return-routed-experts
    enable-server-load-tracking enable-sleep-mode enable-ssl-refresh enable-tokenizer-info-endpoint
    enable-tower-connector-lora enforce-eager eplb-config exclude-tools-when-tool-choice-none
    expert-placement-strategy fail-on-environ-validation fingerprint-mode fingerprint-value fully-sharded-loras
    gdn-prefill-backend generation-config gpu-memory-utilization grpc h11-max-header-count
    h11-max-incomplete-event-size headless hf-config-path hf-overrides hf-token host ignore-patterns
    interleave-mm-strings io-processor-plugin ir-op-priority kernel-config kv-cache-dtype
    kv-cache-dtype-skip-layers kv-cache-memory-bytes kv-cache-metrics kv-cache-metrics-sample kv-events-config
    kv-offloading-backend kv-offloading-size kv-sharing-fast-prefill kv-transfer-config language-model-only
    limit-mm-per-prompt linear-backend load-format log-config-file log-error-stack logits-processors
    logprobs-mode long-prefill-token-threshold lora-dtype lora-modules lora-target-modules mamba-backend
    mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-cache-philox-rounds mamba-ssm-cache-dtype
    master-addr master-port max-cpu-loras max-cudagraph-capture-size max-log-len max-logprobs
    max-long-partial-prefills max-lora-rank max-loras max-model-len max-num-batched-tokens
    max-num-partial-prefills max-num-seqs max-parallel-loading-workers media-io-kwargs middleware
    mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-fp8-scale-path mm-encoder-fp8-scale-save-margin
    mm-encoder-fp8-scale-save-path mm-encoder-only mm-encoder-tp-mode mm-processor-cache-gb
    mm-processor-cache-type mm-processor-kwargs mm-shm-cache-max-object-size-mb mm-tensor-ipc model model-impl
    model-loader-extra-config moe-backend nnodes node-rank num-gpu-blocks-override numa-bind numa-bind-cpus
    numa-bind-nodes offload-backend offload-group-size offload-num-in-group offload-params offload-prefetch-step
    optimization-level otlp-traces-endpoint override-attention-dtype override-generation-config performance-mode
    pipeline-parallel-size pooler-config port prefill-context-parallel-size prefix-caching-hash-algo
    profiler-config pt-load-map-location quantization quantization-config ray-workers-use-nsight
    reasoning-config reasoning-parser reasoning-parser-plugin renderer-num-workers response-role
    return-tokens-as-token-ids revision root-path runner safetensors-load-strategy
    safetensors-prefetch-block-size safetensors-prefetch-num-threads scheduler-cls scheduler-reserve-full-isl
    scheduling-policy seed served-model-name show-hidden-metrics-for-version shutdown-timeout skip-mm-profiling
    skip-tokenizer-init spec-method spec-model spec-tokens specialize-active-lora speculative-config
    ssl-ca-certs ssl-cert-reqs ssl-certfile ssl-ciphers ssl-keyfile stream-interval structured-outputs-config
    tensor-parallel-size tokenizer tokenizer-mode tokenizer-revision tokens-only tool-call-parser
    tool-parser-plugin tool-server trust-remote-code trust-request-chat-template ubatch-size uds use-fp64-gumbel
    use-tqdm-on-load uvicorn-log-level video-pruning-rate weight-transfer-config worker-cls
    worker-extension-cls
    """.split()
)
VALUES = {
    "attention-backend": """
        AUTO FLASH_ATTN FLASH_ATTN_DIFFKV TRITON_ATTN ROCM_ATTN ROCM_AITER_MLA ROCM_AITER_TRITON_MLA ROCM_AITER_FA
        ROCM_AITER_MLA_SPARSE XPU_MLA_SPARSE TORCH_SDPA FLASHINFER FLASHINFER_MLA TOKENSPEED_MLA
        FLASHINFER_MLA_SPARSE TRITON_MLA CUTLASS_MLA FLASHMLA FLASHMLA_SPARSE FLASHMLA_SPARSE_DSV4
        FLASHINFER_MLA_SPARSE_DSV4 ROCM_FLASHMLA_SPARSE_DSV4 FLASH_ATTN_MLA NO_ATTENTION FLEX_ATTENTION
        ROCM_AITER_UNIFIED_ATTN CPU_ATTN TURBOQUANT
    """,
    "kv-cache-dtype": """
        auto float16 bfloat16 fp8 fp8_e4m3 fp8_e5m2 fp8_inc fp8_ds_mla turboquant_k8v4 turboquant_4bit_nc
        turboquant_k3v4_nc turboquant_3bit_nc int8_per_token_head fp8_per_token_head nvfp4
    """,
    "linear-backend": """
        auto cutlass flashinfer_cutlass flashinfer_trtllm flashinfer_cudnn marlin triton deep_gemm torch aiter
        machete fbgemm conch exllama emulation
    """,
    "load-format": """
        auto hf bitsandbytes dummy fastsafetensors gguf instanttensor mistral modelexpress npcache pt
        runai_streamer runai_streamer_sharded safetensors sharded_state tensorizer
    """,
    "moe-backend": """
        auto triton deep_gemm deep_gemm_mega_moe cutlass flashinfer_trtllm flashinfer_cutlass flashinfer_cutedsl
        flashinfer_b12x marlin humming triton_unfused aiter emulation
    """,
    "optimization-level": "0 1 2 3",
    "quantization": """
        awq fp8 fbgemm_fp8 fp_quant modelopt modelopt_fp4 modelopt_mxfp8 modelopt_mixed gguf auto_gptq gptq
        gptq_marlin awq_marlin humming compressed-tensors bitsandbytes experts_int8 quark moe_wna16 torchao inc
        mxfp4 gpt_oss_mxfp4 deepseek_v4_fp8 online fp8_per_tensor fp8_per_block int8_per_channel_weight_only
        mxfp8
    """,
    "reasoning-parser": """
        deepseek_r1 deepseek_v3 deepseek_v4 poolside_v1 cohere_command3 cohere_command4 ernie45 gemma4 glm45
        openai_gptoss granite holo2 hunyuan_a13b hy_v3 kimi_k2 mimo minimax_m2 minimax_m2_append_think mistral
        nemotron_v3 olmo3 qwen3 seed_oss step3 step3p5
    """,
    "spec-method": """
        ngram medusa mlp_speculator draft_model suffix custom_class eagle eagle3 extract_hidden_states
        deepseek_mtp mimo_mtp mimo_v2_mtp glm4_moe_mtp glm4_moe_lite_mtp glm_ocr_mtp ernie_mtp nemotron_h_mtp
        exaone_moe_mtp exaone4_5_mtp qwen3_next_mtp qwen3_5_mtp longcat_flash_mtp mtp pangu_ultra_moe_mtp
        step3p5_mtp hy_v3_mtp gemma4_mtp dflash ngram_gpu
    """,
    "tokenizer-mode": "auto hf slow mistral deepseek_v32 deepseek_v4",
    "tool-call-parser": """
        deepseek_v3 deepseek_v31 deepseek_v32 deepseek_v4 cohere_command3 cohere_command4 ernie45 glm45 glm47
        granite-20b-fc granite granite4 hermes poolside_v1 hunyuan_a13b hy_v3 internlm jamba lfm2 kimi_k2
        llama3_json llama4_json llama4_pythonic longcat mimo minimax_m2 minimax minicpm5 mistral olmo3 openai
        phi4_mini_json pythonic qwen3_coder qwen3_xml seed_oss step3 step3p5 xlam gigachat3 functiongemma gemma4
        apertus
    """,
}
CHOICES: Mapping[str, frozenset[str]] = {flag: frozenset(values.split()) for flag, values in VALUES.items()}
