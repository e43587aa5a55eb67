"""The gateway's files. The volume has the configuration, and in `state` active backends, servers of slots and holds.

HAProxy's maps and its composed configuration are in memory, so that a full disk stops no switch and no start.
"""

from __future__ import annotations

import binascii
import fcntl
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import zip_longest
from pathlib import Path
from typing import TypedDict, TypeVar

from store import Refused, Store, sync

STATE = Path(os.environ.get("GATEWAY_STATE", "/var/lib/gateway"))  # a volume
RUN = Path(os.environ.get("GATEWAY_RUN", "/run/gateway"))  # in memory
SETTINGS, KEYS, CERTIFICATE = (STATE / name for name in ("gateway.cfg", "keys", "tls.pem"))
ONE = STATE / "one.cfg"  # the one address of all services, if the inventory sets it
CONFIG, NEXT, LOADED = (RUN / name for name in ("haproxy.cfg", "next.cfg", "loaded"))
ACTIVE, RELEASES = RUN / "active.map", RUN / "release.map"
NAMES = RUN / "services.map"
GIVEN = re.compile(r"gateway\.cfg|one\.cfg|keys|tls\.pem|services/[a-z0-9][a-z0-9.-]*\.cfg")
STICKY = re.compile(r"^  balance hash ", re.MULTILINE)
ALIASES = re.compile(r"^# Further names: (.+)$", re.MULTILINE)
BIND = re.compile(r"^  bind \S*:(\d+)", re.MULTILINE)
PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)
DOWN, STOPPED, SERVERS, SLOTS = "be_down", "be_stopped", 16, ("blue", "green")
PATIENCE_S = 20.0


class Pointed(TypedDict):
    """Release and servers of a slot. Addresses are in HAProxy's notation, by place; an empty one is free.

    The first place is that of a lone server, which HAProxy does not check: its guard knows more, and there is no other.
    Of several, one that fails its checks gets no requests; they have the other places.
    `releases`: by place, those of servers with another one, while replicas are replaced one after another.
    """

    release: str
    servers: list[str]
    releases: list[str]


class Hold(TypedDict):
    """A hold of a service's requests during a start. `until`: its predicted end in Unix time; `mark`: its key.

    `left_s`: the prediction itself, so that a clock that is set back makes no wait longer.
    """

    mark: str
    until: float
    left_s: float
    longest_s: float
    most: int


class Kept(TypedDict):
    """What the volume keeps of a swap: active backends and holds by service, servers by backend."""

    active: dict[str, str]
    slots: dict[str, Pointed]
    holds: dict[str, Hold]


STORE = Store(STATE / "state")


def kept() -> Kept:
    """Return what the volume keeps. Raises Refused."""
    data = STORE.read()
    stored: Kept = json.loads(data) if data else {"active": {}, "slots": {}, "holds": {}}
    return stored


def keep(changed: Kept) -> None:
    """Write it in place, unless nothing has changed. Raises OSError, Refused."""
    if changed == kept():
        return
    STORE.write(json.dumps(changed).encode())


def reserve() -> None:
    """Create the file of the state while the disk has space for it. Raises OSError, Refused."""
    if STORE.read() is None:
        STORE.write(json.dumps(kept()).encode())


def read(file: Path) -> str:
    """Return the text of a file; empty if it does not exist."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""


def fingerprint() -> str:
    """Return the SHA-256 of the first certificate in openssl's format; empty without one."""
    certificate = PEM.search(read(CERTIFICATE))
    digest = hashlib.sha256(binascii.a2b_base64(certificate[1])).hexdigest() if certificate else ""
    return ":".join(digest[at : at + 2].upper() for at in range(0, len(digest), 2))


def put(file: Path, text: str) -> None:
    """Write a file atomically, unless it has this text. Empty text removes it. Raises OSError."""
    put_all({file: text})


def put_all(texts: Mapping[Path, str]) -> None:
    """Write files that differ: all of them on the disk before the first one takes its place. Raises OSError."""
    differing = {file: text for file, text in texts.items() if read(file) != text}
    staged = {file: file.with_name(f".{file.name}.new") for file, text in differing.items() if text}
    try:
        for file, new in staged.items():
            _write(new, differing[file])
    except OSError:
        for new in staged.values():
            new.unlink(missing_ok=True)
        raise
    for file in differing:
        if file in staged:
            staged[file].replace(file)
        else:
            file.unlink(missing_ok=True)
    for parent in {file.parent for file in differing if file.parent.is_dir()}:
        sync(parent)


