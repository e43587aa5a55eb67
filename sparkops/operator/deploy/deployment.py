"""From the plan of a swap to the deployment of its intent, which guards start without the operator's files. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from sparkops.config.recipe import Recipe
from sparkops.config.release import Rank, Release
from sparkops.engines import runtime
from sparkops.engines.launch import Seat
from sparkops.errors import NotReady, PlanRefused
from sparkops.operator.deploy.memory.compilers import limit, memory_gib
from sparkops.operator.deploy.plan import Plan
from sparkops.operator.deploy.preconditions import Observed, own
from sparkops.operator.fleet.network.environment import PER_NODE
from sparkops.operator.fleet.network.topology import Fabric
from sparkops.serving import engine_spec
from sparkops.serving.engine_spec import EngineSpec
from sparkops.swap.model import Deployment, Limits, RankSpec, Replica


def deployment(
    plan: Plan,
    addresses: Mapping[str, str],
    token: str = "",
    start_s: float = 0.0,
) -> Deployment:
    """Return the planned release with the spec of every rank.

    `addresses`: where the leader reaches each node. `token`: digest of the token of a Ray cluster. `start_s`: predicted
    time of its start; 0: unknown. Raises NotReady for a node without the image.
    """
    networks = plan.networks or (None,) * len(plan.replicas)
    starts = [
        _replica(plan, ranks, network, addresses, token) for ranks, network in zip(plan.replicas, networks, strict=True)
    ]
    return Deployment(plan.release.id, plan.slot, (*plan.stays, *starts), limits(plan.release.recipe, start_s))


def _replica(
    plan: Plan, ranks: tuple[Rank, ...], network: Fabric | None, addresses: Mapping[str, str], token: str
) -> Replica:
    specs = [_spec(rank, plan.nodes[rank.node], network, addresses[rank.node]) for rank in ranks]
    specs = [spec.model_copy(update={"token": token}) if spec.ray else spec for spec in specs]
    return Replica(tuple(engine_spec.rank_spec(spec, rank.node) for spec, rank in zip(specs, ranks, strict=True)))


def limits(recipe: Recipe, start_s: float = 0.0) -> Limits:
    """Return the limits of the recipe's `swap` section, with the predicted time of a start in seconds.

    Where no request may wait, there is no prediction.
    """
    swap = recipe.swap
    waits = swap.hold_s and swap.hold_max
    return Limits(
        bake_s=swap.bake_s,
        drain_s=swap.drain_s,
        keep_old_s=swap.keep_old_s,
        hold_s=swap.hold_s,
        hold_max=swap.hold_max,
        start_s=round(start_s, 1) if waits else 0.0,
        min_serving=swap.min_serving,
    )


def _spec(rank: Rank, node: Observed, network: Fabric | None, address: str) -> EngineSpec:
    jobs = limit(rank, node.host, node.containers)
    return EngineSpec(
        recipe=rank.release.recipe.model_dump(mode="json", exclude_none=True),
        inputs=rank.release.inputs,
        image=_image(rank, node),
        slot=rank.slot,
        index=rank.index,
        address=address,
        node=node.config.model_dump(mode="json", exclude_none=True),
        jobs=jobs,
        callers=rank.callers,
        seat=seat(network, rank.node) if network else None,
        memory_gib=memory_gib(rank, node.host, jobs),
        changes=rank.release.recipe.changes,
    )


def _image(rank: Rank, node: Observed) -> str:
    """Return the ID of the image that passed its gates; of a rank that runs already, that of its container."""
    running = own(rank, node)
    image = node.image or (running.image if running else None)
    if image is None:
        step = f"sparkops build {rank.release.recipe.word} --node {rank.node}"
        raise NotReady(rank.node, f"image not found: {rank.release.image}", next_step=step)
    return image


def seat(network: Fabric, node: str) -> Seat:
    """Return the place of a node's rank in the network of its replica."""
    own_rank, (head, *_) = network.ranks[node], network.ranks.values()
    per_node = tuple(name for name in own_rank.env if name in PER_NODE)
    peers = tuple(rank.address for rank in network.ranks.values())
    return Seat(own_rank.address, head.address, own_rank.env, own_rank.options, (*per_node, *runtime.LIMITS), peers)


def release_of(deployed: Deployment) -> Release:
    """Return the release of a deployment from the specs that it carries. Raises ValueError for another version's."""
    spec = engine_spec.of(next(deployed.heads))
    return Release(spec.parsed.with_changes(spec.changes), spec.inputs)


def kept_release(deployed: Deployment, service: str) -> Release:
    """Return the release of a deployment. Raises PlanRefused where another version has deployed it."""
    try:
        return release_of(deployed)
    except ValueError:
        step = f"sparkops deploy RECIPE --node NODE, or: sparkops stop {service}"
        problem = f"{service}: {deployed.release} was deployed by another version of sparkops"
        raise PlanRefused(problem, next_step=step) from None


def token_ranks(deployed: Deployment, digest: str) -> tuple[RankSpec, ...]:
    """Return the ranks whose guards need the token of this digest for their Ray cluster; none without Ray."""
    return tuple(rank for rank in deployed.ranks if engine_spec.of(rank).ray and engine_spec.of(rank).token == digest)


def new_id() -> str:
    return uuid.uuid4().hex
