"""A second checkpoint, for speculative decoding: a node must have it as it must have the model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pydantic import ValidationError

from sparkops.operator.build.weights.steps import read_by_engine
from sparkops.operator.deploy.preconditions import Current
from tests.examples import CHECKPOINT, recipe, release
from tests.operator.deploy.swaps import on, plan, refusal

WITH_DRAFT = release(model={"draft": {"id": "org/draft", "path": "draft"}})


def test_a_node_without_the_draft_is_refused() -> None:
    lacking = refusal(Current(), of=WITH_DRAFT, n1=on(90))

    assert "needs: weights (sparkops up q brings them)" in str(lacking)


def test_a_node_with_both_is_accepted() -> None:
    both = replace(on(90), draft=replace(CHECKPOINT, path="draft"))

    assert plan(Current(), of=WITH_DRAFT, n1=both).rank.node == "n1"


def test_the_draft_is_downloaded_and_read_after_the_model() -> None:
    model = WITH_DRAFT.recipe.model

    assert [(place, weights.path) for place, weights in model.places] == [
        (("model",), "q"),
        (("model", "draft"), "draft"),
    ]
    assert [required.path for required in read_by_engine(WITH_DRAFT.recipe)] == ["q", "draft"]


def test_a_recipe_without_a_draft_is_dumped_as_before() -> None:
    assert "draft" not in recipe().model.model_dump()


def test_a_draft_has_a_directory_of_its_own() -> None:
    with pytest.raises(ValidationError, match="a directory of its own for `draft`"):
        recipe(model={"draft": {"id": "org/draft", "path": "q"}})
