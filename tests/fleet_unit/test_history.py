"""What guards record of reverted swaps: why, and where the evidence is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.errors import SparkopsError
from sparkops.fleet import blue_green, past
from sparkops.fleet.keep import Keep
from sparkops.fleet.progress import silent
from sparkops.plan.history import Record
from sparkops.plan.journal import Mode
from sparkops.plan.option import Wish
from tests.fleet_unit.conftest import Make
from tests.fleet_unit.machine import GARBAGE
from tests.fleet_unit.verbs import deploy, id_of
from tests.fleet_unit.world import World


def history(world: World) -> list[Record]:
    with world.order() as order:
        return past.events(order.connected, "n1", "chat", world.told)


def test_a_reverted_swap_is_recorded_with_phase_reason_and_evidence(make: Make) -> None:
    world = make(2)
    deploy(world, "1")
    release = world.release("2")
    world.machines["n2"].moods[release.id] = GARBAGE
    here = world.home / "here"

    keep = Keep(lambda _: here, there=True, shown=lambda path: f"desk: {path}")
    wish = Wish(nodes=("n2",), mode=Mode.ACROSS)
    with pytest.raises(SparkopsError) as caught, world.order() as order:
        blue_green.deploy(replace(order, keep=keep), release, wish)

    [_, event] = history(world)
    [there] = (world.stores["n2"].directory / "failures" / "chat").iterdir()
    assert event["evidence"] == [f"desk: {here}", f"n2: docker cp sparkops-guard:{there} ."]
    assert (event["event"], event["release"], event["phase"]) == ("reverted", id_of(world, "2"), "verify")
    assert str(caught.value).startswith(event["why"])


def test_another_guard_that_cannot_be_read_is_reported(make: Make) -> None:
    world = make(2)
    deploy(world, "1")
    world.stores["n2"].directory.mkdir(exist_ok=True)
    (world.stores["n2"].directory / "chat.history").mkdir()

    events = history(world)

    assert [event["event"] for event in events] == ["deployed"]
    [told] = [event for event in world.events if event.text.startswith("history not read: ")]
    assert told.node == "n2"


def test_without_the_gateway_s_guard_the_error_is_its_own(make: Make) -> None:
    world = make(1)
    world.stores["n1"].directory.mkdir(exist_ok=True)
    (world.stores["n1"].directory / "chat.history").mkdir()

    with pytest.raises(SparkopsError, match="n1: the guard could not do it"), world.order() as order:
        past.events(order.connected, "n1", "chat", silent)
