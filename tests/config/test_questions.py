"""The file of `swap.questions`: what is read, and where a mistake is."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkops.config import recipe_file
from sparkops.errors import ConfigError

GOOD = '{"messages": [{"role": "user", "content": "Hello"}]}'


def load(directory: Path, text: str | None, compare: str = "refuse") -> object:
    """A recipe whose questions are this text."""
    recipe = directory / "mine.yaml"
    swap = f"swap: {{compare: {compare}, questions: asked.jsonl}}"
    recipe.write_text(f"name: mine\nextends: tiny-qwen3-cpu\ndescription: x\nverified: Nothing yet.\n{swap}\n")
    if text is not None:
        (directory / "asked.jsonl").write_text(text)
    return recipe_file.load(recipe).swap.questions


def test_questions_are_requests_one_a_line(tmp_path: Path) -> None:
    assert load(tmp_path, f"{GOOD}\n\n{GOOD}\n") == "asked.jsonl"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "mine.yaml:1: swap.questions: "),
        ("", "asked.jsonl:1: 0 questions, expected 1 to 16"),
        (f"{GOOD}\n" * 17, "asked.jsonl:1: 17 questions, expected 1 to 16"),
        (f"{GOOD}\n{{", "asked.jsonl:2: not JSON: "),
        ('{"prompt": "x"}', "asked.jsonl:1: messages: missing, expected a request of /v1/chat/completions"),
        ("[" * 100_000, "asked.jsonl:1: not JSON: JSON is nested too deeply"),
        ("x" * (2**20 + 1), "asked.jsonl:1: expected at most 1048576 bytes"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, text: str | None, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("/", r"\/")):
        load(tmp_path, text)


def test_questions_without_a_comparison_are_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"mine.yaml:5: swap.questions: expected none without swap.compare"):
        load(tmp_path, GOOD, "null")
