"""The plan of an intent: the machine run on a copy of what was observed, where everything succeeds at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from sparkops.names import Slot
from sparkops.swap.effects import (
    CreateEngine,
    FollowerEffect,
    KeepCopy,
    LeaderEffect,
    MarkRestart,
    MarkStart,
    MarkStop,
    PointSlot,
    ProveEngine,
    StartEngine,
    StopEngine,
    SwitchTraffic,
    WriteJournal,
)
from sparkops.swap.fleet_state import EngineState, FleetState, GatewayView
from sparkops.swap.follower import Local, reconcile, report
from sparkops.swap.journal import Journal
from sparkops.swap.leader import step
from sparkops.swap.model import Answer, RankSpec
from sparkops.swap.orders import order

MOST_EFFECTS = 2000  # a rolling update of sixteen replicas has fewer than five hundred


@dataclass(frozen=True, slots=True)
class PlannedEffect:
    """One effect, its phase and the node that executes it."""

    phase: str
    node: str
    effect: LeaderEffect | FollowerEffect
    stops: RankSpec | None = None
    """The rank that the effect stops."""


@dataclass(frozen=True, slots=True)
class EffectPlan:
    """All effects of an intent, in order. The dry run prints them."""

    effects: tuple[PlannedEffect, ...]
    journal: Journal
    """The journal at the end."""


def plan(journal: Journal, locals_: Mapping[str, Local], gateway: GatewayView) -> EffectPlan:
    """Run the machine from an accepted intent to its end. Bookkeeping on disk is left out of what is printed.

    Raises ValueError if it does not end, which would be a fault of the machine.
    """
    nodes, effects = dict(locals_), list[PlannedEffect]()
    for _ in range(MOST_EFFECTS):
        phase = journal.swap.phase.value if journal.swap else "afterwards"
        for node, local in tuple(nodes.items()):
            nodes[node], executed = _obeyed(local, journal, node)
            effects += _planned(phase, node, journal, executed)
        effect = step(journal, _fleet_state(journal, nodes, gateway))
        if effect is None:
            return EffectPlan(tuple(effects), journal)
        if isinstance(effect, WriteJournal):
            journal = effect.journal
        else:
            effects.append(PlannedEffect(phase, journal.leader, effect))
            gateway = _after(gateway, effect)
    raise ValueError(f"the plan of {journal.service} does not end")


def _planned(phase: str, node: str, journal: Journal, executed: Iterable[FollowerEffect]) -> Iterator[PlannedEffect]:
    ordered = {rank.rank.container: rank.rank for rank in order(journal, node, "").ranks}
    for effect in executed:
        if not isinstance(effect, BOOKKEEPING):
            stops = ordered[effect.container] if isinstance(effect, StopEngine) else None
            yield PlannedEffect(phase, node, effect, stops)


BOOKKEEPING = (KeepCopy, MarkStart, MarkStop, MarkRestart)


def _obeyed(local: Local, journal: Journal, node: str) -> tuple[Local, list[FollowerEffect]]:
    """Return a node after its guard has executed every effect of the order, and its engines have loaded."""
    effects: list[FollowerEffect] = []
    current = order(journal, node, local.boot)
    while effect := reconcile(current, local):
        effects.append(effect)
        local = _executed(local, effect)
    return local, effects


def _executed(local: Local, effect: FollowerEffect) -> Local:
    local = replace(local, record=local.record.after(effect, local.boot))
    match effect:
        case MarkStart(container=container) | MarkRestart(container=container):
            return replace(local, pending=container)
        case CreateEngine(rank=rank):
            return _in_state(local, rank.container, EngineState.STOPPED)
        case StartEngine(container=container):
            starts = {**local.starts, container: local.record.key(container)}
            return replace(_in_state(local, container, EngineState.HEALTHY), starts=starts, pending="")
        case StopEngine(container=container):
            return replace(_in_state(local, container, EngineState.STOPPED), free_gib=inf)
        case ProveEngine(container=container, key=key):
            return replace(local, proofs={**local.proofs, container: (key, Answer.YES)})
        case _:
            return local


def _in_state(local: Local, container: str, state: EngineState) -> Local:
    return replace(local, engines={**local.engines, container: state})


def _after(gateway: GatewayView, effect: LeaderEffect) -> GatewayView:
    match effect:
        case SwitchTraffic(deployment=deployment, hold=hold):
            return replace(gateway, active=deployment.slot if deployment else None, held=hold.mark if hold else "")
        case PointSlot(deployment=deployment):
            slots: dict[Slot, str] = {**gateway.slots, deployment.slot: deployment.mark}
            return replace(gateway, slots=slots)
        case _:
            return gateway


def _fleet_state(journal: Journal, nodes: Mapping[str, Local], gateway: GatewayView) -> FleetState:
    """Return the fleet as the leader would see it: guards report, running engines answer, waits are over."""
    reports = {node: report(node, order(journal, node, local.boot), local) for node, local in nodes.items()}
    answers = {item.slot: _answers(nodes, item.heads) for item in journal.pointed if gateway.has(item)}
    view = replace(gateway, answers=answers, open=dict.fromkeys(answers, 0), left=dict.fromkeys(answers, 0))
    return FleetState(reports=reports, gateway=view, contacts=frozenset(nodes), sampled_s=inf)


def _answers(nodes: Mapping[str, Local], heads: Iterator[RankSpec]) -> Answer:
    up = all(nodes[rank.node].state(rank.container) is EngineState.HEALTHY for rank in heads)
    return Answer.YES if up else Answer.NO
