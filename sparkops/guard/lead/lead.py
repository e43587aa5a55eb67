"""The leader of one service: it decides one effect at a time, and executes it at the gateway or in the journal."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from sparkops.errors import SparkopsError
from sparkops.guard.disk.notes import RESTART, last_restart_s
from sparkops.guard.disk.state import State
from sparkops.guard.lead.gateway_front import GatewayFront
from sparkops.swap import effects
from sparkops.swap.catalogue import Code, noted
from sparkops.swap.effects import FrontEffect
from sparkops.swap.events import SwapEvent, narrate
from sparkops.swap.fleet_state import EngineReport, FleetState, Report
from sparkops.swap.intents import Deploy, Forget, Intent, NothingToDo, Refused, accept
from sparkops.swap.journal import RESTARTS, Journal, Swap
from sparkops.swap.leader import needs_operator, step
from sparkops.swap.model import Answer, Deployment, Phase
from sparkops.swap.orders import Order, order, traffic
from sparkops.swap.trouble import MOVE, NEXT

PAUSE_S, IDLE_S, FAILED_S = 0.3, 1.0, 2.0
LONGEST_GAP_S = 5.0  # time in which this process did not run is no time in which requests were sampled


@dataclass
class PhaseClocks:
    """The seconds of a phase: those in which requests were sampled, and those without a state that is new in it."""

    sampled_s: float = 0.0
    waited_s: float = 0.0
    phase: object = None
    known: set[object] = field(default_factory=set)
    """The states of this phase so far: one that returns, such as that of a guard that restarts, is no progress."""
    last_s: float | None = None

    def tick(self, now_s: float, phase: object, state: object, *, sampled: bool) -> None:
        """Advance by the time since the last call. `state`: what the phase may wait for."""
        passed_s = 0.0 if self.last_s is None else now_s - self.last_s
        self.last_s = now_s
        if phase != self.phase:
            self.sampled_s, self.phase, self.known = 0.0, phase, set()
        elif sampled:
            self.sampled_s += min(passed_s, LONGEST_GAP_S)
        self.waited_s = self.waited_s + passed_s if state in self.known else 0.0
        self.known.add(state)


@dataclass
class Attempts:
    """The last effect on the gateway, while it has failed or changed nothing. Times in monotonic seconds."""

    effect: FrontEffect | None = None
    since_s: float = 0.0
    why: str = ""
    """Why the last attempt failed; empty if it did not."""

    def begin(self, effect: FrontEffect, now_s: float) -> bool:
        """Note that an effect is about to be executed. Returns whether the same one was before."""
        repeated = effect == self.effect
        if not repeated:
            self.effect, self.since_s = effect, now_s
        return repeated

    def forget(self) -> None:
        """Note that another effect or none is due: the last one had its result."""
        self.effect, self.why = None, ""


@dataclass
class Lead:
    """The lead of one service. `reports` returns the recent reports of its guards, this node's own among them."""

    journal: Journal
    state: State
    front: GatewayFront
    reports: Callable[[], Mapping[str, Report]]
    contacts: Callable[[], frozenset[str]]
    log: Callable[[str], None]
    written: Callable[[], None] = lambda: None
    """Called when the journal has changed: there are new orders."""
    other: Callable[[], str] = lambda: ""
    """The node whose guard leads in place of this one; empty for none."""
    wake: threading.Event = field(default_factory=threading.Event)
    """Set when the next turn must not wait."""
    lock: threading.RLock = field(default_factory=threading.RLock)
    clocks: PhaseClocks = field(default_factory=PhaseClocks)
    fleet: FleetState = field(default_factory=FleetState)
    frozen: str = ""
    """The traceback of an error in our own code: this service is led no further."""
    idle_s: float = IDLE_S
    """Seconds between two turns while nothing is in progress."""
    times: list[tuple[str, float]] = field(default_factory=list)
    """The phases of the intent in progress, each with its start in monotonic seconds."""
    cut: int = 0
    attempts: Attempts = field(default_factory=Attempts)
    restarted_s: float | None = None
    """BOOTTIME of the last restart by a leader in seconds; None: not read yet."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that only grow."""

    @property
    def busy(self) -> bool:
        """Whether a swap or a stop has not ended yet."""
        return self.journal.swap is not None or self.journal.stopping

    @property
    def hurried(self) -> bool:
        """Whether looks come often, and releases are asked every second: not beside one that is only kept warm.

        Each completion lets the workers of an idle vLLM spin for a second (SpinCondition in shm_broadcast.py, 0.32.0):
        asked every second, each engine took two thirds of a core for the ten minutes.
        """
        return self.journal.unfinished is not None or self.journal.stopping

    def order(self, node: str, boot: str) -> Order:
        return order(self.journal, node, boot)

    def run(self, over: threading.Event) -> None:
        """Lead until `over` is set, and `wake` after it."""
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
        if self.other():
            return self.idle_s
        self._look()
        effect = step(self.journal, self.fleet)
        if effect and not self.hurried:  # the state of an idle gateway may be seconds old
            self._look(fresh=True)
            effect = step(self.journal, self.fleet)
        if effect is None:
            if not self.attempts.why:
                self.attempts.forget()
            return PAUSE_S if self.hurried else self.idle_s
        if isinstance(effect, effects.WriteJournal):
            self._write(effect.journal)
            return 0.0
        return self._change(effect)

    def _look(self, *, fresh: bool = False) -> None:
        """Read the front and the reports, and advance the clocks of this phase."""
        journal = self.journal
        swap = journal.swap
        baked = swap.proving if swap and swap.phase is Phase.BAKE else None
        view = self.front.look(journal.pointed, swapping=self.hurried, baked=baked, fresh=fresh)
        reports = dict(self.reports())
        serving = view.answer(traffic(journal)) if view else Answer.UNKNOWN
        sampled = view is not None and (serving is Answer.YES or traffic(journal) is None)
        moved = (_moving(journal, reports), view and (view.active, tuple(sorted(view.answers.items()))))
        now_s = self.clock()
        phase = (swap and swap.key, swap and swap.phase, journal.stopping)
        self.clocks.tick(now_s, phase, moved, sampled=sampled)
        tried = self.attempts
        self.fleet = FleetState(
            reports=reports,
            gateway=view,
            contacts=self.contacts(),
            sampled_s=self.clocks.sampled_s,
            waited_s=self.clocks.waited_s,
            rested_s=self._rested_s() if self.journal.restarts else 0.0,
            tried=tried.effect,
            tried_s=now_s - tried.since_s if tried.effect else 0.0,
            why=tried.why,
        )

    def _rested_s(self) -> float:
        """Return the seconds since the last restart. Raises OSError.

        Its event makes the budget of an hour survive this process; without a readable one the hour begins now.
        """
        if self.restarted_s is None:
            try:
                self.restarted_s = last_restart_s(self.state, self.journal.service)
            except (SparkopsError, OSError) as error:
                self.log(f"{self.journal.service}: restarts not read: {error}")
                self.restarted_s = self.state.clock().now_s
        return self.state.clock().now_s - self.restarted_s

    def _change(self, effect: FrontEffect) -> float:
        """Execute an effect on the gateway. Returns the seconds to wait before the next turn.

        Raises SparkopsError and OSError; the machine learns of it by `tried`.
        """
        repeated = self.attempts.begin(effect, self.clock())
        try:
            printed = self.front.execute(effect)
        except (SparkopsError, OSError) as error:
            self.attempts.why = str(error)
            raise
        self.attempts.why = ""
        self._note_effect(effect, printed, repeated=repeated)
        self._look(fresh=True)
        return FAILED_S if repeated else 0.0

    def _note_effect(self, effect: FrontEffect, printed: str, *, repeated: bool) -> None:
        match effect:
            case effects.SwitchTraffic(deployment=None, hold=effects.RequestHold(left_s=left_s)):
                self.note(SwapEvent("traffic", f"requests wait, about {left_s:.0f} s"))
            case effects.SwitchTraffic(deployment=None):
                self.note(SwapEvent("traffic", "requests are refused: no release is active"))
            case effects.SwitchTraffic(deployment=Deployment() as deployment):
                self.note(SwapEvent("traffic", f"{deployment.release} is active, in slot {deployment.slot}"))
            case effects.CutRequests(deployment=deployment) if not repeated:
                self.cut += int(printed or 0)
                self.note(SwapEvent("note", f"{printed or 0} requests in {deployment.release} were cut"))
            case _:
                pass

    def _write(self, journal: Journal) -> None:
        """Write a journal to disk first: orders follow from it."""
        old = self.journal
        self.state.write_journal(journal)
        self.journal = journal
        if journal.swap and journal.restarts > old.restarts:
            self._note_restart(journal.swap, journal.restarts)
        self.attempts.forget()
        now_s = self.clock()
        events = list(narrate(old, journal))
        for event in events:
            self.note(self._measured(event, now_s) if event.kind == "end" else event)
        begins = journal.swap and (old.swap is None or old.swap.intent != journal.swap.intent)
        stops = journal.stopping and not old.stopping
        if begins or stops or any(event.kind == "end" for event in events):  # the next end is that of another intent
            self.times, self.cut = [], 0
        if journal.swap and (old.swap is None or old.swap.phase is not journal.swap.phase):
            self.times.append((journal.swap.phase.value, now_s))
        self.wake.set()
        self.written()

    def _note_restart(self, swap: Swap, count: int) -> None:
        clock, release = self.state.clock(), swap.target.release
        self.restarted_s = clock.now_s
        step = f"sparkops history {self.journal.service}"
        more = {"boot": clock.boot, "boottime_s": clock.now_s, **noted(Code.RESTARTED, release, next_step=step)}
        why = f", since {swap.why}" if swap.why else ""
        self.note(SwapEvent(RESTART, f"{release} is restarted{why}: {count} of {RESTARTS} within an hour", more=more))

    def _measured(self, event: SwapEvent, now_s: float) -> SwapEvent:
        """Return an end with the seconds of each phase since this process leads."""
        seconds: dict[str, float] = {}
        for (phase, start_s), (_, end_s) in pairwise([*self.times, ("end", now_s)]):
            seconds[phase] = round(seconds.get(phase, 0.0) + end_s - start_s, 2)
        return replace(event, more={**event.more, "seconds": seconds, "cut": self.cut})

    def note(self, event: SwapEvent) -> None:
        """Write an event. A full disk loses it, and never stops a swap."""
        self.log(f"{self.journal.service}: {event.text}")
        self.state.note_event(self.journal.service, event.record(), self.log)

    def has_replies(self, intent: Intent) -> bool:
        """Return whether the guards that an intent needs have replied. A new link has exchanged nothing yet."""
        nodes, peers = set[str](), set(self.journal.peers) - self.journal.without
        if isinstance(intent, Deploy):
            nodes, peers = {rank.node for rank in intent.target.ranks}, peers - intent.without
        return nodes <= set(self.reports()) and (not peers or bool(peers & self.contacts()))

    def intend(self, intent: Intent) -> Refused | NothingToDo | None:
        """Decide on an intent; None: accepted.

        Raises OSError where it cannot be written, SparkopsError where the gateway does not forget a service.
        """
        with self.lock:
            if other := self.other():
                return Refused(f"the guard of {other} leads", busy=True)
            self.frozen = ""
            self._look(fresh=True)
            reply = accept(self.journal, intent, self.fleet)
            if isinstance(reply, Journal):
                if isinstance(intent, Forget):
                    self.front.forget()  # first: a crash in between leaves a stopped service, to be forgotten again
                self._write(reply)
                return None
            return reply

    def lead(self, journal: Journal) -> None:
        """Lead by another journal. Raises OSError."""
        with self.lock:
            if journal.revision:
                self._write(journal)
            self.journal, self.restarted_s = journal, None

    def regroup(self, peers: tuple[str, ...]) -> None:
        """Replace the guards that keep copies of the journal. Raises OSError."""
        with self.lock:
            if self.journal.revision and self.journal.peers != peers:
                self._write(self.journal.changed(peers=peers))
            elif not self.journal.revision:
                self.journal = replace(self.journal, peers=peers)

    def warm_until(self) -> float | None:
        """Return when the old release stops that is kept warm, in Unix time of this node; None without one, or late.

        The clock of this time pauses while the new release does not answer, or the gateway cannot be read.
        """
        warm = self.journal.warm
        left_s = warm.limits.keep_old_s - self.fleet.sampled_s if warm else 0.0
        return time.time() + left_s if left_s > 0 else None

    def trouble(self) -> str:
        """Return why only an operator can continue; empty while the fleet can."""
        if other := self.other():
            return f"the lead is handed over to {other}{NEXT}{MOVE} {other}"
        return self.frozen or needs_operator(self.journal, self.fleet)


def _moving(journal: Journal, reports: Mapping[str, Report]) -> object:
    """Return the parts of reports that show progress of a service: each phase of a start changes them.

    Of a text only whether there is one: its figures are for people, and may change for ever.
    """
    ranks = (*(rank for item in journal.deployments for rank in item.ranks), *journal.stopped)
    relevant = [reports[node] for node in sorted({rank.node for rank in ranks} & set(reports))]
    return tuple(
        (report.node, report.adopted, report.armed, bool(report.load), tuple(map(_coded, report.engines)))
        for report in relevant
    )


def _coded(engine: EngineReport) -> EngineReport:
    return replace(
        engine,
        problem=str(bool(engine.problem)),
        dead=str(bool(engine.dead)),
        garbled=str(bool(engine.garbled)),
    )
