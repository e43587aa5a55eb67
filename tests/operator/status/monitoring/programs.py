"""Prometheus and promtool: those on PATH, else Debian's package, unpacked without an installation."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.fleet import engine

PACKAGE = "prometheus"


@cache
def program(name: str, directory: Path) -> str:
    """The path of a program, from Debian's package where the machine has none. Skips the test where there is no apt.

    The package is unpacked, not installed: its installation would start a Prometheus.
    """
    if found := shutil.which(name):
        return found
    unpacked = directory / "usr/bin" / name
    if not unpacked.exists():
        if not shutil.which("apt-get"):
            pytest.skip(f"this machine has neither {name} nor apt-get to get Debian's {PACKAGE} with")
        _unpack(directory)
    return str(unpacked)


def _unpack(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    with engine.one_at_a_time():
        if os.geteuid() == 0:  # a fresh machine knows no packages yet
            subprocess.run(["apt-get", "-qq", "update"], check=True, capture_output=True)
        subprocess.run(["apt-get", "-qq", "download", PACKAGE], cwd=directory, check=True, capture_output=True)
    [package] = directory.glob(f"{PACKAGE}_*.deb")
    subprocess.run(["dpkg", "-x", package, directory], check=True, capture_output=True)
    package.unlink()
