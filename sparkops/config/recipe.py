"""The recipe: what to build, what to serve and how to know that it works."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from sparkops.config import changes, source
from sparkops.config.fields import (
    Argument,
    EnvName,
    Flag,
    ImageRef,
    Line,
    Name,
    Package,
    Requirement,
    Section,
    Text,
    Value,
    Version,
    matching,
)
from sparkops.config.model import Model
from sparkops.config.smoke import Positive, Smoke


class Torch(Section):
    """The torch that every stage of the Dockerfile is held to."""

    version: Version
    """Version without its local part, such as 2.11.0."""
    backend: Annotated[str, matching(r"cpu|cu[0-9]{3}", "cpu or a CUDA build such as cu130")]
    """`cpu` or a CUDA build such as `cu130`. The built image is asked for it."""
    local_version: bool = True
    """Whether the wheels' version names the backend (2.11.0+cu130). The package index's own do not."""

    @property
    def pin(self) -> str:
        """The requirement that the override file holds, such as torch==2.11.0+cu130."""
        return f"torch=={self.version}" + (f"+{self.backend}" if self.local_version else "")

    @property
    def cuda(self) -> str | None:
        """What torch.version.cuda must begin with, such as 13.0; None for the CPU."""
        return None if self.backend == "cpu" else f"{self.backend[2:-1]}.{self.backend[-1]}"


class Image(Section):
    """How the image is made."""

    template: Name
    """File in templates/ without `.Dockerfile.j2`."""
    base: ImageRef
    """Image of every stage's FROM."""
    torch: Torch | None = None
    """The torch of an engine that needs one."""
    vllm: Requirement | None = None
    """The vLLM distribution, pinned with ==."""
    packages: list[Requirement] = []
    """Further Python packages, pinned with ==."""
    apt: list[Package] = []
    """Further packages of the base image's distribution."""
    remove: list[Package] = []
    """Python packages that are kept out although another package asks for them."""
    mods: list[Name] = []
    """Mods from templates/mods, applied in this order; each checks what it finds and leaves a marker."""
    disk_gib: Positive = 40.0
    """Free space in GiB that a node needs before a build begins."""


class Serve(Section):
    """How vLLM is started."""

    port: Annotated[int, Field(ge=1024, le=65000)] = 8000
    """The service's port on the gateway. On its nodes the blue slot has the next one, green the one after."""
    args: dict[Flag, Argument] = {}
    """Arguments of `vllm serve` without dashes: true: a bare flag; false: `--no-FLAG`; a mapping: JSON."""
    env: dict[EnvName, Value] = {}
    """Environment of the container. Not for secrets."""
    shm_gib: Positive = 16.0
    """Shared memory of the container in GiB."""
    stop_grace_s: Annotated[int, Field(ge=1, le=3600)] = 60
    """Seconds between SIGTERM and SIGKILL."""


class Memory(Section):
    """What one node must have free before the engine starts."""

    claim_gib: Positive
    """Memory in GiB that the engine takes: weights, KV cache, graphs and host side."""
    why: Text
    """Where the figure comes from."""


class Startup(Section):
    """When a start counts as hung. Nothing else ends a start that still moves."""

    stall_s: Positive = 180.0
    """Seconds without any progress while weights load."""
    compile_stall_s: Positive = 300.0
    """Seconds without any progress while the engine compiles, tunes or captures graphs."""
    ceiling_s: Positive = 1800.0
    """Seconds after which a start is given up although it moves."""


class Probe(Section):
    """How a started engine proves that it works."""

    startup: Startup = Startup()
    passes: Annotated[int, Field(ge=1, le=10)] = 3
    """Full passes of the smoke suite in a row before it may have traffic."""
    smoke: Smoke = Smoke()


class SwapSettings(Section):
    """How a blue-green swap goes."""

    allow_downtime: bool = False
    """Whether the service may be down while green starts, where nothing else fits."""
    bake_s: Annotated[float, Field(ge=0)] = 120.0
    """Seconds that green is watched with the traffic before it is promoted."""
    drain_s: Annotated[float, Field(ge=0)] = 900.0
    """Seconds that requests under way in blue may still take; what is open then is cut, and counted."""
    keep_blue_s: Annotated[float, Field(ge=0)] = 600.0
    """Seconds that blue stays warm after the swap, where both fit, so that a rollback takes no start."""
    reserve_gib: Annotated[float, Field(ge=0)] = 15.0
    """Memory in GiB kept back when green starts beside blue. Overcommitted, a Spark does not fail: it wedges."""
    memory_return_s: Annotated[float, Field(ge=0)] = 120.0
    """Seconds within which a stopped engine must have given its memory back."""


class Expected(Section):
    """Figures that somebody measured."""

    tok_s: Positive | None = None
    """Decode speed of one stream in tokens per second."""
    cold_start_s: Positive | None = None
    """Seconds from container start to the first answer."""
    source: Line
    """Who measured it, and on what."""


class Recipe(Section):
    """One way to build and serve one model."""

    name: Name
    """The same as the file's name without .yaml."""
    service: Name
    """The name that clients put into `model`; releases of one service replace each other."""
    description: Line
    """One line for `sparkops recipes`."""
    engine: Literal["vllm", "stand-in"] = "vllm"
    """What answers. `stand-in` speaks vLLM's endpoints and log lines without a model, to rehearse deploys."""
    nodes: list[Name] = []
    """Nodes of the inventory that this recipe runs on; empty lets the plan choose, or `--node`."""
    image: Image
    model: Model
    serve: Serve = Serve()
    memory: Memory
    probe: Probe = Probe()
    swap: SwapSettings = SwapSettings()
    expected: Expected | None = None
    verified: Text
    """What has been run of this recipe, and where. The truth, also when it is 'nothing yet'."""

    @model_validator(mode="after")
    def _reserved(self) -> Recipe:
        taken = {"host", "port", "served-model-name", "model"} & set(self.serve.args)
        if taken:
            named = ", ".join(sorted(taken))
            raise ValueError(f"serve.args without {named}: sparkops sets these from the recipe's other keys")
        if self.engine == "vllm" and not (self.image.torch and self.image.vllm):
            raise ValueError("image.torch and image.vllm, which the engine vllm needs")
        return self

    @property
    def backend(self) -> str:
        """Where the engine computes: `cpu`, or a CUDA build such as `cu130`."""
        return self.image.torch.backend if self.image.torch else "cpu"


def load(file: Path, nodes: Collection[str] | None = None, set_: Iterable[str] = ()) -> Recipe:
    """Read and check a recipe, against the `nodes` of an inventory if they are given.

    Each KEY=VALUE of `set_` replaces a value for this one time. Raises ConfigError or UsageError.
    """
    read = source.read(file)
    changes.apply(read, set_)
    recipe = source.validate(read, Recipe)
    if recipe.name != file.name.removesuffix(".yaml"):
        raise read.fail(
            ("name",),
            f"expected '{file.name.removesuffix('.yaml')}' as in the file's name, got {recipe.name!r}",
        )
    for number, name in enumerate(recipe.nodes):
        if nodes is not None and name not in nodes:
            raise read.fail(("nodes", number), f"the inventory has no node {name!r}, only: {', '.join(nodes)}")
    return recipe
