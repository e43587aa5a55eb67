"""The flags of llama-server: the harmless ones, and what others do (common/arg.cpp; tests/captured has its --help)."""

from __future__ import annotations

# ruff: noqa: SIM905 - lists of hundreds of words read better as text
from collections.abc import Mapping

from sparkops.engines.flags import READS, WRITES, FlagFacts

DOWNLOADS = "downloads a model from the address or repository in its value"
PRESET = "downloads a model, and sets its arguments"
ROUTES = "lets the server load other models, each in a process of its own"
MCP = "starts programs or connects to servers named in its value"
HARMLESS = frozenset(
    """
    adaptive-decay adaptive-target backend-sampling batch-size cache-idle-slots cache-prompt cache-ram
    cache-reuse cache-type-k cache-type-k-draft cache-type-v cache-type-v-draft chat-template
    chat-template-kwargs check-tensors checkpoint-min-step cont-batching context-shift cors-credentials
    cors-headers cors-methods cors-origins cpu-mask cpu-mask-batch cpu-mask-batch-draft cpu-mask-draft cpu-moe
    cpu-moe-draft cpu-range cpu-range-batch cpu-range-draft cpu-strict cpu-strict-batch cpu-strict-batch-draft
    cpu-strict-draft ctx-checkpoints ctx-size device device-draft draft-p-min draft-p-split dry-allowed-length
    dry-base dry-multiplier dry-penalty-last-n dry-sequence-breaker dynatemp-exp dynatemp-range escape fit
    fit-ctx fit-target flash-attn frequency-penalty gpu-layers gpu-layers-draft grammar ignore-eos
    image-max-tokens image-min-tokens jinja json-schema keep kv-offload kv-unified kv-unified-per-slot lazy-mode
    load-mode log-verbose log-verbosity logit-bias main-gpu min-p mirostat mirostat-ent mirostat-lr mmproj-auto
    mmproj-device mmproj-offload mtmd-batch-max-tokens n-cpu-ffn n-cpu-moe n-cpu-moe-draft n-gpu-layers
    n-gpu-layers-draft n-predict numa op-offload override-kv override-tensor override-tensor-draft parallel perf
    poll poll-batch poll-batch-draft poll-draft predict prefill-assistant presence-penalty prio prio-batch
    prio-batch-draft prio-draft reasoning reasoning-budget reasoning-budget-message reasoning-effort
    reasoning-format reasoning-preserve repack repeat-last-n repeat-penalty rope-freq-base rope-freq-scale
    rope-scale rope-scaling sampler-seq samplers sampling-seq seed skip-chat-parsing slot-prompt-similarity
    slots spec-default spec-draft-backend-sampling spec-draft-cpu-mask spec-draft-cpu-mask-batch
    spec-draft-cpu-moe spec-draft-cpu-range spec-draft-cpu-strict spec-draft-cpu-strict-batch spec-draft-device
    spec-draft-n-cpu-moe spec-draft-n-max spec-draft-n-min spec-draft-ncmoe spec-draft-ngl
    spec-draft-override-tensor spec-draft-p-min spec-draft-p-split spec-draft-poll spec-draft-poll-batch
    spec-draft-prio spec-draft-prio-batch spec-draft-threads spec-draft-threads-batch spec-draft-type-k
    spec-draft-type-v spec-ngram-map-k-min-hits spec-ngram-map-k-size-m spec-ngram-map-k-size-n
    spec-ngram-map-k4v-min-hits spec-ngram-map-k4v-size-m spec-ngram-map-k4v-size-n spec-ngram-mod-n-match
    spec-ngram-mod-n-max spec-ngram-mod-n-min spec-ngram-simple-min-hits spec-ngram-simple-size-m
    spec-ngram-simple-size-n spec-type split-mode sse-ping-interval swa-checkpoints swa-full temp temperature
    tensor-split threads threads-batch threads-batch-draft threads-draft threads-http timeout top-k top-n-sigma
    top-nsigma top-p typical typical-p ubatch-size ui verbose verbosity video-fps video-timestamp-interval
    warmup webui xtc-probability xtc-threshold yarn-attn-factor yarn-beta-fast yarn-beta-slow yarn-ext-factor
    yarn-orig-ctx
    """.split()
)
EFFECTS: Mapping[str, str] = {
    **dict.fromkeys(("model-url", "docker-repo", "hf-repo", "hf-repo-draft", "spec-draft-hf", "mmproj-url"), DOWNLOADS),
    **dict.fromkeys(("embd-gemma-default", "gpt-oss-20b-default", "gpt-oss-120b-default"), PRESET),
    **dict.fromkeys(("vision-gemma-4b-default", "vision-gemma-12b-default", "fim-qwen-30b-default"), PRESET),
    **dict.fromkeys(("models-dir", "models-preset", "models-max", "models-autoload"), ROUTES),
    **dict.fromkeys(("lora", "lora-scaled", "control-vector", "control-vector-scaled", "mmproj"), READS),
    **dict.fromkeys(("grammar-file", "json-schema-file", "chat-template-file", "lookup-cache-static"), READS),
    **dict.fromkeys(("spec-draft-model", "model-draft", "api-key-file", "ssl-key-file", "ssl-cert-file"), READS),
    **dict.fromkeys(("ui-config-file", "webui-config-file"), READS),
    **dict.fromkeys(("log-file", "log-prompts-dir", "lookup-cache-dynamic"), WRITES),
    **dict.fromkeys(("mcp-servers-config", "mcp-servers-json"), MCP),
    **dict.fromkeys(("ui-mcp-proxy", "webui-mcp-proxy"), "forwards requests of clients to any address"),
    "slot-save-path": "lets clients write files of the container, and load them",
    "media-path": "lets clients read files of the container",
    "path": "serves files of the container",
    "props": "lets clients change settings of the server",
    "tools": "lets clients run commands and change files in the container",
    "tools-runtime": "runs commands of clients where its value says",
    "agent": "lets clients run commands in the container, and forwards requests to any address",
    "rpc": "computes on the servers in its value, without encryption or a password",
    "video-ffmpeg-dir": "runs programs of the directory in its value",
    "sleep-idle-seconds": "unloads the model while no request runs",
}
VARIABLES: Mapping[str, str] = {
    r"LLAMA_ARG_\w+": "sets an argument of llama-server",
    r"LLAMA_API_KEY": "sets the key of clients",
    r"GGML_BACKEND_PATH": "loads a shared library named in its value",
    r"LLAMA_CACHE": "changes where models are read and written",
}
FLAGS = FlagFacts(
    harmless=HARMLESS,
    effects=EFFECTS,
    variables=frozenset(
        """
        GGML_CUDA_ALLREDUCE GGML_CUDA_CUBLAS_COMPUTE_TYPE GGML_CUDA_DISABLE_FUSION GGML_CUDA_DISABLE_GRAPHS
        GGML_CUDA_ENABLE_UNIFIED_MEMORY GGML_CUDA_GRAPH_OPT GGML_CUDA_MMQ_PREC GGML_CUDA_NO_PINNED GGML_CUDA_P2P
        GGML_CUDA_PDL GGML_CUDA_REGISTER_HOST GGML_NO_BACKTRACE GGML_OP_OFFLOAD_MIN_BATCH GGML_SCHED_DEBUG
        LLAMA_ATTN_ROT_DISABLE LLAMA_GRAPH_REUSE_DISABLE LLAMA_KV_CACHE_DEBUG LLAMA_TRACE
        """.split()
    ),
    variable_effects=VARIABLES,
)
