"""probe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, say
from sparkops.errors import NodesFailed, UsageError

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.config.recipe import Recipe
    from sparkops.fleet.connected import Connected, Member
    from sparkops.fleet.probing import Target
    from sparkops.plan.smoke import Report


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(probe)


def probe(
    context: typer.Context,
    service: Annotated[str, typer.Argument(help="The service's name, as status shows it.")],
    *,
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only there; again for more.")] = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's file or name, instead of the one it runs.")] = None,
    passes: Annotated[int | None, typer.Option(min=1, help="Full passes in a row, instead of the recipe's.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show which checks run and why, and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object, with the transcript of all requests.")] = False,
) -> None:
    """Run the smoke suite over a running service. Ends with 1 and the reasons if an answer is wrong."""
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    fleet = settings.fleet()
    if list_ and recipe:
        _list([_of(service, settings.recipe(recipe, fleet))], json=json)
        return
    with connect(fleet, node or ()) as connected:
        found = _find(connected, service)
        recipes = {name: _recipe(settings, fleet, recipe, target) for name, target in found.items()}
        if list_:
            _list(list({each.name: each for each in recipes.values()}.values()), json=json)
            return
        reports = _run(connected, found, recipes, passes, data if not json else say)
    if json:
        data_json({"service": service, "replicas": [_as_json(found[name], each) for name, each in reports.items()]})
    _end(service, found, reports)


def _find(connected: Connected, service: str) -> dict[str, Target]:
    """The running replica on each node that has one; where there are two, the one that started last."""
    from sparkops.fleet import probing

    on_nodes = connected.all(lambda member: probing.targets(member, service))
    found = {name: max(each, key=lambda one: one.container.started_at) for name, each in on_nodes.items() if each}
    if not found:
        raise UsageError(f"{service} does not run", next_step="What runs: sparkops status")
    return found


def _recipe(settings: Settings, fleet: Fleet, named: str | None, target: Target) -> Recipe:
    """The recipe that was asked for, or the one that the container's label names."""
    container = target.container
    if not named and not target.recipe:
        raise UsageError(f"{container.name} does not say what recipe it is of", next_step="Name it with --recipe.")
    loaded = _of(container.service, settings.recipe(named or target.recipe, fleet))
    if target.differs(loaded):
        say(f"{container.node}: {container.release} was made from another state of {loaded.name}", fg="yellow")
    return loaded


def _of(service: str, recipe: Recipe) -> Recipe:
    if recipe.service != service:
        raise UsageError(f"the recipe {recipe.name} is of {recipe.service}, not of {service}")
    return recipe


def _list(recipes: list[Recipe], *, json: bool) -> None:
    from sparkops.plan import coverage

    planned = {each.name: coverage.planned(each) for each in recipes}
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
    found: Mapping[str, Target],
    recipes: Mapping[str, Recipe],
    passes: int | None,
    show: Callable[[str], None],
) -> dict[str, Report]:
    """Probe every replica at once, a line for each check."""
    from sparkops.fleet import probing
    from sparkops.fleet.connected import Connected

    def probe_one(member: Member) -> Report:
        # Others may send requests meanwhile: a service that runs is one that is used.
        how = probing.Probing(recipes[member.name], passes, alone=False)
        mark = f"{member.name} | " if len(found) > 1 else ""
        container = found[member.name].container
        return probing.probe(member, container.name, container.port, how, lambda each: show(f"{mark}{each}"))

    members = {name: connected.members[name] for name in found}
    return Connected(connected.fleet, members, {}, connected.cancel).all(probe_one)


def _as_json(target: Target, report: Report) -> dict[str, object]:
    container = target.container
    place = {"node": container.node, "container": container.name, "release": container.release, "slot": container.slot}
    return {**place, "recipe": target.recipe, **report.as_json()}


def _end(service: str, found: Mapping[str, Target], reports: Mapping[str, Report]) -> None:
    """Say how it ended. Raises ProbeFailed, or NodesFailed with all of them."""
    from sparkops.fleet import probing

    for name, report in reports.items():
        if report.ok:
            what = f"{report.passes} of {report.wanted} passes in {report.took_s:.1f} s"
            say(f"{name}: {found[name].container.release} works: {what}", fg="green")
    errors = [error for name, each in reports.items() if (error := probing.refused(name, service, each))]
    if errors:
        raise errors[0] if len(errors) == 1 else NodesFailed(errors)
