"""Intents of the verbs, made from reports of machines and of a scripted leader that decides with the real machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sparkops.config.node import LOOPBACK, NodeConfig
from sparkops.config.release import Release
from sparkops.errors import Busy, Interrupted, PlanRefused, UsageError
from sparkops.gateway.commands import CONTAINER as GATEWAY
from sparkops.names import Slot
from sparkops.operator.deploy import sending
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.fleet.guards import membership
from sparkops.operator.fleet.guards.ending import Ending
from sparkops.operator.fleet.guards.following import Accepted, Following
from sparkops.operator.fleet.guards.leader import Decision, Leader, leading
from sparkops.serving import engine_spec
from sparkops.swap.intents import Intent
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode, Phase
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.world import World
from tests.guard_peer import Peer

ON_N1 = DeployOptions(nodes=("n1",))
SMALL = {"claim_gib": 20.0}


@contextmanager
def led(world: World, wait_s: float = 0.0) -> Iterator[tuple[Operation, Leader]]:
    with world.order() as order, leading(order.connected.members["n1"]) as leader:
        yield replace(order, wait_s=wait_s), leader


def peer(world: World, node: str = "n1") -> Peer:
    return world.node(node).peer


def journal(world: World) -> Journal:
    kept = peer(world).journal("chat")
    assert kept is not None
    return kept


def finished(world: World, client: tuple[Operation, Leader], accepted: Accepted | None) -> Ending:
    assert accepted is not None
    return Following(client[1], "chat", world.receive).until_end(accepted)


def serve(world: World, release: Release, options: DeployOptions = ON_N1) -> Ending:
    """Deploy a release, let its engines run, and follow it to its end."""
    with led(world) as client:
        accepted = sending.deploy(*client, release, options)
        for rank in journal(world).swap.target.ranks:  # type: ignore[union-attr]
            machine = world.machines[rank.node]
            machine.do(engine_spec.of(rank).create(rank.node))
            machine.start(rank.container)
        ending = finished(world, client, accepted)
        while journal(world).swap:  # what is kept warm retires
            peer(world).advance("chat")
        return ending


def test_a_first_deploy_is_one_intent_and_is_followed_to_its_end(make: Make) -> None:
    world = make(1)
    release = world.release("1")

    ending = serve(world, release)

    assert (ending.result, ending.exit_code, ending.release, ending.mode) == ("done", 0, release.id, "first")
    assert set(ending.seconds) == {"prepare", "start", "wait until ready", "verify", "switch"}
    (sent,) = peer(world).requests("intend")
    assert (sent["intent"]["kind"], sent["intent"]["revision"], sent["intent"]["mode"]) == ("deploy", 0, "first")
    assert world.machines["n1"].ran == [str(line) for line in world.machines["n1"].ran if "create" in line]
    texts = [event.text for event in world.events]
    assert texts[0] == f"{release.id} on n1, mode first"
    assert [text for text in texts if text.startswith("started on n1, ")]
    assert "loading weights 40 %, about 3 min left" in texts
    assert {event.node for event in world.events if event.text == ""} == {"n1", "chat"}  # no live line stays


def test_the_same_deploy_again_sends_nothing(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1"))

    with led(world) as client:
        assert sending.deploy(*client, world.release("1"), ON_N1) is None
    assert len(peer(world).requests("intend")) == 1


ON_N2 = DeployOptions(nodes=("n2",))


def places(world: World) -> tuple[tuple[str, str], tuple[str, str]]:
    """Node and slot of the active release, and of the previous one."""
    active, previous = journal(world).active, journal(world).previous
    assert active
    assert previous
    first, second = ((next(item.heads).node, item.slot.value) for item in (active, previous))
    return first, second


def test_a_serving_release_moves_to_the_node_that_is_named(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"))

    ending = serve(world, world.release("1"), ON_N2)

    assert (ending.result, ending.release, ending.mode) == ("done", world.release("1").id, "across")
    assert places(world) == (("n2", "green"), ("n1", "blue"))
    with led(world) as client:
        assert sending.deploy(*client, world.release("1"), ON_N2) is None
        assert sending.deploy(*client, world.release("1"), DeployOptions()) is None
        assert sending.deploy(*client, world.release("1"), DeployOptions(nodes=("n1", "n2"))) is None


def test_the_plan_of_a_move_switches_the_traffic_before_the_old_engine_stops(make: Make) -> None:
    """Both slots of the gateway then have one release: they differ by their slot alone."""
    world = make(2)
    serve(world, world.release("1"))

    with led(world) as client:
        draft = sending.dry_run(*client, world.release("1"), ON_N2)

    release = world.release("1").id
    assert draft is not None
    assert draft.effects is not None
    effects = [(planned.node, str(planned.effect)) for planned in draft.effects.effects]
    steps = [
        ("n2", f"docker start {release}-green-r0"),
        ("n1", f"gateway point green {release}"),
        ("n1", f"gateway switch green {release}"),
        ("n1", f"docker stop {release}-blue-r0"),
    ]
    assert [effect for effect in effects if effect in steps] == steps


def test_a_serving_release_moves_to_the_nodes_of_its_recipe(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"))
    named = world.release("1", nodes=["n2"])

    ending = serve(world, named, DeployOptions())

    assert (ending.release, ending.mode) == (world.release("1").id, "across")
    assert places(world) == (("n2", "green"), ("n1", "blue"))


def test_a_rollback_of_a_move_returns_to_the_former_node(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1"))
    serve(world, world.release("1"), ON_N2)

    with led(world) as client:
        ending = finished(world, client, sending.rollback(*client, "chat", DeployOptions()))

    assert (ending.result, ending.mode) == ("done", "across")
    assert places(world) == (("n1", "blue"), ("n2", "green"))


def test_a_move_in_progress_is_followed_only_by_a_deploy_to_its_nodes(make: Make) -> None:
    world = make(3)
    serve(world, world.release("1"))
    with led(world) as client:
        moving = sending.deploy(*client, world.release("1"), ON_N2)
        joined = sending.deploy(*client, world.release("1"), ON_N2)
        with pytest.raises(Busy, match=r"a swap to .* is in phase 'prepare'"):
            sending.deploy(*client, world.release("1"), DeployOptions(nodes=("n3",)))

    assert moving
    assert joined
    assert moving.intent == joined.intent


def test_the_next_release_is_planned_on_the_revision_that_was_read(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    before = journal(world)

    ending = serve(world, world.release("2", **SMALL))

    assert (ending.release, ending.mode) == (world.release("2").id, "beside")
    sent = peer(world).requests("intend")[-1]["intent"]
    assert (sent["revision"], sent["target"]["slot"]) == (before.revision, "green")
    assert journal(world).previous == before.active


def test_a_dry_run_sends_nothing_and_lists_what_would_run(make: Make) -> None:
    world = make(1)

    with led(world) as client:
        draft = sending.dry_run(*client, world.release("1"), ON_N1)

    assert draft is not None
    assert draft.effects is not None
    assert [planned.phase for planned in draft.effects.effects][:3] == ["prepare", "start", "verify"]
    assert peer(world).requests("intend") == []
    assert world.machines["n1"].ran == []


def test_an_in_place_plan_names_the_starts_that_the_guard_of_the_node_remembers(make: Make) -> None:
    world, options = make(2), DeployOptions(nodes=("n2",), mode=Mode.IN_PLACE, allow_downtime=True)
    serve(world, world.release("1"), options)
    starts = [{"release": world.release("2").id, "kind": "", "stages": {"serving": took_s}} for took_s in (9, 70, 80)]

    with led(world) as client:
        before = sending.dry_run(*client, world.release("2"), options)
        (peer(world, "n2").directory / "chat.starts").write_text(json.dumps(starts))
        after = sending.dry_run(*client, world.release("2"), options)

    assert "the service is down while the new release starts, and again" in str(before and before.plan)
    assert "while the new release starts: about 1 min 10 s, from 3 past starts on n2, and again" in str(
        after and after.plan
    )


def test_starts_that_cannot_be_read_are_told_and_refuse_nothing(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1"))
    (peer(world).directory / "unknown").write_text("starts")

    with led(world) as client:
        draft = sending.dry_run(*client, world.release("2", **SMALL), ON_N1)

    assert draft is not None
    assert draft.plan.current.gap is None
    assert world.events[-1].text == "past starts not read: n1: the guard does not understand it"


@contextmanager
def without(world: World, lost: str, *, listed: bool = False) -> Iterator[tuple[Operation, Leader]]:
    """What a verb works with once a node cannot be reached, and unless it is `listed` has left the inventory."""
    with world.order(without=lost) as order, leading(order.connected.members["n1"]) as leader:
        if listed:
            yield order, leader
            return
        fleet = order.connected.fleet
        nodes = {name: node for name, node in fleet.nodes.items() if name != lost}
        connected = replace(order.connected, fleet=fleet.model_copy(update={"nodes": nodes}), unreachable={})
        yield replace(order, connected=connected), leader


def test_p14_a_node_that_has_left_the_inventory_is_no_traceback(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1", **SMALL), DeployOptions(nodes=("n2",)))
    with without(world, "n2") as client:
        draft = sending.dry_run(*client, world.release("2", **SMALL), ON_N1)
    serve(world, world.release("2", **SMALL), ON_N1)

    assert draft is not None
    assert draft.plan.mode is Mode.ACROSS
    with without(world, "n2") as client, pytest.raises(PlanRefused, match="n2 cannot be reached"):
        sending.rollback(*client, "chat", DeployOptions())


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not in the inventory"])
def test_after_the_loss_of_a_node_every_verb_works_without_it(make: Make, listed: bool) -> None:
    world, on_n3 = make(3), DeployOptions(nodes=("n3",), allow_downtime=True)
    serve(world, world.release("1", **SMALL), DeployOptions(nodes=("n2",)))
    serve(world, world.release("2", **SMALL), on_n3)

    with without(world, "n2", listed=listed) as client:
        repeated = sending.deploy(*client, world.release("2", **SMALL), on_n3)
        other = sending.dry_run(*client, world.release("3", **SMALL), on_n3)
        with pytest.raises(PlanRefused, match="n2 cannot be reached"):
            sending.rollback(*client, "chat", DeployOptions())
        back = sending.rollback(*client, "chat", on_n3)

    assert (repeated, other and other.plan.mode) == (None, Mode.BESIDE)
    swap = journal(world).swap
    assert swap is not None
    assert back is not None
    assert (swap.target.release, [rank.node for rank in swap.target.ranks]) == (world.release("1", **SMALL).id, ["n3"])


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not in the inventory"])
def test_an_unfinished_swap_to_a_node_that_is_lost_is_joined_or_cancelled(make: Make, listed: bool) -> None:
    world, on_n3 = make(3), DeployOptions(nodes=("n3",))
    serve(world, world.release("1", **SMALL))
    with led(world) as client:
        first = sending.deploy(*client, world.release("2", **SMALL), on_n3)
    peer(world).advance("chat")

    with without(world, "n3", listed=listed) as client:
        joined = sending.deploy(*client, world.release("2", **SMALL), on_n3)
        with pytest.raises(Busy, match=r"a swap to .* is in phase 'start'"):
            sending.deploy(*client, world.release("3", **SMALL), ON_N1)
        ending = finished(world, client, sending.rollback(*client, "chat", DeployOptions()))

    assert first is not None
    assert joined is not None
    assert joined.intent == first.intent
    assert (ending.result, ending.release) == ("cancelled", world.release("1", **SMALL).id)


def test_a_deploy_during_another_swap_is_busy_and_the_same_one_joins_it(make: Make) -> None:
    world = make(1)
    with led(world) as client:
        first = sending.deploy(*client, world.release("1"), ON_N1)
        assert first is not None

        joined = sending.deploy(*client, world.release("1"), ON_N1)
        with pytest.raises(Busy, match=r"a swap to .* is in phase 'prepare'") as caught:
            sending.deploy(*client, world.release("2"), ON_N1)

    assert joined is not None
    assert joined.intent == first.intent
    steps = ["sparkops status chat --follow", "sparkops rollback chat", "`--wait 10m` retries"]
    assert caught.value.next_step.splitlines() == steps
    assert len(peer(world).requests("intend")) == 1


def test_with_a_wait_the_deploy_is_planned_again_once_the_service_is_free(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    with led(world) as (_, leader):
        sending.hold(leader, "chat", "fair")
    held = journal(world).revision

    def free() -> None:
        with led(world) as (_, leader):
            sending.hold(leader, "chat", "")

    ending = threading.Thread(target=free)
    world.listeners["waiting: chat is on hold: fair"] = ending.start
    with led(world, wait_s=20.0) as client:
        accepted = sending.deploy(*client, world.release("2", **SMALL), ON_N1)
    ending.join()

    assert accepted is not None
    revisions = [
        sent["intent"]["revision"] for sent in peer(world).requests("intend") if sent["intent"]["kind"] == "deploy"
    ]
    assert revisions[1] == held
    assert revisions[-1] == held + 1
    assert "waiting: chat is on hold: fair" in [event.text for event in world.events]


def test_a_deploy_waits_for_an_engine_that_takes_long_to_stop(make: Make) -> None:
    world = make(1)
    for version in ("1", "2"):
        serve(world, world.release(version, **SMALL))
    (stopping,) = journal(world).stopped
    machine, waits = world.machines["n1"], f"n1: {stopping.container} is being stopped"
    machine.start(stopping.container)
    with led(world) as client, pytest.raises(Busy, match=waits):
        sending.deploy(*client, world.release("3", **SMALL), ON_N1)

    for send in (sending.dry_run, sending.deploy):
        machine.start(stopping.container)
        world.listeners[f"waiting: {waits}"] = lambda: machine.stop(stopping.container)
        with led(world, wait_s=20.0) as client:
            assert send(*client, world.release("3", **SMALL), ON_N1)


def test_a_release_that_is_not_to_be_promoted_waits_until_it_is(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    with led(world) as client:
        accepted = sending.deploy(*client, world.release("2", **SMALL), replace(ON_N1, promote=False))
        (peer(world).directory / "halt").write_text("bake")

        waiting = finished(world, client, accepted)
        (peer(world).directory / "halt").unlink()
        promoted = finished(world, client, sending.promote(client[1], "chat"))

    assert (waiting.result, promoted.result) == ("waiting", "done")


@dataclass
class Overtaken:
    """The way to the leader of an operator whom a colleague overtakes between the read and the intent."""

    leader: Leader
    meanwhile: list[Callable[[], object]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.leader, name)

    def intend(self, service: str, intent: Intent) -> Decision:
        while self.meanwhile:
            self.meanwhile.pop()()
        return self.leader.intend(service, intent)


def test_promote_after_a_colleague_has_cancelled_is_nothing_to_do(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    (peer(world).directory / "halt").write_text("bake")
    with led(world) as client:
        accepted = sending.deploy(*client, world.release("2", **SMALL), replace(ON_N1, promote=False))
        finished(world, client, accepted)
        overtaken: Any = Overtaken(client[1], [lambda: sending.cancel(client[1], "chat")])

        assert sending.promote(overtaken, "chat") is None

    assert [sent["intent"]["kind"] for sent in peer(world).requests("intend")][-3:] == ["cancel", "promote", "promote"]


def test_cancel_returns_from_an_unfinished_swap(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    with led(world) as client:
        sending.deploy(*client, world.release("2", **SMALL), ON_N1)

        ending = finished(world, client, sending.cancel(client[1], "chat"))

        assert sending.cancel(client[1], "chat") is None
    assert (ending.result, ending.release) == ("cancelled", world.release("1").id)


def test_rollback_switches_back_to_a_release_that_is_still_warm(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    old = journal(world).active
    with led(world) as client:
        finished(world, client, sending.deploy(*client, world.release("2", **SMALL), ON_N1))
        swap = journal(world).swap
        assert swap is not None
        assert swap.phase is Phase.RETIRE

        ending = finished(world, client, sending.rollback(*client, "chat", DeployOptions()))

    assert (ending.result, ending.release, ending.mode) == ("done", world.release("1").id, "beside")
    swap = journal(world).swap
    assert swap is not None
    assert (swap.target, swap.mode) == (old, Mode.BESIDE)


def test_a_deploy_of_a_warm_release_takes_it_as_it_runs(make: Make) -> None:
    """Planned now, its container would get another number of compilers: a second one of its name."""
    world = make(1)
    serve(world, world.release("1", **SMALL))
    old = journal(world).active
    with led(world) as client:
        finished(world, client, sending.deploy(*client, world.release("2", **SMALL), ON_N1))
        world.machines["n1"].memory_gib *= 1.5

        ending = finished(world, client, sending.deploy(*client, world.release("1", **SMALL), ON_N1))

    assert (ending.result, ending.release) == ("done", world.release("1").id)
    swap = journal(world).swap
    assert swap is not None
    assert swap.target == old


def test_a_rollback_that_has_waited_is_planned_on_the_journal_of_its_turn(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1", **SMALL))
    with led(world) as client:
        finished(world, client, sending.deploy(*client, world.release("2", **SMALL), ON_N1))
        sending.hold(client[1], "chat", "fair")
    warm, revisions = journal(world), list[int]()

    def retire() -> None:
        world.machines["n1"].stop(f"{world.release('1', **SMALL).id}-blue-r0")
        peer(world).advance("chat")
        peer(world).write(journal(world).confirmed_stopped(journal(world).stopped).changed(hold=""))
        revisions.append(journal(world).revision)

    world.listeners["waiting: chat is on hold: fair"] = retire
    with led(world, wait_s=20.0) as client:
        accepted = sending.rollback(*client, "chat", ON_N1)

    assert accepted is not None
    sent = [request["intent"]["revision"] for request in peer(world).requests("intend")]
    assert sent[-2:] == [warm.revision, *revisions]
    swap = journal(world).swap
    assert swap is not None
    assert (swap.target.release, swap.phase) == (world.release("1", **SMALL).id, Phase.PREPARE)


def test_rollback_deploys_the_previous_release_where_it_ran(make: Make) -> None:
    world = make(2)
    serve(world, world.release("1", **SMALL), DeployOptions(nodes=("n2",)))
    serve(world, world.release("2", **SMALL), DeployOptions(nodes=("n1",)))

    with led(world) as client:
        sending.rollback(*client, "chat", DeployOptions())

    swap = journal(world).swap
    assert swap is not None
    assert (swap.target.release, swap.target.slot, swap.mode) == (world.release("1").id, Slot.BLUE, Mode.ACROSS)
    assert [rank.node for rank in swap.target.ranks] == ["n2"]


def test_rollback_without_a_previous_release_is_nothing_to_do(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1"))

    with led(world) as client:
        assert sending.rollback(*client, "chat", DeployOptions()) is None


def test_a_stopped_service_restarts_with_what_it_served_and_rolls_back_to_the_one_before(make: Make) -> None:
    world = make(1)
    first, second = (world.release(version, **SMALL) for version in ("1", "2"))
    for release in (first, second):
        serve(world, release)
        settled(world)
    with led(world) as client:
        finished(world, client, sending.stop(client[1], "chat"))
        for container in list(world.machines["n1"].up):
            world.machines["n1"].stop(container)
        sending.restart(*client, "chat", DeployOptions())

    restarted = journal(world)
    assert restarted.swap
    assert (restarted.swap.target.release, restarted.swap.mode) == (second.id, Mode.FIRST)
    assert peer(world).requests("intend")[-1]["intent"]["verb"] == "restart"
    while journal(world).swap:
        peer(world).advance("chat")
    with led(world) as client:
        sending.rollback(*client, "chat", DeployOptions())
    back = journal(world).swap
    assert back
    assert (back.target.release, peer(world).requests("intend")[-1]["intent"]["verb"]) == (first.id, "rollback")
    assert "@" in peer(world).requests("intend")[-1]["intent"]["by"]


def test_a_service_that_serves_restarts_by_a_swap_to_the_same_release(make: Make) -> None:
    world = make(1)
    release = world.release("1", **SMALL)
    serve(world, release)
    with led(world) as client:
        sending.restart(*client, "chat", DeployOptions())

    swap = journal(world).swap
    assert swap
    assert (swap.target.release, swap.mode, swap.target.slot) == (release.id, Mode.BESIDE, Slot.GREEN)
    assert swap.restarts is False


def settled(world: World) -> None:
    """Let stopped containers end, and their guard confirm it."""
    for rank in journal(world).stopped:
        world.machines[rank.node].stop(rank.container)
    peer(world).write(journal(world).confirmed_stopped(journal(world).stopped))


def test_stop_is_followed_until_nothing_runs(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1"))

    with led(world) as client:
        ending = finished(world, client, sending.stop(client[1], "chat"))
        assert sending.stop(client[1], "chat") is None

    assert (ending.result, ending.exit_code) == ("stopped", 0)
    assert journal(world).stopped == ()


def test_a_second_stop_joins_the_one_whose_engines_have_not_ended(make: Make) -> None:
    world = make(1)
    serve(world, world.release("1"))
    (peer(world).directory / "halt").write_text("stop")
    with led(world) as client:
        sending.stop(client[1], "chat")
        joined_draining = sending.stop(client[1], "chat")
        peer(world).advance("chat")
        joined_ending = sending.stop(client[1], "chat")
        followed = sending.in_progress(client[1], "chat", world.receive)
        (peer(world).directory / "halt").unlink()
        ending = finished(world, client, joined_ending)

    assert [accepted and accepted.intent for accepted in (joined_draining, joined_ending, followed)] == ["", "", ""]
    assert ending.result == "stopped"
    assert [sent["intent"]["kind"] for sent in peer(world).requests("intend")] == ["deploy", "stop"]


def test_each_rank_of_a_ray_pair_gets_one_token_before_the_intent(make: Make) -> None:
    world = make(2)
    pair = world.release("1", pair=True, serve={"executor": "ray"})
    with led(world) as client:
        sending.deploy(*client, pair, DeployOptions(nodes=("n1", "n2")))

    (first,), (second,) = (peer(world, node).requests("secret") for node in ("n1", "n2"))
    assert first == second
    digest = engine_spec.token_digest(first["value"].encode())
    assert first["name"] == f"ray-{pair.id}-blue-{digest[:16]}"
    assert len(bytes.fromhex(first["value"])) == 32
    (sent,) = peer(world).requests("intend")
    assert first["value"] not in str(sent)


def test_a_ray_pair_that_is_deployed_again_keeps_no_rank_with_an_earlier_token(make: Make) -> None:
    """One rank's container may be gone: a guard keeps the other one only if it was created from the same spec."""
    world, targets = make(2), []
    pair = world.release("1", pair=True, serve={"executor": "ray"})
    for _ in range(2):
        with led(world) as client:
            sending.deploy(*client, pair, DeployOptions(nodes=("n1", "n2")))
            targets += [swap.target for swap in (journal(world).swap,) if swap]
            sending.cancel(client[1], "chat")

    for node, before, after in zip(("n1", "n2"), *(target.ranks for target in targets), strict=True):
        requests = peer(world, node).requests("secret")
        first, second = (request["value"] for request in requests)
        assert first != second
        assert len({request["name"] for request in requests}) == 2, "a refused intent must not replace a token in use"
        assert engine_spec.digest(before) != engine_spec.digest(after)
        assert engine_spec.of(after).token == engine_spec.token_digest(second.encode())


