"""What a drain and a return decide, as values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.errors import Busy
from sparkops.guard_client.cordon import Cordon, Displaced
from sparkops.guard_client.service_state import ServiceState
from sparkops.maintenance.plan import Action, after, home, lifted, on_node, remaining, strangers
from sparkops.names import Slot
from sparkops.nodes.host import GpuMemory
from sparkops.swap.model import Deployment, Phase
from tests.deploy.states import deployed, reported, serving, swapping, target
from tests.deploy.swaps import NEW, on, plan, runs

MOVE = target(node="n2")
"""The intent that replaces the release on n1 by the next one on n2."""


def moved(phase: Phase) -> ServiceState:
    """The state of a swap to n2 in a phase."""
    journal = serving().journal.begun(MOVE.id, MOVE.mode, MOVE.target, automatic=True)
    while journal.swap and journal.swap.phase is not phase:
        journal = journal.advanced()
    return reported(journal)


def test_a_service_is_taken_from_a_node_only_if_something_of_it_runs_there() -> None:
    assert on_node(serving(), "n2") is None
    step = on_node(serving(), "n1")
    assert step
    assert (step.action, step.deployment) == (Action.MOVE, serving().journal.active)


def test_a_swap_away_from_the_node_is_followed_and_one_to_it_is_not_disturbed() -> None:
    away = on_node(moved(Phase.LOAD), "n1")
    assert away
    assert away.action is Action.FOLLOW
    with pytest.raises(Busy, match=r"a swap to .* is in phase 'wait until ready'") as busy:
        on_node(moved(Phase.LOAD), "n2")
    assert "sparkops cancel chat" in busy.value.next_step
    with pytest.raises(Busy):
        on_node(swapping(Phase.LOAD), "n1")


def test_a_drain_waits_for_an_old_release_that_is_kept_warm() -> None:
    state = moved(Phase.RETIRE)

    step = on_node(state, "n1")

    assert step
    assert (step.action, step.changes) == (Action.WAIT, False)
    assert "is kept warm" in remaining([state], "n1")["chat"]
    assert "serves on it" in remaining([state], "n2")["chat"]
    ended = reported(state.journal.advanced())
    assert "is being stopped" in remaining([ended], "n1")["chat"]
    gone = reported(ended.journal.confirmed_stopped(ended.journal.stopped))
    assert (on_node(gone, "n1"), remaining([gone], "n1")) == (None, {})


def test_a_stop_in_progress_is_followed() -> None:
    step = on_node(serving(stopping=True), "n1")
    assert step
    assert step.action is Action.FOLLOW


def test_an_engine_that_no_journal_has_is_a_stranger() -> None:
    known = replace(runs(NEW, Slot.BLUE), name=next(deployed().ranks).container)
    other = replace(known, name="by-hand")

    assert list(strangers([serving()], "n1", [known, other, replace(other, state="exited")])) == [other]


def test_a_return_brings_back_only_what_the_drain_took_and_nobody_changed_since() -> None:
    here, there = deployed(), deployed(node="n2")

    def action(active: Deployment | None, displaced: Displaced, **changes: Any) -> Action:
        return home(serving(active=active, **changes), displaced).action

    assert action(there, Displaced(here)) is Action.MOVE
    assert action(here, Displaced(here)) is Action.LEAVE
    assert action(deployed(NEW, "n2"), Displaced(here)) is Action.LEAVE
    assert action(None, Displaced(here, stopped=True), previous=here) is Action.START
    assert action(None, Displaced(here, stopped=True), previous=deployed(NEW)) is Action.LEAVE
    assert action(None, Displaced(here), previous=there) is Action.LEAVE, "an operator has stopped it since"
    assert action(there, Displaced(here, stopped=True)) is Action.LEAVE, "an operator has started it elsewhere"
    with pytest.raises(Busy):
        home(swapping(Phase.LOAD), Displaced(there))
    assert home(moved(Phase.LOAD), Displaced(MOVE.target)).action is Action.FOLLOW


def test_the_next_move_of_a_drain_finds_the_memory_of_the_moves_before_it_taken() -> None:
    ahead = plan(of=NEW, n1=on(90), n2=on(90))  # 40 GiB to n2

    left = after({"n1": on(90), "n2": on(90)}, [ahead])

    assert ahead.rank.node == "n2"
    assert (left["n1"].host.memory_available_gib, left["n2"].host.memory_available_gib) == (90, 50)
    assert [container.claim_gib for container in left["n2"].containers] == [40.0]
    assert ahead.rank.port in left["n2"].host.listening


def test_a_discrete_gpu_gives_its_memory_and_the_host_its_side() -> None:
    gpu = on(90, gpu_model="NVIDIA H100", gpus=(GpuMemory(80.0, 70.0),))
    cuda = replace(plan(of=NEW, n1=on(90), n2=on(90)), nodes={"n2": gpu})
    recipe = cuda.release.recipe

    host = after({"n2": gpu}, [cuda])["n2"].host

    assert host.gpus == ((GpuMemory(80.0, 30.0),) if recipe.backend != "cpu" else gpu.host.gpus)


def test_a_cordon_keeps_what_was_taken_until_it_is_back() -> None:
    displaced = Displaced(deployed())
    closed = Cordon().closed("a").closed("b").taken("chat", displaced)

    assert (closed.reason, closed.text, Cordon().text) == ("a", "cordon (a)", "")
    assert closed.opened().displaced == {"chat": displaced}
    assert closed.opened().restored("chat") == Cordon()
    assert lifted({"n1": replace(on(90), cordon="a"), "n2": replace(on(90), cordon="b")}, "n1")["n2"].cordon == "b"
