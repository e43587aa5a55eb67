"""The removal of everything that sparkops brought to a node: what belongs to it, what keeps it, the commands. Pure.

Each name here is that of the module which creates the thing: agents, volumes and tables in `guard_client`, `gateway`
and `network`, caches and marks in `release`, checkpoints in `weights`. Engines, tags and volumes are recognised as
`prune` recognises them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from sparkops.command import Command
from sparkops.docker import places
from sparkops.docker.commands import docker
from sparkops.errors import NeedsOperator, PlanRefused, SparkopsError
from sparkops.gateway.commands import VOLUME
from sparkops.guard_client import commands
from sparkops.guard_client.service_state import ServiceState, needed_nodes, unreported
from sparkops.network import firewall
from sparkops.nodes.host import GIB
from sparkops.prune import retention
from sparkops.prune.plan import REMOVE_S, Kept, Removal, remove_image, remove_volume, shrink_build_cache
from sparkops.prune.retention import CACHE, CANDIDATE, IMAGE, Stored, StoredImage
from sparkops.release import TRUSTED
from sparkops.weights.checkpoint import Checkpoint

NO_RULES = ("nft", f"add table {firewall.TABLE}; delete table {firewall.TABLE}")
"""Deletes the rules of the guard; succeeds without them, too."""
VOLUMES = (commands.VOLUME, VOLUME)
"""Journals, keys and evidence of a guard; configuration, map and certificate of a gateway."""
VOLUME_PREFIXES = (TRUSTED, CACHE)
"""Marks of verified images, and compiled kernels of releases."""
WEIGHTS = "weights"
"""The kind of a removal that takes model files."""


def agents() -> Iterator[str]:
    """Yield the names that containers of guard and gateway have. A replacement comes first: it would start them."""
    for container in (places.CONTAINER, places.GATEWAY):
        yield from (commands.replacement(container), commands.aside(container), container)


@dataclass(frozen=True)
class Installed:
    """What sparkops has on a node. `stored.used`: IDs of images that containers of others use."""

    stored: Stored
    agents: tuple[str, ...] = ()
    """Containers of guard and gateway, in the order of `agents()`."""
    guard_image: str = ""
    """ID of an image of the guard, which has nft and may remove files of root; empty without one."""
    run_exists: bool = False
    """Whether the node has the directory that its guard shares."""
    buildx: str = ""
    """Directory where Docker's client notes builds of the SSH user; empty without one, or with builders of the user."""
    model_dir: str = ""
    checkpoints: tuple[Checkpoint, ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)
    """Another node that has the same directory, by the path of its checkpoint: both use one file system."""
    unasked: tuple[str, ...] = ()
    """Nodes that may have one too, and did not answer."""

    @property
    def node(self) -> str:
        return self.stored.node


@dataclass(frozen=True)
class Uses:
    """What a node is used for, as the guards and the node report it."""

    states: Mapping[str, ServiceState] = field(default_factory=dict)
    """Services by name, as their leader reports them."""
    leads: bool = False
    """Whether the node's own guard is that leader."""
    traffic: Sequence[str] = ()
    """Services that the gateway of this node passes to a release."""
    unreadable: Sequence[SparkopsError] = ()
    """Journals that cannot be read."""


@dataclass(frozen=True)
class Extent:
    """Options of the operator: also remove the model files that sparkops wrote, and BuildKit's cache."""

    weights: bool = False
    build_cache: bool = False


@dataclass(frozen=True)
class Uninstall:
    """The removals from one node, in order. Printed, it is the plan with the commands that run."""

    node: str
    removals: tuple[Removal, ...]
    kept: tuple[Kept, ...] = ()
    leader: str = ""
    """Another node, whose guard dismisses this one first; empty without one."""
    consequences: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """About how many bytes this frees."""
        return sum(removal.size for removal in self.removals)

    @property
    def weights(self) -> int:
        """Bytes of model files among them."""
        return sum(removal.size for removal in self.removals if removal.kind == WEIGHTS)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if not self.removals:
            yield f"{self.node}: nothing of sparkops to remove"
        else:
            yield f"{self.node}: {len(self.removals)} items, about {self.size / GIB:.2f} GiB"
        if self.leader:
            yield f"  - the guard of {self.leader} dismisses {self.node}"
        for removal in self.removals:
            yield f"  - {removal.kind:<11} {removal.size / GIB:>8.2f} GiB  {removal.command}"
        for kept in self.kept:
            yield f"    {kept.kind:<11} {'stays':>12}  {kept.name}: {kept.why}"
        yield from (f"    {consequence}" for consequence in self.consequences)


