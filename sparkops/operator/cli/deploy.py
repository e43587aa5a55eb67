"""The verbs fit, plan, up and deploy, and the memory section of `plan`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from json import dumps
from typing import Annotated

import typer

from sparkops.config import assets
from sparkops.config.inventory import Fleet
from sparkops.config.recipe import Recipe
from sparkops.config.release import Release
from sparkops.config.serve import Task
from sparkops.engines import ENGINES
from sparkops.engines.calculators import CALCULATORS
from sparkops.errors import PlanRefused, SparkopsError, UsageError
from sparkops.operator.build.gateway.image import Service
from sparkops.operator.build.hub.headers import HubHeaders
from sparkops.operator.cli.images import make_headers, make_hub, make_order
from sparkops.operator.cli.intents import Options, conclude, leading_guard, plan_options
from sparkops.operator.cli.named import load_fleet, load_recipe
from sparkops.operator.cli.options import (
    ALLOW_DOWNTIME,
    BLUE_GREEN,
    DETACH,
    DRY_RUN,
    ENDPOINT,
    JSON,
    MODE,
    NODES,
    RECIPE,
    REPLICAS,
    SET,
    TOKEN_FILE,
    WAIT,
    WITHOUT,
)
from sparkops.operator.cli.progress import progress
from sparkops.operator.cli.terminal import data, data_json, say
from sparkops.operator.deploy import comparing, configuration, fitting, leads, preview, sending
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.memory.fit import Fit, lower
from sparkops.operator.deploy.memory.report import as_json, lines
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.plan import DeployOptions
from sparkops.operator.deploy.preview import Draft
from sparkops.operator.deploy.provision import missing, provision, ready_agents
from sparkops.operator.fleet.connected import Connected, connect
from sparkops.operator.fleet.guards import leases
from sparkops.operator.fleet.guards.ending import Ending
from sparkops.operator.fleet.guards.following import Following
from sparkops.operator.fleet.guards.leader import Leader
from sparkops.operator.fleet.parallel import all_or_raise
from sparkops.operator.status.clients import CLIENTS
from sparkops.serving.service_state import ServiceState
from sparkops.swap.events import DONE


def fit(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    set_: SET = None,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    json: JSON = False,
) -> None:
    """Predict a recipe's memory use on its nodes

    Reads config.json and safetensors headers on each node, or the recipe's lock, or reads them from the hub before a
    download. Starts nothing. Exit code 1 if the recipe does not fit, 5 if its memory is unknown.

    Example: sparkops fit 122b-autoround --node spark-1
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet, set_ or ())
    hub = make_headers(fleet, token_file, endpoint)
    with connect(fleet, node or loaded.nodes) as connected:
        outcomes = fitting.fits(connected, loaded, hub)
    known = [outcome for outcome in outcomes.values() if isinstance(outcome, Fit)]
    if json:
        data_json({"recipe": loaded.name, "nodes": list(map(as_json, known))})
    elif known:
        data("\n".join(line for outcome in known for line in lines(outcome)))
    all_or_raise(outcomes)
    too_large = [outcome for outcome in known if outcome.problems]
    for step in dict.fromkeys(lower(outcome, loaded.word) for outcome in too_large):
        say(f"  next: {step}", bold=True)
    if too_large:
        raise typer.Exit(1)


def section(connected: Connected, recipe: Recipe, nodes: Sequence[str], hub: HubHeaders | None = None) -> str:
    """Return the memory section that follows a plan; empty for an engine that reads no model.

    Unknown memory does not refuse a plan: it uses `memory.claim_gib`. `hub` describes a model that no node has yet.
    """
    if not ENGINES[recipe.engine].weights:
        return ""
    members = {name: member for name, member in connected.members.items() if name in nodes}
    try:
        outcomes = fitting.fits(replace(connected, members=members), recipe, hub)
    except UsageError:  # the recipe is wrong, whatever the memory
        raise
    except SparkopsError as error:
        return f"\nmemory, predicted:\n  {error}"
    for outcome in outcomes.values():
        if isinstance(outcome, UsageError):
            raise outcome
    text = ["", "memory, predicted:"]
    for outcome in outcomes.values():
        text += (f"  {line}" for line in (lines(outcome) if isinstance(outcome, Fit) else _unknown(outcome)))
    return "\n".join(text)


def _unknown(error: SparkopsError) -> list[str]:
    return [*str(error).splitlines(), *(f"  next: {line}" for line in error.next_step.splitlines())]


DEPLOY_NODES = Annotated[
    list[str] | None, typer.Option("--node", "-n", metavar="NODE", help="Run on NODE (repeatable: on any of them)")
]


