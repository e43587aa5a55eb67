"""Atlas: flags of its own, and no Python in its image. It listens on 127.0.0.1:8888 by default."""

from __future__ import annotations

from sparkops.engines.engine import OFFLINE, EngineKind
from sparkops.engines.launch import FlagForm
from sparkops.engines.vllm.figures import FIGURES
from sparkops.engines.vllm.start_log import LOG

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
    figures=FIGURES,
    log=LOG,  # no log of Atlas was captured; the errors of CUDA are the same
    env={**OFFLINE, "ATLAS_NO_TUI": "1"},
    python=False,
    aliases=False,
)
