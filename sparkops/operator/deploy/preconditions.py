"""The state before a deploy, of nodes and of the service, and what a node lacks for it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkops.config.node import NodeConfig
from sparkops.config.release import Rank, Release
from sparkops.engines import ENGINES
from sparkops.errors import Busy, NodeError, NotReady, PlanRefused, SparkopsError
from sparkops.names import Slot
from sparkops.node.docker import commands
from sparkops.node.docker.facts import Container
from sparkops.node.host import HostFacts
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory
from sparkops.operator.build.weights.plan import closed, in_words, may_be_in_use, refused, unreadable
from sparkops.operator.build.weights.steps import read_by_engine, remedy
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.serving.memory.pools import too_large
from sparkops.serving.service_state import ServiceState, free_step, ways_out
from sparkops.serving.startup.estimate import Forecast
from sparkops.swap.intents import kept
from sparkops.swap.model import Deployment, RankSpec
from sparkops.swap.trouble import UNCONFIRMED

COMPILED_GIB = 1.0
"""GiB of Docker's disk below which no engine is started: a compiler that meets a full disk ends the start. A choice."""
CUDA_OF_DRIVER: Mapping[int, tuple[int, int]] = {
    525: (12, 0), 530: (12, 1), 535: (12, 2), 545: (12, 3), 550: (12, 4), 555: (12, 5), 560: (12, 6),
    565: (12, 7), 570: (12, 8), 575: (12, 9), 580: (13, 0), 590: (13, 1),
}  # fmt: skip
"""By branch of the driver: the newest CUDA that it has (NVIDIA's release notes of the CUDA Toolkit)."""
REQUIRED = re.compile(r"NVIDIA_REQUIRE_CUDA=(?:\S{0,256} )?cuda>=(\d{1,3}\.\d{1,3})")
IGNORED = re.compile(r"NVIDIA_DISABLE_REQUIRE=(?:1|true)", re.IGNORECASE)


def required_cuda(env: Iterable[str]) -> str:
    """Return the CUDA that an image requires of the driver by its variables, which NVIDIA's toolkit compares."""
    variables = [*env]
    if any(IGNORED.fullmatch(one) for one in variables):
        return ""
    return next((match[1] for one in variables if (match := REQUIRED.match(one))), "")


@dataclass(frozen=True)
class Observed:
    """One node before a deploy. `image` is the ID of the release's image there, if it has passed its gates, `tag` its
    name.

    `weights` and `draft`: the checkpoints in the directories of the model and its draft, `directory`: the one that
    holds them; `weights_error`: why they are unknown. `fabric`: its network, read for a replica on several nodes;
    `fabric_unknown`: why not. `installed`: torch and packages as the gate noted them. `cordon`: why nothing new starts
    there; empty for an open node; `cordon_error`: why that is unknown.
    """

    config: NodeConfig
    host: HostFacts
    containers: tuple[Container, ...] = ()
    image: str | None = None
    weights: Checkpoint | None = None
    draft: Checkpoint | None = None
    weights_error: NodeError | None = None
    fabric: NodeFabric | None = None
    fabric_unknown: str = ""
    installed: str = ""
    cordon: str = ""
    cordon_error: SparkopsError | None = None
    tag: str = ""
    requires: str = ""
    """The CUDA that the image requires of the driver, such as 13.2; empty where it states none."""
    directory: ModelDirectory | None = None


@dataclass(frozen=True)
class Current:
    """The state before a swap: the promoted release, and the slot of the one that has or had the traffic last."""

    source: Deployment | None = None
    slot: Slot | None = None
    idle: tuple[Deployment, ...] = ()
    """Releases without traffic whose engines may run: warm for a rollback, or failed. They make room."""
    ending: frozenset[tuple[str, str]] = frozenset()
    """Node and container of engines that the leader stops. Until a guard has confirmed it, they may hold memory."""
    promoted: tuple[RankSpec, ...] = ()
    """The ranks of other services' releases. Those that do not run start again, so that their memory is taken."""
    fails: bool = False
    """Whether clients get no answers now, so that no downtime begins with the deploy."""
    gap: Forecast | None = None
    """How long the new release takes to start on the node of the one that serves; None: unknown."""

    @property
    def down_for(self) -> str:
        """How long a service is down in place, in words."""
        return "while the new release starts" + (f": {self.gap}" if self.gap else "")


