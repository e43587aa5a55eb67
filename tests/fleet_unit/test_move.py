"""A move of gateway and leader, killed after each of its effects: it continues, and one gateway is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from sparkops.command import Command
from sparkops.errors import Busy, Interrupted, PlanRefused, UsageError
from sparkops.gateway.commands import CONTAINER as GATEWAY
from sparkops.operator.deploy import drain, move
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.agents.move_plan import Move
from sparkops.operator.deploy.drain import DrainOptions
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.fleet.guards.leader import GuardConnection
from sparkops.swap.journal import Journal
from sparkops.swap.model import Mode
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.nodes import MachineNode
from tests.fleet_unit.test_intents import journal, led, peer, serve
from tests.fleet_unit.world import World
from tests.operator.deploy.states import deployed

CHANGES = ("resign", "take", "join", "peers")
"""Requests to guards that change something."""


def serving_on_n2(make: Make) -> World:
    world = make(2)
    peer(world).write(Journal("chat", "n1", ("n2",), term=1, revision=7, active=deployed(node="n2")))
    return world


@contextmanager
def moved_to(world: World, node: str) -> Iterator[Operation]:
    with world.order() as order:
        yield replace(order, connected=replace(order.connected, fleet=order.connected.fleet.moved(node)))


def move_to(world: World, node: str) -> Move:
    """What `sparkops gateway move` does, with no time for clients."""
    with moved_to(world, node) as operation:
        planned = move.read(operation)
        if not planned.ended:
            specs = agents.load(operation.connected.fleet, planned.rebuild.services)
            move.require_keys(operation, planned, specs)
            move.move(operation, planned, specs)
        return planned


def gateways(world: World) -> list[str]:
    return [name for name, machine in world.machines.items() if machine.runs(GATEWAY)]


def leaders(world: World) -> list[str]:
    """The guards that lead by their own word."""
    return [name for name in world.machines if peer(world, name)._copies()["leader"] == name]


@dataclass
class Killed:
    """Ends this process after so many effects, from the resignation of the old leader on; 0: before it."""

    world: World
    number: int
    count: int = 0

    def around(self, act: Callable[[], Any]) -> Any:
        """Do an effect, after which there is at most one leader, and a gateway."""
        if self.count == self.number == 0:
            raise KeyboardInterrupt
        self.count += 1
        result = act()
        assert len(leaders(self.world)) <= 1
        assert gateways(self.world)
        if self.count == self.number:
            raise KeyboardInterrupt
        return result


@contextmanager
def killed(world: World, number: int) -> Iterator[Killed]:
    at = Killed(world, number)
    run, request = MachineNode.run, GuardConnection.request

    def run_counted(self: MachineNode, command: Command, **more: Any) -> Any:
        act = partial(run, self, command, **more)
        return at.around(act) if at.count and command.changes and "show" not in command.argv else act()

    def request_counted(self: GuardConnection, op: str, **more: Any) -> Any:
        act = partial(request, self, op, **more)
        return at.around(act) if op in CHANGES else act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MachineNode, "run", run_counted)
        patch.setattr(GuardConnection, "request", request_counted)
        yield at


EFFECTS = 13
"""More than a move has."""


@pytest.mark.parametrize("number", range(EFFECTS))
def test_a_move_that_is_killed_after_any_effect_is_continued_and_ends_with_one_gateway(make: Make, number: int) -> None:
    world = serving_on_n2(make)
    before = journal(world)
    with killed(world, number) as at, suppress(Interrupted):
        move_to(world, "n2")

    move_to(world, "n2")
    again = move_to(world, "n2")

    kept = peer(world, "n2").journal("chat")
    assert kept is not None
    assert (again.ended, at.count < EFFECTS - 1) == (True, True)
    assert (leaders(world), gateways(world)) == (["n2"], ["n2"])
    assert (kept.leader, kept.term, kept.active) == ("n2", before.term + 1, before.active)


@pytest.mark.parametrize("op", ["resign", "take"])
def test_a_move_that_was_killed_may_go_back_instead(make: Make, monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Here after the old leader resigned, and after the new one took the lead."""
    world, request = serving_on_n2(make), GuardConnection.request

    def interrupted(self: GuardConnection, asked: str, **more: Any) -> Any:
        result = request(self, asked, **more)
        if asked == op:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(GuardConnection, "request", interrupted)
    with pytest.raises(Interrupted) as caught:
        move_to(world, "n2")
    monkeypatch.setattr(GuardConnection, "request", request)
    assert caught.value.next_step == "sparkops gateway move n2 continues"

    move_to(world, "n1")

    assert (leaders(world), gateways(world)) == (["n1"], ["n1"])


def test_nothing_moves_while_a_service_changes_or_fails(make: Make) -> None:
    world = serving_on_n2(make)
    still = journal(world)
    assert still.active
    busy = replace(
        still.begun("i9", Mode.ACROSS, replace(still.active, release="q-2"), automatic=True), active=still.active
    )
    peer(world).write(busy)
    with pytest.raises(Busy, match="a swap to q-2"):
        move_to(world, "n2")
    peer(world).write(replace(still, trouble="q does not answer", revision=busy.revision + 1))
    with pytest.raises(PlanRefused, match="a service does not serve: chat: q does not answer"):
        move_to(world, "n2")

    assert (leaders(world), gateways(world)) == (["n1"], ["n1"])


def test_a_key_that_the_new_gateway_would_not_get_is_lost_to_nobody(make: Make) -> None:
    world = serving_on_n2(make)
    gate = world.machines["n1"].gate
    assert gate is not None
    gate.keys = ["$5$unknown"]

    with pytest.raises(PlanRefused, match=r"one API key that gateway\.api_keys does not name"):
        move_to(world, "n2")
    assert (leaders(world), gateways(world)) == (["n1"], ["n1"])


def test_the_drain_of_the_gateways_node_names_the_move(make: Make) -> None:
    world = serving_on_n2(make)

    with led(world) as client, pytest.raises(PlanRefused) as refused:
        drain.plan_drain(*client, "n1", DrainOptions())

    first = refused.value.next_step.splitlines()[0]
    assert first == "Move the gateway first: sparkops gateway move n2"
    move_to(world, "n2")
    assert gateways(world) == ["n2"]


def test_engines_beside_the_gateway_move_before_it(make: Make) -> None:
    """A gateway elsewhere would not reach them: the move is refused, with the drain as its next step."""
    world = make(2)
    serve(world, world.release("1"))

    with led(world) as client, pytest.raises(PlanRefused) as refused:
        drain.plan_drain(*client, "n1", DrainOptions())

    assert refused.value.next_step.splitlines() == [
        "Move the engines, and nothing else: sparkops node drain n1 --allow-downtime",
        "Then move the gateway: sparkops gateway move n2",
    ]


def test_an_unknown_node_is_refused(make: Make) -> None:
    with pytest.raises(UsageError, match="unknown node 'n9'"):
        move_to(make(1), "n9")
