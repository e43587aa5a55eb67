"""The verb recipes: a catalogue, with where each fits."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from json import dumps
from typing import Annotated, Any

import typer

from sparkops.config.families import Family, Variant, families
from sparkops.config.recipe import Recipe
from sparkops.config.recipe_file import load
from sparkops.config.shipped import known_recipes
from sparkops.errors import SparkopsError, UsageError, joined
from sparkops.operator.cli.named import load_fleet
from sparkops.operator.cli.options import JSON, Settings
from sparkops.operator.cli.terminal import data, data_json, fitted, table
from sparkops.operator.deploy import observe
from sparkops.operator.deploy.preconditions import Observed
from sparkops.operator.deploy.suitable import Place, Suitable, suitable
from sparkops.operator.fleet.connected import connect

COLUMNS = frozenset({"memory.claim_gib", "serve.tensor_parallel"})
"""Keys of a recipe that its row shows."""
Fits = Mapping[str, Suitable]
"""Where each recipe fits, by its name; empty without --fits."""


def recipes(
    context: typer.Context,
    service: Annotated[str | None, typer.Argument(metavar="SERVICE", help="List the recipes of SERVICE")] = None,
    fits: Annotated[bool, typer.Option("--fits", help="Show which fit on the nodes of the inventory")] = False,
    json: JSON = False,
) -> None:
    """List recipes by service

    Prints a row for each service: the number of its recipes, and name and description of the first one. Those with the
    newest vLLM come first, before them those that have only a finished image without a version. With SERVICE prints its
    recipes, and how each differs from the one that it extends.

    --fits reads memory, GPUs and containers of the nodes, and the network where a recipe needs two. Without it no node
    is read.

    Example: sparkops recipes qwen3.5-122b
    """
    every = families(load(file) for file in known_recipes().values())
    listed = [_named(service, every)] if service is not None else every
    found, errors = _fits(context.obj, listed) if fits else ({}, [])
    if json:
        data_json(_as_json(listed, found))
    elif service is None:
        data("\n".join(fitted(table([*_services(listed, found)]))))
    else:
        data("\n".join(_variants(listed[0], found)))
    if errors:
        raise joined(errors)


def _named(service: str, every: Sequence[Family]) -> Family:
    """Return the family of a service. Raises UsageError with the service of a recipe of that name, or the nearest."""
    by_service = {family.service: family for family in every}
    if service in by_service:
        return by_service[service]
    owners = [family.service for family in every if service in {recipe.name for recipe in family.recipes}]
    if owners:
        raise UsageError(f"{service} is a recipe, expected a service", next_step=f"sparkops recipes {owners[0]}")
    near = difflib.get_close_matches(service, by_service, n=1)
    step = f"Did you mean {near[0]}? " if near else ""
    raise UsageError(f"no recipe of service {service}", next_step=f"{step}`sparkops recipes` lists all.")


def _fits(settings: Settings, listed: Sequence[Family]) -> tuple[Fits, list[SparkopsError]]:
    """Return where the recipes fit, and why nodes could not be read. Raises ConfigError, UsageError."""
    fleet = load_fleet(settings)
    asked = [recipe for family in listed for recipe in family.recipes]
    links = len(fleet.nodes) > 1 and any(recipe.serve.tensor_parallel > 1 for recipe in asked)
    with connect(fleet, required=False) as connected:
        outcomes = {**connected.unreachable, **observe.of_fleet(connected, links=links)}
    errors = [outcome for outcome in outcomes.values() if isinstance(outcome, SparkopsError)]
    # In the order of the inventory, which is that of a pair's ranks.
    observed = {name: found for name in fleet.nodes if isinstance(found := outcomes[name], Observed)}
    return {recipe.name: suitable(recipe, observed, fleet.fabric) for recipe in asked}, errors


def _services(listed: Sequence[Family], fits: Fits) -> Iterator[Sequence[str]]:
    yield (
        "SERVICE",
        "RECIPES",
        "VLLM",
        "NODES",
        "GIB PER NODE",
        "TOK/S",
        *(("FITS",) if fits else ()),
        "FIRST",
        "DESCRIPTION",
    )
    for family in listed:
        members = family.recipes
        speeds = [recipe.expected.tok_s for recipe in members if recipe.expected and recipe.expected.tok_s]
        yield (
            family.service,
            str(len(members)),
            family.release or "-",
            _span(recipe.serve.tensor_parallel for recipe in members),
            _span(recipe.memory.claim_gib for recipe in members),
            _span(speeds),
            *((_count([fits[recipe.name] for recipe in members]),) if fits else ()),
            family.first.name,
            family.first.description,
        )


def _span(numbers: Any) -> str:
    """Return the least and the most of numbers; `-` for none."""
    known = sorted(set(numbers))
    return "-".join(f"{number:g}" for number in known[:: max(len(known) - 1, 1)]) or "-"


def _count(found: Sequence[Suitable]) -> str:
    """Return how many recipes fit, and how many of them beside what runs."""
    fitting, now = sum(bool(one.places) for one in found), sum(bool(one.now) for one in found)
    running = sum(bool(one.running) for one in found)
    parts = [f"{now} now"] + ([f"{running} running"] if running else [])
    return f"{fitting} of {len(found)} ({', '.join(parts)})" if fitting else "none"


def _variants(family: Family, fits: Fits) -> Iterator[str]:
    head = ("RECIPE", "NODES", "GIB PER NODE", "TOK/S", "LOCK", *(("FITS",) if fits else ()), "DESCRIPTION")
    lines = fitted(table([head, *(_row(variant.recipe, fits) for variant in family.variants)]))
    yield lines[0]
    for variant, line in zip(family.variants, lines[1:], strict=True):
        yield line
        if variant.base:
            yield f"  {variant.base} {_words(variant)}"
        if fits:
            yield from (f"  does not fit: {reason}" for reason in fits[variant.recipe.name].reasons)


def _row(recipe: Recipe, fits: Fits) -> Sequence[str]:
    speed = f"{recipe.expected.tok_s:g}" if recipe.expected and recipe.expected.tok_s else "-"
    lock = "locked" if recipe.lock else "unlocked"
    where = (_where(fits[recipe.name]),) if fits else ()
    claim = f"{recipe.memory.claim_gib:g}"
    return (recipe.name, str(recipe.serve.tensor_parallel), claim, speed, lock, *where, recipe.description)


def _where(found: Suitable) -> str:
    """Return where a recipe runs, fits now, or would fit if the memory in use were freed."""
    busy = [place for place in found.places if place not in found.now]
    parts = [f"running on {', '.join(found.running)}"] if found.running else []
    parts += [f"now on {_places(found.now)}"] if found.now else []
    parts += [f"if freed on {_places(busy)}"] if busy and not (found.running or found.now) else []
    return "; ".join(parts) or "no"


def _places(places: Sequence[Place]) -> str:
    return ", ".join("+".join(place) for place in places)


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
