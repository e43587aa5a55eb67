"""State of the gateway: the output of gateway.commands.SHOW as a value."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparkops import foreign
from sparkops.names import Slot, backend, waiting
from sparkops.swap.wire import require_format

NONE = "-"
IDLE = {"MAINT", "DRAIN"}
STOPPED = "be_stopped"


@dataclass(frozen=True)
class SlotFacts:
    """One slot of one service."""

    service: str
    slot: Slot
    release: str
    """The release that it points at; empty before the first one."""
    named: str
    """The release that HAProxy names in responses of this slot."""
    servers: tuple[str, ...]
    """Addresses that it points at, as ADDRESS:PORT."""
    serving: tuple[str, ...] = ()
    """Addresses that HAProxy sends requests to while the slot is active."""
    sessions: int | None = 0
    """Open requests, with those of old workers; 0 once drained, None while a worker does not reply."""
    left: int | None = 0
    """Open requests in servers that it has lost."""
    down: tuple[str, ...] = ()
    """Addresses that fail HAProxy's checks, so that they get no requests until they answer again."""


@dataclass(frozen=True)
class HoldFacts:
    """Waiting requests of a service, and their limits. Times in seconds."""

    mark: str
    """Key of the start that they wait for."""
    longest_s: float
    """Longest wait of a request."""
    most: int
    """Limit of waiting requests."""
    waiting: int
    """Number of waiting requests."""
    wait_s: float
    """Wait of the oldest request so far."""
    left_s: float
    """Predicted time until a release answers."""


