"""Where three and more ranks come up, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from sparkops.config.fabric import FabricRules as Rules
from sparkops.errors import PlanRefused
from sparkops.operator.deploy import groups
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.plan import DeployOptions, Plan
from sparkops.operator.deploy.preconditions import Current, Observed
from sparkops.swap.model import Mode
from tests import sparks
from tests.examples import release
from tests.operator.deploy.pairs import joined
from tests.operator.deploy.swaps import on
from tests.sparks import Spark, spark

pytestmark = pytest.mark.local  # real shells read real files

SWITCH = [spark(number) for number in range(1, 10)]


def nodes(root: Path, hardware: Sequence[Spark], free_gib: float = 90) -> dict[str, Observed]:
    """Nodes n1, n2 and so on with this hardware."""
    return {
        f"n{number}": replace(on(free_gib), fabric=sparks.facts(root / f"n{number}", one))
        for number, one in enumerate(hardware, 1)
    }


def plan(observed: dict[str, Observed], tensor: int, pipeline: int = 1, *names: str, executor: str = "mp") -> Plan:
    serve = {"tensor_parallel": tensor, "pipeline_parallel": pipeline, "executor": executor}
    of = release(memory={"claim_gib": 40.0}, serve=serve)
    return swap.plan(of, observed, Current(), DeployOptions(nodes=names), Rules())


@pytest.mark.parametrize(("tensor", "pipeline"), [(1, 3), (4, 1), (2, 2), (8, 1), (2, 4)])
def test_behind_a_switch_every_split_has_its_nodes(tmp_path: Path, tensor: int, pipeline: int) -> None:
    swap_plan = plan(nodes(tmp_path, SWITCH), tensor, pipeline)

    size = tensor * pipeline
    assert [(rank.index, rank.node) for rank in swap_plan.ranks] == [(index, f"n{index + 1}") for index in range(size)]
    assert (swap_plan.mode, {rank.size for rank in swap_plan.ranks}) == (Mode.FIRST, {size})
    [network] = swap_plan.networks
    assert list(network.ranks) == [rank.node for rank in swap_plan.ranks]


def test_the_plan_of_three_in_a_ring_says_where_its_ranks_meet(tmp_path: Path) -> None:
    lines = str(plan(nodes(tmp_path, sparks.ring(3)), 1, 3)).splitlines()

    assert "  from nothing to blue on n1 and n2 and n3, port 8001" in lines
    assert "  network: RoCE, 6 links" in lines
    assert "    a ring of 3 nodes without a switch, whose ranks meet on 10.0.0.0/24" in lines


def test_ranks_in_a_ring_follow_its_cables_whatever_the_order_of_nodes(tmp_path: Path) -> None:
    observed = nodes(tmp_path, sparks.ring(4))

    assert [rank.node for rank in plan(observed, 4, 1, "n3", "n1", "n2", "n4").ranks] == ["n3", "n2", "n1", "n4"]
    assert [rank.node for rank in plan(observed, 1, 4, "n1", "n3", "n4", "n2").ranks] == ["n1", "n4", "n3", "n2"]


def test_ray_and_both_splits_at_once_are_refused_in_a_ring_of_four(tmp_path: Path) -> None:
    observed = nodes(tmp_path, sparks.ring(4))

    with pytest.raises(PlanRefused, match="in which Ray does not keep the order of ranks"):
        plan(observed, 4, executor="ray")
    with pytest.raises(PlanRefused, match="with 2 x 2 ranks some would talk that no cable joins"):
        plan(observed, 2, 2)


def test_a_replica_takes_a_whole_ring_where_the_fleet_has_two(tmp_path: Path) -> None:
    others = [
        replace(one, functions=tuple(replace(port, address=_moved(port.address)) for port in one.functions))
        for one in sparks.ring(4)
    ]
    observed = nodes(tmp_path, [*sparks.ring(4)[:2], *others, *sparks.ring(4)[2:]])

    assert [rank.node for rank in plan(observed, 4).ranks] == ["n1", "n2", "n7", "n8"]


def _moved(address: str | None) -> str:
    return str(address).replace("10.20.", "10.30.")


def test_each_node_that_is_short_is_named_once(tmp_path: Path) -> None:
    with pytest.raises(PlanRefused) as refused:
        plan(nodes(tmp_path, SWITCH[:6], 30), 4)

    assert str(refused.value).splitlines()[1:] == [
        f"  first on n{number}: 30.0 GiB available - 40 claimed: 10.0 GiB short" for number in range(1, 7)
    ]


def test_a_refusal_has_a_bounded_number_of_lines() -> None:
    with pytest.raises(PlanRefused) as refused:
        swap.plan(
            release(serve={"tensor_parallel": 4}),
            {f"n{number}": joined(number, 90) for number in range(1, 9)},
            Current(),
            DeployOptions(),
            Rules(),
        )

    assert len(str(refused.value).splitlines()) == 1 + swap.MOST_REASONS + 1
    assert str(refused.value).endswith("\n  and 46 more")


def test_of_very_many_groups_those_with_most_memory_are_tried_and_the_own_one() -> None:
    free_gib = {f"n{number}": float(number) for number in range(1, 17)}
    own = [f"n{number}" for number in range(1, 9)]

    tried = groups.groups(free_gib, 8, own)

    assert len(tried) == groups.MOST_GROUPS + 1
    assert tried[0] == tuple(f"n{number}" for number in range(9, 17))
    assert tried[-1] == tuple(own)
    assert groups.groups(free_gib, 2)[:2] == [("n1", "n2"), ("n1", "n3")]
