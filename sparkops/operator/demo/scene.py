"""Files and settings of a demonstration: the engine, its two releases and the requests meanwhile. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sparkops.command import Command
from sparkops.config.inventory import Build
from sparkops.node.agents.commands import PEER_PORT
from sparkops.node.docker.commands import docker

NODE = SERVICE = RECIPE = "demo"
"""Names of this machine, of the service and of the recipe. The guard's container has the first one as a label."""
PORT = 9100
TINY_MODEL = "tiny-qwen3"
"""Directory of the trained model; the model directory of the demonstration holds nothing else."""
WAITS = {"bake_s": 2, "drain_s": 60, "keep_old_s": 3600, "reserve_gib": 1}
"""Short waits of the swap; the old release stays warm, so that the rollback is one switch."""


@dataclass(frozen=True)
class DemoEngine:
    """An engine to demonstrate with: the recipe that it extends, and values for a machine that is no Spark."""

    extends: str
    words: str
    """What it is, in the first lines."""
    takes: str
    """How long the demonstration takes, and on which machine that was measured."""
    second: str
    """The change that makes the second release, as KEY=VALUE; both have the same image."""
    traffic: Mapping[str, Any]
    """Rate of short requests per second, streams, and for how long at most; fields of TrafficSettings."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Values of the recipe over those that it extends."""
    trained: bool = False
    """Whether it needs a checkpoint, which `train` makes."""


STAND_IN = DemoEngine(
    extends="stand-in",
    words="a stand-in for vLLM, without GPU and model",
    takes="about a minute once Docker has the base images, some minutes the first time",
    second="args.max-model-len=16384",
    traffic={"rate": 20, "streams": 4, "stream_tokens": 400},
    values={"serve": {"env": {"STAND_IN_START_S": "2", "STAND_IN_TTFT_S": "0.02", "STAND_IN_TOK_S": "200"}}},
)
VLLM = DemoEngine(
    extends="tiny-qwen3-cpu",
    words="vLLM for CPUs, with a model of 0.6 MB that is trained here",
    takes="about eight minutes with a fast connection: it downloads 1 GB, and two vLLMs start on the CPUs",
    second="args.max-num-seqs=16",
    traffic={"rate": 2, "streams": 2, "stream_pause_s": 3, "stream_tokens": 100, "timeout_s": 120, "seconds": 7200},
    values={"model": {"path": TINY_MODEL}},
    trained=True,
)
ENGINES = ("stand-in", "vllm")
"""The engines of both: their images have these names."""


@dataclass(frozen=True)
class Ports:
    """The ports of a demonstration on this machine: `first` is that of the clients."""

    first: int = PORT

    @property
    def metrics(self) -> int:
        return self.first + 3

    @property
    def words(self) -> Mapping[int, str]:
        """Return the ports, each with the program that listens there and its callers."""
        return {
            self.first: "the gateway, for clients",
            self.first + 1: "the first release, from this machine only",
            self.first + 2: "the second release, from this machine only",
            self.metrics: "metrics of the gateway, from this machine only",
            PEER_PORT: "the guard, for signed messages of other guards",
        }


def inventory(ports: Ports, directory: Path, build: Build) -> str:
    """Return the inventory of a fleet that is this machine. `build`: settings with absolute paths."""
    data: dict[str, Any] = {
        "nodes": {NODE: {"transport": "local", "gpu": "none", "model_dir": str(directory / "models")}},
        "gateway": {"node": NODE, "port": ports.first, "metrics_port": ports.metrics},
    }
    settings = build.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump({**data, **({"build": settings} if settings else {})}, sort_keys=False)


def recipe(engine: DemoEngine, ports: Ports) -> str:
    """Return the recipe of the first release."""
    values = {**engine.values, "serve": {**engine.values.get("serve", {}), "port": ports.first}}
    data = {
        "name": RECIPE,
        "extends": engine.extends,
        "service": SERVICE,
        "description": f"{engine.extends} for `sparkops demo`, with short waits",
        "probe": {"passes": 1},
        "swap": WAITS,
        "verified": "by `sparkops demo`, which builds, deploys, swaps and rolls it back",
        **values,
    }
    return yaml.safe_dump(data, sort_keys=False)


def train(image: str, script: bytes, models: Path, owner: str) -> Command:
    """Train the tiny model inside the engine's image, into the directory `models` of this machine.

    `owner`: user and group of its files, as UID:GID.
    """
    options = ("--rm", "--interactive", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")
    where = (f"--user={owner}", "--env=HOME=/tmp", f"--volume={models}:/models", "--entrypoint=python")
    return docker("run", *options, *where, image, "-", f"/models/{TINY_MODEL}", stdin=script, timeout_s=600.0)


def deploy(file: Path, change: str = "") -> Sequence[str]:
    """Return the words of a deploy of the recipe in `file`, after `sparkops`."""
    return ("deploy", str(file), *(("--set", change) if change else ()))
