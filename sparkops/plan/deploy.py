"""Plan a deploy: from a release and what was observed to the commands that run, or to a refusal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from sparkops.command import Command
from sparkops.commands import docker, guard, pages
from sparkops.config import opt_in
from sparkops.config.engine import ENGINES
from sparkops.config.inventory import NodeConfig
from sparkops.config.recipe import Recipe
from sparkops.errors import NodeError, NodesFailed, NotReady, PlanRefused, SparkopsError
from sparkops.facts.checkpoint import Checkpoint
from sparkops.facts.docker import Container
from sparkops.facts.fabric import NodeFabric
from sparkops.facts.host import HostFacts
from sparkops.plan.compilers import limit, memory_gib
from sparkops.plan.models import in_words, refused, unreadable
from sparkops.plan.pools import counts_page_cache, pools, too_large
from sparkops.plan.steps import engine_reads, remedy
from sparkops.release import Rank, Release, Slot


class Act(Enum):
    """What a step does."""

    RUN = "run a command"
    DROP = "drop the clean pages of the model's files from memory"
    MEMORY = "check that MemAvailable and MemFree hold the claim"
    WATCH = "watch the start until /health answers"
    PROBE = "run the smoke suite"


@dataclass(frozen=True)
class Step:
    """One thing that happens on one node. Printing it shows exactly what runs."""

    title: str
    act: Act = Act.RUN
    command: Command | None = None

    def __str__(self) -> str:
        return f"{self.title}" + (f"\n      $ {self.command}" if self.command else "")


@dataclass(frozen=True)
class Observed:
    """One node before a deploy. `image` is the ID of the release's image there, if it has passed its gates.

    `weights` is what lies in the model's directory; `unseen` is why it is unknown. `fabric` is its network, read for a
    replica on several nodes; `fabric_unknown` is why not. `installed`: torch and packages as the gate noted them.
    """

    config: NodeConfig
    host: HostFacts
    containers: tuple[Container, ...] = ()
    image: str | None = None
    weights: Checkpoint | None = None
    unseen: NodeError | None = None
    fabric: NodeFabric | None = None
    fabric_unknown: str = ""
    installed: str = ""


@dataclass(frozen=True)
class Replica:
    """One endpoint and the steps that bring it up."""

    rank: Rank
    steps: tuple[Step, ...]

    @property
    def changes(self) -> bool:
        """Whether any step changes the node."""
        return any(step.command for step in self.steps)


@dataclass(frozen=True)
class Plan:
    """What a deploy will do. Printing it changes nothing, and nothing else than it will run."""

    release: Release
    replicas: tuple[Replica, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"service {self.release.service}, release {self.release.id}"
        yield from (f"  {note}" for note in self.notes)
        for replica in self.replicas:
            yield f"  {replica.rank.node}: {replica.rank.slot}, port {replica.rank.port}"
            yield from (f"    {number}. {step}" for number, step in enumerate(replica.steps, 1))


def place(recipe: Recipe, asked: Sequence[str], observed: Mapping[str, Observed]) -> tuple[str, ...]:
    """The nodes that a deploy goes to: asked for, else the recipe's, else where the service is, else the freest."""
    if asked or recipe.nodes:
        return tuple(asked or recipe.nodes)
    serving = tuple(name for name, node in observed.items() if _running(node, recipe.service))
    return serving or (max(observed, key=lambda name: _suits(recipe, observed[name])),)


def _suits(recipe: Recipe, node: Observed) -> tuple[bool, bool, float]:
    gpu = recipe.backend == "cpu" or node.config.gpu not in (None, "none")
    weights = not any(refused(engine_reads(recipe), node.weights))
    return gpu, weights, pools(recipe, node.host)[0].available_gib


def _running(node: Observed, service: str) -> list[Container]:
    return [each for each in node.containers if each.service == service and each.running]


def deploy(release: Release, observed: Mapping[str, Observed]) -> Plan:
    """Plan one replica on each observed node. Raises PlanRefused or NotReady, for all nodes at once."""
    if release.recipe.serve.tensor_parallel > 1:
        raise _pair_refused(release)
    replicas, notes, problems = [], [], list[SparkopsError](_differing(release, observed))
    for name, node in observed.items():
        rank = Rank(release, Slot.BLUE, name)
        found = [*obstacles(rank, node), *_conflicts(rank, node)]
        problems += found
        if not found:
            replicas.append(Replica(rank, tuple(_steps(rank, node))))
            notes.append(_arithmetic(rank, node))
    if problems:
        raise problems[0] if len(problems) == 1 else NodesFailed(problems)
    return Plan(release, tuple(replicas), (*opt_in.notes(release.recipe.serve), *notes))


def _differing(release: Release, observed: Mapping[str, Observed]) -> Iterator[PlanRefused]:
    """Two builds of the same recipe, at different times, may have installed different versions."""
    said = {name: node.installed for name, node in observed.items() if node.installed}
    if len(set(said.values())) > 1:
        each = "; ".join(f"{name}: {installed}" for name, installed in said.items())
        step = f"sparkops lock {release.recipe.name}, then build on all of them; or build on one and copy: --once"
        yield PlanRefused(f"the nodes do not have the same packages in {release.image}: {each}", next_step=step)