def test_a_gateway_on_the_operator_s_own_machine_is_known_to_other_nodes_by_the_addresses_that_it_has(
    make: Make,
) -> None:
    world = make(2)
    with world.order() as order:
        fleet = order.connected.fleet
        nodes = {**fleet.nodes, "n1": NodeConfig(transport="local", gpu="none")}
        local = fleet.model_copy(update={"nodes": nodes})
        membership.introduce(replace(order.connected, fleet=local), "n1")

    (joined,) = peer(world, "n2").requests("join")
    (peers,) = peer(world).requests("peers")
    assert local.node("n1").address == LOOPBACK
    assert joined["gateway"] == [world.machines["n1"].address]
    assert peers["peers"] == {"n2": {"address": world.machines["n2"].address, "port": 10844}}


def test_guards_get_their_keys_and_the_leader_the_addresses_of_all(make: Make) -> None:
    world = make(3)
    with world.order(without="n3") as order:
        membership.introduce(order.connected, "n1")

    gateway = [world.machines["n1"].address]
    settings = {"paths": ["/srv/models"], "monitoring": None, "webhook": None}
    joined = {"op": "join", "leader": "n1", "key": "key of n2", "term": 0, "gateway": gateway, **settings}
    assert peer(world, "n2").requests("join") == [joined]
    (peers,) = peer(world).requests("peers")
    address = {name: {"address": world.machines[name].address, "port": 10844} for name in ("n2", "n3")}
    assert (peers["peers"], peers["unread"]) == (address, ["n3"])
    assert peer(world, "n3").requests("join") == []


