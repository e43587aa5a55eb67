"""Recipes and their locks as files.

A recipe of a file must pass more checks than the model has: journals hold recipes of older versions, and guards, which
import the model alone, read them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import yaml

from sparkops.config import assets, opt_in, overlay, questions, shipped, source
from sparkops.config.fields import Location
from sparkops.config.image import Image
from sparkops.config.lock import SUFFIX, Lock, fingerprint
from sparkops.config.recipe import Origin, Recipe
from sparkops.config.source import Source
from sparkops.engines import ENGINES
from sparkops.errors import ConfigError, UsageError
from sparkops.redact import kind_of_key, redacted

ARCHITECTURES = ("TORCH_CUDA_ARCH_LIST", "FLASHINFER_CUDA_ARCH_LIST")
SPARK = frozenset({"12.0", "12.0f", "12.1", "12.1a", "12.1f"})
"""Architectures whose code runs on the GPU of a Spark. Code for 12.0a does not."""
HUMAN = re.compile(r"(-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e-?[0-9]+)?)[kKmMgGtT]?")
"""A number with a suffix that vLLM accepts, as in 32k (human_readable_int in vllm/engine/arg_utils.py of 0.23.0)."""


def load(file: Path, nodes: Collection[str] | None = None, set_: Iterable[str] = ()) -> Recipe:
    """Read and check a recipe, against the `nodes` of an inventory if they are given, and apply its lock.

    Without a lock of its own, that of a recipe that it extends holds if both have the same image. Each KEY=VALUE of
    `set_` replaces a value for this one time. Raises ConfigError or UsageError.
    """
    changes = tuple(set_)
    read, recipe = _read(file, nodes, changes)
    image = fingerprint(recipe.image)
    for place in map(lock_file, (file, *read.bases)):
        if (lock := read_lock(place)) is None:
            continue
        if lock.made_for == image:
            recipe = recipe.with_lock(lock, place)
            break
        if place == lock_file(file):
            if changed := next((change for change in changes if overlay.place(change)[0] == "image"), ""):
                step = f"Write a recipe with `extends: {recipe.name}` and this value: it needs no lock."
                raise UsageError(f"--set {changed}: the lock of {recipe.name} is of another image", next_step=step)
            raise stale(place, "made_for", f"`image` of {recipe.name} has changed since the lock")
    for where, problem in opt_in.unpinned(recipe.serve, recipe.model, recipe.engine):
        raise read.fail(where, problem)
    questions.of(recipe)
    return recipe


def load_unlocked(file: Path, nodes: Collection[str] | None = None) -> Recipe:
    """Read and check a recipe without its lock. Raises ConfigError."""
    return _read(file, nodes, ())[1]


def _read(file: Path, nodes: Collection[str] | None, set_: Iterable[str]) -> tuple[Source, Recipe]:
    read = overlay.read(file)
    overlay.apply(read, set_)
    recipe = source.validate(read, Recipe, "All keys: sparkops recipe schema recipe --markdown")
    recipe._origin = Origin(file, changes=tuple(set_))
    problems = [*_problems(recipe, file, nodes), *_missing_parts(recipe.image), *_secrets((), read.data)]
    if problems:
        raise ConfigError.joined([read.fail(where, problem) for where, problem in problems])
    return read, recipe


def _problems(recipe: Recipe, file: Path, nodes: Collection[str] | None) -> Iterator[tuple[Location, str]]:
    name = file.name.removesuffix(".yaml")
    if recipe.name != name:
        yield ("name",), f"expected '{name}' as in the file's name, got {recipe.name!r}"
    for number, node in enumerate(recipe.nodes):
        if nodes is not None and node not in nodes:
            yield ("nodes", number), f"unknown node {node!r}, expected one of: {', '.join(nodes)}"
    yield from opt_in.refusals(recipe.serve, recipe.engine, _code(recipe))
    yield from _missing_template(recipe)
    yield from _out_of_range(recipe)
    yield from _other_gpus(recipe)


def _code(recipe: Recipe) -> Iterator[opt_in.Need]:
    """Yield what may be code of the recipe's author in its image: of the mods, those in ./mods."""
    own = assets.own_mods() if recipe.image.mods else ()
    needs = opt_in.of_image(recipe.image, recipe.engine)
    yield from (need for need in needs if need.where[1] != "mods" or need.name in own)


