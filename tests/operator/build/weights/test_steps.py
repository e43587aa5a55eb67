"""The steps that make a model: what each makes, and which are due."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparkops.config.recipe import Recipe
from sparkops.operator.build.weights import steps
from sparkops.operator.build.weights.checkpoint import Checkpoint, ModelDirectory, Origin
from tests.examples import CHECKPOINT, recipe

SOURCES = [{"id": "org/int4", "path": "int4"}, {"id": "org/fp8", "revision": "abc1234", "path": "fp8"}]
HYBRID = {
    "script": "replace-tensors",
    "inputs": {"base": "int4", "donor": "fp8"},
    "output": "hybrid",
    "args": {"tensors": "shared_expert"},
    "disk_gb": 3.0,
}
MTP = {"script": "add-tensors", "inputs": {"base": "hybrid", "donor": "int4"}, "output": "q", "disk_gb": 1.0}


def made_of(*changes: dict[str, Any]) -> Recipe:
    hybrid, mtp = ({**step, **change} for step, change in zip((HYBRID, MTP), [*changes, {}, {}][:2], strict=True))
    return recipe(model={"sources": SOURCES, "steps": [hybrid, mtp]})


RECIPE = made_of()


def directory(free_gb: float = 100, **checkpoints: Checkpoint | None) -> ModelDirectory:
    """A directory with the sources, and what else is said."""
    have = {"int4": CHECKPOINT, "fp8": CHECKPOINT, **checkpoints}
    named = {
        path.replace("_", "."): replace(checkpoint, path=path.replace("_", "."))
        for path, checkpoint in have.items()
        if checkpoint
    }
    return ModelDirectory(True, True, int(free_gb * 10**9), 1000, 1000, named)


def output(path: str, of: Recipe = RECIPE) -> Checkpoint:
    return replace(CHECKPOINT, origin=Origin("org/q", steps=steps.digests(of.model)[path]))


def due(on: ModelDirectory) -> list[str]:
    return [step.output for step in steps.outstanding(RECIPE.model, on)]


def test_the_engine_reads_what_the_last_step_makes() -> None:
    model = steps.engine_reads(RECIPE)

    assert (model.path, model.model, model.steps) == ("q", "org/q", steps.digests(RECIPE.model)["q"])
    assert steps.engine_reads(recipe()).steps is None


def test_the_digest_is_the_same_on_every_machine_and_day() -> None:
    assert steps.digests(RECIPE.model)["hybrid"][:12] == "c8a9e8533148"


def test_a_change_of_a_step_is_a_change_of_all_that_is_made_from_it() -> None:
    before, after = steps.digests(RECIPE.model), steps.digests(made_of({"args": {"tensors": "other"}}).model)

    assert set(before) == set(after) == {"hybrid", "q"}
    assert not set(before.values()) & set(after.values())


def test_the_room_that_a_step_needs_is_no_part_of_what_it_makes() -> None:
    assert steps.digests(made_of({"disk_gb": 9.0}).model) == steps.digests(RECIPE.model)


def test_each_step_is_taken_once() -> None:
    assert due(directory()) == ["hybrid", "q"]
    assert due(directory(hybrid=output("hybrid"))) == ["q"]
    assert due(directory(q=output("q"))) == []  # what it was made from may be gone
    assert due(directory(q=output("q"), int4=None, fp8=None)) == []


def test_what_was_made_by_other_steps_is_made_again() -> None:
    before = output("q", made_of({"args": {"tensors": "other"}}))

    assert due(directory(hybrid=output("hybrid"), q=before)) == ["q"]


def lacking(on: ModelDirectory) -> tuple[str, str] | None:
    refusal = steps.lacking(RECIPE, "n1", steps.outstanding(RECIPE.model, on), on)
    return (str(refusal), refusal.next_step) if refusal else None


def test_nothing_is_lacking_where_sources_and_room_are_there() -> None:
    assert lacking(directory(free_gb=4)) is None
    assert lacking(directory(free_gb=0, q=output("q"))) is None
    assert (
        lacking(directory(free_gb=1, hybrid=output("hybrid"), fp8=None)) is None
    )  # only q is due, and it reads no fp8


@pytest.mark.parametrize(
    ("on", "lack"),
    [
        (directory(fp8=None), ("n1: fp8 is unusable: not found", "sparkops models pull q --node n1")),
        (
            directory(free_gb=3.5),
            (
                "n1: 3.3 GiB free, 3.7 GiB needed: 476.8 MiB short",
                "Free space under the model directory: sparkops models list",
            ),
        ),
    ],
    ids=["source", "room"],
)
def test_what_is_lacking_is_said_with_its_next_step(on: ModelDirectory, lack: tuple[str, str]) -> None:
    assert lacking(on) == lack


def test_what_an_interrupted_step_has_written_needs_no_more_room() -> None:
    partial = replace(CHECKPOINT, files={"model.safetensors": (10**9, 1)})

    assert lacking(directory(free_gb=3, hybrid_partial=partial)) is None


def test_the_remedy_is_a_command() -> None:
    assert steps.remedy(RECIPE, "n1") == "sparkops models prepare q --node n1"
    assert steps.remedy(recipe(), "n1").startswith("sparkops models pull q --node n1")
