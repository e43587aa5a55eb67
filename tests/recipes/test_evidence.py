"""docs/evidence/recipes.md against the recipes: each figure and flag that a recipe states has a row with its value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import shipped

ROW = re.compile(r"^\| (?P<recipe>\S+) \| `(?P<key>[^`]+)` \| (?P<value>.+?) \| .+? \| (?P<verdict>.+?) \|$")
TABLE = [
    row.groupdict()
    for line in (Path(__file__).parents[2] / "docs/evidence/recipes.md").read_text().splitlines()
    if (row := ROW.match(line))
]
FIGURES = ("tok_s", "ttft_s", "cold_start_s")
FILES = [
    file
    for file in sorted(shipped.directory("recipes").glob("*.yaml"))
    if not file.stem.startswith(("tiny-", "stand-in"))
]
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def stated(file: Path) -> dict[str, Any]:
    """Return the figures and flags that the file itself states, by key; inherited ones are its parent's."""
    data = yaml.safe_load(file.read_text())
    serve, model = data.get("serve") or {}, data.get("model") or {}
    values = {**(serve.get("args") or {}), **(serve.get("env") or {})}
    values |= {key: serve[key] for key in ("tensor_parallel", "executor") if key in serve}
    values |= {key: model[key] for key in ("id", "revision", "size_gb") if key in model}
    values |= {key: value for key, value in (data.get("memory") or {}).items() if key == "claim_gib"}
    return values | {key: value for key, value in (data.get("expected") or {}).items() if key in FIGURES}


def rows(name: str) -> dict[str, dict[str, str]]:
    return {row["key"]: row for row in TABLE if row["recipe"] == name}


@EACH
def test_every_figure_and_flag_has_a_row_with_its_value(file: Path) -> None:
    documented = {key: row["value"].replace("\\|", "|") for key, row in rows(file.stem).items() if row["value"] != "-"}

    shown = {key: value if isinstance(value, str) else json.dumps(value) for key, value in stated(file).items()}
    assert documented == {key: f"`{value}`" for key, value in shown.items()}


@EACH
def test_a_row_without_a_value_says_why_it_is_left_out(file: Path) -> None:
    for key, row in rows(file.stem).items():
        assert row["value"] != "-" or row["verdict"].startswith("left out"), key


@EACH
def test_no_figure_rests_on_a_neighbour_or_on_a_choice(file: Path) -> None:
    verdicts = {key: row["verdict"] for key, row in rows(file.stem).items() if key in FIGURES and row["value"] != "-"}

    assert all(verdict.startswith(("stated", "corrected")) for verdict in verdicts.values()), verdicts


def test_no_row_is_of_a_recipe_that_does_not_exist() -> None:
    assert {row["recipe"] for row in TABLE} == {file.stem for file in FILES}


# What the first check let through: the figure belongs to a neighbour, so the recipe does not have it.
@pytest.mark.parametrize(
    ("name", "section", "key"),
    [
        ("122b-nvfp4-sehyo-32k", "expected", "cold_start_s"),
        ("122b-heretic-vllm", "model", "size_gb"),
        ("122b-autoround-hybrid-mtp1", "expected", "ttft_s"),
        ("122b-autoround-v2-tq", "expected", "tok_s"),
        ("122b-autoround-tp2", "expected", "tok_s"),
        ("397b-nvfp4-tp2", "model", "size_gb"),
        ("deepseek-v4-flash-tp2", "expected", "tok_s"),
    ],
)
def test_a_neighbours_figure_is_left_out(name: str, section: str, key: str) -> None:
    data = yaml.safe_load((shipped.directory("recipes") / f"{name}.yaml").read_text())

    assert key not in (data.get(section) or {})
