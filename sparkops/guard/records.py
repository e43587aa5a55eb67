"""Lines of JSON on a node: numbered events, and the newest starts of a service."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from sparkops.guard.durable import locked, make_directory, replace_file, sync_directory

EVENT_BYTES = 2**20  # of one file; there are two, so that some thousand events of a service last
STARTS = 50  # of one service; older ones are dropped
Record = dict[str, Any]


def add_event(directory: Path, event: Mapping[str, object]) -> int:
    """Append an event with its number and time (UTC), on the disk on return. Returns the number. Raises OSError."""
    make_directory(directory)
    with locked(directory):
        number = max((known["n"] for known in events(directory)), default=0) + 1
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
                record = json.loads(line)
                if isinstance(record, dict):
                    yield record
