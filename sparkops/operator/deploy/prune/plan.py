"""What goes in a prune: what no journal names. Pure.

A container stays if it runs, if Docker would restart it, or if a journal names it. An image stays if a container that
stays uses it, if it is young, if it has a name of another program, or if a journal names its release; the cache of an
image, and the mark that it is verified, stay with the image.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sparkops.command import Command
from sparkops.config.release import CACHES, SHORT, TRUSTED
from sparkops.node.docker.commands import remove
from sparkops.operator.deploy.prune.stored import Stored, StoredImage, remove_image, remove_volume
from sparkops.serving import engine_spec
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment

YOUNG_S = 24 * 3600.0
"""A younger image may be that of a build in progress, or of the deploy after it, which no journal names yet."""


def plan(disk: Stored, journals: Iterable[Journal]) -> tuple[Command, ...]:
    """Return the commands that remove what no journal names from one node. None of them removes by force."""
    named = [deployment for journal in journals for deployment in _named(journal)]
    places = {rank.place for deployment in named for rank in deployment.ranks}
    engines = [
        engine
        for engine in disk.engines
        if engine.running or engine.restart_policy != "no" or (disk.node, engine.name) in places
    ]
    going = {engine.name for engine in disk.engines if engine not in engines}
    used = {image for container, image in disk.used.items() if container not in going}
    images = [image for image in disk.images if image.id in used or _stays(image, named, disk.now_s)]
    inputs = {image.inputs[:SHORT] for image in images} | {engine.inputs[:SHORT] for engine in engines}
    ids = {image.id.partition(":")[2] for image in images}
    return (
        *(remove(name) for name in sorted(going)),
        *(remove_image(image.tags or (image.id,)) for image in disk.images if image not in images),
        *(remove_volume(name) for name in _of_others(disk.volumes, inputs, ids)),
    )


def staying(disk: Stored, removals: Sequence[Command]) -> tuple[str, ...]:
    """Return the images of sparkops on a node that no removal names, each by its tags, or its ID without one."""
    going = {word for removal in removals for word in removal.argv}
    names = (name for image in disk.images for name in image.tags or (image.id,))
    return tuple(sorted(name for name in names if name not in going))


def _named(journal: Journal) -> Iterator[Deployment]:
    """Yield every release in a journal: what serves, what may return, and what a swap uses."""
    swap = journal.swap
    in_swap = (swap.target, swap.source, swap.previous) if swap else ()
    yield from filter(None, (journal.active, journal.previous, *in_swap))


def _stays(image: StoredImage, named: Sequence[Deployment], now_s: float) -> bool:
    """Return whether an image stays that no container uses."""
    young, foreign = now_s - image.named_s < YOUNG_S, image.tags != image.own_tags
    return young or foreign or any(_is_of(image, deployment) for deployment in named)


def _is_of(image: StoredImage, deployment: Deployment) -> bool:
    """Return whether a release has this image. Which image one with an unreadable spec has is unknown: any."""
    try:
        return any(image.inputs == engine_spec.of(rank).inputs for rank in deployment.ranks)
    except ValueError:
        return True


def _of_others(volumes: Iterable[str], inputs: set[str], ids: set[str]) -> Iterator[str]:
    """Yield caches and marks of other images than those with these inputs and IDs."""
    for name in volumes:
        of = name.rpartition("-")[2]
        if (name.startswith(CACHES) and of not in inputs) or (name.startswith(TRUSTED) and of not in ids):
            yield name
