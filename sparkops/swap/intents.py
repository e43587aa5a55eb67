"""What operators ask for. An intent changes the journal once, or nothing; a repeated one gets its first result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from sparkops.swap.journal import Journal
from sparkops.swap.model import Answer, Deployment, Mode, Phase
from sparkops.swap.orders import traffic
from sparkops.swap.seen import Seen


@dataclass(frozen=True, slots=True)
class Deploy:
    """Replace the active release. `mode` was planned from the memory of the nodes; a rollback is one of these, too."""

    id: str
    revision: int
    target: Deployment
    mode: Mode
    automatic: bool = True
    without: frozenset[str] = frozenset()
    """Nodes that the operator gives up: their engines stay down if they return."""


@dataclass(frozen=True, slots=True)
class Promote:
    """Keep a release that waits in its bake."""

    id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Return to the old release: an unfinished swap goes back."""

    id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the service."""

    id: str
    revision: int


@dataclass(frozen=True, slots=True)
class Hold:
    """Block changes; an empty reason ends a hold."""

    id: str
    revision: int
    reason: str


@dataclass(frozen=True, slots=True)
class Configure:
    """Replace or configure gateway and guards."""

    id: str
    revision: int
    digest: str


Intent = Deploy | Promote | Cancel | Stop | Hold | Configure


class Code(IntEnum):
    """Exit codes of a refusal (DESIGN: CLI contract)."""

    BUSY = 4
    REFUSED = 5


@dataclass(frozen=True, slots=True)
class Refused:
    """Why an intent changes nothing."""

    why: str
    code: Code = Code.REFUSED


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The intent asks for what is already so."""

    why: str


Reply = Journal | Refused | NothingToDo


def accept(journal: Journal, intent: Intent, seen: Seen) -> Reply:
    """Decide on an intent: the journal that accepts it, or why nothing changes."""
    if known := journal.outcome(intent.id):
        return NothingToDo(f"already {known.result}")
    return _blocked(journal, intent, seen) or _decided(journal, intent, seen)


def _blocked(journal: Journal, intent: Intent, seen: Seen) -> Refused | None:
    """What stands against any intent."""
    gives_up = isinstance(intent, Deploy) and set(journal.peers) <= journal.without | intent.without
    if seen.deposed(journal):
        return Refused("another node leads this service")
    if not seen.confirmed(journal) and not gives_up:
        return Refused(f"no other guard confirms that {journal.leader} leads; give up lost nodes with --without")
    if intent.revision != journal.revision:
        return Refused("the service has changed since this was planned: plan again", Code.BUSY)
    if journal.stopping:
        return Refused(f"{journal.service} is being stopped", Code.BUSY)
    if journal.hold and not isinstance(intent, Hold):
        return Refused(f"{journal.service} is on hold: {journal.hold}", Code.BUSY)
    return None


def _decided(journal: Journal, intent: Intent, seen: Seen) -> Reply:
    match intent:
        case Deploy():
            return _deploy(journal, intent, seen)
        case Promote():
            return _promote(journal, intent)
        case Cancel():
            return _cancel(journal, intent)
        case Stop():
            return _stop(journal, intent)
        case Hold():
            return _hold(journal, intent, seen)
        case Configure():
            return _configure(journal, intent)


def _deploy(journal: Journal, intent: Deploy, seen: Seen) -> Reply:
    swap, active = journal.swap, journal.active
    fails = not _serves(journal, seen)
    if swap and swap.phase is not Phase.RETIRE and not (journal.trouble and fails):
        return Refused(f"a swap to {swap.target.release} is in phase '{swap.phase}'", Code.BUSY)
    if active and active == intent.target and not fails:
        return NothingToDo(f"{active.release} is active")
    if problem := _unreached(journal, intent, seen) or _misfit(active, intent, fails=fails):
        return Refused(problem)
    kept = active if intent.mode is not Mode.FIRST else None
    retire = [rank for other in journal.deployments if other != kept for rank in other.ranks]
    cleared = journal.changed(active=kept, swap=None, without=journal.without | intent.without)
    return cleared.begun(intent.id, intent.mode, intent.target, automatic=intent.automatic, retire=retire)


