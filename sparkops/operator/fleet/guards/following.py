"""Follow an accepted intent by the leader's events. The fleet executes it without this process."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sparkops.errors import ConnectionLost, Interrupted
from sparkops.node.progress import Event, OnEvent, Repeats
from sparkops.node.waiting import Waiting
from sparkops.operator.fleet.guards.ending import Ending, needs_operator, of_event, phase_seconds, settled
from sparkops.operator.fleet.guards.leader import Leader
from sparkops.operator.fleet.guards.narration import Narration
from sparkops.operator.fleet.guards.replies import parsed
from sparkops.serving.service_state import ServiceState, unreported, ways_out

POLL_S = 2.0  # longest wait of a request for events, and pause between two reports of a load's progress
STUCK_S = 60.0
LOST_TRIES, LOST_PAUSE_S = 10, 3.0  # a guard that is replaced or restarts is back within seconds
NUMBER = re.compile(r"\d[\d.]*")
R = TypeVar("R")


@dataclass(frozen=True)
class Accepted:
    """An accepted intent: its swap (empty for a stop), and the last event and the trouble before it."""

    intent: str
    last: int
    trouble: str = ""


@dataclass
class Following:
    """State of following one service. `events` are those since the intent was accepted."""

    leader: Leader
    service: str
    report: OnEvent
    events: list[dict[str, Any]] = field(default_factory=list)
    narration: Narration = field(default_factory=Narration)
    repeats: dict[str, Repeats] = field(default_factory=dict)
    nodes: set[str] = field(default_factory=set)
    """The nodes whose engines showed progress last."""
    stuck_since_s: float | None = None

    def until_end(self, accepted: Accepted) -> Ending:
        """Report events and progress until the swap or stop ends. Raises Interrupted or ConnectionLost."""
        try:
            return self._until_end(accepted)
        except KeyboardInterrupt:
            raise interrupted(self.service) from None
        finally:
            for name in (self.service, *self.nodes):
                self.report(Event(name, "", lasting=False))

    def _until_end(self, accepted: Accepted) -> Ending:
        last = accepted.last
        while not self.leader.node.cancel.is_set():
            last = self._report_events(last, POLL_S)
            state = self._patiently(lambda: self.leader.state(self.service))
            self._report_progress(state)
            ending = settled(state.journal, accepted.intent, accepted.trouble) or self._stuck(state)
            if ending is not None:
                # Events between the two requests. The journal is on disk a moment before the event of a swap's end.
                awaited = accepted.intent and ending.result != "waiting" and self._stated(accepted.intent) is None
                self._report_events(last, POLL_S if awaited else 0.0)
            ending = self._stated(accepted.intent) or ending
            if ending:
                seconds = ending.seconds or parsed(self.leader.node.name, "events", self.events, phase_seconds)
                return replace(ending, seconds=seconds)
        raise interrupted(self.service)

    def _stated(self, intent: str) -> Ending | None:
        """Return the ending that an event states; None before it. A stop (empty) may end another one's swap, too."""
        own = (event for event in self.events if event.get("intent", intent) == intent)
        stated = (parsed(self.leader.node.name, "events", event, of_event) for event in own)
        return next(filter(None, stated), None)

    def _stuck(self, state: ServiceState) -> Ending | None:
        """Return the ending if the leader cannot continue. A restarted leader continues within seconds."""
        now_s = time.monotonic()
        same = state.needs_operator == state.journal.trouble
        why = unreported(state) if same else state.needs_operator
        if not why:
            self.stuck_since_s = None
            return None
        self.stuck_since_s = self.stuck_since_s or now_s
        return needs_operator(state.journal, why, state.missing) if now_s - self.stuck_since_s >= STUCK_S else None

    def _report_events(self, since: int, wait_s: float) -> int:
        """Report the events after `since`. Returns the number of the last one."""
        events = self._patiently(lambda: self.leader.events(self.service, since, wait_s))
        for event in events:
            self.events.append(event)
            if text := parsed(self.leader.node.name, "events", event, self.narration.line):
                self.report(Event(event.get("node") or self.service, text, lasting=event.get("lasting", True)))
        return max((event["n"] for event in events), default=since)

    def _report_progress(self, state: ServiceState) -> None:
        """Report the progress of the engines. A plain log keeps a new stage, or the same one after a while."""
        swap = state.journal.swap
        if swap and swap.phase is not self.narration.phase:
            self.report(Event(self.service, swap.phase.value, lasting=False))
        for node in self.nodes - state.progress.keys():
            self.report(Event(node, "", lasting=False))
        self.nodes = set(state.progress)
        several = sum(map(len, state.progress.values())) > len(state.progress)
        for node, containers in state.progress.items():
            for container, text in containers.items():
                repeats = self.repeats.setdefault(container, Repeats())
                kept = not self.narration.read(text) and repeats.keeps(NUMBER.sub("", text), time.monotonic())
                self.report(Event(node, f"{container}: {text}" if several else text, lasting=kept))

    def _patiently(self, request: Callable[[], R]) -> R:
        """Retry on a new stream while the guard does not answer. Raises ConnectionLost after LOST_TRIES."""

        def report_lost(lost: ConnectionLost) -> None:
            self.report(Event(self.leader.node.name, f"waiting for the guard: {lost.problem}", lasting=False))

        stopped, cancel = interrupted(self.service), self.leader.node.cancel
        waiting = Waiting(LOST_PAUSE_S, cancel=cancel, tries=LOST_TRIES, interrupted=stopped)
        try:
            return waiting.retry(request, lambda error: isinstance(error, ConnectionLost), report_lost)
        except ConnectionLost as lost:
            problem = f"{lost.problem}; {self.service} continues without this client"
            raise ConnectionLost(lost.node, problem, next_step="\n".join(ways_out(self.service))) from lost


def interrupted(service: str) -> Interrupted:
    """Return the error for Ctrl-C while following an accepted intent."""
    problem = f"{service}: no longer followed; the fleet continues"
    return Interrupted(problem, next_step="\n".join(ways_out(service)))
