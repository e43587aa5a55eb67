"""Operators' requests. An intent changes the journal once or not at all; a repeated one gets its first result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from sparkops.swap.fleet_state import FleetState, why_deposed
from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Mode, Phase
from sparkops.swap.orders import traffic
from sparkops.swap.phases import ended, leased


@dataclass(frozen=True, slots=True)
class Deploy:
    """Replace the active release. `mode` was planned from the memory of the nodes; a rollback is a deploy as well."""

    id: str
    revision: int
    target: Deployment
    mode: Mode
    automatic: bool = True
    without: frozenset[str] = frozenset()
    """Nodes that the operator gives up: their engines stay down if they return."""
    kind: Literal["deploy"] = "deploy"


@dataclass(frozen=True, slots=True)
class Promote:
    """Keep a release that waits for promotion."""

    id: str
    revision: int
    kind: Literal["promote"] = "promote"


@dataclass(frozen=True, slots=True)
class Cancel:
    """Revert an unfinished swap to the old release."""

    id: str
    revision: int
    kind: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the service."""

    id: str
    revision: int
    kind: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True)
class Hold:
    """Block changes; an empty reason ends a hold."""

    id: str
    revision: int
    reason: str
    kind: Literal["hold"] = "hold"


@dataclass(frozen=True, slots=True)
class Forget:
    """Give up a stopped service: free its names and port at the gateway, and list it no longer."""

    id: str
    revision: int
    kind: Literal["forget"] = "forget"


Intent = Deploy | Promote | Cancel | Stop | Hold | Forget


CHANGED = "the service has changed since this plan; plan again"


@dataclass(frozen=True, slots=True)
class Refused:
    """The reason why an intent is refused. `busy`: it may be accepted later."""

    why: str
    busy: bool = False


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The state that the intent asks for exists already."""

    why: str


Reply = Journal | Refused | NothingToDo


def changing(journal: Journal) -> str:
    """Return what is in progress for a service; empty if nothing is. Meanwhile gateway and guards stay as they are."""
    if journal.stopping:
        return f"{journal.service} is being stopped"
    swap = journal.unfinished
    return f"{journal.service}: a swap to {swap.target.release} is in phase '{swap.phase}'" if swap else ""


def accept(journal: Journal, intent: Intent, fleet: FleetState) -> Reply:
    """Return the journal that accepts an intent, or the reason why nothing changes."""
    if known := journal.outcome(intent.id):
        return NothingToDo(f"already {known.result}")
    if blocked := _blocked(journal, intent, fleet):
        return blocked
    match intent:
        case Deploy():
            return _deploy(journal, intent, fleet)
        case Promote():
            return _promote(journal, intent)
        case Cancel():
            return _cancel(journal, intent)
        case Stop():
            return _stop(journal, intent)
        case Hold():
            return _hold(journal, intent, fleet)
        case Forget():
            return _forget(journal, intent)


def _blocked(journal: Journal, intent: Intent, fleet: FleetState) -> Refused | None:
    """Return the refusal that applies to every kind of intent; None if there is none."""
    gives_up = isinstance(intent, Deploy) and set(journal.peers) <= journal.without | intent.without
    if fleet.deposed(journal):
        return Refused(why_deposed(journal))
    if not fleet.confirmed(journal) and not gives_up:
        return Refused(f"no other guard confirms that {journal.leader} leads; give up lost nodes with --without")
    if intent.revision != journal.revision:
        return Refused(CHANGED, busy=True)
    if journal.stopping:
        return Refused(changing(journal), busy=True)
    if journal.hold and not isinstance(intent, Hold):
        return Refused(f"{journal.service} is on hold: {journal.hold}", busy=True)
    return None


def _deploy(journal: Journal, intent: Deploy, fleet: FleetState) -> Reply:
    swap, active = journal.unfinished, journal.active
    down = fails(journal, fleet)
    confirmed = fleet.confirmed(journal)  # if not, this intent gives up the other guards; nothing moves without it
    stuck = bool(journal.trouble) or not confirmed
    if swap and confirmed and not (stuck and down):
        return Refused(changing(journal), busy=True)
    if active == intent.target and not down:
        return NothingToDo(f"{intent.target.release} is active")
    if intent.mode is Mode.FIRST and kept(journal, intent.without, fails=down, stuck=stuck):
        return Refused(CHANGED, busy=True)
    if problem := _unreached(journal, intent, fleet) or _misfit(journal, intent, fleet):
        return Refused(problem)
    if work := leased(intent.target, fleet):
        return Refused(work, busy=True)
    source = active if intent.mode is not Mode.FIRST else None
    retire = [rank for other in journal.deployments if other != source for rank in other.ranks]
    cleared = journal.changed(active=source, swap=None, without=journal.without | intent.without)
    return cleared.begun(intent.id, intent.mode, intent.target, automatic=intent.automatic, retire=retire)


def kept(journal: Journal, without: frozenset[str], *, fails: bool, stuck: bool) -> Deployment | None:
    """Return the promoted release, which runs until a new one takes its place; None if there is none to keep.

    `fails`: whether clients get no answers. That may last a moment: a release is given up once the service is `stuck`,
    so that it needs an operator, or with its node.
    """
    active = journal.active
    if active is None or (fails and (stuck or active.nodes & without)):
        return None
    return active


def _unreached(journal: Journal, intent: Deploy, fleet: FleetState) -> str:
    """Return why the leader cannot reach the guards of the target; empty if it can."""
    missing = sorted(intent.target.nodes - set(fleet.reports))
    return f"{journal.leader} cannot reach the guards of: {', '.join(missing)}" if missing else ""


def _misfit(journal: Journal, intent: Deploy, fleet: FleetState) -> str:
    """Return why the mode cannot replace the active release; empty if it can."""
    active, taken = journal.active, fleet.gateway.active if fleet.gateway else None
    if taken is intent.target.slot and active != intent.target:
        return f"slot {taken} has the traffic"
    if intent.mode is Mode.FIRST:
        return ""
    if active is None or journal.unfinished:
        return f"mode {intent.mode} needs a promoted release, and no swap in progress"
    if active.slot == intent.target.slot:
        return f"slot {active.slot} is that of the active release"
    shared = active.nodes & intent.target.nodes
    return f"mode {intent.mode} does not fit these nodes" if bool(shared) == (intent.mode is Mode.ACROSS) else ""


def fails(journal: Journal, fleet: FleetState) -> bool:
    """Return whether clients get no answers, or those of a program that took an engine's port; unknown is not no."""
    swap = journal.swap
    if swap and swap.reached(Phase.SWITCH) and ended(journal, swap, fleet):
        return True
    return fleet.gateway is not None and fleet.gateway.answer(traffic(journal)) is Answer.NO


