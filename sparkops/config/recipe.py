"""The recipe: what to build, what to serve and how to know that it works."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from sparkops.config import assets, opt_in, overlay, source
from sparkops.config.engine import ENGINES
from sparkops.config.fields import PUBLIC, Line, Name, NotNegative, Positive, Section, Text, wrong_at
from sparkops.config.image import Image
from sparkops.config.lock import Lock, fingerprint, lock_file, read_lock, stale
from sparkops.config.model import Model
from sparkops.config.serve import MemorySettings, Serve
from sparkops.config.smoke import Smoke
from sparkops.config.source import Source
from sparkops.config.startup import Startup


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
    bake_s: NotNegative = 120.0
    """Seconds that green is watched with the traffic before it is promoted."""
    stall_s: Positive = 30.0
    """Seconds without a step of the engine after which a green that owes an answer has failed while it bakes."""
    drain_s: NotNegative = 900.0
    """Seconds that requests under way in blue may still take; what is open then is cut, and counted."""
    hold_s: Annotated[float, Field(ge=0, le=3000, allow_inf_nan=False)] = 540.0
    """Seconds that a request may wait in the gateway for a release that starts in place of another one. Where the start
    is predicted to take longer, or its time is unknown, requests get 503 at once."""
    hold_max: Annotated[int, Field(ge=0, le=900)] = 500
    """Requests of the service that may wait at once; further ones get 503."""
    keep_blue_s: NotNegative = 600.0
    """Seconds that blue stays warm after the swap, where both fit, so that a rollback takes no start.

    Longer while it alone answers.
    """
    reserve_gib: NotNegative = 15.0
    """Memory in GiB kept back where another engine runs. Overcommitted, a Spark does not fail: it wedges.

    A green that leaves less than 4 GiB, or less than this, is killed before it is promoted.
    """
    memory_return_s: NotNegative = 120.0
    """Seconds within which a stopped engine must have given its memory back."""


class Expected(Section):
    """Measured figures."""

    tok_s: Positive | None = None
    """Decode speed of one stream in tokens per second."""
    ttft_s: Positive | None = None
    """Seconds to the first token of a short prompt."""
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
    extends: Name | None = None
    """Another recipe, beside this one or shipped, that this one differs from: mappings are merged, other values
    replaced, and null takes a key away. Its description, `expected` and `verified` are its own."""
    engine: Literal["vllm", "stand-in", "atlas"] = "vllm"
    """Inference server. `atlas` has its own flags; `stand-in` has vLLM's endpoints and no model, to rehearse."""
    nodes: list[Name] = []
    """Nodes of the inventory that this recipe runs on; empty lets the plan choose, or `--node`."""
    image: Image
    model: Model
    serve: Serve = Serve()
    memory: MemorySettings
    probe: Probe = Probe()
    swap: SwapSettings = SwapSettings()
    expected: Expected | None = None
    unlocked: Line | None = None
    """Why no lock ships with this recipe; None where one does, or for a recipe of your own."""
    verified: Text
    """What has been run of this recipe, and where. The truth, also when it is 'nothing yet'."""
    _lock: Lock | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _fits_its_engine(self) -> Recipe:
        engine = ENGINES[self.engine]
        for flag in self.serve.args:
            if opt_in.abbreviated(flag.partition(".")[0], opt_in.SECRETS):
                raise wrong_at(("serve", "args", flag), PUBLIC)
            if opt_in.abbreviated(flag.partition(".")[0], engine.taken):
                raise wrong_at(("serve", "args", flag), "not allowed: sparkops sets it from the recipe's other keys")
        for key in ("torch", "vllm") if engine.python else ():
            if getattr(self.image, key) is None:
                raise wrong_at(("image", key), f"missing, and the engine {self.engine} needs it")
        if self.serve.tensor_parallel > 1 and not engine.executors:
            problem = f"expected 1: sparkops starts the engine {self.engine} on one node"
            raise wrong_at(("serve", "tensor_parallel"), problem)
        if self.serve.tensor_parallel > 1 and self.serve.executor not in engine.executors:
            problem = f"expected {' or '.join(engine.executors)}, which joins two ranks of the engine {self.engine}"
            raise wrong_at(("serve", "executor"), problem)
        return self

    @model_validator(mode="after")
    def _has_own_names(self) -> Recipe:
        names = (self.service, *self.serve.aliases)
        if len(set(names)) < len(names):
            raise wrong_at(("serve", "aliases"), f"expected names that differ from each other and from {self.service}")
        if self.serve.aliases and not ENGINES[self.engine].aliases:
            raise wrong_at(("serve", "aliases"), f"expected none: the engine {self.engine} takes one name")
        return self

    @property
    def lock(self) -> Lock | None:
        """The lock of its image, if there is one."""
        return self._lock

    def with_lock(self, lock: Lock) -> Recipe:
        """Return the recipe with the base and the commits of its models as locked."""
        update = {"image": lock.pinned_image(self.image), "model": lock.pinned_model(self.model)}
        recipe = self.model_copy(update=update)
        recipe._lock = lock
        return recipe

    @property
    def backend(self) -> str:
        """Where the engine computes: `cpu`, or a CUDA build such as `cu130`."""
        return self.image.torch.backend if self.image.torch else ENGINES[self.engine].backend


def load(file: Path, nodes: Collection[str] | None = None, set_: Iterable[str] = (), *, parts: bool = True) -> Recipe:
    """Read and check a recipe, against the `nodes` of an inventory if they are given, and apply its lock.

    Each KEY=VALUE of `set_` replaces a value for this one time. `parts` requires its template and mods to exist; lint
    has a rule for them. Raises ConfigError or UsageError.
    """
    read, recipe = _read(file, nodes, set_, parts=parts)
    lock = read_lock(lock_file(file))
    if lock is not None:
        if lock.made_for != fingerprint(recipe.image):
            raise stale(lock_file(file), "made_for", f"`image` of {recipe.name} is not what was locked")
        recipe = recipe.with_lock(lock)
    for where, problem in opt_in.unpinned(recipe.serve, recipe.model):
        raise read.fail(where, problem)
    return recipe


def load_unlocked(file: Path, nodes: Collection[str] | None = None) -> Recipe:
    """Read and check a recipe without its lock. Raises ConfigError."""
    return _read(file, nodes, (), parts=True)[1]


def _read(file: Path, nodes: Collection[str] | None, set_: Iterable[str], *, parts: bool) -> tuple[Source, Recipe]:
    read = overlay.read(file)
    overlay.apply(read, set_)
    recipe = source.validate(read, Recipe)
    name = file.name.removesuffix(".yaml")
    if recipe.name != name:
        raise read.fail(("name",), f"expected '{name}' as in the file's name, got {recipe.name!r}")
    for number, node in enumerate(recipe.nodes):
        if nodes is not None and node not in nodes:
            raise read.fail(("nodes", number), f"the inventory has no node {node!r}, only: {', '.join(nodes)}")
    for where, problem in opt_in.refusals(recipe.serve):  # not in the model: journals hold recipes of older versions
        raise read.fail(where, problem)
    if parts:
        _check_parts(read, recipe.image)
    return read, recipe


def _check_parts(read: Source, image: Image) -> None:
    templates, mods = assets.template_names(), assets.mod_names()
    if image.template not in templates:
        raise read.fail(("image", "template"), f"expected one of: {', '.join(templates)}; got {image.template!r}")
    for number, name in enumerate(image.mods):
        if name not in mods:
            raise read.fail(("image", "mods", number), f"unknown mod '{name}', expected one of: {', '.join(mods)}")
