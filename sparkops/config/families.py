"""The known recipes by service, which is what clients call: how many there are, and what differs between them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.config.recipe import Recipe
from sparkops.config.shipped import OWN
from sparkops.engines.vllm import stated_release

SILENT = frozenset(
    (
        *("name", "service", "extends", "description", "expected", "verified", "unlocked"),
        *("image.disk_gib", "memory.basis", "model.path", "model.sources", "model.steps"),
    )
)
"""Keys that say nothing of how a recipe's engine runs, or that follow from another key."""


@dataclass(frozen=True)
class Variant:
    """A recipe, with what differs from its base: the value by dotted key, None where only the base has one.

    Its base is the recipe that it extends, or the first one of its family, which has none itself.
    """

    recipe: Recipe
    base: str | None
    differs: Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """The recipes of one service. The first is one outside a folder, where there is one; the others follow by name."""

    service: str
    variants: tuple[Variant, ...]

    @property
    def first(self) -> Recipe:
        return self.variants[0].recipe

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        return tuple(variant.recipe for variant in self.variants)

    @property
    def release(self) -> str:
        """The newest release of the default engine that its recipes state; empty if none states one."""
        stated = (stated_release(recipe.image.requirement, recipe.image.use) for recipe in self.recipes)
        return max(filter(None, stated), key=_number, default="")

    @property
    def rank(self) -> tuple[bool, tuple[int, ...]]:
        """How new it is; the larger, the newer. A finished image of an unknown version is newer than any release."""
        unknown = not self.release and any(recipe.image.use for recipe in self.recipes)
        return unknown, _number(self.release)


def families(recipes: Iterable[Recipe]) -> list[Family]:
    """Return the families, those with the newest release first and those without a GPU last.

    No recipe has a date. A model needs an engine that knows it, so the newest release is the best order that files
    give. For models that no release runs yet, there are only builds of others, whose digests have no version: a family
    that has nothing else comes first. One that states neither, such as of llama.cpp, comes after the oldest release.
    """
    known = {recipe.name: recipe for recipe in recipes}
    services = sorted({recipe.service for recipe in known.values()})
    grouped = [Family(service, tuple(_variants(service, known))) for service in services]
    newest = sorted(grouped, key=lambda family: family.rank, reverse=True)  # stable: by name within a release
    return sorted(newest, key=lambda family: all(recipe.backend == "cpu" for recipe in family.recipes))


def _number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split("."))) if release else ()


def _variants(service: str, known: Mapping[str, Recipe]) -> Iterator[Variant]:
    members = [recipe for recipe in known.values() if recipe.service == service]
    members.sort(key=lambda recipe: (recipe.file.parent.name != OWN.name, recipe.name))
    for recipe in members:
        base = known.get(recipe.extends or "") or (members[0] if recipe is not members[0] else None)
        yield Variant(recipe, base.name if base else None, differences(recipe, base) if base else {})


def differences(recipe: Recipe, base: Recipe) -> dict[str, Any]:
    """Return the values of a recipe that its base has not, by dotted key; None for those that only the base has."""
    own, other = (dict(_leaves(one.model_dump(mode="json", exclude_none=True))) for one in (recipe, base))
    changed = {key: value for key, value in own.items() if other.get(key) != value}
    return {**changed, **{key: None for key in other if key not in own}}


def _leaves(data: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested mappings by dotted key, without empty ones. A flag's value stays whole."""
    for key, value in data.items():
        where = f"{path}{key}"
        if where in SILENT or value in ([], {}):
            continue
        if isinstance(value, dict) and path not in ("serve.args.", "serve.env."):
            yield from _leaves(value, f"{where}.")
        else:
            yield where, value
