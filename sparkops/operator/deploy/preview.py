"""The dry run of an intent: the machine runs on a copy of what the leader reports, and every effect is listed. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from math import inf

from sparkops.command import Command
from sparkops.errors import Busy, PlanRefused
from sparkops.gateway.front import gateway_command
from sparkops.node.docker.commands import start
from sparkops.operator.deploy.plan import Plan
from sparkops.serving import engine_spec
from sparkops.serving.service_state import ServiceState, free_step
from sparkops.swap import effects, trouble
from sparkops.swap.fleet_state import EngineState, FleetState, GatewayView, Report
from sparkops.swap.follower import Local, Record
from sparkops.swap.intents import Deploy, NothingToDo, Refused, accept
from sparkops.swap.journal import Journal
from sparkops.swap.model import Deployment, RankSpec
from sparkops.swap.plan import EffectPlan, PlannedEffect, plan


@dataclass(frozen=True)
class Draft:
    """A planned intent, with the plan and the state that it was made from."""

    plan: Plan
    state: ServiceState
    intent: Deploy
    token: str = field(default="", repr=False)
    """The token of the replica's Ray cluster: a new one at each deploy. Without Ray nothing uses it."""
    stale: bool = False
    """Whether guards or the gateway have changed since."""

    def holds(self, state: ServiceState) -> bool:
        return not self.stale and self.state.journal.position == state.journal.position

    @property
    def effects(self) -> EffectPlan | None:
        """Every effect of the intent. Raises Busy or PlanRefused where the leader would refuse it."""
        return preview(self.state, self.intent)


def preview(state: ServiceState, intent: Deploy) -> EffectPlan | None:
    """Return every effect of a deploy in order; None where there is nothing to do. Raises Busy or PlanRefused.

    A node without a report counts as reachable: a deploy starts its guard first.
    """
    journal, locals_ = accepted(state, intent), dict(_locals(state, intent.target))
    return plan(journal, locals_, state.gateway or _assumed(state.journal)) if journal else None


def accepted(state: ServiceState, intent: Deploy) -> Journal | None:
    """Return the journal that accepts a deploy; None where there is nothing to do. Raises Busy or PlanRefused."""
    nodes = (node for node, _ in _locals(state, intent.target))
    reports = {**{node: Report(node, "", 0, -1) for node in nodes}, **state.reports}
    view = state.gateway or _assumed(state.journal)
    match accept(state.journal, intent, FleetState(reports, view, frozenset(reports))):
        case Refused(why=why, busy=True):
            raise Busy(why, next_step=free_step(state.journal.service, why))
        case Refused(why=why):
            raise PlanRefused(why, next_step=trouble.of_refusal(state.journal, why))
        case NothingToDo():
            return None
        case Journal() as journal:
            return journal


def _assumed(journal: Journal) -> GatewayView:
    """Return the gateway as the journal states it, where it cannot be read."""
    active = journal.active
    return GatewayView(active.slot, {active.slot: active.release}) if active else GatewayView()


def _locals(state: ServiceState, target: Deployment) -> Iterator[tuple[str, Local]]:
    journal = state.journal
    known = [rank for item in (*journal.deployments, target) for rank in item.ranks] + list(journal.stopped)
    active = set(journal.active.ranks) if journal.active else set[RankSpec]()
    for node in dict.fromkeys([*state.reports, *(rank.node for rank in known)]):
        report = state.reports.get(node)
        if report is None:  # what serves is taken to run
            containers = [rank.container for rank in known if rank.node == node and rank in active]
            yield node, Local("", engines=dict.fromkeys(containers, EngineState.HEALTHY), free_gib=inf)
            continue
        armed = next((rank for rank in known if rank.node == node and rank.container == report.armed), None)
        record = Record(term=report.term, armed=armed, alone=journal.active.alone if journal.active else True)
        engines = {engine.container: engine.state for engine in report.engines}
        yield node, Local(report.boot, record, engines, free_gib=inf)


def lines(plan: EffectPlan, service: str, *, verbose: bool = False) -> Iterator[str]:
    """Yield the phases, each with its effects and the commands that run on the nodes.

    `verbose`: with all arguments of the one that creates a container.
    """
    for phase, group in groupby(plan.effects, lambda planned: planned.phase):
        yield phase
        for planned in group:
            short = isinstance(planned.effect, effects.CreateEngine) and not verbose
            yield f"  {planned.node}: {planned.effect if short else command(planned, service) or planned.effect}"


def command(planned: PlannedEffect, service: str) -> Command | None:
    """Return the command of an effect; None for what a guard does without one, such as the smoke suite."""
    match planned.effect:
        case effects.CreateEngine(rank=rank):
            return engine_spec.of(rank).create(rank.node)
        case effects.StartEngine(container=container):
            return start(container)
        case effects.StopEngine():
            return _stop(planned.stops)
        case effects.PointSlot() | effects.SwitchTraffic() | effects.CutRequests() as effect:
            return gateway_command(effect, service)
        case _:
            return None


def _stop(rank: RankSpec | None) -> Command | None:
    """Return the command that stops a rank; None for one of another version, whose container has the grace period."""
    try:
        return engine_spec.stop(rank) if rank else None
    except ValueError:
        return None


def as_json(plan: EffectPlan, service: str) -> list[dict[str, str | None]]:
    return [
        {
            "phase": planned.phase,
            "node": planned.node,
            "effect": str(planned.effect),
            "command": str(ran) if (ran := command(planned, service)) else None,
        }
        for planned in plan.effects
    ]
