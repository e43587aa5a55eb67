"""Known causes of a failed start in the configuration, which vLLM and SGLang raise alike: one has code of the other."""

from __future__ import annotations

from sparkops.engines.causes import Cause

NEWER = "Take a newer image (image.vllm, or image.use with a newer tag) and run `sparkops build`"
OTHER_CHECKPOINT = "take another checkpoint of the model (model.id)"
FETCH = "Compare the files with `sparkops models verify` and fetch them again with `sparkops models pull`"
SPLIT = (
    "Set serve.tensor_parallel to a smaller number (1 splits nothing), split by layers instead "
    "(serve.pipeline_parallel), or take a checkpoint of another quantization (model.id)."
)
NAME = r"[\w.+-]{1,64}"
QUANTIZATION: tuple[Cause, ...] = (
    Cause(
        rf"Quantization method specified in the model config \(({NAME})\) does not match the quantization method "
        rf"specified in the .quantization. argument \(({NAME})\)",
        "the checkpoint is quantized with {0}, and serve.args asks for the quantization {1}",
        "Remove quantization from serve.args (the checkpoint names its method), or set it to {0}.",
        source="vllm/config/model.py",
    ),
    Cause(
        r"[Uu]nknown quantization method: ?(?:\.|''|None|$)",
        "config.json of the model has a quantization without a method, as converters for other programs (MLX) write it",
        "Take a checkpoint that is quantized for this engine (AWQ, GPTQ, FP8, NVFP4, compressed-tensors): model.id.",
        source="vllm/config/model.py",
    ),
    Cause(
        rf"(?:[Uu]nknown|[Ii]nvalid) quantization(?: method)?:? ['\"]?(?!type|choice|scheme)({NAME})",
        "this release of the engine does not know the quantization method {}, which the checkpoint or serve.args names",
        f"Correct or remove quantization in serve.args. {NEWER}, or {OTHER_CHECKPOINT}.",
        source="vllm/config/model.py",
    ),
    Cause(
        rf"(?:torch\.)?({NAME}) is not supported for quantization method ({NAME})\. "
        r"Supported dtypes: \[([^\]]{1,256})\]",
        "the kernels of the quantization {1} compute in {2} only, and the dtype is {0}",
        "Set dtype in serve.args to one of these, or remove quantization from serve.args, so that the engine chooses "
        "the kernel itself (for AWQ awq_marlin).",
        source="vllm/config/vllm.py",
    ),
    Cause(
        r"[Qq]uantization (?:method|scheme) ?([\w +-]{0,64}?) ?is not supported for[ ',]{0,8}the current GPU\.[ "
        r"',]{0,8}(?:Min(?:imum)? (?:required )?|Required )capability: (\d{1,4})",
        "the kernels of the quantization {0} of this checkpoint need a GPU of compute capability {1}, which this GPU "
        "is not for this release",
        f"{NEWER}, or take a checkpoint of another quantization (model.id).",
        source="vllm/config/vllm.py, vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py",
    ),
    Cause(
        r"Current platform (?:\w{1,32} )?does not support (?:w4a4 )?(\w{1,16}) quantization|(\w{1,16}) quantization is "
        r"currently not supported in ",
        "this release has no kernel of the quantization {0}{1} for this GPU",
        f"{NEWER}, or take a checkpoint of another quantization (model.id).",
        source="sglang/srt/layers/quantization/modelopt_quant.py",
    ),
    Cause(
        r"The (?:input|output) size is not aligned with the quantized weight shape",
        "split over the ranks, a layer of this quantized checkpoint has a size that is no multiple of its groups: "
        "serve.tensor_parallel is too large for it, or the checkpoint has an odd size",
        SPLIT,
        source="vllm/model_executor/layers/quantization/awq.py",
    ),
    Cause(
        r"([\w ']{1,64}) = (\d{1,9}) is not divisible by (?:weight quantization )?"
        r"(min_thread_\w{1,8}|group_?size|block_\w{1,8}|pack_?factor|tile_\w{1,8})(?: = (\d{1,9}))?",
        "the quantization of this checkpoint works in blocks ({2} {3}), and {0} = {1} (of one rank, where "
        "tensor parallel splits it) is no multiple of a block",
        SPLIT,
        source="vllm/model_executor/layers/quantization/utils/fp8_utils.py",
    ),
    Cause(
        r"MXFP8 \w{0,16} ?requires \w{1,64} ?\(?\w{0,64}\)?.{0,64} divisible by|ModelOpt FP8_PB_WO "
        r"requires|Unsupported model:? (?:when in features|input feature) size is not (?:a )?multiple of 16|Online "
        r"MXFP8 MoE requires|must be divisible by (?:the )?group[ _]size|For quantized MoE models, please make "
        r"sure|_per_partition=?\w{0,20} must be divisible by \d",
        "a layer (or the part of it that a rank of tensor parallel has) has a size that is no multiple of the "
        "blocks of the checkpoint's quantization",
        SPLIT,
        source="vllm/model_executor/layers/quantization/modelopt.py, sglang/srt/model_executor/model_runner.py",
    ),
    Cause(
        r"Found a different quantization (?:schemes|configuration) for|requires consistent quant config for|Detected "
        r"some but not all shards of|Mixed quant_algo within fused layer|All MoE projections need to have same "
        r"quantization scheme",
        "the checkpoint quantizes parts of one layer differently (such as q_proj and k_proj), and this engine merges "
        "these parts into one",
        f"Take a checkpoint that was quantized for this engine (model.id). {NEWER}, if it supports the mixture.",
        source="vllm/model_executor/layers/quantization/compressed_tensors/utils.py",
    ),
    Cause(
        r"ModelOpt currently only supports: \[([^\]]{1,256})\]|Unknown ModelOpt quant algo:? ?'?(\w{0,64})",
        "the checkpoint was quantized by ModelOpt with an algorithm {1} that this release of the engine "
        "cannot read; it knows {0}",
        f"{NEWER}, or {OTHER_CHECKPOINT} in NVFP4 or FP8 (quant_algo of hf_quant_config.json).",
        source="vllm/model_executor/layers/quantization/modelopt.py",
    ),
    Cause(
        r"No (?:compressed-tensors|quark|modelslim) compatible scheme was found|Unsupported FusedMoe "
        r"scheme|Unsupported quantization config: bits=|Unsupported "
        r"(?:weight_bits|num_bits|data_type|packing_format)[: =]|only \S{1,16}bit weight quantization is supported|For "
        r"(?:FP8|INT8|NVFP4)\b[^.]{0,64}(?:we require|must also)|MoEMethod only supports|INC quantization with "
        r"bits=|Unsupported GGUF quantization type|is not supported for (?:AWQ|GPTQ)|only supports: \w{1,16}, \w{1,16} "
        r"quantizations|Unsupported ModelOpt",
        "this release of the engine does not serve the checkpoint's variant of quantization (its bits, "
        "groups, data type or format), as the message says",
        f"{NEWER}, or {OTHER_CHECKPOINT} with a usual quantization (FP8, NVFP4, AWQ or GPTQ with 4 bits).",
        source="vllm/model_executor/layers/quantization/compressed_tensors/compressed_tensors.py",
    ),
    Cause(
        r"Cannot find the config file for (\w{1,64})|Cannot find any of \[[^\]]{1,256}\] in the model's quantization "
        r"config|(?:Missing|Cannot find) 'quant_algo' in|NVFP4 quantization requires (?:the following "
        r"fields|group)|Model quantization method is not specified in the config|No group_size found in "
        r"config|quantization was selected[,;] (?:but checkpoint|dynamic quantization)|only supports "
        r"\S{1,16}-serialized checkpoint",
        "serve.args asks for a quantization {}, whose settings the checkpoint does not have: it is not quantized that "
        "way, or its quantization config (config.json, hf_quant_config.json) is missing",
        f"Remove quantization from serve.args. {FETCH}, or take a checkpoint that is quantized so (model.id).",
        source="vllm/model_executor/model_loader/weight_utils.py",
    ),
    Cause(
        r"Found multiple config files for (\w{1,64})|Config list contains configs from 2 methods",
        "the directory of the model has quantization settings of two methods",
        f"{FETCH} into an empty directory (--replace).",
        source="vllm/model_executor/model_loader/weight_utils.py",
    ),
    Cause(
        r"does not support BitsAndBytes quantization yet|BitsAndBytes loader does not support|vLLM currently does not "
        r"support BNB quantization",
        "this release cannot load this model with the quantization bitsandbytes",
        f"Remove quantization and load-format bitsandbytes from serve.args, or {OTHER_CHECKPOINT} in FP8, AWQ or "
        f"NVFP4.",
        source="vllm/model_executor/model_loader/bitsandbytes_loader.py",
    ),
    Cause(
        r"[Pp]requant BitsAndBytes.{0,32} (?:models with (?:TP|tensor parallelism)|8bit models)",
        "a checkpoint that is quantized with bitsandbytes cannot be split over ranks (tensor parallel), nor one with 8 "
        "bits and experts be loaded",
        "Set serve.tensor_parallel to 1, split by layers (serve.pipeline_parallel), or take a checkpoint of another "
        "quantization (model.id).",
        source="vllm/model_executor/model_loader/bitsandbytes_loader.py",
    ),
    Cause(
        r"_C::(\w{1,64})\(\) expected at most 0 argument",
        "the engine's kernels in this image were built without {} (an empty stub): they do not support this "
        "quantization (FP8, FP4) on this device",
        f"Remove quantization from serve.args, or {OTHER_CHECKPOINT} that needs no such kernel. {NEWER}, whose build "
        f"has it.",
        source="vllm/_custom_ops.py",
    ),
    Cause(
        r"fp8_e5m2 kv-cache is not supported with fp8 checkpoints",
        "the KV cache is set to the type fp8_e5m2, which this engine does not use with an FP8 checkpoint",
        "Set kv-cache-dtype in serve.args to fp8 (fp8_e4m3) or auto.",
        source="vllm/model_executor/layers/attention/attention.py",
    ),
    Cause(
        r"Only support per-tensor scaling factor ?for fp8|supported kv cache quantization is|compressed-tensors KV "
        r"cache|does not support loading scaling factors",
        "the checkpoint carries scales for a quantized KV cache in a form that this release does not read",
        "Set kv-cache-dtype in serve.args to auto or bfloat16, or take a newer image or another checkpoint (model.id).",
        source="vllm/model_executor/layers/quantization/kv_cache.py",
    ),
    Cause(
        r"The model type '?([\w-]{1,64})'? does not support float16",
        "models of the type {} compute wrongly in float16, and the dtype is float16",
        "Set dtype in serve.args to bfloat16, or remove it.",
        source="vllm/config/model.py",
    ),
    Cause(
        r"Unknown dtype: (\S{1,64})",
        "the engine does not know the dtype {}, which serve.args or config.json names",
        "Set dtype in serve.args to auto, bfloat16 or float16.",
        source="vllm/config/model.py",
    ),
)
PARALLEL: tuple[Cause, ...] = (
    Cause(
        r"[Tt]otal number of attention heads \((\d{1,9})\) must be divisible by tensor parallel size \((\d{1,9})\)",
        "the {0} attention heads of the model cannot be split evenly over {1} ranks (tensor parallel)",
        "Set serve.tensor_parallel (and nodes) to a divisor of {0}, or split by layers: serve.pipeline_parallel.",
        source="vllm/config/model.py",
    ),
    Cause(
        r"^(?:AssertionError: )?(\d{1,9}) is not divisible by (\d{1,9})$",
        "a size of the model, {0} (its heads or the width of a layer), is no multiple of {1}, most likely the "
        "number of ranks that it is split over (tensor parallel)",
        "Set serve.tensor_parallel (and nodes) to a divisor of {0}, or split by layers: serve.pipeline_parallel.",
        source="vllm/distributed/utils.py",
    ),
    Cause(
        r"Pipeline parallelism is not supported for this model|Pipeline Parallel is not compatible with this model|PP "
        r"is not compatible with MTP",
        "this release cannot split this model by layers (pipeline-parallel-size)",
        "Remove serve.pipeline_parallel, and set serve.tensor_parallel to the number of nodes.",
        source="vllm/config/model.py",
    ),
    Cause(
        r"sum\(partitions\)=(\d{1,9}) does not match num_hidden_layers=(\d{1,9})|len\(partitions\)=(\d{1,9}) does not "
        r"match pp_size=(\d{1,9})|Invalid partition string",
        "the partition of the layers that the environment sets does not match the layers or the ranks of the model",
        "Correct or remove VLLM_PP_LAYER_PARTITION (SGLANG_PP_LAYER_PARTITION) in serve.env: one number a rank, which "
        "sum up to the layers of the model.",
        source="vllm/distributed/utils.py",
    ),
)
WEIGHTS: tuple[Cause, ...] = (
    Cause(
        r"Model architectures \[([^\]]{1,256})\] are not supported for now",
        "this release of the engine has no code for models of the architecture {}",
        f"{NEWER}; the model's page names the first release that serves it. Or serve another model (model.id).",
        source="vllm/model_executor/models/registry.py",
    ),
    Cause(
        r"Model architectures? \[?([^\]\s]{1,256}?)\]? failed to be inspected",
        "the engine's own code for the architecture {} cannot be imported in this image: a package that it needs is "
        "missing or of another version, as an error above says",
        f"Correct the packages (image.packages, image.override). {NEWER}.",
        source="vllm/model_executor/models/registry.py",
    ),
    Cause(
        r"Transformers implementation (?:of \S{1,128} )?is not compatible with|Cannot find model module\. |loading the "
        r"custom model from auto_map failed",
        "this release of the engine has no code for the model's architecture, and that of Transformers (or the model's "
        "own) does not serve instead",
        f"{NEWER}. For a model with code of its own set trust-remote-code in serve.args.",
        source="vllm/model_executor/models/registry.py, sglang/srt/model_loader/utils.py",
    ),
    Cause(
        r"No model architectures are specified",
        "config.json of the model names no architecture: it is incomplete, or belongs to no complete model (an "
        "adapter, a part)",
        f"{FETCH}, or set model.id to the repository of the whole model.",
        source="vllm/model_executor/models/registry.py",
    ),
    Cause(
        r"Cannot find any (?:safetensors )?model weights with .([^`'\"]{1,256})|No model weights found in: "
        r".([^`'\"]{1,256})|Error no file named .{1,256} found in directory ([^`'\"\s]{1,256})",
        "the directory {0}{1}{2} has no files of weights (.safetensors): an incomplete download, or weights in another "
        "format than load-format asks for",
        f"{FETCH}. Remove load-format from serve.args; serve a GGUF file with llama-cpp.",
        source="vllm/model_executor/model_loader/default_loader.py",
    ),
    Cause(
        r"Could not find checkpoint files '([^']{1,256})', only pre-sharded checkpoints",
        "load-format sharded_state finds no weights that were saved for these ranks ({})",
        "Remove load-format from serve.args, or save the checkpoint for this serve.tensor_parallel.",
        source="vllm/model_executor/model_loader/sharded_state_loader.py",
    ),
    Cause(
        r"Unknown load_format: (\S{1,64})|Load format .(\S{1,64}?). is not supported|Invalid load format",
        "the engine does not know the load-format {0}{1} of serve.args",
        "Remove load-format from serve.args, or set it to auto or safetensors.",
        source="vllm/model_executor/model_loader/__init__.py",
    ),
    Cause(
        r"Please install (fastsafetensors|instanttensor|gguf|tensorizer|runai[\w-]{1,32}) via|Please install "
        r"vllm\[(runai|tensorizer|fastsafetensors)\]",
        "load-format of serve.args needs the package {0}{1}, which the image does not have",
        "Remove load-format from serve.args, or add the package to image.packages and run `sparkops build`.",
        source="vllm/model_executor/model_loader/weight_utils.py",
    ),
    Cause(
        r"(?:Attempted to load weight \(|Tried to load weights? of size )(?:torch\.Size\()?\[?([\d, ]{0,64})\]?\)?\)? "
        r"?(?:in)?to (?:a )?parameter",
        "a weight of the checkpoint has another shape ({}) than the model that config.json describes: the files belong "
        "to different models or quantizations, or this release does not know this variant",
        f"{FETCH}; remove hf-overrides and quantization from serve.args, or take a newer image.",
        source="vllm/model_executor/model_loader/weight_utils.py",
    ),
    Cause(
        r"size mismatch for (\S{1,256}): copying a param|The size of tensor a \(\d{1,12}\) must match the size of "
        r"tensor b",
        "a weight of the checkpoint {} has another shape than the model that config.json describes: the files belong "
        "to different models or quantizations, or this release does not know this variant",
        f"{FETCH}; remove hf-overrides and quantization from serve.args, or take a newer image.",
        source="torch",
        beside=r"weight_loader|load_weights|loaded_weight|load_state_dict|loading state_dict",
    ),
    Cause(
        r"^AssertionError:?$",
        "a weight of the checkpoint has another shape than the model that config.json describes: the files belong to "
        "different models or quantizations, this release does not know this variant (its bits), or the size cannot be "
        "split over the ranks",
        f"{FETCH}; remove hf-overrides and quantization from serve.args, take a newer image, or lower "
        f"serve.tensor_parallel.",
        source="vllm/model_executor/layers/linear.py",
        beside=r"assert (?:param_data|param|self\.data|param\.data)\.(?:shape|size\(\)) == "
        r"loaded_weight\.(?:shape|size)",
    ),
    Cause(
        r"'(\w{0,64}(?:Linear|FusedMoE|Experts|Embedding|LMHead))' object has no attribute '(\w{1,64})'",
        "this release's code of the model uses {1} of a layer ({0}), which a quantized layer does not have: it does "
        "not serve this quantization of the model",
        f"{NEWER}, or {OTHER_CHECKPOINT}, such as one that is not quantized.",
        source="vllm/model_executor/models, sglang/srt/models",
    ),
    Cause(
        r"There is no module or parameter named '?([\w.]{1,256})'? in|Parameter (\S{1,256}) not found in the model",
        "the checkpoint has a weight {0}{1} that this release's code of the model does not know: the release is too "
        "old for the checkpoint or its quantization, or the checkpoint is of another kind (an adapter)",
        f"{NEWER}, or {OTHER_CHECKPOINT}.",
        source="vllm/model_executor/models/utils.py",
    ),
    Cause(
        r"[Ww]eights were not initialized from checkpoint|Missing keys \(.{1,256} in loaded state",
        "the checkpoint lacks weights that the model needs: files are missing, or it was saved in a form that this "
        "release does not know",
        f"{FETCH}. {NEWER}, or {OTHER_CHECKPOINT}.",
        source="vllm/model_executor/model_loader/default_loader.py",
    ),
    Cause(
        r"KeyError: "
        r"'(?:\w{1,64}\.){1,16}(?:weight|bias|qweight|qweight_type|qzeros|scales|g_idx|weight_scale\w{0,8}|"
        r"weight_packed|input_scale|w13_\w{1,32}|w2_\w{1,32}|[kv]_scale)'",
        "the checkpoint has a weight that this release's code of the model does not know: the release is too old for "
        "the checkpoint or its quantization, or config.json and weights belong to different models",
        f"{NEWER}. {FETCH}, or {OTHER_CHECKPOINT}.",
        source="vllm/model_executor/models (load_weights)",
    ),
    Cause(
        r"start \(\d{1,12}\) \+ length \(\d{1,12}\) exceeds dimension size \((\d{1,12})\)",
        "a weight of the checkpoint is smaller ({}) than its part for each rank should be: config.json or hf-overrides "
        "belong to another model, or the size cannot be split so",
        f"{FETCH}; remove hf-overrides from serve.args, or lower serve.tensor_parallel.",
        source="torch (narrow), vllm/model_executor/parameter.py",
    ),
    Cause(
        r"Unknown RoPE scaling type,? ?(.{0,64})",
        "the engine does not know the type of RoPE scaling that config.json or hf-overrides names: {}",
        "Correct rope_type in hf-overrides (json-model-override-args) of serve.args, such as yarn, linear, dynamic or "
        "llama3; or take a newer image if the model needs it.",
        source="vllm/model_executor/layers/rotary_embedding/__init__.py",
    ),
)
CONFIGURATION: tuple[Cause, ...] = (*QUANTIZATION, *PARALLEL, *WEIGHTS)
"""The more specific first."""


def invalid_choice(engine: str) -> Cause:
    """Return the cause where argparse refuses a value that is none of a list."""
    return Cause(
        r": error: argument (?:-\w{1,8}/)?--([\w-]{1,64})(?:/[^:]{1,128})?: invalid choice: '?([^' ]{0,64})'? \(choose "
        r"from ('?[^,()' ]{1,40}'?(?:, '?[^,()' ]{1,40}'?){0,60})",
        f"this {engine} does not know {{1}}, the value of {{0}}: it has no such name; it knows {{2}}",
        "Set {0} in serve.args to a name of this list.",
        source="argparse",
    )
