"""The evidence in docs/evidence covers both corpora, and lint is as precise there as it claims to be."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (EVIDENCE / name).read_text().splitlines()]


@pytest.mark.parametrize("name", ["dockerfiles.jsonl", "recipes.jsonl"])
def test_each_corpus_has_at_least_60_files_with_their_origin(name: str) -> None:
    files = lines(name)

    assert len({file["sha256"] for file in files}) == len(files) >= 60
    assert all(re.fullmatch(r"[0-9a-f]{40}", file["commit"]) and file["repository"] for file in files)


def test_less_than_5_percent_of_the_findings_are_judged_false() -> None:
    judged = [finding["true"] for dockerfile in lines("dockerfiles.jsonl") for finding in dockerfile["findings"]]

    assert judged.count(False) / len(judged) < 0.05


def test_the_page_states_the_precision_of_the_findings() -> None:
    judged = [finding["true"] for dockerfile in lines("dockerfiles.jsonl") for finding in dockerfile["findings"]]
    false = judged.count(False)

    assert f"{false} of {len(judged)} findings are false ({false / len(judged):.1%})".replace("%", " %") in " ".join(
        (EVIDENCE / "README.md").read_text().split()
    )


def test_less_than_5_percent_of_the_imports_are_judged_false() -> None:
    judged = [recipe["true"] for recipe in lines("recipes.jsonl")]

    assert judged.count(False) / len(judged) < 0.05


def test_each_recipe_is_imported_or_refused_with_reasons() -> None:
    for recipe in lines("recipes.jsonl"):
        assert recipe["result"] == "imported" or recipe["reasons"], recipe["path"]
