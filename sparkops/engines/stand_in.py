"""The stand-in of tests and `demo` (templates/stand-in/): vLLM's arguments, log and endpoints without a model."""

from __future__ import annotations

from dataclasses import replace

from sparkops.engines.vllm import VLLM
from sparkops.engines.vllm.ranks import with_mp

STAND_IN = replace(
    VLLM,
    python=False,
    weights=False,
    executors={"mp": with_mp},
    tasks=frozenset({"chat"}),
    computed=False,
)
