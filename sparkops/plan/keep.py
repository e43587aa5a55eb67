"""What must stay on a node's disk: one function for containers, one for images, one for caches. Pure.

Nothing goes that runs, that Docker would start again, that a journal names, or that is among the newest releases of its
service. An image stays as long as a container that stays uses it, or a journal names its release; a cache of compiled
kernels as long as its image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from sparkops.config.recipe import Recipe
from sparkops.facts.stored import Engine, Stored, StoredImage
from sparkops.plan.images import recipe_of
from sparkops.plan.journal import Journal, Placed
from sparkops.release import SHORT, TRUSTED, Release

OURS, CANDIDATE, CACHE = "sparkops/", "sparkops-candidate/", "sparkops-cache-"
AT_WORK_S = 3600.0
"""A candidate that is younger may be of a build that goes on: its gate alone may take ten minutes."""


@dataclass(frozen=True)
class Intended:
    """What the guards have written down, by service; and of which service nothing may be touched, and why."""

    journals: Mapping[str, Sequence[Journal]] = field(default_factory=dict)
    untouchable: Mapping[str, str] = field(default_factory=dict)

    @property
    def named(self) -> Iterator[tuple[str, Placed]]:
        """Every release that any journal names, and what it is there."""
        yield from (found for journals in self.journals.values() for each in journals for found in named(each))


def named(journal: Journal) -> Iterator[tuple[str, Placed]]:
    """Every release that a journal names, and what it is there."""
    swap, retirement = journal.swap, journal.retirement
    found = {
        "the active release": journal.active,
        "the previous release": journal.previous,
        "green of a swap": swap.green if swap else None,
        "blue of a swap": swap.blue if swap else None,
        "a warm release": retirement.placed if retirement else None,
    }
    yield from ((f"{what} of {journal.service}", placed) for what, placed in found.items() if placed)


def newest(nodes: Sequence[Stored], keep: int) -> Mapping[str, Sequence[str]]:
    """The newest releases of each service, by when their newest container was made, on whichever node."""
    made: dict[str, dict[str, float]] = {}
    for each in (each for node in nodes for each in node.engines):
        releases = made.setdefault(each.container.service, {})
        releases[each.container.release] = max(releases.get(each.container.release, 0.0), each.created_at)
    return {service: sorted(at, key=lambda name: -at[name])[:keep] for service, at in made.items()}


def engine(each: Engine, intended: Intended, newest_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Every reason why a container must stay."""
    container = each.container
    if container.running:
        yield "it runs"
    if container.restart_policy != "no":
        yield "Docker would start it again"
    if reason := intended.untouchable.get(container.service):
        yield reason
    yield from (what for what, placed in intended.named if placed.release == container.release)
    if container.release in newest_of.get(container.service, ()):
        yield f"one of the newest releases of {container.service}"


@dataclass(frozen=True)
class Around:
    """What an image's stay depends on: the containers that stay, the newest images by recipe, who serves a recipe."""

    node: Stored
    staying: Sequence[Engine]
    intended: Intended
    newest: Mapping[str, str]
    services: Mapping[str, str]


def image(each: StoredImage, around: Around) -> Iterator[str]:
    """Every reason why an image must stay."""
    if not ours(each):
        yield "not made by sparkops"
    if each.id in around.node.used:
        yield "a container uses it"
    yield from (f"{engine.container.name} uses it" for engine in around.staying if engine.container.image == each.id)
    yield from (f"it is {tag} as well" for tag in each.tags if not tag.startswith((OURS, CANDIDATE)))
    if any(tag.startswith(CANDIDATE) for tag in each.tags) and around.node.now_s - each.made_at < AT_WORK_S:
        yield "a build may be at work on it"
    recipes = {recipe_of(tag) for tag in each.tags}
    yield from (f"the newest of {recipe}" for recipe in recipes if around.newest.get(recipe) == each.id)
    yield from (what for what, placed in around.intended.named if _is_of(each, placed))
    services = {around.services.get(recipe, "") for recipe in recipes}
    yield from (why for service, why in around.intended.untouchable.items() if service in services)


def ours(each: StoredImage) -> bool:
    """Whether sparkops made it: by its name, or without one by its label."""
    return any(tag.startswith((OURS, CANDIDATE)) for tag in each.tags) or bool(each.inputs and not each.tags)


def _is_of(each: StoredImage, placed: Placed) -> bool:
    """Whether a release has this image. One whose recipe cannot be read any more has all that are named so."""
    try:
        return bool(each.inputs) and Release(Recipe.model_validate(placed.recipe), each.inputs).id == placed.release
    except ValidationError:
        return recipe_named(placed.release) in {recipe_of(tag) for tag in each.tags}


def recipe_named(release: str) -> str:
    """The recipe's name in that of a release."""
    return release.rpartition("-")[0]


def newest_images(node: Stored) -> Mapping[str, str]:
    """The ID of the newest image of each recipe: it may be what the next deploy needs."""
    found = sorted(node.images, key=lambda each: each.made_at)
    return {recipe_of(tag): each.id for each in found for tag in each.tags if tag.startswith(OURS)}


def cache(volume: str, images: Sequence[StoredImage], engines: Sequence[Engine]) -> Iterator[str]:
    """Every reason why a volume must stay."""
    if volume.startswith(TRUSTED):
        if volume.rpartition("-")[2] in {each.id.partition(":")[2] for each in images}:
            yield "it marks an image as trusted"
    elif not volume.startswith(CACHE):
        yield "not a cache of sparkops"
    inputs = {each.inputs[:SHORT] for each in images} | {each.container.inputs[:SHORT] for each in engines}
    if volume.rpartition("-")[2] in inputs:
        yield "its image is there"
