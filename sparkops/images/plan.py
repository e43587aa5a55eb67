"""An image on its way from a node to others: what a target lacks of it, and the room that it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sparkops.images.facts import DockerImage
from sparkops.nodes.host import GIB
from sparkops.weights.plan import enough_room

TWICE = 2
"""`docker load` writes all that has come to its disk, and then unpacks it beside that."""


@dataclass(frozen=True)
class ImageLack:
    """What a target lacks of an image. `there` is an image of the same content and labels, whatever its name is.

    Without one, it holds the first `held` layers of the image.
    """

    there: DockerImage | None
    named: bool
    held: int = 0


def lack(image: DockerImage, tag: str, theirs: Iterable[DockerImage]) -> ImageLack:
    """Return what a node with these images lacks of `image` under the name `tag`.

    Labels count: two recipes may differ in nothing else, and the image of one is not that of the other.
    """
    images = list(theirs)
    same = [item for item in images if (item.content, item.labels) == (image.content, image.labels)]
    for other in same:
        if tag in other.tags:
            return ImageLack(other, named=True)
    if same:
        return ImageLack(same[0], named=False)
    return ImageLack(None, named=False, held=max((_shared(image.layers, other.layers) for other in images), default=0))


def _shared(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many layers two images have in common, from the lowest one on.

    Docker's own store knows a layer by itself and all that is below it; so the first difference ends it.
    """
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def missing_bytes(image: DockerImage, sizes: Sequence[int], held: int) -> int:
    """About how many bytes a target lacks that holds the first `held` layers. `sizes` are those of the layers."""
    lacking = len(image.layers) - held
    return sum(sizes[-lacking:]) if lacking else 0


def room(free_gib: float | None, need_bytes: float) -> str:
    """Return the lack of room on Docker's disk as text; empty if it is enough or unknown."""
    return "" if free_gib is None else enough_room(int(free_gib * GIB), need_bytes)
