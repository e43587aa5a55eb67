"""Changes of a journal as events for operators, numbered so that any client can follow. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sparkops.names import release_of_container
from sparkops.swap.catalogue import Code, NoticeState, noted
from sparkops.swap.journal import Journal, Outcome, Swap
from sparkops.swap.model import Deployment, Phase
from sparkops.swap.trouble import next_step, reason

DONE, FAILED, IN_PLACE_FAILED, NEEDS_OPERATOR = 0, 1, 6, 7
"""Exit codes of an ended swap as in docs/operations.md."""


@dataclass(frozen=True, slots=True)
class SwapEvent:
    """One event. `more` has the figures of an event of kind `end`."""

    kind: str
    text: str
    node: str | None = None
    lasting: bool = True
    more: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """Return the event as stored and sent; the store adds its number and time."""
        return {"kind": self.kind, "text": self.text, "node": self.node, "lasting": self.lasting, **self.more}


def narrate(old: Journal, new: Journal) -> Iterator[SwapEvent]:
    """Yield the events between two journals, in order."""
    recorded = {(outcome.intent, outcome.result, outcome.why) for outcome in old.outcomes}
    fresh = [item for item in new.outcomes if (item.intent, item.result, item.why) not in recorded]
    for outcome in fresh:
        if outcome.result == "accepted":
            yield _accepted(new, outcome)
    yield from _swap(old.swap, new.swap)
    for outcome in fresh:
        if outcome.result != "accepted":
            yield _end(old, new, outcome)
    if old.warm and old.warm not in new.deployments:
        yield SwapEvent("note", f"{old.warm.release} is kept warm no longer")
    yield from _stop(old, new)
    if old.hold != new.hold:
        text = f"on hold: {new.hold}" if new.hold else "hold released"
        state = NoticeState.BEGINS if new.hold else NoticeState.ENDS
        step = f"sparkops hold {new.service} --off" if new.hold else ""
        yield SwapEvent("note", text, more=noted(Code.HOLD, state=state, next_step=step))
    if new.forgotten and not old.forgotten:
        yield SwapEvent("note", f"{new.service} is forgotten: its names and port are free")
    if new.trouble and new.trouble != old.trouble:
        step = next_step(new, new.trouble)
        more = {"result": "needs operator", "exit_code": NEEDS_OPERATOR, "next_step": step}
        yield SwapEvent("trouble", f"needs an operator: {reason(new.trouble)}", more=more)


def _accepted(new: Journal, outcome: Outcome) -> SwapEvent:
    """Return what was accepted: verb and sender, and of a swap its release, mode and nodes."""
    intent, swap = outcome.intent, new.swap
    more: dict[str, Any] = {"intent": intent, "verb": outcome.verb or None, "by": outcome.by or None}
    text = outcome.sender or f"intent {intent}"
    if swap is None or swap.intent != intent:
        return SwapEvent("intent", f"{text}: accepted", more=more)
    nodes = sorted(swap.target.nodes)
    more |= {"release": swap.target.release, "mode": swap.way, "nodes": nodes}
    return SwapEvent("intent", f"{text}: {swap.target.release}, mode {swap.way}, on {' and '.join(nodes)}", more=more)


def _swap(old: Swap | None, new: Swap | None) -> Iterator[SwapEvent]:
    if new is None:
        return
    if old is not None and old.key != new.key and new.why and old.why != new.why:
        yield SwapEvent("failure", f"{new.why}; {'retrying' if new.reverting == old.reverting else 'rolling back'}")
    if old is not None and old.key == new.key and (left := [item for item in new.kept if item not in old.kept]):
        out = " and ".join(replica.ranks[0].container for replica in left)
        yield SwapEvent("failure", f"{new.why}; the others start without {out}")
    if old is None or (old.key, old.phase) != (new.key, new.phase):
        yield SwapEvent("phase", f"{new.target.release}: {new.phase}", more=_phase(new))
        if new.phase is Phase.PROMOTE and not new.retries:  # a return and a restart are told as such
            yield _promoted(new)


def _promoted(swap: Swap) -> SwapEvent:
    """Return that a release is promoted, or that replicas of it are, while others are still of the one before."""
    release = swap.target.release
    if swap.goal is None:
        return SwapEvent("note", f"{release} is promoted", more=noted(Code.PROMOTED, release))
    follow = len(swap.goal.less(swap.target.replicas).replicas)
    where = " and ".join(sorted(swap.coming.nodes))
    return SwapEvent(
        "note", f"{release} serves on {where or 'fewer nodes'}; {follow} of {len(swap.goal.replicas)} follow"
    )


def _phase(swap: Swap) -> dict[str, Any]:
    """Return what a follower prints of a phase, beside its name."""
    return {
        "phase": swap.phase.value,
        "release": swap.target.release,
        "replaces": _replaced(swap, swap.source) if swap.source and not swap.restarts else "",
        "nodes": [rank.node for rank in (swap.coming if swap.coming.replicas else swap.target).ranks],
        "mode": swap.way,
    }


def _replaced(swap: Swap, source: Deployment) -> str:
    """Return the release that leaves: of some replicas, in a deployment of two releases, theirs."""
    if not swap.kept:
        return source.release
    return next((release_of_container(rank.container) for rank in source.less(swap.kept).heads), "")


def _stop(old: Journal, new: Journal) -> Iterator[SwapEvent]:
    """Yield the end of a stop, once guards have reported that every container has ended."""
    if new.deployments or new.stopping or not (old.stopping or old.halting):
        return
    if not new.halting:
        more = {"intent": "", "result": "stopped", "exit_code": DONE, **noted(Code.STOPPED)}
        yield SwapEvent("end", f"{new.service} is stopped", more=more)
    elif old.stopping:
        yield SwapEvent("note", f"stopping {', '.join(f'{rank.container} on {rank.node}' for rank in new.halting)}")


def _end(old: Journal, new: Journal, outcome: Outcome) -> SwapEvent:
    """Return the end of a swap: the release that serves, and the exit code for its followers."""
    swap, serves = old.swap, new.active.release if new.active else ""
    more: dict[str, Any] = {"intent": outcome.intent, "release": serves, "mode": swap.way if swap else ""}
    if outcome.result == "done":
        more |= {"result": "done", "exit_code": DONE}
        why = f"{outcome.why}; " if swap and swap.reverting else ""  # a return that was given up
        return SwapEvent("end", f"{why}{serves} serves" if serves else "done", more=more)
    if outcome.result == "stopped":
        more |= {"result": "stopped", "exit_code": FAILED, "release": "", "why": outcome.why}
        return SwapEvent("end", f"{swap.target.release if swap else old.service}: {outcome.why}", more=more)
    offline = swap and swap.stops_source and not swap.kept and (swap.reverting or swap.reached(Phase.QUIESCE))
    result = "cancelled" if outcome.why in ("cancelled", "held") else "reverted"
    code, step = Code.CANCELLED if result == "cancelled" else Code.REVERTED, f"sparkops history {old.service}"
    more |= {"result": result, "exit_code": IN_PLACE_FAILED if offline else FAILED, "why": outcome.why}
    more |= noted(code, swap.target.release if swap else "", next_step=step)
    return SwapEvent("end", f"{outcome.why}; {f'{serves} serves' if serves else 'nothing serves'}", more=more)
