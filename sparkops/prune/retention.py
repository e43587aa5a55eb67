"""What a node's disk holds, as Docker counts it, and the reasons to keep containers, images and caches. Pure.

A container stays if it runs, if Docker would restart it, if a journal names it, or if its release is among the newest
of its service and in no journal. A release that has moved is in the journal with its present containers. An image
stays while a container that stays uses it or a journal names its release; a cache of compiled kernels while its image
stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from typing import Any

from sparkops.docker import facts
from sparkops.docker.facts import Container
from sparkops.guard_client import engine_spec
from sparkops.names import INPUTS
from sparkops.release import SHORT, TRUSTED, recipe_named, recipe_of
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment


@dataclass(frozen=True)
class StoredEngine:
    """A container of a release. `created_at`: seconds since 1970; `written`: bytes of its own layer."""

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

    @property
    def name(self) -> str:
        """Its tags, or a part of its ID without one."""
        return ", ".join(self.tags) or self.id.removeprefix("sha256:")[:SHORT]

    def own_bytes(self, others: Iterable[StoredImage]) -> int:
        """Return the bytes of its steps that no other image shares."""
        shared = set(chain.from_iterable(other.steps for other in others))
        return sum(size for step, size in self.steps.items() if step not in shared)


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


def parse_image(inspect: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> StoredImage:
    """Parse the inspect of an image and its history, whose newest step comes first."""
    created_at = inspect.get("Created") or ""  # an image of other tools may have no time; Docker 25 leaves it out then
    named_at = inspect.get("Metadata", {}).get("LastTagTime") or ""
    steps, path = {}, ""
    for step in reversed(history):
        path = f"{path}\n{step['Created']} {step['CreatedBy']} {step['Size']}"
        steps[path] = step["Size"]
    return StoredImage(
        id=inspect["Id"],
        tags=tuple(inspect["RepoTags"] or ()),
        inputs=(inspect["Config"].get("Labels") or {}).get(INPUTS, ""),
        built_at=max(_moment(created_at), _moment(named_at)),
        steps=steps,
    )


def _moment(text: str) -> float:
    """Return seconds since 1970; 0 for no time, which Docker writes as the first day of year 1."""
    return datetime.fromisoformat(text).timestamp() if text and not text.startswith("0001-") else 0.0


def parse_disk(
    node: str, counted: Mapping[str, Any], inspects: Sequence[Mapping[str, Any]], others: Collection[str] = ()
) -> Stored:
    """Parse the reply to `docker system df`, with the inspects of the containers of releases; its images are missing.

    `others`: IDs of containers of sparkops besides the engines, whose images count as unused.
    """
    containers, cache = counted.get("Containers") or [], counted.get("BuildCache") or []
    volumes = {item["Name"]: (item.get("UsageData") or {}).get("Size", 0) for item in counted.get("Volumes") or []}
    written = {container["Id"]: container.get("SizeRw", 0) for container in containers}
    known = {*others, *(inspect["Id"] for inspect in inspects)}
    return Stored(
        node,
        engines=tuple(
            StoredEngine(
                facts.parse_container(node, inspect),
                facts.timestamp(inspect["Created"]),
                written.get(inspect["Id"], 0),
            )
            for inspect in inspects
        ),
        used=frozenset(container["ImageID"] for container in containers if container["Id"] not in known),
        volumes={name: max(0, size) for name, size in volumes.items()},
        cache=sum(record["Size"] for record in cache if not record["Shared"]),
        cache_shared=sum(record["Size"] for record in cache if record["Shared"]),
    )


IMAGE, CANDIDATE, CACHE = "sparkops/", "sparkops-candidate/", "sparkops-cache-"
BUILD_S = 3600.0
"""A younger candidate may be of a build in progress: its gate alone may take ten minutes."""


@dataclass(frozen=True)
class Intended:
    """The journals of the guards by service; `untouchable`: services that must stay as they are, with the reason."""

    journals: Mapping[str, Sequence[Journal]] = field(default_factory=dict)
    untouchable: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> Iterator[tuple[str, Deployment]]:
        """Yield every release in any journal, with its role."""
        for journals in self.journals.values():
            for journal in journals:
                yield from named(journal)


def named(journal: Journal) -> Iterator[tuple[str, Deployment]]:
    """Yield every release in a journal, with its role."""
    swap = journal.swap
    deployments = {
        "the active release": journal.active,
        "the previous release": journal.previous,
        "the target of a swap": swap.target if swap else None,
        "the source of a swap": swap.source if swap else None,
        "the release before a swap": swap.previous if swap else None,
    }
    yield from ((f"{role} of {journal.service}", deployment) for role, deployment in deployments.items() if deployment)


def newest(nodes: Sequence[Stored], keep: int) -> Mapping[str, Sequence[str]]:
    """Return the newest releases of each service on all nodes, by the creation of their newest container."""
    times: dict[str, dict[str, float]] = {}
    for engine in (engine for node in nodes for engine in node.engines):
        releases = times.setdefault(engine.container.service, {})
        releases[engine.container.release] = max(releases.get(engine.container.release, 0.0), engine.created_at)
    return {service: sorted(at_s, key=lambda name: -at_s[name])[:keep] for service, at_s in times.items()}


def engine(stored: StoredEngine, intended: Intended, newest_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the reasons why a container must stay."""
    container = stored.container
    if container.running:
        yield "running"
    if container.restart_policy != "no":
        yield "Docker would restart it"
    if reason := intended.untouchable.get(container.service):
        yield reason
    place = (container.node, container.name)
    yield from (role for role, deployment in intended.named if place in {rank.place for rank in deployment.ranks})
    known = {deployment.release for _, deployment in intended.named}
    if container.release in newest_of.get(container.service, ()) and container.release not in known:
        yield f"one of the newest releases of {container.service}"


