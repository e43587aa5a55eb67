"""Small disks that a test fills."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

FULL = "No space left on device"


@contextmanager
def mounted(directory: Path, kib: int) -> Iterator[Path]:
    """A disk of that many KiB."""
    if os.geteuid() != 0:
        pytest.skip("mounts a tmpfs, which needs root")
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


@contextmanager
def in_image(disk: Path) -> Iterator[Path]:
    """A file system in a sparse file on a disk: `disk/image`, mounted at `disk/mounted`."""
    image, directory = disk / "image", disk / "mounted"
    directory.mkdir()
    with image.open("wb") as file:
        os.truncate(file.fileno(), 2**20)
    subprocess.run(["mkfs.ext2", "-q", "-b", "4096", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, directory], check=True)
    try:
        yield directory
    finally:
        subprocess.run(["umount", directory], check=True)


def punch(image: Path, text: bytes) -> None:
    """Take the page of the disk away from an image where `text` lies."""
    offset = image.read_bytes().index(text) // 4096 * 4096
    subprocess.run(["fallocate", "--punch-hole", f"--offset={offset}", "--length=4096", image], check=True)


def fill(disk: Path) -> None:
    """Take all of its space, by a file `filling`."""
    with (disk / "filling").open("wb", buffering=0) as filling, pytest.raises(OSError, match=FULL):
        filling.writelines(bytes(512) for _ in range(100_000))
