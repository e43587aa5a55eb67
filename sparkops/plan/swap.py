"""Plan a swap: where green comes up and in which mode, with the arithmetic, or why it is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations

from sparkops.config import opt_in
from sparkops.config.fabric import Fabric as Rules
from sparkops.errors import PlanRefused
from sparkops.plan.deploy import Observed
from sparkops.plan.fabric import Fabric
from sparkops.plan.journal import Mode, Phase, Placed
from sparkops.plan.option import Current, Option, Wish, network
from sparkops.plan.pace import Forecast
from sparkops.plan.pools import pools
from sparkops.release import Rank, Release, Slot

_GREEN = (Phase.START, Phase.LOAD, Phase.VERIFY, Phase.SWITCH)
_WARM = (Phase.ARM, *_GREEN, Phase.BAKE, Phase.PROMOTE, Phase.DRAIN, Phase.RETIRE)
PHASES = {
    Mode.FIRST: (Phase.ARM, *_GREEN, Phase.PROMOTE),
    Mode.BESIDE: _WARM,
    Mode.ACROSS: _WARM,
    Mode.IN_PLACE: (Phase.ARM, Phase.QUIESCE, Phase.FREE, *_GREEN, Phase.BAKE, Phase.PROMOTE),
}


@dataclass(frozen=True)
class SwapPlan:
    """What a swap will do. `gap` is how long green's start takes, if that is known."""

    release: Release
    mode: Mode
    ranks: tuple[Rank, ...]
    blue: Placed | None
    notes: tuple[str, ...]
    gap: Forecast | None = None
    warm: Placed | None = None
    network: Fabric | None = None
    """What joins the ranks of a pair."""

    @property
    def rank(self) -> Rank:
        """The rank that answers requests."""
        return self.ranks[0]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in order."""
        return PHASES[self.mode]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"service {self.release.service}, release {self.release.id}, mode {self.mode}"
        yield from (f"  {note}" for note in opt_in.notes(self.release.recipe.serve))
        was = f"{self.blue.release} ({self.blue.slot}) on {' and '.join(self.blue.nodes)}" if self.blue else "nothing"
        on = " and ".join(rank.node for rank in self.ranks)
        yield f"  from {was} to {self.rank.slot} on {on}, port {self.rank.port}"
        yield from (f"  {note}" for note in self.notes)
        if self.network:
            yield from (f"  {line}" for line in str(self.network).splitlines())
        if self.warm:
            where = f"{self.warm.slot} on {' and '.join(self.warm.nodes)}"
            yield f"  {self.warm.release} ({where}) is still warm, and stops first"
        yield f"  phases: {' > '.join(self.phases)}"
        if self.mode is Mode.IN_PLACE:
            yield f"  the service is down {self.down_for}; if green fails, for a start of blue as well"

    @property
    def down_for(self) -> str:
        """How long the service is down in place, in words."""
        return "while green starts" + (f": {self.gap}" if self.gap else "")


def plan(
    release: Release, observed: Mapping[str, Observed], current: Current, wish: Wish, rules: Rules | None = None
) -> SwapPlan:
    """The safest mode that fits. Raises PlanRefused with what stands against each."""
    asked = wish.nodes or tuple(release.recipe.nodes) or tuple(observed)
    refused, steps = [f"  {name} cannot be reached" for name in asked if name not in observed], []
    for option in _options(release, observed, current, replace(wish, nodes=asked), rules or Rules()):
        problems = [*option.problems()]
        if not problems:
            joined = network(option.ranks, option.nodes, option.rules)
            made = SwapPlan(release, option.mode, option.ranks, current.blue, option.arithmetic())
            return replace(made, warm=option.warm, network=joined)
        refused += [f"  {option.mode} on {node}: {str(each).removeprefix(f'{node}: ')}" for node, each in problems]
        steps += [each.next_step for _, each in problems if each.next_step]
    said = "\n".join(refused) or f"  {_no_way(release, asked, wish)}"
    raise PlanRefused(f"no safe way to {release.id}:\n{said}", next_step="\n".join(dict.fromkeys(steps)))


def _no_way(release: Release, asked: tuple[str, ...], wish: Wish) -> str:
    size = release.recipe.serve.tensor_parallel
    if len(asked) < size:
        return f"it needs {size} nodes, and there is only {', '.join(asked) or 'none'}"
    return f"no node for mode {wish.mode}"


def _options(
    release: Release, observed: Mapping[str, Observed], current: Current, wish: Wish, rules: Rules
) -> Iterator[Option]:
    """The ways that risk least come first: blue's nodes are left alone where others will do."""
    asked = [name for name in wish.nodes if name in observed]
    slot = current.slot.other if current.slot else Slot.BLUE
    free = {name: pools(release.recipe, observed[name].host)[0].available_gib for name in asked}
    for mode, names in _ways(release.recipe.serve.tensor_parallel, free, current.blue):
        if current.blue is None or wish.mode in (None, mode):
            ranks = tuple(Rank(release, slot, name, index) for index, name in enumerate(names))
            yield Option(mode, ranks, tuple(observed[name] for name in names), current, wish, rules)


def _ways(size: int, free_gib: Mapping[str, float], blue: Placed | None) -> Iterator[tuple[Mode, tuple[str, ...]]]:
    """Modes and groups of nodes: those with the most memory first, and blue's own ones in the order that was asked."""

    def freest(names: tuple[str, ...]) -> float:
        return -min(free_gib[name] for name in names)

    groups = [*combinations(free_gib, size)]
    if blue is None:
        yield from ((Mode.FIRST, names) for names in sorted(groups, key=freest))
        return
    apart = [names for names in groups if not {*names} & {*blue.nodes}]
    yield from ((Mode.ACROSS, names) for names in sorted(apart, key=freest))
    shared = sorted((names for names in groups if names not in apart), key=lambda names: {*names} != {*blue.nodes})
    yield from ((mode, names) for mode in (Mode.BESIDE, Mode.IN_PLACE) for names in shared)
