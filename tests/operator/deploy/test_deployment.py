"""The deployment of an intent: self-contained, and the command that a guard runs from it is the one of the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.config.release import Rank, Release
from sparkops.engines.launch import Seat
from sparkops.errors import NotReady
from sparkops.names import Slot
from sparkops.node.docker import commands
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.deployment import deployment, limits, release_of, token_ranks
from sparkops.operator.deploy.memory.compilers import limit, memory_gib
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preconditions import Current
from sparkops.serving import engine_spec
from sparkops.swap import wire
from sparkops.swap.model import Deployment, Limits, Mode
from tests.examples import IMAGE_ID, container, node, recipe
from tests.operator.deploy.pairs import NEW as PAIR
from tests.operator.deploy.pairs import TCP, joined
from tests.operator.deploy.states import ADDRESSES, deployed, target
from tests.operator.deploy.swaps import NEW, OLD, on, plan


def test_a_guard_creates_from_the_spec_what_the_plan_shows() -> None:
    observed = on(90)
    swap_plan = plan(Current(), n2=observed)
    closed = replace(swap_plan, ranks=(replace(swap_plan.rank, callers=("10.0.0.1",)),))

    (rank,) = deployment(closed, ADDRESSES).ranks

    jobs = limit(closed.rank, observed.host, ())
    bound = memory_gib(closed.rank, observed.host, jobs)
    created = engine_spec.of(rank).create("n2").argv
    label = f"--label={engine_spec.SPEC_LABEL}={engine_spec.digest(rank)}"
    assert [word for word in created if word != label] == [
        *commands.create(closed.rank, node(), IMAGE_ID, jobs, memory_gib=bound).argv
    ]
    assert label in created
    assert engine_spec.of(rank).address == "10.0.0.2"
    assert (rank.node, rank.container, rank.claim_gib) == ("n2", closed.rank.container, 40.0)


def test_the_next_release_takes_the_other_slot_and_its_mode_is_the_plan_s() -> None:
    intent = target()

    assert (intent.target.release, intent.target.slot, intent.mode) == (NEW.id, Slot.GREEN, Mode.BESIDE)
    assert target(node="n2").mode is Mode.ACROSS


def test_the_times_of_a_swap_are_the_recipe_s() -> None:
    swap_ = {"bake_s": 5, "drain_s": 6, "keep_old_s": 7, "hold_s": 8, "hold_max": 9}

    assert limits(recipe(swap=swap_)) == Limits(bake_s=5, drain_s=6, keep_old_s=7, hold_s=8, hold_max=9)
    assert limits(recipe(), 300.0).start_s == 300.0
    assert limits(recipe(swap={"hold_max": 0}), 300.0).start_s == 0.0


def test_the_release_of_a_deployment_is_the_one_that_was_deployed() -> None:
    loaded = wire.load(Deployment, wire.dump(Deployment, deployed(OLD)))

    assert loaded == deployed(OLD)
    assert release_of(loaded).id == OLD.id


def test_a_node_without_the_image_is_refused_before_an_intent_is_made() -> None:
    swap_plan = plan(Current(), n1=on(90))

    with pytest.raises(NotReady, match=f"n1: image not found: {NEW.image}") as caught:
        deployment(replace(swap_plan, nodes={"n1": on(90, image=None)}), ADDRESSES)
    assert caught.value.next_step == "sparkops build q --node n1"


def pair(executor: str) -> Deployment:
    of = Release(
        PAIR.recipe.model_copy(update={"serve": PAIR.recipe.serve.model_copy(update={"executor": executor})}), "i"
    )
    nodes = {"n1": joined(1, 90), "n2": joined(2, 90)}
    return deployment(swap.plan(of, nodes, Current(), DeployOptions(), TCP), ADDRESSES)


def test_each_rank_of_a_pair_has_its_seat_in_the_network() -> None:
    head, worker = (engine_spec.of(rank) for rank in pair("mp").ranks)

    assert isinstance(head.seat, Seat)
    assert (head.index, head.seat.address, head.seat.head) == (0, "10.0.0.1", "10.0.0.1")
    assert worker.seat is not None
    assert (worker.index, worker.seat.address, worker.seat.head) == (1, "10.0.0.2", "10.0.0.1")
    assert worker.seat.peers == ("10.0.0.1", "10.0.0.2")


def test_every_rank_of_a_ray_cluster_needs_the_token_and_no_other_does() -> None:
    ray = pair("ray")
    digest = engine_spec.of(next(ray.ranks)).token

    assert [rank.node for rank in token_ranks(ray, digest)] == ["n1", "n2"]
    assert token_ranks(ray, "another one, of replicas that stay") == ()
    assert engine_spec.token_name(ray.release, ray.slot, "ab" * 32) == f"ray-{ray.release}-blue-{'ab' * 8}"
    assert token_ranks(pair("mp"), "") == token_ranks(deployed(), "") == ()


def test_a_rank_that_runs_keeps_its_image_where_the_tag_has_gone() -> None:
    swap_plan = plan(Current(), n1=on(90))
    running = replace(on(90, image=None), containers=())
    observed = replace(running, containers=(replace(container(Rank(NEW, Slot.BLUE, "n1")), image="sha256:run"),))

    (rank,) = deployment(replace(swap_plan, nodes={"n1": observed}), ADDRESSES).ranks
    assert engine_spec.of(rank).image == "sha256:run"
