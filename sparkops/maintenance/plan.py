"""The plan of a drain and of a return: what happens to each service of a node. It prints itself. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sparkops.deploy import preview
from sparkops.deploy.plan import Plan, nodes_of
from sparkops.deploy.preconditions import Observed
from sparkops.deploy.preview import Draft
from sparkops.docker.facts import Container
from sparkops.errors import Busy, PlanRefused, SparkopsError
from sparkops.guard_client.cordon import Displaced
from sparkops.guard_client.service_state import ServiceState, ways_out
from sparkops.memory.bound import HOST_GIB
from sparkops.nodes.host import HostFacts
from sparkops.release import Rank
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, Phase
from sparkops.swap.plan import EffectPlan


class Action(StrEnum):
    """What a drain or a return does with a service."""

    MOVE = "move"
    """Deploy its release on other nodes."""
    STOP = "stop"
    """Stop it until the node returns."""
    START = "start"
    """Deploy a release again that the drain has stopped."""
    FOLLOW = "follow"
    """Follow a change in progress, which an earlier run may have begun."""
    WAIT = "wait"
    """Wait for engines that the fleet stops by itself."""
    LEAVE = "leave"
    """Change nothing."""


@dataclass(frozen=True)
class Step:
    """What happens to one service. `note`: why, where the action alone does not say it."""

    service: str
    action: Action
    deployment: Deployment | None = None
    """The release on its present nodes, or of a return on those that it returns to."""
    note: str = ""
    draft: Draft | None = None
    """What it deploys."""
    effects: EffectPlan | None = None

    @property
    def changes(self) -> bool:
        """Whether it sends an intent."""
        return self.action in (Action.MOVE, Action.STOP, Action.START)

    def lines(self) -> Iterator[str]:
        where = f" to {self.draft.plan.where}" if self.draft else ""
        yield f"{self.service}: {self.action}{where}" + (f": {self.note}" if self.note else "")
        if self.draft:
            yield from (f"  {line}" for line in str(self.draft.plan).splitlines())
        if self.effects:
            yield from (f"  {line}" for line in preview.lines(self.effects, self.service))

    def as_json(self) -> dict[str, object]:
        """Return the object of `--json`."""
        deployment, plan = self.deployment, self.draft.plan if self.draft else None
        return {
            "service": self.service,
            "action": self.action.value,
            "release": deployment.release if deployment else None,
            "nodes": list(nodes_of(deployment)) if deployment else [],
            "to": [rank.node for rank in plan.ranks] if plan else [],
            "mode": plan.mode.value if plan else None,
            "note": self.note or None,
            "effects": preview.as_json(self.effects, self.service) if self.effects else [],
        }


@dataclass(frozen=True)
class NodePlan:
    """The drain or the return of a node. `refused`: by service, why it cannot be."""

    node: str
    verb: str
    steps: Sequence[Step] = ()
    refused: Mapping[str, SparkopsError] = field(default_factory=dict)
    notes: Sequence[str] = ()
    stops: bool = False
    """Whether a drain stops what no other node has room for."""

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        nothing = "" if self.steps or self.refused else ": no service"
        yield f"{self.node}: {self.verb}{nothing}"
        yield from (f"  {note}" for note in self.notes)
        yield from (f"  {line}" for step in self.steps for line in step.lines())
        for service, error in self.refused.items():
            first, *rest = str(error).splitlines()
            yield f"  {service}: refused: {first}"
            yield from (f"    {line}" for line in rest)

    @property
    def busy(self) -> bool:
        """Whether it is refused, and only because of changes in progress."""
        return bool(self.refused) and all(isinstance(error, Busy) for error in self.refused.values())

    def require(self) -> None:
        """Raise PlanRefused, or Busy where every refusal is one, with the whole plan: nothing is changed then."""
        if not self.refused:
            return
        errors, busy = [*self.refused.values()], self.busy
        steps = [step for error in errors for step in error.next_step.splitlines()]
        if self.verb == DRAIN and not busy and not self.stops:
            steps.append(f"Or stop what has no other node until it returns: sparkops node drain {self.node} --stop")
        if self.verb == RETURN:
            steps.append(f"Or open {self.node} and leave it where it is: {leave(self.node, *self.refused)}")
        problem = "\n".join(f"{service}: {error}" for service, error in self.refused.items())
        raise (Busy if busy else PlanRefused)(problem, next_step="\n".join(dict.fromkeys(steps)))


DRAIN, RETURN = "drain", "return"


def leave(node: str, *services: str) -> str:
    """Return the command that opens a node and leaves these services where they are."""
    return " ".join([f"sparkops node return {node}", *(f"--leave {service}" for service in services)])


def on_node(state: ServiceState, node: str) -> Step | None:
    """Return what a drain of `node` must do with a service; None if nothing of it runs there.

    Raises Busy while a swap to a release on the node, or back to it, is in progress.
    """
    journal, swap = state.journal, state.swap
    if not any(_is_on(item, node) for item in journal.deployments) and not _ending(journal, node):
        return None
    service = journal.service
    if journal.stopping:
        return Step(service, Action.FOLLOW, note="it is being stopped")
    if swap and not (journal.trouble and state.fails):
        if swap.reverting or _is_on(swap.target, node):
            problem = f"a swap to {swap.target.release} is in phase '{swap.phase}'"
            raise Busy(problem, next_step="\n".join(ways_out(service)))
        return Step(service, Action.FOLLOW, journal.active, _moving(swap.target, swap.phase))
    if _is_on(journal.active, node):
        _require_no_hold(journal)
        return Step(service, Action.MOVE, journal.active)
    return Step(service, Action.WAIT, journal.warm, _waits(state, node))


def _require_no_hold(journal: Journal) -> None:
    if journal.hold:
        step = f"sparkops unhold {journal.service}"
        raise Busy(f"{journal.service} is on hold: {journal.hold}", next_step=step)


def _moving(target: Deployment, phase: Phase) -> str:
    return f"a swap to {target.release} on {' and '.join(nodes_of(target))} is in phase '{phase}'"


def _is_on(deployment: Deployment | None, node: str) -> bool:
    return deployment is not None and any(rank.node == node for rank in deployment.ranks)


def _ending(journal: Journal, node: str) -> list[str]:
    """Return the containers on a node whose guard has not confirmed yet that they have stopped."""
    return [rank.container for rank in journal.stopped if rank.node == node]


def _waits(state: ServiceState, node: str) -> str:
    """Return what runs on a node only until the fleet stops it, and when that is."""
    journal = state.journal
    if journal.warm and _is_on(journal.warm, node):
        until = f" until {time.strftime('%H:%M', time.localtime(state.warm_until))}" if state.warm_until else ""
        return f"{journal.warm.release} is kept warm{until}, then it stops"
    return f"{' and '.join(_ending(journal, node))} is being stopped"


def strangers(states: Iterable[ServiceState], node: str, containers: Iterable[Container]) -> Iterator[Container]:
    """Yield the running engines of a node that no journal has: a drain would leave them running."""
    known = {
        rank.container
        for state in states
        for rank in (*(rank for item in state.journal.deployments for rank in item.ranks), *state.journal.stopped)
        if rank.node == node
    }
    return (container for container in containers if container.running and container.name not in known)


def remaining(states: Iterable[ServiceState], node: str) -> dict[str, str]:
    """Return what of each service may still run on a node, in words; empty once it has nothing."""
    lefts: dict[str, str] = {}
    for state in states:
        journal, service = state.journal, state.journal.service
        if _is_on(journal.active, node) or (state.swap and _is_on(state.swap.target, node)):
            lefts[service] = f"{service} serves on it, or a swap of it to this node is in progress"
        elif any(_is_on(item, node) for item in journal.deployments) or _ending(journal, node):
            lefts[service] = f"{service}: {_waits(state, node)}"
    return lefts


def endpoint(node: str, services: Sequence[str]) -> str:
    """Return what the loss of the gateway's node costs, in words."""
    count = f"{len(services)} service{'' if len(services) == 1 else 's'}"
    named = f"{count} ({', '.join(services)})" if services else count
    return f"{node} has the gateway: while it is down, clients reach 0 of {named}, and nothing can be changed"


