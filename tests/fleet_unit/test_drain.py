"""A drain moves or stops what serves on a node, is continued by the next one, and a return brings all of it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.release import Release
from sparkops.errors import Busy, Interrupted, NeedsOperator, PlanRefused
from sparkops.node.cordon import Cordon
from sparkops.node.member import Member
from sparkops.operator.deploy import deployment, drain, sending
from sparkops.operator.deploy.drain import Action, DrainOptions, Follow, NodePlan
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions, nodes_of
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.following import Accepted
from sparkops.operator.fleet.guards.leader import Leader
from sparkops.serving import engine_spec
from tests import examples
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.recipes import recipe
from tests.fleet_unit.test_intents import finished, journal, led, peer, serve
from tests.fleet_unit.world import World

ON_N2 = DeployOptions(nodes=("n2",))
WHY = "new driver, by ann@laptop"


def follow(world: World, client: tuple[Operation, Leader]) -> Callable[[str, Accepted], None]:
    """Let the fleet do what an intent asks for, until nothing of it is left."""

    def until_end(_: str, accepted: Accepted) -> None:
        if (swap := journal(world).swap) and not journal(world).stopping:
            for rank in swap.target.ranks:
                machine = world.machines[rank.node]
                machine.do(engine_spec.of(rank).create(rank.node))
                machine.start(rank.container)
        assert finished(world, client, accepted).exit_code == 0
        settle(world)

    return until_end


def settle(world: World) -> None:
    """Let what is kept warm retire, and its guard confirm the end."""
    while journal(world).swap:
        peer(world).advance("chat")
    kept = {rank.place for item in journal(world).deployments for rank in item.ranks}
    for name, machine in world.machines.items():
        for container in [container for container in machine.up if (name, container) not in kept]:
            machine.stop(container)
    peer(world).write(journal(world).confirmed_stopped(journal(world).stopped))


def planned(world: World, options: DrainOptions | None = None, node: str = "n2") -> NodePlan:
    with led(world) as client:
        return drain.plan_drain(*client, node, options or DrainOptions(reason=WHY))


def drained(world: World, options: DrainOptions | None = None, node: str = "n2") -> NodePlan:
    with led(world) as client:
        plan = drain.plan_drain(*client, node, options or DrainOptions(reason=WHY))
        drain.drain(*client, plan, follow(world, client))
        return plan


def returned(world: World, node: str = "n2", ending: Follow | None = None) -> NodePlan:
    with led(world) as client:
        plan = drain.plan_return(*client, node, peer(world, node).cordon())
        drain.bring_back(*client, plan, ending or follow(world, client))
        return plan


def place(world: World) -> tuple[str, ...]:
    active = journal(world).active
    return nodes_of(active) if active else ()


def moving(world: World) -> None:
    serve(world, world.release("1"), ON_N2)
    settle(world)


def test_a_drain_moves_a_service_and_a_return_brings_it_back(make: Make) -> None:
    world = make(2)
    moving(world)

    plan = drained(world)

    assert [(step.service, step.action) for step in plan.steps] == [("chat", Action.MOVE)]
    assert place(world) == ("n1",)
    cordon = peer(world, "n2").cordon()
    assert (cordon.reason, nodes_of(cordon.displaced["chat"])) == (WHY, ("n2",))

    back = returned(world)

    assert [(step.service, step.action) for step in back.steps] == [("chat", Action.MOVE)]
    assert place(world) == ("n2",)
    assert peer(world, "n2").cordon() == Cordon()
    assert [step.action for step in returned(world).steps] == [], "the second return has nothing to do"


def test_a_plan_prints_what_runs_and_changes_nothing(make: Make) -> None:
    world = make(2)
    moving(world)
    before = journal(world)

    plan = planned(world)

    release = world.release("1").id
    lines = [line.strip() for line in str(plan).splitlines()]
    assert lines[:3] == [f"n2: drain ({WHY})", "chat: move to n1", f"service chat, release {release}, mode across"]
    assert f"n1: docker start {release}-green-r0" in lines
    assert (journal(world), peer(world, "n2").requests("set_cordon")) == (before, [])
    services: Any = plan.as_json()["services"]
    (row,) = services
    assert (row["action"], row["release"], row["nodes"], row["to"]) == ("move", release, ["n2"], ["n1"])


def test_a_node_without_room_elsewhere_is_not_drained_and_the_arithmetic_says_why(make: Make) -> None:
    world = make(2)
    moving(world)
    world.machines["n1"].memory_gib = 40.0
    before = journal(world)

    with pytest.raises(PlanRefused, match=r"40.0 GiB available - 60 claimed: 20.0 GiB short") as no:
        drained(world)

    assert "sparkops node drain n2 --stop" in no.value.next_step
    assert (journal(world), peer(world, "n2").cordon()) == (before, Cordon())


def test_the_second_move_of_a_drain_finds_the_memory_of_the_first_taken(make: Make) -> None:
    world = make(2)
    moving(world)
    world.machines["n2"].memory_gib = 200.0
    small = Release(recipe(world.base + 10, "1", service="small", claim_gib=50.0), examples.INPUTS)
    with led(world) as client:
        sending.deploy(*client, small, ON_N2)
    while (other := peer(world).journal("small")) and other.swap:
        peer(world).advance("small")
    world.machines["n1"].memory_gib = 115.0

    steps = planned(world, DrainOptions(stop=True)).steps

    assert [(step.service, step.action) for step in steps] == [("chat", Action.MOVE), ("small", Action.MOVE)]
    world.machines["n1"].memory_gib = 105.0
    moved, stopped = planned(world, DrainOptions(stop=True)).steps
    assert (moved.service, stopped.service, stopped.action) == ("chat", "small", Action.STOP)


def test_what_fits_nowhere_else_is_stopped_only_on_request_and_starts_again_on_return(make: Make) -> None:
    world = make(2)
    moving(world)
    world.machines["n1"].memory_gib = 40.0

    plan = drained(world, DrainOptions(stop=True))

    assert [step.action for step in plan.steps] == [Action.STOP]
    assert (place(world), [*peer(world, "n2").cordon().displaced]) == ((), ["chat"])
    assert [step.action for step in returned(world).steps] == [Action.START]
    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_a_drain_whose_client_died_is_continued_by_the_next_one(make: Make) -> None:
    """Here between the intent and its end. The swap is followed, and the node knows what to bring back."""
    world = make(2)
    moving(world)

    def die(service: str, accepted: Accepted) -> None:
        raise KeyboardInterrupt(service, accepted)

    with led(world) as client, pytest.raises(KeyboardInterrupt):
        drain.drain(*client, drain.plan_drain(*client, "n2", DrainOptions(reason=WHY)), die)
    plan = drained(world)

    assert [(step.action, step.draft) for step in plan.steps] == [(Action.MOVE, None)], "it joins the swap"
    assert place(world) == ("n1",)
    assert len([sent for sent in peer(world).requests("intend") if sent["intent"]["kind"] == "deploy"]) == 2
    assert [step.action for step in returned(world).steps] == [Action.MOVE]
    assert place(world) == ("n2",)


def test_a_drain_of_an_empty_node_only_cordons_it(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    assert list(drained(world).steps) == []
    assert "chat" in peer(world, "n2").cordon().displaced, "a second drain forgets nothing"


def test_no_release_starts_on_a_cordoned_node(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"), DeployOptions(nodes=("n1",)))
    with led(world) as client:
        drain.change_cordon(client[0], "n2", lambda cordon: cordon.closed(WHY))

    with led(world) as client, pytest.raises(PlanRefused, match="across on n2: cordoned: new driver, by ann") as no:
        sending.prepare(*client, world.release("2"), ON_N2)
    assert "sparkops node return n2" in no.value.next_step


def test_the_leader_refuses_a_plan_that_was_made_before_the_cordon(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"), DeployOptions(nodes=("n1",)))

    with led(world) as client:
        planned = sending.prepare(*client, world.release("2"), ON_N2)
        drain.change_cordon(client[0], "n2", lambda cordon: cordon.closed(WHY))
        with pytest.raises(Busy, match=r"n2: no engine loads during the cordon \(new driver, by ann@laptop\)"):
            sending.deploy(*client, world.release("2"), ON_N2, planned)


def test_a_release_that_serves_on_a_cordoned_node_stays(make: Make) -> None:
    world = make(2)
    moving(world)
    with led(world) as client:
        drain.change_cordon(client[0], "n2", lambda cordon: cordon.closed(WHY))
        assert sending.deploy(*client, world.release("1"), ON_N2) is None


def test_the_node_of_the_gateway_is_drained_only_with_the_loss_of_the_endpoint_accepted(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"), DeployOptions(nodes=("n1",)))
    settle(world)

    with pytest.raises(PlanRefused, match=r"clients reach 0 of 1 service \(chat\)") as no:
        planned(world, node="n1")
    assert "--allow-downtime" in no.value.next_step

    drained(world, DrainOptions(allow_downtime=True), "n1")
    assert place(world) == ("n2",)


def test_a_service_that_was_deployed_anew_meanwhile_stays_where_it_is(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    world.machines["n1"].memory_gib = 200.0
    serve(world, world.release("2"), DeployOptions(nodes=("n1",)))
    settle(world)

    plan = returned(world)

    assert [step.action for step in plan.steps] == [Action.LEAVE]
    assert f"{world.release('2').id} was deployed on n1 since; it stays there" in str(plan)
    assert (place(world), peer(world, "n2").cordon()) == (("n1",), Cordon())


def test_a_service_that_fails_on_the_returned_node_stays_until_the_return_is_repeated(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    def fail(service: str, accepted: Accepted) -> None:
        raise PlanRefused(f"{service}: reverted: a check failed ({accepted.intent})", next_step="sparkops history chat")

    with pytest.raises(PlanRefused, match="a check failed") as no:
        returned(world, ending=fail)
    assert no.value.next_step == "sparkops history chat\nsparkops node return n2 continues"
    cordon = peer(world, "n2").cordon()
    assert (cordon.reason, [*cordon.displaced]) == ("", ["chat"])

    returned(world)
    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_a_service_that_an_operator_has_stopped_since_stays_stopped(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    with led(world) as client:
        follow(world, client)("chat", sending.stop(client[1], "chat") or Accepted("", 0))

    plan = returned(world)

    assert [(step.action, step.note) for step in plan.steps] == [(Action.LEAVE, "it was stopped since")]
    assert (place(world), peer(world, "n2").cordon()) == ((), Cordon())


def test_a_hold_keeps_a_node_from_being_drained(make: Make) -> None:
    world = make(2)
    moving(world)
    peer(world).write(replace(journal(world), hold="fair"))

    with pytest.raises(Busy, match="chat is on hold: fair"):
        planned(world, DrainOptions(stop=True))
    assert peer(world, "n2").cordon() == Cordon()


def test_a_swap_to_the_node_is_not_disturbed(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"), DeployOptions(nodes=("n1",)))
    with led(world) as client:
        sending.deploy(*client, world.release("2"), ON_N2)

    with pytest.raises(Busy, match=r"a swap to .* is in phase") as busy:
        planned(world, DrainOptions(stop=True))
    assert "sparkops rollback chat" in busy.value.next_step


def test_a_drain_stops_a_release_that_is_only_kept_warm_on_the_node(make: Make) -> None:
    """Here the old one of a deploy to the other node: nothing of the service is to move."""
    world = make(2)
    moving(world)
    with led(world) as client:
        accepted = sending.deploy(*client, world.release("2"), DeployOptions(nodes=("n1",)))
        assert finished(world, client, accepted).exit_code == 0
        (old,) = world.machines["n2"].up
        world.listeners[f"waiting until {old} stops"] = lambda: settle(world)

        plan = drain.plan_drain(*client, "n2", DrainOptions(reason=WHY))
        drain.drain(*client, plan, follow(world, client))

    assert [(step.action, step.service) for step in plan.steps] == [(Action.END_WARM, "chat")]
    assert "chat: stop the old release: it is only kept warm" in str(plan)
    assert peer(world).requests("intend")[-1]["intent"]["kind"] == "end-warm"
    assert (place(world), journal(world).swap) == (("n1",), None)


def test_a_drain_stops_the_release_that_it_has_moved_before_its_warm_time_is_over(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "POLL_S", 0.01)
    world = make(2)
    moving(world)

    def until_promoted(_: str, accepted: Accepted) -> None:
        with led(world) as client:
            assert finished(world, client, accepted).exit_code == 0
        old = next(text for text in world.machines["n2"].up)
        world.listeners[f"waiting until {old} stops"] = lambda: settle(world)

    with led(world) as client:
        plan = drain.plan_drain(*client, "n2", DrainOptions(reason=WHY))
        drain.drain(*client, plan, until_promoted)

    assert [event.text for event in world.events if event.text.startswith("waiting until")] != []
    assert peer(world).requests("intend")[-1]["intent"]["kind"] == "end-warm"
    assert place(world) == ("n1",)


def test_a_replica_on_two_nodes_moves_to_another_pair_and_is_refused_without_one(make: Make) -> None:
    world = make(3)
    serve(world, world.release("1", pair=True, claim_gib=20.0), DeployOptions(nodes=("n2", "n3")))
    settle(world)

    drained(world, node="n3")

    assert set(place(world)) == {"n1", "n2"}
    with pytest.raises(PlanRefused, match="n3: cordoned: new driver") as no:
        planned(world)
    assert "across on n1" not in str(no.value)
    returned(world, "n3")
    assert place(world) == ("n2", "n3")


def test_a_return_that_is_no_longer_followed_leaves_the_node_open_for_the_next_one(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    def leave(service: str, accepted: Accepted) -> None:
        raise Interrupted(f"{service} {accepted.intent}")

    with pytest.raises(Interrupted):
        returned(world, ending=leave)
    assert peer(world, "n2").cordon().reason == ""

    assert [(step.action, step.draft) for step in returned(world).steps] == [(Action.MOVE, None)]
    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_a_service_that_cannot_return_keeps_the_node_closed(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    before = peer(world, "n2").cordon()
    world.machines["n2"].memory_gib = 40.0

    with pytest.raises(PlanRefused, match=r"20.0 GiB short") as no:
        returned(world)

    assert no.value.next_step.endswith("sparkops node uncordon n2")
    assert peer(world, "n2").cordon() == before


def test_a_hold_keeps_a_service_from_returning(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    peer(world).write(replace(journal(world), hold="fair"))

    with pytest.raises(Busy, match="chat is on hold: fair"):
        returned(world)


def test_a_guard_that_does_not_reply_refuses_only_its_own_node(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(3)
    serve(world, world.release("1"), DeployOptions(nodes=("n1",)))
    cordon_of = leases.cordon_of

    def broken(member: Member) -> Cordon:
        if member.name == "n3":
            raise NeedsOperator("n3: cordon.json: unreadable", next_step="docker exec sparkops-guard mv it")
        return cordon_of(member)

    monkeypatch.setattr(leases, "cordon_of", broken)
    with led(world) as client:
        assert sending.prepare(*client, world.release("2"), ON_N2) is not None
        with pytest.raises(PlanRefused, match=r"on n3: whether it is cordoned is unknown: cordon.json") as no:
            sending.prepare(*client, world.release("2"), DeployOptions(nodes=("n3",)))
    assert "docker exec sparkops-guard mv it" in no.value.next_step


def test_a_move_and_its_return_keep_the_release_that_a_rollback_goes_to(make: Make) -> None:
    world = make(2)
    moving(world)
    for machine in world.machines.values():
        machine.memory_gib = 200.0
    serve(world, world.release("2"), ON_N2)
    settle(world)

    drained(world)
    assert [item and item.release for item in (journal(world).active, journal(world).previous)] == [
        world.release("2").id,
        world.release("1").id,
    ]
    returned(world)
    assert [item and item.release for item in (journal(world).active, journal(world).previous)] == [
        world.release("2").id,
        world.release("1").id,
    ]


def test_a_release_of_another_version_is_refused_and_never_stopped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(2)
    moving(world)

    def other(_: object) -> None:
        raise ValueError("of another version")

    monkeypatch.setattr(deployment, "release_of", other)
    with pytest.raises(PlanRefused, match="was deployed by another version"):
        planned(world, DrainOptions(stop=True))


def test_a_return_waits_until_the_leader_knows_that_the_node_is_open(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    with led(world) as client:
        plan = drain.plan_return(*client, "n2", peer(world, "n2").cordon())
        (peer(world).directory / "late").write_text("3")
        drain.bring_back(*client, plan, follow(world, client))

    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_two_drains_one_after_the_other_bring_a_service_home_once(make: Make) -> None:
    world = make(3)
    moving(world)
    world.machines["n1"].memory_gib = 40.0
    drained(world)
    assert place(world) == ("n3",)
    world.machines["n1"].memory_gib = 200.0
    drained(world, node="n3")
    assert (place(world), peer(world, "n3").cordon().displaced) == (("n1",), {})

    returned(world)

    assert list(returned(world, "n3").steps) == []
    assert place(world) == ("n2",)
