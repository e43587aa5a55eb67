"""Where green comes up and in which mode."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.names import Slot
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preconditions import Current
from sparkops.serving.startup.estimate import Forecast
from sparkops.swap.model import Mode, Replica
from tests.examples import release
from tests.operator.deploy.swaps import (
    BLUE,
    BLUE_RUNS,
    DOWNTIME,
    NEW,
    OLD,
    OLDEST,
    SERVING,
    at,
    chosen,
    on,
    plan,
    reasons,
    refusal,
    runs,
)


def test_what_is_brought_to_a_node_before_the_deploy_refuses_nothing() -> None:
    bare = replace(on(90), image=None, weights=None)
    brought = DeployOptions(provided=frozenset({"n1"}))

    assert chosen(plan(Current(), brought, n1=bare)) == (Mode.FIRST, "n1", Slot.BLUE)
    short = refusal(Current(), brought, n1=replace(on(10), image=None, weights=None))
    assert reasons(short) == ["  first on n1: 10.0 GiB available - 40 claimed: 30.0 GiB short"]
    other = refusal(Current(), DeployOptions(provided=frozenset({"n2"})), n1=bare)
    assert f"{NEW.id} needs: image, weights (sparkops up q brings them)" in str(other)


def test_where_nothing_serves_green_goes_to_the_freest_node_at_once() -> None:
    swap_plan = plan(Current(), n1=on(50), n2=on(70), n3=on(60))

    assert chosen(swap_plan) == (Mode.FIRST, "n2", Slot.BLUE)
    assert str(swap_plan) == (
        f"service chat, release {NEW.id}, mode first\n"
        "  from nothing to blue on n2, port 8001\n"
        "  n2: 70.0 GiB available - 40 claimed: 30.0 GiB left\n"
        "  phases: prepare > start > wait until ready > verify > switch > promote"
    )


def test_the_plan_of_a_swap_names_what_runs_code() -> None:
    swap_plan = plan(
        of=release(serve={"args": {"middleware": ["a.B"]}, "allow": ["middleware"]}), n1=on(100), n2=on(100)
    )

    assert str(swap_plan).splitlines()[1] == "  allowed: middleware (imports Python code named in its value)"


def test_another_node_goes_before_blue_s_own_because_blue_is_left_alone() -> None:
    swap_plan = plan(n1=on(100, BLUE_RUNS), n2=on(41), n3=on(45))

    assert chosen(swap_plan) == (Mode.ACROSS, "n3", Slot.GREEN)
    assert str(swap_plan) == (
        f"service chat, release {NEW.id}, mode across\n"
        f"  from {OLD.id} (blue) on n1 to green on n3, port 8002\n"
        "  n3: 45.0 GiB available - 40 claimed: 5.0 GiB left\n"
        "  phases: prepare > start > wait until ready > verify > switch > bake > promote > drain > retire"
    )


def test_beside_blue_a_reserve_is_kept_back() -> None:
    swap_plan = plan(n1=on(55, BLUE_RUNS), n2=on(39.9))

    assert chosen(swap_plan) == (Mode.BESIDE, "n1", Slot.GREEN)
    assert "".join(swap_plan.arithmetic()) == "n1: 55.0 GiB available - 15 reserved - 40 claimed: 0.0 GiB left"


def test_an_engine_of_another_service_is_not_put_at_risk_either() -> None:
    embeds = runs(release(service="embed"), Slot.BLUE, "n2", gib=20.0)

    refused = refusal(n1=on(0, BLUE_RUNS), n2=on(50, embeds))
    swap_plan = plan(n1=on(0, BLUE_RUNS), n2=on(56, embeds))

    assert "  across on n2: 50.0 GiB available - 15 reserved - 40 claimed: 5.0 GiB short" in reasons(refused)
    assert chosen(swap_plan) == (Mode.ACROSS, "n2", Slot.GREEN)


def test_in_place_counts_what_blue_gives_back_and_announces_the_gap() -> None:
    nodes: dict[str, Any] = {"n1": on(54.9, BLUE_RUNS)}
    learnt = replace(SERVING, gap=Forecast(719.6, "from 3 past starts on n1"))
    swap_plan = plan(learnt, DeployOptions(allow_downtime=True), **nodes)

    assert chosen(swap_plan) == (Mode.IN_PLACE, "n1", Slot.GREEN)
    assert str(swap_plan) == (
        f"service chat, release {NEW.id}, mode in-place\n"
        f"  from {OLD.id} (blue) on n1 to green on n1, port 8002\n"
        "  n1: 54.9 GiB available + 40 freed - 40 claimed: 54.9 GiB left\n"
        "  phases: prepare > stop traffic > stop old release > start > wait until ready > "
        "verify > switch > bake > promote\n"
        "  the service is down while the new release starts: about 12 min, from 3 past starts on n1, "
        "and again if it fails and the old one restarts"
    )
    assert "down while the new release starts," in str(plan(options=DeployOptions(allow_downtime=True), **nodes))
    down = f"  in-place on n1: {DOWNTIME}: about 12 min, from 3 past starts on n1"
    assert down in reasons(refusal(learnt, **nodes))


@pytest.mark.parametrize(
    ("options", "swap_"),
    [(DeployOptions(allow_downtime=True), {}), (DeployOptions(), {"allow_downtime": True})],
    ids=["the operator", "the recipe"],
)
def test_downtime_is_allowed_by(options: DeployOptions, swap_: dict[str, Any]) -> None:
    candidate = release(memory={"claim_gib": 40.0}, swap=swap_)

    assert plan(options=options, of=candidate, n1=on(20, BLUE_RUNS)).mode is Mode.IN_PLACE


def test_consent_is_not_a_wish_the_safer_mode_still_goes_first() -> None:
    assert plan(options=DeployOptions(allow_downtime=True), n1=on(90, BLUE_RUNS)).mode is Mode.BESIDE


@pytest.mark.parametrize(
    ("gib", "reserve", "mode"),
    [(40.0, 0.0, Mode.BESIDE), (39.9, 0.0, Mode.IN_PLACE), (70.0, 30.0, Mode.BESIDE), (69.9, 30.0, Mode.IN_PLACE)],
)
def test_the_reserve_is_the_recipe_s(gib: float, reserve: float, mode: Mode) -> None:
    candidate = release(memory={"claim_gib": 40.0}, swap={"reserve_gib": reserve, "allow_downtime": True})

    assert plan(of=candidate, n1=on(gib, BLUE_RUNS)).mode is mode


@pytest.mark.parametrize("mode", [Mode.ACROSS, Mode.BESIDE, Mode.IN_PLACE])
def test_a_forced_mode_is_taken_or_nothing(mode: Mode) -> None:
    nodes: dict[str, Any] = {"n1": on(90, BLUE_RUNS), "n2": on(90)}

    assert plan(options=DeployOptions(mode=mode, allow_downtime=True), **nodes).mode is mode


@pytest.mark.parametrize(
    ("requested_nodes", "of_the_recipe", "node_"),
    [(("n3",), ["n2"], "n3"), ((), ["n2"], "n2"), ((), [], "n4")],
    ids=["asked for", "the recipe's", "the freest"],
)
def test_green_goes_where_it_is_told(requested_nodes: tuple[str, ...], of_the_recipe: list[str], node_: str) -> None:
    candidate = release(memory={"claim_gib": 40.0}, nodes=of_the_recipe)
    nodes: dict[str, Any] = {"n1": on(90, BLUE_RUNS), "n2": on(60), "n3": on(50), "n4": on(80)}

    assert plan(options=DeployOptions(nodes=requested_nodes), of=candidate, **nodes).rank.node == node_


def test_who_asks_for_blue_s_node_gets_no_other_one() -> None:
    on_one = DeployOptions(nodes=("n1",))
    assert chosen(plan(options=on_one, n1=on(90, BLUE_RUNS), n2=on(99))) == (
        Mode.BESIDE,
        "n1",
        Slot.GREEN,
    )


@pytest.mark.parametrize(("slot", "next_"), [(Slot.BLUE, Slot.GREEN), (Slot.GREEN, Slot.BLUE)])
def test_the_slot_alternates_even_if_what_had_the_traffic_is_gone(slot: Slot, next_: Slot) -> None:
    running = plan(Current(at(OLD, slot), slot), n1=on(90, runs(OLD, slot)))
    gone = plan(Current(None, slot), n1=on(90))

    assert (running.rank.slot, running.rank.port) == (next_, 8002 if next_ is Slot.GREEN else 8001)
    assert chosen(gone) == (Mode.FIRST, "n1", next_)


def test_a_start_that_is_under_way_is_adopted_whatever_memory_is_left() -> None:
    swap_plan = plan(
        n1=on(0.5, BLUE_RUNS, runs(NEW, Slot.GREEN, restart_policy="no"), listening=frozenset({8001, 8002}))
    )

    assert "".join(swap_plan.arithmetic()) == "n1: the release runs, its memory is taken already"


WARM = at(OLDEST, Slot.GREEN)
WITH_WARM = replace(SERVING, idle=(WARM,))


def test_a_warm_release_makes_room_and_the_plan_says_so() -> None:
    swap_plan = plan(WITH_WARM, n1=on(20, BLUE_RUNS, runs(OLDEST, Slot.GREEN), listening=frozenset({8001, 8002})))

    assert (swap_plan.mode, swap_plan.leaves) == (Mode.BESIDE, (WARM,))
    assert str(swap_plan).splitlines()[2:4] == [
        "  n1: 20.0 GiB available + 40 freed - 15 reserved - 40 claimed: 5.0 GiB left",
        f"  {OLDEST.id} (green on n1) stops first: it has no traffic",
    ]


def test_a_warm_release_on_another_node_gives_back_nothing_here() -> None:
    current = replace(SERVING, idle=(at(OLDEST, Slot.GREEN, "n2"),))
    nodes: dict[str, Any] = {"n1": on(20, BLUE_RUNS), "n2": on(30, runs(OLDEST, Slot.GREEN, "n2", gib=40))}

    swap_plan = plan(current, **nodes)

    assert (swap_plan.mode, swap_plan.rank.node) == (Mode.ACROSS, "n2")
    assert "".join(swap_plan.arithmetic()) == "n2: 30.0 GiB available + 40 freed - 40 claimed: 30.0 GiB left"
    assert "  beside on n1: 20.0 GiB available - 15 reserved" in str(
        refusal(current, DeployOptions(nodes=("n1",)), **nodes)
    )


def test_a_warm_release_that_is_wanted_again_is_adopted_and_not_stopped() -> None:
    current = replace(SERVING, idle=(at(NEW, Slot.GREEN),))

    swap_plan = plan(current, n1=on(5, BLUE_RUNS, runs(NEW, Slot.GREEN)))

    assert (swap_plan.mode, swap_plan.leaves) == (Mode.BESIDE, ())
    assert "".join(swap_plan.arithmetic()) == "n1: the release runs, its memory is taken already"


def test_a_release_that_does_not_answer_is_replaced_in_place_without_a_word_about_downtime() -> None:
    """It keeps its memory: it may answer in a moment, and starts again if the new one fails."""
    down = replace(BLUE_RUNS, state="exited")
    claimed = (replace(rank, claim_gib=40.0) for rank in BLUE.ranks)
    failing = Current(replace(BLUE, replicas=(Replica(tuple(claimed)),)), Slot.BLUE, fails=True)

    assert DOWNTIME in str(refusal(n1=on(30.0, BLUE_RUNS)))
    assert chosen(plan(failing, n1=on(30.0, BLUE_RUNS)))[0] is Mode.IN_PLACE
    assert chosen(plan(failing, n1=on(60.0, down)))[0] is Mode.IN_PLACE