def _pair_refused(release: Release) -> PlanRefused:
    name, size = release.recipe.name, release.recipe.serve.tensor_parallel
    problem = f"{name} joins {size} nodes into one replica: it is deployed behind the gateway"
    return PlanRefused(problem, next_step=f"sparkops deploy {name} --blue-green")


def _arithmetic(rank: Rank, node: Observed) -> str:
    pool, claim = pools(rank.release.recipe, node.host)[0], rank.release.recipe.memory.claim_gib
    free, left = pool.available_gib, pool.available_gib - pool.need_gib
    if own(rank, node):
        return f"{rank.node}: the release is there, its {claim:g} GiB are taken already"
    return f"{rank.node}: {free:.1f} GiB{pool.of} available - {pool.need_gib:g} GiB claimed = {left:.1f} GiB left"


def own(rank: Rank, node: Observed) -> Container | None:
    """The container of this very rank, if it runs."""
    return next((other for other in node.containers if other.name == rank.container and other.running), None)


def obstacles(rank: Rank, node: Observed) -> Iterator[SparkopsError]:
    """What a node lacks for a replica, whatever else runs there. Nothing, where the replica runs already."""
    recipe = rank.release.recipe
    if own(rank, node):
        return
    if recipe.backend != "cpu" and node.config.gpu in (None, "none"):
        step = f"Set `gpu: runtime` (or cdi, or devices) for {rank.node} in the inventory."
        yield NotReady(rank.node, f"it offers no GPU, and {recipe.name} needs {recipe.backend}", next_step=step)
    else:
        yield from too_large(recipe, rank.node, node.host)
    if node.image is None:
        step = f"sparkops build {recipe.name} --node {rank.node}"
        yield NotReady(rank.node, f"it does not have the image {rank.release.image}", next_step=step)
    if ENGINES[recipe.engine].weights:
        yield from _weights_refused(rank, node)
    if rank.index:
        return  # only rank 0 listens on ports of its own choosing
    owner = next((each for each in node.containers if each.running and each.port == rank.port), None)
    if rank.port in node.host.listening and (owner is None or owner.service != recipe.service):
        problem = f"{rank.node}: port {rank.port} is taken by {owner.name if owner else 'a program'}"
        yield PlanRefused(problem, next_step=f"Stop it, or change serve.port of {recipe.name}.")


def _weights_refused(rank: Rank, node: Observed) -> Iterator[NodeError]:
    """Weights that are not there, not whole, or not those of the recipe: found out before anything is stopped."""
    recipe, name, root = rank.release.recipe, rank.node, docker.model_dir(node.config)
    if node.unseen:
        yield node.unseen
    elif reasons := in_words(refused(engine_reads(recipe), node.weights)):
        yield NotReady(name, f"the weights in {root}/{recipe.model.path}: {reasons}", next_step=remedy(recipe, name))
    yield from unreadable(name, root, node.weights)


def _conflicts(rank: Rank, node: Observed) -> Iterator[PlanRefused]:
    """What already runs there: another release of the service, or so much that too little memory is left."""
    service = rank.release.service
    if own(rank, node):
        return
    others = _running(node, service)
    for other in others:
        problem = f"{rank.node}: release {other.release} of {service} runs there"
        yield PlanRefused(problem, next_step=f"sparkops stop {service} --node {rank.node}")
    for pool in () if others else pools(rank.release.recipe, node.host):
        if pool.lack and pool.need_gib <= pool.total_gib:  # otherwise the total was refused
            step = "Stop what uses the memory, or lower memory.claim_gib if it is wrong."
            yield PlanRefused(f"{rank.node}: {pool.lack}", next_step=step)


def memory_steps(rank: Rank, node: Observed) -> Iterator[Step]:
    """What comes before a start where CUDA counts page cache as used."""
    if counts_page_cache(rank.release.recipe, node.host):
        yield Step(Act.DROP.value, Act.DROP, pages.drop(rank.release.recipe, node.config))
        yield Step(Act.MEMORY.value, Act.MEMORY)


def start_steps(rank: Rank, node: Observed) -> Iterator[Step]:
    """Create and start. Look, then act: what runs already is left alone."""
    here = next((other for other in node.containers if other.name == rank.container), None)
    if here is None or not here.running:
        yield from memory_steps(rank, node)
        if here is not None:
            yield Step("remove the container of an earlier start", command=docker.remove(rank.container))
        image, jobs = node.image or rank.release.image, limit(rank, node.host, node.containers)
        command = docker.create(rank, node.config, image, jobs, memory_gib=memory_gib(rank, node.host, jobs))
        yield Step("create the container", command=command)
        if rank.callers:
            yield Step(f"close port {rank.port} to all but the gateway", command=guard.FILTER)
        yield Step("start it", command=docker.start(rank.container))


def _steps(rank: Rank, node: Observed) -> Iterator[Step]:
    """The start, and how it proves itself."""
    here = own(rank, node)
    yield from start_steps(rank, node)
    yield Step(Act.WATCH.value, Act.WATCH)
    yield Step(f"{Act.PROBE.value}: {rank.release.recipe.probe.passes} passes in a row", Act.PROBE)
    if here is None or not here.running or here.restart_policy == "no":
        yield Step("let Docker keep it running", command=docker.keep_running(rank.container))
