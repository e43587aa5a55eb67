"""The model: the source of its files, their place on a node, and the steps that make a checkpoint of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, SerializerFunctionWrapHandler, field_validator, model_serializer, model_validator
from pydantic_core import PydanticCustomError

from sparkops.config.fields import Argument, Line, Name, Positive, RelativePath, Section

OPTIONAL = ("file", "exclude", "sources", "steps", "draft")

GGUF = ".gguf"
PART = re.compile(r"-(?P<number>[0-9]{5})-of-(?P<of>[0-9]{5})\.gguf$")
"""The end of the name of one of several files (llama_split_path in llama.cpp's src/llama.cpp)."""


def parts(file: str) -> list[str]:
    """Return the files that belong to a GGUF file: itself, or all parts of which it is one."""
    part = PART.search(file)
    if part is None:
        return [file]
    of, stem = int(part["of"]), file[: part.start()]
    return [f"{stem}-{number:05d}-of-{of:05d}{GGUF}" for number in range(1, of + 1)]


class Weights(Section):
    """A checkpoint: its directory under a node's `model_dir`, and its model repository."""

    id: Line
    """Name of the model on the hub, or any name for your own model."""
    revision: Line | None = None
    """Commit of the model repository; part of the release. A node with another one is refused."""
    path: RelativePath
    """Directory under the node's `model_dir`."""
    file: RelativePath | None = None
    """GGUF file in that directory, for an engine that loads one; of a model in several files the first,
    NAME-00001-of-00003.gguf. `models pull` downloads this file, or all parts, and nothing else."""
    size_gb: Positive | None = None
    """Size on disk in GB (10^9 bytes), as stated by its publisher."""
    exclude: list[Line] = []
    """Patterns of files that the engine does not need, such as original/*; `models pull` skips them."""

    @model_validator(mode="after")
    def _plain(self) -> Weights:
        if self.path.endswith((".partial", ".replaced")) or {"", "."} & set(self.path.split("/")):
            raise ValueError("a `path` without empty parts that does not end in .partial or .replaced")
        return self

    @field_validator("file")
    @classmethod
    def _is_gguf(cls, file: str | None) -> str | None:
        part = PART.search(file or "")
        if file and not file.endswith(GGUF):
            raise PydanticCustomError("gguf", "expected the name of a file that ends in .gguf")
        if part and int(part["number"]) != 1:
            raise PydanticCustomError("gguf", "expected the first of its parts, which names the others")
        return file

    @property
    def files(self) -> list[str]:
        """All files of a model of one GGUF file: the file, or all its parts; none for a directory."""
        return parts(self.file) if self.file else []

    @property
    def loaded(self) -> str:
        """What an engine is given, under the node's `model_dir`: the directory, or the GGUF file in it."""
        return f"{self.path}/{self.file}" if self.file else self.path

    @model_serializer(mode="wrap")
    def _short(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Omit empty lists and an absent draft, so that a new key changes no release that does not use it."""
        dumped: dict[str, Any] = dump(self)
        return {key: value for key, value in dumped.items() if value not in ([], None) or key not in OPTIONAL}


class Step(Section):
    """A program that makes a checkpoint from others, on a node, in a container of the recipe's image."""

    script: Name
    """File in templates/steps/ without .py: replace-tensors, add-tensors or gguf."""
    inputs: Annotated[dict[Name, RelativePath], Field(min_length=1)]
    """Input checkpoints: by the script's name for each, the `path` of a source or of an earlier step."""
    output: RelativePath
    """Output directory under the node's `model_dir`; for the last step the model's own `path`."""
    args: dict[Name, Argument] = {}
    """Arguments of the script, documented in templates/steps/."""
    disk_gb: Positive
    """Free disk in GB (10^9 bytes) that the step requires; unchanged shards are linked and need none."""


class Model(Weights):
    """The weights, in a directory under the node's `model_dir`."""

    sources: list[Weights] = []
    """Input checkpoints of `steps`; `models pull` downloads them instead of the model."""
    steps: list[Step] = []
    """Steps that make the model from its sources, in this order; `models prepare` runs them."""
    draft: Weights | None = None
    """Second checkpoint that the engine reads, for speculative decoding; `speculative-config` names it as /models/ and
    its `path`. `models pull` and `copy` bring it, too."""

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if bool(self.steps) != bool(self.sources):
            raise ValueError("both `sources` and `steps`, or neither")
        if self.draft and self.draft.path in (self.path, *(source.path for source in self.sources)):
            raise ValueError("a directory of its own for `draft`")
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
        """The downloads: the sources of a model that is made here, otherwise the model itself; and the draft."""
        yield from (weights for _, weights in self.places)

    @property
    def places(self) -> Iterator[tuple[tuple[str | int, ...], Weights]]:
        """Each download with its place in the recipe."""
        if self.sources:
            yield from ((("model", "sources", number), source) for number, source in enumerate(self.sources))
        else:
            yield ("model",), self
        if self.draft:
            yield ("model", "draft"), self.draft
