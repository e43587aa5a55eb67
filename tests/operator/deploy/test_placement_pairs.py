"""Where the two ranks of a green come up, in which order and in which mode, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.config.fabric import FabricRules as Rules
from sparkops.config.release import Rank
from sparkops.errors import PlanRefused
from sparkops.names import Slot
from sparkops.operator.deploy import plan as swap
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preconditions import Current
from sparkops.operator.fleet.network.topology import Transport
from sparkops.swap.model import Mode
from tests.operator.deploy.pairs import ALONE, BLUE, NEW, OLD, SERVING, TCP, UNREAD, joined, net, plan, ranks, runs
from tests.operator.deploy.swaps import ACCEPT, DOWNTIME, at

DOWN = DeployOptions(allow_downtime=True)


def where(swap_plan: swap.Plan) -> tuple[Mode, tuple[str, ...], Slot]:
    return swap_plan.mode, tuple(rank.node for rank in swap_plan.ranks), swap_plan.rank.slot


def refusal(free: dict[str, float], options: DeployOptions | None = None, **more: object) -> PlanRefused:
    with pytest.raises(PlanRefused) as caught:
        plan(free, options=options, **more)  # type: ignore[arg-type]
    return caught.value


def reasons(error: PlanRefused) -> list[str]:
    return str(error).splitlines()[1:]


def test_where_nothing_serves_the_pair_whose_worse_node_has_most_memory_is_taken() -> None:
    swap_plan = plan({"n1": 41, "n2": 90, "n3": 60}, Current())

    assert where(swap_plan) == (Mode.FIRST, ("n2", "n3"), Slot.BLUE)
    assert swap_plan.arithmetic() == (
        "n2: 90.0 GiB available - 40 claimed: 50.0 GiB left",
        "n3: 60.0 GiB available - 40 claimed: 20.0 GiB left",
    )
    assert "  from nothing to blue on n2 and n3, port 8001" in str(swap_plan).splitlines()


def test_ranks_follow_the_order_that_was_asked_for() -> None:
    swap_plan = plan({"n1": 90, "n2": 90}, Current(), DeployOptions(nodes=("n2", "n1")))

    assert [(rank.index, rank.node) for rank in swap_plan.ranks] == [(0, "n2"), (1, "n1")]
    assert swap_plan.rank.node == "n2"


def test_the_network_of_the_ranks_is_in_the_plan_in_their_order() -> None:
    swap_plan = plan({"n1": 90, "n2": 90}, Current(), DeployOptions(nodes=("n2", "n1")))

    [network] = swap_plan.networks
    assert network.transport is Transport.TCP
    assert [(name, rank.address) for name, rank in network.ranks.items()] == [
        ("n2", "10.0.0.2"),
        ("n1", "10.0.0.1"),
    ]
    assert "  network: TCP, 1 link" in str(swap_plan).splitlines()


def test_two_other_nodes_go_before_blue_s_own() -> None:
    swap_plan = plan({"n1": 50, "n2": 50, "n3": 60, "n4": 60})

    assert where(swap_plan) == (Mode.ACROSS, ("n3", "n4"), Slot.GREEN)
    assert f"  from {OLD.id} (blue) on n1 and n2 to green on n3 and n4, port 8002" in str(swap_plan).splitlines()


def test_one_other_node_is_not_enough_for_across() -> None:
    swap_plan = plan({"n1": 50, "n2": 50, "n3": 99}, options=DOWN)

    assert where(swap_plan) == (Mode.IN_PLACE, ("n1", "n2"), Slot.GREEN)


def test_beside_blue_both_nodes_must_have_room_and_the_sum_of_each_is_shown() -> None:
    swap_plan = plan({"n1": 55, "n2": 70})

    assert where(swap_plan) == (Mode.BESIDE, ("n1", "n2"), Slot.GREEN)
    assert swap_plan.arithmetic() == (
        "n1: 55.0 GiB available - 15 reserved - 40 claimed: 0.0 GiB left",
        "n2: 70.0 GiB available - 15 reserved - 40 claimed: 15.0 GiB left",
    )


def test_one_node_that_is_short_refuses_beside_and_its_own_sum_says_so() -> None:
    error = refusal({"n1": 90, "n2": 54})

    assert reasons(error) == [
        "  beside on n2: 54.0 GiB available - 15 reserved - 40 claimed: 1.0 GiB short",
        f"  in-place on n1 and n2: {DOWNTIME}",
    ]
    assert error.next_step == ACCEPT


def test_a_pair_that_fits_nowhere_names_what_frees_memory_on_each_node_that_is_short() -> None:
    error = refusal({"n1": 30, "n2": 20}, current=Current())

    assert reasons(error) == [
        "  first on n1: 30.0 GiB available - 40 claimed: 10.0 GiB short",
        "  first on n2: 20.0 GiB available - 40 claimed: 20.0 GiB short",
    ]
    frees = "`sparkops status` shows what is used; or use a node with more: --node"
    assert error.next_step.splitlines() == [
        f"Free memory on {node}: {frees}; or lower what it takes: sparkops fit q" for node in ("n1", "n2")
    ]


def test_in_place_each_node_counts_what_blue_s_rank_gives_back_there() -> None:
    swap_plan = plan({"n1": 5, "n2": 8}, options=DOWN)

    assert where(swap_plan) == (Mode.IN_PLACE, ("n1", "n2"), Slot.GREEN)
    assert swap_plan.arithmetic() == (
        "n1: 5.0 GiB available + 40 freed - 40 claimed: 5.0 GiB left",
        "n2: 8.0 GiB available + 40 freed - 40 claimed: 8.0 GiB left",
    )


def test_in_place_over_half_of_blue_s_nodes_counts_only_what_stops_there() -> None:
    swap_plan = plan({"n1": 5, "n2": 8, "n3": 41}, options=DeployOptions(nodes=("n2", "n3"), allow_downtime=True))

    assert where(swap_plan) == (Mode.IN_PLACE, ("n2", "n3"), Slot.GREEN)
    assert swap_plan.arithmetic()[1] == "n3: 41.0 GiB available - 40 claimed: 1.0 GiB left"


def test_who_names_one_node_for_a_pair_is_told_how_many_it_needs() -> None:
    on_one = DeployOptions(nodes=("n1",))
    too_few = refusal({"n1": 90, "n2": 90}, on_one)
    assert reasons(too_few) == ["  2 nodes needed, available: n1"]
    assert "sparkops recipes chat --fits" in too_few.next_step


def test_a_rank_s_node_that_cannot_be_reached_is_named() -> None:
    error = refusal({"n1": 90}, DeployOptions(nodes=("n1", "n2")))

    assert reasons(error) == ["  n2 cannot be reached"]
    assert error.next_step == "Check n2 with `sparkops doctor`, or deploy to other nodes with --node."


@pytest.mark.parametrize("rules", [Rules(), Rules(allow_tcp=False)])
def test_without_roce_and_without_leave_for_tcp_the_refusal_says_what_is_missing(rules: Rules) -> None:
    error = refusal({"n1": 90, "n2": 90}, current=Current(), rules=rules)

    assert reasons(error)[0].startswith("  first on n1 and n2: no RoCE between n1 and n2: ")
    assert "fabric: {allow_tcp: true}" in error.next_step


def test_nodes_that_share_no_network_are_refused_and_those_that_do_are_taken() -> None:
    nodes = {name: joined(int(name[1:]), 90) for name in ("n1", "n2", "n3")}
    nodes["n2"] = replace(nodes["n2"], fabric=net("10.9.9.2/24"))

    swap_plan = swap.plan(NEW, nodes, Current(), DeployOptions(), TCP)
    with pytest.raises(PlanRefused) as caught:
        swap.plan(NEW, nodes, Current(), DeployOptions(nodes=("n1", "n2")), TCP)

    assert [rank.node for rank in swap_plan.ranks] == ["n1", "n3"]
    assert reasons(caught.value) == ["  first on n1 and n2: no network joins n1 and n2"]


def test_a_pair_whose_network_could_not_be_read_is_refused_with_the_reason() -> None:
    error = refusal({"n1": 90, "n2": 90}, current=Current(), without=frozenset({"n1", "n2"}))

    assert reasons(error) == [
        "  first on n1 and n2: n1: its network is unknown: ip exited with code 127",
        "n2: its network is unknown: ip exited with code 127",
    ]
    assert error.next_step == "Check `sparkops doctor`."


def test_a_node_whose_network_could_not_be_read_is_passed_over_for_others() -> None:
    swap_plan = plan({"n1": 99, "n2": 90, "n3": 60}, Current(), without=frozenset({"n1"}))

    assert where(swap_plan) == (Mode.FIRST, ("n2", "n3"), Slot.BLUE)


def test_a_single_node_needs_no_network() -> None:
    unread = replace(joined(1, 90), fabric=None, fabric_unknown=UNREAD)

    assert swap.plan(ALONE, {"n1": unread}, Current(), DeployOptions(), TCP).networks == ()


def test_only_rank_0_needs_its_port() -> None:
    taken = frozenset({8002})
    head = {"n1": joined(1, 90, runs(BLUE[0]), listening=taken), "n2": joined(2, 90, runs(BLUE[1]))}
    worker = {"n1": joined(1, 90, runs(BLUE[0])), "n2": joined(2, 90, runs(BLUE[1]), listening=taken)}

    with pytest.raises(PlanRefused, match="port 8002 is taken by a program"):
        swap.plan(NEW, head, SERVING, DeployOptions(), TCP)
    assert where(swap.plan(NEW, worker, SERVING, DeployOptions(), TCP)) == (Mode.BESIDE, ("n1", "n2"), Slot.GREEN)


def test_a_pair_after_a_single_node_leaves_it_alone_where_two_others_are() -> None:
    alone = Current(at(ALONE, Slot.BLUE, "n1"), Slot.BLUE)

    assert where(plan({"n1": 50, "n2": 60, "n3": 60}, alone)) == (Mode.ACROSS, ("n2", "n3"), Slot.GREEN)
    assert where(plan({"n1": 5, "n2": 60}, alone, DOWN)) == (Mode.IN_PLACE, ("n1", "n2"), Slot.GREEN)


def test_in_place_from_a_single_node_to_a_pair_only_its_node_gives_back() -> None:
    swap_plan = plan({"n1": 5, "n2": 60}, Current(at(ALONE, Slot.BLUE, "n1"), Slot.BLUE), DOWN)

    assert swap_plan.arithmetic() == (
        "n1: 5.0 GiB available + 40 freed - 40 claimed: 5.0 GiB left",
        "n2: 60.0 GiB available - 40 claimed: 20.0 GiB left",
    )


def test_a_single_node_after_a_pair_is_across_elsewhere_and_in_place_on_either_of_its_nodes() -> None:
    assert where(plan({"n1": 5, "n2": 5, "n3": 60}, of=ALONE)) == (Mode.ACROSS, ("n3",), Slot.GREEN)
    swap_plan = plan({"n1": 5, "n2": 5}, options=DeployOptions(nodes=("n2",), allow_downtime=True), of=ALONE)

    assert where(swap_plan) == (Mode.IN_PLACE, ("n2",), Slot.GREEN)
    assert swap_plan.networks == ()


def test_every_warm_rank_stops_first_and_gives_back_on_its_own_node() -> None:
    warm = at(OLD, Slot.GREEN, "n1", "n2")
    stale = ranks(OLD, Slot.GREEN, "n1", "n2")
    current = Current(at(ALONE, Slot.BLUE, "n3"), Slot.BLUE, (warm,))
    nodes = {
        "n1": joined(1, 5, runs(stale[0])),
        "n2": joined(2, 6, runs(stale[1])),
        "n3": joined(3, 5, runs(Rank(ALONE, Slot.BLUE, "n3"))),
    }

    swap_plan = swap.plan(NEW, nodes, current, DeployOptions(), TCP)

    assert [rank.container for rank in swap_plan.ranks] == [
        rank.container for rank in ranks(NEW, Slot.GREEN, "n1", "n2")
    ]
    assert swap_plan.leaves == (warm,)
    assert swap_plan.arithmetic() == (
        "n1: 5.0 GiB available + 40 freed - 40 claimed: 5.0 GiB left",
        "n2: 6.0 GiB available + 40 freed - 40 claimed: 6.0 GiB left",
    )
    assert f"  {OLD.id} (green on n1 and n2) stops first: it has no traffic" in str(swap_plan).splitlines()


def test_a_pair_that_is_loading_is_adopted_whatever_memory_is_left() -> None:
    green = ranks(NEW, Slot.GREEN, "n1", "n2")
    nodes = {
        name: joined(number, 0.5, runs(BLUE[number - 1]), runs(green[number - 1], restart_policy="no"))
        for number, name in enumerate(("n1", "n2"), 1)
    }

    swap_plan = swap.plan(NEW, nodes, SERVING, DeployOptions(), TCP)

    assert swap_plan.arithmetic() == tuple(
        f"{name}: the release runs, its memory is taken already" for name in ("n1", "n2")
    )
