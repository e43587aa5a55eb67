"""What a deploy changes, as it is printed before it."""

from __future__ import annotations

from typing import Any

from sparkops.config.release import Release
from sparkops.operator.deploy.deployment import release_of
from sparkops.operator.deploy.difference import MOST_LINES, difference
from tests.examples import INPUTS, recipe
from tests.operator.deploy.states import deployed


def of(*changes: str, inputs: str = INPUTS, **keys: Any) -> Release:
    return Release(recipe(**keys).with_changes(changes), inputs)


def test_each_changed_value_is_one_line_image_and_model_first() -> None:
    serving = of(serve={"args": {"max-num-seqs": 4, "a": "x"}})
    new = of(name="r", model={"revision": "abc"}, serve={"args": {"max-num-seqs": 16}, "env": {"B": "1"}})

    assert difference(serving, new).lines() == [
        f"changes from {serving.id}, which serves:",
        "  recipe: q -> r",
        "  model.revision: not set -> abc",
        "  serve.args.a: x -> not set",
        "  serve.args.max-num-seqs: 4 -> 16",
        "  serve.env.B: not set -> 1",
    ]


def test_of_long_values_the_part_is_shown_that_differs() -> None:
    same = "x" * 200
    serving, new = of(serve={"args": {"a": f"{same}1"}}), of(serve={"args": {"a": f"{same}2"}})

    [change] = difference(serving, new).lines()[1:]

    assert change == f"  serve.args.a: ...{'x' * 12}1 -> ...{'x' * 12}2"


def test_another_image_of_the_same_recipe_is_a_change() -> None:
    serving, new = of(), of(inputs="f" * 64)

    assert difference(serving, new).lines()[1:] == [f"  image: {serving.image} -> {new.image}"]


def test_a_set_that_the_deploy_would_lose_is_named() -> None:
    serving = of("args.a=1", "args.b=2", "args.c=3", serve={"args": {"a": 1, "b": 2, "c": 3}})
    new = of("args.b=5", serve={"args": {"b": 5, "c": 3}})

    found = difference(serving, new)

    assert found.lost == ("args.a=1",), "b is set again, and the file has c now"
    assert found.lines()[-1] == f"  {serving.id} was deployed with --set args.a=1; pass it again to keep it"
    assert found.as_json()["lost"] == ["args.a=1"]


def test_at_most_ten_lines_and_none_of_them_is_long() -> None:
    serving, new = of(), of(serve={"env": {f"E{number:02}": "x" * 200 for number in range(30)}})

    lines = difference(serving, new).lines()[1:]

    assert (len(lines), lines[-1]) == (MOST_LINES, "  and 21 more: sparkops plan --json")
    assert max(map(len, lines)) < 100
    assert len(difference(serving, new).changes) == 30


def test_the_set_of_a_release_is_in_its_record() -> None:
    """A journal has no files of the operator, so that the release itself keeps it."""
    release = of("args.a=1", serve={"args": {"a": 1}})
    record = release_of(deployed(release))

    assert record.recipe.changes == ("args.a=1",)
    assert record.id == release.id
