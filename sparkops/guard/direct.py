"""What the leader sees of a service without a gateway: its map, and what the engine on this node answers and counts.

Clients call the engine itself, so the map closes nothing: it holds what the machine has decided.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import inf

from sparkops.deploy.deployment import endpoints
from sparkops.engine import metrics
from sparkops.engine.endpoints import metrics_page
from sparkops.errors import NotReady
from sparkops.guard.baking import Baking
from sparkops.guard.question import Question, Said
from sparkops.guard.state import DirectMap, State
from sparkops.guard.view import BUSY_S, IDLE_S, Asked
from sparkops.nodes.http import direct
from sparkops.swap import effects
from sparkops.swap.effects import FrontEffect
from sparkops.swap.model import Answer, Deployment
from sparkops.swap.seen import EngineState, GatewayView, Report

COUNTED_S = 3.0
"""An older count of requests says nothing: clients may send another one at any time."""


@dataclass(frozen=True)
class Inquiry:
    """What an engine said: to a completion, and on its page of metrics (None: no page)."""

    said: Said
    page: str | None

    @property
    def open(self) -> int | None:
        """Requests in its batch and queue; None where it does not answer.

        An engine that does not count them may have one.
        """
        if self.page is None:
            return None
        try:
            load = metrics.parse(self.page)
        except ValueError:
            return 1
        return load.running + load.waiting


def inquire(service: str, deployment: Deployment) -> Inquiry:
    """Ask the engine of a release on this node. It takes up to 17 s."""
    address, port = endpoints(deployment)[0]
    said = Question(service, port).ask()
    with direct(address, port) as session:
        page = metrics_page(session)
    return Inquiry(Said.WRONG if said is Said.CLOSED else said, page)  # nothing is in between that could be closed


@dataclass
class EngineView:
    """What is known of one release."""

    asked: Asked = field(default_factory=Asked)
    pending: Future[Inquiry] | None = None
    open: int | None = None
    counted_s: float = -inf
    healthy: bool = False

    def see(self, state: EngineState, now_s: float) -> None:
        """Take the state of its container in. What a loading engine did not answer says nothing of a loaded one."""
        healthy = state is EngineState.HEALTHY
        if healthy and not self.healthy and self.asked.answer is Answer.NO:
            self.asked = Asked()
        self.healthy = healthy
        if not state.running:
            self.open, self.counted_s = 0, now_s

    def learn(self, inquiry: Inquiry, now_s: float) -> None:
        """Take an answer in."""
        late = inquiry.said is Said.LATE and inquiry.page is not None
        self.asked.learn(inquiry.said, metrics.steps(inquiry.page or "") if late else ())
        self.open, self.counted_s = inquiry.open, now_s


@dataclass
class DirectView:
    """A service without a gateway. `report` is that of this node's follower; rank 0 runs here."""

    service: str
    state: State
    report: Callable[[], Report]
    log: Callable[[str], None]
    inquire: Callable[[str, Deployment], Inquiry] = inquire
    clock: Callable[[], float] = time.monotonic
    asking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=3))
    engines: dict[str, EngineView] = field(default_factory=dict)
    map: DirectMap = field(init=False)
    baking: Baking = field(init=False)

    def __post_init__(self) -> None:
        self.map = self.state.direct(self.service) or DirectMap()
        self.baking = Baking(self.asking, self.log)

    def look(
        self,
        deployments: tuple[Deployment, ...],
        *,
        swapping: bool,
        baked: Deployment | None = None,
        fresh: bool = False,  # noqa: ARG002 - nothing is remembered between two looks that could be out of date
    ) -> GatewayView | None:
        """What is seen now; None while the containers of this node are unknown."""
        try:
            report = self.report()
        except NotReady:
            return None
        pointed = {item.release: item for item in deployments if self.map.slots.get(item.slot) == item.release}
        self.engines = {release: self.engines.get(release, EngineView()) for release in pointed}
        for release, deployment in pointed.items():
            self._ask(self.engines[release], deployment, report, swapping=swapping)
        answers = {release: engine.asked.answer for release, engine in self.engines.items()}
        if self.baking.wrong(baked) and baked:
            answers[baked.release] = Answer.NO
        return GatewayView(self.map.traffic, dict(self.map.slots), answers, self._open())

    def _ask(self, engine: EngineView, deployment: Deployment, report: Report, *, swapping: bool) -> None:
        """Learn what was answered, and ask again when it is time. Slots share a port: only the running one is asked."""
        state = report.engine(next(deployment.heads).container).state
        engine.see(state, self.clock())
        if engine.pending is not None and engine.pending.done():
            engine.learn(engine.pending.result(), self.clock())
            engine.pending = None
            engine.asked.next_s = self._next_s(engine, swapping=swapping)
        due = engine.pending is None and (self.clock() >= engine.asked.next_s or (swapping and self._stale(engine)))
        if due and state.running:
            engine.pending = self.asking.submit(self.inquire, self.service, deployment)
        elif due:
            engine.asked.learn(Said.WRONG)
            engine.asked.next_s = self._next_s(engine, swapping=swapping)

    def _next_s(self, engine: EngineView, *, swapping: bool) -> float:
        return self.clock() + (IDLE_S if engine.asked.answer is Answer.YES and not swapping else BUSY_S)

    def _stale(self, engine: EngineView) -> bool:
        return self.clock() - engine.counted_s > COUNTED_S

    def _open(self) -> dict[str, int]:
        """By release; one that is cut, or has been asked in vain several times, finishes no request."""
        found: dict[str, int] = {}
        for release, engine in self.engines.items():
            if release == self.map.cut or engine.asked.answer is Answer.NO:
                found[release] = 0
            elif engine.open is not None and not self._stale(engine):
                found[release] = engine.open
        return found

    def execute(self, effect: FrontEffect) -> str:
        """Write what was decided, and return the number of requests that end with their engine. Raises OSError."""
        match effect:
            case effects.PointSlot(deployment=to):
                return self._write(replace(self.map, slots={**self.map.slots, to.slot: to.release}))
            case effects.SwitchTraffic(deployment=to):
                return self._write(replace(self.map, traffic=to.release if to else "", cut=""))
            case effects.CutRequests(deployment=of):
                engine = self.engines.get(of.release)
                self._write(replace(self.map, cut=of.release))
                return str(engine.open or 0) if engine else "0"

    def _write(self, changed: DirectMap) -> str:
        self.state.write_direct(self.service, changed)
        self.map = changed
        return ""
