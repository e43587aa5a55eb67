"""What is sent to a node to learn which packages a build would take: a build of its own that installs nothing."""

from __future__ import annotations

from collections.abc import Mapping

from sparkops.config.assets import TEMPLATE, BuildInputs
from sparkops.config.lock import Lock
from sparkops.config.recipe import Recipe
from sparkops.render.context import Content, Context, build_args, digest, index, places
from sparkops.render.sandbox import fill

ANSWER = "/opt/sparkops/requirements.txt"
"""The file in the image that holds the answer."""


def onto(recipe: Recipe, templates: Mapping[str, str]) -> bool:
    """Whether the recipe builds upon a finished image, whose packages no index may know."""
    return "macros.onto(" in templates[f"{recipe.image.template}{TEMPLATE}"]


def whole(recipe: Recipe, templates: Mapping[str, str]) -> bool:
    """Whether every package of the image comes from an index, so that each can have a hash."""
    return recipe.image.source is None and not onto(recipe, templates)


def wanted(recipe: Recipe, templates: Mapping[str, str]) -> tuple[str, ...]:
    """What the build asks for beside torch; none where it installs no Python packages."""
    image = recipe.image
    if image.torch is None:
        return ()
    if onto(recipe, templates):
        return (*image.packages, *image.override)
    return (*((image.vllm,) if image.vllm else ()), *image.packages)


def resolving(
    recipe: Recipe, templates: Mapping[str, str], inputs: BuildInputs, before: Lock | None, requested: str
) -> Context:
    """Return the build's context. Versions of `before` that still fit are kept; `requested` makes a request unique."""
    values = {
        "recipe": recipe,
        "wanted": wanted(recipe, templates),
        "onto": onto(recipe, templates),
        "asked": requested,
    }
    files: dict[str, Content] = {
        "Dockerfile": fill("lock/Dockerfile.j2", templates, **values).encode(),
        "lock/": b"",
        "lock/requirements.txt": (before.requirements if before else "").encode(),
        **places(inputs),
    }
    ordered = tuple(sorted(files.items()))
    return Context(ordered, build_args(recipe, inputs), digest(ordered), index(inputs))
