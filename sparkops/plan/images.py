"""An image on its way from a node to others: what a target lacks of it, and the room that it takes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile

from sparkops.facts.host import GIB
from sparkops.facts.images import Image
from sparkops.plan.models import enough_room

TWICE = 2
"""`docker load` writes all that has come to its disk, and then unpacks it beside that."""


@dataclass(frozen=True)
class Lack:
    """What a target lacks of an image. `there` is an image of the same content, whatever its name is.

    Without one, it holds the first `held` layers of the image.
    """

    there: Image | None
    named: bool
    held: int = 0


def lack(image: Image, tag: str, theirs: Iterable[Image]) -> Lack:
    """What a node with these images lacks of `image` under the name `tag`."""
    images = list(theirs)
    same = [each for each in images if each.content == image.content]
    for each in same:
        if tag in each.tags:
            return Lack(each, named=True)
    if same:
        return Lack(same[0], named=False)
    return Lack(None, named=False, held=max((_shared(image.layers, each.layers) for each in images), default=0))


def _shared(ours: Sequence[str], theirs: Sequence[str]) -> int:
    """How many layers two images have in common, from the lowest one on.

    Docker's own store knows a layer by itself and all that is below it; so the first difference ends it.
    """
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, theirs, strict=False)))


def missing_bytes(image: Image, sizes: Sequence[int], held: int) -> int:
    """About how many bytes a target lacks that holds the first `held` layers. `sizes` are those of the layers."""
    lacking = len(image.layers) - held
    return sum(sizes[-lacking:]) if lacking else 0


def room(free_gib: float | None, need_bytes: float) -> str:
    """What is wrong with the room on Docker's disk, in words; no text if it is enough or nobody knows."""
    return "" if free_gib is None else enough_room(int(free_gib * GIB), need_bytes)


def recipe_of(tag: str) -> str:
    """The recipe that an image's tag names: NAME of sparkops/NAME:DIGEST."""
    return tag.rpartition(":")[0].rpartition("/")[2]
