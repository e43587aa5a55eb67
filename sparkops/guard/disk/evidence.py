"""Evidence of failed starts, for an operator to read: bounded for each service and in all."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sparkops.errors import SparkopsError
from sparkops.guard.disk.durable import locked, make_directory

RELEASE = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
FILE = re.compile(r"[a-z]+\.[a-z]+")
QUOTA = 64 * 2**20  # bytes, of all services together
FAILURES = 5  # of one service


class QuotaExceeded(SparkopsError):
    """Evidence that alone is larger than the quota. It is dropped."""


@dataclass(frozen=True)
class Evidence:
    """The evidence of all services in a directory. `on_drop` gets the directory of older evidence that was removed."""

    directory: Path
    on_drop: Callable[[Path], None]

    def save(self, service: str, release: str, files: Mapping[str, str]) -> Path:
        """Save the files of a failed start, for their owner only, and return their directory.

        `service` is checked by the caller. Raises SparkopsError for a wrong name, QuotaExceeded, and OSError.
        """
        size = _size(release, files)
        make_directory(self.directory)
        with locked(self.directory):
            for old in list(_surplus(self.directory, service, size)):
                shutil.rmtree(old)
                self.on_drop(old)
            return _write(self.directory / service, release, files)


def _size(release: str, files: Mapping[str, str]) -> int:
    """Check names and size; return the size in bytes."""
    if wrong := [name for name in files if not FILE.fullmatch(name)]:
        raise SparkopsError(f"evidence: {wrong[0]!r}: expected the name of a file, such as log.txt")
    if not RELEASE.fullmatch(release):
        raise SparkopsError(f"evidence: {release!r}: expected the id of a release")
    size = sum(len(text.encode()) for text in files.values())
    if size > QUOTA:
        raise QuotaExceeded(f"evidence of {release}: {size} bytes, expected up to {QUOTA}")
    return size


def _write(directory: Path, release: str, files: Mapping[str, str]) -> Path:
    """Write the files for their owner only, whatever mode they had before; on a full disk leave nothing.

    Logs and transcripts hold texts of clients.
    """
    target = directory / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{release}"
    try:
        target.mkdir(parents=True, exist_ok=True)
        target.chmod(0o700)
        for name, text in files.items():
            (target / name).unlink(missing_ok=True)
            with os.fdopen(os.open(target / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text)
    except OSError:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return target


def _surplus(directory: Path, service: str, size: int) -> Iterator[Path]:
    """Yield what must go for `size` bytes more of a service: its own oldest, then the oldest of all services."""
    older = _oldest_first((directory / service).glob("*"))[: -(FAILURES - 1)]
    yield from older
    others = [saved for saved in _oldest_first(directory.glob("*/*")) if saved not in older]
    sizes = {saved: sum(file.stat().st_size for file in saved.iterdir()) for saved in others}
    total = size + sum(sizes.values())
    for saved in others:
        if total <= QUOTA:
            return
        total -= sizes[saved]
        yield saved


def _oldest_first(saved: Iterable[Path]) -> list[Path]:
    """Sort directories by their names, which begin with their time."""
    return sorted(saved, key=lambda directory: directory.name)
