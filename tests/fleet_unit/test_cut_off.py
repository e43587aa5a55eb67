"""This client reaches fewer nodes than the fleet, or its inventory contradicts the fleet: what verbs then do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sparkops.errors import NotReachable, PlanRefused, SparkopsError
from sparkops.names import NODE_LABEL, Slot
from sparkops.node.agents.commands import CONTAINER
from sparkops.operator.deploy import sending
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.fleet.guards import membership
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.test_intents import ON_N2, SMALL, led, peer, serve, without

ON_FORMER = Deployment("chat-1", Slot.BLUE, (Replica((RankSpec("former", "chat-1-blue-r0"),)),))


def test_a_release_on_a_node_that_this_client_does_not_reach_serves_and_is_replaced_across(make: Make) -> None:
    world = make(3)
    serve(world, world.release("1", **SMALL), ON_N2)

    with without(world, "n2", listed=True) as client:
        same = sending.deploy(*client, world.release("1", **SMALL), DeployOptions())
        draft = sending.dry_run(*client, world.release("2", **SMALL), DeployOptions())
        accepted = sending.deploy(*client, world.release("2", **SMALL), DeployOptions())

    assert same is None, "it serves, as the leader reports"
    assert draft
    assert (draft.plan.mode, draft.plan.rank.node) == (Mode.ACROSS, "n1")
    assert accepted


def test_a_rollback_to_a_node_that_this_client_does_not_reach_names_it_and_sends_nothing(make: Make) -> None:
    world = make(3)
    serve(world, world.release("1", **SMALL), ON_N2)
    serve(world, world.release("2", **SMALL), DeployOptions(nodes=("n1",)))
    sent = len(peer(world).requests("intend"))

    with without(world, "n2", listed=True) as client, pytest.raises(SparkopsError, match="n2") as refused:
        sending.rollback(*client, "chat", DeployOptions())

    assert "stopped" not in str(refused.value)
    assert len(peer(world).requests("intend")) == sent


def test_from_the_gateways_node_alone_a_deploy_goes_on(make: Make) -> None:
    world = make(3)
    serve(world, world.release("1", **SMALL), ON_N2)

    with without(world, "n2", listed=True) as (operation, leader):
        connected = operation.connected
        alone = replace(
            connected,
            members={"n1": connected.members["n1"]},
            unreachable={**connected.unreachable, "n3": NotReachable("n3", "no answer")},
        )
        draft = sending.dry_run(
            replace(operation, connected=alone), leader, world.release("2", **SMALL), DeployOptions()
        )

    assert draft
    assert (draft.plan.mode, draft.plan.rank.node) == (Mode.ACROSS, "n1")


def test_an_inventory_that_agrees_with_the_fleet_is_accepted(make: Make) -> None:
    world = make(2)
    with led(world) as (operation, leader):
        membership.require_inventory(operation.connected, "n1", leader)


def test_the_node_that_leads_is_named_where_the_inventory_has_another_for_the_gateway(make: Make) -> None:
    world = make(2)
    copies = {"leader": "n2", "journals": [], "copies": [], "term": 0, "heard_ago_s": 1.0, "problems": []}
    (peer(world).directory / "copies").write_text(json.dumps(copies))

    with led(world) as (operation, leader), pytest.raises(PlanRefused) as refused:
        membership.require_inventory(operation.connected, "n1", leader)

    assert str(refused.value) == "n2 leads this fleet: gateway.node is n1, expected n2"
    assert refused.value.next_step.startswith("Set `gateway.node: n2` in the inventory; ")


def test_without_a_guard_on_the_gateways_node_the_others_know_who_leads(make: Make) -> None:
    world = make(2)
    del world.machines["n1"].containers[CONTAINER]
    peer(world, "n2").write(Journal("chat", "n2", revision=5, active=ON_FORMER))

    with led(world) as (operation, leader), pytest.raises(PlanRefused, match=r"n2 leads chat: gateway\.node is n1"):
        membership.require_inventory(operation.connected, "n1", leader)


def test_a_node_that_the_fleet_calls_otherwise_is_named_while_a_service_needs_it(make: Make) -> None:
    world = make(2)
    world.machines["n2"].containers[CONTAINER]["Config"]["Labels"][NODE_LABEL] = "former"
    peer(world, "n2").write(Journal("chat", "n1", ("former",), revision=8, active=ON_FORMER))

    with led(world) as (operation, leader):
        with pytest.raises(PlanRefused, match="n2: the fleet calls this node former") as refused:
            membership.require_inventory(operation.connected, "n1", leader)
        peer(world, "n2").write(Journal("chat", "n1", ("former",), revision=9))
        membership.require_inventory(operation.connected, "n1", leader)

    assert refused.value.next_step.startswith("Rename n2 to former in the inventory.")
