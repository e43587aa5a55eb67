"""The gateway's files, from which HAProxy starts: active.map has the active backends, slots/ the servers of slots."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

STATE = Path(os.environ.get("GATEWAY_STATE", "/var/lib/gateway"))  # a volume
RUN = Path(os.environ.get("GATEWAY_RUN", "/run/gateway"))  # in memory
SETTINGS, KEYS, CERTIFICATE, ACTIVE = (STATE / name for name in ("gateway.cfg", "keys", "tls.pem", "active.map"))
ONE = STATE / "one.cfg"  # the one address of all services, if the inventory sets it
CONFIG, NEXT, LOADED, RELEASES = (RUN / name for name in ("haproxy.cfg", "next.cfg", "loaded", "release.map"))
NAMES = RUN / "services.map"
GIVEN = re.compile(r"gateway\.cfg|one\.cfg|keys|tls\.pem|services/[a-z0-9][a-z0-9.-]*\.cfg")
ALIASES = re.compile(r"^# Further names: (.+)$", re.MULTILINE)
BIND = re.compile(r"^  bind \S*:(\d+)", re.MULTILINE)
PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
DOWN, SERVERS, SLOTS = "be_down", 8, ("blue", "green")
PATIENCE_S = 20.0


class Refused(Exception):
    """A request is invalid, or HAProxy did not execute it."""


class Pointed(TypedDict):
    """Release and servers of a slot. Addresses are in HAProxy's notation."""

    release: str
    servers: list[str]


class Hold(TypedDict):
    """A hold of a service's requests during a start. `until`: its predicted end in Unix time; `mark`: its key."""

    mark: str
    until: float
    longest_s: float
    most: int


def read(file: Path) -> str:
    """Return the text of a file; empty if it does not exist."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def fingerprint() -> str:
    """Return the SHA-256 of the first certificate in openssl's format; empty without one."""
    certificate = PEM.search(read(CERTIFICATE))
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate[0])).hexdigest() if certificate else ""
    return ":".join(digest[at : at + 2].upper() for at in range(0, len(digest), 2))


def put(file: Path, text: str) -> None:
    """Write a file atomically, safe from a power cut. Empty text removes it."""
    file.parent.mkdir(exist_ok=True)
    if not text:
        file.unlink(missing_ok=True)
        return
    new = file.with_name(f".{file.name}.new")
    new.unlink(missing_ok=True)
    # Mode 0600: the certificate's private key is among the files, as the gateway restarts without the operator.
    with open(new, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    new.replace(file)
    directory = os.open(file.parent, os.O_RDONLY)
    os.fsync(directory)
    os.close(directory)


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock for changes. Raises Refused after PATIENCE_S."""
    with (STATE / "lock").open("w") as lock:
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise Refused(f"another change of the gateway has not ended within {PATIENCE_S:g} s; retry")
            time.sleep(0.05)
        yield


def service_file(service: str) -> Path:
    return STATE / "services" / f"{service}.cfg"


def services() -> list[str]:
    return sorted(file.stem for file in (STATE / "services").glob("[!.]*.cfg"))


def aliases(service: str) -> list[str]:
    """Return the further names of a service."""
    line = ALIASES.search(read(service_file(service)))
    return line[1].split() if line else []


def backends() -> list[str]:
    return [f"be_{service}_{slot}" for service in services() for slot in SLOTS]


def pointed(backend: str) -> Pointed:
    """Return the last release and servers of a slot."""
    text = read(STATE / "slots" / backend)
    slot: Pointed = json.loads(text) if text else {"release": "-", "servers": []}
    return slot


def remember(backend: str, slot: Pointed | None) -> None:
    put(STATE / "slots" / backend, json.dumps(slot) if slot else "")


def hold(service: str) -> Hold | None:
    """Return the hold of a service; None if its requests do not wait."""
    text = read(STATE / "holds" / service)
    return json.loads(text) if text else None


def put_hold(service: str, hold: Hold | None) -> None:
    """Start or end a hold: start before HAProxy sends requests to the waiting room, end after it stops."""
    put(STATE / "holds" / service, json.dumps(hold) if hold else "")


def holds() -> dict[str, Hold]:
    """Return all holds by service."""
    known = {service: hold(service) for service in services()}
    return {service: value for service, value in known.items() if value}


def waiting(service: str) -> str:
    """Return the backend that sends requests to the waiting room."""
    return f"be_{service}_wait"


def rows(text: str) -> dict[str, str]:
    """Parse a map's file, or the output of `show map`, which has a reference before each row."""
    words = [line.split() for line in text.splitlines()]
    return {row[-2]: row[-1] for row in words if len(row) in (2, 3)}


def put_rows(file: Path, table: dict[str, str]) -> None:
    put(file, "".join(f"{key} {value}\n" for key, value in table.items()) or "\n")


def configuration() -> list[Path]:
    """Return the files that only a reload applies."""
    return [SETTINGS, ONE, KEYS, CERTIFICATE, *map(service_file, services())]


def digest() -> str:
    text = "".join(f"{file.name}\n{read(file)}\0" for file in configuration())
    return hashlib.sha256(text.encode()).hexdigest()


def port(file: Path) -> int:
    """Return the port that a file binds; 0 without one."""
    bind = BIND.search(read(file))
    return int(bind[1]) if bind else 0


def ports() -> dict[int, str]:
    """Return the file of each port of the configuration. Raises Refused for a port in two files."""
    files: dict[int, str] = {}
    for file in filter(port, (SETTINGS, ONE, *map(service_file, services()))):
        if (number := port(file)) in files:
            raise Refused(f"port {number} is in two files: {files[number]} and {file.name}")
        files[number] = file.name
    return files


def compose(active: dict[str, str]) -> None:
    """Write the maps and NEXT, from which HAProxy starts. `active`: the running map."""
    backends_by_service = {**active, **rows(read(ACTIVE))}
    put_rows(ACTIVE, {service: backends_by_service.get(service, DOWN) for service in services()})
    for service in [name for name in holds() if backends_by_service.get(name) != waiting(name)]:
        put_hold(service, None)
    put_rows(RELEASES, {backend: pointed(backend)["release"] for backend in backends()})
    put_rows(NAMES, {name: service for service in services() for name in (service, *aliases(service))})
    text = "\n".join([read(SETTINGS), read(ONE), *(read(service_file(service)) for service in services())])
    put(NEXT, "\n".join(filled(text)) + "\n")


def filled(text: str) -> Iterator[str]:
    """Yield the configuration with the servers of each slot."""
    backend = ""
    for line in text.splitlines():
        if line.startswith("backend "):
            backend = line.split()[1]
        if not line.startswith("  server-template "):
            yield line
            continue
        servers = pointed(backend)["servers"]
        yield from (f"  server s{number} {address}" for number, address in enumerate(servers, 1))
        if len(servers) < SERVERS:
            yield f"  server-template s {len(servers) + 1}-{SERVERS} 127.0.0.1:1 disabled"
