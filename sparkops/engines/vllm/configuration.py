"""Known causes of a failed start of vLLM in its arguments and environment, with the next step: texts of 0.8 to 0.32."""

from __future__ import annotations

from sparkops.engines.causes import Cause
from sparkops.engines.configuration import CONFIGURATION, invalid_choice

MODEL = "vllm/config/model.py"
SPECULATIVE = "vllm/config/speculative.py"
DRAFT = "Set model.draft to a draft model of the same family and tokenizer"
NO_DRAFT = "remove speculative-config from serve.args"
BACKEND = (
    "Remove attention-backend from serve.args (and VLLM_ATTENTION_BACKEND from serve.env), so that vLLM chooses, or "
    "take a newer image (image.vllm)."
)
MOE = (
    "Remove moe-backend from serve.args and VLLM_USE_FLASHINFER_MOE_... from serve.env, so that vLLM chooses (marlin "
    "serves most GPUs), take a newer image (image.vllm), or a checkpoint of another quantization (model.id)."
)
REFUSAL = r"(?:Value error, |Error: |error: )[^{]{0,200}"
"""The begin of an error, before a word that lists of arguments have too."""
PARSERS: tuple[Cause, ...] = (
    Cause(
        r"[Rr]easoning parser:? '?([\w.-]{0,64})'? (?:not found|is not registered|has not been registered)|invalid "
        r"reasoning parser: ([\w.-]{0,64})|reasoning_parser_name='?([\w.-]{1,64})'? has not been registered",
        "this vLLM does not know the reasoning parser {0}{1}{2}: it has none of that name",
        "Set reasoning-parser in serve.args to a name of the list in the message, or take a newer image (image.vllm).",
        source="vllm/reasoning/abs_reasoning_parsers.py",
    ),
    Cause(
        r"[Tt]ool parser:? '?([\w.-]{0,64})'? (?:not found|is not registered)|invalid tool call parser: "
        r"([\w.-]{0,64})|tool_parser:'?([\w.-]{1,64})'? which has not been registered",
        "this vLLM does not know the tool parser {0}{1}{2}: it has none of that name",
        "Set tool-call-parser in serve.args to a name that this vLLM has (`vllm serve --help=tool-call-parser`), or "
        "take a newer image (image.vllm).",
        source="vllm/tool_parsers/abstract_tool_parser.py",
    ),
    Cause(
        r"--enable-auto-tool-choice requires --tool-call-parser",
        "enable-auto-tool-choice is set without tool-call-parser, which it requires",
        "Set tool-call-parser in serve.args to the parser of the model, or remove enable-auto-tool-choice.",
        source="vllm/entrypoints/openai/cli_args.py",
    ),
    Cause(
        r"--(enable-[\w-]{1,32}) (?:requires|cannot be used with|and) --([\w-]{1,64})|--([\w-]{1,64}) requires "
        r"--([\w-]{1,64})",
        "the flag {0}{2} does not go with the others: it requires or excludes {1}{3}",
        "Set both in serve.args, or remove {0}{2}.",
        source="vllm/entrypoints/openai/cli_args.py",
        unless=r"[Ww]arning",
    ),
    Cause(
        r"Failed to (?:load module|import lazy \w{1,16} parser) '?([^' ]{1,256})'?",
        "the plugin of a parser, {}, cannot be imported: its file is missing or fails at import, as an error "
        "above says",
        "Correct tool-parser-plugin or reasoning-parser-plugin in serve.args: a path of a Python file in the "
        "container.",
        source="vllm/tool_parsers/abstract_tool_parser.py",
    ),
    Cause(
        r"[Rr]easoning[Pp]arser could not locate think (?:start|end)|ReasoningConfig: failed to tokenize|(\w{1,64}) "
        r"[Rr]easoning parser could not locate",
        "the tokenizer of the model lacks the tokens of the reasoning parser: the parser belongs to another family of "
        "models",
        "Set reasoning-parser in serve.args to that of the model, or remove it.",
        source="vllm/reasoning",
    ),
    Cause(
        r"[Tt]ool parser could not locate tool call|could not locate (?:the )?tool call (?:start|end|parser)",
        "the tokenizer of the model lacks the tokens of the tool parser: the parser belongs to another family of "
        "models",
        "Set tool-call-parser in serve.args to that of the model, or remove it.",
        source="vllm/tool_parsers",
    ),
    Cause(
        r"[Ss]upplied chat template (?:path|string|\().{0,300}(?:doesn't|does not) exist|chat template .{0,256}appears "
        r"path-like|the supplied chat template path doesn't exist",
        "the file of the chat template does not exist in the container: its path is misspelt, or it is not mounted",
        "Correct chat-template in serve.args; a template in image.mods lies at /opt/sparkops/templates/NAME.jinja, one "
        "of the model below /models.",
        source="vllm/entrypoints/chat_utils.py",
    ),
)
SPECULATION: tuple[Cause, ...] = (
    Cause(
        r"Value error, Invalid repository ID or local directory specified: '([^']{1,256})'",
        "the directory of the draft model, {}, does not exist in the container or has no config.json",
        "Fetch the draft model with `sparkops models pull`, and correct model.draft or the path in speculative-config "
        "of serve.args (/models/ and the draft's path).",
        source="vllm/transformers_utils/config.py",
        beside=r"validation errors? for SpeculativeConfig",
    ),
    Cause(
        r"Target and draft model should have the same vocabulary size\. Target model vocab_size=(\d{1,9})\. Draft "
        r"model vocab_size=(\d{1,9})",
        "the draft model has another vocabulary ({1}) than the model that it drafts for ({0}), so another tokenizer",
        f"{DRAFT}, or {NO_DRAFT}.",
        source=SPECULATIVE,
    ),
    Cause(
        r"num_speculative_tokens:?(\d{1,6})? (?:must be divisible by|must be provided|was not provided|was provided "
        r"but)|`num_speculative_tokens` was not provided|greater than zero \(|target_model_config must be present for "
        r"mtp|Expected num_speculative_tokens",
        "num_speculative_tokens and the draft of speculative-config do not go together: one of both is missing, or the "
        "number does not fit the draft",
        "Correct speculative-config in serve.args: method, model and num_speculative_tokens (for MTP a multiple of the "
        "model's n_predict).",
        source=SPECULATIVE,
    ),
    Cause(
        r"Unsupported speculative method: '?([\w.-]{1,64})|Unknown speculative decoding method: (\S{1,64})|Invalid "
        r"method (\S{1,64})\. Supported methods",
        "this vLLM does not know the speculative method {0}{1}{2}, or the draft model has none that it recognizes",
        "Correct method in speculative-config of serve.args (ngram, eagle3, mtp, draft_model), or take a newer image.",
        source=SPECULATIVE,
    ),
    Cause(
        REFUSAL + r"prompt_lookup_m(?:ax|in)",
        "speculative-config with the method ngram lacks prompt_lookup_max or prompt_lookup_min, or the smaller is "
        "larger",
        "Set prompt_lookup_max (and prompt_lookup_min) in speculative-config of serve.args.",
        source=SPECULATIVE,
    ),
    Cause(
        r"(?:speculative_draft_tensor_parallel_size|'draft_tensor_parallel_size'|'tensor_parallel_size' is not a valid "
        r"argument in the speculative_config)",
        "the draft model is set to another tensor parallel size than 1 or that of the model",
        "Correct draft_tensor_parallel_size in speculative-config of serve.args: 1, or serve.tensor_parallel.",
        source=SPECULATIVE,
    ),
    Cause(
        r"speculative_max_model_len=(\d{1,9}) cannot be larger than (\w{1,32})=(\d{1,9})",
        "the draft's max_model_len {0} is larger than {1} {2}",
        "Lower or remove max_model_len in speculative-config of serve.args.",
        source=SPECULATIVE,
    ),
    Cause(
        r"does not allow any tokens to be scheduled|increasing max_num_batched_tokens or decreasing "
        r"num_speculative_tokens|does not have enough slots to support the speculative decoding|cudagraph sizes after "
        r"rounding|Can't determine cudagraph shapes",
        "max-num-batched-tokens (or the sizes of the CUDA graphs) leaves no room for the tokens of speculative "
        "decoding",
        "Raise max-num-batched-tokens (and max-cudagraph-capture-size) in serve.args, or lower max-num-seqs or "
        "num_speculative_tokens in speculative-config.",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"Speculative [Dd]ecoding .{0,128}(?:not support|only support)|does not support EAGLE3 "
        r"interface|(?:EAGLE|Medusa|[Dd]raft model|[Ss]peculat\w{1,8}|MTP)\b.{0,64}(?:is|are) not (?:yet "
        r")?supported|For parallel drafting, the draft model config must|only supported with EAGLE/MTP",
        "this vLLM cannot combine speculative decoding of this method with this model or these arguments",
        f"Correct speculative-config in serve.args, or {NO_DRAFT}; or take a newer image (image.vllm).",
        source="vllm/v1/spec_decode",
    ),
    Cause(
        r"No proposal methods found in speculators config|Invalid speculators config|Please ensure you're loading a "
        r"speculators-format|Missing 'speculative_tokens' in proposal",
        "the config of the speculator (draft model) is incomplete or of another format",
        f"{DRAFT}, or {NO_DRAFT}.",
        source="vllm/transformers_utils/configs/speculators",
    ),
)
LORA: tuple[Cause, ...] = (
    Cause(
        r"No such file or directory:? '?([^']{1,256})/adapter_config\.json|No adapter found for (\S{1,256}?)[',]?(?:, "
        r"|$)|Can't find 'adapter_config\.json' at '?([^' ]{1,256})",
        "the path of the LoRA adapter does not exist in the container, or has no adapter_config.json: {0}{1}{2}",
        "Correct lora-modules (lora-paths) in serve.args to a path below /models, where model_dir of the node is "
        "mounted, and put the adapter there on each node.",
        source="vllm/lora/worker_manager.py",
    ),
    Cause(
        r"LoRA rank (\d{1,6}) is greater than max_lora_rank (\d{1,6})",
        "the LoRA adapter has the rank {0}, and max-lora-rank is {1}",
        "Set max-lora-rank in serve.args to {0} or more (of the values that vLLM allows).",
        source="vllm/lora/peft_helper.py",
    ),
    Cause(
        r"vLLM only supports modules_to_save being None|does not yet support DoRA|Adapter bias is not supported|is "
        r"unsupported LoRA weight|Missing required configuration fields",
        "the LoRA adapter uses a feature that vLLM does not serve (modules_to_save, DoRA, a bias), or its config is "
        "incomplete",
        "Merge the adapter into the model, or train it without that; or remove it from lora-modules in serve.args.",
        source="vllm/lora/peft_helper.py",
    ),
    Cause(
        r"expected target modules in \[?.{0,300} but received|doesn't contain tensors",
        "the LoRA adapter changes modules that this model does not have, or that vLLM does not serve: it was trained "
        "for another model, or is damaged",
        "Set lora-modules in serve.args to an adapter of this model, or merge it into the model.",
        source="vllm/lora/lora_model.py",
    ),
    Cause(
        r"max_cpu_loras \((\d{1,6})\) must be >= max_loras \((\d{1,6})\)|Number of requested (?:models|LoRAs) "
        r".{0,64}greater than the number of GPU",
        "more LoRA adapters are asked for than there are slots (max-loras, max-cpu-loras)",
        "Raise max-cpu-loras or max-loras in serve.args, or lower the other.",
        source="vllm/config/lora.py",
    ),
    Cause(
        r"(\w{0,64}Experts\w{0,32}|[Mm]o[Ee] backend \S{1,64}) does not support LoRA",
        "the kernel for the experts (MoE) that was chosen, {}, cannot apply LoRA adapters",
        "Set another moe-backend in serve.args (marlin for a quantized model, triton for one in BF16), or "
        "remove enable-lora and merge the adapter into the model.",
        source="vllm/lora/layers/fused_moe.py",
    ),
    Cause(
        r"[Ll]o[Rr][Aa] .{0,32}(?:is not|not) (?:yet )?supported|is not supported for LoRA|No supported LoRA modules "
        r"found|does not support LoRA|To support LoRA for MoE model",
        "this vLLM cannot serve LoRA adapters with this model or these arguments",
        "Remove enable-lora and lora-modules from serve.args and merge the adapter into the model, or take a newer "
        "image.",
        source="vllm/lora/model_manager.py",
    ),
    Cause(
        r"Loading lora (\S{1,128}) failed",
        "the LoRA adapter {} cannot be loaded",
        "Correct lora-modules in serve.args: the path, and an adapter of this model.",
        source="vllm/lora/worker_manager.py",
    ),
)
MULTIMODAL: tuple[Cause, ...] = (
    Cause(
        r"max_tokens_per_mm_item \((\d{1,9})\) is larger than max_num_batched_tokens \((\d{1,9})\)",
        "one image, video or sound of this multimodal model is {0} tokens, and a step takes {1} "
        "(max-num-batched-tokens)",
        "Set max-num-batched-tokens in serve.args to {0} or more, or remove the kind with limit-mm-per-prompt.",
        source="vllm/v1/core/encoder_cache_manager.py",
    ),
    Cause(
        r"Chunked MM input (?:is required|disabled)|(?:mm_item|multimodal|encoder (?:cache"
        r"|budget)).{0,64}(?:is larger than|exceeds) .{0,32}max_num_batched_tokens",
        "one image, video or sound of this multimodal model is larger than max-num-batched-tokens",
        "Raise max-num-batched-tokens in serve.args, or remove the kind with limit-mm-per-prompt.",
        source="vllm/v1/core/encoder_cache_manager.py",
    ),
    Cause(
        r"Invalid `?--allowed-local-media-path`?: The path (\S{1,256})",
        "allowed-local-media-path names {}, which is no directory in the container",
        "Correct or remove allowed-local-media-path in serve.args.",
        source="vllm/multimodal/media/connector.py",
    ),
    Cause(
        r"Model class \S{1,64} has no registered multimodal processor|is not a multimodal model|The model is not "
        r"multimodal|for a non multimodal model",
        "an argument is for images, video or sound, and this vLLM serves the model with text only",
        "Remove limit-mm-per-prompt, mm-... and the like from serve.args.",
        source="vllm/multimodal/registry.py",
    ),
    Cause(
        r"renderer-num-workers > 1 with the multimodal|mm_tensor_ipc='torch_shm' is not|torch_shm is known to "
        r"fail|mm_shm_cache_max_object_size_mb|mm_encoder_\w{1,32} .{0,64}require",
        "a setting for images and videos does not go with another one, or with this system, as the message says",
        "Remove one of them from serve.args, as the message says (renderer-num-workers, mm-processor-cache-gb, "
        "mm-...).",
        source="vllm/config/multimodal.py",
    ),
    Cause(
        r"multimodal GGUF model|Could not find mm_proj file",
        "a multimodal GGUF file was given, without its mmproj file or the tokenizer of the original model",
        "Serve it with llama.cpp (engine: llama-cpp), or take the safetensors repository of the model (model.id).",
        source=MODEL,
    ),
)
KERNELS: tuple[Cause, ...] = (
    Cause(
        r"No valid attention backend found for \w{1,32} with "
        r".{0,300}kv_cache_dtype='?(?!auto|None)([\w.]{1,32})'?,.{0,512}kv_cache_dtype not supported",
        "no attention backend of this vLLM supports a KV cache of the type {} for this model on this GPU",
        "Set kv-cache-dtype in serve.args to auto or fp8, and remove attention-backend; or take a newer image.",
        source="vllm/platforms/cuda.py",
    ),
    Cause(
        r"No valid attention backend found for \w{1,32} with [^(]{0,64}\(?head_size=(\d{1,6}), dtype=([\w.]{1,32})",
        "no attention backend of this vLLM supports this model on this GPU (head size {0}, dtype {1}) with these "
        "arguments; the message names the reason of each",
        f"Remove kv-cache-dtype, block-size and dtype from serve.args. {BACKEND}",
        source="vllm/platforms/cuda.py",
    ),
    Cause(
        r"Selected backend (?:AttentionBackendEnum\.)?(\w{1,64}) is not valid for this configuration\. Reason: "
        r"(.{1,200})",
        "the attention backend {0}, which was chosen by hand, does not support this model or GPU: {1}",
        BACKEND,
        source="vllm/platforms/cuda.py",
    ),
    Cause(
        r"Unknown attention backend: '?(\w{1,64})|Invalid attention backend|Attention backend '?(\w{1,64})'? has been "
        r"removed|Backend (\S{1,64}) is not supported for vit attention",
        "this vLLM has no attention backend {0}{1}{2} (any more) for this use",
        BACKEND,
        source="vllm/v1/attention/backends/registry.py",
    ),
    Cause(
        r"(?:No (\S{1,16}) MoE backends? (?:supports|available)|no FlashInfer (\S{1,16}) MoE backend supports|No "
        r"supported (\S{1,16}) expert class)",
        "this vLLM has no kernel for experts (MoE) in {0}{1}{2} that serves this GPU with these arguments",
        MOE,
        source="vllm/model_executor/layers/fused_moe/oracle",
    ),
    Cause(
        r"(\S{1,16}) MoE backend '?([\w .-]{1,64}?)'? does not support the deployment configuration(?: since "
        r"(.{1,200}))?|moe_backend='?([\w-]{1,64})'?.{0,16} (?:is not supported for|does not support) (.{1,64})|MOE "
        r"backend .{1,64} does not support",
        "the kernel for experts (MoE) that was chosen by hand, {1}{3}, does not support this model or GPU {0} {2}{4}",
        MOE,
        source="vllm/model_executor/layers/fused_moe/oracle",
    ),
    Cause(
        REFUSAL + r"(?:Invalid compilation mode|[Ii]nvalid syntax '.{0,64}' for custom op|cudagraph_capture_sizes|"
        r"max_cudagraph_capture_size|compile_cache_save_format|encoder_cudagraph_\w{1,64})",
        "compilation-config or the sizes of the CUDA graphs have a value that vLLM refuses",
        "Correct or remove compilation-config, cudagraph-capture-sizes and max-cudagraph-capture-size in serve.args.",
        source="vllm/config/compilation.py",
    ),
    Cause(
        r"FlashInfer top-p/top-k sampling unavailable",
        "VLLM_USE_FLASHINFER_SAMPLER=1 is set, and the sampler of FlashInfer does not serve here",
        "Remove VLLM_USE_FLASHINFER_SAMPLER from serve.env.",
        source="vllm/v1/sample/ops/topk_topp_sampler.py",
    ),
    Cause(
        r"nvfp4 KV cache is not supported with MLA",
        "kv-cache-dtype is nvfp4, which does not serve models with latent attention (MLA)",
        "Set kv-cache-dtype in serve.args to fp8 or auto.",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"Invalid kv_cache_dtype: (\S{1,64})|Unknown TurboQuant cache dtype",
        "kv-cache-dtype has a value {} that this vLLM does not know",
        "Set kv-cache-dtype in serve.args to auto or fp8.",
        source="vllm/v1/attention/selector.py",
    ),
)
ARGUMENTS: tuple[Cause, ...] = (
    Cause(
        r"max_num_batched_tokens \((\d{1,9})\) must be greater than or equal to max_num_seqs \((\d{1,9})\)",
        "a step of {0} tokens (max-num-batched-tokens) cannot serve {1} sequences (max-num-seqs)",
        "Raise max-num-batched-tokens in serve.args to {1} or more, or lower max-num-seqs to {0} or less.",
        source="vllm/config/scheduler.py",
    ),
    Cause(
        r"max_num_batched_tokens \((\d{1,9})\) is smaller than max_model_len \((\d{1,9})\)",
        "chunked prefill is disabled, and a step takes {0} tokens (max-num-batched-tokens), less than max-model-len "
        "{1}",
        "Set max-num-batched-tokens in serve.args to {1} or more, remove no-enable-chunked-prefill, or lower "
        "max-model-len.",
        source="vllm/config/scheduler.py",
    ),
    Cause(
        REFUSAL + r"(long_prefill_token_threshold|max_num_partial_prefills|max_long_partial_prefills)",
        "{} has a value that does not go with the other settings of the scheduler",
        "Remove it from serve.args, or enable chunked prefill and correct the value.",
        source="vllm/config/scheduler.py",
    ),
    Cause(
        r"block_size \((\d{1,9})\) must be <= max_num_batched_tokens \((\d{1,9})\)",
        "the blocks of the cache of this hybrid (Mamba) model with prefix caching are of {0} tokens, more "
        "than max-num-batched-tokens {1}",
        "Set max-num-batched-tokens in serve.args to {0} or more, or set no-enable-prefix-caching.",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"mamba-block-size can only",
        "mamba-block-size is set without the cache mode that it belongs to (prefix caching)",
        "Remove mamba-block-size from serve.args, or set enable-prefix-caching.",
        source="vllm/config/cache.py",
    ),
    Cause(
        r"page size is not divisible by the maximum page size|[Pp]age sizes? .{0,64}cannot be (?:padded"
        r"|unified)",
        "the layers of the model have pages of the KV cache of different sizes (such as sliding-window and "
        "full attention), which vLLM cannot bring to one size with this type of cache and attention backend",
        "Remove kv-cache-dtype and block-size from serve.args (or set kv-cache-dtype to auto or fp8), take "
        "another attention-backend, or a newer image (image.vllm).",
        source="vllm/v1/core/kv_cache_utils.py",
    ),
    Cause(
        r"block_size ?\(?=?(\d{1,9})?\)? should be (?:greater|divisible)|No common block size for (\d{1,9})",
        "the block size of the KV cache {0}{1} does not go with another setting or with the attention "
        "backend, as the message says",
        "Remove block-size and attention-backend from serve.args, so that vLLM chooses both.",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"Invalid value '([^']{0,64})' (?:for|in) (\w{1,64})\. Valid options: \[?([^\]]{1,200})",
        "the environment variable {1} has the value {0}, which vLLM does not allow ({2})",
        "Correct {1} in serve.env, or remove it.",
        source="vllm/envs.py",
    ),
    Cause(
        r"VLLM_PORT '([^']{1,128})' (?:appears to be a URI|must be a valid integer)",
        "the environment variable VLLM_PORT has the value {}, an address (URI) or text in place of a number, as "
        "Kubernetes sets it for a service of the name vllm",
        "Set VLLM_PORT in serve.env to a number, or remove it; do not name a Kubernetes service vllm.",
        source="vllm/envs.py",
    ),
    Cause(
        r"Unknown vLLM environment variable detected: (\w{1,64})",
        "this vLLM does not know the environment variable {}",
        "Remove {} from serve.env, or take the release that has it (image.vllm).",
        source="vllm/envs.py",
    ),
    Cause(
        r"(?:^ValueError: |Value error, )(?:invalid literal for int\(\) with base 10: '([^']{0,64})'|could not convert "
        r"string to float: '([^']{0,64})')",
        "an environment variable of vLLM has the value {0}{1}, and the setting must be a number",
        "Correct or remove the VLLM_ variables in serve.env (such as VLLM_CPU_KVCACHE_SPACE) that shall be a number; "
        "the traceback names the one.",
        source="vllm/envs.py",
        beside=r"vllm/envs\.py|validation error for \w{1,32}Config",
    ),
    Cause(
        r"No such file or directory:? '?([^']{0,256})/(?:counter|gauge\w{0,16}|histogram|summary)_\d{1,9}\.db",
        "PROMETHEUS_MULTIPROC_DIR names the folder {}, which does not exist in the container",
        "Remove PROMETHEUS_MULTIPROC_DIR from serve.env, or name a folder that exists in the image.",
        source="prometheus_client/mmap_dict.py",
    ),
    Cause(
        r"libgomp: Thread creation failed: Invalid argument",
        "the threads of a worker could not be created as set: they are bound to CPU cores that the node or "
        "its container does not have, or their stack (OMP_STACKSIZE) is too large",
        "Correct or remove VLLM_CPU_OMP_THREADS_BIND (OMP_PLACES, GOMP_CPU_AFFINITY) and OMP_STACKSIZE in serve.env.",
        source="libgomp (team.c)",
    ),
    Cause(
        r"Resource temporarily unavailable \(src/thread\.cpp",
        "the container may not start another thread or process: its limit of processes (pids, nproc) is reached",
        "Raise the limit of pids of Docker and its nproc on the node (default-ulimits, --pids-limit), or stop other "
        "containers; then deploy again.",
        source="zmq (src/thread.cpp)",
    ),
    Cause(
        r"No such file or directory:? '?([^']{1,256}\.ya?ml)'",
        "the file that config in serve.args names, {}, does not exist in the container",
        "Remove config from serve.args and write its keys there, or correct its path.",
        source="vllm/utils/argparse_utils.py",
        beside=r"load_config_file|argparse_utils",
    ),
    Cause(
        r"[Ww]orld size \((\d{1,6})\) is larger than the number of available GPUs \((\d{1,6})\)",
        "{0} ranks were asked for on one node, which has {1} GPU",
        "Set serve.tensor_parallel, serve.pipeline_parallel and nodes of the recipe (one rank a node), and remove "
        "data-parallel-size from serve.args, or set serve.executor.",
        source="vllm/config/parallel.py",
    ),
    Cause(
        r"local_world_size \((\d{1,6})\) must be less than or equal to the number of visible devices "
        r"\((\d{1,6})\)|local rank (\d{1,6}) is out of bounds",
        "a node shall run {0} ranks, and its container has {1} GPU",
        "Set serve.tensor_parallel and nodes so that there is one rank a node, and check `gpu` of the node in the "
        "inventory (devices); then run `sparkops doctor`.",
        source="vllm/v1/worker/gpu_worker.py",
    ),
    Cause(
        r"must be divisible by ?nnodes|node_rank=\d{1,6} must be less than nnodes|nnodes > 1 (?:can only|is only)|must "
        r"be equal to the tensor_parallel_size|must be divisible by nnodes_within_dp",
        "the numbers of ranks and nodes do not go together (tensor, pipeline and data parallel against nnodes)",
        "Set serve.tensor_parallel, serve.executor and nodes of the recipe, and remove nnodes, node-rank and the "
        "parallel sizes from serve.args.",
        source="vllm/engine/arg_utils.py",
    ),
    Cause(
        r"[Nn]umber of experts in the model must be greater than 0|EP group is only created for MoE|Non-MoE models do "
        r"not support|not supported/useful for dense models",
        "expert or data parallel is set, and the model has no experts",
        "Remove enable-expert-parallel, enable-eplb and the data-parallel arguments from serve.args.",
        source=MODEL,
    ),
    Cause(
        REFUSAL + r"(?:EPLB|[Ee]lastic EP|num_redundant_experts)",
        "the balancing of experts (EPLB) does not go with the parallel sizes or the model",
        "Remove enable-eplb, eplb-config and num-redundant-experts from serve.args.",
        source="vllm/config/parallel.py",
    ),
    Cause(
        REFUSAL + r"(?:divisible by ?dcp|decode context parallel|dcp_comm_backend|dcp world size)",
        "decode-context-parallel-size does not go with tensor parallel or with the KV heads of the model",
        "Remove decode-context-parallel-size from serve.args.",
        source="vllm/config/parallel.py",
    ),
    Cause(
        REFUSAL + r"(?:data_parallel_\w{1,32}|data[ -]parallel (?:rank|size))",
        "the arguments for data parallel do not go together",
        "Remove the data-parallel arguments from serve.args; sparkops runs one engine a replica.",
        source="vllm/config/parallel.py",
    ),
    Cause(
        r"[Uu]n(?:recognized|known) distributed executor backend|Executor does not support|does not support async "
        r"scheduling|[Aa]sync scheduling is (?:not compatible|only supported)",
        "the executor or asynchronous scheduling does not go with the other arguments",
        "Set serve.executor to ray or mp, and remove distributed-executor-backend and async-scheduling from "
        "serve.args.",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"does not support `?--runner (\w{1,16})|Embedding models do not support|does not support any pooling "
        r"tasks|You can pass `--convert|No IOProcessor plugins",
        "the model does not serve the task that was asked for ({}): it generates text, or is a model for embeddings or "
        "ranking",
        "Set serve.task of the recipe (chat, embedding or rerank), and correct runner, convert and task in serve.args.",
        source=MODEL,
    ),
    Cause(
        r"(\S{1,64}) and (\S{1,64}) are mutually exclusive",
        "two arguments say the same and exclude each other: {0} and {1}",
        "Remove one of them from serve.args.",
        source="vllm/engine/arg_utils.py",
    ),
    Cause(
        REFUSAL
        + r"(?:kv_role|kv_connector|KV connector \S{1,64} is incompatible|ec_role|ec_connector|Unsupported connector)",
        "kv-transfer-config (the connector of the KV cache) is incomplete, or does not go with other settings",
        "Correct or remove kv-transfer-config in serve.args.",
        source="vllm/config/kv_transfer.py",
    ),
    Cause(
        REFUSAL
        + r"(?:[Ss]tochastic rounding for Mamba|Unknown Mamba SSU backend|[Mm]amba cache align|mamba_cache_mode)",
        "a setting of the Mamba layers does not serve this model or GPU",
        "Remove the mamba-... arguments from serve.args.",
        source="vllm/config/mamba.py",
    ),
    Cause(
        r"Model Runner V2 (?:requires|does not yet support|has not yet supported)",
        "the model runner V2, which VLLM_USE_V2_MODEL_RUNNER or this release chose, does not support these "
        "arguments or this model",
        "Remove VLLM_USE_V2_MODEL_RUNNER from serve.env, or set it to 0.",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"OpenTelemetry is not available|collect_detailed_traces requires",
        "traces were asked for, and the image lacks the packages of OpenTelemetry, or the endpoint is not set",
        "Remove otlp-traces-endpoint and collect-detailed-traces from serve.args, or add opentelemetry-sdk to "
        "image.packages.",
        source="vllm/config/observability.py",
    ),
    Cause(
        r"No tokenizer registered for tokenizer_mode=|No renderer registered|Unknown config format",
        "this vLLM does not know the tokenizer-mode or config-format of serve.args",
        "Set tokenizer-mode and config-format in serve.args to auto, or take a newer image.",
        source="vllm/tokenizers/registry.py",
    ),
    Cause(
        r"Invalid middleware|Failed to load LogitsProcessor plugin|is not a subclass of LogitsProcessor",
        "a plugin of the server (middleware, logits-processors) cannot be loaded",
        "Correct or remove middleware and logits-processors in serve.args.",
        source="vllm/entrypoints/openai/api_server.py",
    ),
    Cause(
        r"Input should be ((?:'[^']{0,32}'(?:, | or )?){1,16}).{0,256}input_value='?([^',\]]{0,64})'?, input_type",
        "a value of serve.args is none that vLLM allows: {1} (it knows {0})",
        "Correct the value in serve.args; the line above names its key.",
        source="pydantic, vllm/config",
    ),
    Cause(
        r"(?:Input should be (a valid \w{1,16}|\w{1,16} than.{0,32})|[Uu]nexpected keyword argument|Extra inputs are "
        r"not permitted|Unable to \w{1,16} input).{0,200}\[type=\w{1,64}, input_value='?([^',\]]{0,64})'?",
        "a key or value in a config of serve.args is not valid in this release of vLLM: {1} {0}",
        "Correct it in serve.args (such as speculative-config, compilation-config); the line above names its key.",
        source="pydantic, vllm/config",
    ),
    Cause(
        r"Invalid JSON string:|error: argument --([\w-]{1,64}).{0,64}: Value .{0,200}cannot be converted to",
        "the value of {} in serve.args cannot be read, such as a text in place of JSON or a number",
        "Correct {} in serve.args: a mapping makes JSON.",
        source="vllm/engine/arg_utils.py",
    ),
    Cause(
        r"unrecognized arguments: .{0,256}--(?:nnodes|node-rank|headless)\b",
        "the vLLM in the image of this node is of another, older release, which does not know the arguments for "
        "several nodes (--nnodes, --node-rank)",
        "Bring the same, newer image to each node (image.vllm, `sparkops build`, `sparkops recipe lock`), or set "
        "serve.executor to ray.",
        source="argparse",
    ),
    Cause(
        r"unrecognized arguments: "
        r".{0,128}--(guided-decoding-backend|task|enable-reasoning|use-v2-block-manager|num-scheduler-steps|swap-space|"
        r"enable-chunked-mm-input|disable-log-requests|device|override-neuron-config|worker-use-ray|speculative-model|"
        r"num-speculative-tokens|disable-frontend-multiprocessing)\b",
        "this release of vLLM no longer has the flag --{}, which was removed or renamed",
        "Remove {} from serve.args (structured-outputs-config took the place of guided-decoding-backend, "
        "speculative-config that of speculative-model, runner that of task), or take the release that has it.",
        source="argparse",
    ),
)
PORT: tuple[Cause, ...] = (
    Cause(
        r"^PermissionError: \[Errno 13\] (?:Permission denied$|error while attempting to bind)|\[Errno 13\] error "
        r"while attempting to bind on address",
        "the server may not bind its port: ports below 1024 are only for root (privileged), and it runs as another "
        "user",
        "Set serve.port to 1024 or more, and remove port from serve.args.",
        source="vllm/entrypoints/launcher.py, uvicorn",
        beside=r"sock\.bind|attempting to bind",
    ),
    Cause(
        r"\[Errno 98\] error while attempting to bind on address \('?([^',]{1,64})'?, (\d{1,6})\)|^OSError: \[Errno "
        r"98\] (?:Address already in use)",
        "another program of the node already uses the port of the API {1}",
        "Find it on the node with `sudo ss -ltnp` and stop it (an old container: docker ps), or change serve.port.",
        source="vllm/entrypoints/launcher.py, uvicorn",
        beside=r"create_server_socket|sock\.bind|error while attempting to bind|uvicorn",
    ),
    Cause(
        r"zmq\.error\.ZMQError: Address already in use",
        "another program of the node uses a port that vLLM chose for its own processes",
        "Stop other engines on the node, and deploy again; or set VLLM_PORT in serve.env to a free range.",
        source="zmq",
    ),
    Cause(
        r"\[Errno 99\] (?:error while attempting to bind|[Cc]annot assign requested address)",
        "the address that the server shall listen on (host, VLLM_HOST_IP) is none of this node's addresses",
        "Remove host from serve.args and VLLM_HOST_IP from serve.env, or correct the address of the node in the "
        "inventory (host, fabric).",
        source="Python (socket)",
    ),
    Cause(
        r"Timed out waiting for engine core processes to start",
        "the weights did not load within the time limit of vLLM (VLLM_ENGINE_READY_TIMEOUT_S): the disk is slow, the "
        "memory full, or another rank stands still",
        "Set VLLM_ENGINE_READY_TIMEOUT_S in serve.env to more seconds (and probe.startup.max_s), and look at the other "
        "rank: `sparkops logs SERVICE --node NODE`.",
        source="vllm/v1/engine/core_client.py",
        of_others=True,
    ),
    Cause(
        r"Did not receive response from front-end process",
        "this data-parallel engine got no answer from the API server of the head: data-parallel-address or "
        "data-parallel-rpc-port names another place than the head has, the head has ended, or a firewall "
        "drops the packets",
        "Compare the address in the line `Launching ... data parallel` of this log with that of the head, "
        "remove data-parallel-address and data-parallel-rpc-port from serve.args, look at the other rank "
        "(`sparkops logs SERVICE --node NODE`), and run `sparkops doctor`.",
        source="vllm/v1/engine/core.py",
    ),
    Cause(
        r"[Cc]onfiguration mismatch detected for engine",
        "the data-parallel engines of the nodes were started with other arguments or another release of vLLM "
        "than the head",
        "Bring the same image and recipe to each node (`sparkops build`), and look at the other rank: `sparkops logs "
        "SERVICE --node NODE`.",
        source="vllm/v1/engine/utils.py",
    ),
)
REFUSED: tuple[Cause, ...] = (
    *PARSERS,
    *SPECULATION,
    *LORA,
    *MULTIMODAL,
    *KERNELS,
    *CONFIGURATION,
    *ARGUMENTS,
    *PORT,
    Cause(
        r"Model architecture (\S{1,64}) was supported in vLLM until v([\w.]{1,32})",
        "vLLM has not served models of the architecture {0} since {1}",
        "Set image.vllm to {1} or older, or serve another model (model.id).",
        source="vllm/model_executor/models/registry.py",
    ),
    Cause(
        r"Model architecture (\S{1,64}) is not supported in-tree anymore\. Please install the plugin at "
        r"(https?://[\w./-]{1,200}\w)",
        "models of the architecture {0} need a plugin of vLLM that the image lacks: {1}",
        "Add the plugin to image.packages and run `sparkops build`.",
        source="vllm/model_executor/models/registry.py",
    ),
    Cause(
        r"Bfloat16 is only supported on GPUs with compute capability",
        "the GPU does not compute in bfloat16",
        "Set dtype in serve.args to float16.",
        source="vllm/platforms/cuda.py",
    ),
    invalid_choice("vLLM"),
)
"""What vLLM refuses, the more specific first."""
