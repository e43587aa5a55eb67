"""A service whose old release serves on n1, and the plan of the next one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.fabric import FabricRules
from sparkops.config.release import Rank, Release
from sparkops.errors import PlanRefused
from sparkops.names import Slot
from sparkops.node.docker.facts import Container
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.plan import DeployOptions, Plan
from sparkops.operator.deploy.preconditions import Current, Observed
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from tests.examples import CHECKPOINT, HOST, IMAGE_ID, container, node, release

NEW = release(memory={"claim_gib": 40.0})
OLD = release(model={"revision": "old"})
OLDEST = release(model={"revision": "oldest"})
DOWNTIME = "the service would be down while the new release starts"
ACCEPT = "Accept the downtime with --allow-downtime, or run the new release on another node with --node."


def at(of: Release, slot: Slot, *names: str) -> Deployment:
    """A release in a slot of nodes (n1 if none is named), as the journal names it."""
    ranks = [Rank(of, slot, name, index) for index, name in enumerate(names or ("n1",))]
    return Deployment(of.id, slot, (Replica(tuple(RankSpec(rank.node, rank.container) for rank in ranks)),))


def runs(of: Release, slot: Slot, name: str = "n1", gib: float = 40.0, **changes: Any) -> Container:
    """Its container."""
    return container(Rank(of, slot, name), claim_gib=gib, **changes)


def on(free: float, *containers: Container, image: str | None = IMAGE_ID, **host: Any) -> Observed:
    """A node with so many GiB available, and the model."""
    return Observed(node(), replace(HOST, memory_available_gib=free, **host), containers, image, CHECKPOINT)


BLUE = at(OLD, Slot.BLUE)
BLUE_RUNS = runs(OLD, Slot.BLUE)
SERVING = Current(BLUE, Slot.BLUE)


def plan(
    current: Current = SERVING, options: DeployOptions | None = None, of: Release = NEW, **nodes: Observed
) -> Plan:
    return swap.plan(of, nodes, current, options or DeployOptions(), FabricRules())


def refusal(
    current: Current = SERVING, options: DeployOptions | None = None, of: Release = NEW, **nodes: Observed
) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        plan(current, options, of, **nodes)
    assert caught.value.exit_code == 5
    return caught.value


def reasons(error: PlanRefused) -> list[str]:
    head, *lines = str(error).splitlines()
    assert head == f"no safe mode for {NEW.id}:"
    return lines


def chosen(swap_plan: Plan) -> tuple[Mode, str, Slot]:
    return swap_plan.mode, swap_plan.rank.node, swap_plan.rank.slot