def test_a_guard_that_leads_in_the_same_term_keeps_another_one_from_leading(make: Make) -> None:
    """The inventory names n1; n2 leads, as before the inventory was changed by hand."""
    world = make(2)
    peer(world, "n2").write(Journal("chat", "n2", ("n1",), term=2, revision=5))
    with world.order() as order:
        with pytest.raises(PlanRefused, match=r"n2 leads chat: gateway\.node is n1, expected n2") as refused:
            membership.require_leader(order.connected, "n1")
        assert "sparkops gateway rebuild n1" in refused.value.next_step

        peer(world).write(Journal("chat", "n1", ("n2",), term=3, revision=6))
        membership.require_leader(order.connected, "n1")


def test_a_fleet_without_a_gateway_is_told_what_to_add(make: Make) -> None:
    world = make(1)
    with world.order() as order:
        bare = replace(order.connected, fleet=order.connected.fleet.model_copy(update={"gateway": None}))

        with pytest.raises(UsageError, match="gateway: not found"):
            _ = Operation(bare, order.report).node
    assert GATEWAY in world.machines["n1"].containers


def test_ctrl_c_ends_only_the_following(make: Make) -> None:
    world = make(1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with led(world) as client:
        accepted = sending.deploy(*client, world.release("1"), ON_N1)
        world.listeners[f"{world.release('1').id} on n1, mode first"] = interrupt
        with pytest.raises(Interrupted, match="the fleet continues") as caught:
            finished(world, client, accepted)

        assert caught.value.exit_code == 130
        assert caught.value.next_step == "sparkops status chat --follow\nsparkops rollback chat"
        followed = sending.in_progress(client[1], "chat", world.receive)
        assert finished(world, client, followed).result == "done"


def test_a_guard_that_restarts_is_waited_for(make: Make) -> None:
    world = make(1)
    with led(world) as client:
        accepted = sending.deploy(*client, world.release("1"), ON_N1)
        for stream in world.machines["n1"].streams:
            stream.close()

        assert finished(world, client, accepted).result == "done"
