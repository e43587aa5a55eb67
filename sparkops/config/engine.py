"""The engines that a recipe can name: their programs, and the arguments and environment that sparkops sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


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
    env: Mapping[str, str] = field(default_factory=dict)
    """Environment of its container, before that of the recipe."""
    python: bool = True
    """Whether its image must name its torch and its vLLM."""
    backend: str = "cpu"
    """Where it computes if its image names no torch."""
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
    env={**OFFLINE, "VLLM_NO_USAGE_STATS": "1"},
)
ENGINES: Mapping[str, EngineKind] = {
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
        env={**OFFLINE, "ATLAS_NO_TUI": "1"},
        python=False,
        aliases=False,
        executors=(),
        backend="cu130",
    ),
}


def default_share(engine: str, vllm: str | None) -> float:
    """Return the share of a GPU's memory that an engine takes unless gpu-memory-utilization says otherwise.

    vLLM: 0.9 up to 0.19.1, 0.92 from 0.20.0 (vllm/config/cache.py of these releases). A build between two releases
    counts as the newer one. Atlas: 0.9 (its serve_args.rs).
    """
    release = re.fullmatch(r"[^=]*==0\.(\d+)(\.\d+)*", vllm or "")
    old = release is not None and int(release[1]) < 20
    return 0.9 if engine == "atlas" or old else 0.92
