"""The known recipes: those that come with sparkops, and those of the working directory, with their folders."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from sparkops.config import recipe_file, shipped
from sparkops.errors import UsageError
from sparkops.operator.cli.named import find_recipe
from tests.examples import RECIPE

OWN = {"description": "A variant", "verified": "Nothing yet."}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(file: str, **changes: object) -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"name": path.stem, **(changes or {**RECIPE, "name": path.stem})}))
    return path


def test_every_shipped_recipe_is_listed_once_with_those_in_folders() -> None:
    files = [*(shipped.PACKAGE.parent / "recipes").rglob("*.yaml")]

    assert sorted(shipped.recipes().values()) == sorted(files)
    assert list(shipped.recipes()) == sorted(file.stem for file in files)


def test_the_operators_recipes_come_first_and_those_of_a_folder_after_those_outside() -> None:
    write("recipes/122b-fp8-tp2.yaml")
    write("recipes/chat/122b-autoround.yaml")
    write("recipes/chat/both.yaml")
    write("recipes/both.yaml")
    write("recipes/their/checkout/deep.yaml")

    known = shipped.known_recipes()

    assert {name: str(file) for name, file in known.items() if name not in shipped.recipes()} == {
        "both": "recipes/both.yaml"
    }
    assert str(known["122b-fp8-tp2"]) == "recipes/122b-fp8-tp2.yaml"
    assert str(known["122b-autoround"]) == "recipes/chat/122b-autoround.yaml"
    assert list(known) == sorted(known)


@pytest.mark.parametrize(
    "named",
    [
        "122b-fp8-tp2",
        "122b-fp8-tp2.yaml",
        "recipes/122b-fp8-tp2",
        "recipes/122b-fp8-tp2.yaml",
        "qwen3.5-122b/122b-fp8-tp2",
        "recipes/qwen3.5-122b/122b-fp8-tp2.yaml",
    ],
)
def test_a_recipe_in_a_folder_is_found_by_its_name_and_by_both_paths(named: str) -> None:
    """recipes/NAME.yaml is where it was before."""
    assert find_recipe(named) == (shipped.PACKAGE.parent / "recipes") / "qwen3.5-122b/122b-fp8-tp2.yaml"


@pytest.mark.parametrize("named", ["recipes/other/122b-fp8-tp2.yaml", "a/recipes/122b-autoround.yaml"])
def test_a_path_that_is_not_there_is_no_name(named: str) -> None:
    with pytest.raises(UsageError, match="recipe not found"):
        find_recipe(named)


def test_a_variant_in_a_folder_extends_the_recipe_outside_and_its_neighbour() -> None:
    write("recipes/base.yaml")
    variant = write("recipes/chat/variant.yaml", extends="base", memory={"claim_gib": 7.0}, **OWN)
    other = write("recipes/chat/other.yaml", extends="variant", **OWN)

    assert recipe_file.load(variant).model.path == RECIPE["model"]["path"]
    assert recipe_file.load(other).memory.claim_gib == 7.0


@pytest.mark.parametrize("base", ["122b-autoround", "122b-nvfp4-sehyo"])
def test_a_recipe_of_the_operator_extends_a_shipped_one_wherever_that_lies(base: str) -> None:
    loaded = recipe_file.load(write("mine.yaml", extends=base, **OWN))

    assert loaded.service == "qwen3.5-122b"
    assert loaded.file == Path("mine.yaml")


def test_a_file_above_any_other_folder_is_no_base() -> None:
    write("base.yaml")
    file = write("chat/variant.yaml", extends="base", **OWN)

    with pytest.raises(Exception, match=r"chat/variant\.yaml:\d+: extends: recipe 'base' not found"):
        recipe_file.load(file)
