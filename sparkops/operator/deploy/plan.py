"""The plan of a deploy: where the new release comes up and in which mode, with the arithmetic, or why not. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from sparkops.command import quote
from sparkops.config import opt_in
from sparkops.config.fabric import FabricRules
from sparkops.config.release import Rank, Release
from sparkops.errors import Busy, NodesFailed, PlanRefused, SparkopsError
from sparkops.names import Slot, release_of_container
from sparkops.node.network.finding import Finding, require
from sparkops.operator.deploy.groups import groups, placed
from sparkops.operator.deploy.preconditions import Current, Lacking, Observed, differing, obstacles, own
from sparkops.operator.fleet.network import topology
from sparkops.operator.fleet.network.facts import NodeFabric
from sparkops.operator.fleet.network.topology import Fabric
from sparkops.serving.memory.bound import HOST_GIB
from sparkops.serving.memory.pools import Pool, pools
from sparkops.swap.journal import present
from sparkops.swap.model import PHASES, Deployment, Limits, Mode, Phase, RankSpec, Replica

FEWER = "Run fewer with --replicas, or free memory on other nodes."
MOST_REASONS = 24
"""Lines of a refusal."""
MOST_NETWORKS = 100
"""Networks that a plan examines, at 1 to 4 ms each, whatever else stands against their nodes."""


class ShortOfMemory(PlanRefused):
    """A node lacks memory for one way. Its next step counts only where no other way is open."""


@dataclass(frozen=True)
class DeployOptions:
    """The operator's options of a deploy. `nodes` empty: any node; `mode` None: the safest that fits."""

    nodes: tuple[str, ...] = ()
    mode: Mode | None = None
    allow_downtime: bool = False
    promote: bool = True
    without: frozenset[str] = frozenset()
    """Nodes that are given up."""
    provided: frozenset[str] = frozenset()
    """Nodes to which image and weights are brought before the deploy: to lack them refuses nothing."""
    verb: str = "deploy"
    """The verb that the operator has typed, for the history."""
    anew: bool = False
    """Whether a release that serves starts anew."""
    replicas: int | Literal["all"] | None = None
    """Copies of the release; None: as the recipe says."""

    def wanted(self, release: Release) -> int | Literal["all"]:
        """Return how many copies a release is to have."""
        return self.replicas or release.recipe.serve.replicas


def nodes_of(deployment: Deployment) -> tuple[str, ...]:
    return tuple(rank.node for rank in deployment.ranks)


def _unknown(node: str, why: str) -> Finding:
    problem = f"its network is unknown: {why or 'not read'}"
    return Finding(code="NETWORK_UNKNOWN", node=node, problem=problem, next_step="Check `sparkops doctor`.")


