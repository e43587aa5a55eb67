"""The verb probe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from sparkops.command import quote
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.errors import UsageError, further, joined
from sparkops.node.member import Member
from sparkops.operator.cli.named import load_fleet, load_recipe, require_service
from sparkops.operator.cli.options import NODES, SERVICE, whole
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.fleet.connected import Connected, connect
from sparkops.serving.smoke import coverage, probing
from sparkops.serving.smoke.probing import Target
from sparkops.serving.smoke.results import SmokeReport


def probe(
    context: typer.Context,
    service: SERVICE,
    *,
    node: NODES = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="Recipe to test against; default: its own")
    ] = None,
    passes: Annotated[
        int | None, typer.Option(parser=whole(1), metavar="NUMBER", help="Full passes in a row; default: the recipe's")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print each check, its state and its reason, and exit")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object with all requests and replies")] = False,
) -> None:
    """Run the smoke suite on a running service

    Exit code 1 if an answer is wrong, with the reasons.

    Example: sparkops probe qwen3.5-122b
    """
    if list_ and (passes or (recipe and node)):
        problem = "--list: runs nothing, so --passes has no effect, nor has --node beside --recipe"
        raise UsageError(problem, next_step=f"sparkops probe {service} --list")
    fleet = load_fleet(context.obj)
    if list_ and recipe:
        _list([_of(service, load_recipe(recipe, fleet))], json=json)
        return
    with connect(fleet, node or ()) as connected:
        targets = _find(connected, service)
        recipes = {name: _recipe(fleet, recipe, target) for name, target in targets.items()}
        if list_:
            _list(list({loaded.name: loaded for loaded in recipes.values()}.values()), json=json)
            return
        reports = _run(connected.only(list(targets)), targets, recipes, passes, data if not json else say)
    if json:
        rows = [_as_json(targets[name], report) for name, report in reports.items()]
        data_json({"service": service, "replicas": rows})
    _conclude(service, targets, reports)


def _find(connected: Connected, service: str) -> dict[str, Target]:
    """Return the running replica on each node that has one; of two, the newest."""
    by_node = connected.all(lambda member: probing.targets(member, service))
    if not any(by_node.values()):
        require_service(connected, service)
        raise UsageError(f"{service} is not running", next_step="sparkops status")
    return {name: max(group, key=lambda item: item.container.started_at) for name, group in by_node.items() if group}


def _recipe(fleet: Fleet, named: str | None, target: Target) -> Recipe:
    """Return the named recipe, or the one in the container's labels."""
    container = target.container
    if not named and not target.recipe:
        raise UsageError(f"{container.name}: no recipe in its labels", next_step="Pass --recipe RECIPE.")
    with further(f"{quote('sparkops', 'probe', container.service)} --recipe FILE"):
        loaded = _of(container.service, load_recipe(named or target.recipe, fleet))
    if target.differs(loaded):
        say(f"{container.node}: {loaded.name} has changed since {container.release} was made", fg="yellow")
    return loaded


def _of(service: str, recipe: Recipe) -> Recipe:
    if recipe.service != service:
        raise UsageError(f"recipe {recipe.name}: its service is {recipe.service}, expected {service}")
    return recipe


def _list(recipes: list[Recipe], *, json: bool) -> None:
    planned = {recipe.name: coverage.planned(recipe) for recipe in recipes}
    if json:
        rows = {name: [vars(check) for check in checks] for name, checks in planned.items()}
        data_json({"recipes": rows})
        return
    for recipe in recipes:
        data(f"{recipe.name}: {recipe.probe.passes} passes in a row")
        for check in planned[recipe.name]:
            data(f"  {check.name:<11} {'runs' if check.runs else 'off':<5} {check.why}")


def _run(
    connected: Connected,
    targets: Mapping[str, Target],
    recipes: Mapping[str, Recipe],
    passes: int | None,
    show: Callable[[str], None],
) -> dict[str, SmokeReport]:
    """Probe the replicas on all connected nodes in parallel, and show a line for each check."""

    def probe_one(member: Member) -> SmokeReport:
        mark = f"{member.name} | " if len(targets) > 1 else ""
        container = targets[member.name].container
        return probing.probe(member, container, recipes[member.name], passes, lambda verdict: show(f"{mark}{verdict}"))

    return connected.all(probe_one)


def _as_json(target: Target, report: SmokeReport) -> dict[str, object]:
    container = target.container
    place = {"node": container.node, "container": container.name, "release": container.release, "slot": container.slot}
    return {**place, "recipe": target.recipe, **report.as_json()}


def _conclude(service: str, targets: Mapping[str, Target], reports: Mapping[str, SmokeReport]) -> None:
    """Print the results. Raises ProbeFailed, or NodesFailed for several."""
    for name, report in reports.items():
        if report.ok:
            passes = f"{report.passes} of {report.required} passes in {report.took_s:.1f} s"
            say(f"{name}: {targets[name].container.release} works: {passes}", fg="green")
    errors = [error for name, report in reports.items() if (error := probing.refused(name, service, report))]
    if errors:
        raise joined(errors)
