"""A file of two slots, written in turn and in place: it survives a crash at any byte, and a full disk."""

from __future__ import annotations

import hashlib
import os
import time
from contextlib import suppress
from pathlib import Path
from struct import Struct

MAGIC = b"gateway1"
HEADER = Struct(">8sQQ32s")  # magic, number of the write, length of the data, SHA-256 of these three and the data
SPAN = 128 * 1024  # bytes of a slot, whole blocks of any disk: 64 services with 16 servers in each slot take 70 KiB
READS, PAUSE_S = 5, 0.02  # a reader may meet two writes, one to each slot


class Refused(Exception):
    """A request is invalid, or HAProxy did not execute it."""


class Store:
    """Data of up to SPAN bytes in a file. Writers exclude each other; readers need no lock."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def read(self) -> bytes | None:
        """Return the data of the newest write; None if the file does not exist. Raises OSError, Refused."""
        for _ in range(READS):
            try:
                file = os.open(self.file, os.O_RDONLY)
            except FileNotFoundError:
                return None
            try:
                if newest := _newest(file):
                    return newest[2]
            finally:
                os.close(file)
            time.sleep(PAUSE_S)
        raise Refused(f"{self.file}: both copies are damaged")

    def write(self, data: bytes) -> None:
        """Replace the older copy. The data are on the disk on return. Raises OSError, Refused."""
        if len(data) > SPAN - HEADER.size:
            raise Refused(f"{self.file}: {len(data)} bytes, expected up to {SPAN - HEADER.size}: forget a service")
        if not self.file.exists():
            self._create(data)
            return
        file = os.open(self.file, os.O_RDWR)
        try:
            number, slot, _ = _newest(file) or (0, 1, b"")
            try:
                _write_all(file, _packed(number + 1, data), (1 - slot) * SPAN)
                os.fsync(file)
            except OSError:
                with suppress(OSError):  # the kernel may show data that are not on the disk: the other copy counts
                    os.pwrite(file, bytes(HEADER.size), (1 - slot) * SPAN)
                raise
        finally:
            os.close(file)

    def _create(self, data: bytes) -> None:
        """Write every block, so that the disk has space for all later writes."""
        new = self.file.with_name(f".{self.file.name}.new")
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(file, _packed(1, data).ljust(2 * SPAN, b"\0"), 0)
            os.fsync(file)
            new.replace(self.file)
        except OSError:
            new.unlink(missing_ok=True)
            raise
        finally:
            os.close(file)
        sync(self.file.parent)


def sync(directory: Path) -> None:
    """Write a directory's names to the disk. Raises OSError."""
    opened = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _packed(number: int, data: bytes) -> bytes:
    digest = hashlib.sha256(HEADER.pack(MAGIC, number, len(data), b"") + data).digest()
    return HEADER.pack(MAGIC, number, len(data), digest) + data


def _newest(file: int) -> tuple[int, int, bytes] | None:
    """Return number, slot and data of the newest write; None if both copies are damaged."""
    copies = [(*content, slot) for slot in (0, 1) if (content := _unpacked(file, slot))]
    return max(((number, slot, data) for number, data, slot in copies), default=None)


def _unpacked(file: int, slot: int) -> tuple[int, bytes] | None:
    header = os.pread(file, HEADER.size, slot * SPAN)
    if len(header) < HEADER.size:
        return None
    _, number, length, _ = HEADER.unpack(header)
    data = os.pread(file, min(length, SPAN), slot * SPAN + HEADER.size)
    return (number, data) if header + data == _packed(number, data) else None


def _write_all(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written
