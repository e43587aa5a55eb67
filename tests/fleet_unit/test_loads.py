"""One engine loads on a node at a time: until it has loaded, nobody knows what memory it leaves."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from sparkops.errors import Busy
from sparkops.fleet.guarded import Link
from sparkops.plan.journal import Mode, Phase, Swap, Verdict
from sparkops.plan.lock import LEASE_S
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.locks import ANN, BOB, hold, problem
from tests.fleet_unit.world import World
from tests.plan.places import GATEWAY, placed

LOADS = replace(ANN, loads=frozenset({"n2"}))
OTHER = replace(BOB, service="embed", loads=frozenset({"n2"}))


def left(world: World, phase: Phase, node: str = "n2", verdict: Verdict | None = None) -> None:
    """A swap of the service chat that nobody holds, as n2 knows it."""
    green = placed("new", "green", node)
    swap = Swap(
        deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=green, phase=phase, boot="boot-1", verdict=verdict
    )
    world.stores["n2"].change("chat", lambda j, _: j.model_copy(update={"swap": swap}))


def test_a_second_engine_waits_until_the_first_has_loaded(make: Make) -> None:
    world = make(2)
    with hold(world, LOADS):
        error = problem(world, OTHER)
        assert isinstance(error, Busy)
        assert str(error) == "n2: chat loads on n2 just now for ann@desk; its memory is not known yet"
        with hold(world, replace(OTHER, loads=frozenset({"n1"}))):
            pass  # on another node it is no matter
        with hold(world, replace(OTHER, loads=frozenset())):
            pass  # nor for who loads nothing
    with hold(world, OTHER):
        pass


def test_with_the_traffic_an_engine_has_loaded(make: Make) -> None:
    world = make(2)
    with hold(world, LOADS) as held:
        journal = held.journals["n1"]
        swap = Swap(deploy="d1", mode=Mode.ACROSS, gateway=GATEWAY, green=placed("new", "green", "n2"))
        for phase in (Phase.LOAD, Phase.BAKE):
            held.put(journal.model_copy(update={"swap": swap.model_copy(update={"phase": phase})}), 100.0)
            if phase is Phase.LOAD:
                assert isinstance(problem(world, OTHER), Busy)
        with hold(world, OTHER):
            pass


def test_an_engine_whose_deploy_is_gone_may_still_load(make: Make) -> None:
    world = make(2)
    for phase, loads in ((Phase.ARM, False), (Phase.LOAD, True), (Phase.VERIFY, True), (Phase.BAKE, False)):
        left(world, phase)
        if loads:
            assert "chat loads on n2 just now; its memory" in str(problem(world, OTHER))
        else:
            with hold(world, OTHER):
                pass
    left(world, Phase.LOAD, node="n1")
    with hold(world, OTHER):
        pass
    left(world, Phase.LOAD, verdict=Verdict.REVERT)
    with hold(world, OTHER):
        pass


def test_after_a_reboot_and_after_its_lease_nothing_loads_any_more(make: Make) -> None:
    world = make(2)
    left(world, Phase.LOAD)
    world.clocks["n2"].boot = "boot-2"
    with hold(world, OTHER):
        pass
    with world.order() as order, closing(Link(order.connected.members["n2"].node)) as link:
        link.ask("acquire", "third", owner="eve", deploy="d3", loads=True)
    assert "third loads" in str(problem(world, OTHER))
    world.pass_by(LEASE_S)
    with hold(world, OTHER):
        pass


def test_a_journal_that_cannot_be_read_stops_only_its_own_service(make: Make) -> None:
    world = make(2)
    left(world, Phase.LOAD)
    (world.stores["n2"].directory / "chat.json").write_text("{")
    with hold(world, OTHER):
        pass
