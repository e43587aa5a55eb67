"""The model: the source of its files, their place on a node, and the steps that make a checkpoint of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from sparkops.config.fields import Argument, Line, Name, Positive, RelativePath, Section

OPTIONAL = ("exclude", "sources", "steps")


class Weights(Section):
    """A checkpoint: a directory under a node's `model_dir`, and the model repository that it comes from."""

    id: Line
    """Name of the model on its hub, or any name for a model of your own."""
    revision: Line | None = None
    """Commit of the model repository; part of the release. A node that has another one is refused."""
    path: RelativePath
    """Directory under the node's `model_dir`."""
    size_gb: Positive | None = None
    """Size on disk in GB (10^9 bytes), as its publisher states it."""
    exclude: list[Line] = []
    """Files of the repository that no engine reads, as patterns such as original/*; `models pull` leaves them out."""

    @model_validator(mode="after")
    def _plain(self) -> Weights:
        if self.path.endswith((".partial", ".replaced")) or {"", "."} & set(self.path.split("/")):
            raise ValueError("a `path` without empty parts that does not end in .partial or .replaced")
        return self

    @model_serializer(mode="wrap")
    def _short(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit empty lists, so that a new key changes no release that does not use it."""
        dumped: dict[str, Any] = dump(self)
        return {key: value for key, value in dumped.items() if value != [] or key not in OPTIONAL}


class Step(Section):
    """One program that makes a checkpoint out of others, on a node, in a container of the recipe's image."""

    script: Name
    """File in templates/steps/ without .py: replace-tensors or add-tensors."""
    inputs: Annotated[dict[Name, RelativePath], Field(min_length=1)]
    """The checkpoints that it reads: the script's word for each, and the `path` of a source or of an earlier step."""
    output: RelativePath
    """Directory under the node's `model_dir` that it makes. The last step makes the model's own `path`."""
    args: dict[Name, Argument] = {}
    """The script's arguments; templates/steps/ says which there are."""
    disk_gb: Positive
    """Free space in GB (10^9 bytes) that it needs. Shards that stay as they are take none: they are linked."""


class Model(Weights):
    """The weights. They lie on the node, in a directory under its `model_dir`."""

    sources: list[Weights] = []
    """The checkpoints that `steps` begin with. `models pull` fetches them in place of the model itself."""
    steps: list[Step] = []
    """What makes the model out of its sources, in this order; `models prepare` runs it."""

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if bool(self.steps) != bool(self.sources):
            raise ValueError("`sources` and `steps` together, or none of them")
        paths = [source.path for source in self.sources]
        for step in self.steps:
            for path in step.inputs.values():
                if path not in paths:
                    raise ValueError(f"step {step.script} to read a source or an earlier output, not '{path}'")
            paths.append(step.output)
        if self.steps and self.steps[-1].output != self.path:
            raise ValueError(f"the last step to make the model's own path '{self.path}'")
        if len(set(paths)) != len(paths):
            raise ValueError("a directory of its own for each of `sources` and `steps`")
        return self

    @property
    def fetched(self) -> Iterator[Weights]:
        """The downloads: the sources of a model that is made here, otherwise the model itself."""
        yield from self.sources or [self]