def _missing_template(recipe: Recipe) -> Iterator[tuple[Location, str]]:
    """Yield a chat template of the image that is not among its mods."""
    flag = ENGINES[recipe.engine].template_flag
    template = opt_in.image_template(recipe.serve.args.get(flag))
    if template and template not in recipe.image.mods:
        yield ("serve", "args", flag), f"the image has no {template}: expected it in image.mods"


def _out_of_range(recipe: Recipe) -> Iterator[tuple[Location, str]]:
    """Yield each value of `serve.args` that no engine can start with: its share of the memory, and its context."""
    engine = ENGINES[recipe.engine]
    for flag, value in recipe.serve.args.items():
        number = _number(value)
        where: Location = ("serve", "args", flag)
        if flag == engine.share_flag and not (number is not None and 0 < number <= 1):
            yield where, f"expected a share of the memory above 0 and up to 1, such as 0.85; got {value!r}"
        if flag == engine.window_flag and value != "auto" and not (number is not None and number >= 1):
            yield where, f"expected a number of tokens such as 32768 or 32k, or auto; got {value!r}"


def _other_gpus(recipe: Recipe) -> Iterator[tuple[Location, str]]:
    """Yield each list of architectures to compile for without that of a Spark, which could not run the code."""
    for name in ARCHITECTURES if recipe.backend != "cpu" else ():
        value = recipe.serve.env.get(name)
        if value and SPARK.isdisjoint(re.split(r"[;, ]", value.replace("+PTX", ""))):
            yield ("serve", "env", name), f"{value} has no architecture of a Spark's GPU, expected 12.1a"


def _secrets(where: Location, value: object) -> Iterator[tuple[Location, str]]:
    """Yield each value that looks like a key: a recipe is committed, and `docker inspect` shows what it sets.

    A proxy may have a password in its URL, which no output of sparkops shows.
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _secrets((*where, key), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _secrets((*where, number), inner)
    elif isinstance(value, str) and (kind := kind_of_key(redacted(value))):
        yield where, f"contains {kind}, expected no secret in a recipe; a file of mode 0600 on the node can hold it"


def _number(value: object) -> float | None:
    """Return a number, or text that vLLM reads as one, such as 32k; None for any other value."""
    if isinstance(value, bool):
        return None
    match = HUMAN.fullmatch(str(value).strip())
    return float(match[1]) if match else None


def _missing_parts(image: Image) -> Iterator[tuple[Location, str]]:
    templates, mods = assets.template_names(), assets.mod_names()
    if image.template == "vllm-upstream":
        yield ("image", "template"), f"finished images need no template now: write `use: {image.base}` for both keys"
    elif image.template not in templates:
        yield ("image", "template"), f"expected one of: {', '.join(templates)}; got {image.template!r}"
    for number, name in enumerate(image.mods):
        if name not in mods:
            yield ("image", "mods", number), f"unknown mod '{name}', expected one of: {', '.join(mods)}"


def read_lock(file: Path) -> Lock | None:
    """Read a lock; None without one. Raises ConfigError."""
    if os.path.lexists(file) or shipped.packed(file) is not None:
        return source.validate(source.read(file), Lock, f"sparkops recipe lock {file.stem}")
    return None


def lock_file(recipe: Path) -> Path:
    return recipe.with_suffix(SUFFIX)


def stale(file: Path, key: str, problem: str) -> ConfigError:
    """Return the error for a lock that does not match the recipe."""
    return ConfigError(file, 1, key, f"{problem}; run `sparkops recipe lock {file.stem}`, or --update for new versions")


def lock_text(name: str, lock: Lock) -> str:
    """Return the text of the file. The same lock gives the same text."""
    verb = f"sparkops recipe lock {name}"
    head = f"# Written by `{verb}`; `{verb} --update` resolves the newest versions.\n"
    return head + yaml.safe_dump(lock.model_dump(mode="json", exclude_none=True), sort_keys=False, width=120)
