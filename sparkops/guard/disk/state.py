"""What a guard keeps on its node: journals, records, events, evidence, secrets and its fleet."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from pydantic import ConfigDict

from sparkops.errors import SparkopsError
from sparkops.guard.disk import durable
from sparkops.guard.disk.durable import Durable, Unreadable, make_directory, replace_file, sync_directory
from sparkops.guard.disk.evidence import Evidence, QuotaExceeded
from sparkops.guard.environment import NodeClock, log, read_clock, state_directory
from sparkops.node.cordon import Cordon
from sparkops.serving.watch.pace import Pace
from sparkops.swap import catalogue, wire
from sparkops.swap.catalogue import Notice
from sparkops.swap.follower import Record
from sparkops.swap.journal import SCHEMA, Journal
from sparkops.swap.wire import WireError

NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
SECRET = re.compile(r"[a-z0-9][a-z0-9.-]{0,127}")  # such as ray-RELEASE-SLOT-DIGEST
SLOT_BYTES = 2**20
PACES = 8
"""Releases of a service whose speed is kept: a rollback finds that of its own past."""
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a guard receives messages."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Membership:
    """The fleet of a guard. On the leader `key` is the fleet key and `peers` the others by node; else a derived key."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    leader: str
    key: bytes = field(repr=False)
    peers: Mapping[str, Peer] = field(default_factory=dict)
    former: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """By leader before this one: the key of its messages, so that one that returns is told of the newer term."""
    gateway: tuple[str, ...] = ()
    """Addresses of the leader's node, where the gateway's requests come from."""
    term: int = 0
    """The highest term of the rebuilds that made this guard lead or follow another leader; 0 without one."""
    paths: frozenset[str] | None = None
    """Directories, files and devices that the inventory has named for engines of this node; None: it did not say."""
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Monitored:
    """The port on which a guard serves figures to Prometheus. `digest`: SHA-256 of the key that it must send, hex."""

    port: int
    digest: str


@dataclass(frozen=True, slots=True)
class WebhookTarget:
    """Where a guard sends notices. A URL may be a secret."""

    urls: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class _StoredRecord:
    """A record with the version that wrote it."""

    record: Record
    schema: int = SCHEMA


