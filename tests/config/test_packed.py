"""The archive of a wheel: its files are read as those of a checkout."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.config import assets, lock, shipped
from sparkops.errors import ConfigError

LOCK = Path(__file__).parents[2] / "recipes/qwen3.5-122b/122b-heretic-atlas.lock"


CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recipes, templates and a module of the guard as a wheel has them; returns the directory of the recipes."""
    recipes = tmp_path / "sparkops/shipped/recipes"
    recipes.mkdir(parents=True)
    texts = {"recipes/one.lock": LOCK.read_text(), "recipes/family/two.lock": "schema: [1", "sparkops/guard/a.py": "1"}
    texts |= {
        file.relative_to(CHECKOUT).as_posix(): file.read_text()
        for file in (CHECKOUT / "templates").rglob("*")
        if file.suffix != ".pyc" and file.is_file()
    }
    (tmp_path / "sparkops" / shipped.ARCHIVE).write_bytes(lzma.compress(json.dumps(texts).encode()))
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "sparkops")
    shipped._archive.cache_clear()
    yield recipes
    shipped._archive.cache_clear()


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
    with pytest.raises(FileNotFoundError, match=r"templates/none is not in .*shipped/files\.json\.xz"):
        (shipped.directory("templates") / "none").read_bytes()


def test_the_guard_is_part_of_the_package_although_it_is_in_the_archive(wheel: Path) -> None:
    (wheel.parents[1] / "names.py").write_text("2")

    assert assets.load_package() == {"guard/a.py": b"1", "names.py": b"2"}


def test_a_lock_of_the_archive_is_as_one_that_is_a_file(wheel: Path) -> None:
    assert lock.read_lock(wheel / "one.lock") == lock.read_lock(LOCK)


def test_recipes_elsewhere_and_unlocked_ones_have_no_lock_there(wheel: Path, tmp_path: Path) -> None:
    assert lock.read_lock(wheel / "two.lock") is None
    assert lock.read_lock(tmp_path / "one.lock") is None


def test_a_lock_that_was_made_beside_the_recipe_counts(wheel: Path) -> None:
    (wheel / "one.lock").write_text("schema: [1")

    with pytest.raises(ConfigError, match=r"one\.lock:1: not YAML"):
        lock.read_lock(wheel / "one.lock")


def test_an_error_in_the_archive_names_its_lock(wheel: Path) -> None:
    with pytest.raises(ConfigError, match=r"family/two\.lock:1: not YAML"):
        lock.read_lock(wheel / "family/two.lock")


def test_a_checkout_has_no_archive() -> None:
    assert shipped.packed_lock(LOCK.with_name("none.lock")) is None
