"""The state of a service as its leader reports it, and what a verb derives from it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sparkops.errors import PlanRefused
from sparkops.names import release_of_container
from sparkops.swap import intents, wire
from sparkops.swap.fleet_state import FleetState, GatewayView, Report
from sparkops.swap.journal import Journal, Swap
from sparkops.swap.model import Deployment, RankSpec

Progress = Mapping[str, Mapping[str, str]]
"""Progress of each engine by node and container, such as `loading weights 40 %, about 3 min left`."""


@dataclass(frozen=True)
class ServiceState:
    """One reply of the leader. Without a journal nothing was deployed yet: `journal` is then an empty one."""

    journal: Journal
    needs_operator: str = ""
    reports: Mapping[str, Report] = field(default_factory=dict)
    gateway: GatewayView | None = None
    """None: the leader cannot read the gateway."""
    progress: Progress = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Nodes without a recent report: silent, or not asked yet."""
    why_missing: Mapping[str, str] = field(default_factory=dict)
    """By node: why the leader's last exchange with its guard failed."""
    last: int = 0
    """Number of the last event."""
    warm_until: float | None = None
    """When the old release stops that is kept warm, in Unix time; None without one, and if late."""

    promoted: tuple[RankSpec, ...] = ()
    """The ranks of the other services' releases: their guards start them again, so that their memory is taken."""

    @property
    def swap(self) -> Swap | None:
        """The swap in progress; None also while the old release is only kept warm."""
        return self.journal.unfinished

    @property
    def unreadable(self) -> bool:
        """Whether the guard cannot read its journal: `journal` is an empty one, and `needs_operator` the reason."""
        return bool(self.needs_operator) and self.journal == Journal(self.journal.service, self.journal.leader)

    @property
    def fails(self) -> bool:
        """Whether the active release does not answer; unknown counts as an answer."""
        return intents.fails(self.journal, FleetState(reports=self.reports, gateway=self.gateway))


def read(service: str, leader: str, reply: Mapping[str, Any]) -> ServiceState:
    """Parse the reply to `state`. Raises an error for one of another form."""
    journal = reply["journal"] or {"service": service, "leader": leader}
    wire.load_value(Journal, journal)  # it may be of another format
    return wire.load_value(ServiceState, {**reply, "journal": journal})


def ways_out(service: str) -> Iterator[str]:
    """Yield the next steps during a swap in progress."""
    yield f"sparkops status {service} --follow"
    yield f"sparkops rollback {service}"


def free_step(service: str, why: str) -> str:
    """Return the next step after the refusal `why`: the service is on hold, or another change is in progress."""
    if f"{service}{intents.ON_HOLD}" in why:
        return f"sparkops hold {service} --off"
    if intents.WAITS in why:
        return f"sparkops promote {service}\nsparkops rollback {service}"
    return f"sparkops status; `--wait 10m` retries; sparkops status {service} --follow"


def unreported(state: ServiceState) -> str:
    """Return why it is unknown whether a stopped service has ended; empty while a guard can still confirm it."""
    halting = state.journal.halting
    nodes = sorted({rank.node for rank in halting})
    if not set(nodes) <= set(state.missing) or state.journal.stopping:
        return ""
    containers = {node: " and ".join(rank.container for rank in halting if rank.node == node) for node in nodes}
    return "; ".join(
        f"{node} does not report: its guard stops {names} once the leader reaches it"
        for node, names in containers.items()
    )


def needed_nodes(journal: Journal, reporting: Collection[str]) -> frozenset[str]:
    """Return the nodes that must stay in the fleet under their names: those of the releases, unless they were given up.

    Of the nodes whose guards report (`reporting`), those with a container whose end is not confirmed are needed, too.
    """
    deployed = {rank.node for deployment in journal.deployments for rank in deployment.ranks}
    ending = {rank.node for rank in journal.stopped} & {*reporting}
    return frozenset((deployed | ending) - journal.without)


def unnamed(service: str, node: str) -> PlanRefused:
    """Return the refusal of a change of the fleet that leaves out a node which a service needs."""
    problem = f"{node}: {service} runs there, and the inventory has no node of that name"
    step = (
        f"Name it {node} in the inventory. Before you rename or remove it: sparkops stop {service}, or deploy it on "
        f"other nodes with --node. If {node} is lost: deploy with --without {node}, then remove it."
    )
    return PlanRefused(problem, next_step=step)


def joins(state: ServiceState, release: str, nodes: Collection[str] = ()) -> bool:
    """Return whether a swap to this release on some of `nodes` is in progress, so that a deploy of it follows that one.

    No nodes: anywhere.
    """
    return state.swap is not None and not state.swap.reverting and _is_on(state.swap.target, release, nodes)


def serves(
    state: ServiceState, release: str, nodes: Collection[str] = (), replicas: int | Literal["all"] | None = None
) -> bool:
    """Return whether a release is active on some of `nodes`, without a swap: then a deploy of it there changes nothing.

    No nodes: anywhere. On others it is to move: its release is the same, its place is not. `replicas`: how many copies
    it is to have; of `all` only a plan knows.
    """
    active = state.journal.active
    if state.swap is not None or active is None or state.fails or not _is_on(active, release, nodes):
        return False
    names = {release_of_container(rank.container) for rank in active.heads}
    complete = len(active.replicas) == 1 or names == {release}
    return complete and replicas in (None, len(active.replicas))


def _is_on(deployed: Deployment, release: str, nodes: Collection[str]) -> bool:
    return deployed.release == release and (not nodes or all(rank.node in nodes for rank in deployed.ranks))
