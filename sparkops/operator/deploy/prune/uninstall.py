"""The removal of everything that sparkops brought to a node: what belongs to it, what keeps it, the commands. Pure.

Each name here is that of the module which creates the thing: agents, volumes and tables in `node` and
`gateway`, caches and marks in `release`, checkpoints in `weights`. Engines, images and volumes are recognised as
`prune` recognises them: by labels and names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath

from sparkops.command import Command
from sparkops.errors import NeedsOperator, PlanRefused, SparkopsError
from sparkops.gateway.commands import VOLUME
from sparkops.node.agents import commands
from sparkops.node.docker import places
from sparkops.node.docker.commands import docker
from sparkops.node.network import firewall
from sparkops.operator.build.weights.checkpoint import Checkpoint
from sparkops.operator.deploy.prune.stored import (
    OWN_VOLUMES,
    REMOVE_S,
    Stored,
    StoredImage,
    remove_image,
    remove_volume,
)
from sparkops.serving.service_state import ServiceState, needed_nodes, unreported
from sparkops.units import GIB

NO_RULES = ("nft", f"add table {firewall.TABLE}; delete table {firewall.TABLE}")
"""Deletes the rules of the guard; succeeds without them, too."""
VOLUMES = (commands.VOLUME, VOLUME)
"""Journals, keys and evidence of a guard; configuration, map and certificate of a gateway."""


def agents() -> Iterator[str]:
    """Yield the names that containers of guard and gateway have. A replacement comes first: it would start them."""
    for container in (places.CONTAINER, places.GATEWAY):
        yield from (commands.replacement(container), commands.aside(container), container)


@dataclass(frozen=True)
class Installed:
    """What sparkops has on a node."""

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
class Kept:
    """One thing of sparkops that stays, and the reason."""

    name: str
    why: str


@dataclass(frozen=True)
class Uninstall:
    """The removals from one node, in order. Printed, it is the plan with the commands that run."""

    node: str
    agents: tuple[Command, ...] = ()
    """The removals of guard and gateway: after them nothing can start."""
    others: tuple[Command, ...] = ()
    kept: tuple[Kept, ...] = ()
    leader: str = ""
    """Another node, whose guard dismisses this one first; empty without one."""
    consequences: tuple[str, ...] = ()
    weights: int = 0
    """Bytes of the model files that go."""

    @property
    def removals(self) -> tuple[Command, ...]:
        return (*self.agents, *self.others)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.node}: {len(self.removals) or 'nothing of sparkops'} to remove"
        if self.leader:
            yield f"  - the guard of {self.leader} dismisses {self.node}"
        for removal in self.removals:
            yield f"  - {removal}"
        for kept in self.kept:
            yield f"    stays: {kept.name}: {kept.why}"
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
    running = {engine.service: engine.name for engine in installed.stored.engines if engine.running}
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
    agents = tuple(_remove_container(name) for name in installed.agents)
    weights = _going(installed) if extent.weights else ()
    others = (
        *(_remove_container(engine.name, force=False) for engine in installed.stored.engines),  # none runs
        *_of_root(installed),
        *_images(installed),
        *map(remove_volume, own_volumes(installed.stored)),
        *(_build_cache(installed) if extent.build_cache else ()),
        *_weights(installed, weights),
    )
    return Uninstall(
        installed.node,
        agents,
        others,
        tuple(_kept(installed, weights, anything=bool(agents or others))),
        leader,
        tuple(_consequences(installed, uses or Uses())),
        sum(checkpoint.size for checkpoint in weights),
    )


def own_volumes(stored: Stored) -> tuple[str, ...]:
    """Return the names of the volumes of sparkops."""
    return tuple(name for name in stored.volumes if name in VOLUMES or name.startswith(OWN_VOLUMES))


def _remove_container(name: str, *, force: bool = True) -> Command:
    """Remove a container with the volumes that its image declares. Named volumes stay."""
    return docker("rm", *(("--force",) if force else ()), "--volumes", name, timeout_s=REMOVE_S)


def _of_root(installed: Installed) -> Iterator[Command]:
    """Yield what only root may remove: in a container of the guard's image, with one right each."""
    if not installed.guard_image:
        return
    yield _in_guard(installed, ("--network=host", "--cap-add=NET_ADMIN"), *NO_RULES)
    if installed.run_exists:
        run = PurePosixPath(places.RUN)
        yield _in_guard(installed, ("--network=none", f"--volume={run.parent}:/host"), "rm", "-rf", f"/host/{run.name}")


