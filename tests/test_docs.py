"""The documentation says what the code does."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import is_dataclass

import pytest
from pydantic import BaseModel

from sparkops.config import inventory, recipe, smoke
from sparkops.config.fields import Section
from sparkops.config.inventory import Inventory
from sparkops.config.recipe import Recipe
from sparkops.config.reference import as_model, described, reference
from sparkops.errors import SparkopsError
from sparkops.operator.cli import verbs
from sparkops.operator.status import picture
from sparkops.operator.status.doctor import diagnosis
from sparkops.operator.status.picture import Status
from sparkops.swap.model import Phase
from tests.places import ROOT

VERBS = {name: verb.load(name) for name, verb in verbs.LEAVES.items()}
OPERATIONS = (ROOT / "docs/operations.md").read_text()
BUG = 3
"""Exit code of an error that sparkops did not foresee (operator/cli/main.py)."""


def models() -> list[type[BaseModel]]:
    """Every model that a file or `--json` shows, in the order in which they are written."""
    sections = (value for module in (inventory, recipe, smoke, diagnosis) for value in vars(module).values())
    shown = (value for value in sections if inspect.isclass(value) and issubclass(value, BaseModel))
    rows = (as_model(value) for value in vars(picture).values() if inspect.isclass(value) and is_dataclass(value))
    return list(dict.fromkeys(model for model in (*shown, *rows) if model not in (BaseModel, Section)))


@pytest.mark.parametrize("model", models(), ids=lambda model: model.__name__)
def test_every_model_and_field_says_what_it_means(model: type[BaseModel]) -> None:
    assert inspect.getdoc(model) != inspect.getdoc(BaseModel)
    assert [name for name, meaning in described(model) if not meaning] == []


@pytest.mark.parametrize(
    ("name", "model"), [("recipe", Recipe), ("inventory", Inventory), ("status", as_model(Status))]
)
def test_the_reference_is_as_the_models_say(name: str, model: type[BaseModel]) -> None:
    """If not: sparkops recipe schema NAME --markdown -o docs/NAME.md."""
    assert (ROOT / f"docs/{name}.md").read_text() == reference(model)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_and_each_of_its_options_has_help(verb: str) -> None:
    command = VERBS[verb]

    line = (command.help or "").splitlines()[0]
    assert line
    assert len(line) < 60
    assert not line.endswith(".")
    assert [
        option.name for option in command.params if option.name != "help" and not getattr(option, "help", None)
    ] == []


def test_operations_explain_every_phase_and_every_exit_code() -> None:
    rows = re.findall(r"^\| (.+?) \|", OPERATIONS, re.MULTILINE)
    phases = {
        phase
        for row in rows
        if re.fullmatch(r"(`[^`]+`(, )?)+( \(in place(, rolling)?\))?", row)
        for phase in re.findall(r"`([^`]+)`", row)
    }
    codes = {int(row) for row in rows if row.isdecimal()}

    assert phases == {phase.value for phase in Phase}
    assert codes == {0, BUG, *_exit_codes(SparkopsError)}


def _exit_codes(kind: type[SparkopsError]) -> Iterator[int]:
    yield kind.exit_code
    for subclass in kind.__subclasses__():
        yield from _exit_codes(subclass)


def test_operations_use_verbs_and_options_that_exist() -> None:
    visible = re.sub(r"<!--.*?-->", "", OPERATIONS, flags=re.DOTALL)
    commands = re.findall(r"^\$ sparkops (\S+)(.*?)(?: +#.*)?$", visible, re.MULTILINE)
    assert len(commands) > 8
    for verb, words in commands:
        command = VERBS.get(verb) or VERBS[f"{verb} {words.split()[0]}"]
        known = {option for parameter in command.params for option in parameter.opts}
        assert set(re.findall(r"--[a-z-]+", words)) <= known, verb
