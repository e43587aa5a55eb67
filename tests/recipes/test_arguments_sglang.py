"""docs/evidence/arguments-sglang.md against the recipes: each has a row for its arguments as they are now."""

from __future__ import annotations

from tests.lab.arguments.sglang import ACCEPTED, PAGE, command_lines, digest, sglang_recipes

ROWS = [
    tuple(part.strip() for part in line.strip("|").split("|"))
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| recipe", "| ---"))
]


def test_every_recipe_has_a_row_of_its_arguments_as_they_are_now() -> None:
    assert [(row[0], row[2]) for row in ROWS] == [(of.name, digest(of)) for of in sglang_recipes()], "make arguments"


def test_the_parser_accepts_all_but_what_is_in_a_recipes_own_image() -> None:
    assert all(row[1].startswith((ACCEPTED, "not accepted, only in the recipe's image")) for row in ROWS)


def test_each_rank_is_judged() -> None:
    for of in sglang_recipes():
        lines = command_lines(of)

        assert len(lines) == of.serve.tensor_parallel
        assert all(line[0].startswith("--model-path=/models/") for line in lines)
