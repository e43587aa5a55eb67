"""Recipes of other tools, written by a test and converted."""

from __future__ import annotations

from pathlib import Path

from sparkops.config import source
from sparkops.config.recipe import Recipe
from sparkops.operator.convert import other_tools
from sparkops.operator.convert.conversion import IMPORTED, Choices, Conversion

HEAD = "recipe_version: '1'\nmodel: a/b\n"
"""The head of a recipe with a command."""
KEYS = "recipe_version: '2'\nmodel: a/b\n"
"""The head of one whose flags are its `defaults`."""


def of(tmp_path: Path, text: str, choices: Choices = IMPORTED) -> Conversion:
    """Convert a recipe; what it becomes is one that sparkops reads."""
    file = tmp_path / "a.yaml"
    file.write_text(text)
    conversion = other_tools.convert(other_tools.read(file), text, "mine", choices)
    source.validate(source.Source(file, conversion.data, conversion.lines), Recipe)
    return conversion
