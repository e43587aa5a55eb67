"""The build context as a value: every file that a build sees, its arguments and one digest over them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from sparkops.config import lock
from sparkops.config.assets import SHARED_MODS, BuildInputs, WheelFile
from sparkops.config.image import PATCH
from sparkops.config.recipe import Recipe
from sparkops.errors import ConfigError
from sparkops.render.dockerfile import mounts_wheels, render

MOUNTED_WHEELS = "/run/sparkops/wheels"

Content = bytes | WheelFile


@dataclass(frozen=True)
class Context:
    """What is sent to a build.

    `files` is sorted by path; a path that ends in a slash is a directory and has no content. `digest` is over
    everything that goes into the image. The arguments and `secrets` only say where the same pinned packages come
    from, so they are not part of it.
    """

    files: tuple[tuple[str, Content], ...] = field(repr=False)
    build_args: Mapping[str, str]
    digest: str
    secrets: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Files by secret ID that a build may read and nothing may keep: BuildKit keeps the context on the node's disk."""


def build_context(
    recipe: Recipe, templates: Mapping[str, str], mods: Mapping[str, bytes], inputs: BuildInputs
) -> Context:
    """Return everything that the build of `recipe` sees. Raises ConfigError for an unknown template or mod.

    Wheels that its Dockerfile does not mount are not sent, and do not change its digest.
    """
    dockerfile = render(recipe, templates)
    inputs = inputs if mounts_wheels(dockerfile) else replace(inputs, wheels=())
    files: dict[str, Content] = {
        "Dockerfile": dockerfile.encode(),
        "mods/": b"",
        **places(inputs),
        **_beside(recipe, templates),
        **_locked(recipe),
        **{f"mods/{name}": content for name, content in wanted_mods(recipe, mods).items()},
    }
    ordered = tuple(sorted(files.items()))
    return Context(ordered, build_args(recipe, inputs), digest(ordered), index(inputs))


def index(inputs: BuildInputs) -> dict[str, bytes]:
    """Return the settings of pip and uv by secret ID: their URLs may hold credentials."""
    return {"pip.conf": _pip_conf(inputs).encode(), "uv.toml": _uv_toml(inputs).encode()}


def places(inputs: BuildInputs) -> dict[str, Content]:
    """Where a build finds wheels, and whom it trusts."""
    return {
        "ca/": b"",
        "wheels/": b"",
        **{f"ca/{name}": content for name, content in inputs.ca_certificates},
        **{f"wheels/{wheel.name}": wheel for wheel in inputs.wheels},
    }


def _locked(recipe: Recipe) -> dict[str, bytes]:
    """The packages with their hashes, and what was locked besides. What an image said of itself is no input."""
    if recipe.lock is None:
        return {}
    return {"lock/": b"", "lock/requirements.txt": recipe.lock.requirements.encode()}


def hashes(mods: Mapping[str, bytes]) -> dict[str, str]:
    """SHA-256 of each mod by its path, without directories."""
    return {name: hashlib.sha256(mods[name]).hexdigest() for name in sorted(mods) if not name.endswith("/")}


def wanted_mods(recipe: Recipe, mods: Mapping[str, bytes]) -> dict[str, bytes]:
    """The mods of the build. Raises ConfigError where one is not what is locked."""
    files = _mods(recipe, mods)
    if recipe.lock and hashes(files) != recipe.lock.mods:
        now = hashes(files)
        differing = sorted(name for name in {*now, *recipe.lock.mods} if now.get(name) != recipe.lock.mods.get(name))
        place = Path(f"recipes/{recipe.name}.lock")
        raise lock.stale(place, "mods", f"not what was locked: {', '.join(differing)}")
    return files


def _mods(recipe: Recipe, mods: Mapping[str, bytes]) -> dict[str, bytes]:
    """Each wanted mod, the files that it adds, which lie in a directory of its name, and what it needs to run."""
    names = [name if name.endswith(PATCH) else f"{name}.py" for name in recipe.image.mods]
    for name, file in zip(recipe.image.mods, names, strict=True):
        if file not in mods or file in SHARED_MODS:
            known = ", ".join(
                sorted(key.removesuffix(".py") for key in mods if key not in SHARED_MODS and "/" not in key)
            )
            problem = f"unknown mod '{name}', expected one of: {known}"
            raise ConfigError(Path(f"recipes/{recipe.name}.yaml"), 1, "image.mods", problem)
    added = {key: content for key, content in mods.items() if key.partition("/")[0] in recipe.image.mods and "/" in key}
    shared = SHARED_MODS[: 1 + any(file.endswith(PATCH) for file in names)] if names else ()
    return directories(added) | added | {file: mods[file] for file in (*names, *shared)}


def directories(files: Iterable[str]) -> dict[str, bytes]:
    """An entry for every directory that holds one of the files."""
    parents = {parent for file in files for parent in PurePosixPath(file).parents if parent.name}
    return {f"{parent}/": b"" for parent in parents}


def _beside(recipe: Recipe, templates: Mapping[str, str]) -> dict[str, bytes]:
    """What the template's own directory holds, as files/."""
    prefix = f"{recipe.image.template}/"
    texts = {name.removeprefix(prefix): text for name, text in templates.items() if name.startswith(prefix)}
    files = {f"files/{name}": text.encode() for name, text in texts.items()}
    return directories(files) | files


def build_args(recipe: Recipe, inputs: BuildInputs) -> dict[str, str]:
    """Return the build arguments. An empty TORCH_BACKEND takes torch from the package index or the inventory's.

    Otherwise uv takes it from PyTorch's own index, whose wheels all name their CUDA build.
    """
    torch = recipe.image.torch
    if torch is None:
        return {}
    prefix = f"torch-{torch.version}"
    brought = any(wheel.name.startswith((f"{prefix}-", f"{prefix}+")) for wheel in inputs.wheels)
    return {"TORCH_BACKEND": ""} if inputs.torch_index or brought or not torch.local_version else {}


def _uv_toml(inputs: BuildInputs) -> str:
    """uv stops at the first index that knows a name; with a second place to look, the pins decide instead."""
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
    """pip ignores an index over plain HTTP unless it trusts the host; uv does not care."""
    lines = ["[global]"]
    if inputs.package_index:
        index = urlsplit(inputs.package_index)
        lines += [f"index-url = {inputs.package_index}"]
        lines += [f"trusted-host = {index.netloc.rpartition('@')[2]}"] if index.scheme == "http" else []
    lines += [f"find-links = {MOUNTED_WHEELS}"] if inputs.wheels else []
    return "".join(f"{line}\n" for line in lines)


def digest(files: tuple[tuple[str, Content], ...]) -> str:
    """SHA-256 over all that goes into an image."""
    whole = hashlib.sha256()
    for path, content in files:
        known = content.sha256 if isinstance(content, WheelFile) else hashlib.sha256(content).hexdigest()
        whole.update(f"{path}\0{known}\n".encode())
    return whole.hexdigest()
