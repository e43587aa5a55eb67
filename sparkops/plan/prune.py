"""What goes from the nodes' disks, in which order, and how many bytes that gives. Pure. plan/keep.py: what stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sparkops.command import Command
from sparkops.commands import docker
from sparkops.commands import prune as commands
from sparkops.facts.stored import Engine, Stored, StoredImage
from sparkops.plan import keep
from sparkops.plan.images import recipe_of
from sparkops.plan.keep import CACHE, Around, Intended, recipe_named
from sparkops.release import SHORT


@dataclass(frozen=True)
class Policy:
    """What the operator wants: `keep` releases of each service; `free` bytes on each disk; a build cache of `cache`."""

    keep: int = 3
    free: int | None = None
    cache: int | None = None


@dataclass(frozen=True)
class Removal:
    """One thing that goes from one node, and about how many bytes that gives.

    `service` is the one under whose lock it goes; none for what no service has used.
    """

    node: str
    kind: str
    name: str
    size: int
    command: Command
    service: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is."""
        return (self.node, self.kind, self.name)


@dataclass(frozen=True)
class Kept:
    """One container or image of ours that stays, and why."""

    node: str
    kind: str
    name: str
    why: str


@dataclass(frozen=True)
class Pruning:
    """What goes, in this order, and what stays for a reason."""

    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]


def plan(nodes: Sequence[Stored], intended: Intended, policy: Policy) -> Pruning:
    """What goes from these nodes. With `policy.free` no more than that needs, the oldest first."""
    newest = keep.newest(nodes, policy.keep)
    services = _services(nodes, intended)
    removals: list[Removal] = []
    kept: list[Kept] = []
    for node in nodes:
        why = {each.container.name: next(keep.engine(each, intended, newest), "") for each in node.engines}
        kept += (Kept(node.node, "container", name, reason) for name, reason in why.items() if reason)
        going = [each for each in node.engines if not why[each.container.name]]
        images = keep.newest_images(node) if policy.keep else {}
        around = Around(node, node.engines, intended, images, services)
        due = _Disk(around, list(node.images), dict(node.volumes)).removals(going)
        removals += [*_enough(due, node, policy.free), *_build_cache(node, policy.cache)]
        last = replace(around, staying=[each for each in node.engines if each not in going])
        kept += _kept_images(last)
    return Pruning(tuple(removals), tuple(kept))


def _services(nodes: Sequence[Stored], intended: Intended) -> Mapping[str, str]:
    """Which service each recipe has served."""
    engines = (each.container for node in nodes for each in node.engines)
    journals = chain.from_iterable(intended.journals.values())
    return {
        **{recipe_named(each.release): each.service for each in engines},
        **{recipe_named(placed.release): each.service for each in journals for _, placed in keep.named(each)},
    }


def _kept_images(around: Around) -> Iterator[Kept]:
    for each in around.node.images:
        if keep.ours(each) and (why := next(keep.image(each, around), "")):
            yield Kept(around.node.node, "image", _name(each), why)


def _enough(due: Iterable[Removal], node: Stored, wanted: int | None) -> Iterator[Removal]:
    """As many as it takes until so many bytes are free; all where nobody has said how many."""
    free = node.free or 0
    for each in due:
        if wanted is not None and free >= wanted:
            return
        free += each.size
        yield each


def _build_cache(node: Stored, bound: int | None) -> Iterator[Removal]:
    """After the images: what it has shared with them is its own then, and only now goes."""
    if bound is not None and node.cache + node.cache_shared > bound:
        size, command = max(0, node.cache - bound), commands.build_cache(bound)
        yield Removal(node.node, "build cache", "of BuildKit", size, command)


@dataclass
class _Disk:
    """One node's disk, as it becomes emptier."""

    around: Around
    images: list[StoredImage]
    volumes: dict[str, int]

    @property
    def node(self) -> Stored:
        """As it was."""
        return self.around.node

    def removals(self, going: Sequence[Engine]) -> Iterator[Removal]:
        """What nobody needs, then release by release, the oldest first, with what only it has needed."""
        yield from self._unneeded()
        for each in sorted(going, key=lambda each: each.created_at):
            yield self._engine(each)
            yield from self._unneeded()

    def _engine(self, each: Engine) -> Removal:
        self.around = replace(self.around, staying=[other for other in self.around.staying if other is not each])
        name, service = each.container.name, each.container.service
        return Removal(self.node.node, "container", name, each.written, docker.remove(name), service)

    def _unneeded(self) -> Iterator[Removal]:
        for each in sorted(self.images, key=lambda each: each.made_at):
            if not any(keep.image(each, self.around)):
                yield self._image(each)
        for name, size in sorted(self.volumes.items()):
            if not any(keep.cache(name, self.images, self.around.staying)):
                del self.volumes[name]
                command = commands.volume(name)
                yield Removal(self.node.node, "volume", name, size, command, self._service_of(name))

    def _image(self, each: StoredImage) -> Removal:
        """It gives the bytes of those steps that no other image has that is still there."""
        self.images.remove(each)
        shared = set(chain.from_iterable(other.steps for other in self.images))
        size = sum(bytes_ for step, bytes_ in each.steps.items() if step not in shared)
        command = commands.image(each.tags or (each.id,))
        return Removal(self.node.node, "image", _name(each), size, command, self._of_recipes(each))

    def _of_recipes(self, each: StoredImage) -> str:
        found = (self.around.services.get(recipe_of(tag), "") for tag in each.tags)
        return next(filter(None, found), "")

    def _service_of(self, volume: str) -> str:
        """Whose kernels they are, by the inputs of containers and images that are or were there."""
        inputs = volume.removeprefix(CACHE)
        engines = (e.container.service for e in self.node.engines if e.container.inputs[:SHORT] == inputs)
        images = (self._of_recipes(each) for each in self.node.images if each.inputs[:SHORT] == inputs)
        return next(filter(None, chain(engines, images)), "")


def _name(each: StoredImage) -> str:
    return ", ".join(each.tags) or each.id.removeprefix("sha256:")[:SHORT]
