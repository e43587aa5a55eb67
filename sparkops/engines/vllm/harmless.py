"""Flags and variables of vLLM known to be harmless: all others need `serve.allow`.

The value of a name here is a number, a truth value, one of a list, or text that the engine only compares or prints.
`tokenizer` and `generation-config` may name a directory, of which the engine reads data.
"""

from __future__ import annotations

# ruff: noqa: SIM905 - lists of hundreds of words read better as text
from collections.abc import Mapping

VLLM_FLAGS = frozenset(
    """
    aggregate-engine-logging all2all-backend allow-credentials allow-deprecated-quantization allowed-headers
    allowed-media-domains allowed-methods allowed-origins api-server-count async-scheduling attention-backend
    attention-config block-size calculate-kv-scales chat-template-content-format code-revision
    collect-detailed-traces compilation-config config-format convert cp-kv-cache-interleave-size
    cpu-distributed-timeout-seconds cpu-offload-gb cpu-offload-params cudagraph-capture-sizes cudagraph-metrics
    data-parallel-backend data-parallel-external-lb data-parallel-hybrid-lb data-parallel-multi-port-external-lb
    data-parallel-rank data-parallel-size data-parallel-size-local data-parallel-start-rank
    dbo-decode-token-threshold dbo-prefill-token-threshold dcp-comm-backend dcp-kv-cache-interleave-size
    decode-context-parallel-size default-chat-template-kwargs disable-access-log-for-endpoints disable-cascade-attn
    disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs disable-hybrid-kv-cache-manager
    disable-log-stats disable-nccl-for-dp-synchronization disable-sliding-window disable-uvicorn-access-log
    distributed-timeout-seconds dp-supervisor-probe-failure-threshold dp-supervisor-probe-interval-s
    dp-supervisor-probe-timeout-s dtype enable-auto-tool-choice enable-chunked-prefill enable-cumem-allocator
    enable-dbo enable-ep-weight-filter enable-eplb enable-expert-parallel enable-flash-late-interaction
    enable-flashinfer-autotune enable-force-include-usage enable-layerwise-nvtx-tracing enable-log-deltas
    enable-log-outputs enable-log-requests enable-logging-iteration-details enable-lora
    enable-mamba-cache-stochastic-rounding enable-mfu-metrics enable-mixed-moe-lora-format enable-offline-docs
    enable-prefix-caching enable-prompt-tokens-details enable-request-id-headers enable-return-routed-experts
    enable-server-load-tracking enable-sleep-mode enable-tokenizer-info-endpoint enable-tower-connector-lora
    enforce-eager eplb-config exclude-tools-when-tool-choice-none expert-placement-strategy
    fail-on-environ-validation fingerprint-mode fingerprint-value fully-sharded-loras gdn-prefill-backend
    generation-config gpu-memory-utilization h11-max-header-count h11-max-incomplete-event-size hf-overrides
    ignore-patterns interleave-mm-strings ir-op-priority kernel-config kv-cache-dtype kv-cache-dtype-skip-layers
    kv-cache-memory-bytes kv-cache-metrics kv-cache-metrics-sample kv-offloading-backend kv-offloading-size
    kv-sharing-fast-prefill kv-transfer-config language-model-only limit-mm-per-prompt linear-backend load-format
    log-error-stack logprobs-mode long-prefill-token-threshold lora-dtype lora-target-modules mamba-backend
    mamba-block-size mamba-cache-dtype mamba-cache-mode mamba-cache-philox-rounds mamba-ssm-cache-dtype
    max-cpu-loras max-cudagraph-capture-size max-log-len max-logprobs max-long-partial-prefills max-lora-rank
    max-loras max-model-len max-num-batched-tokens max-num-partial-prefills max-num-seqs
    max-parallel-loading-workers media-io-kwargs mm-encoder-attn-backend mm-encoder-attn-dtype
    mm-encoder-fp8-scale-save-margin mm-encoder-only mm-encoder-tp-mode mm-processor-cache-gb
    mm-processor-cache-type mm-processor-kwargs mm-shm-cache-max-object-size-mb mm-tensor-ipc model-impl
    model-loader-extra-config moe-backend num-gpu-blocks-override numa-bind numa-bind-cpus numa-bind-nodes
    offload-backend offload-group-size offload-num-in-group offload-params offload-prefetch-step optimization-level
    override-attention-dtype override-generation-config performance-mode pipeline-parallel-size pooler-config
    prefill-context-parallel-size prefix-caching-hash-algo pt-load-map-location quantization quantization-config
    reasoning-config reasoning-parser renderer-num-workers response-role return-tokens-as-token-ids revision
    root-path runner safetensors-load-strategy safetensors-prefetch-block-size safetensors-prefetch-num-threads
    scheduler-reserve-full-isl scheduling-policy seed show-hidden-metrics-for-version shutdown-timeout
    skip-mm-profiling skip-tokenizer-init spec-method spec-model spec-tokens specialize-active-lora
    speculative-config stream-interval structured-outputs-config tokenizer tokenizer-mode tokenizer-revision
    tool-call-parser ubatch-size use-fp64-gumbel use-tqdm-on-load uvicorn-log-level video-pruning-rate
    """.split()
)
"""Of `vllm serve` of 0.23.0 (operator/convert/vllm_023.py names its sources)."""
NEWER_FLAGS = frozenset(
    """
    anthropic-disabled-thinking-effort cohere-format cohere-is-reasoning-model custom-histogram-buckets
    dcp-q-replicate device-memory-utilization dp-sync-interval enable-batch-sharded-sampling
    enable-mamba-shared-prefix-checkpoint enable-moe-shared-loras enable-per-request-metrics jit-monitor-mode
    jit-monitor-verbose kda-decode-backend kda-prefill-backend log-level long-prefill-token-threshold-adaptive
    mamba-ssu-algorithm max-lora-cls-labels max-num-active-seqs max-num-queued-reqs max-num-queued-tokens
    max-num-scheduled-tokens mm-device-do-normalize mm-hasher-algorithm mm-ipc-gpu-memory-gb mm-processor-device
    per-request-spec-decode-metrics prefill-schedule-interval prefix-cache-retention-interval prefix-match-unit
    replayssm-buffer-len return-sampling-mask sleep-mode-offload-cudagraph sparse-indexer-topk-backend
    sse-keep-alive-interval swa-bounded-replay tool-strict-level use-replayssm video-pruning-method
    """.split()
)
"""Added up to 0.32.0 (vllm/engine/arg_utils.py and entrypoints/*/cli_args.py of its wheel)."""
KEYS: Mapping[str, frozenset[str]] = {
    "speculative-config": frozenset(
        """
        attention_backend code_revision disable_eagle_block_drop disable_padded_drafter_batch draft_sample_method
        draft_tensor_parallel_size dspark_draft_topk enable_adaptive_verification enforce_eager
        index_share_for_mtp_iteration kv_cache_dtype max_model_len method model moe_backend num_speculative_tokens
        num_speculative_tokens_per_batch_size parallel_drafting prompt_lookup_max prompt_lookup_min quantization
        rejection_sample_method revision suffix_decoding_max_cached_requests suffix_decoding_max_spec_factor
        suffix_decoding_max_tree_depth suffix_decoding_min_token_prob synthetic_acceptance_length
        synthetic_acceptance_rates tensor_parallel_size use_heterogeneous_vocab use_local_argmax_reduction
        """.split()
    ),
    "compilation-config": frozenset(
        """
        backend compile_cache_save_format compile_mm_encoder compile_ranges_endpoints compile_sizes
        cudagraph_capture_sizes cudagraph_copy_inputs cudagraph_decoder_replay cudagraph_mm_encoder cudagraph_mode
        cudagraph_num_of_warmups cudagraph_specialize_lora custom_ops decoder_replay_cudagraph_capture_sizes
        decoder_replay_trim_threshold dynamic_shapes_config encoder_cudagraph_max_frames_per_batch
        encoder_cudagraph_max_vision_items_per_batch encoder_cudagraph_token_budgets fast_moe_cold_start
        full_cuda_graph ir_enable_torch_wrap level max_cudagraph_capture_size mode pass_config splitting_ops
        use_cudagraph use_inductor use_inductor_graph_partition
        """.split()
    ),
    "kv-transfer-config": frozenset(
        """
        enable_permute_local_kv engine_id kv_buffer_device kv_buffer_size kv_connector kv_load_failure_policy
        kv_parallel_size kv_rank kv_role
        """.split()
    ),
    "structured-outputs-config": frozenset(
        """
        backend disable_additional_properties disable_any_whitespace disable_fallback enable_in_reasoning
        reasoning_parser
        """.split()
    ),
    "mm-processor-kwargs": frozenset(
        """
        do_convert_rgb do_normalize do_pan_and_scan do_rescale do_resize fps max_dynamic_patch max_frames max_num_tiles
        max_pixels max_soft_tokens min_dynamic_patch min_frames min_pixels num_crops num_frames size use_fast
        """.split()
    ),
    "hf-overrides": frozenset(
        """
        architectures dtype max_position_embeddings num_hidden_layers original_max_position_embeddings rope_parameters
        rope_scaling rope_theta sliding_window text_config torch_dtype vision_config
        """.split()
    ),
    "model-loader-extra-config": frozenset(
        """
        concurrency distributed enable_multithread_load memory_limit num_threads
        """.split()
    ),
}
"""Keys inside JSON values of flags of which other keys name code, files or addresses (vllm/config/ of 0.32.0). Inside
other flags every key is harmless but those of `effects.KEYS`."""
BACKENDS = frozenset({"", "eager", "inductor"})
"""Values of compilation-config.backend that are no import path."""
VARIABLES = frozenset(
    """
    VLLM_ADAPTIVE_VERIFICATION_PROFILE_CONTEXT_LEN VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE
    VLLM_ALLOW_LONG_MAX_MODEL_LEN VLLM_ALLREDUCE_USE_FLASHINFER VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC
    VLLM_ALLREDUCE_USE_SYMM_MEM VLLM_ASSETS_CACHE_MODEL_CLEAN VLLM_ATTENTION_BACKEND VLLM_AUDIO_FETCH_TIMEOUT
    VLLM_B12X_MOE_FP4_FORCE_A16 VLLM_BATCH_INVARIANT VLLM_BLOCKSCALE_FP8_GEMM_FLASHINFER
    VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT VLLM_COMPILE_CACHE_SAVE_FORMAT VLLM_COMPUTE_NANS_IN_LOGITS
    VLLM_CONFIGURE_LOGGING VLLM_CPU_ATTN_SPLIT_KV VLLM_CPU_INT4_W4A8 VLLM_CPU_KVCACHE_SPACE
    VLLM_CPU_NUM_OF_RESERVED_CPU VLLM_CPU_OMP_THREADS_BIND VLLM_CUSTOM_SCOPES_FOR_PROFILING VLLM_DBO_COMM_SMS
    VLLM_DCP_Q_REPLICATE VLLM_DEBUG_LOG_API_SERVER_RESPONSE VLLM_DEBUG_MFU_METRICS VLLM_DEBUG_WORKSPACE
    VLLM_DEEPEPLL_NVFP4_DISPATCH VLLM_DEEPEP_BUFFER_SIZE_MB VLLM_DEEPEP_HIGH_THROUGHPUT_FORCE_INTRA_NODE
    VLLM_DEEPEP_LOW_LATENCY_USE_MNNVL VLLM_DEEPEP_V2_ALLOW_HYBRID_MODE VLLM_DEEPEP_V2_ALLOW_MULTIPLE_REDUCTION
    VLLM_DEEPEP_V2_PREFER_OVERLAP VLLM_DEEP_GEMM_WARMUP VLLM_DISABLED_KERNELS VLLM_DISABLE_COMPILE_CACHE
    VLLM_DISABLE_DSV4_MEGAMOE_SHARED_EXPERT_FUSION VLLM_DISABLE_LOG_LOGO VLLM_DISABLE_PYNCCL
    VLLM_DISABLE_REQUEST_ID_RANDOMIZATION VLLM_DISABLE_SHARED_EXPERTS_STREAM VLLM_DISTRIBUTED_USE_SPLIT_GROUP
    VLLM_DO_NOT_TRACK VLLM_DP_RANK VLLM_DP_RANK_LOCAL VLLM_DP_SIZE VLLM_ENABLE_COHERE_API VLLM_ENABLE_CUDAGRAPH_GC
    VLLM_ENABLE_FLA_PACKED_RECURRENT_DECODE VLLM_ENABLE_FUSED_MOE_ACTIVATION_CHUNKING VLLM_ENABLE_GEMM_RS
    VLLM_ENABLE_HPC_OPS VLLM_ENABLE_INDUCTOR_COORDINATE_DESCENT_TUNING VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE
    VLLM_ENABLE_MOE_ALIGN_BLOCK_SIZE_TRITON VLLM_ENABLE_PREGRAD_PASSES VLLM_ENABLE_RESPONSES_API_STORE
    VLLM_ENABLE_STARTUP_PLAN VLLM_ENABLE_V1_MULTIPROCESSING VLLM_ENFORCE_STRICT_TOOL_CALLING
    VLLM_ENGINE_READY_TIMEOUT_S VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS VLLM_FASTSAFETENSORS_QUEUE_SIZE
    VLLM_FLASHINFER_ALLREDUCE_BACKEND VLLM_FLASHINFER_AUTOTUNE_SKIP_OPS
    VLLM_FLASHINFER_MOE_A2A_LOW_PRECISION_COMBINE VLLM_FLASHINFER_MOE_BACKEND VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE
    VLLM_FLASH_ATTN_VERSION VLLM_FLOAT32_MATMUL_PRECISION VLLM_FORCE_AOT_LOAD VLLM_FUSED_MOE_CHUNK_SIZE
    VLLM_GC_DEBUG VLLM_GDN_DECODE_KERNEL VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS VLLM_GPU_SYNC_CHECK
    VLLM_HAS_FLASHINFER_CUBIN VLLM_HTTP_TIMEOUT_KEEP_ALIVE VLLM_HUMMING_MOE_GEMM_TYPE VLLM_HUMMING_USE_F16_ACCUM
    VLLM_IMAGE_FETCH_TIMEOUT VLLM_KEEP_ALIVE_ON_ENGINE_DEATH VLLM_KIMI_K3_AUX_ATTN_RES_STREAM VLLM_KIMI_K3_GEMM_AR
    VLLM_KIMI_K3_SHARD_SP_SHARED_EXPERT VLLM_KV_CACHE_LAYOUT VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES
    VLLM_KV_OFFLOAD_MAX_BATCH_DESCRIPTORS VLLM_LOGGING_COLOR VLLM_LOGGING_LEVEL VLLM_LOGGING_PREFIX
    VLLM_LOG_BATCHSIZE_INTERVAL VLLM_LOG_MODEL_INSPECTION VLLM_LOG_STATS_INTERVAL VLLM_LORA_DISABLE_PDL
    VLLM_LORA_ENABLE_DUAL_STREAM VLLM_MAIN_CUDA_VERSION VLLM_MARLIN_INPUT_DTYPE VLLM_MARLIN_USE_ATOMIC_ADD
    VLLM_MAX_AUDIO_CLIP_FILESIZE_MB VLLM_MAX_AUDIO_DECODE_BYTES VLLM_MAX_AUDIO_DECODE_DURATION_S
    VLLM_MAX_AUDIO_PREPROCESS_WORKERS VLLM_MAX_BAD_WORDS_TOTAL_TOKENS VLLM_MAX_COMPLETION_PROMPTS
    VLLM_MAX_EMBED_DECODE_BYTES VLLM_MAX_IMAGE_PIXELS VLLM_MAX_MEDIA_DOWNLOAD_SIZE_MB VLLM_MAX_NUM_BAD_WORDS
    VLLM_MAX_N_SEQUENCES VLLM_MAX_STOP_STRINGS VLLM_MAX_TOKENS_PER_EXPERT_FP4_MOE VLLM_MEDIA_CACHE_MAX_SIZE_MB
    VLLM_MEDIA_CACHE_TTL_HOURS VLLM_MEDIA_FETCH_MAX_RETRIES VLLM_MEDIA_LOADING_THREAD_COUNT
    VLLM_MEDIA_URL_ALLOW_REDIRECTS VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS VLLM_MLA_DISABLE VLLM_MOE_SKIP_PADDING
    VLLM_MOE_USE_DEEP_GEMM VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT VLLM_MOONCAKE_CONNECTOR_TIMEOUT
    VLLM_MOONCAKE_DISK_STAGING_USABLE_RATIO VLLM_MOONCAKE_LOAD_RECV_THREADS VLLM_MOONCAKE_STORE_TIER_LOG
    VLLM_MQ_MAX_CHUNK_BYTES_MB VLLM_MSGPACK_ZERO_COPY_THRESHOLD VLLM_MULTI_STREAM_GEMM_TOKEN_THRESHOLD
    VLLM_MXFP4_EMULATION_DEQUANT_AT_LOAD VLLM_MXFP4_USE_MARLIN VLLM_MXFP8_EMULATION_DEQUANT_AT_LOAD
    VLLM_NO_USAGE_STATS VLLM_NVFP4_GEMM_BACKEND VLLM_NVTX_SCOPES_FOR_PROFILING VLLM_P2P_HANDSHAKE_TIMEOUT_S
    VLLM_P2P_IDLE_TIMEOUT_S VLLM_P2P_MAX_PEERS VLLM_PP_LAYER_PARTITION VLLM_PROCESS_NAME_PREFIX
    VLLM_RAISE_ON_LOGIT_NANS VLLM_RANDOMIZE_DP_DUMMY_INPUTS VLLM_RAY_BUNDLE_INDICES VLLM_RAY_DP_PACK_STRATEGY
    VLLM_RAY_PER_WORKER_GPUS VLLM_REGEX_COMPILATION_TIMEOUT_S VLLM_REPLICATE_EMBED VLLM_RINGBUFFER_WARNING_INTERVAL
    VLLM_ROCM_AITER_MEGA_MOE_FUSE_SHARED_EXPERTS VLLM_ROCM_AITER_MLA_ASM_PADDING VLLM_ROCM_AITER_MLA_DCP_VERIFY
    VLLM_ROCM_AITER_MOE_DISPATCH_POLICY VLLM_ROCM_FP8_MFMA_PAGE_ATTN VLLM_ROCM_FP8_PADDING VLLM_ROCM_MOE_PADDING
    VLLM_ROCM_MONO_DECODE VLLM_ROCM_QUICK_REDUCE_CAST_BF16_TO_FP16 VLLM_ROCM_QUICK_REDUCE_MAX_SIZE_BYTES_MB
    VLLM_ROCM_QUICK_REDUCE_MIN_SIZE_BYTES_MB VLLM_ROCM_QUICK_REDUCE_QUANTIZATION
    VLLM_ROCM_QUICK_REDUCE_QUANTIZATION_MIN_SIZE_KB VLLM_ROCM_SHUFFLE_KV_CACHE_LAYOUT VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE
    VLLM_ROCM_USE_AITER VLLM_ROCM_USE_AITER_CUSTOM_AR VLLM_ROCM_USE_AITER_FP4BMM VLLM_ROCM_USE_AITER_FP4_ASM_GEMM
    VLLM_ROCM_USE_AITER_FP8BMM VLLM_ROCM_USE_AITER_FUSION_SHARED_EXPERTS VLLM_ROCM_USE_AITER_LINEAR
    VLLM_ROCM_USE_AITER_LINEAR_HIPBMM VLLM_ROCM_USE_AITER_MHA VLLM_ROCM_USE_AITER_MLA VLLM_ROCM_USE_AITER_MOE
    VLLM_ROCM_USE_AITER_MOE_A4W4_DSV4 VLLM_ROCM_USE_AITER_MOE_SITUV2 VLLM_ROCM_USE_AITER_RMSNORM
    VLLM_ROCM_USE_AITER_TRITON_GEMM VLLM_ROCM_USE_AITER_TRITON_ROPE VLLM_ROCM_USE_AITER_TRITON_SPARSE_MLA
    VLLM_ROCM_USE_AITER_UNIFIED_ATTENTION VLLM_ROCM_USE_SKINNY_GEMM VLLM_SHARED_EXPERTS_STREAM_TOKEN_THRESHOLD
    VLLM_SKIP_MODEL_NAME_VALIDATION VLLM_SKIP_P2P_CHECK VLLM_SKIP_PRECOMPILED_VERSION_SUFFIX
    VLLM_SKIP_VERSION_SUFFIX VLLM_SPARSE_INDEXER_MAX_LOGITS_MB VLLM_SSM_CONV_STATE_LAYOUT VLLM_SYSTEM_START_DATE
    VLLM_TARGET_DEVICE VLLM_TEST_FORCE_FP8_MARLIN VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY
    VLLM_TOOL_PARSE_REGEX_TIMEOUT_SECONDS VLLM_TPU_USING_PATHWAYS VLLM_TRITON_FORCE_FIRST_CONFIG
    VLLM_TRITON_JIT_WARMUP_NUM_THREADS VLLM_TRITON_USE_TD VLLM_USE_AOT_COMPILE VLLM_USE_BREAKABLE_CUDAGRAPH
    VLLM_USE_BYTECODE_HOOK VLLM_USE_CUDNN_PREFILL VLLM_USE_DEEP_GEMM VLLM_USE_DEEP_GEMM_E8M0
    VLLM_USE_DEEP_GEMM_TMA_ALIGNED_SCALES VLLM_USE_DIRECT_DCP_A2A VLLM_USE_DIRECT_DCP_KV_GATHER
    VLLM_USE_DIRECT_DCP_Q_GATHER VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT VLLM_USE_FASTOKENS
    VLLM_USE_FLASHINFER_MOE_FP16 VLLM_USE_FLASHINFER_MOE_FP4 VLLM_USE_FLASHINFER_MOE_FP8
    VLLM_USE_FLASHINFER_MOE_INT4 VLLM_USE_FLASHINFER_MOE_MXFP4_BF16 VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8
    VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8_CUTLASS VLLM_USE_FLASHINFER_SAMPLER VLLM_USE_FUSED_MOE_GROUPED_TOPK
    VLLM_USE_HW_AGNOSTIC VLLM_USE_LAYERNAME VLLM_USE_MEGA_AOT_ARTIFACT VLLM_USE_NCCL_SYMM_MEM
    VLLM_USE_NVFP4_CT_EMULATIONS VLLM_USE_OINK_OPS VLLM_USE_PRECOMPILED VLLM_USE_PRECOMPILED_RUST
    VLLM_USE_RAY_COMPILED_DAG_CHANNEL_TYPE VLLM_USE_RAY_COMPILED_DAG_OVERLAP_COMM VLLM_USE_RAY_V2_EXECUTOR_BACKEND
    VLLM_USE_RAY_WRAPPED_PP_COMM VLLM_USE_RUST_BENCH VLLM_USE_RUST_FRONTEND VLLM_USE_SIMPLE_KV_OFFLOAD
    VLLM_USE_SPINLOOP_EXT VLLM_USE_STANDALONE_COMPILE VLLM_USE_TRITON_AWQ VLLM_USE_TRITON_FLASH_ATTN
    VLLM_USE_TRTLLM_ATTENTION VLLM_USE_V1 VLLM_USE_V2_MODEL_RUNNER VLLM_V1_OUTPUT_PROC_CHUNK_SIZE
    VLLM_V1_USE_OUTLINES_CACHE VLLM_VIDEO_FETCH_TIMEOUT VLLM_WEIGHT_OFFLOADING_DISABLE_PIN_MEMORY
    VLLM_WEIGHT_OFFLOADING_DISABLE_UVA VLLM_WORKER_MULTIPROC_METHOD VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS
    VLLM_WSL2_ENABLE_PIN_MEMORY VLLM_XGRAMMAR_CACHE_MB VLLM_XLA_CHECK_RECOMPILATION VLLM_XLA_USE_SPMD
    VLLM_XPU_FORCE_N_CONTIG_WEIGHT VLLM_XPU_INC_WNA16_BACKEND VLLM_XPU_PP_MICROBATCH VLLM_XPU_USE_SAMPLER_KERNEL
    VLLM_ZENTORCH_WEIGHT_PREPACK
    """.split()
)
"""What vllm/envs.py reads as a number, a truth value or one of a list (0.32.0, and names of 0.19.0 to 0.23.0), without
ports and endpoints, and a few texts that are only compared or printed."""
