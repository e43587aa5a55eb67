"""A service without a gateway as the leader sees it: its map, and the answers and counts of the engine on this node.

Clients call the engine itself, so the map closes nothing: it has the decisions of the machine.
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
from sparkops.guard.completion import Completion, CompletionRequest, ReleaseHealth
from sparkops.guard.smoke_runs import Baking
from sparkops.guard.state import DirectMap, State
from sparkops.nodes.http import direct
from sparkops.swap import effects
from sparkops.swap.effects import FrontEffect
from sparkops.swap.fleet_state import EngineState, GatewayView, Report
from sparkops.swap.model import Answer, Deployment

COUNTED_S = 3.0
"""Most age of a count of requests: clients may send another one at any time."""


@dataclass(frozen=True)
class Inquiry:
    """The replies of an engine: to a completion, and its page of metrics (None: no page)."""

    result: Completion
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
    """Send both requests to the engine of a release on this node. It takes up to 17 s."""
    address, port = endpoints(deployment)[0]
    result = CompletionRequest(service, port).send().result
    with direct(address, port) as session:
        page = metrics_page(session)
    # nothing is in between that could be closed
    return Inquiry(Completion.WRONG if result is Completion.CLOSED else result, page)


@dataclass
class EngineView:
    """The engine of one release."""

    health: ReleaseHealth = field(default_factory=ReleaseHealth)
    pending: Future[Inquiry] | None = None
    open: int | None = None
    counted_s: float = -inf
    healthy: bool = False

    def update_state(self, state: EngineState, now_s: float) -> None:
        """Update it from the state of its container. A failure of a loading engine is none of a loaded one."""
        healthy = state is EngineState.HEALTHY
        if healthy and not self.healthy and self.health.answer is Answer.NO:
            self.health = ReleaseHealth()
        self.healthy = healthy
        if not state.running:
            self.open, self.counted_s = 0, now_s

    def learn(self, inquiry: Inquiry, now_s: float) -> None:
        """Update it from the replies of its engine."""
        late = inquiry.result is Completion.LATE and inquiry.page is not None
        self.health.learn(inquiry.result, metrics.steps(inquiry.page or "") if late else ())
        self.open, self.counted_s = inquiry.open, now_s


@dataclass
class DirectFront:
    """A service without a gateway. `report` is that of this node's follower; rank 0 runs here."""

    service: str
    state: State
    report: Callable[[], Report]
    log: Callable[[str], None]
    inquire: Callable[[str, Deployment], Inquiry] = inquire
    clock: Callable[[], float] = time.monotonic
    executor: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=3))
    engines: dict[str, EngineView] = field(default_factory=dict)
    map: DirectMap = field(init=False)
    baking: Baking = field(init=False)

    def __post_init__(self) -> None:
        self.map = self.state.direct(self.service) or DirectMap()
        self.baking = Baking(self.executor, self.log)

    def look(
        self,
        deployments: tuple[Deployment, ...],
        *,
        swapping: bool,
        baked: Deployment | None = None,
        fresh: bool = False,  # noqa: ARG002 - nothing is remembered between two looks that could be out of date
    ) -> GatewayView | None:
        """Return the map, answers and counts now; None while the containers of this node are unknown."""
        try:
            report = self.report()
        except NotReady:
            return None
        pointed = {item.release: item for item in deployments if self.map.slots.get(item.slot) == item.release}
        self.engines = {release: self.engines.get(release, EngineView()) for release in pointed}
        for release, deployment in pointed.items():
            self._test(self.engines[release], deployment, report, swapping=swapping)
        slots = dict(self.map.slots)
        answers = {item.slot: self.engines[release].health.answer for release, item in pointed.items()}
        counts = self._open()
        return GatewayView(
            active=next((slot for slot, release in slots.items() if release == self.map.traffic), None),
            slots=slots,
            answers=self.baking.judged(answers, baked),
            open={item.slot: counts[release] for release, item in pointed.items() if release in counts},
        )

    def _test(self, engine: EngineView, deployment: Deployment, report: Report, *, swapping: bool) -> None:
        """Learn the last replies, and send the next requests when due. Slots share a port: only one of them runs."""
        state = report.engine(next(deployment.heads).container).state
        engine.update_state(state, self.clock())
        if engine.pending is not None and engine.pending.done():
            engine.learn(engine.pending.result(), self.clock())
            engine.pending = None
            engine.health.next_s = self.clock() + engine.health.interval_s(swapping=swapping)
        due = engine.pending is None and (self.clock() >= engine.health.next_s or (swapping and self._stale(engine)))
        if due and state.running:
            engine.pending = self.executor.submit(self.inquire, self.service, deployment)
        elif due:
            engine.health.learn(Completion.WRONG)
            engine.health.next_s = self.clock() + engine.health.interval_s(swapping=swapping)

    def _stale(self, engine: EngineView) -> bool:
        return self.clock() - engine.counted_s > COUNTED_S

    def _open(self) -> dict[str, int]:
        """Return open requests by release; one that is cut, or failed several times, finishes no request."""
        counts: dict[str, int] = {}
        for release, engine in self.engines.items():
            if release == self.map.cut or engine.health.answer is Answer.NO:
                counts[release] = 0
            elif engine.open is not None and not self._stale(engine):
                counts[release] = engine.open
        return counts

    def execute(self, effect: FrontEffect) -> str:
        """Write a decision, and return the number of requests that end with their engine. Raises OSError."""
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
