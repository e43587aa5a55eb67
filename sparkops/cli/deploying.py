"""The deploy of a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparkops.agents import agents
from sparkops.agents.differences import Change
from sparkops.cli.fit import section
from sparkops.cli.intents import Options, leading_guard
from sparkops.cli.outcome import conclude
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.inventory import Fleet
from sparkops.deploy import preview, sending
from sparkops.deploy.plan import SwapPlan
from sparkops.deploy.rollout import Rollout
from sparkops.deploy.sending import Draft
from sparkops.gateway.image import Service
from sparkops.guard_client.following import Following
from sparkops.nodes.connected import Connected
from sparkops.release import Release


def swap(fleet: Fleet, release: Release, options: Options) -> None:
    """Send the intent to deploy a release, and follow it."""
    choices = options.choices(fleet)
    serve = release.recipe.serve
    service = Service(release.service, serve.port, tuple(serve.aliases))
    with leading_guard(fleet, options.wait_s) as (operation, leader):
        desired = agents.load(fleet, [service])
        if options.dry_run:
            changes = agents.changes(operation.connected, desired)
            draft = sending.dry_run(operation, leader, release, choices)
            _show_swap(operation.connected, release, draft, changes, json=options.json)
            return
        rollout = Rollout(operation, leader, release, choices, desired)
        draft = rollout.plan()
        if options.verbose and draft:
            say(plan_text(operation.connected, release, draft))
        accepted = rollout.send(draft, apply_gateway=options.apply_gateway)
        url = fleet.require_gateway().url(service.port)
        if accepted is None:
            say(f"{release.service}: nothing to do: {release.id} serves", fg="green")
            if options.json:
                data_json({"service": release.service, "result": "nothing", "release": release.id, "mode": None})
        else:
            following = Following(leader, release.service, operation.report)
            conclude(following, accepted, detach=options.detach, json=options.json)
        say(f"  {url}   model: {release.service}")


def foresee(fleet: Fleet, release: Release, options: Options, provided: Sequence[str]) -> SwapPlan | None:
    """Plan the deploy of a release before its image and weights are on these nodes.

    None where it serves, or its swap is in progress. Raises PlanRefused, with the arithmetic, and Busy.
    """
    choices = replace(options.choices(fleet), provided=frozenset(provided))
    with leading_guard(fleet, options.wait_s) as (operation, leader):
        return sending.foresee(operation, leader, release, choices)


def _show_swap(
    connected: Connected, release: Release, draft: Draft | None, changes: Sequence[Change], *, json: bool
) -> None:
    """Print what a deploy would change in gateway and guards, and what it would run."""
    agents = [str(change) + ("; needs --apply-gateway" if change.needs_consent else "") for change in changes]
    if json:
        data_json({**plan_json(release, draft), "agents": agents})
    else:
        data("\n".join([*agents, plan_text(connected, release, draft)]))


def plan_json(release: Release, draft: Draft | None) -> dict[str, object]:
    """Return what a deploy would run, for `--json`."""
    effects = draft.effects if draft else None
    plan = preview.as_json(effects, release.service) if effects else []
    mode = draft.plan.mode.value if draft else None
    return {"service": release.service, "release": release.id, "mode": mode, "effects": plan}


def plan_text(connected: Connected, release: Release, draft: Draft | None) -> str:
    """Return what a deploy would run, as text."""
    effects = draft.effects if draft else None
    if draft is None or effects is None:
        return f"{release.service}: nothing to do: {release.id} serves"
    nodes = [rank.node for rank in draft.plan.ranks]
    notes = [f"  no report from the guard of {node} yet" for node in draft.state.missing if node in nodes]
    memory = section(connected, release.recipe, nodes)
    return "\n".join([f"{draft.plan}{memory}", *notes, *preview.lines(effects, release.service)])
