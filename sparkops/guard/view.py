"""What the leader sees of the gateway: its map, the requests in progress, and whether releases answer through it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf

from sparkops.command import Command
from sparkops.deploy.deployment import endpoints
from sparkops.engine import metrics
from sparkops.engine.endpoints import metrics_page
from sparkops.errors import CommandFailed, ConnectionLost, SparkopsError
from sparkops.gateway import commands
from sparkops.gateway.facts import ServiceFacts
from sparkops.guard.baking import Baking
from sparkops.guard.gateway_desk import SHOWN_S, GatewayDesk
from sparkops.guard.log import log
from sparkops.guard.question import Question, Said
from sparkops.nodes.http import direct
from sparkops.swap import effects
from sparkops.swap.effects import FrontEffect
from sparkops.swap.model import Answer, Deployment
from sparkops.swap.seen import GatewayView

FAILURES = 3  # in a row: a release does not answer
CERTIFICATE = "tls.pem"  # among the gateway's files where it speaks TLS
IDLE_S, BUSY_S = 10.0, 1.0  # between two questions to a release that answers; to another one, or during a swap
SHOWN_IDLE_S = 9.9  # most age of the gateway's state while all releases answer


@dataclass
class Asked:
    """What is known of one release: the last verdict, failures in a row, and the engine's own counters."""

    answer: Answer = Answer.UNKNOWN
    failures: int = 0
    next_s: float = -inf
    steps: tuple[float, ...] = ()
    pending: Future[Said] | None = None

    def learn(self, said: Said, steps: tuple[float, ...] = ()) -> None:
        """Take one answer in. An engine that is late and steps is busy, not hung; a closed gateway says nothing."""
        busy = said is Said.LATE and bool(steps) and steps != self.steps
        self.steps = steps
        if said is Said.RIGHT:
            self.answer, self.failures = Answer.YES, 0
        elif said is Said.CLOSED:
            self.answer = Answer.UNKNOWN
        elif not busy:
            self.failures += 1
            self.answer = Answer.NO if self.failures >= FAILURES else Answer.UNKNOWN
        elif self.answer is Answer.NO:
            self.answer = Answer.UNKNOWN


@dataclass
class ServiceView:
    """The gateway as one service sees it. `look` never waits for an engine."""

    service: str
    desk: GatewayDesk
    asked: dict[str, Asked] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    log: Callable[[str], None] = log
    asking: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(max_workers=3))
    baking: Baking = field(init=False)

    def __post_init__(self) -> None:
        self.baking = Baking(self.asking, self.log)

    def look(
        self,
        deployments: tuple[Deployment, ...],
        *,
        swapping: bool,
        baked: Deployment | None = None,
        fresh: bool = False,
    ) -> GatewayView | None:
        """What is seen now; None while the gateway cannot be read or does not know the service.

        `baked` is the release whose answers are judged as well: wrong ones are none.
        """
        facts = self.desk.show(0.0 if fresh else SHOWN_S if swapping or not self._calm else SHOWN_IDLE_S)
        service = facts.services.get(self.service) if facts else None
        if service is None or not service.runtime:
            return None
        pointed = {item.release: item for item in deployments if is_pointed(service, item)}
        for release in [name for name in self.asked if name not in pointed]:
            del self.asked[release]
        for deployment in pointed.values():
            self._ask(service, deployment, swapping=swapping)
        return GatewayView(
            traffic=service.active.release if service.active and not service.hold else "",
            held=service.hold.mark if service.hold and service.holds else "",
            slots={slot: facts.release for slot, facts in service.slots.items() if facts.release in pointed},
            answers=self._answers(baked),
            open={release: service.slots[item.slot].sessions for release, item in pointed.items()},
        )

    @property
    def _calm(self) -> bool:
        return all(asked.answer is Answer.YES for asked in self.asked.values())

    def _answers(self, baked: Deployment | None) -> dict[str, Answer]:
        answers = {release: asked.answer for release, asked in self.asked.items()}
        if self.baking.wrong(baked) and baked:
            answers[baked.release] = Answer.NO
        return answers

    def _ask(self, service: ServiceFacts, deployment: Deployment, *, swapping: bool) -> None:
        asked = self.asked.setdefault(deployment.release, Asked())
        if asked.pending is not None:
            if not asked.pending.done():
                return
            self._learn(asked, deployment)
            idle = asked.answer is Answer.YES and not swapping
            asked.next_s = self.clock() + (IDLE_S if idle else BUSY_S)
        if self.clock() < asked.next_s:
            return
        with suppress(CommandFailed, ConnectionLost):
            token = self.desk.preview_token(fresh=asked.failures > 0)
            where = (self.service, service.port, deployment.release, deployment.slot)
            question = Question(*where, token, encrypted=self._encrypted, path=service.path)
            asked.pending = self.asking.submit(question.ask)

    @property
    def _encrypted(self) -> bool:
        return self.desk.facts is not None and CERTIFICATE in self.desk.facts.files

    def _learn(self, asked: Asked, deployment: Deployment) -> None:
        said = asked.pending.result() if asked.pending else Said.CLOSED
        asked.pending = None
        asked.learn(said, _steps(deployment) if said is Said.LATE else ())

    def execute(self, effect: FrontEffect) -> str:
        """Change the gateway, and return what it printed. Raises SparkopsError."""
        try:
            return self.desk.node.run(self._command(effect)).stdout.strip()
        except CommandFailed as failed:
            raise SparkopsError(f"{effect}: {failed.completed.last_lines}") from failed

    def _command(self, effect: FrontEffect) -> Command:
        match effect:
            case effects.PointSlot(deployment=to):
                return commands.point(self.service, to.slot, to.release, endpoints(to))
            case effects.SwitchTraffic(deployment=to, hold=hold):
                down = commands.hold(self.service, hold) if hold else commands.switch_down(self.service)
                return commands.switch(self.service, to.slot, to.release) if to else down
            case effects.CutRequests(deployment=of):
                return commands.cut(self.service, of.slot)

    def close(self) -> None:
        """End what is being asked."""
        self.asking.shutdown(wait=False, cancel_futures=True)


def is_pointed(service: ServiceFacts, deployment: Deployment) -> bool:
    """Whether its slot means this release, where its engines are."""
    slot, places = service.slots[deployment.slot], endpoints(deployment)
    known = slot.release == deployment.release and len(slot.servers) == len(places)
    return known and all(_is_at(server, *place) for server, place in zip(slot.servers, places, strict=True))


def _is_at(server: str, address: str, port: int) -> bool:
    """Whether a server of the gateway is at an address. A name was resolved there: only its port can be compared."""
    host, _, server_port = server.rpartition(":")
    with suppress(ValueError):
        return (ip_address(host.strip("[]")), server_port) == (ip_address(address), str(port))
    return server_port == str(port)


def _steps(deployment: Deployment) -> tuple[float, ...]:
    """The counters of a release's first engine; empty where they cannot be read."""
    address, port = endpoints(deployment)[0]
    with direct(address, port) as session:
        page = metrics_page(session)
    return metrics.steps(page) if page else ()