def refused_endpoint(node: str, services: Sequence[str]) -> PlanRefused:
    """Return the refusal of a drain of the gateway's node."""
    step = (
        f"Accept that: sparkops node drain {node} --allow-downtime\n"
        'For longer work move the gateway first: docs/operations.md, "The gateway\'s node".'
    )
    return PlanRefused(endpoint(node, services), next_step=step)


def home(state: ServiceState, displaced: Displaced) -> Step:
    """Return what a return does with a service that a drain has taken. Raises Busy for a hold or another swap.

    It brings back the release that the drain took, to its nodes. What an operator has done since stays as it is.
    """
    journal, was = state.journal, displaced.deployment
    service, active, swap = journal.service, journal.active, state.swap
    there = " and ".join(nodes_of(was))
    if journal.stopping:
        return Step(service, Action.LEAVE, was, "it is being stopped")
    if swap:
        if not swap.reverting and _same(swap.target, was):
            return Step(service, Action.FOLLOW, was, _moving(swap.target, swap.phase))
        problem = f"a swap to {swap.target.release} is in phase '{swap.phase}'"
        raise Busy(problem, next_step="\n".join(ways_out(service)))
    if active is None:
        if displaced.stopped and journal.previous and journal.previous.release == was.release:
            _require_no_hold(journal)
            return Step(service, Action.START, was)
        return Step(service, Action.LEAVE, was, "it was stopped since")
    if _same(active, was):
        return Step(service, Action.LEAVE, was, f"it serves on {there}")
    if active.release != was.release or displaced.stopped:
        on = " and ".join(nodes_of(active))
        return Step(service, Action.LEAVE, was, f"{active.release} was deployed on {on} since; it stays there")
    _require_no_hold(journal)
    return Step(service, Action.MOVE, was)


