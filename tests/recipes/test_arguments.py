"""docs/evidence/arguments.md against the recipes: each has a row for its version and arguments as they are now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkops.config.recipe import Recipe
from sparkops.operator.build.images.arguments import command_lines
from tests.lab.arguments import page
from tests.lab.arguments.command_lines import digest, recipes, vllm_recipes
from tests.lab.arguments.page import ACCEPTED, NEWEST, NOT_RUN, Row

RECIPES = recipes()
ROWS = {row.recipe: row for row in page.rows()}
EACH = pytest.mark.parametrize("of", RECIPES, ids=lambda of: of.name)
EACH_OF_VLLM = pytest.mark.parametrize("of", vllm_recipes(), ids=lambda of: of.name)


def test_every_recipe_has_one_row() -> None:
    assert [row.recipe for row in page.rows()] == [of.name for of in RECIPES]


@EACH
def test_the_row_is_of_the_version_and_arguments_that_the_recipe_has_now(of: Recipe) -> None:
    row = ROWS[of.name]
    judges = page.parsers(of.image.vllm) if of.image.vllm else ()
    problems = {judge: {of.name: ""} for judge in (*judges, NEWEST)}
    now = replace(page.row(of, problems), verdict=row.verdict, newest=row.newest)

    assert row == now, "run `make arguments`"


@EACH
def test_its_own_vllm_accepts_the_arguments_or_could_not_run(of: Recipe) -> None:
    assert ROWS[of.name].verdict in (ACCEPTED, *NOT_RUN.values())
    assert (ROWS[of.name].verdict == NOT_RUN["engine"]) == (of.engine != "vllm")


@EACH_OF_VLLM
def test_each_rank_that_starts_vllm_is_judged(of: Recipe) -> None:
    lines = command_lines(of)

    joined = of.serve.ranks > 1
    assert [line[0] for line in lines] == ["serve"] * (of.serve.ranks if of.serve.executor == "mp" else 1)
    assert all((f"--tensor-parallel-size={of.serve.tensor_parallel}" in line) == joined for line in lines)


def test_a_changed_argument_changes_the_hash() -> None:
    of = vllm_recipes()[0]
    changed = of.model_copy(update={"serve": of.serve.model_copy(update={"args": {**of.serve.args, "seed": 1}})})

    assert digest(changed) != digest(of)


def test_a_row_with_a_bar_in_a_problem_is_read_as_it_was_written() -> None:
    row = Row("r", "0.23.0", "0.23.0, the wheel", "accepted", "choose from a|b", "0" * 12)

    line = page.table(("recipe",), [row]).splitlines()[-1]

    assert Row.read(line) == replace(row, newest="choose from a\\|b")


def test_the_verdict_names_every_problem_once() -> None:
    problems: dict[str, dict[str, str] | str] = {"a": {"r": ""}, "b": {"r": "no"}, "c": {"r": "no"}, "d": "not run"}

    verdicts = [page.verdict("r", judges, problems) for judges in ("a", "ab", "abc", "d")]

    assert verdicts == [ACCEPTED, "no", "no", "not run"]
