"""The leader of one service: it decides one effect at a time, and executes it at the gateway or in the journal."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol

from sparkops.errors import SparkopsError
from sparkops.guard.phase_clocks import PhaseClocks
from sparkops.swap import effects
from sparkops.swap.effects import FrontEffect, LeaderEffect
from sparkops.swap.events import SwapEvent, narrate
from sparkops.swap.intents import Intent, NothingToDo, Refused, accept
from sparkops.swap.journal import Journal
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import Answer, Deployment, Phase
from sparkops.swap.orders import Order, order, traffic
from sparkops.swap.seen import GatewayView, Report, Seen

PAUSE_S, IDLE_S, FAILED_S = 0.3, 1.0, 2.0


class Ledger(Protocol):
    """Where journals and events are kept."""

    def write_journal(self, journal: Journal) -> None:
        """Replace a journal on disk. Raises OSError."""
        ...

    def add_event(self, service: str, event: Mapping[str, Any]) -> int:
        """Keep an event, and return its number."""
        ...


class Front(Protocol):
    """What clients reach a service through: the gateway (guard/view.py), or its engine alone (guard/direct.py)."""

    def look(
        self,
        deployments: tuple[Deployment, ...],
        *,
        swapping: bool,
        baked: Deployment | None = None,
        fresh: bool = False,
    ) -> GatewayView | None:
        """What is seen now, without waiting for an engine; None while it is unknown."""
        ...

    def execute(self, effect: FrontEffect) -> str:
        """Change it, and return what it printed: how many requests were cut. Raises SparkopsError, OSError."""
        ...


@dataclass
class Lead:
    """Leads one service. `reports` gives the recent reports of its guards, this node's own among them."""

    journal: Journal
    ledger: Ledger
    view: Front
    reports: Callable[[], Mapping[str, Report]]
    met: Callable[[], frozenset[str]]
    log: Callable[[str], None]
    written: Callable[[], None] = lambda: None
    """Called when the journal has changed: there are new orders."""
    wake: threading.Event = field(default_factory=threading.Event)
    """Set when the next turn must not wait."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    clocks: PhaseClocks = field(default_factory=PhaseClocks)
    seen: Seen = field(default_factory=Seen)
    frozen: str = ""
    """Why this service is not led on: an error in our own code."""
    times: list[tuple[str, float]] = field(default_factory=list)
    cut: int = 0

    @property
    def busy(self) -> bool:
        """Whether something is under way, so that looks come often."""
        return self.journal.swap is not None or self.journal.stopping

    def order(self, node: str, boot: str) -> Order:
        """The order for a guard."""
        return order(self.journal, node, boot)

    def run(self, over: threading.Event) -> None:
        """Lead until `over`. Whoever sets it sets `wake` as well."""
        while not over.is_set():
            self.wake.wait(self.turn())
            self.wake.clear()

    def turn(self) -> float:
        """Look, decide and execute one effect. Returns the seconds to wait before the next turn."""
        with self.lock:
            if self.frozen:
                return IDLE_S
            try:
                return self._turn()
            except (SparkopsError, OSError) as error:
                self.log(f"{self.journal.service}: {error}")
                return FAILED_S
            except Exception:  # noqa: BLE001 - an error in one service must not stop the others
                self.frozen = traceback.format_exc()
                self.log(f"{self.journal.service}: frozen: {self.frozen}")
                return IDLE_S

    def _turn(self) -> float:
        self._look()
        effect = step(self.journal, self.seen)
        if effect and not self.busy:  # what was seen of an idle gateway may be seconds old
            self._look(fresh=True)
            effect = step(self.journal, self.seen)
        if effect is None:
            return PAUSE_S if self.busy else IDLE_S
        self._execute(effect)
        return 0.0

    def _look(self, *, fresh: bool = False) -> None:
        """Read the front and the reports, and advance the clocks of this phase."""
        journal = self.journal
        swap = journal.swap
        baked = swap.target if swap and swap.phase is Phase.BAKE else None
        view = self.view.look(journal.deployments, swapping=self.busy, baked=baked, fresh=fresh)
        reports = dict(self.reports())
        serving = view.answer(traffic(journal)) if view else Answer.UNKNOWN
        sampled = view is not None and (serving is Answer.YES or traffic(journal) is None)
        moved = (_moving(reports), view and (view.traffic, tuple(sorted(view.answers.items()))))
        self.clocks.tick(
            time.monotonic(), (swap and swap.key, swap and swap.phase, journal.stopping), moved, sampled=sampled
        )
        self.seen = Seen(reports, view, self.met(), self.clocks.sampled_s, self.clocks.waited_s)

    def _execute(self, effect: LeaderEffect) -> None:
        if isinstance(effect, effects.WriteJournal):
            self._write(effect.journal)
            return
        self._tell(effect, self.view.execute(effect))
        self._look(fresh=True)

    def _tell(self, effect: LeaderEffect, printed: str) -> None:
        match effect:
            case effects.SwitchTraffic(deployment=None, hold=effects.RequestHold(left_s=left_s)):
                self.note(SwapEvent("traffic", f"requests wait, for about {left_s:.0f} s"))
            case effects.SwitchTraffic(deployment=None):
                self.note(SwapEvent("traffic", "no release has the traffic"))
            case effects.SwitchTraffic(deployment=Deployment() as deployment):
                self.note(SwapEvent("traffic", f"{deployment.release} ({deployment.slot}) has the traffic"))
            case effects.CutRequests(deployment=deployment):
                self.cut += int(printed or 0)
                self.note(SwapEvent("note", f"{printed or 0} requests in {deployment.release} were cut"))
            case _:
                pass

    def _write(self, journal: Journal) -> None:
        """On disk first: orders follow from what is written."""
        old = self.journal
        self.ledger.write_journal(journal)
        self.journal = journal
        now_s = time.monotonic()
        if journal.swap and (old.swap is None or old.swap.intent != journal.swap.intent):
            self.times, self.cut = [], 0
        if journal.swap and (old.swap is None or old.swap.phase is not journal.swap.phase):
            self.times.append((journal.swap.phase.value, now_s))
        for event in narrate(old, journal):
            self.note(self._measured(event, now_s) if event.kind == "end" else event)
        if not (journal.swap or journal.stopping or journal.halting):  # the next end is that of another intent
            self.times, self.cut = [], 0
        self.wake.set()
        self.written()

    def _measured(self, event: SwapEvent, now_s: float) -> SwapEvent:
        """An end, with how long each phase took since this process leads."""
        seconds: dict[str, float] = {}
        for (phase, begun_s), (_, later_s) in pairwise([*self.times, ("end", now_s)]):
            seconds[phase] = round(seconds.get(phase, 0.0) + later_s - begun_s, 2)
        return replace(event, more={**event.more, "seconds": seconds, "cut": self.cut})

    def note(self, event: SwapEvent) -> None:
        """Keep an event. A full disk loses it, and never stops a swap."""
        self.log(f"{self.journal.service}: {event.text}")
        try:
            self.ledger.add_event(self.journal.service, event.record())
        except OSError as error:
            self.log(f"{self.journal.service}: the event is not kept: {error}")

    def intend(self, intent: Intent) -> Refused | NothingToDo | None:
        """Take an intent. None: accepted. Raises OSError where it cannot be written."""
        with self.lock:
            self.frozen = ""
            self._look(fresh=True)
            reply = accept(self.journal, intent, self.seen)
            if isinstance(reply, Journal):
                self._write(reply)
                return None
            return reply

    def lead(self, journal: Journal, view: Front) -> None:
        """Lead by another journal through another front. Raises OSError."""
        with self.lock:
            self.view = view
            if journal.revision:
                self._write(journal)
            self.journal = journal

    def regroup(self, peers: tuple[str, ...]) -> None:
        """Keep copies of the journal with these guards from now on. Raises OSError."""
        with self.lock:
            if self.journal.revision and self.journal.peers != peers:
                self._write(self.journal.changed(peers=peers))
            elif not self.journal.revision:
                self.journal = replace(self.journal, peers=peers)

    def trouble(self) -> str:
        """Why only an operator can continue; empty while the fleet can."""
        return self.frozen or needs_operator(self.journal, self.seen)


def _moving(reports: Mapping[str, Report]) -> object:
    """All of the reports that shows progress: every phase of a start is a change of it."""
    return tuple(sorted((node, report.adopted, report.armed, report.engines) for node, report in reports.items()))
