"""Containers, images, volumes and the build cache on a node's disk, as Docker counts them."""

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
    """A container of a release. `created_at`: seconds since 1970; `written`: bytes of its own layer."""

    id: str
    container: Container
    created_at: float
    written: int


@dataclass(frozen=True)
class StoredImage:
    """An image. `built_at`: when it was built, or got its newest name. `steps`: bytes by the commands up to each step.

    Images with a step in common share its bytes.
    """

    id: str
    tags: tuple[str, ...]
    inputs: str
    built_at: float
    steps: Mapping[str, int]


@dataclass(frozen=True)
class Stored:
    """The disk of one node. `used`: IDs of images that containers of other programs use; `volumes`: bytes by name."""

    node: str
    engines: tuple[StoredEngine, ...] = ()
    used: frozenset[str] = frozenset()
    images: tuple[StoredImage, ...] = ()
    volumes: Mapping[str, int] = field(default_factory=dict)
    cache: int = 0
    cache_shared: int = 0
    """Bytes that the build cache shares with images; without those images they are the cache's own."""
    free: int | None = None
    """Free bytes of Docker's disk; None if unknown."""
    now_s: float = 0.0


def engine(node: str, inspect: Mapping[str, Any], written: Mapping[str, int]) -> StoredEngine:
    """Parse the inspect of a container of a release. `written`: bytes by ID of container."""
    created_at = facts.timestamp(inspect["Created"])
    return StoredEngine(inspect["Id"], facts.parse_container(node, inspect), created_at, written.get(inspect["Id"], 0))


def image(inspect: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> StoredImage:
    """Parse the inspect of an image and its history, whose newest step comes first."""
    named_at = inspect.get("Metadata", {}).get("LastTagTime") or ""
    steps, path = {}, ""
    for step in reversed(history):
        path = f"{path}\n{step['Created']} {step['CreatedBy']} {step['Size']}"
        steps[path] = step["Size"]
    return StoredImage(
        id=inspect["Id"],
        tags=tuple(inspect["RepoTags"] or ()),
        inputs=(inspect["Config"].get("Labels") or {}).get(INPUTS, ""),
        built_at=max(_moment(inspect["Created"]), _moment(named_at)),
        steps=steps,
    )


def _moment(text: str) -> float:
    """Return seconds since 1970; 0 for no time, which Docker writes as the first day of year 1."""
    return datetime.fromisoformat(text).timestamp() if text and not text.startswith("0001-") else 0.0


@dataclass(frozen=True)
class DiskUsage:
    """Figures of `docker system df`: bytes of containers' own layers by ID, of volumes by name, of the build cache.

    `used`: IDs of images by the IDs of the containers that use them.
    """

    written: Mapping[str, int]
    used: Mapping[str, str]
    volumes: Mapping[str, int]
    cache: int
    cache_shared: int


def usage(counted: Mapping[str, Any]) -> DiskUsage:
    """Parse the reply of Docker."""
    containers, cache = counted.get("Containers") or [], counted.get("BuildCache") or []
    volumes = {item["Name"]: (item.get("UsageData") or {}).get("Size", 0) for item in counted.get("Volumes") or []}
    return DiskUsage(
        written={container["Id"]: container.get("SizeRw", 0) for container in containers},
        used={container["Id"]: container["ImageID"] for container in containers},
        volumes={name: max(0, size) for name, size in volumes.items()},
        cache=sum(record["Size"] for record in cache if not record["Shared"]),
        cache_shared=sum(record["Size"] for record in cache if record["Shared"]),
    )
