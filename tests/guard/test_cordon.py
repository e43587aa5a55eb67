"""The cordon of a guard: on its disk, in its reports, and refused while a swap may still start an engine there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkops.errors import Busy
from sparkops.guard.disk.durable import Unreadable
from sparkops.guard.disk.state import State
from sparkops.guard.follow.follower import Follower
from sparkops.names import Slot
from sparkops.node.cordon import Cordon
from sparkops.node.local import LocalNode
from sparkops.swap import wire
from sparkops.swap.follower import Record
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Mode, RankSpec, Replica

DEPLOYED = Deployment("q-2", Slot.GREEN, (Replica((RankSpec("n1", "q-2-r0", 4.0, "{}"),)),))
CLOSED = Cordon("new driver, by ann@laptop")
TAKEN = CLOSED.taken("chat", DEPLOYED)


@pytest.fixture
def state(tmp_path: Path) -> State:
    return State(tmp_path)


def follower(state: State, node: str = "n3") -> Follower:
    return Follower(state, LocalNode(node), print)


def test_a_cordon_outlasts_the_guard_and_leaves_nothing_behind(state: State) -> None:
    follower(state).set_cordon(Cordon(), TAKEN)

    restarted = State(state.directory)

    assert restarted.cordon() == TAKEN
    follower(restarted).set_cordon(TAKEN, Cordon())
    assert [*state.directory.iterdir()] == []


def test_of_two_clients_one_changes_the_cordon(state: State) -> None:
    guard = follower(state)
    guard.set_cordon(Cordon(), CLOSED)

    with pytest.raises(Busy, match="changed by another client"):
        guard.set_cordon(Cordon(), TAKEN)
    guard.set_cordon(Cordon(), CLOSED)  # the first request again: its reply was lost
    assert state.cordon() == CLOSED


def test_a_cordon_that_cannot_be_read_counts_as_one(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = follower(state)
    monkeypatch.setattr(guard._reader, "require_recent", lambda: None)
    guard.set_cordon(Cordon(), CLOSED)
    assert guard.handle("chat", None).lease == "cordon (new driver, by ann@laptop)"

    (state.directory / "cordon.json").write_text("{")

    assert guard.handle("chat", None).lease.startswith("cordon, which cannot be read: ")
    with pytest.raises(Unreadable):
        guard.set_cordon(CLOSED, Cordon())


def test_a_cordon_keeps_what_was_taken_until_it_is_back() -> None:
    closed = Cordon().closed("a").closed("b").taken("chat", DEPLOYED)

    assert (closed.reason, closed.text, Cordon().text) == ("a", "cordon (a)", "")
    assert closed.opened().displaced == {"chat": DEPLOYED}
    assert closed.opened().restored("chat") == Cordon()


def test_a_client_reads_the_cordon_as_the_guard_wrote_it() -> None:
    assert wire.load_value(Cordon, json.loads(wire.dump(Cordon, TAKEN))) == TAKEN


def test_a_cordon_waits_for_a_swap_that_may_still_start_an_engine_on_the_node(state: State) -> None:
    swapping = Journal("chat", "n2").begun("i1", Mode.FIRST, DEPLOYED, automatic=True)
    state.write_record("chat", Record(copy=swapping))

    with pytest.raises(Busy, match="the swap of chat to q-2 is in phase 'prepare'") as busy:
        follower(state, "n1").set_cordon(Cordon(), CLOSED)
    assert "sparkops status chat --follow" in busy.value.next_step

    elsewhere = follower(state)
    elsewhere.set_cordon(Cordon(), CLOSED)
    assert state.cordon() == CLOSED
    elsewhere.set_cordon(CLOSED, TAKEN)
    elsewhere.set_cordon(TAKEN, TAKEN.opened())
    assert state.cordon() == TAKEN.opened()