def current(state: ServiceState, without: frozenset[str] = frozenset()) -> Current:
    """Return what a new release would replace. Raises Busy while a swap is in progress or the service is stopped.

    `without`: nodes that the operator gives up.
    """
    journal, swap = state.journal, state.swap
    if journal.stopping:
        why = f"{journal.service} is being stopped"
        raise Busy(why, next_step=free_step(journal.service, why))
    unconfirmed = state.needs_operator.startswith(UNCONFIRMED)
    if swap and not unconfirmed and not (state.needs_operator and state.fails):
        problem = f"{journal.service}: a swap to {swap.target.release} is in phase '{swap.phase}'"
        raise Busy(problem, next_step="\n".join((*ways_out(journal.service), "`--wait 10m` retries")))
    source = kept(journal, without, fails=state.fails, stuck=bool(state.needs_operator))
    active = journal.active.slot if journal.active else None
    slot = (state.gateway.active if state.gateway else None) or active
    idle = tuple(item for item in journal.deployments if item != source)
    ending = frozenset(rank.place for rank in journal.stopped)
    return Current(source, slot, idle, ending, state.promoted, state.fails)


def differing(release: Release, observed: Mapping[str, Observed]) -> Iterator[PlanRefused]:
    """Yield a refusal where nodes differ: two builds of the same recipe may have installed different versions."""
    installed_by_node = {name: node.installed for name, node in observed.items() if node.installed}
    if len(set(installed_by_node.values())) > 1:
        versions = "; ".join(f"{name}: {installed}" for name, installed in installed_by_node.items())
        step = (
            f"sparkops recipe lock {release.recipe.word}, then build on all of them; or build on one and copy: --once"
        )
        yield PlanRefused(f"the nodes do not have the same packages in {release.image}: {versions}", next_step=step)


def own(rank: Rank, node: Observed) -> Container | None:
    """Return the container of this very rank, if it runs."""
    return next((other for other in node.containers if other.name == rank.container and other.running), None)


def obstacles(rank: Rank, node: Observed, *, provided: bool = False) -> Iterator[SparkopsError]:
    """Yield what a node lacks for a replica, whatever else runs there; nothing where the replica runs already.

    `provided`: image and weights are brought to the node before the deploy.
    """
    recipe = rank.release.recipe
    if own(rank, node):
        return
    if node.cordon:
        yield PlanRefused(f"{rank.node}: cordoned: {node.cordon}", next_step=f"sparkops node return {rank.node}")
    if error := node.cordon_error:
        problem = error.problem if isinstance(error, NodeError) else str(error).removeprefix(f"{rank.node}: ")
        step = error.next_step or "sparkops doctor"
        yield NotReady(rank.node, f"whether it is cordoned is unknown: {problem}", next_step=step)
    yield from unsuitable(rank, node)
    yield from (error for error in _missing(rank, node) if not (provided and isinstance(error, Lacking)))
    yield from _too_old(rank, node)
    yield from _other_cdi(rank, node)
    free_gib = node.host.disk_free_gib
    if free_gib is not None and free_gib < COMPILED_GIB:
        problem = f"{free_gib:.1f} GiB are free on Docker's disk, expected {COMPILED_GIB:g} for what an engine compiles"
        yield NotReady(rank.node, problem, next_step="sparkops prune; docker system df, on the node")
    if rank.index:
        return  # only rank 0 listens on ports of its own choosing
    owner = next((item for item in node.containers if item.running and item.port == rank.port), None)
    if rank.port in node.host.listening and (owner is None or owner.service != recipe.service):
        problem = f"{rank.node}: port {rank.port} is taken by {owner.name if owner else 'a program'}"
        yield PlanRefused(problem, next_step=f"Stop it, or change serve.port of {recipe.name}.")


