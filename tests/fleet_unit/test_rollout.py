"""A deploy that is refused changes neither guards nor the gateway, and a plan that still holds is made once."""

from __future__ import annotations

import pytest

from sparkops.config.release import Release
from sparkops.errors import Busy, PlanRefused, SparkopsError
from sparkops.operator.deploy import provision, sending
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preview import Draft
from sparkops.operator.fleet.guards.leader import leading
from sparkops.swap.journal import Journal
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.test_intents import SMALL, journal, serve
from tests.fleet_unit.world import World

OPTIONS = DeployOptions(nodes=("n1",))


def refused(world: World, release: Release) -> SparkopsError:
    """Deploy where every guard is one of another version."""
    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        specs = agents.load(order.connected.fleet)
        assert agents.changes(order.connected, specs)
        with pytest.raises(SparkopsError) as caught:  # noqa: PT012 - both are what a deploy does
            planned = sending.prepare(order, leader, release, OPTIONS)
            ready = provision.ready_agents(order, leader, release.service, specs, planned, apply_gateway=True)
            sending.deploy(order, leader, release, OPTIONS, ready)
        return caught.value


def untouched(world: World) -> bool:
    return not any("exec" not in line for machine in world.machines.values() for line in machine.ran)


def test_a_release_that_does_not_fit_changes_no_guard(make: Make) -> None:
    world = make(1)
    for machine in world.machines.values():
        machine.give_guard()

    error = refused(world, world.release("1", claim_gib=110.0))

    assert isinstance(error, PlanRefused)
    assert untouched(world)
    assert world.events == []


def test_a_service_on_hold_changes_no_guard(make: Make) -> None:
    world = make(1)
    world.node("n1").peer.write(Journal("chat", "n1", revision=3, hold="fair"))

    error = refused(world, world.release("1"))

    assert (type(error), str(error)) == (Busy, "chat is on hold: fair")
    assert error.next_step == "sparkops hold chat --off"
    assert untouched(world)


def sent(world: World, change: Journal | None = None, *, stale: bool = False) -> tuple[Draft, str]:
    """Plan, then send; the plan, and the id of the intent that was sent. `change` is written between the two."""
    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        planned = sending.prepare(order, leader, world.release("1"), OPTIONS)
        assert planned is not None
        if change:
            world.node("n1").peer.write(change)
        given = Draft(planned.plan, planned.state, planned.intent, stale=stale)
        sending.deploy(order, leader, world.release("1"), OPTIONS, given)
    (question,) = world.node("n1").peer.requests("intend")
    return planned, question["intent"]["id"]


def test_a_plan_that_holds_is_sent_as_it_is(make: Make) -> None:
    planned, intent = sent(make(1))

    assert intent == planned.intent.id


@pytest.mark.parametrize(("change", "stale"), [(Journal("chat", "n1", revision=4), False), (None, True)])
def test_a_plan_is_made_again_after_the_service_or_its_guards_changed(
    make: Make, change: Journal | None, stale: bool
) -> None:
    planned, intent = sent(make(1), change, stale=stale)

    assert intent != planned.intent.id


def test_a_deploy_that_another_operator_has_overtaken_is_refused(make: Make) -> None:
    world = make(1)
    serve(world, world.release("0", **SMALL))
    served, new, peer = journal(world), world.release("1", **SMALL), world.node("n1").peer
    intents = len(peer.requests("intend"))
    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        planned = sending.prepare(order, leader, new, OPTIONS)
        peer.write(served.changed(active=None, previous=served.active))

        with pytest.raises(
            PlanRefused, match="chat: it was stopped since this deploy was planned; nothing was"
        ) as told:
            sending.deploy(order, leader, new, OPTIONS, planned)

    assert told.value.next_step.startswith("sparkops history chat; ")
    assert len(peer.requests("intend")) == intents
