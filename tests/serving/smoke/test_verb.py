"""`sparkops probe` as far as it goes without a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sparkops.errors import UsageError
from sparkops.operator.cli.main import app
from tests.examples import RECIPE


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """An inventory and a recipe."""
    inventory, recipe = tmp_path / "inventory.yaml", tmp_path / "q.yaml"
    inventory.write_text("nodes: {n1: {address: 10.0.0.1, user: ops}}\n")
    recipe.write_text(yaml.safe_dump({**RECIPE, "probe": {"passes": 2, "smoke": {"text": {"enabled": False}}}}))
    return str(inventory), str(recipe)


def test_the_checks_of_a_recipe_are_listed_with_reasons(files: tuple[str, str]) -> None:
    inventory, recipe = files

    ran = CliRunner().invoke(app, ["-i", inventory, "probe", "chat", "--list", "--recipe", recipe])

    assert ran.exit_code == 0, ran.output
    assert ran.stdout.splitlines()[:2] == ["q: 2 passes in a row", "  health      runs  /health returns 200"]
    assert "  text        off   probe.smoke.text.enabled: false" in ran.stdout.splitlines()


def test_the_list_is_data_too(files: tuple[str, str]) -> None:
    inventory, recipe = files

    ran = CliRunner().invoke(app, ["-i", inventory, "probe", "chat", "--list", "--recipe", recipe, "--json"])

    assert json.loads(ran.stdout)["recipes"]["q"][0] == {"name": "health", "runs": True, "why": "/health returns 200"}


def test_a_recipe_of_another_service_is_refused(files: tuple[str, str]) -> None:
    inventory, recipe = files

    ran = CliRunner().invoke(app, ["-i", inventory, "probe", "other", "--list", "--recipe", recipe])

    assert isinstance(ran.exception, UsageError)
    assert str(ran.exception) == "recipe q: its service is chat, expected other"
