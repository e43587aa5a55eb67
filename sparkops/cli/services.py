"""plan, deploy, stop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from sparkops.cli.fitting import section
from sparkops.cli.images import make_order
from sparkops.cli.settings import WAIT, Settings, keep_of
from sparkops.cli.terminal import data, data_json, progress, say

if TYPE_CHECKING:
    from sparkops.config.inventory import Fleet
    from sparkops.fleet.connected import Connected
    from sparkops.fleet.deploy import Deployed
    from sparkops.plan.deploy import Plan
    from sparkops.release import Release

MODE = Annotated[str | None, typer.Option("--mode", help="beside, across or in-place; left out, the safest.")]
ALLOW = Annotated[bool, typer.Option("--allow-downtime", help="Let the service be down where nothing else fits.")]
SET = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE of the recipe for this release, such as env.NAME=x; again for more."),
]
RECIPE = Annotated[str, typer.Argument(help="A recipe's file or name.")]
NODES = Annotated[list[str] | None, typer.Option("--node", "-n", help="Run there; again for one replica on each.")]


def register(app: typer.Typer) -> None:
    """Add the verbs of this family."""
    app.command()(plan)
    app.command()(deploy)
    app.command()(stop)


def plan(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    blue_green: Annotated[bool, typer.Option("--blue-green", help="The plan of a swap.")] = False,
    mode: MODE = None,
    allow_downtime: ALLOW = False,
    set_: SET = None,
) -> None:
    """Show what deploy would run. Changes nothing."""
    deploy(context, recipe, node, blue_green, mode, allow_downtime, set_=set_, dry_run=True)


def deploy(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    blue_green: Annotated[
        bool, typer.Option("--blue-green", help="Behind the gateway, in place of what serves.")
    ] = False,
    mode: MODE = None,
    allow_downtime: ALLOW = False,
    no_promote: Annotated[bool, typer.Option("--no-promote", help="Stop after the switch, until `promote`.")] = False,
    wait: WAIT = 0.0,
    set_: SET = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and stop.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object at the end.")] = False,
) -> None:
    """Start a recipe on its nodes, watch it load, run the smoke suite. Adopts a start that is under way."""
    from sparkops.cli.swapping import Options, swap
    from sparkops.release import Release

    settings: Settings = context.obj
    fleet = settings.fleet()
    wanted = settings.recipe(recipe, fleet, set_ or ())
    release = Release(wanted, make_order(wanted, fleet).context.digest)
    if blue_green:
        options = Options(tuple(node or ()), mode, allow_downtime, wait, json=json, dry_run=dry_run)
        swap(settings, fleet, release, options, promote=not no_promote)
    else:
        _direct(settings, fleet, release, tuple(node or ()), json=json, dry_run=dry_run)


def _direct(
    settings: Settings, fleet: Fleet, release: Release, node: tuple[str, ...], *, json: bool, dry_run: bool
) -> None:
    """One replica on each node, without a gateway."""
    from sparkops.fleet import deploy as deploying
    from sparkops.fleet.connected import Connected, connect

    with connect(fleet, node or release.recipe.nodes) as connected:
        made = _make_plan(connected, release, list(node))
        if dry_run:
            data(f"{made}{section(connected, release.recipe, [replica.rank.node for replica in made.replicas])}")
            return
        say(str(made) if settings.verbose else _headline(made))
        chosen = {replica.rank.node for replica in made.replicas}
        members = {name: member for name, member in connected.members.items() if name in chosen}
        with progress() as tell:
            only = Connected(fleet, members, {}, connected.cancel)
            done = deploying.deploy(only, made, keep_of(release.id), tell)
    _summary(done, {name: fleet.nodes[name].address for name in done})
    if json:
        data_json(_as_json(release, done))


def _make_plan(connected: Connected, release: Release, asked: list[str]) -> Plan:
    from sparkops.fleet import observe
    from sparkops.plan import deploy as planning

    observed = observe.before_deploy(connected, release)
    chosen = planning.place(release.recipe, asked, observed)
    return planning.deploy(release, {name: observed[name] for name in chosen})


def _headline(made: Plan) -> str:
    nodes = ", ".join(replica.rank.node for replica in made.replicas)
    return "\n".join([f"deploying release {made.release.id} of {made.release.service} to {nodes}", *made.notes])


def _summary(done: Mapping[str, Deployed], addresses: Mapping[str, str]) -> None:
    for name, each in done.items():
        stages = " · ".join(f"{stage} at {at_s:.0f} s" for stage, at_s in each.stages)
        what = f"answers after {each.took_s:.0f} s" if each.changed else "nothing to do: it runs and answers"
        say(f"{name}: {what} ({stages})", fg="green")
        say(f"  http://{addresses[name]}:{each.rank.port}/v1   model: {each.rank.release.service}")


def _as_json(release: Release, done: Mapping[str, Deployed]) -> dict[str, object]:
    replicas = [
        {
            "node": name,
            "container": each.rank.container,
            "slot": each.rank.slot.value,
            "port": each.rank.port,
            "changed": each.changed,
            "probe": {"passes": each.report.passes, "took_s": round(each.report.took_s, 1)} if each.report else None,
            "took_s": round(each.took_s, 1),
            "stages": [{"stage": stage, "at_s": round(at_s, 1)} for stage, at_s in each.stages],
        }
        for name, each in done.items()
    ]
    return {"service": release.service, "release": release.id, "replicas": replicas}


def stop(
    context: typer.Context,
    service: Annotated[str, typer.Argument(help="The service's name, as status shows it.")],
    node: Annotated[list[str] | None, typer.Option("--node", "-n", help="Only there; again for more.")] = None,
) -> None:
    """Stop a service: SIGTERM, its grace period, and a look that it has ended. Containers and logs stay."""
    from sparkops.fleet import deploy as deploying
    from sparkops.fleet.connected import connect

    settings: Settings = context.obj
    with connect(settings.fleet(), node or ()) as connected, progress() as tell:
        stopped = deploying.stop(connected, service, tell)
    for name, containers in stopped.items():
        say(f"{name}: {'stopped ' + ', '.join(containers) if containers else f'{service} does not run there'}")
