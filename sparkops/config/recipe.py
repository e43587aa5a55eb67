"""The recipe: image, model, server, checks and swap settings of one service."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PrivateAttr, model_validator

from sparkops.command import quote
from sparkops.config import opt_in
from sparkops.config.fields import PUBLIC, Line, LocalPath, Name, NotNegative, Positive, Section, Text, wrong_at
from sparkops.config.image import Image
from sparkops.config.lock import SUFFIX, Lock
from sparkops.config.model import Model
from sparkops.config.serve import MOST_RANKS, MemorySettings, Serve
from sparkops.config.smoke import Smoke
from sparkops.config.startup import Startup
from sparkops.engines import DEFAULT, ENGINES, EngineName
from sparkops.swap.model import MAX_REPLICAS, Limits

LIMITS = Limits()
USED_BACKEND = "cu130"
"""Where the engine of a finished image computes that states no torch: on the GPU, with any CUDA."""
UNEVEN = (
    "{size} nodes cannot share the attention heads of a model evenly, expected 1, 2, 4, 8 or 16; for {size} nodes set "
    "pipeline_parallel: {size}, which splits the model by layers, and tensor_parallel: 1"
)

AFTER_INSTALLING = {"mods", "disk_gib"}
"""Keys of the image that change nothing of what runs while its packages are installed."""


class Probe(Section):
    """Limits of a start, and the smoke suite that a new release must pass."""

    startup: Startup = Startup()
    passes: Annotated[int, Field(ge=1, le=10)] = 3
    """Consecutive full passes of the smoke suite that a release needs before it gets traffic."""
    smoke: Smoke = Smoke()


class SwapSettings(Section):
    """Settings of a swap from one release to the next."""

    allow_downtime: bool = False
    """Allow downtime while the new release starts, if no other mode fits."""
    bake_s: NotNegative = LIMITS.bake_s
    """Seconds that the new release is checked under traffic before it is promoted."""
    stall_s: Positive = 30.0
    """During the bake, fail a release with a pending request and no engine step for this many seconds."""
    min_serving: Annotated[int, Field(ge=0, le=MAX_REPLICAS)] = LIMITS.min_serving
    """Replicas that serve while others are replaced; 0: all but one."""
    drain_s: NotNegative = LIMITS.drain_s
    """Seconds that open requests of the old release get to finish; the remaining ones are cut and counted."""
    hold_s: Annotated[float, Field(ge=0, le=3000, allow_inf_nan=False)] = LIMITS.hold_s
    """Seconds that a request may wait in the gateway during an in-place swap. If drain, stop and start are
    predicted to take longer, or the duration of the start is unknown, requests get 503 at once."""
    hold_max: Annotated[int, Field(ge=0, le=900)] = LIMITS.hold_max
    """Maximum number of waiting requests of the service; more get 503. Limits of all services: docs/security.md."""
    keep_old_s: NotNegative = LIMITS.keep_old_s
    """Seconds that the old release stays warm after the swap, if both fit, so that a rollback needs no start.

    It stays longer while no other release answers.
    """
    reserve_gib: NotNegative = 15.0
    """Memory in GiB that stays free on a node with another engine: a Spark without free memory hangs.

    A new release that leaves less than this, or less than 4 GiB, is killed before it is promoted.
    """
    memory_timeout_s: NotNegative = 120.0
    """Seconds within which a stopped engine must free its memory."""
    compare: Literal["report", "refuse"] | None = None
    """Ask the release that serves and the new one the same questions before the switch, and compare answers and speed.

    `report` notes the differences; `refuse` also keeps the old release if they are beyond its own spread.
    """
    questions: LocalPath | None = None
    """File beside the recipe with more questions for `compare`: one request of /v1/chat/completions a line, as JSON."""


class Expected(Section):
    """Measured figures."""

    tok_s: Positive | None = None
    """Decode speed of one stream in tokens per second."""
    ttft_s: Positive | None = None
    """Seconds to the first token of a short prompt."""
    cold_start_s: Positive | None = None
    """Seconds from container start to the first answer."""
    source: Line
    """Author and machine of the measurement."""


@dataclass(frozen=True)
class Origin:
    """Where a recipe was read. Not a part of its value: two recipes with the same values are equal."""

    file: Path | None = field(default=None, compare=False)
    lock: Path | None = field(default=None, compare=False)
    """The file of its lock."""
    changes: tuple[str, ...] = field(default=(), compare=False)
    """Each KEY=VALUE that replaced a value for one time."""
    word: str = field(default="", compare=False)
    """What names it in a command, where its name does not."""


class Recipe(Section):
    """One way to build and serve one model."""

    name: Name
    """Name of the file without .yaml."""
    service: Name
    """Name that clients pass as `model`; releases of one service replace each other."""
    description: Line
    """One line, shown by `sparkops recipes`."""
    extends: Name | None = None
    """Base recipe, from the same directory, from `recipes/` if this one is in a folder of it, or shipped: mappings are
    merged, other values replaced, and null removes a key. Description, `expected` and `verified` are not inherited."""
    engine: EngineName = DEFAULT
    """Inference server. `llama-cpp` loads a GGUF file; `atlas` has its own flags; `stand-in` has no model, for
    tests."""
    nodes: list[Name] = []
    """Nodes of the inventory for this recipe; if empty, the plan or `--node` chooses. A deploy moves a release that
    serves on others to them."""
    image: Image
    model: Model
    serve: Serve = Serve()
    memory: MemorySettings
    probe: Probe = Probe()
    swap: SwapSettings = SwapSettings()
    expected: Expected | None = None
    unlocked: Line | None = None
    """Reason why no lock ships with this recipe."""
    verified: Text
    """What was tested with this recipe, and where; also 'Nothing yet.'."""
    _lock: Lock | None = PrivateAttr(None)
    _origin: Origin = PrivateAttr(Origin())

    @model_validator(mode="after")
    def _fits_its_engine(self) -> Recipe:
        engine = ENGINES[self.engine]
        for flag in self.serve.args:
            if opt_in.abbreviated(flag.partition(".")[0], engine.flags.secrets):
                raise wrong_at(("serve", "args", flag), PUBLIC)
            if opt_in.abbreviated(flag.partition(".")[0], engine.taken):
                raise wrong_at(("serve", "args", flag), "not allowed: sparkops sets it from the recipe's other keys")
        for key in engine.pins if not self.image.use else ():
            if getattr(self.image, key) is None:
                raise wrong_at(("image", key), f"missing, but the engine {self.engine} needs it")
        if engine.gguf and self.model.file is None:
            raise wrong_at(("model", "file"), f"missing, but the engine {self.engine} loads one GGUF file")
        if self.model.file is not None and not engine.gguf:
            raise wrong_at(("model", "file"), f"expected none: the engine {self.engine} loads the directory `path`")
        if self.serve.task not in engine.tasks:
            raise wrong_at(("serve", "task"), f"expected chat: the engine {self.engine} has no other task in sparkops")
        return self

    @model_validator(mode="after")
    def _splits_over_nodes(self) -> Recipe:
        serve, executors = self.serve, ENGINES[self.engine].executors
        split = "tensor_parallel" if serve.tensor_parallel > 1 else "pipeline_parallel"
        if serve.ranks > 1 and not executors:
            raise wrong_at(("serve", split), f"expected 1: sparkops starts the engine {self.engine} on one node")
        if (size := serve.tensor_parallel) & (size - 1):
            raise wrong_at(("serve", "tensor_parallel"), UNEVEN.format(size=size))
        if serve.ranks > MOST_RANKS:
            problem = f"{size} x {serve.pipeline_parallel} = {serve.ranks} nodes, expected at most {MOST_RANKS}"
            raise wrong_at(("serve", "pipeline_parallel"), problem)
        if serve.ranks > 1 and serve.executor not in executors:
            problem = f"expected {' or '.join(executors)}, which joins ranks of the engine {self.engine}"
            raise wrong_at(("serve", "executor"), problem)
        return self

    @model_validator(mode="after")
    def _has_conversations(self) -> Recipe:
        if self.serve.sticky and self.serve.task != "chat":
            raise wrong_at(("serve", "sticky"), f"expected false: the task {self.serve.task} has no conversations")
        if self.swap.compare and self.serve.task != "chat":
            raise wrong_at(("swap", "compare"), f"expected none: the task {self.serve.task} has no conversations")
        if self.swap.questions and self.swap.compare is None:
            raise wrong_at(("swap", "questions"), "expected none without swap.compare")
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
    def file(self) -> Path:
        """The file that it was read from; NAME.yaml for one that came without a file, such as a journal's."""
        return self._origin.file or Path(f"{self.name}.yaml")

    @property
    def changes(self) -> tuple[str, ...]:
        """Each KEY=VALUE of `--set` that it has."""
        return self._origin.changes

    def with_changes(self, changes: Iterable[str]) -> Recipe:
        """Return the recipe with the KEY=VALUE that its values already have."""
        recipe = self.model_copy()
        recipe._origin = replace(self._origin, changes=tuple(changes))
        return recipe

    def named(self, word: str) -> Recipe:
        """Return the recipe with what names it in a command: the path of a file that its name does not find."""
        recipe = self.model_copy()
        recipe._origin = replace(self._origin, word=word)
        return recipe

    @property
    def word(self) -> str:
        """The recipe as a word of a command."""
        return quote(self._origin.word or self.name)

    @property
    def typed(self) -> str:
        """The recipe as the words of a command, with `--set` for each value that was replaced."""
        return quote(self._origin.word or self.name, *(word for change in self.changes for word in ("--set", change)))

    @property
    def lock(self) -> Lock | None:
        """The lock of its image, if there is one."""
        return self._lock

    @property
    def lock_file(self) -> Path:
        """The file of its lock: its own, or that of a recipe that it extends; without a lock, where one would be."""
        return self._origin.lock or self.file.with_suffix(SUFFIX)

    def with_lock(self, lock: Lock, file: Path | None = None) -> Recipe:
        """Return the recipe with the base and the commits of its models as locked in `file`."""
        update = {"image": lock.pinned_image(self.image), "model": lock.pinned_model(self.model)}
        recipe = self.model_copy(update=update)
        recipe._lock, recipe._origin = lock, replace(self._origin, lock=file)
        return recipe

    @property
    def build_cache(self) -> str:
        """The name of the cache that a build installs from: one for all that decides which code runs beside it.

        Code of a base, a source or a package can change files that uv has unpacked there, and uv installs them without
        comparing their hash again. A wheel has such code too: Python runs its .pth files. A source has the cache of its
        recipe, so that ccache has the files of the last commit: such recipes share no image.
        """
        exclude = {*AFTER_INSTALLING, "source"}
        stated = self.image.model_dump(mode="json", exclude=exclude, exclude_defaults=True)
        code = json.dumps([self.name if self.image.source else "", stated], sort_keys=True)
        return f"sparkops-{hashlib.sha256(code.encode()).hexdigest()[:12]}"

    @property
    def backend(self) -> str:
        """Where the engine computes: `cpu`, or a CUDA build such as `cu130`."""
        if self.image.torch:
            return self.image.torch.backend
        if self.image.backend:
            return self.image.backend
        engine = ENGINES[self.engine]
        return USED_BACKEND if self.image.use and engine.pins else engine.backend
