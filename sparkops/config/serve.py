"""How an engine is started, and what it takes of a node."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sparkops.config.fields import EnvName, Flag, FlagValue, Line, ModelName, Positive, Section, Text, Value

THREE = (
    "three ranks cannot share the attention heads of these models evenly; run one replica on a pair, and another on "
    "the third node"
)


def _one_or_two(value: Any) -> Any:
    """Refuse 3, the next number to try, with its reason, and true, which is not 1."""
    if isinstance(value, bool):
        raise PydanticCustomError("bool", "expected 1 or 2")
    if value == 3:
        raise PydanticCustomError("three_ranks", "expected 1 or 2, got 3: {why}", {"why": THREE})
    return value


class Serve(Section):
    """How the engine is started."""

    port: Annotated[int, Field(ge=1024, le=65000)] = 8000
    """The service's port on the gateway. On its nodes the blue slot has the next one, green the one after."""
    aliases: list[ModelName] = []
    """Further names of the service: clients may put each into `model`. No other service may have the name."""
    args: dict[Flag, FlagValue] = {}
    """Arguments of the engine without dashes: true: a bare flag; false: switched off; a mapping: JSON."""
    env: dict[EnvName, Value] = {}
    """Environment of the container; overrides what sparkops sets, such as MAX_JOBS. Not for secrets."""
    allow: list[Line] = []
    """Names from `args` and `env` that run code or open files, such as trust-remote-code; without it they are
    refused. trust-remote-code also needs a commit in `model.revision`. `plan` prints each with its effect."""
    tensor_parallel: Annotated[Literal[1, 2], BeforeValidator(_one_or_two)] = 1
    """Nodes that hold one replica together, each a part of every layer."""
    executor: Literal["ray", "mp"] = "ray"
    """What joins the two ranks: a Ray cluster, or vLLM's own `--nnodes`."""
    shm_gib: Positive = 16.0
    """Shared memory of the container in GiB."""
    stop_grace_s: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds between SIGTERM and SIGKILL; at most 5 for an engine that has not answered yet."""


class MemorySettings(Section):
    """What one node must have free before the engine starts."""

    claim_gib: Positive
    """Memory in GiB that the engine takes on each node: weights, KV cache, graphs and host side.

    On a GPU with memory of its own: what it takes there.
    """
    why: Text
    """Where the figure comes from."""
