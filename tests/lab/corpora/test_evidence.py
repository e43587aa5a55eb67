"""The evidence in docs/evidence has the corpus of recipes, and import is as precise there as it claims to be."""

from __future__ import annotations

import json
import re

from tests.places import ROOT

EVIDENCE = ROOT / "docs" / "evidence" / "recipes.jsonl"
RECIPES = [json.loads(line) for line in EVIDENCE.read_text().splitlines()]


def test_the_corpus_has_at_least_60_files_with_their_origin() -> None:
    assert len({file["sha256"] for file in RECIPES}) == len(RECIPES) >= 60
    assert all(re.fullmatch(r"[0-9a-f]{40}", file["commit"]) and file["repository"] for file in RECIPES)


def test_less_than_5_percent_of_the_imports_are_judged_false() -> None:
    judged = [recipe["true"] for recipe in RECIPES]

    assert judged.count(False) / len(judged) < 0.05


def test_each_recipe_is_imported_or_refused_with_reasons() -> None:
    for recipe in RECIPES:
        assert recipe["result"] == "imported" or recipe["reasons"], recipe["path"]
