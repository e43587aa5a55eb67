"""The gateway as the leader sees and changes it: its map, open requests, and the answers of releases through it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from math import inf

from sparkops.config.serve import Task
from sparkops.engines import metrics
from sparkops.engines.endpoints import metrics_page
from sparkops.errors import CommandFailed, ConnectionLost, SparkopsError
from sparkops.gateway import commands
from sparkops.gateway.commands import Endpoint
from sparkops.gateway.facts import GatewayFacts, ServiceFacts, parse_gateway
from sparkops.gateway.front import endpoints, gateway_command
from sparkops.guard.environment import log
from sparkops.guard.follow.smoke_runs import Baking
from sparkops.guard.lead.completion import (
    ANSWER_S,
    MOST_GOT,
    PATHS,
    Completion,
    CompletionEnd,
    ReleaseHealth,
    body,
    judge,
    parse_reply,
)
from sparkops.guard.watch.workers import Workers
from sparkops.node.http import MOST_BYTES, direct
from sparkops.node.node import Node
from sparkops.node.streams import LineStream, SharedStream
from sparkops.serving import engine_spec
from sparkops.swap.effects import FrontEffect
from sparkops.swap.fleet_state import GatewayView
from sparkops.swap.model import Answer, Deployment
from sparkops.swap.wire import OtherFormat

SHOWN_S = 0.9  # most age of the gateway's state during a swap
SHOWN_IDLE_S = 9.9  # most age of the gateway's state while all releases answer
REPLY_S = 5.0


@dataclass
class GatewayContainer:
    """Reads and changes the gateway's container. `read_s`: when it was read last, by `clock`."""

    node: Node
    facts: GatewayFacts | None = None
    read_s: float = -inf
    clock: Callable[[], float] = time.monotonic
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held for a read of the stream: without it, one service would read the reply to another one's request."""

    def __post_init__(self) -> None:
        self.stream = LineStream(self.node, commands.SHOW_EACH)
        self.probes = SharedStream(self.node, commands.PROBE_EACH)

    def show(self, most_s: float = 0.0) -> GatewayFacts | None:
        """Return the gateway's state, less than `most_s` seconds old; None where it cannot be read.

        One that could not be read is read again after SHOWN_S.
        """
        if self.clock() - self.read_s >= (most_s if self.facts else min(most_s, SHOWN_S)):
            self.facts = self._read()
            self.read_s = self.clock()
        return self.facts

    def _read(self) -> GatewayFacts | None:
        """Read by the stream, or by a command where it has ended: the gateway may have been replaced."""
        try:
            facts = parse_gateway(self.printed() or self.node.run(commands.SHOW).stdout)
        except (CommandFailed, ConnectionLost, OtherFormat, ValueError):
            return None
        return None if facts.problem else facts

    def printed(self) -> str:
        """Return the reply of one process in the gateway's container; empty where none came: the next call starts one.

        A new `docker exec` takes 0.25 s of a core (two x86-64 cores, Docker 26.1), and a swap reads every second.
        """
        with self.lock:
            with suppress(OSError):
                if line := self.stream.request("", REPLY_S):
                    return line
            self.stream.close()
            return ""

    def probe(self, service: str, deployment: Deployment) -> CompletionEnd:
        """Send a completion to the slot of a release, past the limits of clients, and judge what came."""
        task = task_of(deployment)
        place = {"service": service, "slot": deployment.slot.value, "path": PATHS[task]}
        limits = {"answer_s": ANSWER_S, "most": MOST_BYTES}
        try:
            reply = self.probes.request({**place, "body": body(service, task), **limits}, ANSWER_S + REPLY_S)
            releases = {place.release for place in endpoints(deployment)}
            return judge(parse_reply(reply), releases, PATHS[task])
        except (OSError, ValueError):
            return CompletionEnd(Completion.CLOSED)


