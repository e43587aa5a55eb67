"""The report of a guard on its node for `sparkops status`: engines sampled in the background, the rest read on request.

The socket reads nothing: a connection gets a report. Its group cannot be that of Docker's socket, because the guard has
no capability to change it. So any user may connect, and the guard asks the kernel for the user.
"""

from __future__ import annotations

import json
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from sparkops.engines.load import METRICS
from sparkops.guard.lead.gateway_front import GatewayContainer
from sparkops.guard.lead.operator_socket import ConnectionLeases, Verbs, answer
from sparkops.node import host
from sparkops.node.agents.commands import SOCKET
from sparkops.node.docker.places import GATEWAY, REPORT, SHOW, STATE
from sparkops.node.node import Node
from sparkops.node.survey import node_survey
from sparkops.node.survey.commands import EVENTS_READ, FORMAT, request
from sparkops.node.survey.node_survey import Facts
from sparkops.swap.journal import SCHEMA

REQUESTED_S, IDLE_S = 60.0, 15.0
"""Seconds after a report during which every look samples, and seconds between two samples afterwards."""
OLD_S = 4.0
"""An older sample is renewed before it is reported. Twice the pause between two looks."""


@dataclass(frozen=True)
class Sampled:
    """One engine at `at_s`, in monotonic seconds, and its figures some seconds before if they are known."""

    container: str
    """Name of the container; empty where Docker does not inspect it."""
    start: str
    """When its container was started: a later start is another engine."""
    at_s: float
    engine: Facts
    service: str = ""

    @property
    def healthy(self) -> bool:
        return bool(self.engine.get("healthy"))

    @property
    def figures(self) -> dict[str, float]:
        """The newest figures; none of an engine that does not answer."""
        newest: dict[str, float] = self.engine["second" if "second" in self.engine else "first"] if self.healthy else {}
        return newest


@dataclass
class Sampler:
    """Samples the engines of a node. `look` runs every few seconds; reports may be asked for by several threads."""

    node: Node
    verbs: Verbs
    clock: Callable[[], float] = time.monotonic
    _samples: dict[str, Sampled] = field(default_factory=dict)
    """By ID of the container."""
    _requested_s: float = -inf
    _sampled_s: float = -inf
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._request = request()
        self._gateway = GatewayContainer(self.node)

    def look(self) -> None:
        """Sample the engines if that is due. Raises OSError."""
        now_s = self.clock()
        if now_s - self._requested_s > REQUESTED_S:
            with self._mutex:  # a process in the gateway's container, for reports only
                self._gateway.stream.close()
            if now_s - self._sampled_s < IDLE_S:
                return
        self._sampled_s = now_s
        self._renew(node_survey.containers(str(self._request["label"]))[0], 0.0)

    def newest(self, container: str) -> Sampled | None:
        """Return the last sample of a container, by its name; None before the first one."""
        return next((sample for sample in tuple(self._samples.values()) if sample.container == container), None)

    def samples(self) -> tuple[Sampled, ...]:
        """Return the last sample of each engine that Docker inspects."""
        return tuple(sample for sample in tuple(self._samples.values()) if sample.container)

    def report(self) -> Facts:
        """Return what node_survey.survey returns, with the age of each engine's sample in seconds."""
        self._requested_s = self.clock()
        # Before the containers: if a swap ended between the two reads, the engine that it stopped would look unneeded.
        guard = node_survey.replies(self._reply, EVENTS_READ, SCHEMA)
        inspects, docker, names = node_survey.containers(str(self._request["label"]))
        samples = self._renew(inspects, OLD_S)
        with self._mutex:
            gateway = self._shown() if names is None or GATEWAY in names else None
        now_s = self.clock()
        return {
            "format": FORMAT,
            "host": node_survey.run(host.status(STATE).argv),
            "docker": docker,
            "containers": inspects,
            "engines": [{**sample.engine, "sampled_s": round(now_s - sample.at_s, 1)} for sample in samples],
            "gateway": gateway or node_survey.failure(node_survey.NO_CONTAINER + GATEWAY),
            "guard": guard,
            "node": self.node.name,
        }

    def engines(self) -> tuple[list[Facts], list[Facts], Facts]:
        """Return the containers, the last sample of each, and the result of reading Docker. No engine is asked.

        `look` renews the samples every IDLE_S at least. One of an earlier start counts for nothing: it is empty then.
        """
        inspects, docker, _ = node_survey.containers(str(self._request["label"]))
        samples = [(item, self._samples.get(item["Id"])) for item in inspects]
        engines = [sample.engine if sample and sample.start == _start(item) else {} for item, sample in samples]
        return inspects, engines, docker

    def _renew(self, inspects: list[Facts], old_s: float) -> list[Sampled]:
        """Sample the engines whose last sample is `old_s` seconds old or more, or of another start. Return all."""
        samples_by_id, now_s = self._samples, self.clock()
        due = [item for item in inspects if self._old(item, samples_by_id.get(item["Id"]), now_s - old_s)]
        with ThreadPoolExecutor(8) as pool:
            fresh = dict(zip((item["Id"] for item in due), pool.map(self._sample, due), strict=True))
        self._samples = samples = {item["Id"]: fresh.get(item["Id"]) or samples_by_id[item["Id"]] for item in inspects}
        return list(samples.values())

    @staticmethod
    def _old(inspect: Facts, sample: Sampled | None, before_s: float) -> bool:
        """Return whether a sample is renewed: one of an engine that did not answer in any case, it may by now."""
        return sample is None or sample.start != _start(inspect) or not sample.healthy or sample.at_s <= before_s

    def _sample(self, inspect: Facts) -> Sampled:
        newest = self._samples.get(inspect["Id"])
        last = newest if newest and newest.start == _start(inspect) and newest.healthy else None
        engine = node_survey.engine(inspect, self._request, lambda port: self._figures(port, last))
        name = inspect["Name"].lstrip("/") if "Config" in inspect else ""
        service = str(node_survey.labels(inspect).get(str(self._request["label"]), ""))
        return Sampled(name, _start(inspect), self.clock(), engine, service)

    def _figures(self, port: int, last: Sampled | None) -> Facts:
        """Return the figures of an engine after those of its last sample; without any in it, two samples of now."""
        if last is None or not (earlier := last.figures):
            return node_survey.samples(port, METRICS)
        newest = node_survey.figures(node_survey.get(port, "/metrics"), METRICS)
        return {"first": earlier, "second": newest, "took_s": max(0.1, self.clock() - last.at_s)}

    def _shown(self) -> Facts:
        line = self._gateway.printed()
        return {"code": 0, "out": line, "err": ""} if line else node_survey.run(SHOW.argv)

    def _reply(self, line: str) -> str:
        with ConnectionLeases() as leases:
            return json.dumps(answer(self.verbs, line.encode(), leases)) + "\n"


