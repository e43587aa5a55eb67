"""Known causes of failed starts: safetensors and other files of weights."""

from __future__ import annotations

from sparkops.engines.causes import Cause

RUST = "safetensors (src/tensor.rs)"
AGAIN = (
    "Find the damaged file with `sparkops models verify` (`ls -l` on the node shows its size), remove it, and fetch it "
    "again with `sparkops models pull`, or copy it from another node with `sparkops models copy`."
)
POINTER = (
    "Fetch the files again with `sparkops models pull` (or `git lfs pull` in a clone); `ls -l` on the node shows files "
    "of some hundred bytes."
)
SAFETENSORS = r"[Ss]afetensor|deserializing header"

READING = r"safe_open|safetensors_weights_iterator|load_weights|weight_utils\.py|loader\.py|prefetch"
"""Frames of a program that reads weights."""

CAUSES: tuple[Cause, ...] = (
    Cause(
        r"Weight files referenced in index but missing: \{([^}]{1,256})",
        "the model on the node is incomplete: a shard that its index names is missing ({})",
        "`sparkops models verify` shows what a node lacks; sparkops models pull (or models copy) completes it.",
        source="vllm/model_executor/model_loader/default_loader.py",
    ),
    Cause(
        r"^AssertionError$",
        "the weights and config.json are not of one model: the embedding in the files has another size than vocab_size",
        "Take config.json and weights from one repository: sparkops models verify, then sparkops models pull.",
        source="vllm/model_executor/layers/vocab_parallel_embedding.py",
        beside=r"assert loaded_weight\.shape\[output_dim\] == self\.org_vocab_size",
    ),
    Cause(
        r"[Hh]eader ?[Tt]oo ?[Ll]arge",
        "a .safetensors file of the weights has no valid header: it is damaged, or a Git LFS pointer (a text) in place "
        "of the weights",
        POINTER,
        source=RUST,
    ),
    Cause(
        r"[Hh]eader ?[Tt]oo ?[Ss]mall",
        "a .safetensors file of the weights is empty or has less than 8 bytes: an incomplete download or copy",
        AGAIN,
        source=RUST,
    ),
    Cause(
        r"[Mm]etadata ?[Ii]ncomplete ?[Bb]uffer|incomplete metadata, file not fully covered",
        "a .safetensors file of the weights is truncated or incomplete: it is shorter than its header says, since the "
        "download or copy broke off",
        AGAIN,
        source=RUST,
    ),
    Cause(
        r"(?i)invalid ?header ?length",
        "a .safetensors file of the weights ends before its header does: it is truncated, an incomplete download or "
        "copy",
        AGAIN,
        source=RUST,
    ),
    Cause(
        r"(?i)invalid ?header(?: ?start|deserialization)|invalid (?:JSON|UTF-8) in header|Error while deserializing "
        r"header: (?:invalid|Invalid)",
        "the header of a .safetensors file of the weights is damaged: the download or copy is incomplete or corrupt, "
        "or the file holds something else",
        AGAIN,
        source=RUST,
    ),
    Cause(
        r"(?i)(?:safetensor|header).{0,128}(?:invalid ?offset|tensor ?invalid ?info|invalid shape, data "
        r"type|validation ?overflow|misaligned ?slice)",
        "a .safetensors file of the weights is damaged, or was written by a newer release with a data type that this "
        "one does not know",
        AGAIN,
        source=RUST,
    ),
    Cause(
        r"unknown variant `(\w{1,32})`, expected one of|(?:KeyError|AttributeError): "
        r".{0,64}'?(F8_E8M0|F4|F8_\w{1,8})'?$",
        "the safetensors library in the image is too old for the data type {0}{1} of the weights",
        "Add a newer safetensors to image.packages, or take a newer image (image.vllm, image.use), and run `sparkops "
        "build`.",
        source=RUST,
        beside=SAFETENSORS,
    ),
    Cause(
        r"^(?:\w{1,64}\.)?(?:SafetensorError|safetensors_rust\.SafetensorError): .{0,64}Error while deserializing",
        "a .safetensors file of the weights is damaged or incomplete",
        AGAIN,
        source=RUST,
    ),
    Cause(
        r"File does not contain tensor (\S{1,256})",
        "the index of the model (model.safetensors.index.json) names a weight {} that its file does not have: index "
        "and files belong to different versions of the model",
        "Compare the files with `sparkops models verify` and fetch them again with `sparkops models pull` (--replace).",
        source=RUST,
    ),
    Cause(
        r"^(?:\w{1,64}\.){0,4}error: unpack requires a buffer of 8 bytes",
        "a .safetensors file of the weights is empty (or has less than 8 bytes): an incomplete download or copy",
        AGAIN,
        source="vllm (reads the header of the file itself)",
        beside=SAFETENSORS,
    ),
    Cause(
        r"^MemoryError\b|^(?:OverflowError|struct\.error)\b",
        "a .safetensors file of the weights has an absurd length in its header: it is damaged or incomplete, or a Git "
        "LFS pointer (a text) in place of the weights",
        POINTER,
        source="vllm (reads the header of the file itself)",
        beside=r"f\.read\(length_of_metadata|length_of_metadata|parse_safetensors_file_metadata",
    ),
    Cause(
        r"^(?:json\.decoder\.JSONDecodeError|UnicodeDecodeError): ",
        "the header of a .safetensors file of the weights is damaged: the file is incomplete, or holds something else",
        AGAIN,
        source="vllm (reads the header of the file itself)",
        beside=r"length_of_metadata|parse_safetensors_file_metadata",
    ),
    Cause(
        r"^(?:json\.decoder\.JSONDecodeError|UnicodeDecodeError): ",
        "the index of the weights (model.safetensors.index.json) is damaged, empty or a Git LFS pointer in place of "
        "the file",
        "Fetch the files again with `sparkops models pull` (or `git lfs pull` in a clone).",
        source="vllm/model_executor/model_loader/weight_utils.py",
        beside=r"filter_duplicate_safetensors_files|weight_map|index_file|json\.load\(f\)\[.weight_map.\]",
    ),
    Cause(
        r"NotASafetensorsRepoError|SafetensorsParsingError",
        "the model's repository has no readable weights in the format safetensors",
        "Set model.id to a repository with .safetensors files, and fetch it with `sparkops models pull`.",
        source="huggingface_hub/utils/_safetensors.py",
    ),
    Cause(
        r"No such file or directory:? .{0,300}\.(?:safetensors|bin|pt|pth)\b",
        "a file of the weights is missing on this node, which the index of the model names: an incomplete download or "
        "copy, or a link into a cache that is not mounted",
        "Compare the files with `sparkops models verify` and fetch those that are missing with `sparkops models pull`, "
        "or copy them from another node with `sparkops models copy`.",
        source="safetensors, vllm/model_executor/model_loader/weight_utils.py",
        unless=r"adapter_model|lora",
    ),
    Cause(
        r"Permission denied.{0,300}(?:\.(?:safetensors|bin|model|gguf|jinja)\b|(?:config"
        r"|tokenizer|\.index|vocab|tekken|params)\.json\b)",
        "the user of the container may not read a file of the model",
        "Let every user read it: `sudo chmod -R a+rX` on the directory of the model (below model_dir of the node).",
        source="safetensors, Python",
        unless=r"config\.json\.tmp|/dev/|\.cache|models--|\.locks",
    ),
    Cause(
        r"Stale (?:NFS )?file handle|os error 116\b",
        "the network share (NFS) with the weights is stale on this node: a file was replaced or the export "
        "changed on the server while it was mounted",
        "Mount the share again on the node (sudo umount -f -l, sudo mount) and deploy again, or bring the "
        "model to a local disk (model_dir) with `sparkops models pull`.",
        source="the kernel: ESTALE",
        beside=READING,
    ),
    Cause(
        r"Transport endpoint is not connected|os error 107\b",
        "the program of the network or FUSE mount with the weights has ended on this node",
        "Mount it again on the node (sudo umount -l, sudo mount) and deploy again, or bring the model to a "
        "local disk (model_dir) with `sparkops models pull`.",
        source="the kernel: ENOTCONN",
        beside=READING,
    ),
    Cause(
        r"^OSError: No such device \(os error 19\)|unable to mmap \d{1,20} bytes from file <[^>]{1,300}>: No s"
        r"uch device",
        "the file system with the weights (a FUSE or network mount) cannot map files into memory (mmap), as "
        "safetensors needs",
        "Bring the model to a local disk (model_dir) with `sparkops models pull`, or mount the share with an "
        "option that allows mmap (mergerfs: cache.files=partial).",
        source="the kernel: ENODEV",
        beside=READING,
    ),
    Cause(
        r"^(?:OSError|PermissionError): .{0,64}Permission denied \(os error 13\)",
        "the user of the container may not read a file of the weights",
        "Let every user read it: `sudo chmod -R a+rX` on the directory of the model (below model_dir of the node).",
        source="the kernel: EACCES",
        beside=READING,
    ),
    Cause(
        r"Input/output error|os error 5\)|Bus error.{0,64}safetensors",
        "the disk (or the network drive) with the weights fails while they are read",
        "Check it on the node: dmesg, df, smartctl; bring the model to a local disk (model_dir) with `sparkops models "
        "pull`.",
        source="the kernel: EIO",
        beside=READING,
    ),
    Cause(
        r"Cannot allocate memory \(os error 12\)",
        "the node has too little free memory to map a file of the weights",
        "Free memory on the node (`sparkops stop`, docker ps, free -g), or take a smaller model or more nodes.",
        source="the kernel: ENOMEM",
        beside=READING,
    ),
    Cause(
        r"unable to mmap (\d{1,20}) bytes from file <([^>]{1,300})>: Cannot allocate memory",
        "the node has too little free memory to map a file of the weights {1}",
        "Free memory on the node (`sparkops stop`, docker ps, free -g), or take a smaller model or more nodes.",
        source="torch, safetensors",
    ),
    Cause(
        r"invalid load key, 'v'",
        "a file of the weights (.bin) is a Git LFS pointer (a text) in place of the weights",
        POINTER,
        source="torch/serialization.py",
    ),
    Cause(
        r"invalid load key|PytorchStreamReader failed|failed finding central directory|UnpicklingError: pickle data "
        r"was truncated|EOFError: Ran out of input",
        "a file of the weights (.bin, .pt) is damaged or incomplete",
        AGAIN,
        source="torch/serialization.py",
        beside=r"\.bin\b|\.pt\b|\.pth\b|torch/serialization|pt_weights_iterator|load_state_dict",
    ),
    Cause(
        r"serious vulnerability issue in `torch\.load`",
        "the model's weights are pickled (.bin), and this Transformers reads such files only with torch 2.6 or newer",
        "Take a checkpoint with .safetensors files (model.id), or a newer image (image.vllm, image.base).",
        source="transformers/utils/import_utils.py",
    ),
    Cause(
        r"Weights only load failed|WeightsUnpickler error",
        "a file of the weights (.bin, .pt) holds objects other than tensors, which are not loaded for safety",
        "Take a checkpoint with .safetensors files: model.id.",
        source="torch/serialization.py",
    ),
    Cause(
        r"SafetensorError: (?:device|.{0,32}[Dd]evice .{1,64} is invalid)",
        "the safetensors library cannot load the weights to the device that load-format asks for",
        "Remove load-format and model-loader-extra-config from serve.args, or run `sparkops doctor`.",
        source=RUST,
    ),
)
