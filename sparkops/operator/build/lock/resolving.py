"""Build context that resolves the packages of an image without installing them, and the parser of uv's output."""

from __future__ import annotations

import re
from collections.abc import Mapping

from sparkops.config.assets import BuildInputs
from sparkops.config.lock import Lock
from sparkops.config.recipe import Recipe
from sparkops.operator.build.render.context import Content, Context, build_args, index, pack, places
from sparkops.operator.build.render.dockerfile import dockerfile

ANSWER = "/opt/sparkops/requirements.txt"
"""The file in the image with the output of `uv pip compile --generate-hashes`."""
ENTRY = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;]+)")
HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")


def hashes_all(recipe: Recipe) -> bool:
    """Return whether every package of the image comes from an index: those of a finished image may be in none."""
    return recipe.image.source is None and recipe.image.use is None


def requirements(recipe: Recipe) -> tuple[str, ...]:
    """Return the requirements of the build besides torch; none if it installs no Python packages."""
    image = recipe.image
    if image.torch is None:
        return ()
    if image.use:
        return (*image.packages, *image.override)
    return (*((image.requirement,) if image.requirement else ()), *image.packages)


def resolving_context(
    recipe: Recipe, templates: Mapping[str, str], inputs: BuildInputs, before: Lock | None, requested: str
) -> Context:
    """Return the build's context. uv keeps versions of `before` that still fit; `requested` makes the build unique.

    uv would keep the hashes of `before` too, which may be those of files for another Python or architecture.
    """
    values = {
        "recipe": recipe,
        "requirements": requirements(recipe),
        "onto": recipe.image.use is not None,
        "requested": requested,
    }
    files: dict[str, Content] = {
        "Dockerfile": dockerfile("lock/Dockerfile.j2", templates, recipe.image, **values).encode(),
        "lock/": b"",
        "lock/requirements.txt": "".join(f"{package}\n" for package in (before.packages if before else ())).encode(),
        **places(inputs),
    }
    return pack(files, build_args(recipe, inputs), index(inputs))


def parse(printed: str) -> dict[str, list[str]]:
    """Return packages as name==version with the hashes of their files, sorted. Raises ValueError for other text."""
    packages = {}
    for line in re.sub(r"\\\n", " ", printed).splitlines():
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = ENTRY.match(line)
        hashes = sorted(HASH.findall(line))
        if entry is None or not hashes:
            raise ValueError(f"expected name==version with its hashes, got {line[:120]!r}")
        packages[f"{entry['name']}=={entry['version']}"] = hashes
    return dict(sorted(packages.items()))