@dataclass(frozen=True)
class Site:
    """One rank of the new release on its node. `stops` are the containers that stop there before it starts."""

    rank: Rank
    node: Observed
    stops: frozenset[str]
    reserve_gib: float
    ending: frozenset[tuple[str, str]] = frozenset()
    """Node and container of engines that an earlier change stops."""
    provided: bool = False
    """Whether image and weights are brought to the node before the deploy."""
    waiting: tuple[RankSpec, ...] = ()
    """Promoted ranks of the node that do not run: their guards start them again."""

    @property
    def running(self) -> bool:
        return own(self.rank, self.node) is not None

    @property
    def pools(self) -> tuple[Pool, ...]:
        return pools(self.rank.release.recipe, self.node.host)

    def back_gib(self, pool: Pool) -> float:
        """Return the GiB that a pool regains when the containers of `stops` end."""
        stopped = [
            container.claim_gib
            for container in self.node.containers
            if container.name in self.stops and container.running
        ]
        return sum(claim_gib if pool.claimed else min(claim_gib, HOST_GIB) for claim_gib in stopped)

    def kept_gib(self, pool: Pool) -> float:
        """Return the reserve in GiB: none on a discrete GPU, where a full memory is an error and wedges no node."""
        return 0.0 if pool.of else self.reserve_gib

    def waiting_gib(self, pool: Pool) -> float:
        """Return the GiB of a pool that promoted engines take which do not run now."""
        return sum(rank.claim_gib if pool.claimed else min(rank.claim_gib, HOST_GIB) for rank in self.waiting)

    def remaining_gib(self, pool: Pool) -> float:
        """Return the GiB that remain of a pool once the rank runs."""
        left_gib = pool.available_gib + self.back_gib(pool) - self.kept_gib(pool) - self.waiting_gib(pool)
        return left_gib - pool.need_gib

    def arithmetic(self, pool: Pool) -> str:
        if self.running:
            return "the release runs, its memory is taken already"
        back_gib, kept_gib, remaining_gib = self.back_gib(pool), self.kept_gib(pool), self.remaining_gib(pool)
        parts = [f"{pool.available_gib:.1f} GiB{pool.of} available"]
        parts += [f"+ {back_gib:g} freed"] if back_gib else []
        parts += [f"- {kept_gib:g} reserved"] if kept_gib else []
        parts += [f"- {rank.claim_gib:g} for {rank.container}, which starts again" for rank in self.waiting]
        how = f"{remaining_gib:.1f} GiB left" if remaining_gib >= 0 else f"{-remaining_gib:.1f} GiB short"
        return f"{' '.join(parts)} - {pool.need_gib:g} {'claimed' if pool.claimed else 'of the host side'}: {how}"

    def problems(self) -> Iterator[SparkopsError]:
        yield from obstacles(self.rank, self.node, provided=self.provided)
        if ending := self._ending():
            yield ending
            return  # what they still take of the memory is unknown
        yield from self._strangers()
        for pool in self.pools:
            if self.remaining_gib(pool) < 0 and not self.running:
                yield ShortOfMemory(self.arithmetic(pool), next_step=self._room_step())

    def _room_step(self) -> str:
        """Return what frees memory on the node: the services there that this plan does not stop, or another node."""
        recipe, node = self.rank.release.recipe, self.rank.node
        others: dict[str, float] = {}
        for item in self.node.containers:
            if item.running and item.name not in self.stops and item.service != recipe.service:
                others[item.service] = others.get(item.service, 0.0) + item.claim_gib
        frees = [f"sparkops stop {service} (frees {claim_gib:g} GiB)" for service, claim_gib in others.items()]
        room = f"Free memory on {node}: {' or '.join(frees) or '`sparkops status` shows what is used'}"
        return f"{room}; or use a node with more: --node; or lower what it takes: sparkops fit {recipe.word}"

    def _ending(self) -> Busy | None:
        """Return why the node's memory is unknown. The rank's own container does not count: the guard restarts it."""
        running = {container.name for container in self.node.containers if container.running} - {self.rank.container}
        names = sorted(name for node, name in self.ending if node == self.rank.node and name in running)
        problem = f"{self.rank.node}: {' and '.join(names)} is being stopped"
        return Busy(problem, next_step="`--wait 10m` retries; sparkops status") if names else None

    def _strangers(self) -> Iterator[PlanRefused]:
        """Yield running containers in the slot of the new release that never got traffic; a plan does not stop them."""
        for container in self.node.containers:
            same_place = (container.service, container.slot) == (self.rank.release.service, self.rank.slot)
            known = container.name == self.rank.container or container.name in self.stops
            if same_place and container.running and not known:
                step = f"docker stop {container.name} on {self.rank.node}, if it is not needed"
                yield PlanRefused(f"{container.name} runs in slot {container.slot} without traffic", next_step=step)


@dataclass(frozen=True)
class Tried:
    """What the options of one plan share: 16 nodes have hundreds of groups, of the same nodes, in several modes."""

    networks: dict[tuple[str, ...], Fabric | PlanRefused | NodesFailed] = field(default_factory=dict)
    """By nodes in rank order."""
    problems: dict[tuple[str, str, frozenset[str]], tuple[SparkopsError, ...]] = field(default_factory=dict)
    """Of a site, by node, container and `stops`."""


