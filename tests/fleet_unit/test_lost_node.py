"""The recovery of a lost node as operations.md has it, from the operator's command to the gateway's map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sparkops.guard.disk.state import State
from sparkops.guard.lead.completion import ReleaseHealth
from sparkops.guard.lead.gateway_front import GatewayContainer, GatewayFront
from sparkops.guard.lead.lead import Lead
from sparkops.names import backend
from sparkops.operator.deploy import sending
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.serving import engine_spec
from sparkops.swap.effects import PointSlot, SwitchTraffic
from sparkops.swap.fleet_state import EngineReport, EngineState, Report
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Mode
from sparkops.swap.orders import Want, order
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.test_intents import SMALL, journal, peer, serve, without
from tests.fleet_unit.world import World
from tests.guard.test_bounds import Clock

BOOT = "boot"


@dataclass
class Container(GatewayContainer):
    """A gateway that starts no program that stays."""

    def printed(self) -> str:
        return ""


@dataclass
class Front(GatewayFront):
    """The real view of the gateway, whose probes are answered by the machine at the address of a slot."""

    world: World = field(kw_only=True)

    def _test(self, health: ReleaseHealth, deployment: Deployment, *, swapping: bool) -> None:
        _ = swapping
        facts = self.gateway.facts
        assert facts
        servers = facts.services[self.service].slots[deployment.slot].servers
        health.answer = Answer.YES if all(map(self.world.answered, servers)) else Answer.NO


def front(world: World) -> Front:
    node: Any = world.node("n1")
    return Front("chat", Container(node), world=world)


def obey(world: World, led: Journal, node: str) -> Report:
    """Do what a guard is ordered, at once, and report it."""
    machine, ordered = world.machines[node], order(led, node, BOOT)
    engines = []
    for wanted in ordered.ranks:
        rank = wanted.rank
        if wanted.want in (Want.CREATED, Want.RUNNING) and rank.container not in machine.containers:
            machine.do(engine_spec.of(rank).create(node))
        if wanted.want is Want.RUNNING and rank.container not in machine.up:
            machine.start(rank.container)
        if wanted.want is Want.STOPPED and rank.container in machine.up:
            machine.stop(rank.container)
        state = EngineState.HEALTHY if rank.container in machine.up else EngineState.STOPPED
        proven = Answer.YES if wanted.prove else Answer.UNKNOWN
        engines.append(EngineReport(rank.container, state, wanted.key, proven, wanted.key if wanted.prove else ""))
    armed = ordered.armed.rank if ordered.armed else None
    at = led.revision
    return Report(node, BOOT, led.term, at, at, tuple(engines), armed.container if armed else "")


def test_the_same_release_serves_from_another_node_after_the_loss_of_its_own(make: Make, tmp_path: Path) -> None:
    world = make(3)
    release, gate = world.release("1", **SMALL), world.machines["n1"].gate
    assert gate
    serve(world, release, DeployOptions(nodes=("n2",)))
    before = journal(world).active
    assert before
    view = front(world)
    view.execute(PointSlot(before))
    view.execute(SwitchTraffic(before))
    assert gate.map == backend("chat", before.slot)
    for name in list(world.machines["n2"].up):
        world.machines["n2"].crash(name)
    (peer(world).directory / "down").touch()  # nothing answers through the gateway

    with without(world, "n2", listed=True) as client:
        assert sending.deploy(*client, release, DeployOptions(nodes=("n3",), without=frozenset({"n2"})))
    accepted, clock = journal(world), Clock()

    def reports() -> Mapping[str, Report]:
        return {node: obey(world, led.journal, node) for node in ("n1", "n3")}

    led = Lead(accepted, State(tmp_path / "state"), view, reports, lambda: frozenset({"n3"}), print, clock=clock)
    for _ in range(100):
        clock.now_s += led.turn()
    view.close()

    target, active = accepted.swap and accepted.swap.target, led.journal.active
    assert target
    assert accepted.swap
    assert (accepted.swap.mode, target.release, target.slot) == (Mode.FIRST, release.id, before.slot.other)
    assert [rank.node for rank in target.ranks] == ["n3"]
    assert (active, led.journal.swap, led.trouble()) == (target, None, "")
    assert gate.switches[-1] == gate.map == backend("chat", target.slot)
    _, servers = gate.active or ("", ())
    assert [world.answered(server) for server in servers] == [True]
    assert list(world.machines["n3"].up) == [rank.container for rank in target.ranks]
