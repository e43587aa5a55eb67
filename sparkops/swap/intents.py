"""Operators' requests. An intent changes the journal once or not at all; a repeated one gets its first result."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from sparkops.swap.fleet_state import FleetState, why_deposed
from sparkops.swap.journal import ROLLBACK, Journal, present
from sparkops.swap.model import Answer, Deployment, Mode, Phase
from sparkops.swap.orders import traffic
from sparkops.swap.phases import ended, leased
from sparkops.swap.rolling import next_step

MOST_SENDER = 128
"""Most characters of a sender, and of the verb of a deploy: both are kept in the journal, and shown to people."""
WAITS = "waits for `promote` or `rollback`"
"""What an unfinished swap does that an operator decides."""
ON_HOLD = " is on hold: "
"""Between a service and the reason of its hold, in the refusal of every other intent."""


@dataclass(frozen=True, slots=True)
class _Sent:
    """What all intents have. `revision`: that of the journal for which it was made. `by`: its sender, as `ann@laptop`.

    Raises ValueError for a sender that is too long or has control characters: other operators read it.
    """

    id: str
    revision: int
    by: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        require_shown("by", self.by)


@dataclass(frozen=True, slots=True)
class Deploy(_Sent):
    """Replace the active release. `mode` was planned from the memory of the nodes; a rollback is a deploy as well."""

    target: Deployment
    mode: Mode
    automatic: bool = True
    without: frozenset[str] = frozenset()
    """Nodes that the operator gives up: their engines stay down if they return."""
    verb: str = "deploy"
    """What the operator has typed, such as `rollback`."""
    kind: Literal["deploy"] = "deploy"

    def __post_init__(self) -> None:
        require_shown("by", self.by)
        require_shown("verb", self.verb)


@dataclass(frozen=True, slots=True)
class Promote(_Sent):
    """Keep a release that waits for promotion."""

    kind: Literal["promote"] = "promote"


@dataclass(frozen=True, slots=True)
class Cancel(_Sent):
    """Revert an unfinished swap to the old release."""

    kind: Literal["cancel"] = "cancel"


@dataclass(frozen=True, slots=True)
class Stop(_Sent):
    """Stop the service. `force`: also in the middle of a swap, whose operator waits for its end."""

    force: bool = False
    kind: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True)
class Hold(_Sent):
    """Block changes; an empty reason ends a hold."""

    reason: str
    kind: Literal["hold"] = "hold"


@dataclass(frozen=True, slots=True)
class Forget(_Sent):
    """Give up a stopped service: free its names and port at the gateway, and list it no longer."""

    kind: Literal["forget"] = "forget"


@dataclass(frozen=True, slots=True)
class EndWarm(_Sent):
    """Stop the old release that is only kept warm, before its time."""

    kind: Literal["end-warm"] = "end-warm"


Intent = Deploy | Promote | Cancel | Stop | Hold | Forget | EndWarm


def require_shown(name: str, text: str) -> None:
    """Raise ValueError for a text that must not be shown: a long one, or one with control characters."""
    if len(text) > MOST_SENDER or not text.isprintable():
        raise ValueError(f"{name}: expected up to {MOST_SENDER} printable characters, got {text[:MOST_SENDER]!r}")


def verb_of(intent: Intent) -> str:
    """Return the verb that sends an intent, as the history names it."""
    match intent:
        case Deploy(verb=verb):
            return verb
        case Cancel():
            return ROLLBACK
        case Hold(reason=""):
            return "hold --off"
        case Forget():
            return "stop --forget"
        case EndWarm():
            return "node drain"
        case _:
            return intent.kind


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
    if swap is None:
        return ""
    sender = journal.sender(swap.intent)
    does = WAITS if swap.waits else f"is in phase '{swap.phase}'"
    text = f"{journal.service}: a swap to {swap.target.release} {does}"
    return f"{text}, {sender}" if sender else text


def accept(journal: Journal, intent: Intent, fleet: FleetState) -> Reply:
    """Return the journal that accepts an intent, or the reason why nothing changes."""
    reply = _decided(journal, intent, fleet)
    return reply.signed(intent.id, verb_of(intent), intent.by) if isinstance(reply, Journal) else reply


def _decided(journal: Journal, intent: Intent, fleet: FleetState) -> Reply:
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
        case EndWarm():
            return _end_warm(journal, intent)


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
        return Refused(f"{journal.service}{ON_HOLD}{journal.hold}", busy=True)
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
    rolls = intent.mode is Mode.ROLLING
    if taken is intent.target.slot and active != intent.target and not rolls:
        return f"slot {taken} has the traffic"
    if intent.mode is Mode.FIRST:
        return ""
    if active is None or journal.unfinished:
        return f"mode {intent.mode} needs a promoted release, and no swap in progress"
    if (active.slot == intent.target.slot) is not rolls:
        return f"slot {active.slot} is that of the active release"
    if rolls:
        kept = next_step(active, intent.target).only(active.replicas).replicas
        return "" if kept else "no replica serves while the others are replaced"
    shared = active.nodes & intent.target.nodes
    return f"mode {intent.mode} does not fit these nodes" if bool(shared) == (intent.mode is Mode.ACROSS) else ""


def fails(journal: Journal, fleet: FleetState) -> bool:
    """Return whether clients get no answers, or those of a program that took an engine's port; unknown is not no."""
    swap = journal.swap
    if swap and swap.reached(Phase.SWITCH) and not swap.kept and ended(journal, swap, fleet):
        return True
    return fleet.gateway is not None and fleet.gateway.answer(traffic(journal)) is Answer.NO


