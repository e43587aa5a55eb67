"""What the gateway says about itself: the reply to gateway.commands.SHOW as a value."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sparkops.names import Slot, backend, waiting

NONE = "-"
IDLE = {"MAINT", "DRAIN", "DOWN"}


@dataclass(frozen=True)
class SlotFacts:
    """One slot of one service. `requests` and `errors` count since the oldest worker began: a reload forgets."""

    service: str
    slot: Slot
    release: str
    """The release that it was pointed at; empty before the first time."""
    named: str
    """The release that HAProxy names in answers of this slot."""
    servers: tuple[str, ...]
    """Addresses that it was pointed at, as ADDRESS:PORT."""
    serving: tuple[str, ...] = ()
    """Addresses that HAProxy sends requests to while the slot has the traffic."""
    sessions: int = 0
    """Requests under way, in old workers too: 0 is drained."""
    old_sessions: int = 0
    """Those of them that old workers have."""
    requests: int = 0
    errors: int = 0
    """Connections that could not be made, and answers that broke off. A client that left is none."""
    answers_5xx: int = 0
    """Answers of the engine itself with a status of 500 or more."""


@dataclass(frozen=True)
class HoldFacts:
    """Requests of a service that wait for a start. Times in seconds."""

    mark: str
    """The start that they wait for."""
    longest_s: float
    """How long one may wait."""
    most: int
    """How many may wait."""
    waiting: int
    """How many do."""
    wait_s: float
    """How long the oldest of them has waited."""
    left_s: float
    """Predicted time until a release answers."""


@dataclass(frozen=True)
class ServiceFacts:
    """One service. `active` is who has the traffic: a slot, or nobody."""

    name: str
    port: int
    file: str
    """What the map's file says: a backend."""
    runtime: str
    """What HAProxy says; empty if it does not answer."""
    slots: Mapping[Slot, SlotFacts]
    hold: HoldFacts | None = None
    aliases: tuple[str, ...] = ()
    path: str = ""
    """Prefix of a request's path: /SERVICE where the port is that of the one address."""

    @property
    def holds(self) -> bool:
        """Whether HAProxy lets requests wait."""
        return self.runtime == waiting(self.name)

    @property
    def active(self) -> SlotFacts | None:
        """The slot that has the traffic. What runs is the truth; the file is what it will be after a restart."""
        names = {backend(self.name, slot): facts for slot, facts in self.slots.items()}
        return names.get(self.runtime or self.file)


@dataclass(frozen=True)
class GatewayFacts:
    """The gateway. `problem` says why HAProxy does not answer; then only files are known."""

    services: Mapping[str, ServiceFacts]
    files: Mapping[str, str]
    """SHA-256 of each file that it was given."""
    loaded: bool
    """Whether HAProxy runs with these files."""
    keys: frozenset[str] = frozenset()
    """SHA-256 of each API key."""
    certificate: str = ""
    """SHA-256 fingerprint of the certificate; empty without one."""
    workers: int = 0
    """Processes of HAProxy: more than one after a reload, until the old one's requests have ended."""
    problem: str = ""

    @property
    def drift(self) -> tuple[tuple[str, str], ...]:
        """Each disagreement as a code and a sentence."""
        return tuple(_drift(self))


def parse_gateway(text: str) -> GatewayFacts:
    """Read the reply to SHOW. Raises ValueError for anything else."""
    try:
        shown = json.loads(text)
        running = shown["haproxy"] or {"map": "", "releases": "", "processes": "", "statistics": {}}
        workers = [Worker.parse(statistics) for statistics in _in_order(running)]
        return GatewayFacts(
            services={name: _service(name, shown, running, workers) for name in shown["ports"]},
            files=shown["files"],
            loaded=shown["loaded"],
            keys=frozenset(shown.get("keys", ())),  # a gateway of an earlier version has neither, and is replaced
            certificate=shown.get("certificate", ""),
            workers=len(workers),
            problem=shown["problem"],
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"unexpected output of the gateway: {error!r} in {text[:200]!r}") from None


