"""Prometheus and promtool: those on PATH, else Debian's package, unpacked without an installation."""

from __future__ import annotations

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "prometheus"


@cache
def program(name: str, directory: Path) -> str:
    """The path of a program. Skips the test where there is none and apt cannot get it."""
    if found := shutil.which(name):
        return found
    unpacked = directory / "usr/bin" / name
    if not unpacked.exists():
        try:
            _unpack(directory)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"{name}: not found, and apt-get download {PACKAGE} failed: {error}")
    return str(unpacked)


def _unpack(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "-qq", "download", PACKAGE], cwd=directory, check=True, capture_output=True)
    [package] = directory.glob(f"{PACKAGE}_*.deb")
    subprocess.run(["dpkg", "-x", package, directory], check=True, capture_output=True)
    package.unlink()
