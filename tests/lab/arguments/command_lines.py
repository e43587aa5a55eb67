"""The command lines of recipes, wrong examples, and the script with which a vLLM judges both."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import TypedDict

from sparkops.config import assets, recipe_file, shipped
from sparkops.config.recipe import Recipe
from sparkops.operator.build.images.arguments import command_lines

SCRIPT = assets.load_parser("vllm")
"""Run by the Python of a vLLM with `-`, a platform and command lines by name as JSON; prints a Judgement as JSON."""
WRONG = {
    "an unknown argument": [["serve", "/models/q", "--no-such-argument=1"]],
    "a value that is none": [["serve", "/models/q", "--kv-cache-dtype=turboquant35"]],
    "JSON that is none": [["serve", "/models/q", "--speculative-config={method: mtp}"]],
    "a tool parser that is none": [["serve", "/models/q", "--enable-auto-tool-choice", "--tool-call-parser=qwen9"]],
    "a reasoning parser that is none": [["serve", "/models/q", "--reasoning-parser=qwen9"]],
}
"""Command lines that every version refuses: a parser that accepts one judges nothing."""


class Judgement(TypedDict):
    """The verdict of one vLLM: its problem with each named command line, empty if accepted."""

    python: str
    torch: str
    problems: dict[str, str]


def recipes() -> list[Recipe]:
    """Return the shipped recipes, by name."""
    return [recipe_file.load(file) for file in shipped.recipes().values()]


def vllm_recipes() -> list[Recipe]:
    """Return the shipped recipes that start vLLM, by name."""
    return [shipped_recipe for shipped_recipe in recipes() if shipped_recipe.engine == "vllm"]


def digest(of: Recipe) -> str:
    """Return a short hash that changes with the recipe's command lines."""
    return hashlib.sha256(json.dumps(command_lines(of)).encode()).hexdigest()[:12]


def to_judge(judged: Iterable[Recipe]) -> Mapping[str, list[list[str]]]:
    """Return the command lines of recipes and the wrong examples, by name."""
    return {of.name: command_lines(of) for of in judged} | WRONG