@dataclass(frozen=True)
class Plan:
    """One way to deploy a release: a mode on the nodes of `ranks`. It prints itself, with its arithmetic."""

    mode: Mode
    ranks: tuple[Rank, ...]
    nodes: Mapping[str, Observed]
    """The node of each rank, by name."""
    current: Current
    options: DeployOptions
    rules: FabricRules = field(default_factory=FabricRules)
    stays: tuple[Replica, ...] = ()
    """Replicas of this release that serve already, and go on."""
    of: Release | None = None
    """The release where no rank of it starts, since only replicas leave."""
    tried: Tried = field(default_factory=Tried, compare=False, repr=False)

    @property
    def release(self) -> Release:
        return self.of or self.rank.release

    @property
    def rank(self) -> Rank:
        """The rank that answers requests; of several replicas that of the first."""
        return self.ranks[0]

    @property
    def replicas(self) -> tuple[tuple[Rank, ...], ...]:
        """The ranks of each replica that starts, rank 0 first."""
        size = self.release.recipe.serve.ranks
        return tuple(self.ranks[first : first + size] for first in range(0, len(self.ranks), size))

    @property
    def slot(self) -> Slot:
        return self.ranks[0].slot if self.ranks else present(self.source).slot

    @property
    def leaving(self) -> tuple[Replica, ...]:
        """Replicas that stop before those start which take their place."""
        if self.source is None or not self.mode.stops_source:
            return ()
        return tuple(replica for replica in self.source.replicas if replica not in self.stays)

    @property
    def source(self) -> Deployment | None:
        """The release that serves, which this one replaces."""
        return self.current.source

    @property
    def phases(self) -> tuple[Phase, ...]:
        skipped = {Phase.WORKERS} if self.release.recipe.serve.ranks == 1 else set[Phase]()
        return tuple(phase for phase in PHASES[self.mode] if phase not in skipped)

    @property
    def networks(self) -> tuple[Fabric, ...]:
        """What joins the ranks of each replica; none for single ranks. Raises PlanRefused or NodesFailed."""
        if self.release.recipe.serve.ranks == 1:
            return ()
        return tuple(self._network(tuple(rank.node for rank in replica)) for replica in self.replicas)

    def _network(self, names: tuple[str, ...]) -> Fabric:
        if names not in self.tried.networks:
            try:
                self.tried.networks[names] = self._joined(names)
            except (PlanRefused, NodesFailed) as error:
                self.tried.networks[names] = error
        network = self.tried.networks[names]
        if isinstance(network, SparkopsError):
            raise network
        return network

    def _joined(self, names: tuple[str, ...]) -> Fabric:
        nodes = {name: self.nodes[name] for name in names}
        require(_unknown(name, node.fabric_unknown) for name, node in nodes.items() if not node.fabric)
        facts = {name: node.fabric for name, node in nodes.items() if node.fabric}
        joined = topology.join(facts, {name: node.config for name, node in nodes.items()}, self.rules)
        return topology.suited(joined, self.release.recipe.serve)

    @property
    def fabrics(self) -> dict[str, NodeFabric]:
        """The networks of the nodes, as far as they are known."""
        return {name: node.fabric for name, node in self.nodes.items() if node.fabric}

    @property
    def where(self) -> str:
        return " and ".join(rank.node for rank in self.ranks or self.stays[0].ranks)

    @property
    def leaves(self) -> tuple[Deployment, ...]:
        """Releases that stop first to make room: never the release that is to run."""
        placed = {(rank.node, rank.container) for rank in self.ranks}
        return tuple(
            idle for idle in self.current.idle if not placed & {(rank.node, rank.container) for rank in idle.ranks}
        )

    @property
    def stops(self) -> frozenset[str]:
        """The containers that stop before the new ranks start."""
        leaving = [rank for replica in self.leaving for rank in replica.ranks]
        ranks = (*leaving, *(rank for item in self.leaves for rank in item.ranks))
        return frozenset(rank.container for rank in ranks)

    @property
    def sites(self) -> tuple[Site, ...]:
        stops = self.stops
        return tuple(self._site(rank, stops) for rank in self.ranks)

    def _site(self, rank: Rank, stops: frozenset[str]) -> Site:
        return Site(
            rank,
            self.nodes[rank.node],
            stops,
            self._reserve_gib(rank, stops),
            self.current.ending,
            rank.node in self.options.provided,
            self._waiting(rank.node, stops),
        )

    def _waiting(self, node: str, stops: frozenset[str]) -> tuple[RankSpec, ...]:
        """Return the promoted ranks of a node that neither run nor are about to be replaced."""
        runs = {container.name for container in self.nodes[node].containers if container.running}
        own = self.source.ranks if self.source else ()
        promoted = (*self.current.promoted, *own)
        return tuple(rank for rank in promoted if rank.node == node and rank.container not in runs | stops)

    def _reserve_gib(self, rank: Rank, stops: frozenset[str]) -> float:
        """Refuse what puts other engines at risk, also those that start again; a node without any has no reserve."""
        others = [
            container
            for container in self.nodes[rank.node].containers
            if container.running and container.name not in (*stops, rank.container)
        ]
        protected = others or self._waiting(rank.node, stops)
        return rank.release.recipe.swap.reserve_gib if protected else 0.0

    def arithmetic(self) -> tuple[str, ...]:
        return tuple(f"{site.rank.node}: {site.arithmetic(site.pools[0])}" for site in self.sites)

    def problems(self) -> Iterator[tuple[str, SparkopsError]]:
        """Yield the reasons against it, each with its place."""
        stops, refused = self.stops, False
        for rank in self.ranks:
            key = (rank.node, rank.container, stops)
            if key not in self.tried.problems:
                self.tried.problems[key] = tuple(self._site(rank, stops).problems())
            refused |= any(not isinstance(problem, Lacking | Busy) for problem in self.tried.problems[key])
            yield from ((rank.node, problem) for problem in self.tried.problems[key])
        yield from ((self.where, problem) for problem in differing(self.release, self.nodes))
        if not refused or len(self.tried.networks) < MOST_NETWORKS:
            try:
                _ = self.networks
            except (PlanRefused, NodesFailed) as error:
                yield self.where, error
        allowed = self.options.allow_downtime or self.release.recipe.swap.allow_downtime or self.current.fails
        if self.mode is Mode.IN_PLACE and not allowed:
            step = "Accept the downtime with --allow-downtime, or run the new release on another node with --node."
            yield self.where, PlanRefused(f"the service would be down {self.current.down_for}", next_step=step)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"service {self.release.service}, release {self.release.id}, mode {self.mode}"
        recipe = self.release.recipe
        yield from (f"  {note}" for note in opt_in.notes(recipe.serve, recipe.engine, recipe.image))
        source = self.source
        was = f"{source.release} ({source.slot}) on {' and '.join(nodes_of(source))}" if source else "nothing"
        port = f", port {self.rank.port}" if self.ranks else ""
        yield f"  from {was} to {self.slot} on {self.where}{port}"
        yield from (f"  {note}" for note in self._several())
        yield from (f"  {note}" for note in self.arithmetic())
        for network in self.networks:
            yield from (f"  {line}" for line in str(network).splitlines())
        for leaving in self.leaves:
            where = f"{leaving.slot} on {' and '.join(nodes_of(leaving))}"
            yield f"  {leaving.release} ({where}) stops first: it has no traffic"
        yield f"  phases: {' > '.join(self.phases)}"
        if self.mode is Mode.IN_PLACE:
            yield f"  the service is down {self.current.down_for}, and again if it fails and the old one restarts"

    def _several(self) -> Iterator[str]:
        """Yield what several replicas are, and in which order they change."""
        count = len(self.stays) + len(self.replicas)
        if count > 1 or self.mode is Mode.ROLLING:
            yield f"{count} replicas, each on {_nodes(self.release.recipe.serve.ranks)} of its own"
        if self.stays:
            stay = " and ".join(replica.ranks[0].node for replica in self.stays)
            yield f"untouched: {stay}"
        if self.mode is Mode.ROLLING and self.leaving:
            count = len(present(self.source).replicas)
            least = Limits(min_serving=self.release.recipe.swap.min_serving).least(count)
            yield f"one after another: {least} of {count} serve at any time"


