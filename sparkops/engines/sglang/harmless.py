"""Flags and variables of SGLang known to be harmless: all others need `serve.allow`.

The value of a name here is a number, a truth value, one of a list, or text that the engine only compares or prints.
`speculative-draft-model-path` names a directory, of which the engine reads weights.
"""

from __future__ import annotations

# ruff: noqa: SIM905 - lists of hundreds of words read better as text
from collections.abc import Mapping

FLAGS = frozenset(
    """
    abort-on-priority-when-disabled allow-auto-truncate allowed-media-domains asr-max-buffer-seconds
    asr-max-concurrent-sessions attention-backend attention-context-parallel-size attn-cp-size batch-notify-size
    bf16-gemm-backend boundary-reduction bucket-e2e-request-latency bucket-inter-token-latency
    bucket-time-to-first-token c128-page-size chunked-prefill-size constrained-json-disable-any-whitespace
    constrained-json-max-whitespace-cnt constrained-json-whitespace-pattern context-length cp-strategy cpu-offload-gb
    cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-bs-decode cuda-graph-bs-prefill cuda-graph-config
    cuda-graph-max-bs-decode cuda-graph-max-bs-prefill cuda-graph-max-seq-len-prefill cuda-graph-prefill-max-context
    dcp-comm-backend dcp-replicate-q-proj dcp-size decode-attention-backend decode-context-parallel-size
    decode-log-interval deepep-mode default-chat-template-kwargs default-priority-value detokenizer-worker-num device
    disable-attn-tp-gather disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding
    disable-custom-all-reduce disable-decode-cuda-graph disable-fast-image-processor disable-flashinfer-autotune
    disable-flashinfer-cutlass-moe-fp4-allgather disable-hybrid-swa-memory disable-outlines-disk-cache
    disable-overlap-schedule disable-prefill-cuda-graph disable-priority-preemption disable-radix-cache
    disable-shared-experts-fusion disable-tokenizer-batch-decode dist-timeout dllm-fdfo dsa-decode-backend
    dsa-paged-mqa-logits-backend dsa-prefill-backend dsa-topk-backend dsa-triton-union dsv4-attn-backend
    dsv4-prefill-backend dtype dwdp-size dynamic-batch-tokenizer-batch-size dynamic-batch-tokenizer-batch-timeout
    enable-attn-tp-input-scattered enable-broadcast-mm-inputs-process enable-cache-report enable-cp-decode-attn-tp
    enable-cudagraph-gc enable-decoder-swa-bounded-replay enable-deepseek-v4-fp4-indexer enable-dense-mlp-attn-tp
    enable-deterministic-inference enable-dsa-cache-layer-split enable-dsa-fused-indexer enable-dynamic-batch-tokenizer
    enable-dynamic-chunking enable-eplb enable-flashinfer-allreduce-fusion enable-fp32-lm-head
    enable-fused-moe-sum-all-reduce enable-fused-qk-norm-rope enable-hicache enable-hierarchical-cache enable-hisparse
    enable-int8-mamba-checkpoint enable-kv-cache-sharding enable-layernorm-sp enable-layerwise-nvtx-marker
    enable-lean-attention enable-linear-replayssm enable-linear-replayssm-spec enable-lora
    enable-mamba-cache-stochastic-rounding enable-megamoe-for-layernorm-sp enable-metrics-for-all-schedulers
    enable-mixed-chunk enable-mscclpp enable-multi-layer-eagle enable-multimodal enable-nccl-nvls
    enable-nvidia-megakernel enable-p2p-check enable-page-major-kv-layout enable-paged-experts
    enable-precise-embedding-interpolation enable-prefill-cp enable-prefill-delayer enable-prefix-mm-cache
    enable-priority-scheduling enable-quant-communications enable-request-time-stats-logging enable-response-store
    enable-return-aux-hidden-states enable-return-hidden-states enable-return-indexer-topk enable-return-routed-experts
    enable-scattered-sconv enable-session-radix-cache enable-shared-experts-attn-tp enable-single-batch-overlap
    enable-streaming-session enable-strict-thinking enable-symm-mem enable-tf32-matmul enable-tokenizer-batch-encode
    enable-torch-compile enable-torch-compile-debug-mode enable-torch-symm-mem enable-tp-lm-head-all-to-all
    enable-two-batch-overlap enable-unified-memory enable-w4a4-mxfp4-megamoe enable-waterfill
    enforce-disable-flashinfer-allreduce-fusion enforce-shared-experts-fusion ep ep-dispatch-algorithm
    ep-num-redundant-experts ep-size eplb-algorithm eplb-min-rebalancing-utilization-threshold
    eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations expert-parallel-size extra-metric-labels
    flashinfer-allreduce-fusion-backend flashinfer-autotune-skip-ops flashinfer-mla-disable-ragged
    flashinfer-mxfp4-moe-precision fp4-gemm-backend fp8-gemm-backend gc-threshold gc-warning-threshold-secs
    generation-tokens-buckets grammar-backend hf-chat-template-name hicache-host-memory-fraction
    hicache-host-memory-mode hicache-io-backend hicache-mem-layout hicache-ratio hicache-size
    hicache-storage-prefetch-policy hicache-storage-prefetch-retry-max-attempts
    hicache-storage-prefetch-retry-poll-interval hicache-write-policy image-processor-backend
    incremental-streaming-output int8-mamba-ckpt-size is-embedding json-model-override-args kv-cache-dtype
    language-model-only limit-mm-data-per-request linear-attn-backend linear-attn-decode-backend
    linear-attn-prefill-backend linear-attn-verify-backend linear-replayssm-cache-len load-format
    load-snapshot-publish-interval log-level log-level-http log-requests log-requests-format log-requests-level
    lora-backend lora-drain-wait-threshold lora-eviction-policy lora-strict-loading lora-target-modules
    lora-use-virtual-experts mamba-backend mamba-cache-philox-rounds mamba-full-memory-ratio mamba-max-states-per-path
    mamba-radix-cache-strategy mamba-ssm-dtype mamba-track-interval max-loaded-loras max-lora-chunk-size max-lora-rank
    max-loras-per-batch max-mamba-cache-size max-prefill-tokens max-queued-requests max-running-requests
    max-total-tokens media-url-max-file-size-mb mem-fraction-static min-free-slots-delay mm-attention-backend
    mm-enable-dp-encoder mm-feature-transport mm-io-worker-num mm-preprocess-cache-size-mb mm-process-config
    mm-processor-worker-num model-impl model-loader-extra-config moe-a2a-backend moe-data-parallel-size
    moe-dense-tp-size moe-dp-size moe-runner-backend num-continuous-decode-steps numa-node offload-group-size
    offload-mode offload-num-in-group offload-prefetch-step page-size paged-experts-num-resident pre-warm-nccl
    preferred-sampling-params prefill-attention-backend prefill-decode-interval prefill-decode-interval-min-bs
    prefill-delayer-forward-passes-buckets prefill-delayer-max-delay-ms prefill-delayer-max-delay-passes
    prefill-delayer-queue-min-ratio prefill-delayer-token-usage-low-watermark prefill-delayer-wait-seconds-buckets
    prefill-kv-cache-dequant-dtype prefill-max-requests prefill-only-disable-kv-cache
    priority-scheduling-preemption-threshold prompt-tokens-buckets qsa-indexer-dtype quantization radix-eviction-policy
    radix-eviction-policy-config random-seed reasoning-parser retraction-policy return-hidden-states-mode
    return-input-ids return-output-ids sampling-backend sampling-defaults schedule-conservativeness
    schedule-low-priority-values-first schedule-policy scheduler-recv-interval shared-experts-tp-size show-time-cost
    skip-server-warmup skip-tokenizer-init sleep-on-idle soft-watchdog-timeout speculative-accept-threshold-acc
    speculative-accept-threshold-single speculative-adaptive speculative-algorithm speculative-attention-mode
    speculative-dflash-block-size speculative-domino-candidate-pool-size speculative-draft-attention-backend
    speculative-draft-kv-cache-dtype speculative-draft-load-format speculative-draft-model speculative-draft-model-path
    speculative-draft-model-quantization speculative-draft-sink-size speculative-draft-window-size
    speculative-dsa-topk-backend speculative-dspark-align-verify-tokens-to-graph-tier speculative-dspark-block-size
    speculative-eagle-topk speculative-enable-w4a4-mxfp4-megamoe speculative-moe-a2a-backend
    speculative-moe-runner-backend speculative-ngram-capacity speculative-ngram-external-corpus-max-tokens
    speculative-ngram-external-sam-budget speculative-ngram-match-type speculative-ngram-max-bfs-breadth
    speculative-ngram-max-trie-depth speculative-ngram-min-bfs-breadth speculative-num-draft-tokens
    speculative-num-steps speculative-use-block-verification speculative-use-rejection-sampling
    startup-weight-load-mode stream-interval stream-response-default-include-usage strip-thinking-cache
    swa-full-tokens-ratio swa-prefix-tails tbo-token-distribution-threshold tokenizer-backend tokenizer-mode
    tokenizer-worker-num tool-call-parser torch-compile-max-bs triton-attention-num-kv-splits
    triton-attention-reduce-in-fp32 triton-attention-split-tile-size uvicorn-access-log-exclude-prefixes
    watchdog-timeout weight-loader-disable-mmap weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
    weight-loader-prefetch-num-threads weight-version
    """.split()
)
"""From the fields in sglang/srt/arg_groups/fields/ and ServerArgs.add_cli_args of 0.5.23, without roles that sparkops
does not start: disaggregated prefill, encoders, elastic experts, data parallelism, gRPC."""
OLDER_FLAGS = frozenset(
    """
    cuda-graph-bs cuda-graph-max-bs disable-piecewise-cuda-graph mamba-scheduler-strategy
    """.split()
)
"""Of releases that images for GB10 still have: start.sh and README.md of MiaAI-Lab/Qwen3.8-27B-SGLang-DGX-Spark."""
KEYS: Mapping[str, frozenset[str]] = {
    "model-loader-extra-config": frozenset({"enable_multithread_load", "num_threads"}),
}
"""Keys inside JSON values of flags of which other keys name files or addresses."""
VARIABLES = frozenset(
    """
    SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN SGLANG_AUTO_NUMA_BIND SGLANG_BATCH_TOKENIZER_OUTPUTS
    SGLANG_BLACKWELL_OVERLAP_SHARED_EXPERTS_OUTSIDE_SBO SGLANG_CACHE_HIT_RATE_WINDOW_SECONDS
    SGLANG_CHECK_KV_PAGE_INVARIANTS SGLANG_CHUNKED_PREFIX_CACHE_THRESHOLD SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION
    SGLANG_COMPACTION_MAX_PAGES_PER_MOVE SGLANG_CUSTOM_ALL_REDUCE_V2_MAX_SIZE_KB
    SGLANG_DEEPGEMM_MASKED_MEMORY_BUDGET_FRACTION SGLANG_DEEPGEMM_PDL SGLANG_DEEPGEMM_SANITY_CHECK
    SGLANG_DETECT_SLOW_RANK SGLANG_DISABLE_CONSECUTIVE_PREFILL_OVERLAP SGLANG_DISABLE_DRAFT_EXTEND_CUDA_GRAPH
    SGLANG_DISABLE_DSA_INDEXER_FUSION SGLANG_DISABLE_FUSED_MAMBA_SLOT_OPS SGLANG_DISABLE_KDA_PREFILL_GRAPH_EXTEND
    SGLANG_DISABLE_LAZY_COMPACTION SGLANG_DISABLE_LEAN_ATTENTION SGLANG_DISABLE_MSA SGLANG_DISABLE_MSA_V1_Q8KV4
    SGLANG_DISABLE_OUTLINES_DISK_CACHE SGLANG_DSA_FUSE_TOPK SGLANG_DSA_MQA_LOGITS_FREE_MEM_FRACTION
    SGLANG_DSA_PREFILL_DENSE_ATTN_KV_LEN_THRESHOLD SGLANG_DSA_TOPK_BROADCAST SGLANG_DSA_TOPK_FLASHINFER_DETERMINISTIC
    SGLANG_DSPARK_ACCEPT_TAIL_MAX_BS SGLANG_DSPARK_ACCEPT_TAIL_MIN_BS SGLANG_DSPARK_BLOCK_ACCEPT_ONLINE_INTERVAL
    SGLANG_DSPARK_CONFIDENCE_RELAY_LAG_STEPS SGLANG_DSPARK_DEFER_CONTEXT_KV SGLANG_DSPARK_EMBED_IN_GRAPH
    SGLANG_DSPARK_ENABLE_MULTI_STREAM SGLANG_DSPARK_FAST_KERNEL SGLANG_DSPARK_FOLDED_PROPOSAL
    SGLANG_DSPARK_FP32_LM_HEAD SGLANG_DSPARK_FUSED_ACCEPT_TAIL SGLANG_DSPARK_LOG_SPS_PRED_INTERVAL
    SGLANG_DSPARK_NVLINK_VOCAB_GATHER SGLANG_DSPARK_OPT_MARKOV_W2_BF16 SGLANG_DSPARK_STACKED_CTX_KV
    SGLANG_DSPARK_USE_GREEDY_DRAFT SGLANG_DSV4_COMPRESSED_KV_LAYOUT SGLANG_DSV4_DECODER_TAIL_GRAPH_MAX_ROWS
    SGLANG_DSV4_DECODER_TAIL_GRAPH_MIN_PREFILL_TOKENS SGLANG_DSV4_DENSE_MXSCALE SGLANG_DSV4_FP4_DEQUANT
    SGLANG_DSV4_FP4_EXPERTS SGLANG_DSV4_FP4_LOGITS_BUDGET_MB SGLANG_DSV4_FP8_DECODE_SPLIT_CTX
    SGLANG_DSV4_FP8_DECODE_SPLIT_MODEL SGLANG_DSV4_FP8_HCA_PERSIST SGLANG_DSV4_FP8_HCA_PERSIST_MIN_ROWS
    SGLANG_DSV4_KV_LAYOUT SGLANG_DSV4_REASONING_EFFORT SGLANG_DSV4_UNIFIED_KV_FP8 SGLANG_DSV4_USE_BF16_KV_QUANT_SOURCE
    SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR SGLANG_EAGER_INPUT_NO_COPY SGLANG_EMBEDDING_POOL_SIZE_MB
    SGLANG_EMPTY_CACHE_INTERVAL SGLANG_ENABLE_ASYNC_ASSERT SGLANG_ENABLE_BF16_SPLITK_GEMM
    SGLANG_ENABLE_CUDA_GRAPH_DEDUP SGLANG_ENABLE_DETERMINISTIC_INFERENCE SGLANG_ENABLE_DSA_Q8KV8_BORN_FP8_Q
    SGLANG_ENABLE_DSA_Q8KV8_KV_CAT_FUSION SGLANG_ENABLE_DSA_Q8KV8_QPREP_OVERLAP SGLANG_ENABLE_DSA_Q8KV8_TOPK_LENGTH
    SGLANG_ENABLE_EMBED_REPLICATION SGLANG_ENABLE_FAST_INPUT_LOGPROBS SGLANG_ENABLE_FP8_GEMM_CONFIG_TUNE
    SGLANG_ENABLE_GDN_DECODE_FUSED_PROJ_CONV SGLANG_ENABLE_GRAPH_POOL_BORROW SGLANG_ENABLE_GRAPH_POOL_PRECARVE
    SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION SGLANG_ENABLE_JIT_DEEPGEMM SGLANG_ENABLE_LOGPROB_CHUNK
    SGLANG_ENABLE_METADATA_GLUE_GRAPH SGLANG_ENABLE_METRICS_DEVICE_TIMER SGLANG_ENABLE_MOE_DEFERRED_FINALIZE
    SGLANG_ENABLE_MTP_BOUNDARY_KV_FIX SGLANG_ENABLE_NAN_LOGITS_CHECK SGLANG_ENABLE_OVERLAP_PLAN_STREAM
    SGLANG_ENABLE_PCG_DSV2_DUAL_STREAM SGLANG_ENABLE_POST_CAPTURE_KV_SIZING SGLANG_ENABLE_PREFILL_WAR_READ_DONE
    SGLANG_ENABLE_RESPONSE_TEMPLATE_TURN_GRAMMAR SGLANG_ENABLE_SINGLE_CG_DRAFT SGLANG_ENABLE_SPLITKV_VERIFY
    SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE SGLANG_ENABLE_TORCH_COMPILE
    SGLANG_ENABLE_TORCH_INFERENCE_MODE SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK SGLANG_ENABLE_TREE_CACHE_SANITY_CHECK
    SGLANG_ENABLE_WAITING_PREFIX_REFRESH SGLANG_ENABLE_WAR_BARRIER SGLANG_ENABLE_WEIGHT_LOADER_V2
    SGLANG_EXACT_CHUNK_FILL SGLANG_FLASHINFER_AUTOTUNE_CACHE SGLANG_FLASHINFER_AUTOTUNE_EXTEND
    SGLANG_FLASHINFER_CUTEDSL_NVFP4_W4A16 SGLANG_FLASHINFER_DECODE_SPLIT_TILE_SIZE SGLANG_FLASHINFER_MOE_FUSED_FINALIZE
    SGLANG_FLASHINFER_NVFP4_PER_TOKEN_ACTIVATION SGLANG_FLASHINFER_PREFILL_SPLIT_TILE_SIZE SGLANG_FLASHINFER_USE_PAGED
    SGLANG_FLASHINFER_WORKSPACE_SIZE SGLANG_FORCE_COARSE_WAR_BARRIER SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PULL_SIZE_KB
    SGLANG_FORCE_CUSTOM_ALL_REDUCE_V2_PUSH_SIZE_KB SGLANG_FORCE_FP8_MARLIN SGLANG_FORCE_FUSED_OP_BACKEND
    SGLANG_FORCE_LEAN_GRID_CU_MULT SGLANG_FORCE_MXFP8_BLOCK_CONVERT_DENSE SGLANG_FORCE_STREAM_INTERVAL
    SGLANG_FP4_IGNORED_LAYERS SGLANG_FP8_IGNORED_LAYERS SGLANG_FP8_PAGED_MQA_LOGITS_TORCH
    SGLANG_GDN_DECODE_FUSION_LOG_LAYER_HITS SGLANG_GDN_DECODE_FUSION_VERIFY_REAL_TENSORS
    SGLANG_GRAMMAR_MAX_POLL_ITERATIONS SGLANG_GRAMMAR_POLL_INTERVAL SGLANG_GRAPH_BATCH_CAPTURE SGLANG_IMAGE_MAX_PIXELS
    SGLANG_INIT_NEW_TOKEN_RATIO SGLANG_INVARIANT_CHECK SGLANG_JIT_CACHE_KEEP SGLANG_JIT_DEEPGEMM_FAST_WARMUP
    SGLANG_JIT_DEEPGEMM_PRECOMPILE SGLANG_JIT_FORCE_RECOMPILE SGLANG_JIT_LOG_RESOURCE_USAGE
    SGLANG_KDA_PREFILL_GRAPH_MAX_SEQS SGLANG_LAZY_COMPACTION_MAX_MOVES_PER_CALL SGLANG_LOGPROB_CHUNK_SIZE
    SGLANG_LOG_DECODE_GRAPH_KEY SGLANG_LOG_FORWARD_ITERS SGLANG_LOG_LAZY_COMPACTION_STATS
    SGLANG_LOG_LAZY_COMPACTION_STATS_INTERVAL_SEC SGLANG_LOG_MS SGLANG_LOG_REQUEST_EXCEEDED_MS
    SGLANG_LOG_SCHEDULER_STATUS_INTERVAL SGLANG_MAMBA_CONV_DTYPE SGLANG_MAMBA_SSM_DTYPE
    SGLANG_MAX_BATCH_REQS_PER_HTTP_REQ SGLANG_MAX_KV_CHUNK_CAPACITY SGLANG_MAX_NEW_TOKENS_LIMIT SGLANG_MAX_THINK_TOKENS
    SGLANG_MEMORY_SAVER_CUDA_GRAPH SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR SGLANG_MLA_DECODE_TUNE
    SGLANG_MLA_DEDUP_CHUNK_TOKENS SGLANG_MLA_HCA_KV_SPLITS SGLANG_MM_AVOID_RETOKENIZE SGLANG_MM_BUFFER_SIZE_MB
    SGLANG_MM_FEATURE_CACHE_MB SGLANG_MM_ITEM_MEM_POOL_RECYCLE_INTERVAL_SEC SGLANG_MM_PRECOMPUTE_HASH
    SGLANG_MM_SKIP_COMPUTE_HASH SGLANG_MOE_COPY_WEIGHT_VIEWS_BEFORE_H2D SGLANG_MOE_DEFERRED_FINALIZE_MAX_TOKENS
    SGLANG_MOE_NVFP4_DISPATCH SGLANG_MOE_PADDING SGLANG_NATIVE_MOVE_KV_CACHE
    SGLANG_NCCL_ALL_GATHER_IN_OVERLAP_SCHEDULER_SYNC_BATCH SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS SGLANG_NUMA_BIND_V2
    SGLANG_NVFP4_CKPT_FP8_GEMM_IN_ATTN SGLANG_NVFP4_CKPT_FP8_NEXTN_MOE SGLANG_OPT_BEAM_DECODE_GEMV
    SGLANG_OPT_BF16_FP32_GEMM_ALGO SGLANG_OPT_CUDA_GRAPH_FILL_FAST_PATH SGLANG_OPT_DEEPGEMM_HC_PRENORM
    SGLANG_OPT_DSV4_NONPAGED_INDEXER SGLANG_OPT_DSV4_NONPAGED_INDEXER_MIN_QUERY_TOKENS
    SGLANG_OPT_FLASHINFER_DRAFT_HOST_INDPTR SGLANG_OPT_FLASHINFER_VERIFY_HOST_PLAN SGLANG_OPT_FLASHMLA_SPARSE_PREFILL
    SGLANG_OPT_FP8_WO_A_FUSED_INVROPE SGLANG_OPT_FP8_WO_A_GEMM SGLANG_OPT_FUSED_KDA_VERIFY
    SGLANG_OPT_FUSED_QK_NORM_ROPE_VERIFY SGLANG_OPT_FUSE_MHC_POST_PRE SGLANG_OPT_FUSE_SWIGLU_INTERLEAVED
    SGLANG_OPT_FUSE_WQA_WKV SGLANG_OPT_GATE_GEMV_MODE SGLANG_OPT_LINEARIZED_SHARED_SINK
    SGLANG_OPT_MAMBA_SKIP_DECODE_LOCK SGLANG_OPT_MOE_QUANT_ONCE SGLANG_OPT_MXFP4_DEFERRED_FINALIZED_SHAPE
    SGLANG_OPT_SKIP_GLUED_REPLAY_VIEW SGLANG_OPT_SM120_DIRECT_SWA_KV SGLANG_OPT_SM120_MTP_ROUTER_TOP22
    SGLANG_OPT_SM120_NVFP4_PHASE_LAYOUT SGLANG_OPT_UNIFIED_CACHE_FREE_OUT_OF_WINDOW_SLOTS
    SGLANG_OPT_USE_BF16_ROUTER_GEMM SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2 SGLANG_OPT_USE_FLASHINFER_MHC
    SGLANG_OPT_USE_FUSED_GATE_TOPK SGLANG_OPT_USE_FUSED_HASH_TOPK SGLANG_OPT_USE_FUSED_QK_NORM_ROPE
    SGLANG_OPT_USE_GATE_TOPK_JIT SGLANG_OPT_USE_JIT_INDEXER_METADATA SGLANG_OPT_USE_JIT_KERNEL_GROUPED_TOPK
    SGLANG_OPT_USE_MSA_DECODE_UNDER_GRAPH SGLANG_OPT_USE_MULTI_STREAM_OVERLAP SGLANG_OPT_USE_ONLINE_COMPRESS
    SGLANG_OPT_USE_TILELANG_INDEXER SGLANG_OPT_USE_TILELANG_MHC_POST SGLANG_OPT_USE_TILELANG_MHC_PRE
    SGLANG_OPT_USE_TOPK_V2 SGLANG_PARALLEL_PROMPT_ENCODE SGLANG_PARALLEL_PROMPT_ENCODE_MIN_CHARS
    SGLANG_PREFETCH_BLOCK_SIZE_MB SGLANG_PREFILL_DELAYER_MAX_DELAY_PASSES
    SGLANG_PREFILL_DELAYER_MAX_PREFILL_BS_WINDOW_SIZE SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK
    SGLANG_PREFILL_TILE_BUDGET SGLANG_QUANT_ALLOW_DOWNCASTING SGLANG_RAGGED_VERIFY_MODE
    SGLANG_REQUEST_STATE_WAIT_TIMEOUT SGLANG_REQ_RUNNING_TIMEOUT SGLANG_REQ_WAITING_TIMEOUT SGLANG_RETRACT_DECODE_STEPS
    SGLANG_RETURN_ORIGINAL_LOGPROB SGLANG_ROPE_CACHE_ALIGN SGLANG_ROPE_CACHE_FP32 SGLANG_ROPE_CACHE_SAFETY_MARGIN
    SGLANG_SANITIZE_NAN_LOGITS SGLANG_SCHEDULER_DECREASE_PREFILL_IDLE SGLANG_SCHEDULER_MAX_RECV_PER_POLL
    SGLANG_SCHEDULER_RECV_SKIPPER_WEIGHT_DECODE SGLANG_SCHEDULER_RECV_SKIPPER_WEIGHT_NONE
    SGLANG_SCHEDULER_RECV_SKIPPER_WEIGHT_TARGET_VERIFY SGLANG_SCHEDULER_SKIP_ALL_GATHER SGLANG_SHARED_EXPERT_TP1
    SGLANG_SKIP_SGL_KERNEL_VERSION_CHECK SGLANG_SKIP_SOFTMAX_DECODE_THRESHOLD_SCALE_FACTOR
    SGLANG_SKIP_SOFTMAX_PREFILL_THRESHOLD_SCALE_FACTOR SGLANG_SM120_FLASHMLA_BACKEND SGLANG_SORT_WEIGHT_FILES
    SGLANG_SPEC_EXPANSION_SAFETY_FACTOR SGLANG_SPEC_SKIP_ZERO_STEP_DRAFT_EXTEND SGLANG_SWA_EVICTION_INTERVAL
    SGLANG_SYMM_MEM_PREALLOC_GB_SIZE SGLANG_SYNC_TOKEN_IDS_ACROSS_TP SGLANG_TIMEOUT_KEEP_ALIVE SGLANG_TOOL_STRICT_LEVEL
    SGLANG_TRITON_COMPACT_EXTEND_ATTENTION SGLANG_TRITON_DECODE_ATTN_STATIC_KV_SPLITS
    SGLANG_TRITON_DECODE_SPLIT_TILE_SIZE SGLANG_TRITON_DENSE_PREFILL_ATTN SGLANG_TRITON_FP8_PREFILL_ATTN
    SGLANG_TRITON_LOAD_WARNING_THRESHOLD_GB SGLANG_TRITON_SLOW_COMPILE_THRESHOLD_SECS
    SGLANG_TRTLLM_MHA_DECODE_SEQ_LEN_SPLITS SGLANG_TRTLLM_MOE_PDL_MAX_TOKENS SGLANG_USE_1STAGE_ALLREDUCE
    SGLANG_USE_BREAKABLE_CUDA_GRAPH SGLANG_USE_CUSTOM_TRITON_KERNEL_CACHE SGLANG_USE_DEEPGEMM_BMM
    SGLANG_USE_HND_KVCACHE SGLANG_USE_SGL_FA3_KERNEL SGLANG_UVICORN_WORKER_HEALTHCHECK_TIMEOUT
    SGLANG_VALIDATE_MAMBA_REPLAY_STATE_INDICES SGLANG_VLM_CACHE_SIZE_MB SGLANG_WARMUP_TIMEOUT
    """.split()
)
"""What sglang/srt/environ.py of 0.5.23 reads as a number or a truth value, and texts that are only compared: those
for CUDA and one server, without ports, dumps, profiles, and switches for single models."""