def unsuitable(rank: Rank, node: Observed) -> Iterator[SparkopsError]:
    """Yield why a rank can never run on a node: it lacks a GPU, or has too little memory in total."""
    recipe = rank.release.recipe
    if recipe.backend != "cpu" and node.config.gpu in (None, "none"):
        step = f"Set `gpu: runtime` (or cdi, or devices) for {rank.node} in the inventory."
        problem = f"`gpu: {node.config.gpu or 'none'}`; {recipe.name} needs CUDA ({recipe.backend})"
        yield NotReady(rank.node, problem, next_step=step)
    else:
        yield from too_large(recipe, rank.node, node.host)


def _too_old(rank: Rank, node: Observed) -> Iterator[NotReady]:
    """Yield that the image needs a newer driver. NVIDIA's runtime refuses it at the start of the container.

    Without that runtime a CUDA of the same major version starts, as NVIDIA's minor version compatibility says.
    """
    known = CUDA_OF_DRIVER.get(int(node.host.driver.partition(".")[0] or 0))
    if not node.requires or known is None:
        return
    major, minor = map(int, node.requires.split("."))
    if known >= (major, minor) or (known[0] == major and node.config.gpu != "runtime"):
        return
    problem = f"the image needs a driver for CUDA {node.requires}; driver {node.host.driver} has {known[0]}.{known[1]}"
    step = "Use an image with an older CUDA (image.base or image.use), or update the driver and reboot."
    yield NotReady(rank.node, problem, next_step=step)


def _other_cdi(rank: Rank, node: Observed) -> Iterator[NotReady]:
    """Yield that the CDI specification names files of another driver: after an update Docker cannot mount them."""
    facts = node.host
    if node.config.gpu == "cdi" and facts.driver and facts.cdi and facts.cdi != facts.driver:
        problem = f"the CDI specification is of driver {facts.cdi}, and the node has {facts.driver}"
        step = "On the node: sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        yield NotReady(rank.node, problem, next_step=step)


class Lacking(NotReady):
    """The image or the weights that a node lacks, and that `sparkops up` brings to it."""

    def __init__(self, node: str, what: str, problem: str, *, next_step: str, partly: bool = False) -> None:
        super().__init__(node, problem, next_step=next_step)
        self.what, self.partly = what, partly


def _missing(rank: Rank, node: Observed) -> Iterator[NodeError]:
    """Yield what a node lacks of image and weights."""
    recipe = rank.release.recipe
    if node.image is None:
        step = f"sparkops build {recipe.word} --node {rank.node}"
        yield Lacking(rank.node, "image", f"image not found: {rank.release.image}", next_step=step)
    if ENGINES[recipe.engine].weights:
        yield from _weights_refused(rank, node)


def _weights_refused(rank: Rank, node: Observed) -> Iterator[NodeError]:
    """Yield missing, incomplete or wrong weights, before anything is stopped."""
    recipe, name, root = rank.release.recipe, rank.node, commands.model_dir(node.config)
    if node.weights_error:
        yield node.weights_error
        return
    for model, present in zip(read_by_engine(recipe), (node.weights, node.draft), strict=False):
        if reasons := in_words(refused(model, present)):
            problem, step = f"the weights in {root}/{model.path}: {reasons}", remedy(recipe, name)
            if may_be_in_use(model, present):
                yield NotReady(name, problem, next_step=step)
            elif node.directory and (error := closed(name, root, node.directory)):
                yield error
            else:
                yield Lacking(name, "weights", problem, next_step=step, partly=present is not None)
        yield from unreadable(name, root, present)
