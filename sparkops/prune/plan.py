"""What goes from the nodes' disks, in which order, and how many bytes that gives. Pure. retention.py: what stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sparkops.command import Command
from sparkops.docker.commands import remove
from sparkops.prune import commands, retention
from sparkops.prune.retention import CACHE, Around, Intended, recipe_named
from sparkops.prune.stored import Stored, StoredEngine, StoredImage
from sparkops.release import SHORT, recipe_of


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
    newest = retention.newest(nodes, policy.keep)
    services = _services(nodes, intended)
    removals: list[Removal] = []
    kept: list[Kept] = []
    for node in nodes:
        why = {engine.container.name: next(retention.engine(engine, intended, newest), "") for engine in node.engines}
        kept += (Kept(node.node, "container", name, reason) for name, reason in why.items() if reason)
        going = [engine for engine in node.engines if not why[engine.container.name]]
        images = retention.newest_images(node) if policy.keep else {}
        around = Around(node, node.engines, intended, images, services)
        due = _Disk(around, list(node.images), dict(node.volumes)).removals(going)
        removals += [*_enough(due, node, policy.free), *_build_cache(node, policy.cache)]
        last = replace(around, staying=[engine for engine in node.engines if engine not in going])
        kept += _kept_images(last)
    return Pruning(tuple(removals), tuple(kept))


def _services(nodes: Sequence[Stored], intended: Intended) -> Mapping[str, str]:
    """Which service each recipe has served."""
    engines = (engine.container for node in nodes for engine in node.engines)
    journals = chain.from_iterable(intended.journals.values())
    return {
        **{recipe_named(container.release): container.service for container in engines},
        **{
            recipe_named(deployment.release): journal.service
            for journal in journals
            for _, deployment in retention.named(journal)
        },
    }


def _kept_images(around: Around) -> Iterator[Kept]:
    for image in around.node.images:
        if retention.ours(image) and (why := next(retention.image(image, around), "")):
            yield Kept(around.node.node, "image", _name(image), why)


def _enough(due: Iterable[Removal], node: Stored, bound: int | None) -> Iterator[Removal]:
    """Yield removals until `bound` bytes are free; all of them without a bound."""
    free = node.free or 0
    for removal in due:
        if bound is not None and free >= bound:
            return
        free += removal.size
        yield removal


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

    def removals(self, going: Sequence[StoredEngine]) -> Iterator[Removal]:
        """Yield what nothing needs, then the releases, oldest first, each with what only it needs."""
        yield from self._unneeded()
        for engine in sorted(going, key=lambda engine: engine.created_at):
            yield self._engine(engine)
            yield from self._unneeded()

    def _engine(self, engine: StoredEngine) -> Removal:
        self.around = replace(self.around, staying=[other for other in self.around.staying if other is not engine])
        name, service = engine.container.name, engine.container.service
        return Removal(self.node.node, "container", name, engine.written, remove(name), service)

    def _unneeded(self) -> Iterator[Removal]:
        for image in sorted(self.images, key=lambda image: image.made_at):
            if not any(retention.image(image, self.around)):
                yield self._image(image)
        for name, size in sorted(self.volumes.items()):
            if not any(retention.cache(name, self.images, self.around.staying)):
                del self.volumes[name]
                command = commands.volume(name)
                yield Removal(self.node.node, "volume", name, size, command, self._service_of(name))

    def _image(self, image: StoredImage) -> Removal:
        """It gives the bytes of those steps that no other image has that is still there."""
        self.images.remove(image)
        shared = set(chain.from_iterable(other.steps for other in self.images))
        size = sum(bytes_ for step, bytes_ in image.steps.items() if step not in shared)
        command = commands.image(image.tags or (image.id,))
        return Removal(self.node.node, "image", _name(image), size, command, self._of_recipes(image))

    def _of_recipes(self, image: StoredImage) -> str:
        services = (self.around.services.get(recipe_of(tag), "") for tag in image.tags)
        return next(filter(None, services), "")

    def _service_of(self, volume: str) -> str:
        """Whose kernels they are, by the inputs of containers and images that are or were there."""
        inputs = volume.removeprefix(CACHE)
        engines = (e.container.service for e in self.node.engines if e.container.inputs[:SHORT] == inputs)
        images = (self._of_recipes(image) for image in self.node.images if image.inputs[:SHORT] == inputs)
        return next(filter(None, chain(engines, images)), "")


def _name(image: StoredImage) -> str:
    return ", ".join(image.tags) or image.id.removeprefix("sha256:")[:SHORT]