def _promote(journal: Journal, intent: Promote) -> Reply:
    swap = journal.swap
    if swap is None or swap.automatic or swap.reverting:
        return NothingToDo("no release waits for promotion")
    return journal.noted(intent.id, "accepted", swap=replace(swap, automatic=True))


def _cancel(journal: Journal, intent: Cancel) -> Reply:
    swap = journal.unfinished
    if swap is None:
        return NothingToDo("no unfinished swap")
    if swap.retries or swap.reached(Phase.PROMOTE):
        return Refused(changing(journal), busy=True)
    return journal.reverted("cancelled").noted(intent.id, "accepted")


def _stop(journal: Journal, intent: Stop) -> Reply:
    if journal.active is None and journal.swap is None:
        return NothingToDo(f"{journal.service} does not run")
    swap, stopping = journal.unfinished, journal.noted(intent.id, "accepted", stopping=True)
    if swap is None or swap.restarts:  # no client follows a restart by the leader
        return stopping
    if not intent.force and not journal.trouble:
        return Refused(changing(journal), busy=True)
    when = f"in phase '{swap.phase}'" if swap.reached(Phase.SWITCH) else "while it started"
    return stopping.cut_short(f"stopped by {intent.by or 'an operator'} {when}")


def _forget(journal: Journal, intent: Forget) -> Reply:
    """Mark a service in which nothing runs, and nothing could: a node that returns must still find what to stop."""
    if journal.forgotten:
        return NothingToDo(f"{journal.service} is forgotten")
    if journal.deployments:
        return Refused(f"{journal.service} is not stopped: {journal.deployments[0].release} may run")
    if journal.stopped:
        ranks = ", ".join(f"{rank.container} on {rank.node}" for rank in journal.stopped)
        return Refused(f"{journal.service}: no guard has confirmed that these have stopped: {ranks}", busy=True)
    return journal.noted(intent.id, "accepted", forgotten=True, previous=None, earlier=None, trouble="")


def _end_warm(journal: Journal, intent: EndWarm) -> Reply:
    """End the swap as the end of the warm time does: nothing sends requests to the old release any more."""
    if journal.warm is None:
        return NothingToDo("no release is only kept warm")
    ended = journal.settled(present(journal.swap).why)
    return replace(ended.noted(intent.id, "accepted"), revision=ended.revision)


def _hold(journal: Journal, intent: Hold, fleet: FleetState) -> Reply:
    """Set or end a hold. It reverts a swap that has not switched, so a release must serve."""
    if not intent.reason and not journal.hold:
        return NothingToDo("nothing was held")
    if not intent.reason:
        return journal.noted(intent.id, "accepted", hold="")
    if fleet.gateway is None or fleet.gateway.answer(traffic(journal)) is not Answer.YES:
        return Refused(f"{journal.service} does not serve; roll the swap back first")
    swap = journal.swap
    stops = swap is not None and not swap.reached(Phase.SWITCH)
    changed = journal.reverted("held") if stops else journal
    return changed.noted(intent.id, "accepted", hold=intent.reason)