def _in_guard(installed: Installed, options: Sequence[str], *argv: str) -> Command:
    rights = ("--cap-drop=ALL", "--security-opt=no-new-privileges", "--read-only", "--pull=never")
    return docker("run", "--rm", *rights, *options, installed.guard_image, *argv, timeout_s=120.0)


def _images(installed: Installed) -> Iterator[Command]:
    """Yield the removals of images, except those that containers of other programs use."""
    for image in installed.stored.images:
        if not _users(installed, image):
            yield remove_image(image.own_tags or (image.id,))


def _users(installed: Installed, image: StoredImage) -> list[str]:
    """Return the containers of other programs that use an image."""
    own = {*installed.agents, *(engine.name for engine in installed.stored.engines)}
    return sorted(name for name, used in installed.stored.used.items() if used == image.id and name not in own)


def _build_cache(installed: Installed) -> Iterator[Command]:
    """Yield BuildKit's cache, and what Docker's client has noted about builds.

    The builder is named as in builds: another default builder has a cache of its own, which is the user's.
    """
    prune = docker("builder", "prune", "--force", "--all", timeout_s=REMOVE_S)
    yield replace(prune, argv=("env", "BUILDX_BUILDER=default", *prune.argv))
    if installed.buildx:
        yield _remove_files(PurePosixPath(installed.buildx))
        yield _remove_empty(PurePosixPath(installed.buildx).parent)


def _written(checkpoint: Checkpoint) -> bool:
    """Return whether sparkops wrote a checkpoint: it has a marker, or the note of an unfinished one.

    Its name is no evidence: after an interrupted `publish`, NAME.replaced may be the operator's own directory.
    """
    return checkpoint.origin is not None or checkpoint.identity is not None


def _going(installed: Installed) -> tuple[Checkpoint, ...]:
    """Return the checkpoints that sparkops wrote and that no other node shares."""
    return tuple(
        checkpoint
        for checkpoint in installed.checkpoints
        if _written(checkpoint) and checkpoint.path not in installed.shared
    )


def _weights(installed: Installed, going: Sequence[Checkpoint]) -> Iterator[Command]:
    """Yield the checkpoints, then the directories above them, which stay unless they are empty."""
    root, parents = PurePosixPath(installed.model_dir), dict[PurePosixPath, None]()
    for checkpoint in going:
        path = root / checkpoint.path
        yield _remove_files(path)
        parents |= dict.fromkeys(parent for parent in path.parents if root in parent.parents)
    for parent in sorted(parents, key=lambda parent: -len(parent.parts)):
        yield _remove_empty(parent)


def _remove_files(path: PurePosixPath) -> Command:
    return Command(("rm", "-rf", "--", str(path)), timeout_s=REMOVE_S, changes=True)


def _remove_empty(path: PurePosixPath) -> Command:
    """Remove a directory unless something else is in it. A link to one is the operator's, and stays."""
    return Command(("find", str(path), "-maxdepth", "0", "-type", "d", "-empty", "-delete"), changes=True)


def _kept(installed: Installed, weights: Sequence[Checkpoint], *, anything: bool) -> Iterator[Kept]:
    """Yield what needs root where no image of the guard is left to remove it, and images and model files that stay.

    `anything`: whether anything of sparkops goes.
    """
    if not installed.guard_image and (installed.run_exists or anything):
        why = "no image of the guard to remove it with; as root:"
        yield Kept(f"table {firewall.TABLE}", f"{why} {Command(NO_RULES)}")
        if installed.run_exists:
            yield Kept(places.RUN, f"{why} rm -r {places.RUN}")
    for image in installed.stored.images:
        if users := _users(installed, image):
            yield Kept(" ".join(image.own_tags) or image.id, f"used by {', '.join(users)}")
    for checkpoint in installed.checkpoints:
        path = f"{installed.model_dir}/{checkpoint.path}"
        if not _written(checkpoint):
            yield Kept(path, "not downloaded by sparkops")
        elif checkpoint in weights:
            continue
        elif other := installed.shared.get(checkpoint.path):
            yield Kept(path, f"{other} has it too, on a shared file system")
        else:
            yield Kept(path, f"{checkpoint.size / GIB:.2f} GiB; --weights removes it")


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
