"""The image gates of engines, apart from the engines themselves: a guard checks no image, so its own needs none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from sparkops.engines.image_facts import GateVerdict, ImageFacts
from sparkops.engines.llama_cpp.gate import server_verdicts
from sparkops.engines.vllm import gate


class Gate(Protocol):
    """The checks of what an engine has in an image beside torch, mods and the cache."""

    def __call__(self, facts: ImageFacts, requirement: str | None, *, on_gpu: bool) -> Iterator[GateVerdict]:
        """Yield the verdicts. `requirement`: the version that the recipe states, `on_gpu`: whether it needs CUDA."""


GATES: Mapping[str, Gate] = {"vllm": gate.verdicts, "llama-cpp": server_verdicts}
"""By name of the engine; an engine without a gate has none of these checks."""
