"""Removals from the nodes' disks: their order, commands and bytes. Pure. retention.py decides what stays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sparkops.command import Command
from sparkops.docker.commands import docker, remove
from sparkops.prune import retention
from sparkops.prune.retention import Intended, Stored, StoredEngine, StoredImage, Surroundings
from sparkops.release import SHORT, recipe_named, recipe_of

REMOVE_S = 600.0  # 30 GB of layers are many files


@dataclass(frozen=True)
class Policy:
    """Options of the operator: `keep` releases of each service, `free` bytes on each disk, a build cache of `cache`."""

    keep: int = 3
    free: int | None = None
    cache: int | None = None


@dataclass(frozen=True)
class Removal:
    """One thing to remove from one node; `size`: about how many bytes that frees. `service`: that used it, if any."""

    node: str
    kind: str
    name: str
    size: int
    command: Command
    service: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Its identity in two plans."""
        return (self.node, self.kind, self.name)


@dataclass(frozen=True)
class Kept:
    """One container or image of sparkops that stays, and the reason."""

    node: str
    kind: str
    name: str
    why: str


@dataclass(frozen=True)
class Pruning:
    """The removals in order, and what stays."""

    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...]


def plan(nodes: Sequence[Stored], intended: Intended, policy: Policy) -> Pruning:
    """Return the removals from these nodes, oldest first; with `policy.free` no more than it needs."""
    newest = retention.newest(nodes, policy.keep)
    services = _services(nodes, intended)
    removals: list[Removal] = []
    kept: list[Kept] = []
    for node in nodes:
        why = {engine.container.name: next(retention.engine(engine, intended, newest), "") for engine in node.engines}
        kept += (Kept(node.node, "container", name, reason) for name, reason in why.items() if reason)
        going = [engine for engine in node.engines if not why[engine.container.name]]
        images = retention.newest_images(node) if policy.keep else {}
        around = Surroundings(node, node.engines, intended, images, services)
        due = _Disk(around, list(node.images), dict(node.volumes)).removals(going)
        removals += [*_enough(due, node, policy.free), *_build_cache(node, policy.cache)]
        last = replace(around, staying=[engine for engine in node.engines if engine not in going])
        for image in node.images:
            if retention.is_from_sparkops(image) and (reason := next(retention.image(image, last), "")):
                kept.append(Kept(node.node, "image", image.name, reason))
    return Pruning(tuple(removals), tuple(kept))


def _services(nodes: Sequence[Stored], intended: Intended) -> Mapping[str, str]:
    """Return the service that each recipe has served."""
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


def _enough(due: Iterable[Removal], node: Stored, bound: int | None) -> Iterator[Removal]:
    """Yield removals until `bound` bytes are free; all of them without a bound."""
    free = node.free or 0
    for removal in due:
        if bound is not None and free >= bound:
            return
        free += removal.size
        yield removal


def _build_cache(node: Stored, bound: int | None) -> Iterator[Removal]:
    """Yield the build cache after the images: what it shared with them becomes its own."""
    if bound is not None and node.cache + node.cache_shared > bound:
        size, command = max(0, node.cache - bound), shrink_build_cache(bound)
        yield Removal(node.node, "build cache", "of BuildKit", size, command)


@dataclass
class _Disk:
    """The disk of one node between two removals."""

    around: Surroundings
    images: list[StoredImage]
    volumes: dict[str, int]

    @property
    def node(self) -> Stored:
        """The node before any removal."""
        return self.around.node

    def removals(self, going: Sequence[StoredEngine]) -> Iterator[Removal]:
        """Yield unneeded images and volumes, then the releases, oldest first, each with those that only it needs."""
        yield from self._unneeded()
        for engine in sorted(going, key=lambda engine: engine.created_at):
            yield self._engine(engine)
            yield from self._unneeded()

    def _engine(self, engine: StoredEngine) -> Removal:
        self.around = replace(self.around, staying=[other for other in self.around.staying if other is not engine])
        name, service = engine.container.name, engine.container.service
        return Removal(self.node.node, "container", name, engine.written, remove(name), service)

    def _unneeded(self) -> Iterator[Removal]:
        for image in sorted(self.images, key=lambda image: image.built_at):
            if not any(retention.image(image, self.around)):
                yield self._image(image)
        for name, size in sorted(self.volumes.items()):
            if not any(retention.cache(name, self.images, self.around.staying)):
                del self.volumes[name]
                command = remove_volume(name)
                yield Removal(self.node.node, "volume", name, size, command, self._service_of_volume(name))

    def _image(self, image: StoredImage) -> Removal:
        """Return the removal of an image, with the bytes of steps that no remaining image shares."""
        self.images.remove(image)
        size, command = image.own_bytes(self.images), remove_image(image.tags or (image.id,))
        return Removal(self.node.node, "image", image.name, size, command, self._service_of_image(image))

    def _service_of_image(self, image: StoredImage) -> str:
        services = (self.around.services.get(recipe_of(tag), "") for tag in image.tags)
        return next(filter(None, services), "")

    def _service_of_volume(self, volume: str) -> str:
        """Return the service of a cache of kernels, by the inputs of all containers and images."""
        inputs = volume.rpartition("-")[2]
        engines = (e.container.service for e in self.node.engines if e.container.inputs[:SHORT] == inputs)
        images = (self._service_of_image(image) for image in self.node.images if image.inputs[:SHORT] == inputs)
        return next(filter(None, chain(engines, images)), "")


def remove_image(names: Sequence[str]) -> Command:
    """Remove names of an image, and with its last name the image."""
    return docker("rmi", *names, timeout_s=REMOVE_S)


def remove_volume(name: str) -> Command:
    return docker("volume", "rm", name, timeout_s=REMOVE_S)


def shrink_build_cache(keep: int) -> Command:
    """Remove the longest unused entries of BuildKit's cache until it has at most `keep` bytes.

    The builder is named as in builds: another default builder has a cache of its own, which is the user's.
    """
    command = docker("builder", "prune", "--force", "--all", f"--keep-storage={keep}", timeout_s=REMOVE_S)
    return replace(command, argv=("env", "BUILDX_BUILDER=default", *command.argv))
