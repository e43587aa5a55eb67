"""Where several replicas of a release run, and in which mode they replace others."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from sparkops.command import Command, Completed
from sparkops.config.inventory import Fleet
from sparkops.config.release import Rank, Release
from sparkops.errors import PlanRefused
from sparkops.names import Slot
from sparkops.node.docker_api import Engine
from sparkops.node.member import Member
from sparkops.node.progress import silent
from sparkops.operator.deploy import node_checks
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.deployment import deployment
from sparkops.operator.deploy.plan import DeployOptions, Plan
from sparkops.operator.deploy.preconditions import Current
from sparkops.operator.fleet.connected import Connected
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from sparkops.swap.rolling import next_step
from tests.examples import container, node, release
from tests.node.recording import RecordingNode
from tests.operator.deploy.pairs import TCP, joined
from tests.operator.deploy.swaps import on

CLAIM = {"claim_gib": 40.0}
OLD = release(memory=CLAIM, model={"revision": "old"})
NEW = release(memory=CLAIM, serve={"replicas": 2})
ALL = release(memory=CLAIM, serve={"replicas": "all"})


def copies(of: Release, *nodes: str, slot: Slot = Slot.BLUE) -> Deployment:
    """A release with a replica on each node."""
    places = (Rank(of, slot, node) for node in nodes)
    each = tuple(Replica((RankSpec(rank.node, rank.container, 40.0),)) for rank in places)
    return Deployment(of.id, slot, each)


def plan(free: dict[str, float], source: Deployment | None, of: Release, **options: object) -> Plan:
    """The plan for nodes with so much free, on which the replicas of `source` run."""
    places = {rank.node: rank.container for rank in source.ranks} if source else {}
    nodes = {}
    for name, gib in free.items():
        ranks = (Rank(known, Slot.BLUE, name) for known in (OLD, NEW))
        here = [container(rank, claim_gib=40.0) for rank in ranks if rank.container == places.get(name)]
        nodes[name] = on(gib, *here)
    current = Current(source, source.slot if source else None, fails=bool(options.pop("fails", False)))
    return swap.plan(of, nodes, current, DeployOptions(**options), swap.FabricRules())  # type: ignore[arg-type,attr-defined]


def where(planned: Plan) -> tuple[Mode, list[str], Slot]:
    return planned.mode, [rank.node for rank in planned.ranks], planned.slot


def test_each_replica_of_a_first_deploy_has_a_node_of_its_own() -> None:
    planned = plan({"n1": 50, "n2": 90, "n3": 60}, None, NEW)

    assert where(planned) == (Mode.FIRST, ["n2", "n3"], Slot.BLUE)
    assert "  2 replicas, each on a node of its own" in str(planned).splitlines()


def test_all_means_every_node_with_room() -> None:
    assert where(plan({"n1": 50, "n2": 90, "n3": 30}, None, ALL)) == (Mode.FIRST, ["n2", "n1"], Slot.BLUE)


def test_too_few_nodes_with_room_are_told() -> None:
    with pytest.raises(PlanRefused, match="first: 2 replicas wanted, room for 1: n2"):
        plan({"n1": 30, "n2": 90}, None, NEW)
    with pytest.raises(PlanRefused, match="2 replicas wanted, room for 1: n1"):
        plan({"n1": 90}, None, NEW)


def test_replicas_are_replaced_where_they_run_one_after_another() -> None:
    planned = plan({"n1": 5, "n2": 5}, copies(OLD, "n1", "n2"), NEW)

    assert where(planned) == (Mode.ROLLING, ["n1", "n2"], Slot.BLUE)
    assert "  one after another: 1 of 2 serve at any time" in str(planned).splitlines()
    assert planned.arithmetic()[0] == "n1: 5.0 GiB available + 40 freed - 40 claimed: 5.0 GiB left"


def test_free_nodes_and_room_beside_come_before_a_rolling_update() -> None:
    assert where(plan({"n1": 5, "n2": 5, "n3": 50, "n4": 50}, copies(OLD, "n1", "n2"), NEW))[0] is Mode.ACROSS
    assert where(plan({"n1": 60, "n2": 60}, copies(OLD, "n1", "n2"), NEW))[0] is Mode.BESIDE


def test_a_lone_release_gives_way_once_a_replica_of_the_new_one_serves_elsewhere() -> None:
    planned = plan({"n1": 5, "n2": 50}, copies(OLD, "n1"), NEW)

    assert where(planned) == (Mode.ROLLING, ["n1", "n2"], Slot.BLUE)
    first = next_step(copies(OLD, "n1"), Deployment(NEW.id, Slot.BLUE, copies(NEW, "n1", "n2").replicas))
    assert [rank.node for rank in first.ranks] == ["n2", "n1"]
    with pytest.raises(PlanRefused, match="rolling: all replicas wanted, room for 1: n1"):
        plan({"n1": 5, "n2": 30}, copies(OLD, "n1"), ALL)


@pytest.mark.parametrize(("count", "started"), [(3, ["n3"]), ("all", ["n3", "n4"])])
def test_more_replicas_start_beside_those_that_stay(count: object, started: list[str]) -> None:
    source = copies(NEW, "n1", "n2")

    planned = plan({"n1": 5, "n2": 5, "n3": 60, "n4": 50}, source, NEW, replicas=count)

    assert where(planned) == (Mode.ROLLING, started, Slot.BLUE)
    assert planned.stays == source.replicas
    assert "  untouched: n1 and n2" in str(planned).splitlines()


def test_fewer_replicas_stop_the_last_and_start_nothing() -> None:
    source = copies(NEW, "n1", "n2", "n3")

    planned = plan({"n1": 5, "n2": 5, "n3": 5}, source, NEW, replicas=1)

    assert (where(planned), planned.stays) == ((Mode.ROLLING, [], Slot.BLUE), source.replicas[:1])
    assert deployment(planned, {}).replicas == source.replicas[:1]


def test_those_on_other_nodes_than_named_go_and_all_that_there_is_stays() -> None:
    source = copies(NEW, "n1", "n2")

    moved = plan({"n1": 5, "n2": 5, "n3": 60}, source, NEW, nodes=("n2", "n3"))
    assert (where(moved), moved.stays) == ((Mode.ROLLING, ["n3"], Slot.BLUE), source.replicas[1:])

    same = plan({"n1": 5, "n2": 5}, source, NEW, replicas="all")
    assert (same.ranks, same.stays) == ((), source.replicas)


@pytest.mark.parametrize("count", [2, "all"])
def test_replicas_that_all_fail_are_replaced_and_none_is_added(count: object) -> None:
    source = copies(NEW, "n1", "n2")

    apart = plan({"n1": 5, "n2": 5, "n3": 60, "n4": 60}, source, NEW, replicas=count, fails=True)
    assert (where(apart), apart.stays) == ((Mode.ACROSS, ["n3", "n4"], Slot.GREEN), ())

    in_place = plan({"n1": 5, "n2": 5, "n3": 5}, source, NEW, replicas=count, fails=True)
    assert (where(in_place), in_place.stays) == ((Mode.IN_PLACE, ["n1", "n2"], Slot.GREEN), ())


def test_as_many_replicas_as_serve_start_nothing() -> None:
    source = copies(NEW, "n1", "n2")

    planned = plan({"n1": 5, "n2": 5, "n3": 60}, source, NEW)

    assert (planned.ranks, planned.stays) == ((), source.replicas)


def test_an_update_that_has_stopped_half_way_goes_on() -> None:
    mixed = Deployment(NEW.id, Slot.BLUE, (*copies(NEW, "n1").replicas, *copies(OLD, "n2").replicas))

    planned = plan({"n1": 5, "n2": 5}, mixed, NEW)

    assert (where(planned), planned.stays) == ((Mode.ROLLING, ["n2"], Slot.BLUE), mixed.replicas[:1])


def test_all_means_every_group_of_ranks_too_where_the_groups_are_many() -> None:
    """16 nodes have 12,870 groups of eight; the freest 500 all share nodes."""
    of = release(memory=CLAIM, serve={"replicas": "all", "tensor_parallel": 8, "executor": "mp"})
    nodes = {f"n{number}": joined(number, 50.0 + number) for number in range(1, 17)}

    planned = swap.plan(of, nodes, Current(), DeployOptions(), TCP)

    assert [len(replica) for replica in planned.replicas] == [8, 8]
    assert {rank.node for rank in planned.ranks} == {*nodes}


class Meeting(RecordingNode):
    """A node whose commands end once another node runs one too."""

    both = threading.Barrier(2, timeout=60)

    def run(self, command: Command, **more: Any) -> Completed:
        """See Node.run."""
        self.both.wait()
        return super().run(command, **more)


def test_the_memory_of_replicas_is_checked_on_all_nodes_at_once() -> None:
    target = deployment(plan({"n1": 5, "n2": 5}, copies(OLD, "n1", "n2"), NEW), {"n1": "10.0.0.1", "n2": "10.0.0.2"})
    nodes = {
        name: Meeting(name, {"sh -c": "arch x86_64\nnow 1.0\nMemTotal: 1\nMemAvailable: 1\n"}) for name in target.nodes
    }
    members = {name: Member(name, node(), running, cast("Engine", None)) for name, running in nodes.items()}

    node_checks.require_memory(Connected(cast("Fleet", None), members), target, None, silent)

    assert {name: len(running.ran) for name, running in nodes.items()} == {"n1": 1, "n2": 1}
