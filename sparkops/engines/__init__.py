"""The inference servers that a recipe can name, one module or package each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from sparkops.engines.atlas import ATLAS
from sparkops.engines.engine import EngineKind
from sparkops.engines.llama_cpp import LLAMA_CPP
from sparkops.engines.sglang import SGLANG
from sparkops.engines.stand_in import STAND_IN
from sparkops.engines.vllm import VLLM

ENGINES: Mapping[str, EngineKind] = {
    "vllm": VLLM,
    "stand-in": STAND_IN,
    "sglang": SGLANG,
    "llama-cpp": LLAMA_CPP,
    "atlas": ATLAS,
}
DEFAULT = "vllm"
"""The engine of a recipe that names none, and that whose version `image` may state."""
if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]  # pydantic and the JSON Schema list the names
