"""docs/evidence/recipes.md against the recipes: each figure, flag and pin that one states has a row with its value."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sparkops.config import overlay, shipped
from tests.places import ROOT

ROW = re.compile(r"^\| (?P<recipe>\S+) \| `(?P<key>[^`]+)` \| (?P<value>.+?) \| .+? \| (?P<verdict>.+?) \|$")
TABLE = [
    row.groupdict() for line in (ROOT / "docs/evidence/recipes.md").read_text().splitlines() if (row := ROW.match(line))
]
IMAGE = ("use", "base", "backend", "torch", "vllm", "source", "packages", "override", "remove")
"""What an image is made of: keys of `image`, without those of which this project is the only source."""
MODEL = ("id", "revision", "size_gb")
FIGURES = ("tok_s", "ttft_s", "cold_start_s")
FILES = [file for file in shipped.recipes().values() if not file.stem.startswith(("tiny-", "stand-in"))]
EACH = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def stated(data: dict[str, Any]) -> dict[str, Any]:
    """Return the figures, flags and pins of a recipe's data, by key; those of image and draft with their section."""
    serve, model, image = (data.get(section) or {} for section in ("serve", "model", "image"))
    draft = model.get("draft") or {}
    values = {**(serve.get("args") or {}), **(serve.get("env") or {})}
    values |= {key: serve[key] for key in ("tensor_parallel", "pipeline_parallel", "executor") if key in serve}
    values |= {f"image.{key}": image[key] for key in IMAGE if key in image}
    values |= {key: model[key] for key in MODEL if key in model}
    values |= {f"draft.{key}": draft[key] for key in MODEL if key in draft}
    values |= {key: value for key, value in (data.get("memory") or {}).items() if key == "claim_gib"}
    return values | {key: value for key, value in (data.get("expected") or {}).items() if key in FIGURES}


def rows(name: str) -> dict[str, dict[str, str]]:
    return {row["key"]: row for row in TABLE if row["recipe"] == name}


@EACH
def test_every_figure_and_flag_has_a_row_with_its_value(file: Path) -> None:
    """An inherited value has its row with the recipe that states it, and may have another one here."""
    documented = {key: row["value"].replace("\\|", "|") for key, row in rows(file.stem).items() if row["value"] != "-"}
    inherited, own = shown(overlay.read(file).data), shown(yaml.safe_load(file.read_text()))

    assert own.items() <= documented.items()
    assert documented.items() <= {**inherited, **own}.items()


def shown(data: object) -> dict[str, str]:
    """Return the values of a recipe's data as the table has them, by key."""
    assert isinstance(data, dict)
    values = stated(data).items()
    return {key: f"`{value if isinstance(value, str) else json.dumps(value)}`" for key, value in values}


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
    data = yaml.safe_load(shipped.recipes()[name].read_text())

    assert (data.get(section) or {}).get(key) is None