def _nodes(count: int) -> str:
    return "a node" if count == 1 else f"{count} nodes"


def plan(
    release: Release, observed: Mapping[str, Observed], current: Current, options: DeployOptions, rules: FabricRules
) -> Plan:
    """Return the safest mode that fits. Raises PlanRefused with what stands against each.

    Raises Busy where nothing fits, or only with downtime, until an engine has stopped that is being stopped.
    """
    busy: Busy | None = None
    wanted = options.wanted(release)
    fitting = list[Plan]()
    nodes = options.nodes or tuple(release.recipe.nodes) or tuple(observed)
    missing = [name for name in nodes if name not in observed]
    refused = [f"  {name} cannot be reached" for name in missing]
    room, open_ways = list[str](), 0
    lacks, ways, short, partly = dict[str, None](), list[str](), list[str](), list[str]()
    steps = [f"Check {name} with `sparkops doctor`, or deploy to other nodes with --node." for name in missing]
    for option in _options(release, observed, current, replace(options, nodes=nodes), rules):
        if fitting and fitting[0].mode is not option.mode:
            if wanted == "all" and _serves_on(fitting):
                return _together(fitting)
            refused.append(_too_few(fitting, wanted))
            steps.append(FEWER)
            fitting = []
        if busy and option.mode is Mode.IN_PLACE:
            break
        if wanted == "all" and fitting and _serves_on(fitting) and not _apart(fitting, option):
            continue  # it is none of the replicas, whatever stands against it
        problems = [*option.problems()]
        if not problems:
            fitting += [option] if not fitting or _apart(fitting, option) else []
            enough = wanted != "all" and len(option.stays) + len(fitting) >= wanted
            if enough and _serves_on(fitting):
                return _together(fitting)
            continue
        busy = busy or _wait([problem for _, problem in problems])
        lacks |= {problem.what: None for _, problem in problems if isinstance(problem, Lacking)}
        partly += [
            f"  {option.mode} on {node}: {_words(node, problem)}"
            for node, problem in problems
            if isinstance(problem, Lacking) and problem.partly
        ]
        problems = [(node, problem) for node, problem in problems if not isinstance(problem, Lacking)]
        if not problems:
            ways += [f"  {option.mode} on {line}" for line in option.arithmetic()]
            continue
        against = {f"  {option.mode} on {node}: {_words(node, error)}": error for node, error in problems}
        refused += against
        short += [line for line, error in against.items() if isinstance(error, ShortOfMemory)]
        frees = [problem.next_step for _, problem in problems if isinstance(problem, ShortOfMemory)]
        room, open_ways = room + frees, open_ways + (not frees)
        steps += [step for _, problem in problems if (step := problem.next_step) and step not in frees]
    if wanted == "all" and fitting and _serves_on(fitting):
        return _together(fitting)
    if wanted == "all" and (stays := _staying(current, release, options, wanted)):
        return Plan(Mode.ROLLING, (), {}, current, options, rules, stays, release)
    if fitting:
        refused.append(_too_few(fitting, wanted))
        steps.append(FEWER)
    if busy:
        raise busy
    up = _up(release, options)
    needs = f"needs: {', '.join(lacks)} ({up} brings {'it' if [*lacks] == ['image'] else 'them'})"
    if ways:
        raise PlanRefused("\n".join([f"{release.id} {needs}", *ways, *short, *partly]), next_step=up)
    refused += [*partly, f"  {needs}"] if lacks else []
    reasons = "\n".join(_some(refused)) or f"  {_no_way(release, nodes, options)}"
    steps += () if open_ways else room
    if not refused:
        other = f"sparkops recipes {release.service} --fits"
        steps.append(f"Name other nodes or another mode, or take another recipe: {other}")
    raise PlanRefused(f"no safe mode for {release.id}:\n{reasons}", next_step="\n".join(dict.fromkeys(steps)))


