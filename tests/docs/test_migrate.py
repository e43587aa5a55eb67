"""docs/migrate.md: each recipe of another tool is imported from the page's own text, with the output that it shows."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sparkops.cli.main import app
from sparkops.config import recipe
from tests.docs.pages import Page
from tests.docs.test_commands import YAML

TEXT = Page("docs/migrate.md").text
*ORIGINALS, IMAGE = YAML.findall(TEXT)
SHOWN = TEXT.partition("-o recipes/mine.yaml\n")[2].partition("$ sparkops plan")[0].splitlines()


def imported(text: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Import a recipe as the page does, into recipes/mine.yaml. Return what is printed."""
    monkeypatch.chdir(directory)
    Path("theirs.yaml").write_text(text)
    ran = CliRunner().invoke(app, ["import", "theirs.yaml", "-o", "recipes/mine.yaml"])
    assert ran.exit_code == 0, ran.output
    return ran.output


@pytest.mark.parametrize("number", range(3))
def test_each_recipe_is_imported_and_takes_a_finished_image(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported(ORIGINALS[number], tmp_path, monkeypatch)
    own = Path("recipes/mine.yaml")

    assert recipe.load(own).service == "qwen3.6-35b-a3b-fp8"
    own.write_text(yaml.safe_dump({**yaml.safe_load(own.read_text()), **yaml.safe_load(IMAGE)}))
    assert recipe.load(own).image.use == "vllm/vllm-openai:v0.23.0"


def test_the_output_on_the_page_is_that_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = imported(ORIGINALS[0], tmp_path, monkeypatch).splitlines()

    assert SHOWN
    assert [line for line in SHOWN if line not in lines] == []


def test_names_for_clients_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for original in ORIGINALS[1:]:
        imported(original, tmp_path, monkeypatch)

        assert recipe.load(Path("recipes/mine.yaml")).serve.aliases == ["qwen"]
