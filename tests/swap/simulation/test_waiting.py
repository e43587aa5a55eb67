"""Requests of a service wait from the stop of one release to the first answer of the next, whichever that is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import SwitchTraffic
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Limits, Phase
from sparkops.swap.orders import DRAIN_S, STOP_S, hold
from tests.swap.simulation.scenarios import gateway_view
from tests.swap.simulation.story import Story
from tests.swap.simulation.world import LONG


def starts(story: Story) -> list[str]:
    """What requests wait for, until the end; "503" where they are refused."""
    known: list[str] = []
    while story.step():
        gateway = story.world.gateway
        now = gateway.held or gateway.traffic or "503"
        known += [now] if known[-1:] != [now] else []
    return known


@pytest.mark.parametrize("mode", ["in-place", "in-place at the gateway", "pair in-place"])
def test_requests_wait_from_one_release_to_the_next(mode: str) -> None:
    assert starts(Story.of(mode)) == ["a", "1.2", "1.2+", "b"]


def test_requests_wait_for_the_old_release_where_the_new_one_fails() -> None:
    assert starts(Story.of("in-place", turns="stopped")) == ["a", "1.2", "1.2+", "1.3", "1.3+", "a"]


def test_a_stop_lets_nobody_wait() -> None:
    story = Story.of("in-place").until(Phase.LOAD).operator("stop")

    assert starts(story)[-1] == "503"
    assert story.world.gateway.held == ""


def test_a_service_that_needs_an_operator_lets_nobody_wait() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    journal = story.journal.changed(trouble="neither release starts")

    assert step(journal, story.world.fleet(story.world.leader)) == SwitchTraffic(None)


def test_the_wait_is_predicted_by_either_release_and_nobody_waits_for_an_unknown_time() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    journal, swap = story.journal, story.journal.swap
    assert swap
    assert swap.source

    own = replace(swap, target=replace(swap.target, limits=Limits(start_s=7.0)))
    by_target = hold(replace(journal, swap=own))
    assert by_target
    assert by_target.left_s == 7.0

    known = replace(swap, target=replace(swap.target, limits=Limits(start_s=0.0)))
    by_source = hold(replace(journal, swap=known))
    assert by_source
    assert by_source.left_s == swap.source.limits.start_s

    unknown = replace(known, source=replace(swap.source, limits=Limits(start_s=0.0)))
    assert hold(replace(journal, swap=unknown)) is None


def test_a_first_release_has_nobody_waiting() -> None:
    assert starts(Story.of("first")) == ["503", "b"]
    assert starts(Story.of("across")) == ["a", "b"]


def test_a_gateway_that_was_rebuilt_holds_again() -> None:
    story = Story.of("in-place").until(Phase.LOAD)
    story.world = replace(story.world, gateway=replace(story.world.gateway, held=""))

    while not story.world.gateway.held:
        assert story.step()
    assert (story.world.gateway.held, story.world.gateway.traffic) == ("1.2+", "")


def test_the_wait_includes_what_comes_before_the_start() -> None:
    story = Story.of("in-place").until(Phase.QUIESCE)
    swap = story.journal.swap
    assert swap
    assert swap.source
    source = replace(swap.source, limits=replace(swap.source.limits, drain_s=900.0))
    target = replace(swap.target, limits=replace(swap.target.limits, start_s=200.0))

    def at(phase: Phase, drained_s: float = 0.0) -> tuple[str, float]:
        journal = replace(story.journal, swap=replace(swap, phase=phase, source=source, target=target))
        waits = hold(journal, drained_s)
        assert waits
        return waits.mark, waits.left_s - 200.0

    assert at(Phase.QUIESCE) == ("1.2", DRAIN_S + STOP_S)
    assert at(Phase.QUIESCE, DRAIN_S) == ("1.2.1", DRAIN_S + STOP_S)
    assert at(Phase.QUIESCE, 8 * DRAIN_S) == at(Phase.QUIESCE, 15 * DRAIN_S) == ("1.2.4", 8 * DRAIN_S + STOP_S)
    assert at(Phase.QUIESCE, 600.0) == ("1.2.6", 900.0 - 480.0 + STOP_S), "a drain has a bound"
    assert at(Phase.QUIESCE, LONG) == at(Phase.QUIESCE, 900.0)
    assert at(Phase.FREE) == ("1.2", STOP_S)
    assert at(Phase.START) == ("1.2+", 0.0)


def test_a_drain_that_lasts_is_predicted_again_and_the_stop_that_follows_anew() -> None:
    story = Story.of("in-place").until(Phase.QUIESCE)
    swap = story.journal.swap
    assert swap
    assert swap.source
    source = replace(swap.source, limits=replace(swap.source.limits, drain_s=900.0))
    journal = replace(story.journal, swap=replace(swap, source=source))
    view = replace(gateway_view(a=Answer.YES), open={Slot.BLUE: 1}, held="1.2")
    fleet = replace(story.world.fleet(story.world.leader), gateway=view, sampled_s=DRAIN_S - 1)

    assert step(journal, fleet) is None
    effect = step(journal, replace(fleet, sampled_s=DRAIN_S))
    assert isinstance(effect, SwitchTraffic)
    assert effect.hold == hold(journal, DRAIN_S)
    assert effect == step(journal, replace(fleet, sampled_s=DRAIN_S + 1)), "one effect, so that its failures count"
    stops = replace(journal, swap=replace(journal.swap, phase=Phase.FREE)) if journal.swap else journal
    effect = step(stops, replace(fleet, gateway=replace(view, held="1.2.1"), sampled_s=0.0))
    assert isinstance(effect, SwitchTraffic)
    assert effect.hold == hold(stops)
