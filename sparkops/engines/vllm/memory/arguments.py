"""Read the arguments of a recipe that determine its memory, with vLLM's defaults. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.engines.needs import Served
from sparkops.engines.sizes import WrongValue, scaled
from sparkops.engines.vllm.memory import overhead
from sparkops.engines.vllm.memory.cache import Serving
from sparkops.engines.vllm.memory.shape import Shape

LARGE_GIB = 70.0
"""GPU memory from which vLLM uses larger batches: EngineArgs.get_batch_defaults of 0.23.0."""
CPU_SPACE = "VLLM_CPU_KVCACHE_SPACE"
OWN_DRAFTS = ("mtp", "deepseek_mtp", "qwen3_next_mtp", "qwen3_5_mtp", "glm4_moe_mtp")
WITHOUT_MODEL = ("ngram", "suffix")
LONGER = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
"""Variable with which vLLM takes a longer context than the model's (_get_and_verify_max_len in vllm/config/model.py of
0.32.0)."""
OVERRIDES = ("hf-overrides", "rope-")
"""Flags that may change the context of the model."""
V2_RELEASE, V2_SETTING = 23, "VLLM_USE_V2_MODEL_RUNNER"
V2_ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen3ForCausalLM")
"""DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES of vLLM 0.23.0. A later runner measures its graphs (the log of 0.32)."""
RELEASE = re.compile(r"[^=]*==0\.(\d+)\.")


@dataclass(frozen=True)
class Arguments:
    """Arguments of the engine, with defaults. `requests` is max-num-seqs."""

    serving: Serving
    requests: int
    graphs: int
    """Largest batch of a CUDA graph; 0 without graphs."""
    graphs_counted: bool
    """Whether vLLM counts the graphs in its share, as from 0.21 on. Before, they are additional; so are those of V2."""
    v2: bool
    """Whether the V2 model runner of vLLM 0.23 runs the model, whose profile_cudagraph_memory returns 0."""
    loader: str


def read(served: Served, shape: Shape, total_gib: float) -> Arguments:
    """Return the arguments of a recipe on a GPU or node of `total_gib`. Raises ValueError for an invalid one.

    Defaults are those of vLLM 0.23.0 for `vllm serve` on one GPU: EngineArgs.get_batch_defaults.
    """
    args, cpu = served.args, served.cpu
    large = total_gib >= LARGE_GIB and not cpu
    drafts = _draft_tokens(args)
    requests = _number(args, "max-num-seqs", 1024 if large else 128 if cpu else 256)
    serving = Serving(
        window=_window(served, shape),
        batched_tokens=_number(args, "max-num-batched-tokens", 8192 if large else 2048),
        ranks=served.ranks,
        block=_number(args, "block-size", 128 if cpu else 16),
        model_dtype=_model_dtype(args, shape),
        dtype=str(args.get("kv-cache-dtype", "auto")),
        state_dtype=str(args.get("mamba-ssm-cache-dtype", "auto")),
        prefix_caching=args.get("enable-prefix-caching") is True,
        draft_tokens=drafts,
        slides=args.get("disable-hybrid-kv-cache-manager") is not True,
    )
    largest = _number(args, "max-cudagraph-capture-size", overhead.captured(requests, drafts))
    graphs = 0 if cpu or args.get("enforce-eager") is True else largest
    v2 = not cpu and _is_v2(served, shape)
    counted = _counts_graphs(served) and not v2
    return Arguments(serving, requests, graphs, counted, v2, str(args.get("load-format", "auto")))


def cpu_space_gib(served: Served) -> float:
    """Return the KV cache of a recipe for the CPU in GiB. Raises ValueError if it sets none."""
    space = served.env.get(CPU_SPACE, "")
    if not space.isdecimal() or not int(space):
        raise ValueError(f"serve.env.{CPU_SPACE}: expected GiB of KV cache such as 4, got {space!r}")
    return float(space)


def _model_dtype(args: Mapping[str, Any], shape: Shape) -> str:
    """Return the dtype of the computation: 16 bits for a checkpoint of float32 (vllm/config/model.py)."""
    named = str(args.get("dtype", "auto"))
    stored = shape.dtype.removeprefix("torch.")
    return named if named != "auto" else "float16" if stored == "float32" else stored


def _draft_tokens(args: Mapping[str, Any]) -> int:
    """Return num_speculative_tokens of the model's own MTP head. Raises ValueError for drafts of another model."""
    drafts = args.get("speculative-config")
    if not isinstance(drafts, Mapping):
        return 0
    if drafts.get("method") in WITHOUT_MODEL:
        return _number(drafts, "num_speculative_tokens", 0)
    if "model" in drafts or drafts.get("method") not in OWN_DRAFTS:
        named = drafts.get("model") or drafts.get("method")
        raise ValueError(
            f"serve.args.speculative-config: {named}: not supported: the memory of a draft model is not computed"
        )
    return _number(drafts, "num_speculative_tokens", 1)


def _counts_graphs(served: Served) -> bool:
    """Return whether the share includes graphs: VLLM_MEMORY_PROFILER_ESTIMATE_CUDAGRAPHS, the default from 0.21 on."""
    release = RELEASE.match(served.release or "")
    return release is None or int(release[1]) >= 21


def _is_v2(served: Served, shape: Shape) -> bool:
    """Return whether vLLM 0.23 runs the model with its V2 model runner: use_v2_model_runner in vllm/config/vllm.py."""
    release = RELEASE.match(served.release or "")
    if release is None or int(release[1]) != V2_RELEASE:
        return False
    if V2_SETTING in served.env:
        return served.env[V2_SETTING] == "1"
    drafts = served.args.get("speculative-config")
    ngrams = isinstance(drafts, Mapping) and drafts.get("method") in WITHOUT_MODEL
    supported = shape.dense and not served.args.get("quantization") and not ngrams
    return supported and any(name in V2_ARCHITECTURES for name in shape.architectures)


def _window(served: Served, shape: Shape) -> int:
    """Return the context in tokens. Raises WrongValue for one with which the engine would end at its start."""
    window = _number(served.args, "max-model-len", shape.window)
    longer = shape.scaled or served.env.get(LONGER) == "1" or any(name.startswith(OVERRIDES) for name in served.args)
    if window > shape.window and not longer:
        problem = f"expected at most the model's {shape.window} (max_position_embeddings), or {LONGER}=1 in serve.env"
        raise WrongValue(f"serve.args.max-model-len: {problem}; got {window}")
    return window


def _number(args: Mapping[str, Any], name: str, default: int) -> int:
    """Return a whole number, also with vLLM's suffixes (128k, 128K)."""
    given = args.get(name, default)
    number = scaled(given, "kKmMgG")
    if number is None or (number <= 0 and default):
        kind = ValueError if name == "max-model-len" else WrongValue  # vLLM itself can choose the window: auto, -1
        raise kind(f"serve.args.{name}: expected a number above 0, got {given!r}")
    return int(number)
