"""The locks that ship, without a network: each is of its recipe, for arm64, whole, and no newer than its vLLM knows."""

from __future__ import annotations

import re

import pytest

from sparkops.config import assets, recipe_file, shipped
from sparkops.config.lock import Lock
from sparkops.config.recipe import Recipe
from sparkops.operator.build.lock import resolving
from sparkops.operator.build.lock.locking import BuildFiles, fits
from tests.operator.build.lock import ship

FILES = shipped.recipes()
RECIPES = {name: recipe_file.load(file) for name, file in FILES.items()}
LOCKED = {name: loaded.lock for name, loaded in RECIPES.items() if loaded.lock}
LOCK = pytest.mark.parametrize("name", LOCKED)
TEMPLATES, MODS = assets.load_templates(), assets.load_mods()
SHELF = BuildFiles(TEMPLATES, MODS, assets.BuildInputs(), b"")
HASH = re.compile(r"sha256:[0-9a-f]{64}")
OLD: dict[tuple[int, ...], dict[str, tuple[int, ...]]] = {
    (0, 23): {"fastapi": (0, 137), "starlette": (1,), "prometheus-fastapi-instrumentator": (8,)},
    (0, 28): {"fastapi": (0, 137)},
}
"""What a vLLM before a version refuses or was not made for: the version of each package that is too new."""


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.match(r"[0-9.]+", version)[0].strip(".").split("."))  # type: ignore[index]


def pins(loaded: Recipe) -> dict[str, str]:
    """Return the versions that a build of the recipe is held to, by package: its lock's, or its own."""
    pinned = loaded.lock.packages if loaded.lock else (*loaded.image.packages, *loaded.image.override)
    named = (requirement.partition("==") for requirement in pinned)
    return {name.partition("[")[0]: version for name, _, version in named}


def too_new(loaded: Recipe) -> list[str]:
    """Return the web framework of an old vLLM that sparkops installs: newer than it knows, or held to nothing."""
    if not loaded.image.vllm or loaded.image.use:
        return []
    mine, pinned = number(loaded.image.vllm.partition("==")[2]), pins(loaded)
    limits = [limit for before, bounds in OLD.items() if mine < before for limit in bounds.items()]
    return list(dict.fromkeys(name for name, bound in limits if name not in pinned or number(pinned[name]) >= bound))


def test_locks_ship() -> None:
    assert len(LOCKED) >= 15


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_lock_or_the_reason_why_not(name: str) -> None:
    assert (name in LOCKED) == (RECIPES[name].unlocked is None)


def test_no_lock_is_without_its_recipe() -> None:
    assert {file.stem for file in (shipped.PACKAGE.parent / "recipes").rglob("*.lock")} == set(LOCKED)


@LOCK
def test_a_lock_is_of_its_recipe_and_of_the_mods_that_ship(name: str) -> None:
    loaded = recipe_file.load_unlocked(FILES[name])

    assert fits(LOCKED[name], loaded, SHELF)
    assert LOCKED[name].whole == resolving.hashes_all(loaded)


@LOCK
def test_a_lock_is_for_a_spark(name: str) -> None:
    assert LOCKED[name].machine == "aarch64"


@LOCK
def test_a_lock_holds_what_the_recipe_asks_for_and_each_package_to_a_hash(name: str) -> None:
    image, packages = RECIPES[name].image, LOCKED[name].packages
    requirements = (image.torch.pin, *resolving.requirements(RECIPES[name])) if image.torch else ()

    assert {re.sub(r"\[.*\]", "", one) for one in requirements} <= set(packages)
    assert all(hashes and all(map(HASH.fullmatch, hashes)) for hashes in packages.values())
    assert not {one.partition("==")[0] for one in packages} & set(image.remove)


@LOCK
def test_the_torch_of_a_lock_is_of_cuda_13(name: str) -> None:
    packages = LOCKED[name].packages

    assert not packages or any(one.startswith("cuda-toolkit==13.0.") for one in packages)


@pytest.mark.parametrize("name", RECIPES)
def test_an_old_vllm_gets_no_newer_web_framework_than_it_knows(name: str) -> None:
    assert too_new(RECIPES[name]) == []


def test_a_newer_web_framework_is_found() -> None:
    """Otherwise the test above could not fail."""
    old = RECIPES["122b-nvfp4-sehyo"]
    newer = old.model_copy(update={"image": old.image.model_copy(update={"packages": ["fastapi==0.139.0"]})})

    assert too_new(newer) == ["fastapi", "starlette", "prometheus-fastapi-instrumentator"]


def test_a_package_without_a_wheel_is_held_to_its_source() -> None:
    wheel, source = {"hashes": {"sha256": "1" * 64}}, {"hashes": {"sha256": "2" * 64}}

    assert ship.digests({"wheels": [wheel], "sdist": source}) == ["sha256:" + "1" * 64]
    assert ship.digests({"sdist": source}) == ["sha256:" + "2" * 64]


def test_what_is_locked_is_a_lock() -> None:
    assert all(isinstance(lock, Lock) for lock in LOCKED.values())