def plan(
    context: typer.Context,
    recipe: RECIPE,
    node: DEPLOY_NODES = None,
    blue_green: BLUE_GREEN = True,  # noqa: ARG001 - scripts pass it
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    replicas: REPLICAS = None,
    wait: WAIT = 0.0,
    set_: SET = None,
    token_file: TOKEN_FILE = None,
    endpoint: ENDPOINT = "",
    json: JSON = False,
) -> None:
    """Preview a deploy

    Changes nothing. For new inputs the engine builds its configuration once, in a container of its own. Where the
    weights are absent, the memory is predicted from headers at the hub.

    Exit code 5 if the deploy would be refused.

    Example: sparkops plan 122b-autoround
    """
    fleet = load_fleet(context.obj)
    loaded = load_recipe(recipe, fleet, set_ or ())
    release, hub = Release(loaded, make_order(loaded, fleet).context.digest), make_headers(fleet, token_file, endpoint)
    choices = plan_options(fleet, node, mode, allow_downtime=allow_downtime, replicas=replicas)
    _show_swap(fleet, release, choices, Options(wait, json), hub=hub, verbose=context.obj.verbose)


def deploy(
    context: typer.Context,
    recipe: RECIPE,
    node: DEPLOY_NODES = None,
    blue_green: BLUE_GREEN = True,  # noqa: ARG001 - scripts pass it
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    no_promote: Annotated[bool, typer.Option("--no-promote", help="Wait after the switch until `promote`")] = False,
    replicas: REPLICAS = None,
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
    choices = plan_options(
        fleet, node, mode, without, allow_downtime=allow_downtime, promote=not no_promote, replicas=replicas
    )
    if dry_run:
        options = Options(wait, json)
        _show_swap(fleet, release, choices, options, apply_gateway=apply_gateway, verbose=context.obj.verbose)
    else:
        options = Options(wait, json, detach)
        _swap(fleet, release, choices, options, apply_gateway=apply_gateway, verbose=context.obj.verbose)


def up(
    context: typer.Context,
    recipe: RECIPE,
    node: NODES = None,
    mode: MODE = None,
    allow_downtime: ALLOW_DOWNTIME = False,
    replicas: REPLICAS = None,
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
    choices = plan_options(fleet, node, mode, allow_downtime=allow_downtime, replicas=replicas)
    choices = replace(choices, provided=frozenset(names))
    with leading_guard(fleet, wait) as (operation, leader):
        planned = sending.foresee(operation, leader, release, choices)
    with connect(fleet, names) as connected, progress() as report:
        due = missing(connected, loaded, order)
        for line in due:
            (data if dry_run and not json else say)(line)
        if due.weights and not due.complete and loaded.engine in CALCULATORS:
            say(section(connected, loaded, names, make_headers(fleet, token_file, endpoint)).strip())
        if (due.image or due.weights) and not dry_run:
            specs = agents.load(fleet, [_behind_gateway(loaded)])
            provision(connected, due, order, source, specs, report, wait)
    if not (dry_run and (due.image or due.weights)):
        deploy(
            context,
            recipe,
            node,
            mode=mode,
            allow_downtime=allow_downtime,
            replicas=replicas,
            wait=wait,
            set_=set_,
            detach=detach,
            dry_run=dry_run,
            json=json,
        )
    elif json:
        data_json({**_plan_json(release, None), "mode": planned.mode.value if planned else None, "missing": list(due)})
    elif planned:
        data(str(planned))
    if not dry_run:
        (say if json else data)(request(fleet, loaded))


REQUESTS: Mapping[Task, tuple[str, Mapping[str, object]]] = {
    "chat": ("chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 64}),
    "embedding": ("embeddings", {"input": "Hello"}),
    "rerank": ("rerank", {"query": "Hello", "documents": ["Good day", "Goodbye"]}),
}
"""By task: a request to try a service, as its path after /v1/ and its body without the model."""


def request(fleet: Fleet, recipe: Recipe) -> str:
    """Return a curl command that asks the service a question."""
    gateway = fleet.require_gateway()
    url = gateway.url(recipe.serve.port)
    key = "-H 'Authorization: Bearer KEY' " if gateway.api_keys else ""
    path, asked = REQUESTS[recipe.serve.task]
    body = {"model": recipe.service, **asked}
    return f"curl {url}/{path} {key}-H 'Content-Type: application/json' -d '{dumps(body)}'"


def _swap(
    fleet: Fleet, release: Release, choices: DeployOptions, options: Options, *, apply_gateway: bool, verbose: bool
) -> None:
    """Send the intent to deploy a release, and follow it."""
    service = _behind_gateway(release.recipe)
    with leading_guard(fleet, options.wait_s) as (operation, leader):
        desired = agents.load(fleet, [service])
        at, work = operation.connected.member(operation.node), f"{service.name}: deploy of {release.id}"
        with leases.of_deploy(at, service.name, work, operation.report, options.wait_s):
            draft = sending.prepare(operation, leader, release, choices)
            if draft:
                changed = sending.difference_of(draft.state, release)
                for line in changed.lines() if changed else ():
                    say(line)
                for line in _checked(operation, release, draft):
                    say(line)
            if verbose and draft:
                say(_plan_text(operation.connected, release, draft, verbose=True))
            draft = ready_agents(operation, leader, release.service, desired, draft, apply_gateway=apply_gateway)
            accepted = sending.deploy(operation, leader, release, choices, draft)
        url = fleet.require_gateway().url(service.port)
        if accepted is None:
            say("\n".join(_nothing(leader.state(release.service), release)), fg="green")
            if options.json:
                data_json({"service": release.service, **Ending("nothing", DONE, release.id).as_json()})
        else:
            following = Following(leader, release.service, operation.report)
            conclude(following, accepted, detach=options.detach, json=options.json)
            if draft and release.recipe.swap.compare:
                for line in comparing.found(operation, draft.intent.target, release.service, accepted.intent):
                    say(line)
        say(f"  {url}   model: {release.service}")
        if not options.detach:
            say(f"  clients: sparkops status --client NAME, with one of {', '.join(CLIENTS)}")


def _behind_gateway(recipe: Recipe) -> Service:
    return Service(recipe.service, recipe.serve.port, tuple(recipe.serve.aliases), recipe.serve.sticky)


def _checked(operation: Operation, release: Release, draft: Draft | None) -> list[str]:
    """Return what the engine says of its configuration, which it builds before anything stops; nothing without a plan.

    Raises NotReady where it refuses.
    """
    if draft is None:
        return []
    script = assets.load_parser(release.recipe.engine)
    found = configuration.check(operation.connected, draft.plan, script, operation.report)
    return [str(found)] if found else []


def _show_swap(
    fleet: Fleet,
    release: Release,
    choices: DeployOptions,
    options: Options,
    *,
    apply_gateway: bool = False,
    verbose: bool,
    hub: HubHeaders | None = None,
) -> None:
    """Print what a deploy would change, in the service, in gateway and guards, and what it would run.

    `hub` describes a model that the nodes lack: the deploy is refused, and its memory printed.
    """
    with leading_guard(fleet, options.wait_s) as (operation, leader):
        state = leads.state_by(operation.connected.member(operation.node), leader, release.service)
        changed = sending.difference_of(state, release)
        if changed and not options.json:
            data("\n".join(changed.lines()))
        connected, desired = operation.connected, agents.load(fleet, [_behind_gateway(release.recipe)])
        changes = [
            str(change) + ("; needs --apply-gateway" if change.needs_consent and not apply_gateway else "")
            for change in agents.changes(connected, desired)
        ]
        try:
            draft = sending.dry_run(operation, leader, release, choices)
        except PlanRefused:
            if hub and (memory := _once_provided(operation, leader, release, choices, hub)):
                (say if options.json else data)(memory)
            raise
        checked = _checked(operation, release, draft)
        if options.json:
            compared = changed.as_json() if changed else None
            data_json({**_plan_json(release, draft), "difference": compared, "agents": changes, "checks": checked})
        else:
            told = [_plan_text(connected, release, draft, verbose=verbose)] if draft else _nothing(state, release)
            data("\n".join([*changes, *checked, *told]))


def _once_provided(
    operation: Operation, leader: Leader, release: Release, choices: DeployOptions, hub: HubHeaders
) -> str:
    """Return the memory on the nodes that a deploy would take with image and weights; empty if it is refused so too."""
    connected = operation.connected
    try:
        provided = replace(choices, provided=frozenset(connected.fleet.nodes))
        planned = sending.foresee(operation, leader, release, provided)
    except PlanRefused:
        return ""
    nodes = [rank.node for rank in planned.ranks] if planned else []
    return section(connected, release.recipe, nodes, hub).strip() if nodes else ""


def _nothing(state: ServiceState | None, release: Release) -> list[str]:
    """Return that a release serves, and what of its recipe takes effect only with another one."""
    later = [f"  {change}: not before the next release" for change in sending.untaken(state, release)]
    return [f"{release.service}: nothing to do: {release.id} serves", *later]


def _plan_json(release: Release, draft: Draft | None) -> dict[str, object]:
    """Return what a deploy would run, for `--json`."""
    effects = draft.effects if draft else None
    plan = preview.as_json(effects, release.service) if effects else []
    mode = draft.plan.mode.value if draft else None
    return {"service": release.service, "release": release.id, "mode": mode, "effects": plan}


def _plan_text(connected: Connected, release: Release, draft: Draft, *, verbose: bool) -> str:
    """Return what a deploy would run, as text."""
    if (effects := draft.effects) is None:
        return f"{release.service}: nothing to do: {release.id} serves"
    nodes = [rank.node for rank in draft.plan.ranks]
    notes = [f"  no report from the guard of {node} yet" for node in draft.state.missing if node in nodes]
    memory = section(connected, release.recipe, nodes)
    compare = comparing.planned(release.recipe, draft.state.journal.active, draft.intent.target)
    steps = preview.lines(effects, release.service, verbose=verbose)
    return "\n".join([f"{draft.plan}{memory}", *notes, *compare, *steps])
