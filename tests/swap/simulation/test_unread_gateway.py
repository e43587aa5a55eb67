"""What the leader goes on with while HAProxy cannot be read, and what waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkops.swap.effects import WriteJournal
from sparkops.swap.journal import Journal, present
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, Mode, Phase
from sparkops.swap.phases import is_gone
from tests.swap.simulation.story import Story
from tests.swap.simulation.test_reproductions import active
from tests.swap.simulation.views import Health
from tests.swap.simulation.world import LONG


def written(story: Story, **changes: Any) -> Journal:
    """The journal that the leader writes now; `changes`: of what it sees."""
    effect = step(story.journal, replace(story.world.fleet(story.world.leader), **changes))
    assert isinstance(effect, WriteJournal)
    return effect.journal


def test_a_release_whose_answers_cannot_be_seen_is_not_switched_to_and_the_old_one_stays() -> None:
    story = Story.of("across").until(Phase.VERIFY)
    while not any(report.engine("b-r0").proven is Answer.YES for report in story.world.leader.reports):
        assert story.step()
    story.fault("HAProxy stalls")

    assert step(story.journal, story.world.fleet(story.world.leader)) is None
    assert (written(story, waited_s=LONG).swap, active(story.settle())) == (None, "b")


def test_a_return_ends_although_haproxy_stalls() -> None:
    story = Story.of("beside").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.RETIRE).fault("HAProxy stalls")

    assert written(story).swap is None


def test_a_return_ends_although_its_release_computes() -> None:
    story = Story.of("in-place").until(Phase.BAKE).fault("b-r0 is hung").until(Phase.SWITCH)
    while story.world.gateway.traffic != "a":
        assert story.step()
    story.become("a-r0", Health.BUSY)
    while story.journal.swap:
        assert story.step()

    assert active(story.become("a-r0", Health.GOOD).settle()) == "a"


def test_what_has_stopped_is_forgotten_although_haproxy_stalls() -> None:
    story = Story.of("beside").until(Phase.RETIRE)
    old = present(present(story.journal.swap).source)
    while not all(is_gone(story.journal, story.world.fleet(story.world.leader), rank) for rank in old.ranks):
        assert story.step()
    assert story.journal.stopped == tuple(old.ranks)

    assert written(story.fault("HAProxy stalls")).stopped == ()


def test_a_node_that_returns_takes_part_although_haproxy_stalls() -> None:
    story = Story.of("across").until(Phase.BAKE).fault("loss of n2").settle()
    assert story.deploy(Mode.IN_PLACE, "n3", without=frozenset({"n2"}))
    story.settle().fault("return of n2").fault("HAProxy stalls")
    while story.journal.stopped and story.world.gateway.stalled:
        assert story.step()
    while story.journal.without and story.world.gateway.stalled:
        assert story.step()

    assert (story.world.gateway.stalled, story.journal.without) == (True, frozenset())


def test_a_swap_that_cannot_stop_the_traffic_returns_it_to_the_old_release() -> None:
    swap = written(Story.of("in-place").until(Phase.QUIESCE).fault("HAProxy stalls"), waited_s=LONG).swap

    assert swap is not None
    assert (swap.reverting, swap.phase, swap.target.release) == (True, Phase.SWITCH, "a")
