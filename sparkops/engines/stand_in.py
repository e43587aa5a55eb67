"""The stand-in of tests and `demo` (templates/stand-in/): vLLM's arguments, log and endpoints without a model."""

from __future__ import annotations

from dataclasses import replace

from sparkops.engines.vllm import VLLM
from sparkops.engines.vllm.ranks import with_mp

STAND_IN = replace(
    VLLM,
    flags=replace(VLLM.flags, variable_prefix="STAND_IN_"),  # it refuses unknown ones; none names a file (knobs.py)
    pins=(),
    weights=False,
    executors={"mp": with_mp},
    tasks=frozenset({"chat"}),
    bench=(),
)
