"""Plans without a gateway: the first release, and the next one in its place."""

from __future__ import annotations

from dataclasses import replace

from sparkops.deploy.deployment import deployment, endpoints, is_direct
from sparkops.deploy.placement import DeployOptions
from sparkops.deploy.preconditions import Current
from sparkops.names import Slot
from sparkops.release import Rank
from sparkops.swap.model import Mode, Phase
from tests.deploy.swaps import BLUE, BLUE_RUNS, DOWNTIME, NEW, OLD, at, on, plan, reasons, refusal
from tests.examples import container

FREE = Current(direct=True)
SERVING = Current(BLUE, Slot.BLUE, direct=True)
ACCEPTED = DeployOptions(allow_downtime=True)


def test_the_first_release_has_the_port_of_the_service() -> None:
    swap_plan = plan(FREE, n1=on(90))

    assert (swap_plan.mode, swap_plan.rank.slot, swap_plan.rank.port) == (Mode.FIRST, Slot.BLUE, NEW.recipe.serve.port)
    target = deployment(swap_plan, {"n1": on(90)}, {"n1": "127.0.0.1"})
    assert is_direct(target)
    assert endpoints(target) == (("127.0.0.1", NEW.recipe.serve.port),)


def test_both_slots_share_that_port_and_ranks_connect_elsewhere() -> None:
    blue, green = (Rank(NEW, slot, "n1", direct=True) for slot in Slot)

    assert (blue.port, green.port) == (8000, 8000)
    assert (blue.rendezvous_port, green.rendezvous_port) == (8003, 8004)
    behind = replace(blue, direct=False)
    assert (behind.port, behind.rendezvous_port) == (8001, 8003)


def test_the_next_release_waits_for_consent_to_the_gap() -> None:
    error = refusal(SERVING, n1=on(90, BLUE_RUNS), n2=on(90))

    assert reasons(error) == [f"  in-place on n1: {DOWNTIME}"]
    assert error.next_step == "Accept the downtime with --allow-downtime."


def test_with_consent_it_takes_the_old_one_s_place_whatever_else_is_free() -> None:
    taken = on(90, replace(BLUE_RUNS, port=8000), listening=frozenset({8000}))

    swap_plan = plan(SERVING, ACCEPTED, n1=taken, n2=on(99))

    assert (swap_plan.mode, swap_plan.rank.node, swap_plan.rank.slot) == (Mode.IN_PLACE, "n1", Slot.GREEN)
    assert Phase.BAKE in swap_plan.phases


def test_memory_counts_with_what_the_old_release_gives_back() -> None:
    error = refusal(SERVING, ACCEPTED, n1=on(5, replace(BLUE_RUNS, claim_gib=30)))

    assert reasons(error) == ["  in-place on n1: 5.0 GiB available + 30 freed - 40 claimed: 5.0 GiB short"]


def test_another_mode_or_another_node_is_refused_with_the_one_that_there_is() -> None:
    only = [f"  without a gateway, only mode in-place on n1, where {OLD.id} runs"]

    assert reasons(refusal(SERVING, DeployOptions(mode=Mode.BESIDE), n1=on(90, BLUE_RUNS))) == only
    assert reasons(refusal(SERVING, DeployOptions(nodes=("n2",)), n1=on(90, BLUE_RUNS), n2=on(90))) == only


def test_a_single_rank_does_not_take_the_place_of_a_pair() -> None:
    current = replace(SERVING, blue=at(OLD, Slot.BLUE, "n2", "n1"))

    refused = refusal(current, ACCEPTED, n1=on(90), n2=on(90))

    assert reasons(refused) == [f"  without a gateway, only mode in-place on n2 and n1, where {OLD.id} runs"]


def test_a_release_that_does_not_answer_makes_room_for_the_next() -> None:
    failed = Current(None, Slot.BLUE, (BLUE,), direct=True)
    swap_plan = plan(failed, n1=on(90, replace(BLUE_RUNS, port=8000), listening=frozenset({8000})))

    assert (swap_plan.mode, swap_plan.rank.slot, swap_plan.leaves) == (Mode.FIRST, Slot.GREEN, (BLUE,))


def test_a_port_of_somebody_else_is_refused() -> None:
    other = container(Rank(NEW, Slot.BLUE, "n1", direct=True), service="other", release="o-1", name="o-1-blue-r0")

    (reason,) = reasons(refusal(FREE, n1=on(90, other, listening=frozenset({8000}))))

    assert reason == "  first on n1: port 8000 is taken by o-1-blue-r0"
