"""Compare the images that Docker stores, to find the layers that a target lacks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from sparkops.node.docker.facts import image_content
from sparkops.operator.build.weights.plan import enough_room
from sparkops.units import GIB

CONTAINERD = "io.containerd.snapshotter.v1"
GRAPH_DRIVER = "overlay2"
SETTING = re.compile(
    r"(?:/bin/sh -c #\(nop\) +)?"
    r"(?:ARG|CMD|ENTRYPOINT|ENV|EXPOSE|HEALTHCHECK|LABEL|MAINTAINER|ONBUILD|SHELL|STOPSIGNAL|USER|VOLUME) "
)
"""The command of a step that never has a layer, as BuildKit or the builder before it writes it."""
LAYOUT_OF_DIGESTS = 25
"""The first Docker Engine whose own store names saved layers by the digest of their content."""


@dataclass(frozen=True)
class DockerImage:
    """One image. `layers` are digests of their content, the lowest one first; `size` in bytes.

    `id` differs between stores for the same content; `content` does not.
    """

    id: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]
    content: str
    size: int
    labels: Mapping[str, str] = field(default_factory=dict)
    architecture: str = ""
    """As Docker names it, such as arm64."""


def parse(inspect: Mapping[str, Any]) -> DockerImage:
    """Parse `docker inspect` of an image."""
    return DockerImage(
        id=inspect["Id"],
        tags=tuple(inspect["RepoTags"] or ()),
        layers=tuple(inspect["RootFS"].get("Layers") or ()),
        content=image_content(inspect),
        size=inspect["Size"],
        labels=inspect["Config"].get("Labels") or {},
        architecture=inspect["Architecture"],
    )


@dataclass(frozen=True)
class Store:
    """The image store of a Docker Engine. Docker's own needs disk space to save an image, containerd's does not."""

    containerd: bool
    major: int
    graph: str = ""
    """The directory of the layers if their format is supported; else empty."""

    def names(self, image: DockerImage) -> tuple[str, ...]:
        """Return the layers' names in the tar of `docker save`; none if they are unknown before."""
        if self.containerd or self.major < LAYOUT_OF_DIGESTS:
            return ()
        return tuple(f"blobs/{layer.replace(':', '/')}" for layer in image.layers)


def store(info: Mapping[str, Any], version: str) -> Store:
    """Parse `docker info` and the engine's version."""
    containerd = ["driver-type", CONTAINERD] in (info.get("DriverStatus") or [])
    graph = info.get("DockerRootDir", "") if info.get("Driver") == GRAPH_DRIVER and not containerd else ""
    return Store(containerd, int(version.partition(".")[0]), graph)


def layer_sizes(history: Sequence[Mapping[str, Any]], layers: int) -> tuple[int, ...]:
    """Estimate the bytes of each of `layers` layers, the lowest one first.

    Docker does not tell which steps of zero bytes have a layer, such as WORKDIR. Where the commands do not tell it
    either, those are left out, and larger ones stand in their places.
    """
    steps = [(step["Size"], step.get("CreatedBy") or "") for step in reversed(history)]
    sizes = tuple(size for size, command in steps if size or not SETTING.match(command))
    return sizes if len(sizes) == layers else tuple(size for size, _ in steps if size)


@dataclass(frozen=True)
class ImageLack:
    """The parts of an image that a target lacks. `same` is its image with the same content and labels, under any name.

    Otherwise the target shares the first `shared` layers.
    """

    same: DockerImage | None
    named: bool
    shared: int = 0


def lack(image: DockerImage, tag: str, present: Iterable[DockerImage]) -> ImageLack:
    """Return the parts of `image` with the name `tag` that a node with the images `present` lacks.

    Images with other labels differ, because two recipes may differ only in them.
    """
    images = list(present)
    same = [item for item in images if (item.content, item.labels) == (image.content, image.labels)]
    for other in same:
        if tag in other.tags:
            return ImageLack(other, named=True)
    if same:
        return ImageLack(same[0], named=False)
    return ImageLack(None, named=False, shared=max((_shared(image.layers, item.layers) for item in images), default=0))


def _shared(layers: Sequence[str], others: Sequence[str]) -> int:
    """Count the lowest layers that two images share. Docker identifies a layer together with all below it."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(layers, others, strict=False)))


def missing_bytes(image: DockerImage, sizes: Sequence[int], shared: int) -> int:
    """Estimate the bytes that a target with the first `shared` layers lacks. `sizes` are those of the layers."""
    lacking = len(image.layers) - shared
    return sum(sizes[-lacking:]) if lacking else 0


def saved_share(image: DockerImage, sizes: Sequence[int]) -> float:
    """Estimate the share of the layers' bytes that a saved image has: containerd's store saves them compressed."""
    unpacked = sum(sizes)
    return min(1.0, image.size / unpacked) if unpacked else 1.0


def room(free_gib: float | None, need_bytes: float) -> str:
    """Return the missing space on Docker's disk as text; empty if it is enough or unknown."""
    return "" if free_gib is None else enough_room(int(free_gib * GIB), need_bytes)
