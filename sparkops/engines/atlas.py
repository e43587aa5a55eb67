"""Atlas: flags of its own, and no Python in its image. It listens on 127.0.0.1:8888 by default."""

from __future__ import annotations

from dataclasses import replace

from sparkops.engines.engine import OFFLINE, EngineKind
from sparkops.engines.launch import FlagForm
from sparkops.engines.vllm.effects import FLAGS
from sparkops.engines.vllm.start_log import LOG

HARMLESS = frozenset(
    {
        "gpu-memory-utilization",
        "max-batch-size",
        "max-prefill-tokens",
        "max-seq-len",
        "num-drafts",
        "speculative",
        "tool-call-parser",
    }
)
"""Those that recipes/qwen3.5-122b/122b-heretic-atlas.yaml has a source for."""
ATLAS = EngineKind(
    program="spark",
    arguments=("serve", "--model-from-path={model}", "--bind={host}", "--port={port}"),
    name_flag="model-name",
    form=FlagForm(off="--{flag}=false"),
    taken=frozenset(
        {"bind", "host", "port", "model-name", "served-model-name", "model-from-path", "rank", "world-size"}
    ),
    backend="cu130",
    share=lambda _: 0.9,  # serve_args.rs
    flags=replace(FLAGS, harmless=HARMLESS),
    log=LOG,  # no log of Atlas was captured; the errors of CUDA are the same
    env={**OFFLINE, "ATLAS_NO_TUI": "1"},
    pins=(),
    aliases=False,
    unable={
        "version": "Atlas has no /version",
        "metrics": "the metrics of Atlas have other names",
        "negatives": "Atlas accepts requests for unknown models",
    },
)