def _promote(journal: Journal, intent: Promote) -> Reply:
    swap = journal.swap
    if swap is None or swap.automatic or swap.reverting:
        return Refused("no release waits for promotion")
    return journal.noted(intent.id, "accepted", swap=replace(swap, automatic=True))


def _cancel(journal: Journal, intent: Cancel) -> Reply:
    swap = journal.swap
    if swap is None or swap.retries or swap.reached(Phase.PROMOTE):
        return Refused("no unfinished swap to cancel")
    return journal.reverted("cancelled").noted(intent.id, "accepted")


def _stop(journal: Journal, intent: Stop) -> Reply:
    if journal.active is None and journal.swap is None:
        return NothingToDo(f"{journal.service} does not run")
    return journal.noted(intent.id, "accepted", stopping=True)


def _forget(journal: Journal, intent: Forget) -> Reply:
    """Mark a service in which nothing runs, and nothing could: a node that returns must still find what to stop."""
    if journal.forgotten:
        return NothingToDo(f"{journal.service} is forgotten")
    if journal.deployments:
        return Refused(f"{journal.service} is not stopped: {journal.deployments[0].release} may run")
    if journal.stopped:
        ranks = ", ".join(f"{rank.container} on {rank.node}" for rank in journal.stopped)
        return Refused(f"{journal.service}: no guard has confirmed that these have stopped: {ranks}", busy=True)
    return journal.noted(intent.id, "accepted", forgotten=True, previous=None, trouble="")


def _hold(journal: Journal, intent: Hold, fleet: FleetState) -> Reply:
    """Set or end a hold. It reverts a swap that has not switched, so a release must serve."""
    if not intent.reason:
        return journal.noted(intent.id, "accepted", hold="")
    if fleet.gateway is None or fleet.gateway.answer(traffic(journal)) is not Answer.YES:
        return Refused(f"{journal.service} does not serve; cancel the swap first")
    swap = journal.swap
    stops = swap is not None and not swap.reached(Phase.SWITCH)
    changed = journal.reverted("held") if stops else journal
    return changed.noted(intent.id, "accepted", hold=intent.reason)