@dataclass
class GatewayFront:
    """The gateway as one service sees it. `look` never waits for an engine."""

    service: str
    gateway: GatewayContainer
    releases: dict[Deployment, ReleaseHealth] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic
    log: Callable[[str], None] = log
    executor: Executor = field(default_factory=lambda: Workers(max_workers=3))
    baking: Baking = field(init=False)

    def __post_init__(self) -> None:
        self.baking = Baking(self.executor, self.log)

    def look(
        self,
        deployments: tuple[Deployment, ...],
        *,
        swapping: bool,
        baked: Deployment | None = None,
        fresh: bool = False,
    ) -> GatewayView | None:
        """Return the gateway now; None while it cannot be read or does not know the service.

        `baked` is the release whose answers are judged as well: wrong ones are none.
        """
        calm = not swapping and all(health.answer is Answer.YES for health in self.releases.values())
        facts = self.gateway.show(0.0 if fresh else SHOWN_IDLE_S if calm else SHOWN_S)
        service = facts.services.get(self.service) if facts else None
        if service is None or not service.runtime:
            return None
        pointed = [item for item in deployments if is_pointed(service, item)]
        self.releases = {item: self.releases.get(item, ReleaseHealth()) for item in pointed}
        for deployment, health in self.releases.items():
            self._test(health, deployment, swapping=swapping)
        answers = self.baking.judged({item.slot: self.releases[item].answer for item in pointed}, baked)
        failures = {item.slot: health.got for item, health in self.releases.items() if health.answer is Answer.NO}
        if baked and self.baking.verdict:
            failures[baked.slot] = self.baking.verdict[:MOST_GOT]
        return GatewayView(
            active=service.active.slot if service.active and not service.hold else None,
            held=service.hold.mark if service.hold and service.holds else "",
            stopped=service.stopped,
            slots={item.slot: item.mark for item in pointed},
            answers=answers,
            failures=failures,
            open={item.slot: open_ for item in pointed if (open_ := service.slots[item.slot].sessions) is not None},
            down=frozenset(place for item in pointed for place in down_places(service, item)),
            left={item.slot: left for item in pointed if (left := service.slots[item.slot].left) is not None},
        )

    def _test(self, health: ReleaseHealth, deployment: Deployment, *, swapping: bool) -> None:
        """Learn the result of the last completion, and send the next one when it is due."""
        if health.pending is not None:
            if not health.pending.done():
                return
            end, health.pending = health.pending.result(), None
            health.learn(end.result, _steps(deployment) if end.result is Completion.LATE else (), end.got)
            health.next_s = self.clock() + health.interval_s(swapping=swapping)
        if self.clock() < health.next_s:
            return
        try:
            health.pending = self.executor.submit(self.gateway.probe, self.service, deployment)
        except RuntimeError as error:  # no thread can be started; as an error of ours it would end the lead
            health.next_s = self.clock() + health.interval_s(swapping=swapping)
            self.log(f"{self.service}: {deployment.release} not asked: {error}")

    def execute(self, effect: FrontEffect) -> str:
        """Change the gateway, and return what it printed. Raises SparkopsError."""
        try:
            completed = self.gateway.node.run(gateway_command(effect, self.service))
        except CommandFailed as failed:
            raise SparkopsError(f"{effect}: {failed.completed.last_lines}") from failed
        if completed.stderr:  # such as requests that a cut has not ended
            self.log(f"{self.service}: {effect}: {completed.stderr.strip()}")
        return completed.stdout.strip()

    def forget(self) -> None:
        """Remove the service from the gateway, if it has it. Raises SparkopsError."""
        try:
            self.gateway.node.run(commands.forget(self.service))
        except CommandFailed as failed:
            raise SparkopsError(f"{self.service} stays at the gateway: {failed.completed.last_lines}") from failed

    def close(self) -> None:
        """Send no more completions."""
        self.executor.shutdown(wait=False, cancel_futures=True)


def task_of(deployment: Deployment) -> Task:
    """Return the task of a release; that of chat models where its spec cannot be read."""
    with suppress(ValueError):
        return engine_spec.of(next(deployment.heads)).parsed.serve.task
    return "chat"


def is_pointed(service: ServiceFacts, deployment: Deployment) -> bool:
    """Return whether the slot of a release has this release, at the addresses of its engines.

    File and HAProxy must agree: one that starts may have read the file just before it was changed.
    """
    slot, places = service.slots[deployment.slot], endpoints(deployment)
    loaded = (slot.named, slot.serving) == (slot.release, slot.servers)
    if not loaded or slot.release != deployment.release or len(slot.servers) != len(places):
        return False
    return all(any(_is_at(server, place) for server in slot.servers) for place in places)


def down_places(service: ServiceFacts, deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Yield the places of the replicas that get no requests, since they fail HAProxy's checks."""
    failing = service.slots[deployment.slot].down
    for rank, place in zip(deployment.heads, endpoints(deployment), strict=True) if failing else ():
        if any(_is_at(server, place) for server in failing):
            yield rank.place


def _is_at(server: str, place: Endpoint) -> bool:
    """Return whether a server of the gateway is at an address. Of a name, resolved there, only the port is compared."""
    host, _, server_port = server.rpartition(":")
    with suppress(ValueError):
        return (ip_address(host.strip("[]")), server_port) == (ip_address(place.address), str(place.port))
    return server_port == str(place.port)


def _steps(deployment: Deployment) -> tuple[float, ...]:
    """Return the counters of a release's engines; empty where they cannot be read."""
    counters: tuple[float, ...] = ()
    for place in endpoints(deployment):
        with direct(place.address, place.port) as session:
            page = metrics_page(session)
        counters += metrics.steps(page) if page else ()
    return counters
