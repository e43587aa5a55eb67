"""What differs of gateway and guards, as it is read from nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.errors import PlanRefused
from sparkops.names import NODE_LABEL, Slot
from sparkops.node.agents.commands import CONTAINER as GUARD
from sparkops.node.progress import Event
from sparkops.operator.deploy.agents import agents
from sparkops.serving.service_state import needed_nodes
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, RankSpec, Replica
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.world import World


def nothing(event: Event) -> None:
    pytest.fail(f"it changed something: {event}")


def test_every_difference_is_found_and_nothing_is_changed(make: Make) -> None:
    """n1 has a gateway and a guard of another version, n2 a gateway that it should not have, n3 no guard."""
    world = make(3)
    world.machines["n2"].give_gateway()
    del world.machines["n3"].containers[GUARD]
    with world.order() as order:
        specs = agents.load(order.connected.fleet)
        changes = agents.changes(order.connected, specs)

        assert {(change.node, change.agent, change.kind.value, change.needs_consent) for change in changes} >= {
            ("n1", "guard", "replace", False),
            ("n1", "gateway", "replace", True),
            ("n2", "guard", "replace", False),
            ("n2", "gateway", "remove", True),
            ("n3", "guard", "install", False),
        }
        with pytest.raises(PlanRefused, match=r"n2: remove gateway: gateway\.node is n1"):
            agents.ensure(order.connected, specs, nothing)
    assert [line for machine in world.machines.values() for line in machine.ran if "exec" not in line] == []


def test_no_second_leader_starts_where_the_inventory_names_another_node(make: Make) -> None:
    world = make(2)
    world.node("n2").peer.write(Journal("chat", "n2", ("n1",), term=2, revision=5))
    with world.order() as order, pytest.raises(PlanRefused, match="n2 leads chat"):
        agents.ensure(order.connected, agents.load(order.connected.fleet), nothing, apply_gateway=True)


def test_a_guard_that_leads_services_under_another_name_of_its_node_is_not_replaced(make: Make) -> None:
    world = make(2)
    world.machines["n2"].containers[GUARD]["Config"]["Labels"][NODE_LABEL] = "former"
    peer = world.node("n2").peer
    release = Deployment("chat-1", Slot.BLUE, (Replica((RankSpec("former", "chat-1-blue-r0"),)),))
    peer.write(Journal("chat", "former", revision=8, active=release))
    with world.order() as order:
        specs = agents.load(order.connected.fleet)
        with pytest.raises(PlanRefused, match="n2: the fleet calls this node former") as caught:
            agents.changes(order.connected, specs)
        assert caught.value.next_step.startswith("Rename n2 to former in the inventory.")

        peer.write(Journal("chat", "former", revision=9))

        assert {change.node for change in agents.changes(order.connected, specs)} == {"n1", "n2"}


FORMER = RankSpec("former", "chat-1-blue-r0")
ON_FORMER = Journal(
    "chat", "n1", ("former",), revision=8, active=Deployment("chat-1", Slot.BLUE, (Replica((FORMER,)),))
)


def refused(world: World) -> PlanRefused:
    """The refusal of a change of the agents, which changes nothing."""
    with world.order() as order, pytest.raises(PlanRefused) as caught:
        agents.ensure(order.connected, agents.load(order.connected.fleet), nothing, apply_gateway=True)
    assert [line for machine in world.machines.values() for line in machine.ran if "exec" not in line] == []
    return caught.value


def test_a_node_whose_guard_follows_is_not_renamed_while_an_engine_of_it_serves(make: Make) -> None:
    world = make(2)
    world.machines["n2"].containers[GUARD]["Config"]["Labels"][NODE_LABEL] = "former"
    world.node("n2").peer.write(ON_FORMER)  # its copy; the leader cannot be asked

    error = refused(world)

    assert str(error) == "n2: the fleet calls this node former"


@pytest.mark.parametrize(
    ("journal", "needed"),
    [
        (ON_FORMER, True),
        (ON_FORMER.noted("s", "accepted", stopping=True), True),
        (ON_FORMER.offline(), False),
        (replace(ON_FORMER, without=frozenset({"former"})), False),
        (replace(ON_FORMER, active=None), False),
    ],
    ids=["serves", "stops", "stopped and silent", "given up", "nothing runs"],
)
def test_a_node_that_left_the_inventory_is_named_while_a_service_needs_it(
    make: Make, journal: Journal, *, needed: bool
) -> None:
    world = make(2)
    world.node("n1").peer.write(journal)
    if needed:
        assert str(refused(world)).startswith("former: chat runs there")
        return
    with world.order() as order:
        assert agents.changes(order.connected, agents.load(order.connected.fleet))


def test_an_engine_whose_end_is_not_confirmed_needs_its_node_while_that_reports() -> None:
    stopped = ON_FORMER.offline()

    assert needed_nodes(stopped, {"n1", "former"}) == {"former"}
    assert needed_nodes(stopped, {"n1"}) == set()
    assert needed_nodes(stopped.confirmed_stopped([FORMER]), {"n1", "former"}) == set()


def test_images_are_built_ahead_for_what_changes_without_consent(make: Make) -> None:
    """n1 has another gateway, which clients may notice, and n3 no guard. Each node has the image already."""
    world = make(3)
    del world.machines["n3"].containers[GUARD]
    running = {name: sorted(machine.containers) for name, machine in world.machines.items()}
    built = list[str]()
    with world.order() as order:
        specs = agents.load(order.connected.fleet)
        differing = agents.changes(order.connected, specs)
        agents.build(order.connected, specs, differing, lambda event: built.append(f"{event.node}: {event.text}"))

    assert sorted(built) == [f"{node}: {specs.guard.tag} is up to date" for node in world.machines]
    assert {name: sorted(machine.containers) for name, machine in world.machines.items()} == running