def _start(inspect: Facts) -> str:
    started = inspect["State"]["StartedAt"] if "Config" in inspect else ""
    return f"{node_survey.state(inspect)} {started}"


SO_PEERGROUPS = getattr(socket, "SO_PEERGROUPS", 59)  # Linux 4.13; Python has no name for it
GROUPS = 256
"""Python asks for no more. The kernel refuses to list more, and such a user gets no report."""
SEND_S = 10.0
READERS = 8
"""Reports that are made and sent at once; further callers wait in the kernel."""


def may_read(user: int, groups: Collection[int], docker_group: int) -> bool:
    """Return whether a user may read the report: root, and whoever may use Docker, which shows the same and more."""
    return user == 0 or docker_group in groups


def caller(connection: socket.socket) -> tuple[int, list[int]]:
    """Return user and groups of the process that has connected, by the kernel. Raises OSError."""
    _, user, group = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    groups = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, 4 * GROUPS)
    return user, [group, *struct.unpack(f"{len(groups) // 4}I", groups)]


class _Caller(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        server, connection = self.server, self.request
        assert isinstance(server, _ReportServer)  # noqa: S101 - only that server makes this class
        connection.settimeout(SEND_S)
        with suppress(OSError):  # the caller has gone
            connection.sendall(json.dumps(server.report()).encode() + b"\n")


class _ReportServer(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 32

    def __init__(self, file: Path, docker: Path, report: Callable[[], object]) -> None:
        self.docker, self.report, self.free = docker, report, threading.Semaphore(READERS)
        super().__init__(str(file), _Caller)

    def verify_request(self, request: socket.socket, client_address: object) -> bool:  # type: ignore[override]
        """Return whether the caller may read. A flood of the others starts no thread."""
        _ = client_address
        try:
            return may_read(*caller(request), self.docker.stat().st_gid)
        except OSError:  # the caller has gone, or Docker's socket has
            return False

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread once fewer than READERS run."""
        self.free.acquire()
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be started
            self.free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()


def serve_reports(
    report: Callable[[], object], file: Path = Path(REPORT), docker: Path = Path(SOCKET)
) -> socketserver.BaseServer:
    """Send a report to each caller in threads until `shutdown` is called. `docker`: Docker's socket. Raises OSError."""
    file.unlink(missing_ok=True)
    server = _ReportServer(file, docker, report)
    file.chmod(0o666)
    threading.Thread(target=server.serve_forever, name="reports", daemon=True).start()
    return server
