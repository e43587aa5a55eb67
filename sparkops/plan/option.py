"""One way to bring a green up: a mode on a node, or on the nodes of a pair, and all that stands against it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from sparkops.config.fabric import Fabric as Rules
from sparkops.errors import NodesFailed, PlanRefused, SparkopsError
from sparkops.plan import fabric
from sparkops.plan.bound import HOST_GIB
from sparkops.plan.deploy import Observed, obstacles, own
from sparkops.plan.fabric import Fabric
from sparkops.plan.finding import Finding, require
from sparkops.plan.journal import Mode, Placed
from sparkops.plan.pools import Pool, pools
from sparkops.release import Rank, Slot


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


def network(ranks: Sequence[Rank], nodes: Sequence[Observed], rules: Rules) -> Fabric | None:
    """The network between the ranks of a pair; None for a single rank. Raises PlanRefused or NodesFailed."""
    if len(ranks) == 1:
        return None
    by_name = {rank.node: node for rank, node in zip(ranks, nodes, strict=True)}
    facts = {name: node.fabric for name, node in by_name.items() if node.fabric}
    require(_unknown(name, node.fabric_unknown) for name, node in by_name.items() if name not in facts)
    return fabric.join(facts, {name: node.config for name, node in by_name.items()}, rules)


def _unknown(node: str, why: str) -> Finding:
    problem = f"its network is unknown: {why or 'it was not read'}"
    return Finding(code="NETWORK_UNKNOWN", node=node, problem=problem, next_step="Check `sparkops doctor`.")


@dataclass(frozen=True)
class Site:
    """One rank of green on its node. `stops` are the containers that stop there before it starts."""

    rank: Rank
    node: Observed
    stops: frozenset[str]
    reserve_gib: float

    @property
    def there(self) -> bool:
        """Whether this very rank runs already."""
        return own(self.rank, self.node) is not None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The memory that the rank needs."""
        return pools(self.rank.release.recipe, self.node.host)

    def back_gib(self, pool: Pool) -> float:
        """What is given back to a pool by those that are stopped first."""
        stopped = [each.claim_gib for each in self.node.containers if each.name in self.stops and each.running]
        return sum(claim_gib if pool.claimed else min(claim_gib, HOST_GIB) for claim_gib in stopped)

    def kept_gib(self, pool: Pool) -> float:
        """What is kept back for others: nothing of a discrete GPU, where a full memory is an error, no wedged node."""
        return 0.0 if pool.of else self.reserve_gib

    def left_gib(self, pool: Pool) -> float:
        """What is left of a pool once the rank runs."""
        return pool.available_gib + self.back_gib(pool) - self.kept_gib(pool) - pool.need_gib

    def arithmetic(self, pool: Pool) -> str:
        """The sum as it is shown."""
        if self.there:
            return "the release is there, its memory is taken already"
        back_gib, kept_gib, left_gib = self.back_gib(pool), self.kept_gib(pool), self.left_gib(pool)
        parts = [f"{pool.available_gib:.1f} GiB{pool.of} available"]
        parts += [f"+ {back_gib:g} given back"] if back_gib else []
        parts += [f"- {kept_gib:g} kept back"] if kept_gib else []
        how = f"{left_gib:.1f} GiB left" if left_gib >= 0 else f"{-left_gib:.1f} GiB short"
        return f"{' '.join(parts)} - {pool.need_gib:g} {'claimed' if pool.claimed else 'of the host side'}: {how}"

    def problems(self) -> Iterator[SparkopsError]:
        """What stands against this rank on this node."""
        yield from obstacles(self.rank, self.node)
        yield from self._strangers()
        for pool in self.pools:
            if self.left_gib(pool) < 0 and not self.there:
                yield PlanRefused(self.arithmetic(pool))

    def _strangers(self) -> Iterator[PlanRefused]:
        """Containers of the service in green's own place that nobody has switched to: not ours to stop."""
        for each in self.node.containers:
            same_place = (each.service, each.slot) == (self.rank.release.service, self.rank.slot)
            known = each.name == self.rank.container or each.name in self.stops
            if same_place and each.running and not known:
                step = f"docker stop {each.name} on {self.rank.node}, if it is not needed"
                yield PlanRefused(f"{each.name} runs in slot {each.slot} without traffic", next_step=step)


@dataclass(frozen=True)
class Option:
    """One way: a mode on the nodes of `ranks`."""

    mode: Mode
    ranks: tuple[Rank, ...]
    nodes: tuple[Observed, ...]
    current: Current
    wish: Wish
    rules: Rules = field(default_factory=Rules)

    @property
    def where(self) -> str:
        """Its nodes, for people."""
        return " and ".join(rank.node for rank in self.ranks)

    @property
    def warm(self) -> Placed | None:
        """What stops first to make room: never the very release that is wanted."""
        warm, head = self.current.warm, self.ranks[0]
        return None if warm and (warm.node, warm.container) == (head.node, head.container) else warm

    @property
    def sites(self) -> tuple[Site, ...]:
        """Each rank with what is known of its node."""
        blue = self.current.blue if self.mode is Mode.IN_PLACE else None
        stops = frozenset(place.container for each in (blue, self.warm) if each for place in each.ranks)
        return tuple(
            Site(rank, node, stops, self._reserve_gib(rank, node, stops))
            for rank, node in zip(self.ranks, self.nodes, strict=True)
        )

    def _reserve_gib(self, rank: Rank, node: Observed, stops: frozenset[str]) -> float:
        """What else runs there must never be at risk. Where nothing does, there is nobody to protect."""
        others = [each for each in node.containers if each.running and each.name not in (*stops, rank.container)]
        return rank.release.recipe.swap.reserve_gib if others else 0.0

    def arithmetic(self) -> tuple[str, ...]:
        """The sum of each node."""
        return tuple(f"{site.rank.node}: {site.arithmetic(site.pools[0])}" for site in self.sites)

    def problems(self) -> Iterator[tuple[str, SparkopsError]]:
        """Everything that stands against it, and where."""
        for site in self.sites:
            yield from ((site.rank.node, each) for each in site.problems())
        try:
            network(self.ranks, self.nodes, self.rules)
        except (PlanRefused, NodesFailed) as error:
            yield self.where, error
        allowed = self.wish.allow_downtime or self.ranks[0].release.recipe.swap.allow_downtime
        if self.mode is Mode.IN_PLACE and not allowed:
            step = "Accept the gap with --allow-downtime, or give green another node with --node."
            yield self.where, PlanRefused("the service would be down while green starts", next_step=step)