@dataclass(frozen=True)
class ServiceFacts:
    """One service on the gateway."""

    name: str
    port: int
    file: str
    """The backend in the map's file."""
    runtime: str
    """The backend in the running HAProxy; empty if it does not answer."""
    slots: Mapping[Slot, SlotFacts]
    hold: HoldFacts | None = None
    aliases: tuple[str, ...] = ()
    path: str = ""
    """Prefix of a request's path: /SERVICE if the port is that of the one address, else empty."""
    sticky: bool = False
    """Whether a conversation stays with one of several servers."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """By process of HAProxy: responses with a status of 500 or more since its start."""

    @property
    def holds(self) -> bool:
        """Whether HAProxy holds requests."""
        return self.runtime == waiting(self.name)

    @property
    def stopped(self) -> bool:
        """Whether HAProxy answers that an operator has stopped the service."""
        return self.runtime == STOPPED

    @property
    def active(self) -> SlotFacts | None:
        """The active slot, if any: of the running HAProxy, or of the file if it does not answer."""
        names = {backend(self.name, slot): facts for slot, facts in self.slots.items()}
        return names.get(self.runtime or self.file)


@dataclass(frozen=True)
class GatewayFacts:
    """The gateway. `problem`: why HAProxy does not answer; then only the files are known."""

    services: Mapping[str, ServiceFacts]
    files: Mapping[str, str]
    """SHA-256 of each file that it received."""
    loaded: bool
    """Whether HAProxy runs with these files."""
    keys: frozenset[str] = frozenset()
    """SHA-256 of each API key."""
    certificate: str = ""
    """SHA-256 fingerprint of the certificate; empty without one."""
    problem: str = ""

    @property
    def drift(self) -> tuple[tuple[str, str], ...]:
        """Differences between the files and HAProxy, each as a code and a message."""
        return tuple(_drift(self))


def parse_gateway(text: str) -> GatewayFacts:
    """Parse the output of SHOW. Raises OtherFormat, and ValueError for other text."""
    try:
        shown = foreign.loads(text)
        require_format("the gateway", shown["format"])
        running = shown["haproxy"] or {"map": "", "releases": "", "processes": "", "statistics": {}}
        workers = _workers(running)
        return GatewayFacts(
            services={name: _service(name, shown, running, workers) for name in shown["ports"]},
            files=shown["files"],
            loaded=shown["loaded"],
            keys=frozenset(shown["keys"]),
            certificate=shown["certificate"],
            problem=shown["problem"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"unexpected output of the gateway: {error!r} in {text[:200]!r}") from None


def _workers(running: Mapping[str, Any]) -> dict[str, Worker | None]:
    """Return each worker by its process, the current one first, as in `show proc`; None for one without a reply."""
    words = [line.split() for line in running["processes"].splitlines()]
    known = {line[0]: running["statistics"].get(line[0]) for line in words if line[1:2] == ["worker"]}
    return {pid: None if statistics is None else Worker.parse(statistics) for pid, statistics in known.items()}


@dataclass(frozen=True)
class Worker:
    """The statistics of one process of HAProxy. An old one may lack a backend."""

    rows: tuple[Mapping[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Worker:
        """Parse the output of `show stat`. Raises ValueError for other text."""
        try:
            return cls(tuple(csv.DictReader(text.removeprefix("# ").splitlines())))
        except csv.Error as error:
            raise ValueError(f"unexpected statistics of HAProxy: {error}") from None

    def serving(self, backend: str) -> tuple[str, ...]:
        """Return the addresses of the servers that take requests."""
        return tuple(row["addr"] for row in self._serving(backend))

    def down(self, backend: str) -> tuple[str, ...]:
        """Return the addresses of the servers that fail their checks."""
        return tuple(row["addr"] for row in self._serving(backend) if row["status"].startswith("DOWN"))

    def left(self, backend: str, servers: Collection[str]) -> int:
        """Return the number of open requests in servers of a backend that are not among these."""
        return sum(int(row["scur"] or 0) for row in self._servers(backend) if row.get("addr") not in servers)

    def _serving(self, backend: str) -> Iterator[Mapping[str, str]]:
        """Yield the servers that get requests, or would if their checks passed: one that is withdrawn has no weight."""
        for row in self._servers(backend):
            if row["status"].split()[0] not in IDLE and row.get("weight") != "0":
                yield row

    def _servers(self, backend: str) -> Iterator[Mapping[str, str]]:
        return (row for row in self.rows if row["pxname"] == backend and row["svname"] != "BACKEND")

    def sessions(self, backend: str) -> int:
        """Return the number of open requests of a backend."""
        total = (row for row in self.rows if row["pxname"] == backend and row["svname"] == "BACKEND")
        return sum(int(row["scur"] or 0) for row in total)

    def errors(self, backends: Collection[str]) -> int:
        """Return the number of responses with a status of 500 or more of these backends."""
        total = (row for row in self.rows if row["pxname"] in backends and row["svname"] == "BACKEND")
        return sum(int(row.get("hrsp_5xx") or 0) for row in total)


def _service(
    name: str, shown: Mapping[str, Any], running: Mapping[str, Any], workers: Mapping[str, Worker | None]
) -> ServiceFacts:
    releases = _rows(running["releases"])
    slots = {
        slot: _slot(
            name,
            slot,
            shown["slots"][backend(name, slot)],
            releases.get(backend(name, slot), NONE),
            [*workers.values()],
        )
        for slot in Slot
    }
    file, runtime = (_rows(text).get(name, "") for text in (shown["map"], running["map"]))
    aliases = tuple(shown["aliases"].get(name, ()))
    sticky = name in shown.get("sticky", ())  # a gateway of an earlier version does not show it
    own_port = shown["ports"][name]
    port, path = (own_port, "") if own_port else (shown["port"], f"/{name}")
    backends = {waiting(name), *(backend(name, slot) for slot in Slot)}
    errors = {process: worker.errors(backends) for process, worker in workers.items() if worker}
    return ServiceFacts(name, port, file, runtime, slots, _hold(name, shown), aliases, path, sticky, errors)


def _hold(service: str, shown: Mapping[str, Any]) -> HoldFacts | None:
    """Return the hold of a service with the figures of the waiting room, zeros if it does not reply."""
    hold = shown["holds"].get(service)
    if hold is None:
        return None
    room = (shown.get("room") or {}).get(service, {})
    figures = (room.get("waiting_requests", 0), room.get("longest_wait_seconds", 0.0), room.get("remaining_seconds", 0))
    return HoldFacts(hold["mark"], hold["longest_s"], hold["most"], *figures)


def _slot(service: str, slot: Slot, pointed: Mapping[str, Any], named: str, workers: list[Worker | None]) -> SlotFacts:
    name = backend(service, slot)
    return SlotFacts(
        service=service,
        slot=slot,
        release="" if pointed["release"] == NONE else pointed["release"],
        named="" if named == NONE else named,
        servers=(servers := tuple(server for server in pointed["servers"] if server)),
        serving=workers[0].serving(name) if workers and workers[0] else (),
        sessions=None if None in workers else sum(worker.sessions(name) for worker in workers if worker),
        left=None if None in workers else sum(worker.left(name, servers) for worker in workers if worker),
        down=workers[0].down(name) if workers and workers[0] else (),
    )


def _rows(text: str) -> dict[str, str]:
    """Parse a map's file, or the output of `show map`, which has a reference before each row."""
    words = [line.split() for line in text.splitlines()]
    return {row[-2]: row[-1] for row in words if len(row) in (2, 3)}


def _drift(gateway: GatewayFacts) -> Iterator[tuple[str, str]]:
    if gateway.problem:
        yield "GATEWAY_DOWN", gateway.problem
        return
    if not gateway.loaded:
        yield "GATEWAY_NOT_LOADED", "HAProxy does not run with the gateway's files"
    for service in gateway.services.values():
        if service.file != service.runtime:
            backends = f"{service.file or 'nothing'} in the file, {service.runtime or 'nothing'} in HAProxy"
            yield "MAP_RUNTIME_DIFF", f"{service.name}: {backends}"
        for slot in service.slots.values():
            if slot.serving != slot.servers:
                listed = f"pointed at {' '.join(slot.servers)}, HAProxy has {' '.join(slot.serving) or 'none'}"
                yield "SERVERS_DIFF", f"{service.name} {slot.slot}: {listed}"
            elif slot.named != slot.release:
                listed = f"pointed at {slot.release or 'nothing'}, HAProxy names {slot.named or 'nothing'}"
                yield "RELEASE_DIFF", f"{service.name} {slot.slot}: {listed}"