def refusals(installed: Installed, uses: Uses, without: Collection[str] = ()) -> Iterator[SparkopsError]:
    """Yield the reasons why nothing may be removed: what the node serves or leads was not stopped, or is unknown.

    `without`: nodes that were given up, whose guards need not confirm that their engines have ended.
    """
    node = installed.node
    yield from (NeedsOperator(f"{node}: {error}", next_step="sparkops doctor") for error in uses.unreadable)
    busy: set[str] = set()
    for service, state in uses.states.items():
        if problem := _need(node, state, leads=uses.leads, without=without):
            busy.add(service)
            other = "" if uses.leads else ", or move it: sparkops deploy RECIPE --node OTHER"
            yield PlanRefused(problem, next_step=f"sparkops stop {service}{other}")
    running = {
        engine.container.service: engine.container.name
        for engine in installed.stored.engines
        if engine.container.running
    }
    serving = {service: f"the gateway passes requests of {service} to a release" for service in uses.traffic}
    for service, problem in {**{key: f"{name} runs" for key, name in running.items()}, **serving}.items():
        if service not in busy:
            yield PlanRefused(f"{node}: {problem}", next_step=f"sparkops stop {service}")


def _need(node: str, state: ServiceState, *, leads: bool, without: Collection[str]) -> str:
    """Return why a service needs the node; empty if it does not."""
    journal = state.journal
    service, active = journal.service, journal.active
    if not leads:
        return f"{node}: {service} runs there" if node in needed_nodes(journal, state.reports) else ""
    if journal.deployments or journal.stopping:
        serves = f"{active.release} serves" if active else "a swap or a stop is in progress"
        return f"{node}: its guard leads {service}: {serves}"
    nodes = {rank.node for rank in journal.halting}
    return f"{node}: {service} is not known to have stopped: {unreported(state)}" if nodes - {*without, node} else ""


def plan(installed: Installed, extent: Extent, leader: str = "", uses: Uses | None = None) -> Uninstall:
    """Return the removals: agents, so that nothing starts, then engines, rules, images, volumes, and the rest."""
    images, shared = _images(installed)
    removals = (
        *(_removal(installed, "container", name, _remove_container(name)) for name in installed.agents),
        *_engines(installed),
        *_of_root(installed),
        *images,
        *_volumes(installed),
        *(_build_cache(installed) if extent.build_cache else ()),
        *(_weights(installed) if extent.weights else ()),
    )
    kept = (*_unreachable(installed, removals), *shared, *_kept(installed, extent))
    return Uninstall(installed.node, removals, kept, leader, tuple(_consequences(installed, uses or Uses())))


def _removal(installed: Installed, kind: str, name: str, command: Command, size: int = 0) -> Removal:
    return Removal(installed.node, kind, name, size, command)


def _remove_container(name: str, *, force: bool = True) -> Command:
    """Remove a container with the volumes that its image declares. Named volumes stay."""
    return docker("rm", *(("--force",) if force else ()), "--volumes", name, timeout_s=REMOVE_S)


def _engines(installed: Installed) -> Iterator[Removal]:
    """Yield the containers of releases. One that runs against all expectation makes its removal fail."""
    for engine in installed.stored.engines:
        name = engine.container.name
        yield _removal(installed, "container", name, _remove_container(name, force=False), engine.written)


def _of_root(installed: Installed) -> Iterator[Removal]:
    """Yield what only root may remove: in a container of the guard's image, with one right each."""
    if not installed.guard_image:
        return
    options = ("--network=host", "--cap-add=NET_ADMIN")
    yield _removal(installed, "firewall", f"table {firewall.TABLE}", _in_guard(installed, options, *NO_RULES))
    if installed.run_exists:
        run = PurePosixPath(places.RUN)
        options = ("--network=none", f"--volume={run.parent}:/host")
        yield _removal(
            installed, "directory", places.RUN, _in_guard(installed, options, "rm", "-rf", f"/host/{run.name}")
        )


def _in_guard(installed: Installed, options: Sequence[str], *argv: str) -> Command:
    rights = ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", "--pull=never")
    return docker("run", "--rm", *rights, *options, installed.guard_image, *argv, timeout_s=120.0)


def _images(installed: Installed) -> tuple[tuple[Removal, ...], tuple[Kept, ...]]:
    """Return the removals of images, and those that stay: used by other containers, or a base that others may use."""
    own = sorted(filter(retention.is_from_sparkops, installed.stored.images), key=lambda image: image.built_at)
    used = [image for image in own if image.id in installed.stored.used]
    going = [image for image in own if image not in used]
    staying = [image for image in installed.stored.images if image not in going]
    removals = []
    for image in going:
        size = image.own_bytes(other for other in (*staying, *going) if other is not image)
        staying_names = [tag for tag in image.tags if not tag.startswith((IMAGE, CANDIDATE))]
        names = [tag for tag in image.tags if tag not in staying_names] or [image.id]
        command = remove_image(names)
        removals.append(_removal(installed, "image", ", ".join(names), command, 0 if staying_names else size))
    kept = [Kept(installed.node, "image", image.name, "a container that is not of sparkops uses it") for image in used]
    kept += [Kept(installed.node, "image", image.name, BASE) for image in _bases(own, installed.stored.images)]
    return tuple(removals), tuple(kept)


BASE = "the base of an image of sparkops; pulled by you, or by `sparkops lock`"


