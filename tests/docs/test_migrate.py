"""docs/migrate.md: each recipe of another tool is imported from the page's own text, with the output that it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sparkops.config import recipe_file
from sparkops.operator.cli.main import app
from tests.docs.pages import Page
from tests.docs.test_commands import YAML

TEXT = Page("docs/migrate.md").text
PAIRS = list(zip(YAML.findall(TEXT), re.findall(r"^\$ sparkops (import .+)$", TEXT, re.MULTILINE), strict=True))
"""Each recipe of the page, with the command that imports it."""
SCRIPT = re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL)
SHOWN = TEXT.partition("-o recipes/mine.yaml\n")[2].partition("$ sparkops plan")[0].splitlines()


def imported(text: str, command: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Import a recipe as the page does, into recipes/mine.yaml. Return what is printed."""
    directory.mkdir(exist_ok=True)
    monkeypatch.chdir(directory)
    Path(command.split()[1]).write_text(text)
    ran = CliRunner().invoke(app, command.split())
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.mark.parametrize(("text", "command"), [*PAIRS, (*SCRIPT, PAIRS[-1][1])])
def test_each_recipe_is_imported_by_the_command_of_the_page(
    text: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(text, command, tmp_path, monkeypatch)
    loaded = recipe_file.load(Path("recipes/mine.yaml"))

    assert loaded.service == "qwen3.6-35b-a3b-fp8"
    assert loaded.image.use == ("vllm/vllm-openai:v0.23.0" if "--use" in command else None)


def test_the_page_has_the_three_ways() -> None:
    assert len(PAIRS) == 3
    assert ["--use" in command for _, command in PAIRS] == [False, False, True]


def test_the_output_on_the_page_is_that_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = imported(*PAIRS[0], tmp_path, monkeypatch).splitlines()

    assert lines == SHOWN


def test_names_for_clients_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, (text, command) in enumerate(PAIRS[1:]):
        imported(text, command, tmp_path / str(number), monkeypatch)

        assert recipe_file.load(Path("recipes/mine.yaml")).serve.aliases == ["qwen"]
