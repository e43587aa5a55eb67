"""How a followed swap ends: from the leader's events and journal to a result and an exit code. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Any

from sparkops.swap import trouble, wire
from sparkops.swap.events import DONE, FAILED, IN_PLACE_FAILED, NEEDS_OPERATOR
from sparkops.swap.journal import Journal, Swap
from sparkops.swap.model import Mode, Phase

Record = Mapping[str, Any]
"""One event as the leader sends it."""


@dataclass(frozen=True)
class Ending:
    """The result of a swap or stop: done, waiting (for `promote`), reverted, cancelled, stopped or needs operator.

    Without one in progress: nothing, or forgotten.
    """

    result: str
    exit_code: int
    release: str = ""
    """The release that serves now."""
    mode: str = ""
    why: str = ""
    next_step: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each phase."""
    cut: int = 0
    """Requests that were still open after the drain time, and were cut."""

    def as_json(self) -> dict[str, Any]:
        """Return the object that `--json` prints."""
        return {
            "result": self.result,
            "exit_code": self.exit_code,
            "release": self.release or None,
            "mode": self.mode or None,
            "why": self.why or None,
            "seconds": dict(self.seconds),
            "cut": self.cut,
        }


def of_event(event: Record) -> Ending | None:
    """Return the ending that an event of kind `end` or `trouble` states; None for another kind."""
    if event["kind"] not in ("end", "trouble"):
        return None
    why = event.get("why") or (event["text"] if event["exit_code"] else "")
    return wire.load_value(Ending, {**event, "why": why})


def needs_operator(journal: Journal, why: str, missing: Collection[str] = ()) -> Ending:
    """Return the ending of a change that the fleet cannot continue by itself. `missing`: as for `next_step`."""
    step = trouble.next_step(journal, why, missing)
    return Ending("needs operator", NEEDS_OPERATOR, _serving(journal), why=trouble.reason(why), next_step=step)


def settled(journal: Journal, intent: str, known_trouble: str = "") -> Ending | None:
    """Return the ending of the swap of `intent` (empty: a stop); None while its operator must wait.

    A promoted release whose old one is only kept warm is done; a release that was deployed with --no-promote waits.
    `known_trouble`: reason that already needed an operator when the intent was sent.
    """
    swap = journal.swap
    if journal.trouble and journal.trouble != known_trouble:
        return needs_operator(journal, journal.trouble)
    if journal.stopping or (journal.halting and not intent):
        return None
    if swap and swap.intent == intent:
        return _of_swap(swap)
    outcome = journal.outcome(intent)
    if outcome and outcome.result == "done":
        return Ending("done", DONE, _serving(journal))
    if outcome and outcome.result != "accepted":
        result = "cancelled" if outcome.why in ("cancelled", "held") else outcome.result
        return Ending(result, FAILED, _serving(journal), why=outcome.why)
    if swap is not None:
        return None
    if journal.active:
        return Ending("done", DONE, _serving(journal))
    return Ending("stopped", FAILED, why="stopped by an operator") if intent else Ending("stopped", DONE)


def _of_swap(swap: Swap) -> Ending | None:
    if swap.reverting:
        return None
    if swap.phase is Phase.RETIRE:
        return Ending("done", DONE, swap.target.release, swap.mode.value)
    return Ending("waiting", DONE, swap.target.release, swap.mode.value) if swap.waits else None


def _serving(journal: Journal) -> str:
    return journal.active.release if journal.active else ""


def phase_seconds(events: Iterable[Record]) -> dict[str, float]:
    """Return the seconds of each phase that ended, from the times of the events; a repeated phase is summed."""
    entered = [(event["phase"], datetime.fromisoformat(event["at"])) for event in events if event["kind"] == "phase"]
    seconds: dict[str, float] = {}
    for (phase, start), (_, later) in pairwise(entered):
        seconds[phase] = round(seconds.get(phase, 0.0) + (later - start).total_seconds(), 2)
    return seconds


def exit_code(ending: Ending, *, wants_back: bool) -> int:
    """Return the exit code of the verb. `wants_back`: a reverted swap is its success, as for rollback and cancel."""
    back = ending.result in ("cancelled", "reverted")
    return DONE if wants_back and back and ending.exit_code in (FAILED, IN_PLACE_FAILED) else ending.exit_code


def swap_line(swap: Swap) -> str:
    way = "returning to" if swap.reverting else "to"
    gap = ", the service is down until the switch" if swap.mode is Mode.IN_PLACE and swap.offline else ""
    return f"swap {way} {swap.target.release}, mode {swap.way}, phase '{swap.phase}'{gap}"