@dataclass(frozen=True)
class Surroundings:
    """Conditions on which an image stays. `staying`: containers; `newest`: images by recipe; `services`: by recipe."""

    node: Stored
    staying: Sequence[StoredEngine]
    intended: Intended
    newest: Mapping[str, str]
    services: Mapping[str, str]


def image(stored: StoredImage, around: Surroundings) -> Iterator[str]:
    """Yield the reasons why an image must stay."""
    if not is_from_sparkops(stored):
        yield "not made by sparkops"
    if stored.id in around.node.used:
        yield "a container uses it"
    yield from (f"{engine.container.name} uses it" for engine in around.staying if engine.container.image == stored.id)
    yield from (f"also tagged {tag}" for tag in stored.tags if not tag.startswith((IMAGE, CANDIDATE)))
    if any(tag.startswith(CANDIDATE) for tag in stored.tags) and around.node.now_s - stored.built_at < BUILD_S:
        yield "a build may use it"
    recipes = {recipe_of(tag) for tag in stored.tags}
    yield from (f"the newest of {recipe}" for recipe in recipes if around.newest.get(recipe) == stored.id)
    yield from (role for role, deployment in around.intended.named if _is_of(stored, deployment))
    services = {around.services.get(recipe, "") for recipe in recipes}
    yield from (why for service, why in around.intended.untouchable.items() if service in services)


def is_from_sparkops(stored: StoredImage) -> bool:
    """Return whether sparkops built an image: by its name, or without one by its label."""
    return any(tag.startswith((IMAGE, CANDIDATE)) for tag in stored.tags) or bool(stored.inputs and not stored.tags)


def _is_of(stored: StoredImage, deployment: Deployment) -> bool:
    """Return whether a release has this image. A release with an unreadable spec has every image of its recipe."""
    try:
        return any(stored.inputs == engine_spec.of(rank).inputs for rank in deployment.ranks)
    except ValueError:
        return recipe_named(deployment.release) in {recipe_of(tag) for tag in stored.tags}


def newest_images(node: Stored) -> Mapping[str, str]:
    """Return the ID of the newest image of each recipe, which the next deploy may need."""
    images = sorted(node.images, key=lambda image: image.built_at)
    return {recipe_of(tag): image.id for image in images for tag in image.tags if tag.startswith(IMAGE)}


def cache(volume: str, images: Sequence[StoredImage], engines: Sequence[StoredEngine]) -> Iterator[str]:
    """Yield the reasons why a volume must stay."""
    if volume.startswith(TRUSTED):
        if volume.rpartition("-")[2] in {image.id.partition(":")[2] for image in images}:
            yield "marks a verified image"
    elif not volume.startswith(CACHE):
        yield "not a cache of sparkops"
    inputs = {image.inputs[:SHORT] for image in images} | {engine.container.inputs[:SHORT] for engine in engines}
    if volume.rpartition("-")[2] in inputs:
        yield "its image exists"
