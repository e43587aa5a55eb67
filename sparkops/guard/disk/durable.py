"""Files that survive a power cut and a full disk: two slots written in turn, files replaced at once, lines appended."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any

from sparkops import foreign
from sparkops.errors import NeedsOperator, SparkopsError
from sparkops.node.docker.places import CONTAINER

MAGIC = b"sparkop2"
HEADER = Struct(">8sQQ32s")  # magic, number of the write, length of the data, SHA-256 of these three and the data
BLOCK = 4096  # no block of the disk belongs to two slots, so a torn write damages one of them only


class Unreadable(SparkopsError):
    """A file that is damaged or of another format. It is left as it is."""

    exit_code = NeedsOperator.exit_code

    def __init__(self, file: Path, why: str, *, next_step: str = "") -> None:
        step = f"To continue without it, on its node: docker exec {CONTAINER} mv {file} {file}.bad"
        super().__init__(f"{file}: unreadable: {why}", next_step=next_step or step)


@dataclass
class Durable:
    """A file of two slots for up to `size` bytes. A write replaces the older slot, so a crash leaves the newer one.

    Every block is written when the file is created. On file systems that overwrite in place, such as ext4, a full disk
    stops no later write.
    """

    file: Path
    size: int
    _doubtful: int | None = field(default=None, init=False)
    """The slot whose last write failed: what the kernel returns for it may not be on the disk."""

    def read(self) -> bytes | None:
        """Return the data of the newest write; None if the file does not exist. Raises Unreadable and OSError."""
        try:
            with self._opened(os.O_RDONLY, fcntl.LOCK_SH) as file:
                return self._newest(file)[2]
        except FileNotFoundError:
            return None

    def write(self, data: bytes) -> None:
        """Replace the data; they are on the disk on return. Raises OSError, Unreadable, SparkopsError for too much."""
        if len(data) > self.size:
            raise SparkopsError(f"{self.file}: not written: {len(data)} bytes, expected up to {self.size}")
        if not self.file.exists() and self._created(data):
            return
        with self._opened(os.O_RDWR, fcntl.LOCK_EX) as file:
            number, newest, _ = self._newest(file)
            self._doubtful = 1 - newest
            place = self._doubtful * self._span
            try:
                _write_all(file, _packed(number + 1, data), place)
                os.fsync(file)
            except OSError:
                with suppress(OSError):  # the next process would take it for written: the kernel returns it
                    _write_all(file, bytes(HEADER.size), place)
                    os.fsync(file)
                raise
            self._doubtful = None

    @property
    def _span(self) -> int:
        """Bytes from the start of one slot to the next."""
        return -(-(HEADER.size + self.size) // BLOCK) * BLOCK

    def _created(self, data: bytes) -> bool:
        """Create the file with its first data, in place at once; False if another thread has created it."""
        make_directory(self.file.parent)
        with locked(self.file.parent):
            if self.file.exists():
                return False
            slot = _packed(1, data).ljust(self._span, b"\0")
            replace_file(self.file, slot + bytes(self._span))
            return True

    @contextmanager
    def _opened(self, flags: int, lock: int) -> Iterator[int]:
        file = os.open(self.file, flags | os.O_CLOEXEC)
        try:
            fcntl.flock(file, lock)
            yield file
        finally:
            os.close(file)

    def _newest(self, file: int) -> tuple[int, int, bytes]:
        """Return number, slot and data of the newest write."""
        slots = [
            (content[0], slot, content[1])
            for slot in (0, 1)
            if slot != self._doubtful and (content := _unpacked(os.pread(file, self._span, slot * self._span)))
        ]
        if not slots:
            raise Unreadable(self.file, "both copies are damaged")
        return max(slots)


def _packed(number: int, data: bytes) -> bytes:
    digest = hashlib.sha256(HEADER.pack(MAGIC, number, len(data), b"") + data).digest()
    return HEADER.pack(MAGIC, number, len(data), digest) + data


def _unpacked(slot: bytes) -> tuple[int, bytes] | None:
    """Return number and data of a slot; None for a damaged or empty one."""
    if len(slot) < HEADER.size:
        return None
    _, number, length, _ = HEADER.unpack_from(slot)
    data = slot[HEADER.size :][:length]
    return (number, data) if slot.startswith(_packed(number, data)) else None


def _write_all(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


def replace_file(file: Path, data: bytes) -> None:
    """Write a file for its owner only and rename it into place. Raises OSError, and leaves the old file as it was."""
    new = file.with_name(f".{file.name}.new")
    opened = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(opened, data, 0)
        os.fsync(opened)
        new.replace(file)
    except OSError:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(opened)
    sync_directory(file.parent)


def make_directory(directory: Path) -> None:
    """Create a directory for its owner only, with its parents, on the disk on return. Raises OSError."""
    if not directory.is_dir():
        make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Write a directory's names to the disk. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Exclude other threads and processes from a directory's files. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


EVENT_BYTES = 2**20  # of one file; there are two, so that some thousand events of a service last
STARTS = 50  # of one service; older ones are dropped
Record = dict[str, Any]


def add_event(directory: Path, event: Mapping[str, object]) -> int:
    """Append an event with its number and time (UTC), on the disk on return. Returns the number. Raises OSError."""
    make_directory(directory)
    with locked(directory):
        number = max((stored["n"] for stored in events(directory)), default=0) + 1
        stamped = {**event, "n": number, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        file = directory / "events.jsonl"
        if file.exists() and file.stat().st_size >= EVENT_BYTES:
            file.replace(directory / "events.1.jsonl")
        _append(file, json.dumps(stamped).encode())
        return number


def _append(file: Path, line: bytes) -> None:
    """Append a line. A part of it that fits on a full disk is removed again; one that a power cut left is ended."""
    with os.fdopen(
        os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "r+b", buffering=0
    ) as log:
        before = log.seek(0, os.SEEK_END)
        torn = before > 0 and os.pread(log.fileno(), 1, before - 1) != b"\n"
        try:
            text = b"\n" * torn + line + b"\n"
            while text:
                text = text[log.write(text) or 0 :]
            os.fsync(log)
        except OSError:
            log.truncate(before)
            raise
    if before == 0:
        sync_directory(file.parent)


def events(directory: Path, since: int = 0) -> Iterator[Record]:
    """Yield the events after number `since`, oldest first. Raises OSError."""
    for file in (directory / "events.1.jsonl", directory / "events.jsonl"):
        yield from (event for event in _lines(file) if isinstance(event.get("n"), int) and event["n"] > since)


def add_start(directory: Path, started: Mapping[str, object]) -> None:
    """Add a start, and drop the oldest. Raises OSError."""
    make_directory(directory)
    with locked(directory):
        kept = [*starts(directory), dict(started)][-STARTS:]
        replace_file(directory / "starts.jsonl", "".join(f"{json.dumps(start)}\n" for start in kept).encode())


def starts(directory: Path) -> Iterator[Record]:
    """Yield the starts of a service that ended well, oldest first. Raises OSError."""
    return _lines(directory / "starts.jsonl")


def _lines(file: Path) -> Iterator[Record]:
    """Yield the objects of a file. A line that a power cut has torn is left out: its writer was not answered."""
    with suppress(FileNotFoundError):
        for line in file.read_bytes().splitlines():
            with suppress(ValueError):
                record = foreign.loads(line)
                if isinstance(record, dict):
                    yield record
