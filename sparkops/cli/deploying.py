"""The deploy of a release: behind the gateway, or without one on each node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sparkops.agents import agents
from sparkops.agents.agents import AgentSpecs
from sparkops.agents.differences import Change
from sparkops.cli.fit import section
from sparkops.cli.intents import Options, at_once, followed_on, following_of, led
from sparkops.cli.outcome import conclude, conclude_all
from sparkops.cli.progress import progress
from sparkops.cli.settings import Settings
from sparkops.cli.terminal import data, data_json, say
from sparkops.config.inventory import Fleet
from sparkops.deploy import leads, preview, sending
from sparkops.deploy.leads import Place
from sparkops.deploy.operation import Operation
from sparkops.deploy.placement import DeployOptions
from sparkops.deploy.rollout import Rollout
from sparkops.deploy.sending import Draft
from sparkops.errors import Interrupted, SparkopsError
from sparkops.gateway.image import Service
from sparkops.guard_client import engine_spec
from sparkops.guard_client.ending import Ending
from sparkops.guard_client.following import Accepted
from sparkops.guard_client.leader import leading
from sparkops.guard_client.service_state import ServiceState
from sparkops.nodes.connected import Connected, connect
from sparkops.release import Release


def swap(settings: Settings, fleet: Fleet, release: Release, options: Options) -> None:
    """Send the intent to deploy a release behind the gateway, and follow it."""
    choices = options.choices(fleet)
    serve = release.recipe.serve
    service = Service(release.service, serve.port, tuple(serve.aliases))
    with led(fleet, options.wait_s) as (operation, leader):
        wanted = agents.load(fleet, [service])
        if options.dry_run:
            found = agents.changes(operation.connected, wanted)
            planned = sending.dry_run(operation, leader, release, choices)
            _show_swap(operation.connected, release, planned, found, json=options.json)
            return
        rollout = Rollout(operation, leader, release, choices, wanted)
        planned = rollout.plan()
        if settings.verbose and planned:
            say(plan_text(operation.connected, release, planned))
        accepted = rollout.send(planned, apply_gateway=options.apply_gateway)
        url = fleet.gateway.url(service.port) if fleet.gateway else ""
        if accepted is None:
            say(f"{release.service}: nothing to do: {release.id} serves", fg="green")
            if options.json:
                data_json({"service": release.service, "result": "nothing", "release": release.id, "mode": None})
        else:
            following = following_of(operation, leader, release.service)
            conclude(following, accepted, detach=options.detach, json=options.json)
        say(f"  {url}   model: {release.service}")


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
    unreported = [node for node in draft.state.missing if node in {rank.node for rank in draft.plan.ranks}]
    notes = [f"  no report from the guard of {node} yet" for node in unreported]
    memory = section(connected, release.recipe, [rank.node for rank in draft.plan.ranks])
    return "\n".join([f"{draft.plan}{memory}", *notes, *preview.lines(effects, release.service)])


def direct(settings: Settings, fleet: Fleet, release: Release, options: Options) -> None:
    """Deploy a release without a gateway: one replica on each node, led by the guard there, all at once."""
    choices = options.choices(fleet)
    with connect(fleet, options.nodes or release.recipe.nodes) as connected, progress() as tell:
        places = {nodes[0]: nodes for nodes in leads.places(connected, release, options.nodes, tell)}
        replicas = {
            head: _Direct(
                Operation(connected.only(nodes), tell, options.wait_s, head),
                release,
                replace(choices, nodes=nodes),
                nodes,
            )
            for head, nodes in places.items()
        }
        if options.dry_run:
            _show_plans(list(replicas.values()), data, json=options.json)
            return
        wanted = agents.load(fleet)
        try:
            outcomes = at_once(
                list(places),
                release.service,
                lambda head: replicas[head].deploy(wanted, options, verbose=settings.verbose),
                connected.cancel,
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
        """Return what the deploy would run; None where the release already serves."""
        with leading(self.operation.connected.member(self.nodes[0])) as leader:
            return sending.dry_run(self.operation, leader, self.release, self.choices)

    def deploy(self, wanted: AgentSpecs, options: Options, *, verbose: bool) -> Ending | Accepted | None:
        """Plan, start the guards, send the intent and follow it; None where the release already serves."""
        connected, service = self.operation.connected, self.release.service
        with leading(connected.member(self.nodes[0])) as leader:
            rollout = Rollout(self.operation, leader, self.release, self.choices, wanted, self.nodes)
            planned = rollout.plan()
            if verbose and planned:
                say(plan_text(connected, self.release, planned))
            accepted = rollout.send(planned)
            self.accepted = accepted is not None
            ending = followed_on((self.operation, leader), service, accepted, options)
            self.state = leader.state(service)
            return ending

    def as_json(self) -> dict[str, object]:
        """Return where the replica runs, and whether the deploy changed anything."""
        found: dict[str, object] = {"release": self.release.id, "changed": self.accepted}
        active = self.state.journal.active if self.state else None
        if active is None:
            return found
        head = next(active.heads)
        port = engine_spec.of(head).rank(head.node).port
        return {
            **found,
            "release": active.release,
            "container": head.container,
            "slot": active.slot.value,
            "port": port,
        }


def _show_plans(replicas: Sequence[_Direct], show: Callable[[str], None], *, json: bool) -> None:
    drafts = [(replica, replica.draft()) for replica in replicas]
    if json:
        release = replicas[0].release
        plans = [{"node": replica.nodes[0], **plan_json(release, draft)} for replica, draft in drafts]
        data_json({"service": release.service, "release": release.id, "replicas": plans})
        return
    for replica, draft in drafts:
        show(plan_text(replica.operation.connected, replica.release, draft))
