"""A drain moves or stops what serves on a node, is continued by the next one, and a return brings all of it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sparkops.deploy import sending
from sparkops.deploy.operation import Operation
from sparkops.deploy.plan import DeployOptions, nodes_of
from sparkops.errors import Busy, Interrupted, NeedsOperator, PlanRefused
from sparkops.guard_client import engine_spec, leases
from sparkops.guard_client.cordon import Cordon
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import Leader, leading
from sparkops.maintenance import drain, returning
from sparkops.maintenance.drain import DrainOptions
from sparkops.maintenance.plan import Action, NodePlan
from sparkops.maintenance.returning import ReturnOptions
from sparkops.nodes.member import Member
from sparkops.smoke import decode_speed
from sparkops.swap.journal import Journal
from tests.fleet_unit.conftest import Make
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


def drained(world: World, options: DrainOptions | None = None, node: str = "n2") -> NodePlan:
    chosen = options or DrainOptions()
    with led(world) as client:
        planned = drain.plan_drain(*client, node, chosen)
        drain.run(*client, planned, WHY, chosen, follow(world, client))
        return planned


def returned(world: World, node: str = "n2", options: ReturnOptions | None = None) -> NodePlan:
    chosen = options or ReturnOptions()
    with led(world) as client:
        planned = returning.plan_return(*client, node, drain.read_cordon(client[0], node), chosen)
        returning.run(*client, planned, follow(world, client), chosen)
        return planned


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
    assert (cordon.reason, cordon.displaced["chat"].stopped) == (WHY, False)
    assert nodes_of(cordon.displaced["chat"].deployment) == ("n2",)

    back = returned(world)

    assert [(step.service, step.action) for step in back.steps] == [("chat", Action.MOVE)]
    assert place(world) == ("n2",)
    assert peer(world, "n2").cordon() == Cordon()
    assert [step.action for step in returned(world).steps] == [], "the second return has nothing to do"


def test_a_plan_prints_what_runs_and_changes_nothing(make: Make) -> None:
    world = make(2)
    moving(world)
    before = journal(world)

    with led(world) as client:
        plan = drain.plan_drain(*client, "n2", DrainOptions())

    release = world.release("1").id
    lines = [line.strip() for line in str(plan).splitlines()]
    assert lines[:3] == ["n2: drain", "chat: move to n1", f"service chat, release {release}, mode across"]
    assert f"n1: docker start {release}-green-r0" in lines
    assert (journal(world), peer(world, "n2").requests("set_cordon")) == (before, [])


def test_a_node_without_room_elsewhere_is_not_drained_and_the_arithmetic_says_why(make: Make) -> None:
    world = make(2)
    moving(world)
    world.machines["n1"].memory_gib = 40.0
    before = journal(world)

    with (
        led(world) as client,
        pytest.raises(PlanRefused, match=r"40.0 GiB available - 60 claimed: 20.0 GiB short") as no,
    ):
        drain.run(*client, drain.plan_drain(*client, "n2", DrainOptions()), WHY, DrainOptions(), follow(world, client))

    assert "sparkops node drain n2 --stop" in no.value.next_step
    assert (journal(world), peer(world, "n2").cordon()) == (before, Cordon())


def test_what_fits_nowhere_else_is_stopped_only_on_request_and_starts_again_on_return(make: Make) -> None:
    world = make(2)
    moving(world)
    world.machines["n1"].memory_gib = 40.0

    plan = drained(world, DrainOptions(stop=True))

    assert [step.action for step in plan.steps] == [Action.STOP]
    assert (place(world), peer(world, "n2").cordon().displaced["chat"].stopped) == ((), True)
    assert [step.action for step in returned(world).steps] == [Action.START]
    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_a_drain_whose_client_died_is_continued_by_the_next_one(make: Make) -> None:
    """Here between the intent and its end. The swap is followed, and the node knows what to bring back."""
    world = make(2)
    moving(world)

    def die(service: str, accepted: Accepted) -> None:
        raise KeyboardInterrupt(service, accepted)

    with led(world) as client, pytest.raises(KeyboardInterrupt):
        drain.run(*client, drain.plan_drain(*client, "n2", DrainOptions()), WHY, DrainOptions(), die)
    plan = drained(world)

    assert [step.action for step in plan.steps] == [Action.FOLLOW]
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

    with led(world) as client, pytest.raises(PlanRefused, match=r"clients reach 0 of 1 service \(chat\)") as no:
        drain.plan_drain(*client, "n1", DrainOptions())
    assert "--allow-downtime" in no.value.next_step

    plan = drained(world, DrainOptions(allow_downtime=True), "n1")
    assert plan.notes == [
        "n1 has the gateway: while it is down, clients reach 0 of 1 service (chat), and nothing can be changed"
    ]
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


def test_a_service_that_fails_on_the_returned_node_keeps_serving_and_closes_it_again(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    def fail(service: str, accepted: Accepted) -> None:
        raise PlanRefused(f"{service}: reverted: 30 tok/s, expected 50 ({accepted.intent})")

    with led(world) as client:
        planned = returning.plan_return(*client, "n2", drain.read_cordon(client[0], "n2"), ReturnOptions())
        with pytest.raises(PlanRefused, match="30 tok/s"):
            returning.run(*client, planned, fail, ReturnOptions())

    cordon = peer(world, "n2").cordon()
    assert cordon.reason.startswith(f"{WHY}; chat did not return: chat: reverted: 30 tok/s")
    assert "chat" in cordon.displaced


def test_a_change_in_progress_and_a_hold_keep_a_node_from_being_drained(make: Make) -> None:
    world = make(2)
    moving(world)
    held = journal(world)
    peer(world).write(Journal(**{**{name: getattr(held, name) for name in held.__dataclass_fields__}, "hold": "fair"}))

    with led(world) as client:
        plan = drain.plan_drain(*client, "n2", DrainOptions(stop=True))
        assert plan.busy
        with pytest.raises(Busy, match="chat is on hold: fair"):
            plan.require()


def test_a_replica_on_two_nodes_moves_to_another_pair_and_is_refused_without_one(make: Make) -> None:
    world = make(3)
    serve(world, world.release("1", pair=True, claim_gib=20.0), DeployOptions(nodes=("n2", "n3")))
    settle(world)

    drained(world, node="n3")

    assert set(place(world)) == {"n1", "n2"}
    with led(world) as client:
        plan = drain.plan_drain(*client, "n2", DrainOptions())
    assert "across on n1" not in str(plan)
    assert "n3: cordoned: new driver" in str(plan.refused["chat"])
    returned(world, "n3")
    assert place(world) == ("n2", "n3")


def test_a_return_that_is_no_longer_followed_leaves_the_node_open_for_the_next_one(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    def leave(service: str, accepted: Accepted) -> None:
        raise Interrupted(f"{service} {accepted.intent}")

    with led(world) as client:
        planned = returning.plan_return(*client, "n2", drain.read_cordon(client[0], "n2"), ReturnOptions())
        with pytest.raises(Interrupted):
            returning.run(*client, planned, leave, ReturnOptions())
    assert peer(world, "n2").cordon().reason == ""

    assert [step.action for step in returned(world).steps] == [Action.FOLLOW]
    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_a_service_that_cannot_return_keeps_the_node_closed_only_until_it_is_left(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    world.machines["n2"].memory_gib = 40.0

    with led(world) as client:
        refused = returning.plan_return(*client, "n2", drain.read_cordon(client[0], "n2"), ReturnOptions())
    with pytest.raises(PlanRefused, match=r"20.0 GiB short") as no:
        refused.require()
    assert "sparkops node return n2 --leave chat" in no.value.next_step

    plan = returned(world, options=ReturnOptions(leave=("chat", "other")))

    assert [(step.action, step.note) for step in plan.steps] == [(Action.LEAVE, "it stays on n1: --leave")]
    assert plan.notes == ["other was not taken from n2"]
    assert (place(world), peer(world, "n2").cordon()) == (("n1",), Cordon())


def test_a_return_names_the_end_of_a_hold_and_leaves_a_held_service(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    peer(world).write(replace(journal(world), hold="fair"))

    with led(world) as client:
        refused = returning.plan_return(*client, "n2", drain.read_cordon(client[0], "n2"), ReturnOptions())
    with pytest.raises(Busy, match="chat is on hold: fair") as no:
        refused.require()
    assert no.value.next_step.splitlines()[0] == "sparkops unhold chat"
    assert "--leave chat" in no.value.next_step

    returned(world, options=ReturnOptions(leave=("chat",)))
    assert peer(world, "n2").cordon() == Cordon()


def test_a_service_that_is_slower_than_before_names_both_ways_to_open_its_node(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)
    slow = decode_speed.slower(30.0, [50.0])

    def fail(service: str, accepted: Accepted) -> None:
        raise PlanRefused(f"{service}: reverted: n2: {slow} ({accepted.intent})")

    with led(world) as client:
        planned = returning.plan_return(*client, "n2", drain.read_cordon(client[0], "n2"), ReturnOptions())
        with pytest.raises(PlanRefused) as no:
            returning.run(*client, planned, fail, ReturnOptions())
    assert "sparkops node return n2 --leave chat" in no.value.next_step
    assert "sparkops node return n2 --force" in no.value.next_step

    forced = returned(world, options=ReturnOptions(force=True))
    assert slow in forced.notes[0]
    told = [sent["to"]["displaced"]["chat"] for sent in peer(world, "n2").requests("set_cordon")[-2:-1]]
    assert [displaced["any_speed"] for displaced in told] == [True]
    assert place(world) == ("n2",)


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


def test_what_another_node_could_run_is_not_stopped(make: Make) -> None:
    world = make(2)
    moving(world)
    world.machines["n1"].built = False

    with led(world) as client:
        plan = drain.plan_drain(*client, "n2", DrainOptions(stop=True))
        with pytest.raises(PlanRefused, match="image not found") as no:
            plan.require()
    assert "sparkops build" in no.value.next_step
    assert "--stop" not in no.value.next_step, "it was given"
    assert list(plan.steps) == []


def test_nothing_is_stopped_while_a_node_that_may_have_room_cannot_be_reached(make: Make) -> None:
    world = make(3)
    moving(world)
    world.machines["n1"].memory_gib = 40.0

    with world.order(without="n3") as operation, leading(operation.connected.members["n1"]) as leader:
        plan = drain.plan_drain(operation, leader, "n2", DrainOptions(stop=True))
        with pytest.raises(PlanRefused, match="n3 cannot be reached, and may have room") as no:
            plan.require()
        named = drain.plan_drain(operation, leader, "n2", DrainOptions(stop=True, to=("n1",)))

    assert "sparkops node drain n2 --stop --to n1" in no.value.next_step
    assert [step.action for step in named.steps] == [Action.STOP]


def test_a_release_of_another_version_is_refused_and_never_stopped(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world = make(2)
    moving(world)

    def other(_: object) -> None:
        raise ValueError("of another version")

    monkeypatch.setattr(drain, "release_of", other)
    with led(world) as client:
        plan = drain.plan_drain(*client, "n2", DrainOptions(stop=True))

    assert "was deployed by another version" in str(plan.refused["chat"])
    assert list(plan.steps) == []


def test_a_return_waits_until_the_leader_knows_that_the_node_is_open(make: Make) -> None:
    world = make(2)
    moving(world)
    drained(world)

    with led(world) as client:
        planned = returning.plan_return(*client, "n2", drain.read_cordon(client[0], "n2"), ReturnOptions())
        (peer(world).directory / "late").write_text("3")
        returning.run(*client, planned, follow(world, client), ReturnOptions())

    assert (place(world), peer(world, "n2").cordon()) == (("n2",), Cordon())


def test_two_drains_one_after_the_other_bring_a_service_home_once(make: Make) -> None:
    world = make(3)
    moving(world)
    world.machines["n1"].memory_gib = 40.0
    drained(world)
    assert place(world) == ("n3",)
    world.machines["n1"].memory_gib = 200.0
    drained(world, node="n3")
    assert place(world) == ("n1",)

    returned(world)

    assert peer(world, "n3").cordon().displaced == {}
    assert list(returned(world, "n3").steps) == []
    assert place(world) == ("n2",)
