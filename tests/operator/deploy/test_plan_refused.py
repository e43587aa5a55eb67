"""When no swap is safe: all reasons, and what to do about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.fabric import FabricRules
from sparkops.config.release import Rank, Release
from sparkops.errors import Busy, PlanRefused
from sparkops.names import Slot
from sparkops.operator.build.weights.checkpoint import ModelDirectory
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.plan import plan as make_plan
from sparkops.operator.deploy.preconditions import Current
from sparkops.swap.model import Mode
from tests.examples import HALF_A_CHECKPOINT, container, release
from tests.operator.deploy.swaps import (
    ACCEPT,
    BLUE_RUNS,
    DOWNTIME,
    NEW,
    OLD,
    OLDEST,
    SERVING,
    chosen,
    on,
    plan,
    reasons,
    refusal,
    runs,
)


def test_without_consent_nothing_is_stopped_and_all_reasons_come_with_their_sums() -> None:
    error = refusal(n1=on(50, BLUE_RUNS), n2=on(30))

    assert reasons(error) == [
        "  across on n2: 30.0 GiB available - 40 claimed: 10.0 GiB short",
        "  beside on n1: 50.0 GiB available - 15 reserved - 40 claimed: 5.0 GiB short",
        f"  in-place on n1: {DOWNTIME}",
    ]
    assert error.next_step == ACCEPT


def test_in_place_too_must_fit() -> None:
    error = refusal(options=DeployOptions(allow_downtime=True), n1=on(5, runs(OLD, Slot.BLUE, gib=30)))

    assert reasons(error)[-1] == "  in-place on n1: 5.0 GiB available + 30 freed - 40 claimed: 5.0 GiB short"
    assert error.next_step == room("n1", "`sparkops status` shows what is used")


def test_a_first_deploy_that_fits_nowhere_names_what_frees_memory_on_each_node() -> None:
    other = replace(runs(OLD, Slot.BLUE, gib=30), service="embed", name="embed-r0")

    error = refusal(Current(), n1=on(5, other), n2=on(30))

    assert error.next_step.splitlines() == [
        room("n2", "`sparkops status` shows what is used"),
        room("n1", "sparkops stop embed (frees 30 GiB)"),
    ]


def room(node: str, frees: str) -> str:
    what = "; or use a node with more: --node; or lower what it takes: sparkops fit q"
    return f"Free memory on {node}: {frees}{what}"


def test_a_forced_mode_that_does_not_fit_is_refused_with_its_own_reason_only() -> None:
    error = refusal(options=DeployOptions(mode=Mode.BESIDE, allow_downtime=True), n1=on(50, BLUE_RUNS), n2=on(90))

    assert reasons(error) == ["  beside on n1: 50.0 GiB available - 15 reserved - 40 claimed: 5.0 GiB short"]
    assert error.next_step == room("n1", "`sparkops status` shows what is used")


def test_a_forced_mode_without_a_node_for_it_says_so() -> None:
    across = DeployOptions(mode=Mode.ACROSS)
    assert reasons(refusal(options=across, n1=on(90, BLUE_RUNS))) == ["  no node for mode across"]


def test_a_candidate_that_cannot_be_reached_is_left_out_where_another_one_will_do() -> None:
    assert plan(options=DeployOptions(nodes=("n9", "n2")), n1=on(90, BLUE_RUNS), n2=on(90)).rank.node == "n2"


def test_a_candidate_that_cannot_be_reached_is_named_in_the_refusal() -> None:
    assert reasons(refusal(options=DeployOptions(nodes=("n9",)), n1=on(90, BLUE_RUNS))) == ["  n9 cannot be reached"]
    assert reasons(refusal(of=release(memory={"claim_gib": 40.0}, nodes=["n9", "n2"]), n2=on(1))) == [
        "  n9 cannot be reached",
        "  across on n2: 1.0 GiB available - 40 claimed: 39.0 GiB short",
    ]


def test_a_stranger_in_green_s_place_is_not_ours_to_stop() -> None:
    stranger = runs(OLDEST, Slot.GREEN)

    error = refusal(n1=on(90, BLUE_RUNS, stranger))

    assert reasons(error)[0] == f"  beside on n1: {stranger.name} runs in slot green without traffic"
    assert error.next_step.splitlines() == [f"docker stop {stranger.name} on n1, if it is not needed", ACCEPT]


def test_a_node_where_a_failed_release_is_still_stopping_is_busy_and_not_refused() -> None:
    failed = runs(OLDEST, Slot.GREEN)
    stopping = replace(SERVING, ending=frozenset({("n1", failed.name)}))

    with pytest.raises(Busy) as busy:
        plan(stopping, n1=on(90, BLUE_RUNS, failed))

    assert (str(busy.value), busy.value.exit_code) == (f"n1: {failed.name} is being stopped", 4)
    assert busy.value.next_step == "`--wait 10m` retries; sparkops status"
    gone = on(90, BLUE_RUNS, replace(failed, state="exited"))
    assert plan(stopping, n1=gone).mode is Mode.BESIDE


def test_a_free_node_is_taken_at_once_and_downtime_is_not_where_another_way_opens() -> None:
    failed = runs(OLDEST, Slot.GREEN, "n2")
    stopping = replace(SERVING, ending=frozenset({("n2", failed.name)}))

    assert chosen(plan(stopping, n1=on(90, BLUE_RUNS), n2=on(50, failed)))[:2] == (Mode.BESIDE, "n1")
    with pytest.raises(Busy):
        plan(stopping, DeployOptions(allow_downtime=True), n1=on(50, BLUE_RUNS), n2=on(5, failed))
    no_image = on(5, failed, image=None)
    assert plan(stopping, DeployOptions(allow_downtime=True), n1=on(50, BLUE_RUNS), n2=no_image).mode is Mode.IN_PLACE


def test_the_same_release_again_is_planned_while_it_stops() -> None:
    failed = runs(NEW, Slot.GREEN)
    stopping = replace(SERVING, ending=frozenset({("n1", failed.name)}))

    assert plan(stopping, n1=on(60, BLUE_RUNS, failed)).mode is Mode.BESIDE


def test_what_has_ended_and_what_belongs_to_others_is_no_stranger() -> None:
    ended = runs(OLDEST, Slot.GREEN, state="exited")
    other = container(Rank(release(service="other", serve={"port": 9000}), Slot.GREEN, "n1"))

    assert plan(n1=on(90, BLUE_RUNS, ended, other)).mode is Mode.BESIDE


def test_a_port_that_another_service_has_is_refused_before_anything_is_stopped() -> None:
    other = container(Rank(release(service="other", serve={"port": 8001}), Slot.BLUE, "n1"))
    taken = on(90, BLUE_RUNS, other, listening=frozenset({8001, 8002}))

    error = refusal(options=DeployOptions(allow_downtime=True), n1=taken)

    assert reasons(error) == [f"  {mode} on n1: port 8002 is taken by {other.name}" for mode in ("beside", "in-place")]
    assert error.next_step == "Stop it, or change serve.port of q."


def test_a_node_that_lacks_something_is_refused_with_what_it_lacks() -> None:
    error = refusal(
        options=DeployOptions(nodes=("n2",)),
        n1=on(90, BLUE_RUNS),
        n2=replace(on(1, image=None), weights=HALF_A_CHECKPOINT),
    )

    assert reasons(error) == [
        "  across on n2: 1.0 GiB available - 40 claimed: 39.0 GiB short",
        "  across on n2: the weights in /srv/models/q: no config.json",
        "  needs: image, weights (sparkops up q --node n2 brings them)",
    ]
    assert error.next_step == room("n2", "`sparkops status` shows what is used")


def test_what_up_brings_is_named_once_with_the_memory_of_each_node_and_the_command_that_leads_on() -> None:
    bare: dict[str, Any] = {"image": None, "weights": None}
    error = refusal(Current(), n1=replace(on(90), **bare), n2=replace(on(10), **bare))

    assert str(error).splitlines() == [
        f"{NEW.id} needs: image, weights (sparkops up q brings them)",
        "  first on n1: 90.0 GiB available - 40 claimed: 50.0 GiB left",
        "  first on n2: 10.0 GiB available - 40 claimed: 30.0 GiB short",
    ]
    assert (error.next_step, error.exit_code) == ("sparkops up q", 5)


def test_the_command_that_brings_an_image_repeats_the_set_and_the_options_of_the_deploy() -> None:
    """Without --set, `build` and `up` would make another image."""
    changed = Release(NEW.recipe.with_changes(["image.vllm=vllm==0.32.0", "env.A=a b"]), NEW.inputs)
    with pytest.raises(PlanRefused) as refused:
        make_plan(changed, {"n1": on(90, image=None)}, Current(), DeployOptions(("n1",)), FabricRules())

    assert refused.value.next_step == "sparkops up q --set image.vllm=vllm==0.32.0 --set 'env.A=a b' --node n1"


NO_DIRECTORY = ModelDirectory(exists=False, writable=False, free=0, user=1000, group=1001, checkpoints={})


@pytest.mark.parametrize("provided", [frozenset[str](), frozenset({"n1"})], ids=["plan", "up"])
def test_a_missing_model_directory_is_refused_before_anything_is_built(provided: frozenset[str]) -> None:
    bare = replace(on(90), weights=None, directory=NO_DIRECTORY)
    error = refusal(Current(), DeployOptions(provided=provided), n1=bare)

    assert reasons(error) == ["  first on n1: the model directory /srv/models does not exist"]
    assert error.next_step == "On n1: sudo install -d -o 1000 -g 1001 /srv/models"
