"""The verb recipes: a catalogue, with where each fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from json import dumps
from pathlib import Path
from typing import Annotated, Any

import typer

from sparkops.config.families import Family, Variant, families
from sparkops.config.recipe import Recipe
from sparkops.config.recipe_file import load
from sparkops.config.shipped import known_recipes
from sparkops.engines.vllm import stated_release
from sparkops.errors import ConfigError, UsageError, joined
from sparkops.names import counted, did_you_mean
from sparkops.operator.cli.options import JSON
from sparkops.operator.cli.terminal import data, data_json, fitted, is_narrow, say, table
from sparkops.operator.deploy.place import Place, Suitable

COLUMNS = frozenset({"memory.claim_gib", "serve.tensor_parallel", "serve.pipeline_parallel"})
"""Keys of a recipe that its row shows."""
TABLE_WIDTH = 100
"""Columns of a terminal below which each recipe is a block of lines."""
SHOWN = 10
"""Places of a recipe that a row shows: eight nodes have 70 groups of four."""
Fits = Mapping[str, Suitable]
"""Where each recipe fits, by its name; empty without --fits."""


def recipes(
    context: typer.Context,
    service: Annotated[str | None, typer.Argument(metavar="SERVICE", help="Compare the recipes of SERVICE")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="List those that fit on the nodes of the inventory")] = False,
    json: JSON = False,
) -> None:
    """List recipes

    Locked and measured recipes come first, those with the newest vLLM before others, and those for CPUs last. With
    SERVICE prints its recipes, and how each differs from the one that it extends.

    --fits reads memory, GPUs and containers of the nodes, and the network where a recipe needs several, and lists what
    fits now first; with SERVICE it prints for the others why they do not. Without it no node is read.

    Example: sparkops recipes qwen3.5-122b
    """
    readable, broken = _read(known_recipes().values())
    every = families(readable)
    listed = [_named(service, every)] if service is not None else every
    asked = [recipe for family in listed for recipe in family.recipes]
    places = "sparkops.operator.cli.places"  # connects, and its imports take longer than the catalogue
    found, errors = import_module(places).find(context.obj, asked) if fits else ({}, [])
    if json:
        unreadable = [{"file": str(file), "error": str(error)} for file, error in broken.items()]
        data_json({**_as_json(listed, found), "broken": unreadable})
    elif service is None:
        _show_all(listed, found)
    else:
        data("\n".join(_variants(listed[0], found)))
    for error in broken.values():
        say(f"not listed: {error}", fg="yellow")
    if errors:
        raise joined(errors)


def _read(files: Iterable[Path]) -> tuple[list[Recipe], dict[Path, ConfigError]]:
    """Return the recipes, and by file why one cannot be read."""
    readable, broken = list[Recipe](), dict[Path, ConfigError]()
    for file in files:
        try:
            readable.append(load(file))
        except ConfigError as error:
            broken[file] = error
    return readable, broken


def _named(service: str, every: Sequence[Family]) -> Family:
    """Return the family of a service. Raises UsageError with the service of a recipe of that name, or the nearest."""
    by_service = {family.service: family for family in every}
    if service in by_service:
        return by_service[service]
    owners = [family.service for family in every if service in {recipe.name for recipe in family.recipes}]
    if owners:
        raise UsageError(f"{service} is a recipe, expected a service", next_step=f"sparkops recipes {owners[0]}")
    step = f"{did_you_mean(service, by_service)}`sparkops recipes` lists all."
    raise UsageError(f"no recipe of service {service}", next_step=step)


def _show_all(listed: Sequence[Family], fits: Fits) -> None:
    """Print one row for each recipe; with `fits` only for those that fit, and how many do not."""
    every = [recipe for family in listed for recipe in family.recipes]
    shown = sorted((one for one in every if not fits or _usable(fits[one.name])), key=lambda one: _rank(one, fits))
    data("\n".join(_catalogue(shown, fits)))
    if others := len(every) - len(shown):
        verb = "does" if others == 1 else "do"
        say(f"{counted(others, 'recipe')} {verb} not fit; `sparkops recipes SERVICE --fits` prints why")


def _usable(found: Suitable) -> bool:
    return bool(found.places or found.running)


def _rank(recipe: Recipe, fits: Fits) -> tuple[bool, ...]:
    """Return the order of a recipe: what fits now, what is locked and measured, locked or measured; for CPUs last."""
    later = not (fits[recipe.name].now or fits[recipe.name].running) if fits else False
    locked, measured = bool(recipe.lock), _speed(recipe) != "-"
    return recipe.backend == "cpu", later, not (locked and measured), not locked, not measured


def _catalogue(shown: Sequence[Recipe], fits: Fits) -> Iterable[str]:
    """Return a line for each recipe; on a narrow terminal a block, so that no name is cut."""
    rows = [_row(recipe, fits) for recipe in shown]
    if not is_narrow(TABLE_WIDTH):
        return fitted(table([_head(fits), *rows]))
    return [line for row in rows for line in _block(row)]


def _block(row: Sequence[str]) -> Sequence[str]:
    """Return a recipe below its name: what its row has, and its description."""
    name, service, nodes, claim, speed, lock, release, *where, description = row
    facts = [f"service {service}", counted(int(nodes), "node"), f"{claim} GiB each", lock]
    facts += [f"{speed} tok/s"] if speed != "-" else []
    facts += [f"vLLM {release}"] if release != "-" else []
    return (name, *fitted([f"  {part}" for part in (", ".join(facts), *where, description)]))


def _head(fits: Fits) -> Sequence[str]:
    return (
        *("NAME", "SERVICE", "NODES", "GIB PER NODE", "TOK/S", "LOCK", "VLLM"),
        *(("FITS",) if fits else ()),
        "DESCRIPTION",
    )


def _variants(family: Family, fits: Fits) -> Iterator[str]:
    narrow, rows = is_narrow(TABLE_WIDTH), [_row(variant.recipe, fits) for variant in family.variants]
    head, *lines = fitted(table([_head(fits), *rows]))
    yield from () if narrow else (head,)
    for variant, row, line in zip(family.variants, rows, lines, strict=True):
        yield from _block(row) if narrow else (line,)
        if variant.base:
            yield f"  {variant.base} {_words(variant)}"
        if fits:
            yield from (f"  does not fit: {reason}" for reason in fits[variant.recipe.name].reasons)


def _row(recipe: Recipe, fits: Fits) -> Sequence[str]:
    return (
        *(recipe.name, recipe.service, str(recipe.serve.ranks), f"{recipe.memory.claim_gib:g}"),
        *(_speed(recipe), "locked" if recipe.lock else "unlocked"),
        stated_release(recipe.image.requirement, recipe.image.use) or "-",
        *((_where(fits[recipe.name]),) if fits else ()),
        recipe.description,
    )


def _speed(recipe: Recipe) -> str:
    return f"{recipe.expected.tok_s:g}" if recipe.expected and recipe.expected.tok_s else "-"


def _where(found: Suitable) -> str:
    """Return where a recipe runs, fits now, or would fit if the memory in use were freed."""
    busy = [place for place in found.places if place not in found.now]
    parts = [f"running on {', '.join(found.running)}"] if found.running else []
    parts += [f"now on {_places(found.now)}"] if found.now else []
    parts += [f"if freed on {_places(busy)}"] if busy and not (found.running or found.now) else []
    return "; ".join(parts) or "no"


def _places(places: Sequence[Place]) -> str:
    shown = ", ".join("+".join(place) for place in places[:SHOWN])
    return f"{shown} and {len(places) - SHOWN} more" if len(places) > SHOWN else shown


def _words(variant: Variant) -> str:
    """Return the differences of a variant from its base, in one line, that no column shows."""
    shown = {key: value for key, value in variant.differs.items() if key not in COLUMNS}
    short = {key: key.removeprefix("serve.args.").removeprefix("serve.env.") for key in shown}
    given = [f"{short[key]}={_text(value)}" for key, value in shown.items() if value is not None]
    lacking = [short[key] for key, value in shown.items() if value is None]
    parts = [f"with {', '.join(given)}"] if given else []
    parts += [f"without {', '.join(lacking)}"] if lacking else []
    return "; ".join(parts) or "with the same settings"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _as_json(listed: Sequence[Family], fits: Fits) -> dict[str, object]:
    rows = [
        {
            **variant.recipe.model_dump(mode="json"),
            "locked": bool(variant.recipe.lock),
            "base": variant.base,
            "differs": variant.differs,
            **({"fits": _fits_json(fits[variant.recipe.name])} if fits else {}),
        }
        for family in listed
        for variant in family.variants
    ]
    services = [
        {
            "service": family.service,
            "vllm": family.release or None,
            "recipes": [recipe.name for recipe in family.recipes],
        }
        for family in listed
    ]
    return {"services": services, "recipes": rows}


def _fits_json(found: Suitable) -> dict[str, object]:
    return {
        "nodes": found.places,
        "now": found.now,
        "running": found.running,
        "reasons": found.reasons,
    }
