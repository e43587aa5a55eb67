"""Where a recipe fits on a fleet: if nothing else ran there, beside what runs, and why nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sparkops.config.fabric import FabricRules
from sparkops.config.recipe import Recipe
from sparkops.names import Slot
from sparkops.operator.deploy.place import Suitable
from sparkops.operator.deploy.preconditions import Observed
from sparkops.operator.deploy.suitable import suitable
from tests.examples import CUDA, recipe, release
from tests.operator.deploy.pairs import SERVE, TCP, UNREAD, joined
from tests.operator.deploy.swaps import NEW, on, runs

OTHER = release(name="other", service="other", memory={"claim_gib": 60.0})


def of(claim_gib: float = 40.0, **changes: Any) -> Recipe:
    return recipe(memory={"claim_gib": claim_gib}, **changes)


def fits(of_recipe: Recipe, rules: FabricRules = TCP, **nodes: Observed) -> Suitable:
    return suitable(of_recipe, nodes, rules)


def test_it_fits_now_where_its_claim_is_free() -> None:
    assert fits(of(), n1=on(90), n2=on(41)) == Suitable((("n1",), ("n2",)), now=(("n1",), ("n2",)))


def test_image_and_weights_do_not_count() -> None:
    bare = replace(on(90, image=None), weights=None)

    assert fits(of(), n1=bare).now == (("n1",),)


def test_memory_in_use_leaves_the_node_for_later() -> None:
    assert fits(of(), n1=on(39), n2=on(90)) == Suitable((("n1",), ("n2",)), now=(("n2",),))


def test_beside_another_engine_the_reserve_stays_free() -> None:
    beside = runs(OTHER, Slot.BLUE)

    assert fits(of(), n1=on(54.9, beside)).now == ()
    assert fits(of(), n1=on(55.1, beside)).now == (("n1",),)


def test_it_names_the_nodes_on_which_it_runs() -> None:
    found = fits(NEW.recipe, n1=on(39, runs(NEW, Slot.GREEN)), n2=on(90, runs(OTHER, Slot.BLUE)))

    assert (found.running, found.now) == (("n1",), (("n2",),))
    assert fits(NEW.recipe, n1=on(90, runs(NEW, Slot.BLUE, state="exited"))).running == ()


def test_a_claim_above_the_total_fits_nowhere_with_the_arithmetic() -> None:
    found = fits(of(120.0), n1=on(90), n2=on(10))

    assert found == Suitable(
        (),
        reasons=(
            "n1: 120 GiB claimed, 119.7 GiB in total: 0.3 GiB short",
            "n2: 120 GiB claimed, 119.7 GiB in total: 0.3 GiB short",
        ),
    )


def test_one_node_that_is_large_enough_needs_no_reason_of_the_others() -> None:
    small = on(30, memory_total_gib=31.0)

    assert fits(of(), n1=small, n2=on(90)) == Suitable((("n2",),), now=(("n2",),))


def test_a_recipe_for_cuda_needs_a_gpu() -> None:
    cuda = recipe(image={"torch": CUDA}, memory={"claim_gib": 40.0})

    [reason] = fits(cuda, n1=on(90)).reasons
    assert reason.startswith("n1: `gpu: none`; q needs CUDA")


def test_only_the_nodes_of_a_recipe_count() -> None:
    assert fits(of(nodes=["n2"]), n1=on(90), n2=on(90)).places == (("n2",),)
    assert fits(of(nodes=["n2"]), n1=on(90)) == Suitable((), reasons=("n2: not read",))


def test_a_pair_needs_two_nodes_that_are_joined() -> None:
    pair = of(serve=SERVE)
    two = {"n1": joined(1, 90), "n2": joined(2, 39)}

    assert suitable(pair, two, TCP) == Suitable((("n1", "n2"),))
    assert suitable(pair, {**two, "n2": joined(2, 90)}, TCP).now == (("n1", "n2"),)
    assert fits(pair, n1=joined(1, 90)) == Suitable((), reasons=("2 nodes needed, available: n1",))


def test_a_pair_whose_network_is_refused_or_unknown_fits_nowhere() -> None:
    pair, unread = of(serve=SERVE), replace(on(90), fabric_unknown=UNREAD)

    [refused] = fits(pair, FabricRules(), n1=joined(1, 90), n2=joined(2, 90)).reasons
    [unknown] = fits(pair, n1=joined(1, 90), n2=unread).reasons
    assert refused == "no RoCE between n1 and n2: n1 has no RDMA device; n2 has no RDMA device"
    assert UNREAD in unknown


def test_a_replica_of_four_fits_on_four_nodes_of_one_network() -> None:
    four = of(serve={"tensor_parallel": 2, "pipeline_parallel": 2, "executor": "mp"})
    nodes = {f"n{number}": joined(number, 90) for number in range(1, 5)}

    assert suitable(four, nodes, TCP).now == (("n1", "n2", "n3", "n4"),)
    assert fits(four, n1=joined(1, 90)) == Suitable((), reasons=("4 nodes needed, available: n1",))
