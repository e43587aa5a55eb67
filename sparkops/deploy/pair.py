"""The network of several ranks, tried before anything is stopped for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparkops.deploy.plan import SwapPlan
from sparkops.deploy.preconditions import Observed
from sparkops.docker.facts import Container
from sparkops.network import preflight
from sparkops.network.checks import Ranks
from sparkops.network.finding import require
from sparkops.nodes.connected import Connected
from sparkops.nodes.progress import Tell
from sparkops.release import Rank


def try_network(connected: Connected, plan: SwapPlan, observed: Mapping[str, Observed], tell: Tell) -> None:
    """Try the network that a pair will load over, and the image on it, before anything is stopped for it.

    Raises PlanRefused or NodesFailed.
    """
    facts = {rank.node: seen for rank in plan.ranks if (seen := observed[rank.node].fabric)}
    if plan.network and not running(plan, observed):
        ray = plan.release.recipe.serve.executor == "ray"
        ranks = Ranks(plan.release.image, plan.rank.meeting_port, ray=ray)
        require(preflight.run(connected, plan.network, facts, ranks, tell))


def running(plan: SwapPlan, observed: Mapping[str, Observed]) -> bool:
    """Whether green was there, whole, when the nodes were looked at."""
    return _whole([_own(rank, observed[rank.node].containers) for rank in plan.ranks])


def _own(rank: Rank, containers: Sequence[Container]) -> Container | None:
    return next((container for container in containers if container.name == rank.container), None)


def _whole(ranks: Sequence[Container | None]) -> bool:
    """Whether every rank runs, and all are of one attempt."""
    alive = [container for container in ranks if container and container.running]
    return len(alive) == len(ranks) and len({container.generation for container in alive}) == 1
