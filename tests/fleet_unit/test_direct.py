"""Deploys without a gateway: which guards lead, what they are sent, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sparkops.deploy import intents, leads, preview, sending
from sparkops.deploy.operation import Operation
from sparkops.deploy.placement import DeployOptions
from sparkops.errors import PlanRefused
from sparkops.guard_client import engine_spec
from sparkops.guard_client.ending import Ending
from sparkops.guard_client.following import Following
from sparkops.guard_client.leader import Leader, leading
from sparkops.guard_client.service_state import ServiceState
from sparkops.release import Release
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.world import World
from tests.guard_peer import Peer

SMALL = {"claim_gib": 20.0}


def guarded(world: World) -> None:
    for machine in world.machines.values():
        machine.give_guard()


@contextmanager
def led(world: World, *nodes: str) -> Iterator[tuple[Operation, Leader]]:
    """The guard of the first node leads a replica on these nodes, which alone are connected."""
    with world.order(direct=nodes[0]) as order, leading(order.connected.members[nodes[0]]) as leader:
        operation = replace(order, connected=order.connected.only(nodes))
        leads.lead_directly(operation.connected, leader, "chat", nodes)
        yield operation, leader


def peer(world: World, node: str) -> Peer:
    return world.node(node).peer


def serve(world: World, release: Release, *nodes: str, downtime: bool = False) -> Ending:
    """Deploy a release there, let its engines run, and follow it to its end."""
    with led(world, *nodes) as operation_and_leader:
        options = DeployOptions(nodes=nodes, allow_downtime=downtime)
        accepted = sending.deploy(*operation_and_leader, release, options)
        journal = peer(world, nodes[0]).journal("chat")
        assert journal is not None
        assert journal.swap is not None
        assert accepted is not None
        for rank in journal.swap.target.ranks:
            machine = world.machines[rank.node]
            for old in list(machine.up):
                machine.stop(old)
            machine.do(engine_spec.of(rank).create(rank.node))
            machine.start(rank.container)
        return Following(operation_and_leader[1], "chat", world.receive).until_end(accepted)


def places(world: World, release: Release, *nodes: str) -> tuple[tuple[str, ...], ...]:
    with world.order(direct="n1") as order:
        return leads.places(order.connected, release, nodes, world.receive)


def test_each_node_s_own_guard_gets_an_intent_for_the_port_of_the_service(make: Make) -> None:
    world = make(2)
    release = world.release("1")

    endings = [serve(world, release, node) for node in ("n1", "n2")]

    assert [(ending.result, ending.mode) for ending in endings] == [("done", "first")] * 2
    for node in ("n1", "n2"):
        (sent,) = peer(world, node).requests("intend")
        (rank,) = sent["intent"]["target"]["replicas"][0]["ranks"]
        assert rank["node"] == node
        journal = peer(world, node).journal("chat")
        assert journal is not None
        assert journal.active is not None
        spec = engine_spec.of(next(journal.active.heads))
        assert (spec.direct, spec.address, spec.callers) == (True, "127.0.0.1", None)
        assert spec.rank(node).port == world.base
        assert peer(world, node).requests("join") == peer(world, node).requests("peers") == []


def test_the_next_release_needs_consent_and_takes_the_place_of_the_old_one(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL), "n1")

    with pytest.raises(PlanRefused, match="in-place on n1: the service would be down") as caught:
        serve(world, world.release("2", **SMALL), "n1")
    ending = serve(world, world.release("2", **SMALL), "n1", downtime=True)

    assert caught.value.next_step == "Accept the downtime with --allow-downtime."
    assert (ending.result, ending.mode, ending.release) == ("done", "in-place", world.release("2", **SMALL).id)
    assert len(peer(world, "n1").requests("intend")) == 2


def test_the_same_deploy_again_sends_no_intent(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1"), "n1")

    with led(world, "n1") as operation_and_leader:
        assert sending.deploy(*operation_and_leader, world.release("1"), DeployOptions(("n1",))) is None
    assert len(peer(world, "n1").requests("intend")) == 1


def test_rollback_deploys_the_previous_release_in_its_place(make: Make) -> None:
    world = make(1)
    for version in ("1", "2"):
        serve(world, world.release(version, **SMALL), "n1", downtime=True)

    with led(world, "n1") as operation_and_leader:
        sending.rollback(*operation_and_leader, "chat", DeployOptions(allow_downtime=True))

    journal = peer(world, "n1").journal("chat")
    assert journal is not None
    assert journal.swap is not None
    assert (journal.swap.target.release, journal.swap.mode) == (world.release("1", **SMALL).id, Mode.IN_PLACE)


def test_of_a_pair_the_guard_of_rank_0_leads_and_the_other_one_joins_it(make: Make) -> None:
    world = make(2)
    guarded(world)
    pair = world.release("1", pair=True)

    assert places(world, pair, "n2", "n1") == (("n2", "n1"),)
    ending = serve(world, pair, "n2", "n1")

    assert ending.result == "done"
    joined = {"op": "join", "leader": "n2", "key": "key of n1", "term": 0, "gateway": [], "idle": True}
    assert peer(world, "n1").requests("join") == [joined]
    (peers,) = peer(world, "n2").requests("peers")
    assert (list(peers["peers"]), peers["add"]) == (["n1"], True)
    (request,) = peer(world, "n2").requests("lead")
    assert (request["peers"], request["direct"], request["copies"]) == (["n1"], True, [])
    assert peer(world, "n1").requests("intend") == []
    assert places(world, world.release("2", pair=True)) == (("n2", "n1"),)


def test_a_pair_is_deployed_on_the_nodes_where_it_runs(make: Make) -> None:
    world = make(3)
    guarded(world)
    serve(world, world.release("1", pair=True), "n1", "n2")

    with world.order(direct="n1") as order, pytest.raises(PlanRefused, match="runs on n1 and n2: without a gateway"):
        leads.places(order.connected.only(("n1", "n3")), world.release("2", pair=True), ("n1", "n3"), world.receive)


def test_what_the_other_rank_s_guard_knows_goes_to_the_new_leader(make: Make) -> None:
    world = make(2)
    guarded(world)
    known = Journal("chat", "n3", ("n2",), term=3, revision=8)
    peer(world, "n2").write(known)

    with led(world, "n1", "n2"):
        pass

    (request,) = peer(world, "n1").requests("lead")
    assert [(copy["leader"], copy["term"], copy["revision"]) for copy in request["copies"]] == [("n3", 3, 8)]


def test_a_dry_run_asks_for_nothing_and_prints_no_command_for_a_gateway(make: Make) -> None:
    world = make(1)
    with world.order(direct="n1") as operation, leading(operation.connected.members["n1"]) as leader:
        draft = sending.dry_run(operation, leader, world.release("1"), DeployOptions(("n1",)))

    assert draft is not None
    assert draft.effects is not None
    assert [planned.phase for planned in draft.effects.effects][:3] == ["prepare", "start", "verify"]
    printed = [*preview.lines(draft.effects, "chat")]
    assert f"  n1: note switch blue {world.release('1').id}" in printed
    assert "gateway" not in "".join(printed)
    assert peer(world, "n1").requests("lead") == peer(world, "n1").requests("intend") == []


def heads(world: World, *, direct: str = "") -> dict[str, bool]:
    with world.order(direct=direct) as order, leading(order.connected.members["n1"]) as gateway:
        return leads.heads(order.connected, "chat", world.receive, None if direct else gateway)


def test_verbs_find_every_guard_that_leads_the_service(make: Make) -> None:
    world = make(3)
    guarded(world)
    assert heads(world, direct="n1") == {}
    for node in ("n1", "n3"):
        serve(world, world.release("1"), node)

    assert heads(world, direct="n1") == {"n1": True, "n3": True}
    assert heads(world) == {"n1": True, "n3": True}, "a gateway that was added changes nothing for it"


def test_behind_a_gateway_its_guard_leads(make: Make) -> None:
    world = make(2)
    guarded(world)

    assert heads(world) == {"n1": False}
    peer(world, "n1").write(Journal("chat", "n1", ("n2",), revision=4))
    assert heads(world) == {"n1": False}


def test_a_service_that_gets_a_gateway_is_led_there_with_all_that_was_known_of_it(make: Make) -> None:
    world = make(2)
    guarded(world)
    stopped = Journal("chat", "n2", revision=9, term=2)
    peer(world, "n2").write(stopped)

    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        leads.lead_behind_gateway(order.connected, leader, "chat")

    (request,) = peer(world, "n1").requests("lead")
    assert [(copy["leader"], copy["term"]) for copy in request["copies"]] == [("n2", 2)]
    assert request["direct"] is False


def test_a_service_behind_the_gateway_is_not_asked_about_elsewhere(make: Make) -> None:
    world = make(2)
    guarded(world)
    peer(world, "n1").write(Journal("chat", "n1", ("n2",), revision=4))

    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        leads.lead_behind_gateway(order.connected, leader, "chat")

    assert peer(world, "n1").requests("lead") == peer(world, "n2").requests("state") == []


def test_the_history_of_replicas_names_the_node_of_each_event(make: Make) -> None:
    world = make(2)
    guarded(world)
    for node in ("n1", "n2"):
        serve(world, world.release("1"), node)

    with world.order(direct="n1") as order:
        members = order.connected.members
        with leading(members["n1"]) as one, leading(members["n2"]) as other:
            events = intents.events(order.connected, {"n1": one, "n2": other}, "chat")

    accepted = [event["node"] for event in events if event["kind"] == "intent"]
    assert sorted(accepted) == ["n1", "n2"]


def test_a_guard_that_cannot_be_asked_hides_no_other_leader(make: Make) -> None:
    world = make(2)
    guarded(world)
    serve(world, world.release("1"), "n1")

    with world.order(direct="n1") as order:
        world.machines["n2"].go_dark()
        assert leads.heads(order.connected, "chat", world.receive, None) == {"n1": True}
    assert any(event.node == "n2" and event.text.startswith("skipped: ") for event in world.events)


def test_the_guard_of_another_rank_names_the_leader(make: Make) -> None:
    world = make(2)
    guarded(world)
    serve(world, world.release("1", pair=True), "n1", "n2")
    active = peer(world, "n1").journal("chat")
    assert active is not None
    peer(world, "n2").write(active)
    (peer(world, "n2").directory / "direct").unlink(missing_ok=True)

    with world.order(direct="n1") as order:
        assert leads.leader_elsewhere(order.connected.only(("n2",)), "chat") == "n1"
        assert leads.leader_elsewhere(order.connected, "chat") == ""


def test_a_service_that_runs_without_a_gateway_is_refused_before_the_gateway_gets_its_port(make: Make) -> None:
    world = make(2)
    guarded(world)
    serve(world, world.release("1"), "n2")

    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        with pytest.raises(PlanRefused, match="chat is already deployed, led by n2") as caught:
            leads.known(order.connected, leader, "chat", world.receive, direct=False)
        stopped = Journal("chat", "n2", revision=30)
        peer(world, "n2").write(stopped)
        state = leads.known(order.connected, leader, "chat", world.receive, direct=False)

    assert state == ServiceState(Journal("chat", "n1"))
    assert (caught.value.next_step, caught.value.exit_code) == ("sparkops stop chat, then deploy it again", 5)


def test_a_service_of_a_renamed_node_is_stopped_under_the_old_name(make: Make) -> None:
    world = make(2)
    guarded(world)
    serve(world, world.release("1"), "n2")

    with world.order() as order:
        renamed = order.connected.fleet.model_copy(update={"nodes": {"n1": order.connected.fleet.nodes["n1"]}})
        step = leads.stop_step(replace(order.connected, fleet=renamed), "chat", "n2")

    assert step == f"Name the node n2 in {renamed.file} again, as at the deploy: sparkops stop chat"
