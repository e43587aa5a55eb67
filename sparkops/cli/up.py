"""The verb up."""

from __future__ import annotations

import json

import typer

from sparkops.cli.fit import section
from sparkops.cli.images import make_order
from sparkops.cli.inventory import load_fleet
from sparkops.cli.models import make_hub
from sparkops.cli.named import load_recipe
from sparkops.cli.options import ALLOW_DOWNTIME, DRY_RUN, ENDPOINT, MODE, NODES, RECIPE, TOKEN_FILE, WAIT
from sparkops.cli.progress import progress
from sparkops.cli.services import deploy
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, say
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.deploy.provision import missing, provision
from sparkops.nodes.connected import connect


def up(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    wait: WAIT = 0.0,
    dry_run: DRY_RUN = False,
) -> None:
    """Build, download and deploy what is missing

    Brings the recipe's image and weights to its nodes, deploys it, and prints a request to try. Run it again after an
    interruption: it continues.

    Exit codes as of deploy.

    Example: sparkops up qwen3.6-35b-nvfp4
    """
    settings: Settings = context.obj
    fleet = load_fleet(settings)
    wanted = load_recipe(recipe, fleet)
    order, source = make_order(wanted, fleet), make_hub(fleet, token_file, endpoint)
    names = tuple(node or wanted.nodes or fleet.nodes)
    with connect(fleet, names) as connected, progress() as tell:
        due = missing(connected, wanted, order)
        for line in due:
            (data if dry_run else say)(line)
        if due.weights and not due.complete and wanted.lock and wanted.lock.checkpoint:
            say(section(connected, wanted, names).strip())
        if not dry_run:
            provision(connected, due, order, source, tell, wait)
    if not (dry_run and (due.image or due.weights)):
        deploy(context, recipe, node, mode=mode, allow_downtime=allow_downtime, wait=wait, dry_run=dry_run)
    if not dry_run:
        data(request(fleet, wanted, names[0]))


def request(fleet: Fleet, recipe: Recipe, node: str) -> str:
    """Return a curl command that asks the service a question, without a gateway at `node`."""
    port = recipe.serve.port
    url = fleet.gateway.url(port) if fleet.gateway else f"http://{fleet.nodes[node].address}:{port}/v1"
    key = "-H 'Authorization: Bearer KEY' " if fleet.gateway and fleet.gateway.api_keys else ""
    body = {"model": recipe.service, "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}
    return f"curl {url}/chat/completions {key}-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
