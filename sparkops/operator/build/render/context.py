"""Render a recipe as Dockerfile and build context: files and arguments of a build, and one digest."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from urllib.parse import urlsplit

from sparkops.config import recipe_file
from sparkops.config.assets import SHARED_MODS, TEMPLATE, BuildInputs, WheelFile
from sparkops.config.lock import fingerprint
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError
from sparkops.operator.build.render.dockerfile import dockerfile

MOUNT = "source=wheels,"
MOUNTED_WHEELS = "/run/sparkops/wheels"

Content = bytes | WheelFile


@dataclass(frozen=True)
class Context:
    """The input of a build.

    `files` is sorted by path; a path that ends in a slash is a directory without content. `digest` covers everything
    that goes into the image, and for a recipe what its gate expects of it: recipes of the same digest share an image.
    It excludes the arguments and `secrets`, which only choose the source of pinned packages.
    """

    files: tuple[tuple[str, Content], ...] = field(repr=False)
    build_args: Mapping[str, str]
    digest: str
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files by secret ID. They are not in the context, which BuildKit stores on the node's disk."""


def render(recipe: Recipe, templates: Mapping[str, str]) -> str:
    """Return the Dockerfile of a recipe, checked. Raises ConfigError with the template's file and line."""
    name = f"{recipe.image.template}{TEMPLATE}"
    if name not in templates:
        names = ", ".join(sorted(key.removesuffix(TEMPLATE) for key in templates if key.endswith(TEMPLATE)))
        raise ConfigError(recipe.file, 1, "image.template", f"expected one of: {names}")
    return dockerfile(name, templates, recipe.image, recipe=recipe)


def mounts_wheels(text: str) -> bool:
    """Return whether a build uses the wheels of the inventory, from its Dockerfile."""
    return MOUNT in text


def build_context(
    recipe: Recipe, templates: Mapping[str, str], mods: Mapping[str, bytes], inputs: BuildInputs
) -> Context:
    """Return the input of the build of `recipe`. Raises ConfigError for an unknown template or mod.

    Wheels count only if the Dockerfile mounts them.
    """
    text = render(recipe, templates)
    inputs = inputs if mounts_wheels(text) else replace(inputs, wheels=())
    files: dict[str, Content] = {
        "Dockerfile": text.encode(),
        "mods/": b"",
        **places(inputs),
        **_template_files(recipe, templates),
        **({"lock/": b"", "lock/requirements.txt": recipe.lock.requirements.encode()} if recipe.lock else {}),
        **{f"mods/{name}": content for name, content in recipe_mods(recipe, mods).items()},
    }
    return pack(files, build_args(recipe, inputs), index(inputs), expected(recipe))


def expected(recipe: Recipe) -> str:
    """Return what the gate compares an image with, but for the arguments of its engine. The recipe's name is no part.

    Two recipes may have the same files and other expectations, such as two engines of one finished image. The versions
    that a lock notes of its image follow from the rest.
    """
    parent = recipe.lock.parent.model_dump(mode="json") if recipe.lock else None
    return json.dumps([recipe.engine, recipe.backend, fingerprint(recipe.image), parent], sort_keys=True)


def pack(
    files: Mapping[str, Content],
    build_args: Mapping[str, str] | None = None,
    secrets: Mapping[str, bytes] | None = None,
    expected: str = "",
) -> Context:
    """Return the context of a build with these files by path. `expected`: what its gate compares the image with."""
    ordered = tuple(sorted(files.items()))
    return Context(ordered, build_args or {}, digest(ordered, expected), secrets or {})


def index(inputs: BuildInputs) -> dict[str, bytes]:
    """Return the settings of pip and uv by secret ID. Their URLs may have credentials."""
    return {"pip.conf": _pip_conf(inputs).encode(), "uv.toml": _uv_toml(inputs).encode()}


def places(inputs: BuildInputs) -> dict[str, Content]:
    """Return the wheels and CA certificates of a build."""
    return {
        "ca/": b"",
        "wheels/": b"",
        **{f"ca/{name}": content for name, content in inputs.ca_certificates},
        **{f"wheels/{wheel.name}": wheel for wheel in inputs.wheels},
    }


def hashes(mods: Mapping[str, bytes]) -> dict[str, str]:
    """Return the SHA-256 of each mod by its path, without directories."""
    return {name: hashlib.sha256(mods[name]).hexdigest() for name in sorted(mods) if not name.endswith("/")}


