"""The deploy of a release: behind the gateway, or without one on each node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparkops.agents import agents
from sparkops.agents.agents import AgentSpecs
from sparkops.agents.differences import Change
from sparkops.cli.fit import section
from sparkops.cli.intents import Options, at_once, follow, gateway_leader
from sparkops.cli.outcome import conclude, conclude_all
from sparkops.cli.progress import progress
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.inventory import Fleet
from sparkops.deploy import leads, preview, sending
from sparkops.deploy.leads import Place
from sparkops.deploy.operation import Operation
from sparkops.deploy.placement import DeployOptions
from sparkops.deploy.plan import SwapPlan
from sparkops.deploy.rollout import Rollout
from sparkops.deploy.sending import Draft
from sparkops.errors import Interrupted, SparkopsError
from sparkops.gateway.image import Service
from sparkops.guard_client import engine_spec
from sparkops.guard_client.ending import Ending
from sparkops.guard_client.following import Accepted, Following
from sparkops.guard_client.leader import leading
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.connected import Connected, connect
from sparkops.release import Release


def swap(fleet: Fleet, release: Release, options: Options) -> None:
    """Send the intent to deploy a release behind the gateway, and follow it."""
    choices = options.choices(fleet)
    serve = release.recipe.serve
    service = Service(release.service, serve.port, tuple(serve.aliases))
    with gateway_leader(fleet, options.wait_s) as (operation, leader):
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
        url = fleet.gateway.url(service.port) if fleet.gateway else ""
        if accepted is None:
            say(f"{release.service}: nothing to do: {release.id} serves", fg="green")
            if options.json:
                data_json({"service": release.service, "result": "nothing", "release": release.id, "mode": None})
        else:
            following = Following(leader, release.service, operation.report)
            conclude(following, accepted, detach=options.detach, json=options.json)
        say(f"  {url}   model: {release.service}")


def foresee(fleet: Fleet, release: Release, options: Options, provided: Sequence[str]) -> SwapPlan | None:
    """Plan the deploy of a release behind the gateway before its image and weights are on these nodes.

    None where it serves, or its swap is in progress. Raises PlanRefused, with the arithmetic, and Busy.
    """
    choices = replace(options.choices(fleet), provided=frozenset(provided))
    with gateway_leader(fleet, options.wait_s) as (operation, leader):
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


def direct(fleet: Fleet, release: Release, options: Options) -> None:
    """Deploy a release without a gateway: one replica on each node, led by the guard there, all at once."""
    choices = options.choices(fleet)
    with connect(fleet, options.nodes or release.recipe.nodes) as connected, progress() as report:
        replicas = {
            nodes[0]: _Direct(
                Operation(connected.only(nodes), report, options.wait_s, nodes[0]),
                release,
                replace(choices, nodes=nodes),
                nodes,
            )
            for nodes in leads.places(connected, release, options.nodes, report)
        }
        if options.dry_run:
            _show_plans(release, list(replicas.values()), json=options.json)
            return
        desired = agents.load(fleet)
        try:
            outcomes = at_once(
                list(replicas), release.service, lambda head: replicas[head].deploy(desired, options), connected.cancel
            )
        except Interrupted:
            if not any(replica.accepted for replica in replicas.values()):
                raise Interrupted("interrupted before anything was sent") from None
            raise
    rows = {head: replica.as_json() for head, replica in replicas.items()}
    for head, outcome in outcomes.items():
        if not isinstance(outcome, SparkopsError):
            url = f"http://{fleet.nodes[head].address}:{release.recipe.serve.port}/v1"
            say(f"{head}: {url}   model: {release.service}")
    conclude_all(release.service, outcomes, rows, release=release.id, json=options.json)


@dataclass
class _Direct:
    """The deploy of one replica without a gateway, on these nodes."""

    operation: Operation
    release: Release
    choices: DeployOptions
    nodes: Place
    accepted: bool = False
    state: ServiceState | None = None

    def draft(self) -> Draft | None:
        """Return what the deploy would run; None if the release already serves."""
        with leading(self.operation.connected.member(self.nodes[0])) as leader:
            return sending.dry_run(self.operation, leader, self.release, self.choices)

    def deploy(self, desired: AgentSpecs, options: Options) -> Ending | Accepted | None:
        """Plan, start the guards, send the intent and follow it; None if the release already serves."""
        connected, service = self.operation.connected, self.release.service
        with leading(connected.member(self.nodes[0])) as leader:
            rollout = Rollout(self.operation, leader, self.release, self.choices, desired, self.nodes)
            draft = rollout.plan()
            if options.verbose and draft:
                say(plan_text(connected, self.release, draft))
            accepted = rollout.send(draft)
            self.accepted = accepted is not None
            ending = follow((self.operation, leader), service, accepted, options)
            self.state = leader.state(service)
            return ending

    def as_json(self) -> dict[str, object]:
        """Return where the replica runs, and whether the deploy changed anything."""
        row: dict[str, object] = {"release": self.release.id, "changed": self.accepted}
        active = self.state.journal.active if self.state else None
        if active is None:
            return row
        head = next(active.heads)
        port = engine_spec.of(head).rank(head.node).port
        place = {"release": active.release, "container": head.container, "slot": active.slot.value, "port": port}
        return {**row, **place}


def _show_plans(release: Release, replicas: Sequence[_Direct], *, json: bool) -> None:
    drafts = [(replica, replica.draft()) for replica in replicas]
    if json:
        plans = [{"node": replica.nodes[0], **plan_json(release, draft)} for replica, draft in drafts]
        data_json({"service": release.service, "release": release.id, "replicas": plans})
        return
    for replica, draft in drafts:
        data(plan_text(replica.operation.connected, release, draft))
