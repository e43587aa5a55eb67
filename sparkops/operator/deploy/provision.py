"""What a deploy needs on the nodes: image and weights of its recipe, guards and gateway of this version."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sparkops.config.recipe import Recipe
from sparkops.engines import ENGINES
from sparkops.node.member import Member
from sparkops.node.progress import OnEvent
from sparkops.operator.build.hub.pull import Hub, pull_model
from sparkops.operator.build.images import distribute
from sparkops.operator.build.images.build import BuildOrder, build_on_all
from sparkops.operator.build.weights import models
from sparkops.operator.build.weights.prepare import plan_steps, take_steps
from sparkops.operator.build.weights.steps import read_by_engine
from sparkops.operator.deploy import leads
from sparkops.operator.deploy.agents import agents
from sparkops.operator.deploy.agents.agents import AgentSpecs
from sparkops.operator.deploy.operation import Operation
from sparkops.operator.deploy.preview import Draft
from sparkops.operator.fleet.connected import Connected
from sparkops.operator.fleet.guards.leader import Leader
from sparkops.operator.fleet.parallel import all_or_raise, on_each


@dataclass(frozen=True)
class Missing:
    """What a recipe's nodes lack: nodes without its image, and by node why its weights cannot be used."""

    recipe: Recipe
    image: Sequence[str]
    weights: Mapping[str, str] = field(default_factory=dict)
    complete: Sequence[str] = ()
    """Nodes whose weights are complete."""

    def __iter__(self) -> Iterator[str]:
        """Give one line for each step that is due."""
        if self.image:
            yield f"image: build or copy to {', '.join(self.image)}"
        if self.weights and self.complete:
            yield f"weights: copy {self.recipe.model.path} from {self.complete[0]} to {', '.join(self.weights)}"
        elif self.weights:
            first, *others = self.weights
            copied = f", then copy to {', '.join(others)}" if others else ""
            yield f"weights: download {self.recipe.model.id} to {first}{copied}"
        if len({*self.image, *self.weights}) > self.recipe.serve.ranks:
            yield "more nodes than one release needs: the next one starts on another node; --node NODE limits it"


def missing(connected: Connected, recipe: Recipe, order: BuildOrder) -> Missing:
    """Return what the connected nodes lack for a recipe. Raises NodeError for a node that cannot be read."""
    images = connected.all(lambda member: member.engine.trusted(order.tag) is not None)
    without = [name for name, has_it in images.items() if not has_it]
    if not ENGINES[recipe.engine].weights:
        return Missing(recipe, without)
    reasons = models.verify(connected, recipe, everywhere=True)
    complete = [name for name, reason in reasons.items() if not reason]
    return Missing(recipe, without, {name: reason for name, reason in reasons.items() if reason}, complete)


def provision(
    connected: Connected,
    due: Missing,
    order: BuildOrder,
    source: Hub,
    specs: AgentSpecs,
    report: OnEvent,
    wait_s: float,
) -> None:
    """Bring what is missing to the connected nodes. Interrupted anywhere, the next call continues.

    The images of guards and gateway are built meanwhile, since a first deploy needs them next. Raises NodeError,
    NotReady, ImageRejected, PlanRefused, and Busy where an engine loads for longer than `wait_s`.
    """
    differing = agents.changes(connected, specs)  # what it refuses is told before a long build
    jobs = {
        "recipe": lambda: _provision(connected, due, order, source, report, wait_s),
        "agents": lambda: agents.build(connected, specs, differing, report),
    }
    all_or_raise(on_each(jobs, lambda name: jobs[name](), connected.cancel))


def _provision(
    connected: Connected, due: Missing, order: BuildOrder, source: Hub, report: OnEvent, wait_s: float
) -> None:
    if due.image and len(connected.members) > 1:
        distribute.build_once(connected, order, report, wait_s)
    elif due.image:
        build_on_all(connected, order, report, wait_s)
    if not due.weights:
        return
    first = due.complete[0] if due.complete else next(iter(due.weights))
    if not due.complete:
        connected.only([first]).all(lambda member: _fetch(member, due.recipe, order.tag, source, report, wait_s))
    if targets := [name for name in due.weights if name != first]:
        for model in read_by_engine(due.recipe):
            models.copy(connected.only([first, *targets]), model, first, report)


def _fetch(member: Member, recipe: Recipe, image: str, source: Hub, report: OnEvent, wait_s: float) -> None:
    for weights in recipe.model.fetched:
        pull_model(member, weights, source, report)
    if recipe.model.steps:
        take_steps(member, plan_steps(member, recipe, image, replace=False), report, wait_s)


def ready_agents(
    operation: Operation, leader: Leader, service: str, specs: AgentSpecs, draft: Draft | None, *, apply_gateway: bool
) -> Draft | None:
    """Change guards and gateway where they differ, and let the leader lead the service.

    Returns the draft; stale if anything changed, so that it is made again. Raises the errors of `agents.ensure`.
    """
    connected, report, wait_s = operation.connected, operation.report, operation.wait_s
    changed = agents.ensure(connected, specs, report, apply_gateway=apply_gateway, wait_s=wait_s)
    leads.lead(connected, leader, service)
    return replace(draft, stale=True) if draft and any(changed.values()) else draft