def _some(lines: list[str]) -> list[str]:
    """Return each line once, and of many the first: eight nodes have 70 groups of four."""
    once = [*dict.fromkeys(lines)]
    more = len(once) - MOST_REASONS
    return [*once[:MOST_REASONS], f"  and {more} more"] if more > 1 else once


def _apart(fitting: list[Plan], option: Plan) -> bool:
    """Return whether an option shares no node with those that were found."""
    return not {rank.node for item in fitting for rank in item.ranks} & {rank.node for rank in option.ranks}


def _serves_on(fitting: list[Plan]) -> bool:
    """Return whether a replica serves at each step: another one stays, or a new one has nodes that none had."""
    source = fitting[0].source
    if source is None or fitting[0].mode is not Mode.ROLLING or len(source.replicas) > 1 or fitting[0].stays:
        return True
    return any(not source.nodes & {rank.node for rank in item.ranks} for item in fitting)


def _together(fitting: list[Plan]) -> Plan:
    """Return the plan of several replicas from one for each."""
    first = fitting[0]
    nodes = {name: node for item in fitting for name, node in item.nodes.items()}
    return replace(first, ranks=tuple(rank for item in fitting for rank in item.ranks), nodes=nodes)


def _too_few(fitting: list[Plan], wanted: int | str) -> str:
    count = len(fitting[0].stays) + len(fitting)
    places = ", ".join(item.where for item in fitting)
    return f"  {fitting[0].mode}: {wanted} replicas wanted, room for {count}: {places}"


def _words(node: str, error: SparkopsError) -> str:
    """Return an error without its node."""
    return str(error).removeprefix(f"{node}: ")


