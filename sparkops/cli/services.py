"""The verbs plan and deploy."""

from __future__ import annotations

from typing import Annotated

import typer

from sparkops.cli.deploying import direct, swap
from sparkops.cli.images import make_order
from sparkops.cli.intents import Options
from sparkops.cli.inventory import load_fleet
from sparkops.cli.named import load_recipe
from sparkops.cli.options import ALLOW_DOWNTIME, DETACH, DRY_RUN, JSON, MODE, RECIPE, SET, WAIT, WITHOUT
from sparkops.cli.settings import Settings
from sparkops.release import Release

NODES = Annotated[
    list[str] | None, typer.Option("--node", "-n", metavar="NODE", help="Run on NODE (repeatable: a replica on each)")
]


def plan(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    blue_green: Annotated[bool, typer.Option("--blue-green", help="Plan a swap behind the gateway")] = False,
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    set_: SET = None,
) -> None:
    """Preview a deploy

    Changes nothing.

    Exit code 5 if the deploy would be refused.

    Example: sparkops plan 122b-autoround
    """
    deploy(context, recipe, node, blue_green, mode, allow_downtime, set_=set_, dry_run=True)


def deploy(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    blue_green: Annotated[
        bool, typer.Option("--blue-green", help="Replace the active release behind the gateway")
    ] = False,
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    no_promote: Annotated[bool, typer.Option("--no-promote", help="Stop after the switch, until `promote`")] = False,
    wait: WAIT = 0.0,
    set_: SET = None,
    without: WITHOUT = None,
    apply_gateway: Annotated[
        bool, typer.Option("--apply-gateway", help="Change the running gateway to match the inventory")
    ] = False,
    detach: DETACH = False,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Deploy a recipe and verify its answers

    The fleet executes the deploy; this client only follows.

    Exit code 1 if the new release fails and the old one still serves, 4 if another change is in progress, 5 if refused,
    6 if it fails in place and the old one is back, 7 if an operator is needed.

    Example: sparkops deploy 122b-autoround --node spark-2
    """
    settings: Settings = context.obj
    fleet = load_fleet(settings)
    wanted = load_recipe(recipe, fleet, set_ or ())
    release = Release(wanted, make_order(wanted, fleet).context.digest)
    options = Options(
        tuple(node or ()),
        mode,
        allow_downtime,
        wait,
        json,
        dry_run,
        detach,
        not no_promote,
        tuple(without or ()),
        apply_gateway,
    )
    (swap if blue_green or fleet.gateway else direct)(settings, fleet, release, options)
