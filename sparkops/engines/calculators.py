"""The memory calculators of engines, apart from the engines: a guard computes no memory, so its image needs none."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.engines.needs import Calculator
from sparkops.engines.vllm.memory import VLLM_MEMORY

CALCULATORS: Mapping[str, Calculator] = {"vllm": VLLM_MEMORY}
"""By name of the engine; a recipe of an engine without one measures `memory.claim_gib`."""
