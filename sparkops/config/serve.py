"""The start of an engine, and the memory that it claims on a node."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from sparkops.config.fields import EnvName, Flag, FlagValue, Line, ModelName, Positive, Section, Text, Value
from sparkops.swap.model import MAX_REPLICAS

Task = Literal["chat", "embedding", "rerank"]
MOST_RANKS = 16
"""Nodes of one replica: NVIDIA's own tools join four Sparks, and no source has run more than eight."""


class Serve(Section):
    """Settings of the engine's container and command line."""

    port: Annotated[int, Field(ge=1024, le=65000)] = 8000
    """Port of the service on the gateway. On the nodes, slot blue has the next port and slot green the one after it."""
    task: Task = "chat"
    """What clients send: chat requests, texts to embed (/v1/embeddings), or documents to rank (/v1/rerank). Decides the
    checks of the smoke suite, and the request with which a guard tests a release."""
    aliases: list[ModelName] = []
    """Further names that clients may pass as `model`; each belongs to one service."""
    args: dict[Flag, FlagValue] = {}
    """Arguments of the engine, without dashes. `true` makes a bare flag, `false` disables it, a mapping makes JSON."""
    env: dict[EnvName, Value] = {}
    """Environment of the container; overrides values of sparkops such as MAX_JOBS. Not for secrets."""
    allow: list[Line] = []
    """Names in `args` and `env` that are not known to be harmless, such as trust-remote-code: without this, a name that
    may run code or open files, ports or endpoints is refused, and so is an unknown one. trust-remote-code also needs a
    commit in `model.revision`. Also names of code in `image` that may be of the recipe's author: an image or a package
    that sparkops does not know, the URL of `source`, mods in ./mods. `plan` prints each with its effect."""
    tensor_parallel: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 1
    """Nodes that share every layer of the model, each with a part of its attention heads: 1, 2, 4, 8 or 16."""
    pipeline_parallel: Annotated[int, Field(ge=1, le=MOST_RANKS)] = 1
    """Stages of consecutive layers, each on `tensor_parallel` nodes, so that a replica has the product of both, at most
    16."""
    replicas: Annotated[int, Field(ge=1, le=MAX_REPLICAS)] | Literal["all"] = 1
    """Copies of the service behind its address, each on nodes of its own: up to 16, or `all` that the nodes have room
    for. The gateway sends a request to the one with the fewest in progress. Makes no other release."""
    sticky: bool = False
    """Keep a conversation on the replica that has cached its prefix: the gateway selects it by a hash of system prompt
    and first user message, unless it has twice the mean of open requests. Only for the task chat. The gateway refuses a
    request if its body, or 64 KiB of it, takes longer than 10 s. Makes no other release; a change needs
    `--apply-gateway`."""
    executor: Literal["ray", "mp"] = "mp"
    """Launcher of a replica on several nodes: the engine's own (`mp`) or a Ray cluster (`ray`)."""
    shm_gib: Positive = 16.0
    """Shared memory of the container in GiB."""
    stop_grace_s: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds between SIGTERM and SIGKILL; at most 5 for an engine that has not answered yet."""

    @property
    def ranks(self) -> int:
        """Nodes of a replica, each with one rank."""
        return self.tensor_parallel * self.pipeline_parallel


class MemorySettings(Section):
    """Memory that the engine takes on a node."""

    claim_gib: Positive
    """Memory in GiB that the engine takes on each node: weights, KV cache, graphs and host side.

    For a GPU with its own memory: the GPU memory that it takes.
    """
    basis: Text
    """Source of the figure."""
    at_floor: Literal["warn", "kill"] = "warn"
    """What the guard does where a node has almost no memory left, and this engine, which serves, was started last:
    `warn` only, or `kill` it, so that the node stays reachable. It starts again once its memory is free."""