def recipe_mods(recipe: Recipe, mods: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the mods of a recipe. Raises ConfigError if one differs from the lock."""
    files = _mods(recipe, mods)
    if recipe.lock and (now := hashes(files)) != recipe.lock.mods:
        locked = recipe.lock.mods
        differing = sorted(name for name in {*now, *locked} if now.get(name) != locked.get(name))
        raise recipe_file.stale(recipe.lock_file, "mods", f"differ from the lock: {', '.join(differing)}")
    return files


def _mods(recipe: Recipe, mods: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the mods, the files that they add (in a directory of the mod's name), and shared modules."""
    own = recipe.image.mod_files
    for name, file in zip(recipe.image.mods, own, strict=True):
        if file not in mods or file in SHARED_MODS:
            names = sorted(key.removesuffix(".py") for key in mods if key not in SHARED_MODS and "/" not in key)
            problem = f"unknown mod '{name}', expected one of: {', '.join(names)}"
            raise ConfigError(recipe.file, 1, "image.mods", problem)
    added = {key: content for key, content in mods.items() if key.partition("/")[0] in recipe.image.mods and "/" in key}
    shared = SHARED_MODS[: 1 + any(not file.endswith(".py") for file in own)] if own else ()
    return directories(added) | added | {file: mods[file] for file in (*own, *shared)}


def directories(files: Iterable[str]) -> dict[str, bytes]:
    """Return an entry for every directory of the files."""
    parents = {parent for file in files for parent in PurePosixPath(file).parents if parent.name}
    return {f"{parent}/": b"" for parent in parents}


def _template_files(recipe: Recipe, templates: Mapping[str, str]) -> dict[str, bytes]:
    """Return the template's own directory as files/."""
    prefix = f"{recipe.image.template}/"
    paths = (path for path in templates if path.startswith(prefix))
    files = {f"files/{path.removeprefix(prefix)}": templates[path].encode() for path in paths}
    return directories(files) | files


def build_args(recipe: Recipe, inputs: BuildInputs) -> dict[str, str]:
    """Return the build arguments. With an empty TORCH_BACKEND torch comes from the package index or the inventory.

    Otherwise it comes from PyTorch's own index, whose wheels all name their CUDA build.
    """
    torch = recipe.image.torch
    if torch is None:
        return {}
    prefix = f"torch-{torch.version}"
    has_wheel = any(wheel.name.startswith((f"{prefix}-", f"{prefix}+")) for wheel in inputs.wheels)
    return {"TORCH_BACKEND": ""} if inputs.torch_index or has_wheel or not torch.local_version else {}


def _uv_toml(inputs: BuildInputs) -> str:
    """Return uv's settings. By default uv uses the first index that has a package; here it compares all of them."""
    lines = []
    if inputs.wheels or inputs.torch_index:
        lines += ["[pip]", 'index-strategy = "unsafe-best-match"']
        lines += [f"find-links = [{json.dumps(MOUNTED_WHEELS)}]"] if inputs.wheels else []
    if inputs.torch_index:
        lines += ["[[index]]", 'name = "torch"', f"url = {json.dumps(inputs.torch_index)}"]
    if inputs.package_index:
        lines += ["[[index]]", 'name = "packages"', f"url = {json.dumps(inputs.package_index)}", "default = true"]
    return "".join(f"{line}\n" for line in lines)


def _pip_conf(inputs: BuildInputs) -> str:
    """Return pip's settings. Unlike uv, pip needs `trusted-host` for an index over HTTP."""
    lines = ["[global]"]
    if inputs.package_index:
        index = urlsplit(inputs.package_index)
        lines += [f"index-url = {inputs.package_index}"]
        lines += [f"trusted-host = {index.netloc.rpartition('@')[2]}"] if index.scheme == "http" else []
    lines += [f"find-links = {MOUNTED_WHEELS}"] if inputs.wheels else []
    return "".join(f"{line}\n" for line in lines)


def digest(files: tuple[tuple[str, Content], ...], expected: str = "") -> str:
    """Return the SHA-256 over all files of an image, and over what its gate expects."""
    total = hashlib.sha256(expected.encode())
    for path, content in files:
        sha256 = content.sha256 if isinstance(content, WheelFile) else hashlib.sha256(content).hexdigest()
        total.update(f"{path}\0{sha256}\n".encode())
    return total.hexdigest()