def _in_order(running: Mapping[str, Any]) -> list[str]:
    """The statistics of each worker; the first of `show proc` is the one that takes connections."""
    words = [line.split() for line in running["processes"].splitlines()]
    pids = [line[0] for line in words if line[1:2] == ["worker"]]
    return [running["statistics"][pid] for pid in pids if pid in running["statistics"]]


@dataclass(frozen=True)
class Worker:
    """The statistics of one process of HAProxy. An old one may not know a backend."""

    rows: tuple[Mapping[str, str], ...]

    @classmethod
    def parse(cls, text: str) -> Worker:
        """Read what `show stat` prints."""
        return cls(tuple(csv.DictReader(text.removeprefix("# ").splitlines())))

    def serving(self, backend: str) -> tuple[str, ...]:
        """The addresses of the servers that take requests."""
        return tuple(row["addr"] for row in self._servers(backend) if row["status"] not in IDLE)

    def count(self, backend: str, *columns: str) -> int:
        """The sum of some columns of a backend."""
        total = [row for row in self.rows if row["pxname"] == backend and row["svname"] == "BACKEND"]
        return sum(int(row[column] or 0) for row in total for column in columns)

    def count_servers(self, backend: str, column: str) -> int:
        """The sum of a column over a backend's servers: what HAProxy itself answered is not in it."""
        return sum(int(row[column] or 0) for row in self._servers(backend))

    def _servers(self, backend: str) -> list[Mapping[str, str]]:
        return [row for row in self.rows if row["pxname"] == backend and row["svname"] != "BACKEND"]


def _service(name: str, shown: Mapping[str, Any], running: Mapping[str, Any], workers: list[Worker]) -> ServiceFacts:
    releases = _rows(running["releases"])
    slots = {
        slot: _slot(name, slot, shown["slots"][backend(name, slot)], releases.get(backend(name, slot), NONE), workers)
        for slot in Slot
    }
    file, runtime = (_rows(text).get(name, "") for text in (shown["map"], running["map"]))
    aliases = tuple(shown.get("aliases", {}).get(name, ()))  # a gateway of an earlier version has none
    own_port = shown["ports"][name]
    port, path = (own_port, "") if own_port else (shown["port"], f"/{name}")
    return ServiceFacts(name, port, file, runtime, slots, _hold(name, shown), aliases, path)


def _hold(service: str, shown: Mapping[str, Any]) -> HoldFacts | None:
    """The hold of a service, with the figures of the waiting room: zeros where it does not answer."""
    hold = shown.get("holds", {}).get(service)  # a gateway of an earlier version has none
    if hold is None:
        return None
    room = (shown.get("room") or {}).get(service, {})
    figures = (room.get("waiting_requests", 0), room.get("longest_wait_seconds", 0.0), room.get("remaining_seconds", 0))
    return HoldFacts(hold["mark"], hold["longest_s"], hold["most"], *figures)


def _slot(service: str, slot: Slot, pointed: Mapping[str, Any], named: str, workers: list[Worker]) -> SlotFacts:
    name = backend(service, slot)
    current, old = workers[:1], workers[1:]
    old_sessions = sum(worker.count(name, "scur") for worker in old)
    return SlotFacts(
        service=service,
        slot=slot,
        release="" if pointed["release"] == NONE else pointed["release"],
        named="" if named == NONE else named,
        servers=tuple(pointed["servers"]),
        serving=current[0].serving(name) if current else (),
        sessions=sum(worker.count(name, "scur") for worker in current) + old_sessions,
        old_sessions=old_sessions,
        requests=sum(worker.count(name, "stot") for worker in workers),
        errors=sum(worker.count(name, "econ", "eresp") for worker in workers),
        answers_5xx=sum(worker.count_servers(name, "hrsp_5xx") for worker in workers),
    )


def _rows(text: str) -> dict[str, str]:
    """A map's file, or what `show map` prints, which has a reference before each row."""
    words = [line.split() for line in text.splitlines()]
    return {row[-2]: row[-1] for row in words if len(row) in (2, 3)}


def _drift(gateway: GatewayFacts) -> Iterator[tuple[str, str]]:
    if gateway.problem:
        yield "GATEWAY_DOWN", gateway.problem
        return
    if not gateway.loaded:
        yield "GATEWAY_NOT_LOADED", "HAProxy does not run with the files that the gateway has"
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
