"""Requests of a service wait from the stop of one release to the first answer of the next, whichever that is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.swap.effects import SwitchTraffic
from sparkops.swap.leader import step
from sparkops.swap.model import Limits, Phase
from sparkops.swap.orders import hold
from tests.simulation.story import Story


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