@dataclass(frozen=True)
class State:
    """The files in a directory. Every method raises OSError, and SparkopsError for a name that is none."""

    directory: Path = field(default_factory=state_directory)
    clock: Callable[[], NodeClock] = read_clock
    log: Callable[[str], None] = log
    listeners: list[Callable[[Notice], None]] = field(default_factory=list, init=False, repr=False, compare=False)
    """What gets each notice of this node. A listener never blocks."""
    _files: dict[Path, Durable] = field(default_factory=dict, init=False, repr=False, compare=False)

    def services(self) -> list[str]:
        """Return the names of the services with a journal or a record, readable or not."""
        names = {file.parent.name for kind in ("journal", "record") for file in self._services.glob(f"*/{kind}")}
        return sorted(name for name in names if NAME.fullmatch(name))

    def journal(self, service: str) -> Journal | None:
        """Return the leader's journal; None if none was written. Raises Unreadable."""
        return self._read(Journal, self._service(service) / "journal")

    def write_journal(self, journal: Journal) -> None:
        """Replace a journal; it is on the disk on return, whether the disk is full or not. Raises Unreadable."""
        self._write(Journal, self._service(journal.service) / "journal", journal)

    def record(self, service: str) -> Record:
        """Return this guard's record; an empty one if none was written. Raises Unreadable."""
        stored = self._read(_StoredRecord, self._service(service) / "record")
        return stored.record if stored else Record()

    def write_record(self, service: str, record: Record) -> None:
        """Replace a record; it is on the disk on return, whether the disk is full or not. Raises Unreadable."""
        self._write(_StoredRecord, self._service(service) / "record", _StoredRecord(record))

    def add_event(self, service: str, event: Mapping[str, object]) -> int:
        """Append an event and return its number, from 1. It is on the disk on return.

        One that an operator must know is a notice too, also where it cannot be written here.
        """
        directory = self._service(service)
        if notice := catalogue.of_event(service, event):
            self.tell(notice)
        return durable.add_event(directory, event)

    def tell(self, notice: Notice) -> None:
        """Give a notice to all listeners."""
        for listener in self.listeners:
            listener(notice)

    def note_event(self, service: str, event: Mapping[str, object], log: Callable[[str], None]) -> None:
        """Append an event. A full disk loses it, which `log` gets, and stops nothing."""
        try:
            self.add_event(service, event)
        except OSError as error:
            log(f"{service}: event not saved: {event['text']}: {error}")

    def events(self, service: str, since: int = 0) -> list[dict[str, Any]]:
        """Return the events after number `since`, oldest first, with their number `n` and time `at` (UTC)."""
        return list(durable.events(self._service(service), since))

    def learn(self, service: str, started: Mapping[str, object]) -> None:
        """Add a start that ended well; the oldest of more than `durable.STARTS` is dropped."""
        durable.add_start(self._service(service), started)

    def starts(self, service: str) -> list[dict[str, Any]]:
        """Return the starts that ended well, oldest first."""
        return list(durable.starts(self._service(service)))

    def paces(self, service: str) -> Mapping[str, Pace]:
        """Return the speed of each release of a service on this node so far, by release. Raises Unreadable."""
        return _parsed(Mapping[str, Pace], self._service(service) / "paces.json") or {}  # type: ignore[type-abstract]

    def note_pace(self, service: str, release: str, pace: Pace) -> None:
        """Replace the speed of a release; the one that was noted longest ago of more than PACES is dropped."""
        others = [(name, known) for name, known in self.paces(service).items() if name != release]
        file = self._service(service) / "paces.json"
        make_directory(file.parent)
        kept = dict([*others, (release, pace)][-PACES:])
        replace_file(file, wire.dump(Mapping[str, Pace], kept))  # type: ignore[type-abstract]

    def keep(self, service: str, release: str, files: Mapping[str, str]) -> Path | None:
        """Save evidence and return its directory; None where it does not fit, with the reason in the log.

        Older evidence is dropped for it, each drop with an event. Raises no OSError: a full disk stops nothing.
        """
        self._service(service)
        try:
            return Evidence(self.directory / "evidence", self._note_drop).save(service, release, files)
        except (OSError, QuotaExceeded) as error:
            self.log(f"{service}: evidence of {release} not saved: {error}")
            return None

    def _note_drop(self, old: Path) -> None:
        try:
            text = f"evidence dropped: {old}: newer evidence needs its space"
            self.add_event(old.parent.name, {"kind": "note", "text": text, "lasting": True})
        except OSError as error:
            self.log(f"{old}: evidence dropped; its event is not saved: {error}")

    def secret(self, service: str, name: str) -> bytes | None:
        """Return a secret; None if this node has none of that name."""
        return _bytes(self._secret(service, name))

    def put_secret(self, service: str, name: str, value: bytes) -> None:
        """Save a secret, for its owner only."""
        file = self._secret(service, name)
        make_directory(file.parent)
        replace_file(file, value)

    def forget_secrets(self, service: str, kept: Collection[str], age_s: float) -> None:
        """Remove the secrets of a service that are not in `kept` and were saved more than `age_s` seconds ago."""
        before_s = time.time() - age_s
        for file in (self._service(service) / "secrets").glob("*"):
            if file.name not in kept and file.stat().st_mtime < before_s:
                file.unlink()

    def note_by_hand(self, service: str, containers: frozenset[str]) -> None:
        """Replace the set of containers that an operator stopped with Docker."""
        file = self._service(service) / "by_hand.json"
        make_directory(file.parent)
        replace_file(file, wire.dump(frozenset[str], containers))

    def by_hand(self, service: str) -> frozenset[str]:
        """Return the containers that an operator stopped with Docker. Raises Unreadable."""
        return _parsed(frozenset[str], self._service(service) / "by_hand.json") or frozenset()

    def membership(self) -> Membership | None:
        """Return the fleet of this guard; None before it has one. Raises Unreadable."""
        return _parsed(Membership, self._membership)

    def write_membership(self, membership: Membership) -> None:
        """Replace the fleet of this guard, for its owner only."""
        make_directory(self.directory)
        replace_file(self._membership, wire.dump(Membership, membership))

    def monitored(self) -> Monitored | None:
        """Return where this guard serves figures; None where it serves none. Raises Unreadable."""
        return _parsed(Monitored, self.directory / "monitoring.json")

    def write_monitored(self, monitored: Monitored | None) -> None:
        """Replace where this guard serves figures."""
        self._replace("monitoring.json", wire.dump(Monitored, monitored) if monitored else None)

    def webhook(self) -> WebhookTarget | None:
        """Return where this guard sends notices; None for nowhere. Raises Unreadable."""
        return _parsed(WebhookTarget, self.directory / "webhook.json")

    def write_webhook(self, target: WebhookTarget | None) -> None:
        """Replace where this guard sends notices, for its owner only."""
        self._replace("webhook.json", wire.dump(WebhookTarget, target) if target else None)

    def _replace(self, name: str, data: bytes | None) -> None:
        """Replace a file of the node, or remove it."""
        file = self.directory / name
        if data is not None:
            make_directory(self.directory)
            replace_file(file, data)
        elif file.exists():
            file.unlink()
            sync_directory(self.directory)

    def cordon(self) -> Cordon:
        """Return the cordon of this node; an open one if none was written. Raises Unreadable."""
        return _parsed(Cordon, self._cordon) or Cordon()

    def write_cordon(self, cordon: Cordon) -> None:
        """Replace the cordon of this node."""
        if cordon != Cordon():
            make_directory(self.directory)
            replace_file(self._cordon, wire.dump(Cordon, cordon))
        elif self._cordon.exists():
            self._cordon.unlink()
            sync_directory(self.directory)

    @property
    def _cordon(self) -> Path:
        return self.directory / "cordon.json"

    @property
    def _membership(self) -> Path:
        return self.directory / "membership.json"

    @property
    def _services(self) -> Path:
        return self.directory / "services"

    def _service(self, service: str) -> Path:
        if not NAME.fullmatch(service):
            raise SparkopsError(f"{service!r}: expected the name of a service: {NAME.pattern}")
        return self._services / service

    def _secret(self, service: str, name: str) -> Path:
        if not SECRET.fullmatch(name):
            raise SparkopsError(f"{service}: {name!r}: expected the name of a secret: {SECRET.pattern}")
        return self._service(service) / "secrets" / name

    def _durable(self, file: Path) -> Durable:
        return self._files.setdefault(file, Durable(file, SLOT_BYTES))

    def _read(self, kind: type[Value], file: Path) -> Value | None:
        data = self._durable(file).read()
        return None if data is None else _loaded(kind, data, file)

    def _write(self, kind: type[Value], file: Path, value: Value) -> None:
        self._durable(file).write(wire.dump(kind, value))


def _loaded(kind: type[Value], text: bytes, file: Path) -> Value:
    """Parse a file. Raises Unreadable."""
    try:
        return wire.load(kind, text)
    except WireError as error:
        raise Unreadable(file, str(error), next_step=error.next_step) from None


def _parsed(kind: type[Value], file: Path) -> Value | None:
    """Parse a file; None if it does not exist. Raises Unreadable."""
    text = _bytes(file)
    return None if text is None else _loaded(kind, text, file)


def _bytes(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except FileNotFoundError:
        return None
