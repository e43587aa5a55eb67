"""Known causes of a failed start of SGLang in its arguments and environment, with the next step: 0.4 to 0.5.23."""

from __future__ import annotations

from sparkops.engines.causes import Cause
from sparkops.engines.configuration import CONFIGURATION, invalid_choice

ARGS = "sglang/srt/server_args.py"
NO_DRAFT = "remove the speculative-... arguments from serve.args"
BACKEND = (
    "Remove attention-backend, prefill-attention-backend and decode-attention-backend from serve.args, so that SGLang "
    "chooses, or set attention-backend to one that the message names (triton, flashinfer)."
)
CAUSES: tuple[Cause, ...] = (
    Cause(
        r"[Cc]hat template (\S{1,300}) is not a built-in template name or a valid",
        "the file of the chat template, {}, does not exist in the container: its path is misspelt, or it is not "
        "mounted",
        "Correct chat-template in serve.args; a template in image.mods lies at /opt/sparkops/templates/NAME.jinja, one "
        "of the model below /models.",
        source="sglang/srt/managers/template_manager.py",
    ),
    Cause(
        r"[Cc]ompletion template (\S{1,300}) is not a built-in|unrecognized format of (?:chat|completion) template "
        r"file|Unknown (?:separator style|fim position)|Specified template '([^']{1,64})' not found",
        "the template {0}{1} does not exist, or has a format that SGLang does not read",
        "Correct chat-template or completion-template in serve.args: a .jinja file below /models or "
        "/opt/sparkops/templates, or a name that SGLang has.",
        source="sglang/srt/managers/template_manager.py",
    ),
    Cause(
        r"Unsupported model type: (\S{1,64})",
        "this SGLang does not know the reasoning parser {}: it has none of that name",
        "Set reasoning-parser in serve.args to a name that SGLang has (such as qwen3, deepseek-r1), or remove it.",
        source="sglang/srt/parser/reasoning_parser.py",
        beside=r"[Rr]easoning",
    ),
    Cause(
        r"Unsupported tool_call_parser: (\S{1,64})",
        "this SGLang does not know the tool parser {}: it has none of that name",
        "Set tool-call-parser in serve.args to a name that SGLang has, or remove it.",
        source="sglang/srt/function_call/function_call_parser.py",
    ),
    invalid_choice("SGLang"),
    Cause(
        r"requires at least one encoder urls|--encoder-only and "
        r"--(?:language-only|disaggregation)|--enable-prefix-mm-cache requires|is not supported for encoder "
        r"disaggregation",
        "language-only or encoder-only splits the model over servers and requires encoder-urls; it is no switch that "
        "skips the vision part",
        "Remove language-only (encoder-only) from serve.args, or set encoder-urls.",
        source=ARGS,
    ),
    Cause(
        r"KV4 \w{0,4} ?\w{3} expects (?:decode_)?attention_backend to be one of (.{1,128}?), but got (\w{1,32})",
        "a KV cache of the type fp4 does not go with the attention backend {1}; it requires one of {0}",
        "Set attention-backend in serve.args to one of these (triton), or kv-cache-dtype to fp8_e4m3 or auto.",
        source=ARGS,
    ),
    Cause(
        r"(?:TRTLLM|TensorRT-LLM|trtllm_mha|trtllm_mla|FlashAttention v3|FlashMLA|flashmla|cutlass_mla)\b.{0,64}(?:is "
        r"only supported on|only supports|can only be used|requires|is not supported)",
        "the attention backend that serve.args or the release chose does not serve this GPU, KV cache or model",
        BACKEND,
        source=ARGS,
        unless=r"topk",
    ),
    Cause(
        r"is required for (\w{1,64})(?: model)?,? but got|requires one of .{1,128} attention backend|does not support "
        r"triton attention backend|backend are the only supported backends on Blackwell|Invalid attention "
        r"backend|attention backends? (?:are|is) (?:only )?supported for|Please set it to 'dual_chunk|Cross attention "
        r"is not supported in",
        "the attention backend that serve.args chose does not serve this model {} or GPU",
        BACKEND,
        source=ARGS,
    ),
    Cause(
        r"(?:FP8 GEMM|block FP8|DeepGEMM(?: with swapAB| backend)?|MXFP8 (?:dense|MoE|quantization)).{0,32} "
        r"(?:requested via --fp8-gemm-backend=(\w{1,32})|requires)",
        "the FP8 kernel that serve.args chose, {}, does not run on this GPU or in this image",
        "Remove fp8-gemm-backend (fp8-gemm-runner-backend) from serve.args, or set it to auto, triton or cutlass.",
        source="sglang/srt/layers/quantization/fp8_utils.py",
    ),
    Cause(
        r"Invalid quantization '(\w{0,64})'\. FlashInfer|cutlass MoE is only supported with"
        r"|[Mm]oE (?:A2A )?(?:is|are) only supported|cutlass_fp8 MoE requires|MxInt4 only supports"
        r"|Unsupported runner backend|No Moe\w{1,32} member for value|Mo[Ee]PE? .{0,64}(?:runner backend"
        r"|a2a backend)|moe runner backend",
        "the kernel for experts (moe-runner-backend, moe-a2a-backend) does not go with the quantization of the model "
        "{} or the other arguments",
        "Remove moe-runner-backend and moe-a2a-backend from serve.args, or set moe-runner-backend to auto or triton.",
        source=ARGS,
    ),
    Cause(
        r"Unsupported kv_cache_dtype: (\S{1,64}?)\.?$|only supports? .{0,64}kv[-_]cache[-_]dtype|Using FP8 KV cache "
        r"and scaling factors",
        "the type of the KV cache {} does not serve this model or backend",
        "Set kv-cache-dtype in serve.args to auto or fp8_e4m3, and remove quantization-param-path.",
        source="sglang/srt/model_executor/model_runner.py",
    ),
    Cause(
        r"tp_size (?:\d{1,4} )?must be divisible by (?:number of "
        r"nodes|ep_size|attn_cp_size|moe_dp_size|dp_size)|ep_size \* moe_dp_size must|expert parallel size must be 1 "
        r"or",
        "the parallel sizes of SGLang do not go together: tp-size must be a multiple of the number of nodes, ep-size "
        "and dp-size",
        "Set serve.tensor_parallel and nodes of the recipe, and remove tp-size, ep-size, dp-size and nnodes from "
        "serve.args, or correct them.",
        source=ARGS,
    ),
    Cause(
        r"moe_intermediate_size (\d{1,9}) must be divisible by moe_tp_size \(?(\d{1,6})",
        "the width of the experts, {0}, cannot be split evenly over {1} ranks (tensor parallel)",
        "Set serve.tensor_parallel to a smaller number, or set ep-size in serve.args, which splits by whole experts.",
        source="sglang/srt/model_executor/model_runner.py",
    ),
    Cause(
        r"multi-node data parallel is not supported",
        "dp-size spreads plain data parallelism over several nodes, which SGLang does only with data-parallel "
        "attention",
        "Remove dp-size from serve.args, so that each replica is one server on its nodes behind the gateway, "
        "or set enable-dp-attention.",
        source=ARGS,
    ),
    Cause(
        r"enable dp attention when setting|Pipeline parallelism is not compatible with|two batch overlap, moe_"
        r"a2a_backend|PD-Multiplexing|context parallel(?:ism)? ",
        "the ways to split the work that serve.args sets (data, pipeline, expert or context parallel) do not "
        "go together or with this model, as the message says",
        "Remove the one that the message names from serve.args (dp-size, pp-size, enable-dp-attention and the like).",
        source=ARGS,
        unless=r"[Ww]arning",
    ),
    Cause(
        r"Unknown speculative algorithm(?: name)?:? ?'?(\S{1,64})'?|Speculative algorithm \S{1,64} does not support",
        "this SGLang does not know the speculative algorithm {} or cannot combine it with the other arguments",
        f"Set speculative-algorithm in serve.args to EAGLE, EAGLE3, NEXTN, STANDALONE or NGRAM, or {NO_DRAFT}.",
        source="sglang/srt/speculative/spec_info.py",
    ),
    Cause(
        r"topk ?=? ?1 for speculative|speculative_eagle_topk|[Ss]peculative decoding .{0,64}(?:not "
        r"(?:compatible|support)|is currently not|only supports)|speculative MoE|only compatible with NGRAM "
        r"speculative|required for speculative decoding|speculative_num_draft_tokens|standalone speculative|[Nn]gram "
        r"speculative decoding",
        "speculative decoding does not go with the other arguments, as the message says",
        f"Correct them in serve.args (speculative-eagle-topk 1, page-size 1, mamba-scheduler-strategy extra_buffer), "
        f"or {NO_DRAFT}.",
        source=ARGS,
        unless=r"[Ww]arning|will be (?:set|disabled)",
    ),
    Cause(
        r"(?:mamba|Mamba|linear-attn|GDN).{0,128}(?:not compatible|is not supported|requires|only supported|must "
        r"be|not available)",
        "a setting of the Mamba or linear attention layers does not go with this model, cache or GPU, or what "
        "it requires is missing, as the message says",
        "Remove the mamba-... and linear-attn-... arguments from serve.args, or set mamba-scheduler-strategy as the "
        "message says.",
        source=ARGS,
        unless=r"[Ww]arning|will be (?:set|disabled)",
    ),
    Cause(
        r"enable-hierarchical-cache and disable-radix-cache|enable-tokenizer-batch-encode "
        r"and|hicache-storage-backend|swa-full-tokens-ratio|radix cache to be disabled|requires "
        r"--disable-radix-cache|chunked_prefill_size must be divisible by page_size|schedule_policy must be|must be "
        r"divisible by page_size|requires chunked prefill",
        "two settings of the cache or the scheduler exclude each other, as the message says",
        "Remove one of them from serve.args (chunked-prefill-size a multiple of page-size, disable-radix-cache, "
        "enable-hierarchical-cache).",
        source=ARGS,
    ),
    Cause(
        r"No such file or directory:? '?([^']{1,256})/adapter_config\.json|Can't find 'adapter_config\.json' at '?([^' "
        r"]{1,256})",
        "the path of the LoRA adapter does not exist in the container, or has no adapter_config.json: {0}{1}",
        "Correct lora-paths in serve.args to a path below /models, where model_dir of the node is mounted, and put the "
        "adapter there on each node.",
        source="sglang/srt/lora/lora_config.py",
    ),
    Cause(
        r"LoRA adapter (\S{1,128}) with rank (\d{1,6}) is incompatible|contains target modules .{1,256} not included "
        r"in the specified",
        "the LoRA adapter {0} has a larger rank {1} or other target modules than the pool of adapters allows",
        "Raise max-lora-rank in serve.args, and set lora-target-modules to all.",
        source="sglang/srt/lora/lora_manager.py",
    ),
    Cause(
        r"need to specify both --max-lora-rank and --lora-target-modules|inferring LoRA target modules|does not "
        r"recognize target_modules",
        "LoRA is enabled, and SGLang cannot see which modules its adapters change",
        "Set max-lora-rank and lora-target-modules (all) in serve.args, or lora-paths.",
        source="sglang/srt/lora/lora_manager.py",
    ),
    Cause(
        r"added tokens are not supported yet|adapters that add tokens to the vocabulary|extra/added tokens",
        "the LoRA adapter adds tokens to the vocabulary, which SGLang does not serve",
        "Merge the adapter into the model, or remove it from lora-paths in serve.args.",
        source="sglang/srt/lora/lora_config.py",
    ),
    Cause(
        r"[Ff]ailed to load LoRA adapter:? ?(.{0,128})",
        "a LoRA adapter cannot be loaded: it is missing, damaged, of another model, or larger than the "
        "arguments allow ({})",
        "Correct lora-paths in serve.args: a path below /models with an adapter of this model; raise "
        "max-lora-rank if the message names a rank.",
        source="sglang/srt/lora/lora_manager.py",
    ),
    Cause(
        r"max_loaded_loras|max_loras_per_batch|max-loras-per-batch|max-lora-chunk-size|LoRA backend"
        r"|'lora_name' and 'lora_path'|--lora-paths",
        "the arguments for LoRA adapters are incomplete or do not go together",
        "Correct lora-paths, max-loras-per-batch, max-loaded-loras and lora-backend in serve.args.",
        source=ARGS,
        unless=r"invalid choice|unrecognized|[Ww]arning",
    ),
    Cause(
        r"served_model_name cannot contain a colon",
        "served-model-name has a colon, which SGLang reserves for adapters",
        "Correct or remove served-model-name in serve.args; sparkops takes the name of the service.",
        source=ARGS,
    ),
    Cause(
        r"Invalid modality '(\w{0,32})' in --limit-mm-data",
        "limit-mm-data-per-request names {}, which is no kind of input",
        "Correct it in serve.args: image, video, audio.",
        source=ARGS,
    ),
    Cause(
        r"No processor registered for architecture: \[?'?(\w{1,64})",
        "the processor of {} was left out, because the image's sgl-kernel lacks what it imports (FlashAttention 3)",
        "Take a newer image (image.use), whose sgl-kernel fits the GPU of a Spark, or set enable-multimodal false in "
        "serve.args to serve text only.",
        source="sglang/srt/managers/multimodal_processor.py",
        beside=r"Ignore import error when loading .{0,128}(?:FA3|flash_attn|sgl_kernel)",
    ),
    Cause(
        r"No processor registered for architecture: \[?'?(\w{1,64})|Cannot find corresponding multimodal processor",
        "this SGLang has no processor of images and videos for the model {}: it does not know it, or could "
        "not import it (then a line `Ignore import error` above names why)",
        "Take a newer image (image.use), or set enable-multimodal false in serve.args to serve text only.",
        source="sglang/srt/managers/multimodal_processor.py",
    ),
    Cause(
        r"\"([^\"]{0,64})\" is not a valid (boolean|integer|float) value",
        "an environment variable of SGLang has the value {0}, which is no {1}",
        "Correct or remove the SGLANG_ variables in serve.env.",
        source="sglang/srt/environ.py",
    ),
    Cause(
        r"[Ii]nvalid (?:grammar|sampling) backend:? ?'?(\w{0,32})|Unknown sampling backend '(\w{1,32})|Sampling seed "
        r"is not supported",
        "this SGLang does not know the grammar or sampling backend {0}{1}",
        "Remove grammar-backend and sampling-backend from serve.args.",
        source="sglang/srt/constrained/base_grammar_backend.py",
    ),
    Cause(
        r"is not supported by XGrammar|Failed to create XGrammar TokenizerInfo",
        "XGrammar does not know the kind of tokenizer that the model has",
        "Set grammar-backend in serve.args to llguidance or none.",
        source="sglang/srt/constrained/xgrammar_backend.py",
    ),
    Cause(
        r"^(?:Exception: )?([\w-]{1,64}) (?:is installed with version (\S{1,32}), which is less than|with) (?:the "
        r")?minimum required version (\S{1,32}?)(?: is not installed)?\.? ",
        "the package {0} in the image {1} is missing or older than this SGLang requires: {2}",
        "Set {0} to {2} in image.packages (image.override) and run `sparkops build`, or take the finished image of "
        "SGLang (image.use).",
        source="sglang/srt/utils/common.py",
    ),
    Cause(
        r"SSL (?:key|certificate|CA certificates) file not found|--ssl-\w{1,32} (?:requires|has no effect)",
        "the ssl-... arguments are incomplete, or a file that they name is missing in the container",
        "Remove the ssl-... arguments from serve.args; the gateway of sparkops serves TLS.",
        source=ARGS,
    ),
    Cause(
        r"Config file not found: (\S{1,256})|Config file must|Failed to read config file",
        "the file that config in serve.args names cannot be read: {}",
        "Remove config from serve.args and write its keys there.",
        source="sglang/srt/server_args_config_parser.py",
    ),
    Cause(
        r"modelopt_mixed is only supported|quantize_and_serve|ModelOpt(?:Fp8|MixedPrecision)Config only "
        r"supports|ModelOpt is not available|Only QUANT_CFG|Invalid quantization choice: '(\w{1,64})'",
        "serve.args asks for a quantization of ModelOpt that this checkpoint, image or model does not serve, "
        "as the message says",
        "Remove quantization, modelopt-... and quantize-and-serve from serve.args; the checkpoint names its method.",
        source="sglang/srt/configs/model_config.py",
    ),
    Cause(
        r"(?:Invalid|No valid) IB devices(?: specified)?:? ?(.{0,128})|No IB devices found|InfiniBand sysfs path not "
        r"found",
        "a device of RDMA that serve.args names is none of the node's: {}",
        "Correct or remove disaggregation-ib-device and mooncake-ib-device in serve.args; `sparkops doctor` lists the "
        "links.",
        source=ARGS,
    ),
    Cause(
        r"deterministic inference|--enable-(?:hisparse|nsa-prefill-context-parallel)|HiSparse requires|NSA "
        r".{0,32}backend",
        "a mode that serve.args enables (deterministic inference, sparse attention) does not serve this "
        "model, backend or GPU, as the message says",
        "Remove that flag from serve.args, or set attention-backend as the message says.",
        source=ARGS,
        unless=r"[Ww]arning|will be",
    ),
    *CONFIGURATION,
    Cause(
        r"could finish the model loading, but there are other ranks that didn't",
        "another rank did not finish loading the weights: it ended, its memory was full, or its disk is slow",
        "Look at the other rank: `sparkops logs SERVICE --node NODE`.",
        source="sglang/srt/model_executor/model_runner.py",
        of_others=True,
    ),
    Cause(
        r"[Ww]arm-?up error: .{0,256}|ProxyError|(?:AssertionError: )?res=<Response \[50[234]\]>",
        "the server's warm-up request to itself failed, such as when it goes to a proxy (HTTP_PROXY)",
        "Remove HTTP_PROXY and HTTPS_PROXY from serve.env (and for Docker on the node), or set NO_PROXY to "
        "localhost,127.0.0.1,0.0.0.0; or set skip-server-warmup in serve.args.",
        source="sglang/srt/entrypoints/http_server.py",
        beside=r"[Pp]roxy|res=<Response \[50[234]\]>",
    ),
    Cause(
        r"Weights are not ready after waiting (\d{1,9})",
        "the weights did not load within {} seconds: the disk is slow, or the memory full",
        "Set SGLANG_WAIT_WEIGHTS_READY_TIMEOUT in serve.env to more seconds (and probe.startup.max_s).",
        source="sglang/srt/entrypoints/http_server.py",
    ),
    Cause(
        r"\[Errno 98\] error while attempting to bind on address \('?([^',]{1,64})'?, "
        r"(\d{1,6})\)|zmq\.error\.ZMQError: Address already in use|Port is already in use\.|bootstrap_port (\d{1,6}) "
        r"is already in use",
        "another program of the node already uses a port that SGLang needs: {1}{2}",
        "Find it on the node with `sudo ss -ltnp` and stop it (an old container: docker ps), or change serve.port.",
        source="uvicorn, zmq, sglang/srt/server_args.py",
    ),
    Cause(
        r"\[Errno 99\] error while attempting to bind|[Cc]annot assign requested address",
        "the address that the server shall listen on (host, dist-init-addr) is none of this node's addresses",
        "Remove host from serve.args, or correct the address of the node in the inventory (host, fabric).",
        source="Python (socket)",
    ),
)
"""What SGLang refuses, the more specific first."""
