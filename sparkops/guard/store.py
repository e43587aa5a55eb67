"""The journals of a node: one file for each service, changed under a lock, replaced whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from sparkops.commands.places import CONTAINER, STATE
from sparkops.errors import Busy, NeedsPerson, SparkopsError
from sparkops.fleet import private
from sparkops.plan.journal import SCHEMA, Journal
from sparkops.plan.lock import NEXT_STEP, Clock, Refusal, holder_of, renew

DIRECTORY = Path(STATE)
BOOT_IDS = (Path("/run/boot_id"), Path("/proc/sys/kernel/random/boot_id"))  # the node's own comes first
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
RELEASE = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
FILE = re.compile(r"[a-z]+\.[a-z]+")
STARTS, FAILURES = 50, 5  # of each service; older ones are forgotten
T = TypeVar("T")


def read_clock() -> Clock:
    """This node's clock: it stands still for nobody's laptop, and a reboot shows."""
    boot = next(file for file in BOOT_IDS if file.exists()).read_text().strip()
    return Clock(time.clock_gettime(time.CLOCK_BOOTTIME), boot)


class JournalUnreadable(SparkopsError):
    """A journal is there and cannot be understood. Nothing is done that could destroy what it knew."""

    exit_code = NeedsPerson.exit_code


class _Schema(BaseModel):
    """All that is asked of a journal before its other keys are looked at."""

    version: int = SCHEMA


@dataclass(frozen=True)
class Store:
    """The journals in a directory."""

    directory: Path = DIRECTORY
    clock: Callable[[], Clock] = field(default=read_clock)

    def services(self) -> list[str]:
        """Names of the services that have a journal here."""
        return sorted(file.stem for file in self.directory.glob("*.json") if NAME.fullmatch(file.stem))

    def read(self, service: str) -> Journal:
        """The journal; an empty one where none was written. Raises JournalUnreadable."""
        file = self._file(service, "json")
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            return Journal(service=service)
        try:
            version = _Schema.model_validate_json(text).version
            if version > SCHEMA:
                raise self._unreadable(file, f"it was written by a newer sparkops (schema {version})")
            return Journal.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            raise self._unreadable(file, f"{where}: {first['msg']}" if where else first["msg"]) from None

    def readable(self, services: Iterable[str]) -> Iterator[Journal]:
        """The journals of those services that can be read; the others are told of elsewhere."""
        for service in services:
            with suppress(JournalUnreadable):
                yield self.read(service)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else on this node is in such a block."""
        with self._flock(self.directory / ".node.lock"):
            yield

    def change(self, service: str, decide: Callable[[Journal, Clock], Journal | Refusal]) -> Journal:
        """Replace the journal by what `decide` makes of it, under the file's lock. Raises Busy where it refuses."""
        with self._locked(service):
            decided = decide(self.read(service), self.clock())
            if isinstance(decided, Refusal):
                raise _busy(decided)
            self._write(service, decided)
            return decided

    def guarded(self, service: str, generation: int, act: Callable[[], T]) -> T:
        """Do `act` while nobody can take the lock over; refuse it to who no longer holds it. Raises Busy.

        `act` may take longer than a lease, and meanwhile nobody can renew it: its end is a sign of life.
        """
        with self._locked(service):
            holder = holder_of(self.read(service), generation)
            if isinstance(holder, Refusal):
                raise _busy(holder)
            try:
                return act()
            finally:
                renewed = renew(self.read(service), generation, self.clock())
                if isinstance(renewed, Journal):
                    self._write(service, renewed)

    def remember(self, service: str, event: dict[str, object]) -> None:
        """Add one line to the service's history."""
        with self._locked(service), self._file(service, "history").open("a") as history:
            history.write(json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **event}) + "\n")

    def history(self, service: str) -> Iterator[dict[str, object]]:
        """The events of a service, oldest first."""
        yield from _records(self._file(service, "history"))

    def starts(self, service: str) -> Iterator[dict[str, object]]:
        """The starts of a service that ended well, oldest first."""
        yield from _records(self._file(service, "starts"))

    def learn(self, service: str, started: dict[str, object]) -> None:
        """Add a start, and forget the oldest."""
        with self._locked(service):
            kept = [*self.starts(service), started][-STARTS:]
            new = self._file(service, "starts.new")
            new.write_text("".join(f"{json.dumps(each)}\n" for each in kept))
            new.replace(self._file(service, "starts"))

    def failure(self, service: str, release: str) -> Path:
        """A directory for what is left of a failed start. Only those of the newest failures stay."""
        if not (NAME.fullmatch(service) and RELEASE.fullmatch(release)):
            raise SparkopsError(f"{service!r}, {release!r}: expected names of a service and a release")
        made = self.directory / "failures" / service / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{release}"
        made.mkdir(parents=True, exist_ok=True)
        for old in sorted(made.parent.iterdir())[:-FAILURES]:
            shutil.rmtree(old)
        return made

    def keep(self, service: str, release: str, files: Mapping[str, str]) -> Path:
        """Save what is left of a failed start."""
        if wrong := [name for name in files if not FILE.fullmatch(name)]:
            raise SparkopsError(f"{wrong[0]!r} is not the name of a file")
        directory = self.failure(service, release)
        private.write(directory, files)
        return directory

    def _file(self, service: str, kind: str) -> Path:
        if not NAME.fullmatch(service):
            raise SparkopsError(f"{service!r} is not the name of a service")
        return self.directory / f"{service}.{kind}"

    @contextmanager
    def _locked(self, service: str) -> Iterator[None]:
        with self._flock(self._file(service, "lock")):
            yield

    @contextmanager
    def _flock(self, file: Path) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with file.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, service: str, journal: Journal) -> None:
        """On disk before it is in place: after a power cut there is the old text or the new one."""
        file, new = self._file(service, "json"), self._file(service, "new")
        with new.open("w") as opened:
            opened.write(journal.model_dump_json(indent=1))
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
        directory = os.open(self.directory, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @staticmethod
    def _unreadable(file: Path, why: str) -> JournalUnreadable:
        look = f"Look at it: docker exec {CONTAINER} cat {file}"
        step = f"{look}\nWhen all is well, as `sparkops status` shows it, move it away: docker exec {CONTAINER} mv ..."
        return JournalUnreadable(f"the journal {file} cannot be read: {why}", next_step=step)


def _records(file: Path) -> Iterator[dict[str, object]]:
    """The lines of a file. One that a power cut has torn is left out."""
    for line in file.read_text(errors="replace").splitlines() if file.exists() else ():
        with suppress(ValueError):
            yield json.loads(line)


def _busy(refusal: Refusal) -> Busy:
    return Busy(refusal.why, next_step=NEXT_STEP)
