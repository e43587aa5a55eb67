"""The lock of a recipe, NAME.lock beside NAME.yaml: what its image is made from, to the byte if that is possible.

Not locked: the packages of the base's distribution (`apt-get`, which serves only its newest), uv itself but for its
version, and what vLLM's own build asks for where it is compiled from source.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import Field

from sparkops.config.fields import ImageRef, Line, Section, matching
from sparkops.config.image import Image
from sparkops.config.model import Model, Weights

SUFFIX = ".lock"
"""Of a lock's file, in place of the recipe's `.yaml`."""
ROOM_ONLY = {"disk_gib"}
"""Keys of a recipe's image that do not decide what it is made from."""
Pinned = TypeVar("Pinned", bound=Weights)
Sha256 = Annotated[str, matching(r"[0-9a-f]{64}", "64 hex digits")]


class Finished(Section):
    """What a finished image (`image.use`) contains. None is unknown."""

    vllm: Line | None = None
    torch: Line | None = None
    flashinfer: Line | None = None
    nccl: Line | None = None
    cuda: Line | None = None
    """The CUDA that torch was built for, else CUDA_VERSION of the image."""
    architecture: Line | None = None
    """As registries name it, such as arm64."""
    bytes: Annotated[int, Field(ge=0)] | None = None
    """Its size on a node, unpacked."""
    created: Line | None = None


class Parent(Section):
    """The image of FROM."""

    name: ImageRef
    """As the recipe says."""
    digest: Annotated[str, matching(r"sha256:[0-9a-f]{64}", "sha256: and 64 hex digits")] | None = None
    """What a registry calls it; None for an image that no registry gave."""
    layers: list[Line] = []
    """The digest of each of its layers: two images with the same ones hold the same files."""
    finished: Finished | None = None
    """Contents of a finished image, to compare a newer one with."""


class Contents(Section):
    """Versions that an image built from the lock reported."""

    torch: Line
    """torch.__version__."""
    cuda: Line | None = None
    """torch.version.cuda; None for the CPU."""
    archs: list[Line] = []
    """The GPUs that torch has code for."""


class Described(Section):
    """A checkpoint in short, so that `sparkops fit` needs no node that has it."""

    model: Line
    """`model.id` of the recipe."""
    commit: Line | None = None
    """Commit of the model repository; None where the node has no record of it."""
    config: dict[Line, Any]
    """The values of its config.json about layers and KV cache."""
    tensors: dict[Line, Annotated[int, Field(ge=0)]]
    """Bytes of its tensors by name; numbers of layers and experts are `*`, `+` past the last layer."""
    largest_bytes: Annotated[int, Field(ge=0)]
    """Bytes of its largest safetensors file."""


class Lock(Section):
    """What a build takes. Written by `sparkops recipe lock`, not by hand."""

    made_for: Sha256
    """Digest over the recipe's `image`: another one needs another lock."""
    machine: Line
    """The machine for which packages were resolved, such as aarch64."""
    parent: Parent
    commit: Line | None = None
    """The commit of vLLM's source, where it is compiled."""
    whole: bool
    """Whether uv refuses what has no hash here. Not where a base brings packages, or vLLM is compiled."""
    packages: dict[Line, list[Line]] = {}
    """Each package as name==version, and the hashes of its wheels."""
    mods: dict[Line, Sha256] = {}
    """What changes the image after the installation, by its path in templates/mods."""
    models: dict[Line, Line] = {}
    """The commit of each model that the recipe names."""
    contents: Contents | None = None
    checkpoint: Described | None = None
    """What the memory planner needs of the model that the engine reads; None where no node had it."""

    @property
    def requirements(self) -> str:
        """The packages as uv and pip read them."""
        entries = ([name, *(f"--hash={digest}" for digest in hashes)] for name, hashes in self.packages.items())
        return "".join(" \\\n    ".join(entry) + "\n" for entry in entries)

    def pinned_model(self, model: Model) -> Model:
        """Return the model with the locked commits; a revision in the recipe stays."""
        sources = [_pinned(weights, self.models) for weights in model.sources]
        draft = model.draft and _pinned(model.draft, self.models)
        return _pinned(model, self.models).model_copy(update={"sources": sources, "draft": draft})

    def pinned_image(self, image: Image) -> Image:
        """Return the image with the digest of its base, if a registry gave it."""
        if self.parent.digest is None or "@" in image.parent:
            return image
        key = "use" if image.use else "base"
        return image.model_copy(update={key: f"{image.parent}@{self.parent.digest}"})


def _pinned(weights: Pinned, commits: Mapping[str, str]) -> Pinned:
    commit = weights.revision or commits.get(weights.id)
    return weights.model_copy(update={"revision": commit})


def fingerprint(image: Image) -> str:
    """Return a digest over a recipe's image, without the space that it takes."""
    stated = image.model_dump(mode="json", exclude=ROOM_ONLY, exclude_defaults=True)
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()


def not_locked(lock: Lock) -> list[str]:
    """Return the inputs that may still move, each in a sentence."""
    moving = ["packages of the base's distribution: its archive has only the newest of each"]
    if lock.parent.digest is None and "@" not in lock.parent.name:
        noted = "the gate compares its recorded layers" if lock.parent.layers else "and no layers are recorded"
        moving.append(f"the base {lock.parent.name}: no digest from a registry; {noted}")
    if not lock.whole:
        moving.append("Python packages of the base, or required by vLLM's own build")
    return moving + (
        [] if lock.models else ["the model: it is not on a node that was read, and the recipe has no revision"]
    )
