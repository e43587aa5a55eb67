"""The cordon of a guard: on its disk, in its reports, and refused while a swap may still start an engine there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkops.errors import Busy
from sparkops.guard.durable import Unreadable
from sparkops.guard.follower import Follower
from sparkops.guard.node_cordon import NodeCordon
from sparkops.guard.state import State
from sparkops.guard_client.cordon import Cordon, Displaced
from sparkops.names import Slot
from sparkops.nodes.local import LocalNode
from sparkops.swap import wire
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica

DEPLOYED = Deployment("q-2", Slot.GREEN, (Replica((RankSpec("n1", "q-2-r0", 4.0, "{}"),)),))
CLOSED = Cordon("new driver, by ann@laptop")
TAKEN = CLOSED.taken("chat", Displaced(DEPLOYED, stopped=True))


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def test_a_cordon_outlasts_the_guard_and_leaves_nothing_behind(state: State) -> None:
    NodeCordon(state).replace(Cordon(), TAKEN)

    restarted = NodeCordon(State(state.directory))

    assert (restarted.read(), restarted.text) == (TAKEN, "cordon (new driver, by ann@laptop)")
    restarted.replace(TAKEN, Cordon())
    assert [*state.directory.iterdir()] == []


def test_of_two_clients_one_changes_the_cordon(state: State) -> None:
    cordon = NodeCordon(state)
    cordon.replace(Cordon(), CLOSED)

    with pytest.raises(Busy, match="changed by another client"):
        cordon.replace(Cordon(), TAKEN)
    cordon.replace(Cordon(), CLOSED)  # the first request again: its reply was lost
    assert cordon.read() == CLOSED


def test_a_cordon_that_cannot_be_read_counts_as_one(state: State) -> None:
    (state.directory / "cordon.json").write_text("{")
    cordon = NodeCordon(state)

    assert cordon.text.startswith("cordon, which cannot be read: ")
    with pytest.raises(Unreadable):
        cordon.read()


def test_a_client_reads_the_cordon_as_the_guard_wrote_it() -> None:
    assert wire.load_value(Cordon, json.loads(wire.dump(Cordon, TAKEN))) == TAKEN


def test_the_last_speeds_of_the_last_releases_are_kept(state: State) -> None:
    for number in range(12):
        state.note_speed("chat", "q-1", float(number))
    for number in range(2, 11):
        state.note_speed("chat", f"q-{number}", 1.0)

    assert state.speeds("chat", "q-10") == (1.0,)
    assert state.speeds("chat", "q-1") == (), "of ten releases, the oldest is dropped"
    state.note_speed("chat", "q-10", 2.0)
    assert (state.speeds("chat", "q-2"), state.speeds("chat", "q-10")) == ((1.0,), (1.0, 2.0))


def test_a_speed_that_is_accepted_takes_the_place_of_the_earlier_ones(state: State) -> None:
    state.note_speed("chat", "q-1", 50.0)
    state.note_speed("chat", "q-1", 30.0, anew=True)

    assert state.speeds("chat", "q-1") == (30.0,)
    accepted = TAKEN.opened(any_speed=True)
    assert [displaced.any_speed for displaced in accepted.displaced.values()] == [True]
    assert [displaced.any_speed for displaced in accepted.opened().displaced.values()] == [False], "once"


def test_a_cordon_waits_for_a_swap_that_may_still_start_an_engine_on_the_node(state: State) -> None:
    swapping = Journal("chat", "n2").begun("i1", Mode.FIRST, DEPLOYED, automatic=True)
    state.write_record("chat", Record(copy=swapping))

    with pytest.raises(Busy, match="the swap of chat to q-2 is in phase 'prepare'") as busy:
        Follower(state, LocalNode("n1"), print).set_cordon(Cordon(), CLOSED)
    assert "sparkops follow chat" in busy.value.next_step

    elsewhere = Follower(state, LocalNode("n3"), print)
    elsewhere.set_cordon(Cordon(), CLOSED)
    assert elsewhere.cordon.text == CLOSED.text
    elsewhere.set_cordon(CLOSED, TAKEN)
    elsewhere.set_cordon(TAKEN, TAKEN.opened())
    assert state.cordon() == TAKEN.opened()
