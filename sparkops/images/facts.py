"""What Docker says of its images and of how it stores them, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkops.network.answers import content

CONTAINERD = "io.containerd.snapshotter.v1"
GRAPH_DRIVER = "overlay2"
LAYOUT_OF_DIGESTS = 25
"""The first Docker Engine whose own store saves each layer under the digest of what is in it."""


@dataclass(frozen=True)
class DockerImage:
    """One image. `layers` are digests of what is in them, the lowest one first; `size` in bytes.

    `id` is the store's own: it says nothing of what another node holds. `content` does.
    """

    id: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]
    content: str
    size: int
    labels: Mapping[str, str] = field(default_factory=dict)


def parse(inspect: Mapping[str, Any]) -> DockerImage:
    """Read Docker's inspect of an image."""
    return DockerImage(
        id=inspect["Id"],
        tags=tuple(inspect["RepoTags"] or ()),
        layers=tuple(inspect["RootFS"].get("Layers") or ()),
        content=content(inspect),
        size=inspect["Size"],
        labels=inspect["Config"].get("Labels") or {},
    )


@dataclass(frozen=True)
class Store:
    """How a Docker Engine stores images. Its own store saves to its disk first, containerd's prints what it has."""

    containerd: bool
    major: int
    graph: str = ""
    """The directory where Docker keeps the layers themselves, if it does that in the way that is known here."""

    def names(self, image: DockerImage) -> tuple[str, ...]:
        """The layers' names in the tar of `docker save`; nothing where only the tar tells."""
        if self.containerd or self.major < LAYOUT_OF_DIGESTS:
            return ()
        return tuple(f"blobs/{layer.replace(':', '/')}" for layer in image.layers)


def store(info: Mapping[str, Any], version: str) -> Store:
    """Read `docker info` and the engine's version."""
    containerd = ["driver-type", CONTAINERD] in (info.get("DriverStatus") or [])
    graph = info.get("DockerRootDir", "") if info.get("Driver") == GRAPH_DRIVER and not containerd else ""
    return Store(containerd, int(version.partition(".")[0]), graph)


def layer_sizes(history: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    """About how many bytes each layer adds, the lowest one first. What adds no byte may be a layer or none."""
    return tuple(layer["Size"] for layer in reversed(history) if layer["Size"])
