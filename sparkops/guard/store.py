"""The journals of a node: one file for each service, changed under a lock, replaced whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from sparkops.errors import Busy, SparkopsError
from sparkops.plan.journal import SCHEMA, Clock, Journal, Refusal

DIRECTORY = Path("/var/lib/sparkops")
BOOT_IDS = (Path("/run/boot_id"), Path("/proc/sys/kernel/random/boot_id"))  # the node's own comes first
NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
T = TypeVar("T")


def read_clock() -> Clock:
    """This node's clock: it stands still for nobody's laptop, and a reboot shows."""
    boot = next(file for file in BOOT_IDS if file.exists()).read_text().strip()
    return Clock(time.clock_gettime(time.CLOCK_BOOTTIME), boot)


class JournalUnreadable(SparkopsError):
    """A journal is there and cannot be understood. Nothing is done that could destroy what it knew."""

    exit_code = 7


@dataclass(frozen=True)
class Store:
    """The journals in a directory."""

    directory: Path = DIRECTORY
    clock: Callable[[], Clock] = field(default=read_clock)

    def services(self) -> list[str]:
        """Names of the services that have a journal here."""
        return sorted(file.stem for file in self.directory.glob("*.json"))

    def read(self, service: str) -> Journal:
        """The journal; an empty one where none was written. Raises JournalUnreadable."""
        file = self._file(service)
        try:
            text = file.read_text()
        except FileNotFoundError:
            return Journal(service=service)
        try:
            journal = Journal.model_validate_json(text)
        except ValidationError as error:
            raise self._unreadable(file, str(error.errors()[0]["msg"])) from None
        if journal.version > SCHEMA:
            raise self._unreadable(file, f"it was written by a newer sparkops (schema {journal.version})")
        return journal

    def change(self, service: str, decide: Callable[[Journal, Clock], Journal | Refusal]) -> Journal:
        """Replace the journal by what `decide` makes of it, under the file's lock. Raises Busy where it refuses."""
        with self._locked(service):
            decided = decide(self.read(service), self.clock())
            if isinstance(decided, Refusal):
                raise Busy(decided.why, next_step="sparkops status shows it; `--wait` waits for it.")
            self._write(self._file(service), decided.model_dump_json(indent=1))
            return decided

    def guarded(self, service: str, generation: int, act: Callable[[], T]) -> T:
        """Do `act` while nobody can take the lock over; refuse it to who no longer holds it. Raises Busy."""
        with self._locked(service):
            if self.read(service).generation > generation:
                raise Busy(f"another deploy has taken over {service}: generation {generation} has ended")
            return act()

    def remember(self, service: str, event: dict[str, object]) -> None:
        """Add one line to the service's history."""
        with self._locked(service), (self.directory / f"{service}.history").open("a") as history:
            history.write(json.dumps({"at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), **event}) + "\n")

    def history(self, service: str) -> Iterator[dict[str, object]]:
        """The events of a service, oldest first."""
        file = self.directory / f"{service}.history"
        for line in file.read_text().splitlines() if file.exists() else ():
            yield json.loads(line)

    def _file(self, service: str) -> Path:
        if not NAME.fullmatch(service):
            raise SparkopsError(f"{service!r} is not the name of a service")
        return self.directory / f"{service}.json"

    @contextmanager
    def _locked(self, service: str) -> Iterator[None]:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / f"{service}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @staticmethod
    def _write(file: Path, text: str) -> None:
        """On disk before it is in place: after a power cut there is the old text or the new one."""
        new = file.with_suffix(".new")
        with new.open("w") as opened:
            opened.write(text)
            opened.flush()
            os.fsync(opened.fileno())
        new.replace(file)
        directory = os.open(file.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    @staticmethod
    def _unreadable(file: Path, why: str) -> JournalUnreadable:
        step = f"Look at {file}. `sparkops status` shows what runs; when all is well, move the file away."
        return JournalUnreadable(f"the journal {file} cannot be read: {why}", next_step=step)