def _bases(own: Sequence[StoredImage], images: Sequence[StoredImage]) -> Iterator[StoredImage]:
    """Yield the images of others that those of sparkops are built on: all their steps are steps of one."""
    for image in images:
        if image not in own and image.steps and any(image.steps.keys() <= other.steps.keys() for other in own):
            yield image


def _volumes(installed: Installed) -> Iterator[Removal]:
    for name, size in sorted(installed.stored.volumes.items()):
        if name in VOLUMES or name.startswith(VOLUME_PREFIXES):
            yield _removal(installed, "volume", name, remove_volume(name), size)


def _build_cache(installed: Installed) -> Iterator[Removal]:
    """Yield BuildKit's cache, and what Docker's client has noted about builds."""
    size = installed.stored.cache + installed.stored.cache_shared
    if size:
        yield _removal(installed, "build cache", "of BuildKit", shrink_build_cache(0), size)
    if installed.buildx:
        yield _remove_files(installed, "directory", PurePosixPath(installed.buildx))
        yield _remove_empty(installed, PurePosixPath(installed.buildx).parent)


def _written(checkpoint: Checkpoint) -> bool:
    """Return whether sparkops wrote a checkpoint: it has a marker, or the note of an unfinished one.

    Its name is no evidence: after an interrupted `publish`, NAME.replaced may be the operator's own directory.
    """
    return checkpoint.origin is not None or checkpoint.identity is not None


def _weights(installed: Installed) -> Iterator[Removal]:
    """Yield the checkpoints that sparkops wrote, then the directories above them, which stay unless they are empty."""
    root, parents = PurePosixPath(installed.model_dir), dict[PurePosixPath, None]()
    for checkpoint in filter(_written, installed.checkpoints):
        if checkpoint.path in installed.shared:
            continue
        path = root / checkpoint.path
        yield _remove_files(installed, WEIGHTS, path, checkpoint.size)
        parents |= dict.fromkeys(parent for parent in path.parents if root in parent.parents)
    for parent in sorted(parents, key=lambda parent: -len(parent.parts)):
        yield _remove_empty(installed, parent)


def _remove_files(installed: Installed, kind: str, path: PurePosixPath, size: int = 0) -> Removal:
    command = Command(("rm", "-rf", "--", str(path)), timeout_s=REMOVE_S, changes=True)
    return _removal(installed, kind, str(path), command, size)


def _remove_empty(installed: Installed, path: PurePosixPath) -> Removal:
    """Remove a directory unless something else is in it. A link to one is the operator's, and stays."""
    command = Command(("find", str(path), "-maxdepth", "0", "-type", "d", "-empty", "-delete"), changes=True)
    return _removal(installed, "directory", str(path), command)


def _unreachable(installed: Installed, removals: Sequence[Removal]) -> Iterator[Kept]:
    """Yield what needs root where no image of the guard is left to remove it."""
    if installed.guard_image or not (installed.run_exists or removals):
        return
    why = "no image of the guard to remove it with; as root:"
    yield Kept(installed.node, "firewall", f"table {firewall.TABLE}", f"{why} {Command(NO_RULES)}")
    if installed.run_exists:
        yield Kept(installed.node, "directory", places.RUN, f"{why} rm -r {places.RUN}")


def _kept(installed: Installed, extent: Extent) -> Iterator[Kept]:
    """Yield what stays unless an option removes it, and the model files of others."""
    cache = installed.stored.cache + installed.stored.cache_shared
    if cache and not extent.build_cache:
        why = f"{cache / GIB:.2f} GiB, of all builds on this node; --build-cache removes it"
        yield Kept(installed.node, "build cache", "of BuildKit", why)
    if installed.buildx and not extent.build_cache:
        yield Kept(installed.node, "directory", installed.buildx, "Docker's notes of builds; --build-cache removes it")
    for checkpoint in installed.checkpoints:
        size = f"{checkpoint.size / GIB:.2f} GiB"
        path = f"{installed.model_dir}/{checkpoint.path}"
        if not _written(checkpoint):
            yield Kept(installed.node, WEIGHTS, path, f"{size}, not downloaded by sparkops")
        elif not extent.weights:
            yield Kept(installed.node, WEIGHTS, path, f"{size}; --weights removes it")
        elif other := installed.shared.get(checkpoint.path):
            yield Kept(installed.node, WEIGHTS, path, f"{size}; {other} has it too, on a shared file system")


def _consequences(installed: Installed, uses: Uses) -> Iterator[str]:
    """Yield what does not work any more afterwards, besides what runs."""
    node = installed.node
    for name in installed.unasked:
        yield f"{name} does not answer: if it shares the model files, it loses them"
    for service, state in uses.states.items():
        previous = state.journal.previous
        if previous and node in {rank.node for rank in previous.ranks} and not uses.leads:
            yield f"{service} cannot roll back to {previous.release} any more: its containers are on {node}"
    if uses.leads and uses.states:
        yield f"history and journals of {', '.join(sorted(uses.states))} are lost"
