"""The locks of a wheel lie in one archive."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator
from pathlib import Path

import pytest

from sparkops.config import lock, shipped
from sparkops.errors import ConfigError

LOCK = Path(__file__).parents[2] / "recipes/qwen3.5-122b/122b-heretic-atlas.lock"


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Recipes as a wheel has them; returns their directory."""
    recipes = tmp_path / "sparkops/shipped/recipes"
    recipes.mkdir(parents=True)
    locks = {"one.lock": LOCK.read_text(), "family/two.lock": "schema: [1"}
    (recipes.parent / shipped.LOCKS).write_bytes(lzma.compress(json.dumps(locks).encode()))
    monkeypatch.setattr(shipped, "PACKAGE", tmp_path / "sparkops")
    shipped._locks.cache_clear()
    yield recipes
    shipped._locks.cache_clear()


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
