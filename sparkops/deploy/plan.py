"""Plan a swap: where green comes up and in which mode, with the arithmetic, or why it is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from sparkops.config import opt_in
from sparkops.config.fabric import FabricRules
from sparkops.deploy.placement import DeployOptions, Option, ShortOfMemory, network, nodes_of
from sparkops.deploy.preconditions import Current, Observed
from sparkops.errors import Busy, PlanRefused, SparkopsError
from sparkops.memory.pools import pools
from sparkops.names import Slot
from sparkops.network.topology import Fabric
from sparkops.release import Rank, Release
from sparkops.swap.model import PHASES, Deployment, Mode, Phase


@dataclass(frozen=True)
class SwapPlan:
    release: Release
    mode: Mode
    ranks: tuple[Rank, ...]
    current: Current
    notes: tuple[str, ...]
    leaves: tuple[Deployment, ...] = ()
    """Releases without traffic that stop before the new one starts."""
    network: Fabric | None = None
    """What joins the ranks of a pair."""

    @property
    def blue(self) -> Deployment | None:
        """The release that serves."""
        return self.current.blue

    @property
    def rank(self) -> Rank:
        """The rank that answers requests."""
        return self.ranks[0]

    @property
    def phases(self) -> tuple[Phase, ...]:
        skipped = {Phase.WORKERS} if len(self.ranks) == 1 else set[Phase]()
        return tuple(phase for phase in PHASES[self.mode] if phase not in skipped)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"service {self.release.service}, release {self.release.id}, mode {self.mode}"
        yield from (f"  {note}" for note in opt_in.notes(self.release.recipe.serve, self.release.recipe.engine))
        blue = self.blue
        was = f"{blue.release} ({blue.slot}) on {' and '.join(nodes_of(blue))}" if blue else "nothing"
        on = " and ".join(rank.node for rank in self.ranks)
        yield f"  from {was} to {self.rank.slot} on {on}, port {self.rank.port}"
        yield from (f"  {note}" for note in self.notes)
        if self.network:
            yield from (f"  {line}" for line in str(self.network).splitlines())
        for leaving in self.leaves:
            where = f"{leaving.slot} on {' and '.join(nodes_of(leaving))}"
            yield f"  {leaving.release} ({where}) stops first: it has no traffic"
        yield f"  phases: {' > '.join(self.phases)}"
        if self.mode is Mode.IN_PLACE:
            yield f"  the service is down {self.current.down_for}, and again if it fails and the old one restarts"


MOST_NODES = 2
"""Nodes of a replica that sparkops starts and joins."""
HEADS = "three ranks cannot share the attention heads of these models evenly"


def plan(
    release: Release, observed: Mapping[str, Observed], current: Current, options: DeployOptions, rules: FabricRules
) -> SwapPlan:
    """Return the safest mode that fits. Raises PlanRefused with what stands against each.

    Raises Busy where nothing fits, or only with downtime, until an engine has stopped that is being stopped.
    """
    size = release.recipe.serve.tensor_parallel
    if size > MOST_NODES:
        why = f"a replica runs on at most {MOST_NODES} nodes" + (f"; {HEADS}" if size == 3 else "")
        step = f"Set tensor_parallel of {release.recipe.name} to 1 or {MOST_NODES} if the model fits; `sparkops fit`"
        raise PlanRefused(f"{release.recipe.name}: serve.tensor_parallel is {size}: {why}", next_step=step)
    busy: Busy | None = None
    nodes = options.nodes or tuple(release.recipe.nodes) or tuple(observed)
    missing = [name for name in nodes if name not in observed]
    refused = [f"  {name} cannot be reached" for name in missing]
    room, open_ways = list[str](), 0
    steps = [f"Check {name} with `sparkops doctor`, or deploy to other nodes with --node." for name in missing]
    for option in _options(release, observed, current, replace(options, nodes=nodes), rules):
        if busy and option.mode is Mode.IN_PLACE:
            break
        problems = [*option.problems()]
        if not problems:
            joined, notes = network(option.ranks, option.nodes, option.rules), option.arithmetic()
            return SwapPlan(release, option.mode, option.ranks, current, notes, option.leaves, joined)
        busy = busy or _wait([problem for _, problem in problems])
        refused += [f"  {option.mode} on {node}: {str(error).removeprefix(f'{node}: ')}" for node, error in problems]
        short = [problem.next_step for _, problem in problems if isinstance(problem, ShortOfMemory)]
        room, open_ways = room + short, open_ways + (not short)
        steps += [step for _, problem in problems if (step := problem.next_step) and step not in short]
    if busy:
        raise busy
    reasons = "\n".join(refused) or f"  {_no_way(release, nodes, current, options)}"
    steps += () if open_ways else room
    raise PlanRefused(f"no safe mode for {release.id}:\n{reasons}", next_step="\n".join(dict.fromkeys(steps)))


def _wait(problems: list[SparkopsError]) -> Busy | None:
    """Return what an option waits for, if nothing else stands against it."""
    busy = [problem for problem in problems if isinstance(problem, Busy)]
    return busy[0] if len(busy) == len(problems) else None


def _no_way(release: Release, nodes: tuple[str, ...], current: Current, options: DeployOptions) -> str:
    size = release.recipe.serve.tensor_parallel
    if current.direct and current.blue:
        where = " and ".join(nodes_of(current.blue))
        return f"without a gateway, only mode in-place on {where}, where {current.blue.release} runs"
    if len(nodes) < size:
        return f"{size} nodes needed, available: {', '.join(nodes) or 'none'}"
    return f"no node for mode {options.mode}"


def _options(
    release: Release, observed: Mapping[str, Observed], current: Current, options: DeployOptions, rules: FabricRules
) -> Iterator[Option]:
    """Yield the options, those with the least risk first: the old release's nodes last."""
    nodes = [name for name in options.nodes if name in observed]
    slot = current.slot.other if current.slot else Slot.BLUE
    free = {name: pools(release.recipe, observed[name].host)[0].available_gib for name in nodes}
    for mode, names in _ways(release.recipe.serve.tensor_parallel, free, current):
        if current.blue is None or options.mode in (None, mode):
            ranks = tuple(Rank(release, slot, name, index, direct=current.direct) for index, name in enumerate(names))
            yield Option(mode, ranks, tuple(observed[name] for name in names), current, options, rules)


def _ways(size: int, free_gib: Mapping[str, float], current: Current) -> Iterator[tuple[Mode, tuple[str, ...]]]:
    """Yield modes and groups of nodes: those with the most memory first, those of the old release as ordered.

    Without a gateway a release takes the place of the old one, on the same nodes.
    """

    def freest(names: tuple[str, ...]) -> float:
        return -min(free_gib[name] for name in names)

    groups, blue = [*combinations(free_gib, size)], current.blue
    if blue is None:
        yield from ((Mode.FIRST, names) for names in sorted(groups, key=freest))
        return
    old = {*nodes_of(blue)}
    if current.direct:
        yield from [(Mode.IN_PLACE, nodes_of(blue))] if len(old) == size and old <= free_gib.keys() else []
        return
    apart = [names for names in groups if not {*names} & old]
    yield from ((Mode.ACROSS, names) for names in sorted(apart, key=freest))
    shared = sorted((names for names in groups if names not in apart), key=lambda names: {*names} != old)
    yield from ((mode, names) for mode in (Mode.BESIDE, Mode.IN_PLACE) for names in shared)
