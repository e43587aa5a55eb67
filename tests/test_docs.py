"""The documentation says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel

from sparkops.cli.main import app
from sparkops.config import inventory, recipe, smoke
from sparkops.config.fields import Section
from sparkops.config.inventory import Inventory
from sparkops.config.recipe import Recipe
from sparkops.plan import picture
from sparkops.plan.picture import Status
from sparkops.render.reference import described, reference

ROOT = Path(__file__).parent.parent
VERBS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
README = (ROOT / "README.md").read_text()


def models() -> list[type[BaseModel]]:
    """Every model that a file or `--json` shows, in the order in which they are written."""
    found = (each for module in (inventory, recipe, smoke, picture) for each in vars(module).values())
    shown = (each for each in found if inspect.isclass(each) and issubclass(each, BaseModel))
    return list(dict.fromkeys(each for each in shown if each not in (BaseModel, Section, picture._Row)))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_model_and_field_says_what_it_means(model: type[BaseModel]) -> None:
    assert inspect.getdoc(model) != inspect.getdoc(BaseModel)
    assert [name for name, meaning in described(model) if not meaning] == []


@pytest.mark.parametrize(("name", "model"), [("recipe", Recipe), ("inventory", Inventory), ("status", Status)])
def test_the_reference_is_as_the_models_say(name: str, model: type[BaseModel]) -> None:
    """If not: sparkops schema NAME --markdown -o docs/NAME.md."""
    assert (ROOT / f"docs/{name}.md").read_text() == reference(model)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_each_of_its_options_has_help(verb: str) -> None:
    command = VERBS[verb]

    assert (command.help or "").strip().endswith(".")
    assert [each.name for each in command.params if each.name != "help" and not getattr(each, "help", None)] == []


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_stands_in_the_readme(verb: str) -> None:
    assert re.search(rf"(sparkops |`){verb}\b", README)
