"""What takes room on a node's disk: containers, images, volumes and the build cache, as Docker counts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sparkops.docker import facts
from sparkops.docker.facts import Container
from sparkops.names import LABEL

INPUTS = f"{LABEL}inputs"


@dataclass(frozen=True)
class StoredEngine:
    """A container of a release. `created_at` in seconds since 1970; `written` is what it has written into itself."""

    id: str
    container: Container
    created_at: float
    written: int


@dataclass(frozen=True)
class StoredImage:
    """An image. `made_at`: when it was made, or got its newest name. `steps` are bytes by how they came about.

    Images that have a step in common share its bytes.
    """

    id: str
    tags: tuple[str, ...]
    inputs: str
    made_at: float
    steps: Mapping[str, int]


@dataclass(frozen=True)
class Stored:
    """All of it on one node. `used` are the IDs of images that containers of others use; bytes of volumes by name."""

    node: str
    engines: tuple[StoredEngine, ...] = ()
    used: frozenset[str] = frozenset()
    images: tuple[StoredImage, ...] = ()
    volumes: Mapping[str, int] = field(default_factory=dict)
    cache: int = 0
    cache_shared: int = 0
    """Bytes of the build cache that images have as well. Without those images they are the cache's own."""
    free: int | None = None
    """Bytes that are free on Docker's disk, if the node says it."""
    now_s: float = 0.0


def engine(node: str, inspect: Mapping[str, Any], written: Mapping[str, int]) -> StoredEngine:
    """Read the inspect of a container of a release. `written` is by the IDs of containers."""
    created_at = facts.timestamp(inspect["Created"])
    return StoredEngine(inspect["Id"], facts.parse_container(node, inspect), created_at, written.get(inspect["Id"], 0))


def image(inspect: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> StoredImage:
    """Read the inspect of an image and its history, whose newest step comes first."""
    named_at = inspect.get("Metadata", {}).get("LastTagTime") or ""
    steps, way = {}, ""
    for step in reversed(history):
        way = f"{way}\n{step['Created']} {step['CreatedBy']} {step['Size']}"
        steps[way] = step["Size"]
    return StoredImage(
        id=inspect["Id"],
        tags=tuple(inspect["RepoTags"] or ()),
        inputs=(inspect["Config"].get("Labels") or {}).get(INPUTS, ""),
        made_at=max(_moment(inspect["Created"]), _moment(named_at)),
        steps=steps,
    )


def _moment(text: str) -> float:
    """Seconds since 1970; 0 for no time, which Docker writes as the first day of the first year."""
    return datetime.fromisoformat(text).timestamp() if text and not text.startswith("0001-") else 0.0


@dataclass(frozen=True)
class DiskUsage:
    """What `docker system df` counts: bytes that containers have written, by ID; of volumes; of the build cache.

    `used` are the IDs of images by those of the containers that use them.
    """

    written: Mapping[str, int]
    used: Mapping[str, str]
    volumes: Mapping[str, int]
    cache: int
    cache_shared: int


def usage(counted: Mapping[str, Any]) -> DiskUsage:
    """Read Docker's answer."""
    containers, cache = counted.get("Containers") or [], counted.get("BuildCache") or []
    volumes = {
        volume["Name"]: (volume.get("UsageData") or {}).get("Size", 0) for volume in counted.get("Volumes") or []
    }
    return DiskUsage(
        written={container["Id"]: container.get("SizeRw", 0) for container in containers},
        used={container["Id"]: container["ImageID"] for container in containers},
        volumes={name: max(0, size) for name, size in volumes.items()},
        cache=sum(record["Size"] for record in cache if not record["Shared"]),
        cache_shared=sum(record["Size"] for record in cache if record["Shared"]),
    )
