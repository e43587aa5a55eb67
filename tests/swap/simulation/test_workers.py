"""A reload during a swap: HAProxy's old worker keeps its connections and requests, with servers of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkops.names import Slot
from sparkops.swap.effects import CutRequests
from sparkops.swap.model import Phase
from tests.swap.simulation import transitions
from tests.swap.simulation.explore import Violation, explore
from tests.swap.simulation.scenarios import deploying
from tests.swap.simulation.sharing import forget, replace
from tests.swap.simulation.story import Story
from tests.swap.simulation.test_reproductions import active
from tests.swap.simulation.transitions import lead, switched
from tests.swap.simulation.world import ROOM, Gateway

RELOAD = "HAProxy reloads"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Results are remembered, and these tests change what computes them."""
    forget()
    yield
    forget()


def found(mode: str) -> str:
    """The law that some reload during a swap breaks."""
    with pytest.raises(Violation) as violation:
        explore(deploying(mode), faults_=1, intents=0)
    return str(violation.value).splitlines()[-1]


@pytest.mark.parametrize("mode", ["beside", "across", "in-place"])
def test_the_row_of_a_slot_that_was_pointed_since_the_reload_is_no_row_for_an_old_worker(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every worker got the same row: a kept connection lost a request after a reload and a switch."""
    monkeypatch.setattr(transitions, "old_switched", switched)

    assert found(mode) == "22: a kept connection leads to '', a new one to 'b'"


def test_an_old_worker_that_a_switch_does_not_reach_sends_requests_to_the_former_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transitions, "old_switched", lambda _world, old, _to, _held: old)

    assert found("beside") == "22: a kept connection leads to 'a', a new one to 'b'"
    assert found("in-place") == "22: a kept connection leads to 'a', a new one to ''"


def test_requests_in_an_old_worker_that_nobody_counts_are_lost_with_their_release(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Gateway, "counted", property(lambda gateway: frozenset(gateway.open)))

    assert found("in-place") == "3: a-r0 stops with requests in progress"


def test_an_old_worker_s_requests_wait_like_others_and_end_before_their_release() -> None:
    story = Story.of("in-place").fault(RELOAD).until(Phase.QUIESCE)
    while story.world.gateway.active:
        assert story.step()
    old = story.world.gateway.old
    assert old is not None
    assert (old.active, old.held, old.open, old.traffic) == (None, ROOM, (Slot.BLUE,), "")

    while story.world.gateway.counted:
        assert "a-r0" in story.running
        assert story.step()

    assert active(story.settle()) == "b"
    assert story.world.gateway.old is None


def test_a_cut_ends_the_requests_of_every_worker() -> None:
    story = Story.of("in-place").fault(RELOAD).until(Phase.QUIESCE)
    while story.world.gateway.active:
        assert story.step()
    world, leader = story.world, replace(story.world.leader, sampled=True)
    source = story.journal.deployments[0]
    cut = lead(world.with_leader(leader), leader, CutRequests(source))

    assert [worker.open for worker in world.gateway.workers] == [(Slot.BLUE,), (Slot.BLUE,)]
    assert [worker.open for worker in cut.gateway.workers] == [(), ()]
    assert cut.wrongs == ()


def test_a_release_that_returns_gets_the_requests_of_kept_connections() -> None:
    story = Story.of("beside").fault(RELOAD).until(Phase.BAKE).fault("b-r0 is hung")
    while story.world.gateway.traffic != "a":
        assert story.step()
    assert story.world.gateway.old is not None

    assert active(story.settle()) == "a"
