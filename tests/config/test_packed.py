"""The archive of a wheel: its files are read as those of a checkout."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.config import assets, recipe_file, shipped
from sparkops.errors import ConfigError
from sparkops.operator.cli.named import find_recipe
from tests.places import ROOT

CHECKOUT = ROOT
LOCK = CHECKOUT / "recipes/qwen3.5-122b/122b-heretic-atlas.lock"


def forget() -> None:
    """Let what was read of the checkout, or of the archives, be read again."""
    shipped.archive.cache_clear()
    shipped.recipes.cache_clear()
    assets._shipped_mod_files.cache_clear()


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recipes, templates and a module of the guard as a wheel has them; returns what names the recipes' directory."""
    sources = [*(CHECKOUT / "recipes").rglob("*.yaml"), *(CHECKOUT / "templates").rglob("*"), LOCK]
    files = [file for file in sources if file.is_file() and file.suffix != ".pyc"]
    texts = {file.relative_to(CHECKOUT).as_posix(): file.read_text() for file in files}
    texts |= {"recipes/one.lock": LOCK.read_text(), "recipes/family/two.lock": "schema: [1", "sparkops/guard/a.py": "1"}
    shipped_ = tmp_path / "sparkops/shipped"
    shipped_.mkdir(parents=True)
    for name in (shipped.RECIPES, shipped.PROGRAMS):
        packed = {path: text for path, text in texts.items() if path.startswith("recipes/") is (name == "recipes")}
        (shipped_ / f"{name}.json.xz").write_bytes(lzma.compress(json.dumps(packed).encode()))
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "sparkops")
    forget()
    yield shipped_ / "recipes"
    forget()


@pytest.mark.usefixtures("wheel")
def test_recipes_of_the_archive_are_those_of_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    packed = {name: recipe_file.load_unlocked(file).model_dump() for name, file in shipped.known_recipes().items()}
    monkeypatch.undo()
    forget()

    assert packed == {name: recipe_file.load_unlocked(file).model_dump() for name, file in shipped.recipes().items()}


def test_a_recipe_is_named_by_its_folder_and_one_of_the_operator_extends_it(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "mine.yaml"
    own.write_text("name: mine\nextends: 122b-fp8-tp2\ndescription: Mine\nverified: Nothing yet.\n")

    assert find_recipe("qwen3.5-122b/122b-fp8-tp2.yaml") == wheel / "qwen3.5-122b/122b-fp8-tp2.yaml"
    assert recipe_file.load(own).service == "qwen3.5-122b"


@pytest.mark.parametrize("pattern", ["*.j2", "*/*.j2", "*.py", "*.Dockerfile.j2", "none/*.py"])
@pytest.mark.usefixtures("wheel")
def test_files_of_the_archive_are_found_as_in_a_directory(pattern: str) -> None:
    packed, root = shipped.directory("templates"), CHECKOUT / "templates"

    for found, expected in ((packed.glob(pattern), root.glob(pattern)), (packed.rglob(pattern), root.rglob(pattern))):
        texts = {str(file): file.read_text() for file in found}
        assert texts == {str(file.relative_to(CHECKOUT)): file.read_text() for file in expected}
    below = (packed / "gateway" / "program").glob("*.py")
    names = sorted(file.name for file in (root / "gateway/program").glob("*.py"))
    assert [file.name for file in sorted(below)] == names


@pytest.mark.usefixtures("wheel")
def test_what_is_not_in_the_archive_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="templates/none is not in the archive programs"):
        (shipped.directory("templates") / "none").read_bytes()


def test_the_guard_is_part_of_the_package_although_it_is_in_the_archive(wheel: Path) -> None:
    (wheel.parents[1] / "names.py").write_text("2")

    assert assets.load_package() == {"guard/a.py": b"1", "names.py": b"2"}


def test_a_lock_of_the_archive_is_as_one_that_is_a_file(wheel: Path) -> None:
    assert recipe_file.read_lock(wheel / "one.lock") == recipe_file.read_lock(LOCK)


def test_recipes_elsewhere_and_unlocked_ones_have_no_lock_there(wheel: Path, tmp_path: Path) -> None:
    assert recipe_file.read_lock(wheel / "two.lock") is None
    assert recipe_file.read_lock(tmp_path / "one.lock") is None


def test_a_lock_that_was_made_beside_the_recipe_counts(wheel: Path) -> None:
    wheel.mkdir()
    (wheel / "one.lock").write_text("schema: [1")

    with pytest.raises(ConfigError, match=r"one\.lock:1: not YAML"):
        recipe_file.read_lock(wheel / "one.lock")


def test_an_error_in_the_archive_names_its_lock(wheel: Path) -> None:
    with pytest.raises(ConfigError, match=r"family/two\.lock:1: not YAML"):
        recipe_file.read_lock(wheel / "family/two.lock")


def test_a_checkout_has_no_archive() -> None:
    assert shipped.packed(LOCK.with_name("none.lock")) is None