def _up(release: Release, options: DeployOptions) -> str:
    """Return the command that brings image and weights and then deploys, with the options of this deploy."""
    nodes = (word for name in options.nodes for word in ("--node", name))
    mode = ("--mode", options.mode.value) if options.mode else ()
    downtime = ("--allow-downtime",) if options.allow_downtime else ()
    replicas = ("--replicas", str(options.replicas)) if options.replicas else ()
    more = quote(*nodes, *mode, *downtime, *replicas)
    return f"sparkops up {release.recipe.typed}{f' {more}' if more else ''}"


def _wait(problems: list[SparkopsError]) -> Busy | None:
    """Return what an option waits for, if nothing else stands against it."""
    busy = [problem for problem in problems if isinstance(problem, Busy)]
    return busy[0] if len(busy) == len(problems) else None


def _no_way(release: Release, nodes: tuple[str, ...], options: DeployOptions) -> str:
    size = release.recipe.serve.ranks
    wanted = options.wanted(release)
    size *= 1 if wanted == "all" else wanted
    if len(nodes) < size:
        return f"{size} nodes needed, available: {', '.join(nodes) or 'none'}"
    return f"no node for mode {options.mode}"


def _options(
    release: Release, observed: Mapping[str, Observed], current: Current, options: DeployOptions, rules: FabricRules
) -> Iterator[Plan]:
    """Yield the options, those with the least risk first: the old release's nodes last."""
    nodes = [name for name in options.nodes if name in observed]
    slot = current.slot.other if current.slot else Slot.BLUE
    source = current.source
    wanted = options.wanted(release)
    stays = _staying(current, release, options, wanted) if not options.anew else ()
    several = source is not None and not current.fails and (len(source.replicas) > 1 or wanted != 1)
    if several and len(stays) == wanted and options.mode in (None, Mode.ROLLING):
        yield Plan(Mode.ROLLING, (), {}, current, options, rules, stays, release)
        return
    free = {name: pools(release.recipe, observed[name].host)[0].available_gib for name in nodes}
    tried = Tried()
    for mode, names in _ways(release.recipe.serve.ranks, free, current, stays, rolls=several):
        if current.source is None or options.mode in (None, mode):
            rolls = source is not None and mode is Mode.ROLLING
            ranks = placed(release, source.slot if source and rolls else slot, {name: observed[name] for name in names})
            nodes_of_ranks = {rank.node: observed[rank.node] for rank in ranks}
            yield Plan(mode, ranks, nodes_of_ranks, current, options, rules, stays if rolls else (), tried=tried)


def _staying(
    current: Current, release: Release, options: DeployOptions, wanted: int | Literal["all"]
) -> tuple[Replica, ...]:
    """Return the replicas of this release that serve already and may stay where they are; none of one that fails."""
    own = [
        replica
        for replica in (current.source.replicas if current.source and not current.fails else ())
        if release_of_container(replica.ranks[0].container) == release.id
        and (not options.nodes or replica.nodes <= {*options.nodes})
    ]
    return tuple(own if wanted == "all" else own[:wanted])


def _ways(
    size: int, free_gib: Mapping[str, float], current: Current, stays: tuple[Replica, ...] = (), *, rolls: bool = False
) -> Iterator[tuple[Mode, tuple[str, ...]]]:
    """Yield modes and groups of nodes: those with the most memory first, those of the old release as ordered.

    `rolls`: replicas of the old release may be replaced one after another. Where some stay, there is no other way.
    """

    def freest(names: tuple[str, ...]) -> float:
        return -min(free_gib[name] for name in names)

    source = current.source
    old = {*nodes_of(source)} if source else set[str]()
    every = groups(free_gib, size, old)
    if source is None:
        yield from ((Mode.FIRST, names) for names in sorted(every, key=freest))
        return
    apart = sorted((names for names in every if not {*names} & old), key=freest)
    leaving = [tuple(rank.node for rank in item.ranks) for item in source.replicas if item not in stays]
    rolling = [(Mode.ROLLING, names) for names in (*leaving, *apart) if len(names) == size and {*names} <= {*free_gib}]
    if stays and rolls:
        yield from rolling
        return
    yield from ((Mode.ACROSS, names) for names in apart)
    shared = sorted((names for names in every if names not in apart), key=lambda names: {*names} != old)
    yield from ((Mode.BESIDE, names) for names in shared)
    yield from rolling if rolls else ()
    yield from ((Mode.IN_PLACE, names) for names in shared)