def _unreached(journal: Journal, intent: Deploy, seen: Seen) -> str:
    """Why the leader cannot order the target's engines, whatever the operator's machine reaches."""
    missing = sorted({rank.node for rank in intent.target.ranks} - set(seen.reports))
    return f"{journal.leader} does not reach the guards of: {', '.join(missing)}" if missing else ""


def _misfit(active: Deployment | None, intent: Deploy, *, fails: bool) -> str:
    """Why this mode cannot replace what is active."""
    if intent.mode is Mode.FIRST:
        return f"{active.release} is active" if active and not fails else ""
    if active is None or intent.mode is Mode.RESTART:
        return f"mode {intent.mode} needs an active release"
    if active.slot == intent.target.slot:
        return f"slot {active.slot} has the traffic"
    shared = {rank.node for rank in active.ranks} & {rank.node for rank in intent.target.ranks}
    return f"mode {intent.mode} does not fit these nodes" if bool(shared) == (intent.mode is Mode.ACROSS) else ""


def _serves(journal: Journal, seen: Seen) -> bool:
    """Whether clients get answers now; where that is unknown, they may."""
    return seen.gateway is None or seen.gateway.answer(traffic(journal)) is not Answer.NO


def _promote(journal: Journal, intent: Promote) -> Reply:
    swap = journal.swap
    if swap is None or swap.automatic:
        return Refused("no release waits for promotion")
    return journal.noted(intent.id, "accepted", swap=replace(swap, automatic=True))


def _cancel(journal: Journal, intent: Cancel) -> Reply:
    swap = journal.swap
    if swap is None or swap.reverting or swap.mode is Mode.RESTART or swap.reached(Phase.PROMOTE):
        return Refused("no unfinished swap to cancel")
    return journal.reverted("cancelled").noted(intent.id, "accepted")


def _stop(journal: Journal, intent: Stop) -> Reply:
    if journal.active is None and journal.swap is None:
        return NothingToDo(f"{journal.service} does not run")
    return journal.noted(intent.id, "accepted", stopping=True)


def _hold(journal: Journal, intent: Hold, seen: Seen) -> Reply:
    """A hold stops what was accepted and has not switched, so it needs a release that serves."""
    if not intent.reason:
        return journal.noted(intent.id, "accepted", hold="")
    serving = traffic(journal)
    if serving is None or seen.gateway is None or seen.gateway.answer(serving) is not Answer.YES:
        return Refused(f"{journal.service} does not serve; cancel the swap first")
    swap = journal.swap
    stops = swap is not None and not swap.reverting and not swap.reached(Phase.SWITCH)
    held = journal.reverted("held") if stops else journal
    return held.noted(intent.id, "accepted", hold=intent.reason)


def _configure(journal: Journal, intent: Configure) -> Reply:
    if journal.swap and journal.swap.phase is not Phase.RETIRE:
        return Refused(f"a swap is in phase '{journal.swap.phase}'", Code.BUSY)
    return journal.noted(intent.id, "accepted", agents=intent.digest)


def rebuilt(copies: Iterable[Journal], node: str, lost: frozenset[str]) -> Journal:
    """The journal of a new leader on `node`: the newest copy, one term later. What ran on `lost` nodes is given up.

    Raises ValueError without a copy.
    """
    newest = max(copies, key=lambda copy: (copy.term, copy.revision))
    swap, active = newest.swap, newest.active
    dead = [item for item in newest.deployments if any(rank.node in lost for rank in item.ranks)]
    if swap and swap.target in dead:
        active, swap = swap.source, None
    known = {rank.container for rank in newest.stopped}
    given_up = dict.fromkeys(rank for item in dead for rank in item.ranks if rank.container not in known)
    return newest.changed(
        term=newest.term + 1,
        leader=node,
        peers=tuple(peer for peer in (newest.leader, *newest.peers) if peer != node),
        without=newest.without | lost,
        active=None if active in dead else active,
        swap=swap,
        stopped=(*newest.stopped, *given_up),
    )