def left(journal: Journal, displaced: Displaced) -> Step:
    """Return that a return leaves a service where it is, as the operator wants it."""
    where = f"it stays on {' and '.join(nodes_of(journal.active))}" if journal.active else "it stays stopped"
    return Step(journal.service, Action.LEAVE, displaced.deployment, f"{where}: --leave")


def _same(deployment: Deployment, other: Deployment) -> bool:
    return deployment.release == other.release and nodes_of(deployment) == nodes_of(other)


def after(observed: Mapping[str, Observed], ahead: Iterable[Plan]) -> dict[str, Observed]:
    """Return the nodes as they are once the releases of these plans run there as well."""
    nodes = dict(observed)
    for plan in ahead:
        for site in plan.sites:
            if not site.running and (node := nodes.get(site.rank.node)):
                nodes[site.rank.node] = _with_engine(node, site.rank)
    return nodes


def at_best(observed: Mapping[str, Observed]) -> dict[str, Observed]:
    """Return the nodes as they are once what can be brought or repaired is: one build on all, and a cordon known."""
    return {name: replace(item, installed="", cordon_error=None) for name, item in observed.items()}


def _with_engine(node: Observed, rank: Rank) -> Observed:
    recipe = rank.release.recipe
    engine = Container(
        name=rank.container,
        node=rank.node,
        service=recipe.service,
        release=rank.release.id,
        slot=rank.slot,
        rank=rank.index,
        port=rank.port,
        inputs=rank.release.inputs,
        image=node.image or "",
        state="running",
        exit_code=0,
        oom_killed=False,
        restarts=0,
        restart_policy="no",
        started_at=0.0,
        grace_s=0,
        claim_gib=recipe.memory.claim_gib,
    )
    discrete = recipe.backend != "cpu" and node.host.gpu_is_discrete
    host = _with_claim(node.host, recipe.memory.claim_gib, discrete=discrete)
    listening = host.listening if rank.index else host.listening | {rank.port}
    return replace(node, host=replace(host, listening=listening), containers=(*node.containers, engine))


def _with_claim(host: HostFacts, claim_gib: float, *, discrete: bool) -> HostFacts:
    """Return the host with the memory that an engine takes; an engine may use any of several GPUs."""
    side_gib = min(HOST_GIB, claim_gib) if discrete else claim_gib
    gpus = (
        tuple(gpu and replace(gpu, free_gib=gpu.free_gib - claim_gib) for gpu in host.gpus) if discrete else host.gpus
    )
    return replace(host, memory_available_gib=host.memory_available_gib - side_gib, gpus=gpus)


def lifted(observed: Mapping[str, Observed], node: str) -> dict[str, Observed]:
    """Return the nodes as they are once the cordon of one has ended."""
    return {name: replace(item, cordon="") if name == node else item for name, item in observed.items()}
