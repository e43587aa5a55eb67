"""The engines that a recipe can name: their programs, and the arguments and environment that sparkops sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal


@dataclass(frozen=True)
class EngineKind:
    """How the container of an engine starts. ARCHITECTURE.md names the modules that know more of vLLM."""

    program: str
    """Program of the container."""
    arguments: tuple[str, ...]
    """Arguments before those of the recipe: {model} is a directory, {host} the address to listen on."""
    name_flag: str
    """The flag with the name for clients."""
    off: str
    """Form of a flag that is false."""
    taken: frozenset[str]
    """Arguments that a recipe may not give: sparkops sets them from its other keys."""
    backend: str
    """Where it computes if its image names no torch: `cpu`, or a CUDA build such as `cu130`."""
    share: float
    """Share of a GPU's memory that it takes unless `share_flag` says otherwise."""
    share_flag: str = "gpu-memory-utilization"
    """The flag with that share."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of its container, before that of the recipe."""
    python: bool = True
    """Whether its image must name its torch and its vLLM."""
    aliases: bool = True
    """Whether it takes several names for clients."""
    executors: tuple[str, ...] = ("ray", "mp")
    """Executors that join two ranks; none if it runs on one node only."""
    weights: bool = True
    """Whether it reads a model, so that the model's config.json must be there."""


OFFLINE = {"HF_HUB_OFFLINE": "1"}  # the weights are on the node, and a hub that throttles must not matter
NODES = ("tensor-parallel-size", "distributed-executor-backend", "nnodes", "node-rank", "master-addr", "master-port")
VLLM = EngineKind(
    program="vllm",
    arguments=("serve", "{model}", "--host={host}", "--port={port}"),
    name_flag="served-model-name",
    off="--no-{flag}",
    taken=frozenset({"host", "port", "served-model-name", "model", "headless", *NODES}),
    backend="cpu",
    share=0.92,  # from 0.20.0 on (vllm/config/cache.py)
    env={**OFFLINE, "VLLM_NO_USAGE_STATS": "1"},
)
EngineName = Literal["vllm", "stand-in", "atlas"]
ENGINES: Mapping[EngineName, EngineKind] = {
    "vllm": VLLM,
    "stand-in": replace(VLLM, python=False, weights=False, executors=("mp",)),
    # Its own flags, and no Python in the image. It listens on 127.0.0.1:8888 by default.
    "atlas": EngineKind(
        program="spark",
        arguments=("serve", "--model-from-path={model}", "--bind={host}", "--port={port}"),
        name_flag="model-name",
        off="--{flag}=false",
        taken=frozenset(
            {"bind", "host", "port", "model-name", "served-model-name", "model-from-path", "rank", "world-size"}
        ),
        backend="cu130",
        share=0.9,  # serve_args.rs
        env={**OFFLINE, "ATLAS_NO_TUI": "1"},
        python=False,
        aliases=False,
        executors=(),
    ),
}


def default_share(engine: EngineName, vllm: str | None) -> float:
    """Return the share of a GPU's memory that an engine takes unless an argument says otherwise.

    vLLM up to 0.19.1: 0.9 (vllm/config/cache.py). A build between two releases counts as the newer one.
    """
    release = re.fullmatch(r"[^=]*==0\.(\d+)(\.\d+)*", vllm or "")
    return 0.9 if release and int(release[1]) < 20 else ENGINES[engine].share
