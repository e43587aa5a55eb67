"""The verbs plan, deploy and up."""

from __future__ import annotations

from json import dumps
from typing import Annotated

import typer

from sparkops.cli.deploying import foresee, plan_json, swap
from sparkops.cli.fit import section
from sparkops.cli.images import make_order
from sparkops.cli.intents import Options
from sparkops.cli.models import make_hub
from sparkops.cli.named import load_fleet, load_recipe
from sparkops.cli.options import (
    ALLOW_DOWNTIME,
    BLUE_GREEN,
    DETACH,
    DRY_RUN,
    ENDPOINT,
    JSON,
    MODE,
    NODES,
    RECIPE,
    SET,
    TOKEN_FILE,
    WAIT,
    WITHOUT,
)
from sparkops.cli.progress import progress
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.deploy.provision import missing, provision
from sparkops.nodes.connected import connect
from sparkops.release import Release

DEPLOY_NODES = Annotated[
    list[str] | None, typer.Option("--node", "-n", metavar="NODE", help="Run on NODE (repeatable: on any of them)")
]


def plan(
    context: typer.Context,
    recipe: RECIPE,
    node: DEPLOY_NODES = None,
    blue_green: BLUE_GREEN = True,
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    set_: SET = None,
    json: JSON = False,
) -> None:
    """Preview a deploy

    Changes nothing.

    Exit code 5 if the deploy would be refused.

    Example: sparkops plan 122b-autoround
    """
    deploy(context, recipe, node, blue_green, mode, allow_downtime, set_=set_, dry_run=True, json=json)


def deploy(
    context: typer.Context,
    recipe: RECIPE,
    node: DEPLOY_NODES = None,
    blue_green: BLUE_GREEN = True,  # noqa: ARG001 - scripts pass it
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    no_promote: Annotated[bool, typer.Option("--no-promote", help="Wait after the switch until `promote`")] = False,
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

    The fleet executes the deploy; the client only follows it.

    Exit code 1 if the new release fails and the old one still serves, 4 if another change is in progress, 5 if refused,
    6 if it fails in place and the old one is back, 7 if an operator is needed.

    Example: sparkops deploy 122b-autoround --node spark-2
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet, set_ or ())
    release = Release(loaded, make_order(loaded, fleet).context.digest)
    options = Options(
        nodes=tuple(node or ()),
        mode=mode,
        allow_downtime=allow_downtime,
        wait_s=wait,
        json=json,
        dry_run=dry_run,
        detach=detach,
        promote=not no_promote,
        without=tuple(without or ()),
        apply_gateway=apply_gateway,
        verbose=context.obj.verbose,
    )
    swap(fleet, release, options)


def up(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    wait: WAIT = 0.0,
    set_: SET = None,
    detach: DETACH = False,
    dry_run: DRY_RUN = False,
    json: JSON = False,
) -> None:
    """Build, download and deploy what is missing

    Brings image and weights to the recipe's nodes, deploys it, and prints a request to try. Before it builds anything,
    it refuses what `plan` would refuse. Continues when run again after an interruption.

    Exit codes as for deploy.

    Example: sparkops up qwen3.6-35b-nvfp4
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet, set_ or ())
    order, source = make_order(loaded, fleet), make_hub(fleet, token_file, endpoint)
    names = tuple(node or loaded.nodes or fleet.nodes)
    release = Release(loaded, order.context.digest)
    options = Options(nodes=tuple(node or ()), mode=mode, allow_downtime=allow_downtime, wait_s=wait)
    planned = foresee(fleet, release, options, names)
    with connect(fleet, names) as connected, progress() as report:
        due = missing(connected, loaded, order)
        for line in due:
            (data if dry_run and not json else say)(line)
        if due.weights and not due.complete and loaded.lock and loaded.lock.checkpoint:
            say(section(connected, loaded, names).strip())
        if not dry_run:
            provision(connected, due, order, source, report, wait)
    if not (dry_run and (due.image or due.weights)):
        deploy(
            context,
            recipe,
            node,
            mode=mode,
            allow_downtime=allow_downtime,
            wait=wait,
            set_=set_,
            detach=detach,
            dry_run=dry_run,
            json=json,
        )
    elif json:
        data_json({**plan_json(release, None), "mode": planned.mode.value if planned else None, "missing": list(due)})
    elif planned:
        data(str(planned))
    if not dry_run:
        (say if json else data)(request(fleet, loaded))


def request(fleet: Fleet, recipe: Recipe) -> str:
    """Return a curl command that asks the service a question."""
    gateway = fleet.require_gateway()
    url = gateway.url(recipe.serve.port)
    key = "-H 'Authorization: Bearer KEY' " if gateway.api_keys else ""
    body = {"model": recipe.service, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    return f"curl {url}/chat/completions {key}-H 'Content-Type: application/json' -d '{dumps(body)}'"
