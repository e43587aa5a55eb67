"""The same text of several nodes is merged."""

from __future__ import annotations

import pytest

from sparkops.operator.status.merging import Block, Merged, Notice, merge


def test_options_and_places_name_every_node_that_is_merged() -> None:
    notices = [Notice("warning", "CACHE", name, "full", f"drop --node {name}, on {name}") for name in ("a", "b")]

    assert merge(notices) == [
        Block("warning", "CACHE", (Merged(("a", "b"), "full"),), Merged(("a", "b"), "drop --node a --node b, on a, b"))
    ]


@pytest.mark.parametrize(
    "step",
    ["On {}: mkdir x", "mkdir x, on {}", "set `gpu: none` for {} in the inventory", "sparkops node trust --node {}"],
)
def test_steps_that_name_their_node_are_the_same(step: str) -> None:
    [block] = merge([Notice("problem", "X", name, "p", step.format(name)) for name in ("n1", "n2")])

    assert block.step.nodes == ("n1", "n2")
    assert block.step.text == step.format("n1 --node n2" if "--node" in step else "n1, n2")


def test_a_name_is_replaced_only_where_a_node_is_meant() -> None:
    """The name `a` is also an article, and `n1` begins `n11`."""
    other, longer = Notice("drift", "X", "a", "a is a b", "s"), Notice("drift", "X", "n1", "p", "t, on n11")

    assert [block.heads for block in merge([other, Notice("drift", "X", "b", "b is b b", "s")])] == [
        ["drift X on a: a is a b", "drift X on b: b is b b"]
    ]
    assert [block.step.text for block in merge([longer, Notice("drift", "X", "n2", "p", "t, on n2")])] == [
        "t, on n11",
        "t, on n2",
    ]


def test_a_finding_that_is_repeated_names_its_node_once() -> None:
    [block] = merge([Notice("drift", "X", "a", "p", "s")] * 2)

    assert block.heads == ["drift X on a: p"]


def test_a_drift_without_a_known_node_names_none() -> None:
    [block] = merge([Notice("drift", "X", "", "p", "s")])

    assert block.heads == ["drift X: p"]