def _write(new: Path, text: str) -> None:
    new.parent.mkdir(exist_ok=True)
    new.unlink(missing_ok=True)
    # Mode 0600: the certificate's private key is among the files, as the gateway restarts without the operator.
    with open(new, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


@contextmanager
def alone() -> Iterator[None]:
    """Hold the lock for changes, which is that of the directory: a full disk has no space for a file of its own.

    Raises Refused after PATIENCE_S.
    """
    directory = os.open(STATE, os.O_RDONLY)
    try:
        end = time.monotonic() + PATIENCE_S
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise Refused(f"another change of the gateway has not ended within {PATIENCE_S:g} s; retry")
            time.sleep(0.05)
        yield
    finally:
        os.close(directory)


def service_file(service: str) -> Path:
    return STATE / "services" / f"{service}.cfg"


def services() -> list[str]:
    return sorted(file.stem for file in (STATE / "services").glob("[!.]*.cfg"))


def aliases(service: str) -> list[str]:
    """Return the further names of a service."""
    line = ALIASES.search(read(service_file(service)))
    return line[1].split() if line else []


def sticky() -> list[str]:
    """Return the services whose conversations stay with one of several servers."""
    return [service for service in services() if STICKY.search(read(service_file(service)))]


def backends() -> list[str]:
    return [f"be_{service}_{slot}" for service in services() for slot in SLOTS]


def pointed(backend: str) -> Pointed:
    """Return the last release and servers of a slot."""
    nothing: Pointed = {"release": "-", "servers": [], "releases": []}
    return {**nothing, **kept()["slots"].get(backend, nothing)}  # an earlier version kept no `releases`


def remember(backend: str, slot: Pointed | None) -> None:
    """Keep the release and servers of a slot. Raises OSError, Refused."""
    stored = kept()
    keep({**stored, "slots": changed(stored["slots"], backend, slot)})


def active() -> dict[str, str]:
    """Return the active backend of each service."""
    return kept()["active"]


def activate(backends_by_service: dict[str, str]) -> None:
    """Keep the active backend of each service. Raises OSError, Refused."""
    keep({**kept(), "active": backends_by_service})


def hold(service: str) -> Hold | None:
    """Return the hold of a service; None if its requests do not wait."""
    return kept()["holds"].get(service)


def put_hold(service: str, hold: Hold | None) -> None:
    """Start or end a hold: start before HAProxy sends requests to the waiting room, end after it stops."""
    stored = kept()
    keep({**stored, "holds": changed(stored["holds"], service, hold)})


def holds() -> dict[str, Hold]:
    """Return all holds by service."""
    known, stored = services(), kept()["holds"]
    return {service: stored[service] for service in known if service in stored}


T = TypeVar("T")


def changed(table: Mapping[str, T], key: str, value: T | None) -> dict[str, T]:
    """Return a table with another value of a key; None removes it."""
    others = {name: present for name, present in table.items() if name != key}
    return others if value is None else {**others, key: value}


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


def compose(running: dict[str, str]) -> None:
    """Write the maps and NEXT, from which HAProxy starts, into memory. `running`: the running map. Raises Refused."""
    stored = kept()
    known = {**running, **stored["active"]}
    put_rows(ACTIVE, {service: known.get(service, DOWN) for service in services()})
    put_rows(RELEASES, {key: name for backend in backends() for key, name in named(backend).items()})
    put_rows(NAMES, {name: service for service in services() for name in (service, *aliases(service))})
    text = "\n".join([read(SETTINGS), read(ONE), *(read(service_file(service)) for service in services())])
    put(NEXT, "\n".join(filled(text)) + "\n")


def named(backend: str) -> dict[str, str]:
    """Return the release of a slot and of each of its places, by the name that HAProxy has for it."""
    slot = pointed(backend)
    names = {backend: slot["release"]}
    free = [""] * (1 + SERVERS)
    for place, (_, server, own) in enumerate(zip_longest(free, slot["servers"], slot["releases"], fillvalue=""), 1):
        names[f"{backend}/s{place}"] = own or slot["release"] if server else "-"
    return names


def settle() -> None:
    """Keep what HAProxy was given by `compose`, without holds of services whose requests do not wait.

    Raises OSError, Refused.
    """
    table = rows(read(ACTIVE))
    stored = kept()
    waits = {service: hold for service, hold in stored["holds"].items() if table.get(service) == waiting(service)}
    keep({**stored, "active": table, "holds": waits})


def filled(text: str) -> Iterator[str]:
    """Yield the configuration with the servers of each slot."""
    lone, several, slots = "", list[str](), kept()["slots"]
    for line in text.splitlines():
        if line.startswith("backend "):
            backend = line.split()[1]
            lone, *several = (slots[backend]["servers"] if backend in slots else []) or [""]
        if line.startswith("  server s1 ") and lone:
            yield f"  server s1 {lone}"
        elif line.startswith("  server-template "):
            for number, address in enumerate(several, 2):
                yield f"  server s{number} {f'{address} check' if address else '127.0.0.1:1 check disabled'}"
            if len(several) < SERVERS:
                yield f"  server-template s {len(several) + 2}-{SERVERS + 1} 127.0.0.1:1 check disabled"
        else:
            yield line
