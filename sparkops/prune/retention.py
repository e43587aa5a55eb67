"""What must stay on a node's disk: one function for containers, one for images, one for caches. Pure.

Nothing goes that runs, that Docker would start again, that a journal names, or that is among the newest releases of its
service. An image stays as long as a container that stays uses it, or a journal names its release; a cache of compiled
kernels as long as its image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sparkops.guard_client import engine_spec
from sparkops.prune.stored import Stored, StoredEngine, StoredImage
from sparkops.release import SHORT, TRUSTED, recipe_of
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment

OURS, CANDIDATE, CACHE = "sparkops/", "sparkops-candidate/", "sparkops-cache-"
AT_WORK_S = 3600.0
"""A candidate that is younger may be of a build that goes on: its gate alone may take ten minutes."""


@dataclass(frozen=True)
class Intended:
    """What the guards have written down, by service; and of which service nothing may be touched, and why."""

    journals: Mapping[str, Sequence[Journal]] = field(default_factory=dict)
    untouchable: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> Iterator[tuple[str, Deployment]]:
        """Every release that any journal names, and what it is there."""
        yield from (kept for journals in self.journals.values() for journal in journals for kept in named(journal))


def named(journal: Journal) -> Iterator[tuple[str, Deployment]]:
    """Every release that a journal names, and what it is there."""
    swap = journal.swap
    deployments = {
        "the active release": journal.active,
        "the previous release": journal.previous,
        "the target of a swap": swap.target if swap else None,
        "the source of a swap": swap.source if swap else None,
        "the release before a swap": swap.previous if swap else None,
    }
    yield from ((f"{what} of {journal.service}", deployment) for what, deployment in deployments.items() if deployment)


def newest(nodes: Sequence[Stored], keep: int) -> Mapping[str, Sequence[str]]:
    """The newest releases of each service, by when their newest container was made, on whichever node."""
    times: dict[str, dict[str, float]] = {}
    for engine in (engine for node in nodes for engine in node.engines):
        releases = times.setdefault(engine.container.service, {})
        releases[engine.container.release] = max(releases.get(engine.container.release, 0.0), engine.created_at)
    return {service: sorted(at, key=lambda name: -at[name])[:keep] for service, at in times.items()}


def engine(stored: StoredEngine, intended: Intended, newest_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Every reason why a container must stay."""
    container = stored.container
    if container.running:
        yield "it runs"
    if container.restart_policy != "no":
        yield "Docker would start it again"
    if reason := intended.untouchable.get(container.service):
        yield reason
    yield from (what for what, deployment in intended.named if deployment.release == container.release)
    if container.release in newest_of.get(container.service, ()):
        yield f"one of the newest releases of {container.service}"


@dataclass(frozen=True)
class Around:
    """What an image's stay depends on: the containers that stay, the newest images by recipe, who serves a recipe."""

    node: Stored
    staying: Sequence[StoredEngine]
    intended: Intended
    newest: Mapping[str, str]
    services: Mapping[str, str]


def image(stored: StoredImage, around: Around) -> Iterator[str]:
    """Every reason why an image must stay."""
    if not ours(stored):
        yield "not made by sparkops"
    if stored.id in around.node.used:
        yield "a container uses it"
    yield from (f"{engine.container.name} uses it" for engine in around.staying if engine.container.image == stored.id)
    yield from (f"it is {tag} as well" for tag in stored.tags if not tag.startswith((OURS, CANDIDATE)))
    if any(tag.startswith(CANDIDATE) for tag in stored.tags) and around.node.now_s - stored.made_at < AT_WORK_S:
        yield "a build may be at work on it"
    recipes = {recipe_of(tag) for tag in stored.tags}
    yield from (f"the newest of {recipe}" for recipe in recipes if around.newest.get(recipe) == stored.id)
    yield from (what for what, deployment in around.intended.named if _is_of(stored, deployment))
    services = {around.services.get(recipe, "") for recipe in recipes}
    yield from (why for service, why in around.intended.untouchable.items() if service in services)


def ours(stored: StoredImage) -> bool:
    """Whether sparkops made it: by its name, or without one by its label."""
    return any(tag.startswith((OURS, CANDIDATE)) for tag in stored.tags) or bool(stored.inputs and not stored.tags)


def _is_of(stored: StoredImage, deployment: Deployment) -> bool:
    """Whether a release has this image. One whose spec cannot be read any more has all that are named so."""
    try:
        return any(stored.inputs == engine_spec.of(rank).inputs for rank in deployment.ranks)
    except ValueError:
        return recipe_named(deployment.release) in {recipe_of(tag) for tag in stored.tags}


def recipe_named(release: str) -> str:
    """The recipe's name in that of a release."""
    return release.rpartition("-")[0]


def newest_images(node: Stored) -> Mapping[str, str]:
    """The ID of the newest image of each recipe: it may be what the next deploy needs."""
    images = sorted(node.images, key=lambda image: image.made_at)
    return {recipe_of(tag): image.id for image in images for tag in image.tags if tag.startswith(OURS)}


def cache(volume: str, images: Sequence[StoredImage], engines: Sequence[StoredEngine]) -> Iterator[str]:
    """Every reason why a volume must stay."""
    if volume.startswith(TRUSTED):
        if volume.rpartition("-")[2] in {image.id.partition(":")[2] for image in images}:
            yield "it marks an image as trusted"
    elif not volume.startswith(CACHE):
        yield "not a cache of sparkops"
    inputs = {image.inputs[:SHORT] for image in images} | {engine.container.inputs[:SHORT] for engine in engines}
    if volume.rpartition("-")[2] in inputs:
        yield "its image is there"
