"""Plan a swap: where green comes up and in which mode, with the arithmetic, or why it is refused. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sparkops.errors import PlanRefused, SparkopsError
from sparkops.plan.deploy import Observed, obstacles, own
from sparkops.plan.journal import Mode, Phase, Placed
from sparkops.plan.pace import Forecast
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
class Wish:
    """What the operator asked for. `nodes` empty: any node; `mode` None: the safest that fits."""

    nodes: tuple[str, ...] = ()
    mode: Mode | None = None
    allow_downtime: bool = False


@dataclass(frozen=True)
class Current:
    """What there is: the release with the traffic, if it runs, and the slot that the gateway's map names."""

    blue: Placed | None = None
    slot: Slot | None = None
    warm: Placed | None = None
    """An older release that only waits for a rollback; it makes room for the next swap."""


@dataclass(frozen=True)
class SwapPlan:
    """What a swap will do. `gap` is how long green's start takes, if that is known."""

    release: Release
    mode: Mode
    rank: Rank
    blue: Placed | None
    note: str
    gap: Forecast | None = None
    warm: Placed | None = None

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in order."""
        return PHASES[self.mode]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"service {self.release.service}, release {self.release.id}, mode {self.mode}"
        was = f"{self.blue.release} ({self.blue.slot}) on {self.blue.node}" if self.blue else "nothing"
        yield f"  from {was} to {self.rank.slot} on {self.rank.node}, port {self.rank.port}"
        yield f"  {self.note}"
        if self.warm:
            yield f"  {self.warm.release} ({self.warm.slot} on {self.warm.node}) is still warm, and stops first"
        yield f"  phases: {' > '.join(self.phases)}"
        if self.mode is Mode.IN_PLACE:
            yield f"  the service is down {self.down_for}; if green fails, for a start of blue as well"

    @property
    def down_for(self) -> str:
        """How long the service is down in place, in words."""
        return "while green starts" + (f": {self.gap}" if self.gap else "")


@dataclass(frozen=True)
class _Option:
    """One way: a mode on a node."""

    mode: Mode
    rank: Rank
    node: Observed
    current: Current
    wish: Wish

    @property
    def claim_gib(self) -> float:
        return self.rank.release.recipe.memory.claim_gib

    @property
    def warm(self) -> Placed | None:
        """What stops first to make room: never the very release that is wanted."""
        warm = self.current.warm
        return None if warm and (warm.node, warm.container) == (self.rank.node, self.rank.container) else warm

    @property
    def blues_gib(self) -> float:
        """What is given back by those that are stopped first."""
        blue = self.current.blue if self.mode is Mode.IN_PLACE else None
        names = {each.container for each in (blue, self.warm) if each and each.node == self.rank.node}
        return sum(each.claim_gib for each in self.node.containers if each.name in names and each.running)

    @property
    def reserve_gib(self) -> float:
        """What is kept back so that blue is never at risk. In place there is nobody left to protect."""
        return self.rank.release.recipe.swap.reserve_gib if self.mode is Mode.BESIDE else 0.0

    @property
    def left_gib(self) -> float:
        return self.node.host.memory_available_gib + self.blues_gib - self.reserve_gib - self.claim_gib

    def arithmetic(self) -> str:
        """The sum as it is shown."""
        if own(self.rank, self.node):
            return "the release is there, its memory is taken already"
        parts = [f"{self.node.host.memory_available_gib:.1f} GiB available"]
        parts += [f"+ {self.blues_gib:g} given back"] if self.blues_gib else []
        parts += [f"- {self.reserve_gib:g} kept back"] if self.reserve_gib else []
        how = f"{self.left_gib:.1f} GiB left" if self.left_gib >= 0 else f"{-self.left_gib:.1f} GiB short"
        return f"{' '.join(parts)} - {self.claim_gib:g} claimed: {how}"

    def problems(self) -> Iterator[SparkopsError]:
        """Everything that stands against it."""
        yield from obstacles(self.rank, self.node)
        yield from self.strangers()
        if self.left_gib < 0 and not own(self.rank, self.node):
            yield PlanRefused(self.arithmetic())
        allowed = self.wish.allow_downtime or self.rank.release.recipe.swap.allow_downtime
        if self.mode is Mode.IN_PLACE and not allowed:
            step = "Accept the gap with --allow-downtime, or give green another node with --node."
            yield PlanRefused("the service would be down while green starts", next_step=step)

    def strangers(self) -> Iterator[PlanRefused]:
        """Containers of the service in green's own place that nobody has switched to: not ours to stop."""
        for each in self.node.containers:
            same_place = (each.service, each.slot) == (self.rank.release.service, self.rank.slot)
            known = {self.rank.container, self.warm.container if self.warm else ""}
            if same_place and each.running and each.name not in known:
                problem = f"{each.name} runs in slot {each.slot} without traffic"
                yield PlanRefused(
                    problem, next_step=f"docker stop {each.name} on {self.rank.node}, if it is not needed"
                )


def plan(release: Release, observed: Mapping[str, Observed], current: Current, wish: Wish) -> SwapPlan:
    """The safest mode that fits. Raises PlanRefused with what stands against each."""
    asked = wish.nodes or tuple(release.recipe.nodes) or tuple(observed)
    refused, steps = [f"  {name} cannot be reached" for name in asked if name not in observed], []
    for option in _options(release, observed, current, replace(wish, nodes=asked)):
        problems = [*option.problems()]
        if not problems:
            note = f"{option.rank.node}: {option.arithmetic()}"
            return SwapPlan(release, option.mode, option.rank, current.blue, note, warm=option.warm)
        node = option.rank.node
        refused += [f"  {option.mode} on {node}: {str(each).removeprefix(f'{node}: ')}" for each in problems]
        steps += [each.next_step for each in problems if each.next_step]
    said = "\n".join(refused) or f"  no node for mode {wish.mode}"
    raise PlanRefused(f"no safe way to {release.id}:\n{said}", next_step="\n".join(dict.fromkeys(steps)))


def _options(release: Release, observed: Mapping[str, Observed], current: Current, wish: Wish) -> Iterator[_Option]:
    """The ways that risk least come first: blue's node is left alone where another one will do."""
    blue = current.blue
    asked = [name for name in wish.nodes if name in observed]
    freest = sorted(asked, key=lambda name: -observed[name].host.memory_available_gib)
    if blue is None:
        ways = [(Mode.FIRST, name) for name in freest]
    else:
        ways = [(Mode.ACROSS, name) for name in freest if name != blue.node]
        ways += [(mode, name) for mode in (Mode.BESIDE, Mode.IN_PLACE) for name in asked if name == blue.node]
        ways = [way for way in ways if wish.mode in (None, way[0])]
    slot = current.slot.other if current.slot else Slot.BLUE
    for mode, name in ways:
        yield _Option(mode, Rank(release, slot, name), observed[name], current, wish)
