"""The phrases of llama-server's log of a start."""

from __future__ import annotations

import re

from sparkops.engines.start_log import Stage, StartLog, known_cause

# At its default verbosity llama-server prints few lines: none while tensors are read. The lines about the KV cache and
# the warm-up need `verbosity: 4`.
MARKERS: tuple[tuple[Stage, re.Pattern[str]], ...] = (
    (Stage.SERVING, re.compile(r"llama_server: (model loaded|listening on )")),
    (Stage.OPENING, re.compile(r"load_model: initializing, n_slots")),
    (Stage.WARMING, re.compile(r"warming up the model with an empty run")),
    (
        Stage.KV_CACHE,
        re.compile(r"llama_context: (constructing llama_context|n_ctx_seq \()|llama_kv_cache: {1,16}size ="),
    ),
    (Stage.WEIGHTS, re.compile(r"load_model: loading model '|load_tensors: loading model tensors")),
)
FATAL = re.compile(
    r"exiting due to (model loading|HTTP server) error|couldn't bind HTTP server socket|error loading model: "
    r"|failed to open GGUF file|invalid magic characters|failed to initialize the context|failed to load model, '"
    r"|error while handling argument|^error: invalid argument|GGML_ASSERT\(.{0,256}\) failed|CUDA error: "
)
PREFIX = re.compile(r"\d{1,9}\.\d\d\.\d{3}\.\d{3} [A-Z] (?:(?:srv|slot|cmn|spec) {1,16})?")
# Reports of a failure whose cause is in an earlier line.
ANNOUNCED = re.compile(r"exiting due to|failed to load model, '|llama_model_loader: failed to load model from")
SMALLER = "Lower ctx-size or parallel, take a smaller quantization, or stop another engine on the node."
ARGUMENTS = "Correct serve.args of the recipe; `llama-server --help` in its image lists the arguments."
CAUSES = (
    known_cause(
        r"couldn't bind HTTP server socket, hostname: \S{1,256}, port: (\d{1,9})",
        "another program uses port {}",
        "Find it with `ss -ltnp` on the node and stop it, or change serve.port.",
    ),
    known_cause(r"error: invalid argument: (\S{1,256})", "llama-server has no argument {}", ARGUMENTS),
    known_cause(
        r'error while handling argument "(\S{1,256})": (.{1,256})',
        "llama-server refuses the value of {0}: {1}",
        ARGUMENTS,
    ),
    known_cause(
        r"failed to open GGUF file '([^']{1,512})' \(No such file or directory\)",
        "the file {} is missing",
        "Correct model.path and model.file of the recipe; `sparkops models verify` shows what a node has.",
    ),
    known_cause(
        r"failed to open GGUF file '([^']{1,512})' \((.{1,256})\)",
        "the file {0} cannot be read: {1}",
        "Let every user read it: `sudo chmod a+rX` on the node.",
    ),
    known_cause(
        r"failed to load GGUF split from (\S{1,512})",
        "a part of the model is missing or damaged: {}",
        "Download the model again, or copy it from a node that has all parts: sparkops models copy",
    ),
    known_cause(
        r"data is not within the file bounds, model is corrupted or incomplete",
        "the GGUF file is truncated",
        "Remove it on the node, then download or copy it again: sparkops models pull, sparkops models copy",
    ),
    known_cause(
        r"invalid magic characters: '(.{1,4})', expected 'GGUF'",
        "the file begins with {}: it is no GGUF file",
        "Correct model.file of the recipe, or download the model again.",
    ),
    known_cause(
        r"unknown model architecture: '([^']{1,256})'",
        "this build of llama.cpp has no models of the architecture {}",
        "Use a model that it has, or a newer llama.cpp: templates/llama-cpp.Dockerfile.j2 pins it.",
    ),
    known_cause(
        r"allocating ([\d.]{1,20}) MiB on device \d{1,9}: cudaMalloc failed: out of memory",
        "an allocation of {} MiB on the GPU failed: its memory is full",
        SMALLER,
    ),
    known_cause(r"failed to allocate buffer for kv cache", "the memory is too small for the KV cache", SMALLER),
    known_cause(
        r"CUDA error: (no kernel image is available|the provided PTX was compiled with an unsupported toolchain)",
        "the CUDA backend has no code for this GPU",
        "Rebuild the image with the template llama-cpp, which compiles for the Spark's GPU.",
    ),
)
"""Texts of src/llama-model-loader.cpp, src/llama-kv-cache.cpp, common/arg.cpp, tools/server/server-http.cpp,
ggml/src/gguf.cpp and ggml/src/ggml-cuda/ggml-cuda.cu; tests/captured has most of them from real runs."""

LOG = StartLog(markers=MARKERS, fatal=FATAL, causes=CAUSES, prefix=PREFIX, announced=ANNOUNCED)
